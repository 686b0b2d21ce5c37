"""What values a configuration may have: the range of every number, and what must hold between several keys."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import reduce
from typing import TYPE_CHECKING, Any

from dynctx.errors import DynctxError

if TYPE_CHECKING:
    from dynctx.config import Config, ModelConfig

# what the stage reinforce can tell apart: subsets are numbered by their bits, and `exact` asks about all of them
LARGEST_SCOPES = {"self-critical": 40, "rloo": 40, "exact": 10}

LARGEST_BEAM = 1000
LANGUAGE = re.compile(r"[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8})*")  # zh, pt-BR, zh_Hans
DECODING = ("decoding", "training.validation")

COLDEST = 1e-3  # below, a temperature is that of the likeliest word, and numbers overflow
MOST_TOKENS = 10**9  # of a batch

AT_LEAST: dict[str, float] = {
    "data.vocabulary": 16,
    "data.character_coverage": 0.98,  # as SentencePiece has it
    **dict.fromkeys((f"{part}.temperature" for part in DECODING), COLDEST),
    "reinforce.samples": 2,  # each is judged by the others
    **dict.fromkeys(
        (
            "data.max_length",
            "model.heads",
            "model.width",
            "model.feed_forward",
            "model.encoder_layers",
            "model.decoder_layers",
            "model.tdnmt.context_layers",
            "scorer.pair_layers",
            "labels.batch_tokens",
            "reinforce.reward_tokens",
            "training.batch_tokens",
            "training.update_batches",
            "training.validate_every",
            "training.checkpoint_every",
            "training.log_every",
            *(f"{part}.{key}" for part in DECODING for key in ("beam", "batch_sentences")),
        ),
        1,
    ),
    **dict.fromkeys(
        (
            "data.subword_sample",
            "model.scope",
            "scorer.set_layers",
            "labels.margin",
            "labels.sentences",
            "labels.dev_sentences",
            "labels.subsets",
            "reinforce.price",
            "reinforce.entropy_bonus",
            "training.updates",
            "training.row_length",
            "training.run_length",
            "training.schedule.warmup",
            "training.weight_decay",
            "training.clip",
            "training.dev_documents",
            "training.patience",
            "training.average",
            "training.minutes",
            *(f"{part}.{key}" for part in DECODING for key in ("length_penalty", "max_extra")),
            "runtime.threads",
            "seed",
        ),
        0,
    ),
}
# beyond all use: a config that was not written by a person, or a slip of the hand, would take all memory there is
AT_MOST: dict[str, float] = {
    "seed": 2**63 - 1,
    "data.vocabulary": 10**7,
    "data.character_coverage": 1,
    "runtime.threads": 1024,
    **dict.fromkeys(("training.batch_tokens", "labels.batch_tokens", "reinforce.reward_tokens"), MOST_TOKENS),
    "model.width": 2**16,
    "model.feed_forward": 2**18,
    "model.heads": 2**10,
    "model.scope": 10**6,
    **dict.fromkeys(
        (
            "model.encoder_layers",
            "model.decoder_layers",
            "model.tdnmt.context_layers",
            "scorer.pair_layers",
            "scorer.set_layers",
        ),
        1000,
    ),
    **dict.fromkeys((f"{part}.beam" for part in DECODING), LARGEST_BEAM),
}
ABOVE_ZERO = (
    "data.max_ratio",
    "model.cadec.temperature",
    "scorer.temperature",
    "reinforce.temperature",
    "training.schedule.peak",
)
SHARES = (  # from 0 to 1
    "model.cadec.reference_drafts",
    "model.cadec.reference_noise",
    "model.cadec.sample_noise",
    "reinforce.alpha",
    "reinforce.tried",
    "reinforce.generated",
)
LESS_THAN_ALL = (  # from 0 to 1, and not 1
    "model.dropout",
    "model.attention_dropout",
    "model.relu_dropout",
    "scorer.dropout",
    "training.reserve",
    "training.beta2",
    "training.label_smoothing",
    "training.word_dropout",
)


def check(config: Config, where: str) -> None:
    """What no single type can say."""
    for key, rule in out_of_range(config):
        value = value_of(config, key)
        raise DynctxError(f"{where}: {key} ({value if isinstance(value, int) else f'{value:g}'}) {rule}")
    for holds, message in [*rules(config), *selection_rules(config)]:
        if not holds:
            raise DynctxError(f"{where}: {message}")


def out_of_range(config: Config) -> Iterator[tuple[str, str]]:
    """Keys and what their values should have been; what is not a number lies in no range."""
    for key, least in AT_LEAST.items():
        if not (least <= value_of(config, key) < math.inf):
            yield key, f"must be at least {least}" if least else "must not be negative"
    for key, most in AT_MOST.items():
        if value_of(config, key) > most:
            yield key, f"must be at most {most}"
    for key in ABOVE_ZERO:
        if not (0 < value_of(config, key) < math.inf):
            yield key, "must be above 0"
    for key in SHARES:
        if not (0 <= value_of(config, key) <= 1):
            yield key, "must lie in [0, 1]"
    for key in LESS_THAN_ALL:
        if not (0 <= value_of(config, key) < 1):
            yield key, "must lie in [0, 1)"


def value_of(config: Config, key: str) -> Any:
    return reduce(getattr, key.split("."), config)


def rules(config: Config) -> list[tuple[bool, str]]:
    """What must hold of data and network, and what to say where it does not."""
    model, data = config.model, config.data
    corpora = [*data.train, *([data.dev] if data.dev else []), *data.test.values()]
    return [
        (
            model.width % model.heads == 0,
            f"model.width ({model.width}) must be a multiple of model.heads ({model.heads})",
        ),
        (model.width % 2 == 0, f"model.width ({model.width}) must be even"),
        *(
            (not language or LANGUAGE.fullmatch(language) is not None, f"data.{side}: {language!r} is no language code")
            for side, language in (
                ("source_language", data.source_language),
                ("target_language", data.target_language),
            )
        ),
        (all(files.documents >= 0 for files in corpora), "documents must not be negative (0: all of them)"),
        (
            data.joint or model.tie_embeddings != "all",
            "model.tie_embeddings: all needs one joint vocabulary; with data.joint: false use target or none",
        ),
        (model.kind != "han" or model.han.encoder or model.han.decoder, "model.han needs encoder or decoder, or both"),
        (model.kind == "sentence" or model.scope >= 1, "model.scope must be at least 1 for a model that reads context"),
    ]


def selection_rules(config: Config) -> list[tuple[bool, str]]:
    """What must hold of scorer, labels and reinforcement, and what to say where it does not."""
    model, training, scorer, reinforce = config.model, config.training, config.scorer, config.reinforce
    learned = training.stage != "translation"
    selectors = {
        "training.selector": training.selector,
        "training.validation.selector": training.validation.selector,
        "decoding.selector": config.decoding.selector,
        "reinforce.strategy": reinforce.strategy,
    }
    wrong = {key: beyond_scope(selector, model) for key, selector in selectors.items()}
    return [
        *((not message, f"{key}: {message}") for key, message in wrong.items()),
        (
            not learned or model.kind != "sentence",
            f"training.stage: {training.stage} needs a model that reads context (model.kind)",
        ),
        (
            training.stage != "reinforce" or not training.reserve or reinforce.scorer_only,
            "training.reserve keeps documents from translators: with stage reinforce it needs reinforce.scorer_only",
        ),
        (
            reinforce.law == "sequential" or not reinforce.strategy.startswith("size-first"),
            "reinforce.law: independent draws selections of any size; size-first needs the sequential law",
        ),
        (
            training.stage != "reinforce" or model.scope <= LARGEST_SCOPES[reinforce.estimator],
            f"reinforce.estimator: {reinforce.estimator} needs a model.scope of at most "
            f"{LARGEST_SCOPES[reinforce.estimator]}",
        ),
        (
            not config.labels.subsets or (config.labels.kind == "reward" and config.labels.subsets >= 3),
            f"labels.subsets: {config.labels.subsets}: expected 0 (all), or 3 or more with labels.kind: reward",
        ),
        (not scorer.enabled or model.kind != "sentence", "scorer.enabled: a sentence model has no use for context"),
    ]


def beyond_scope(selector: str, model: ModelConfig) -> str:
    """What is wrong with a selector that asks for more sentences than the model can read; empty if nothing is.

    A sentence model is told to read any number of sentences and reads none.
    """
    words = selector.split()
    if model.kind == "sentence" or len(words) != 2 or words[0] not in ("previous", "random", "size-first"):
        return ""
    if not words[1].isdecimal() or (len(words[1]) < 10 and int(words[1]) <= model.scope):
        return ""
    return f"selector {selector!r} asks for more sentences than the model's scope of {model.scope} (model.scope)"
