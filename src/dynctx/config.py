"""Typed configuration: the keys that decide a run, their types and defaults, and the rules between them.

`configs/manual.yaml` explains every key. How YAML and `key=value` overrides fill the dataclasses, strictly, is
`dynctx.plain_data`'s part.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from dynctx.documents import TextFile
from dynctx.errors import DynctxError, at
from dynctx.plain_data import build, override, read_yaml, to_dict


@dataclass
class ParallelFiles:
    """Two aligned texts; `documents` keeps only the first so many documents (0: all)."""

    source: TextFile
    target: TextFile
    documents: int = 0


@dataclass
class DataConfig:
    """What `dynctx prepare` reads and where it writes."""

    folder: str = "data"
    source_language: str = ""
    target_language: str = ""
    train: list[ParallelFiles] = field(default_factory=list)
    dev: ParallelFiles | None = None
    test: dict[str, ParallelFiles] = field(default_factory=dict)
    vocabulary: int = 16000
    joint: bool = True
    subwords: Literal["bpe", "unigram"] = "bpe"
    character_coverage: float = 0.9999
    byte_fallback: bool = True
    normalization: Literal["nmt_nfkc", "nfkc", "identity"] = "nmt_nfkc"
    subword_sample: int = 1_000_000
    subwords_from: str = ""
    max_length: int = 128
    max_ratio: float = 8.0


@dataclass
class TdnmtConfig:
    """Zhang et al. 2018: a context encoder, and gated attention to it in every layer."""

    context_encoder: Literal["self_attention", "embedding", "bilstm"] = "self_attention"
    context_layers: int = 1
    gate: bool = True
    empty_context: Literal["eos", "bypass"] = "eos"


@dataclass
class HanConfig:
    """Miculicich et al. 2018: hierarchical attention on top of the encoder, of the decoder, or of both."""

    encoder: bool = True
    decoder: bool = True


@dataclass
class SanConfig:
    """Maruf et al. 2019: sparse attention to sentences, and to the words inside them, on top of the encoder."""

    context_states: Literal["frozen_copy", "live_detached"] = "frozen_copy"


@dataclass
class CadecConfig:
    """Voita et al. 2019: a second decoder over drafts. Here: what drafts it is trained on."""

    reference_drafts: float = 0.5
    reference_noise: float = 0.2
    sample_noise: float = 0.1
    temperature: float = 0.5


@dataclass
class ModelConfig:
    """The network. Sizes default to Transformer base."""

    kind: Literal["sentence", "concat", "tdnmt", "han", "san", "cadec"] = "sentence"
    scope: int = 6
    width: int = 512
    feed_forward: int = 2048
    heads: int = 8
    encoder_layers: int = 6
    decoder_layers: int = 6
    norm: Literal["post", "pre"] = "post"
    dropout: float = 0.1
    attention_dropout: float = 0.0
    relu_dropout: float = 0.0
    tie_embeddings: Literal["all", "target", "none"] = "all"
    tdnmt: TdnmtConfig = field(default_factory=TdnmtConfig)
    han: HanConfig = field(default_factory=HanConfig)
    san: SanConfig = field(default_factory=SanConfig)
    cadec: CadecConfig = field(default_factory=CadecConfig)


@dataclass
class ScorerConfig:
    """The context scorer: L1 layers over each pair of sentences, L2 over the candidates of one sentence."""

    enabled: bool = False
    pair_layers: int = 2
    set_layers: int = 2
    dropout: float = 0.1
    distance_positions: bool = True
    squash: bool = True
    temperature: float = 1.0


@dataclass
class LabelsConfig:
    """Pseudo labels: which single candidates help a translator, from which the scorer first learns."""

    model: str = ""
    train: str = ""
    dev: str = ""
    folder: str = "labels"
    kind: Literal["likelihood", "bleu", "reward"] = "likelihood"
    margin: float = 0.0
    together: bool = False
    sentences: int = 0
    batch_tokens: int = 32768


@dataclass
class ReinforceConfig:
    """Self-critical training of the scorer, and of the translator with it."""

    strategy: str = "probability-first"
    estimator: Literal["self-critical", "rloo", "exact"] = "self-critical"
    law: Literal["sequential", "independent"] = "sequential"
    sampling: Literal["include_non", "match_size"] = "include_non"
    samples: int = 4
    alpha: float = 0.75
    scorer_only: bool = False
    generation: Literal["sample", "greedy"] = "sample"
    tried: float = 0.0
    generated: float = 0.03125
    temperature: float = 1.0
    entropy_bonus: float = 0.0
    price: float = 0.0
    reward_tokens: int = 65536


@dataclass
class ScheduleConfig:
    """Learning rate: `inverse_sqrt` rises linearly to `peak` over `warmup` updates, then falls as 1/sqrt."""

    kind: Literal["inverse_sqrt", "constant"] = "inverse_sqrt"
    peak: float = 7e-4
    warmup: int = 4000


@dataclass
class DecodingConfig:
    """How translations are searched for, in validation and in use."""

    beam: int = 4
    length_penalty: float = 0.6
    max_extra: int = 50
    batch_sentences: int = 64
    selector: str = ""
    sampling: bool = False
    temperature: float = 1.0


@dataclass
class TrainingConfig:
    """One run of the training loop."""

    stage: Literal["translation", "scorer", "reinforce"] = "translation"
    output: str = "runs/model"
    init: str = ""
    freeze: Literal["auto", "nothing", "base"] = "auto"
    selector: str = "none"
    reserve: float = 0.0
    updates: int = 20000
    batch_tokens: int = 8192
    update_batches: int = 1
    row_length: int = 0
    run_length: int = 0
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    beta2: float = 0.98
    weight_decay: float = 0.0
    clip: float = 0.0
    label_smoothing: float = 0.1
    word_dropout: float = 0.0
    validate_every: int = 1000
    validation: DecodingConfig = field(default_factory=lambda: DecodingConfig(batch_sentences=256))
    dev_documents: int = 0
    patience: int = 0
    average: int = 5
    checkpoint_every: int = 500
    log_every: int = 50
    minutes: float = 0.0


@dataclass
class RuntimeConfig:
    """The machine: nothing here changes what is learned, only how fast and in which precision."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    threads: int = 0
    compile: bool = False


# what the stage reinforce can tell apart: subsets are numbered by their bits, and `exact` asks about all of them
LARGEST_SCOPES = {"self-critical": 40, "rloo": 40, "exact": 10}


@dataclass
class Config:
    """Everything that decides a run."""

    seed: int = 1
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    scorer: ScorerConfig = field(default_factory=ScorerConfig)
    labels: LabelsConfig = field(default_factory=LabelsConfig)
    reinforce: ReinforceConfig = field(default_factory=ReinforceConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    decoding: DecodingConfig = field(default_factory=DecodingConfig)
    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)


def load_config(path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> Config:
    """Read a YAML file, lay `key=value` overrides over it and check the result."""
    config = parse_config(read_yaml(path), where=at(path))
    return apply_overrides(config, overrides)


def parse_config(content: dict[str, Any], where: str = "config") -> Config:
    config = build(Config, content, where, "")
    check(config, where)
    return config


def apply_overrides(config: Config, overrides: Sequence[str]) -> Config:
    """`training.updates=10`: the value is read as YAML, so lists and mappings can be given too."""
    content = to_dict(config)
    override(content, overrides)
    return parse_config(content, where="overrides")


def check(config: Config, where: str) -> None:
    """What no single type can say."""
    model, training, data = config.model, config.training, config.data
    corpora = [*data.train, *([data.dev] if data.dev else []), *data.test.values()]
    rules = [
        (model.heads >= 1, f"model.heads ({model.heads}) must be at least 1"),
        (
            model.width >= 1 and model.width % max(1, model.heads) == 0,
            f"model.width ({model.width}) must be a multiple of model.heads ({model.heads})",
        ),
        (model.width % 2 == 0, f"model.width ({model.width}) must be even"),
        (all(files.documents >= 0 for files in corpora), "documents must not be negative (0: all of them)"),
        (data.vocabulary >= 16, f"data.vocabulary ({data.vocabulary}) must be at least 16"),
        (data.subword_sample >= 0, "data.subword_sample must not be negative (0: all sentences)"),
        (data.max_length >= 1, f"data.max_length ({data.max_length}) must be at least 1"),
        (
            data.joint or model.tie_embeddings != "all",
            "model.tie_embeddings: all needs one joint vocabulary; with data.joint: false use target or none",
        ),
        (training.update_batches >= 1, "training.update_batches must be at least 1"),
        (training.validate_every >= 1, "training.validate_every must be at least 1"),
        (training.checkpoint_every >= 1, "training.checkpoint_every must be at least 1"),
        (training.log_every >= 1, "training.log_every must be at least 1"),
        (training.updates >= 0, "training.updates must not be negative"),
        (0 <= training.reserve < 1, "training.reserve must lie in [0, 1)"),
        (training.run_length >= 0, "training.run_length must not be negative (0: what the model prefers)"),
        (model.kind != "han" or model.han.encoder or model.han.decoder, "model.han needs encoder or decoder, or both"),
        (model.kind == "sentence" or model.scope >= 1, "model.scope must be at least 1 for a model that reads context"),
        (model.tdnmt.context_layers >= 1, "model.tdnmt.context_layers must be at least 1 (without: context_encoder)"),
        (model.cadec.temperature > 0, "model.cadec.temperature must be above 0"),
        (0 <= training.label_smoothing < 1, "training.label_smoothing must lie in [0, 1)"),
        (0 <= training.word_dropout < 1, "training.word_dropout must lie in [0, 1)"),
        (config.decoding.beam >= 1 and training.validation.beam >= 1, "beam must be at least 1"),
    ]
    for decoding in (config.decoding, training.validation):
        rules.append((decoding.max_extra >= 0, "max_extra must not be negative"))
        rules.append((decoding.length_penalty >= 0, "length_penalty must not be negative (0: none)"))
        rules.append((decoding.temperature > 0, "temperature must be above 0"))
        rules.append((decoding.batch_sentences >= 1, "batch_sentences must be at least 1"))
    rules += selection_rules(config)
    for name in ("reference_drafts", "reference_noise", "sample_noise"):
        rules.append((0 <= getattr(model.cadec, name) <= 1, f"model.cadec.{name} must lie in [0, 1]"))
    for name in ("dropout", "attention_dropout", "relu_dropout"):
        rules.append((0 <= getattr(model, name) < 1, f"model.{name} must lie in [0, 1)"))
    for holds, message in rules:
        if not holds:
            raise DynctxError(f"{where}: {message}")


def selection_rules(config: Config) -> list[tuple[bool, str]]:
    """What must hold of scorer, labels and reinforcement, and what to say where it does not."""
    model, training = config.model, config.training
    scorer, labels, reinforce = config.scorer, config.labels, config.reinforce
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
        (labels.margin >= 0, "labels.margin must not be negative"),
        (reinforce.price >= 0, "reinforce.price must not be negative"),
        (reinforce.samples >= 2, "reinforce.samples must be at least 2: each is judged by the others"),
        (0 <= reinforce.alpha <= 1, "reinforce.alpha must lie in [0, 1]"),
        (labels.sentences >= 0, "labels.sentences must not be negative"),
        (0 <= reinforce.tried <= 1, "reinforce.tried must lie in [0, 1] (0: by the size of the batch)"),
        (0 <= reinforce.generated <= 1, "reinforce.generated must lie in [0, 1]"),
        (reinforce.temperature > 0, "reinforce.temperature must be above 0"),
        (scorer.pair_layers >= 1, "scorer.pair_layers must be at least 1"),
        (scorer.set_layers >= 0, "scorer.set_layers must not be negative"),
        (0 <= scorer.dropout < 1, "scorer.dropout must lie in [0, 1)"),
        (scorer.temperature > 0, "scorer.temperature must be above 0"),
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
