"""What values a configuration may have, and what is said of others."""

from __future__ import annotations

from typing import Any

import pytest
from config_parts import PAIR, keys, refused

from dynctx import config_rules
from dynctx.config import Config, parse_config


def test_every_number_has_a_range() -> None:
    """A new key cannot be forgotten: its range is in one of the lists, and in one only."""
    lists = (config_rules.AT_LEAST, config_rules.ABOVE_ZERO, config_rules.SHARES, config_rules.LESS_THAN_ALL)
    ranged = [key for keys in lists for key in keys]
    values = {key: config_rules.value_of(Config(), key) for key in keys(Config)}
    numbers = {key for key, value in values.items() if isinstance(value, int | float) and not isinstance(value, bool)}
    assert sorted(ranged) == sorted(numbers)


@pytest.mark.parametrize(
    "content, problem",
    [
        ({"model": {"width": 510}}, "model.width (510) must be a multiple of model.heads (8)"),
        ({"model": {"width": 0}}, "model.width (0) must be at least 1"),
        ({"model": {"width": 7, "heads": 7}}, "model.width (7) must be even"),
        ({"model": {"heads": 0}}, "model.heads (0) must be at least 1"),
        ({"model": {"heads": -8}}, "model.heads (-8) must be at least 1"),
        ({"model": {"dropout": 1.0}}, "model.dropout (1) must lie in [0, 1)"),
        ({"model": {"attention_dropout": -0.1}}, "model.attention_dropout (-0.1) must lie in [0, 1)"),
        ({"model": {"relu_dropout": float("nan")}}, "model.relu_dropout (nan) must lie in [0, 1)"),
        ({"model": {"kind": "san", "scope": 0}}, "model.scope must be at least 1 for a model that reads context"),
        (
            {"model": {"kind": "han", "han": {"encoder": False, "decoder": False}}},
            "model.han needs encoder or decoder, or both",
        ),
        ({"model": {"tdnmt": {"context_layers": 0}}}, "model.tdnmt.context_layers (0) must be at least 1"),
        ({"model": {"cadec": {"temperature": 0}}}, "model.cadec.temperature (0) must be above 0"),
        ({"model": {"cadec": {"sample_noise": 1.1}}}, "model.cadec.sample_noise (1.1) must lie in [0, 1]"),
        ({"training": {"run_length": -1}}, "training.run_length (-1) must not be negative"),
        ({"data": {"vocabulary": 15}}, "data.vocabulary (15) must be at least 16"),
        ({"data": {"max_length": 0}}, "data.max_length (0) must be at least 1"),
        ({"data": {"subword_sample": -1}}, "data.subword_sample (-1) must not be negative"),
        (
            {"data": {"joint": False}},
            "model.tie_embeddings: all needs one joint vocabulary; ",
        ),
        ({"data": {"train": [PAIR, PAIR | {"documents": -1}]}}, "documents must not be negative"),
        ({"data": {"dev": PAIR | {"documents": -1}}}, "documents must not be negative"),
        ({"data": {"test": {"tst": PAIR | {"documents": -1}}}}, "documents must not be negative"),
        ({"training": {"update_batches": 0}}, "training.update_batches (0) must be at least 1"),
        ({"training": {"validate_every": 0}}, "training.validate_every (0) must be at least 1"),
        ({"training": {"checkpoint_every": 0}}, "training.checkpoint_every (0) must be at least 1"),
        ({"training": {"log_every": 0}}, "training.log_every (0) must be at least 1"),
        ({"training": {"updates": -1}}, "training.updates (-1) must not be negative"),
        ({"decoding": {"length_penalty": -0.1}}, "decoding.length_penalty (-0.1) must not be negative"),
        ({"training": {"word_dropout": 1}}, "training.word_dropout (1) must lie in [0, 1)"),
        ({"training": {"label_smoothing": 1}}, "training.label_smoothing (1) must lie in [0, 1)"),
        ({"training": {"label_smoothing": -0.1}}, "training.label_smoothing (-0.1) must lie in [0, 1)"),
        ({"training": {"validation": {"beam": 0}}}, "training.validation.beam (0) must be at least 1"),
        ({"decoding": {"beam": 10**9}}, "decoding.beam (1000000000) must be at most 1000"),
        ({"model": {"width": 10**9}}, "model.width (1000000000) must be at most 65536"),
        ({"model": {"scope": 10**24}}, f"model.scope ({10**24}) must be at most 1000000"),
        ({"model": {"encoder_layers": 10**5}}, "model.encoder_layers (100000) must be at most 1000"),
        ({"decoding": {"beam": 0}}, "decoding.beam (0) must be at least 1"),
        ({"model": {"encoder_layers": 0}}, "model.encoder_layers (0) must be at least 1"),
        ({"model": {"feed_forward": -1}}, "model.feed_forward (-1) must be at least 1"),
        ({"training": {"batch_tokens": 0}}, "training.batch_tokens (0) must be at least 1"),
        ({"training": {"average": -1}}, "training.average (-1) must not be negative"),
        ({"training": {"clip": float("inf")}}, "training.clip (inf) must not be negative"),
        ({"training": {"schedule": {"peak": 0}}}, "training.schedule.peak (0) must be above 0"),
        ({"training": {"beta2": 1}}, "training.beta2 (1) must lie in [0, 1)"),
        ({"data": {"max_ratio": -8}}, "data.max_ratio (-8) must be above 0"),
        ({"data": {"character_coverage": 2}}, "data.character_coverage (2) must be at most 1"),
        ({"data": {"character_coverage": 0.5}}, "data.character_coverage (0.5) must be at least 0.98"),
        ({"data": {"vocabulary": 10**12}}, "data.vocabulary (1000000000000) must be at most 10000000"),
        ({"data": {"source_language": "../x"}}, "data.source_language: '../x' is no language code"),
        ({"data": {"target_language": "中文"}}, "data.target_language: '中文' is no language code"),
        ({"seed": -1}, "seed (-1) must not be negative"),
        ({"seed": 2**63}, "seed (9223372036854775808) must be at most 9223372036854775807"),
        ({"runtime": {"threads": 9999}}, "runtime.threads (9999) must be at most 1024"),
        ({"training": {"batch_tokens": 10**11}}, "training.batch_tokens (100000000000) must be at most 1000000000"),
        ({"runtime": {"threads": -1}}, "runtime.threads (-1) must not be negative"),
    ],
)
def test_rules(content: dict[str, Any], problem: str) -> None:
    assert refused(content).startswith(problem)


@pytest.mark.parametrize(
    "content, problem",
    [
        ({"training": {"stage": "scorer"}}, "training.stage: scorer needs a model that reads context"),
        ({"training": {"stage": "reinforce"}}, "training.stage: reinforce needs a model that reads context"),
        (
            {"model": {"kind": "tdnmt"}, "training": {"stage": "reinforce", "reserve": 0.1}},
            "training.reserve keeps documents from translators: with stage reinforce it needs reinforce.scorer_only",
        ),
        (
            {"reinforce": {"law": "independent", "strategy": "size-first 2"}},
            "reinforce.law: independent draws selections of any size; size-first needs the sequential law",
        ),
        (
            {"model": {"kind": "san", "scope": 41}, "training": {"stage": "reinforce"}},
            "reinforce.estimator: self-critical needs a model.scope of at most 40",
        ),
        (
            {
                "model": {"kind": "san", "scope": 11},
                "training": {"stage": "reinforce"},
                "reinforce": {"estimator": "exact"},
            },
            "reinforce.estimator: exact needs a model.scope of at most 10",
        ),
        ({"training": {"reserve": 1}}, "training.reserve (1) must lie in [0, 1)"),
        ({"training": {"reserve": -0.1}}, "training.reserve (-0.1) must lie in [0, 1)"),
        ({"decoding": {"max_extra": -1}}, "decoding.max_extra (-1) must not be negative"),
        (
            {"training": {"validation": {"temperature": 0}}},
            "training.validation.temperature (0) must be at least 0.001",
        ),
        (
            {"training": {"validation": {"batch_sentences": 0}}},
            "training.validation.batch_sentences (0) must be at least 1",
        ),
        ({"labels": {"margin": -0.1}}, "labels.margin (-0.1) must not be negative"),
        ({"labels": {"sentences": -1}}, "labels.sentences (-1) must not be negative"),
        ({"reinforce": {"price": -0.1}}, "reinforce.price (-0.1) must not be negative"),
        ({"reinforce": {"samples": 1}}, "reinforce.samples (1) must be at least 2"),
        ({"reinforce": {"alpha": 1.1}}, "reinforce.alpha (1.1) must lie in [0, 1]"),
        ({"reinforce": {"tried": 1.1}}, "reinforce.tried (1.1) must lie in [0, 1]"),
        ({"reinforce": {"generated": -0.1}}, "reinforce.generated (-0.1) must lie in [0, 1]"),
        ({"reinforce": {"temperature": 0}}, "reinforce.temperature (0) must be above 0"),
        ({"scorer": {"pair_layers": 0}}, "scorer.pair_layers (0) must be at least 1"),
        ({"scorer": {"set_layers": -1}}, "scorer.set_layers (-1) must not be negative"),
        ({"scorer": {"dropout": 1}}, "scorer.dropout (1) must lie in [0, 1)"),
        ({"scorer": {"temperature": 0}}, "scorer.temperature (0) must be above 0"),
        ({"scorer": {"enabled": True}}, "scorer.enabled: a sentence model has no use for context"),
    ],
)
def test_rules_of_selection(content: dict[str, Any], problem: str) -> None:
    assert refused(content).startswith(problem)


def test_selection_at_the_limits_of_the_rules() -> None:
    for estimator, scope in (("self-critical", 40), ("rloo", 40), ("exact", 10)):
        own = {"price": 0, "samples": 2, "alpha": 1, "tried": 1, "generated": 0, "scorer_only": True}
        parse_config(
            {
                "model": {"kind": "san", "scope": scope},
                "scorer": {"enabled": True, "pair_layers": 1, "set_layers": 0, "dropout": 0},
                "labels": {"margin": 0, "sentences": 0},
                "reinforce": {"estimator": estimator, "law": "independent", **own},
                "training": {"stage": "reinforce", "reserve": 0.99},
                "decoding": {"max_extra": 0, "batch_sentences": 1},
            }
        )


def test_values_at_the_limits_of_the_rules() -> None:
    every_one = {"update_batches": 1, "validate_every": 1, "checkpoint_every": 1, "log_every": 1}
    parse_config(
        {
            "data": {"vocabulary": 16, "max_length": 1, "joint": False, "subword_sample": 0, "dev": PAIR},
            "model": {"width": 2, "heads": 1, "dropout": 0, "relu_dropout": 0.99, "tie_embeddings": "target"},
            "training": every_one | {"updates": 0, "label_smoothing": 0, "validation": {"beam": 1}},
            "decoding": {"beam": 1},
        }
    )


FAR = {
    "training.selector": {"training": {"selector": "previous 7"}},
    "training.validation.selector": {"training": {"validation": {"selector": "random 10"}}},
    "decoding.selector": {"decoding": {"selector": "previous 99999999999999999999"}},
    "reinforce.strategy": {"reinforce": {"strategy": "size-first 7"}},
}


@pytest.mark.parametrize("key", FAR)
def test_a_selector_beyond_the_scope(key: str) -> None:
    said = refused({"model": {"kind": "tdnmt"}, **FAR[key]})
    assert said.startswith(f"{key}: selector '") and "asks for more sentences than the model's scope of 6" in said
    parse_config(FAR[key])  # a sentence model reads none of them, whatever is asked for


@pytest.mark.parametrize(
    "selector", ["previous 6", "random 6", "random 1 or none", "random subset", "full", "fixed 7", "previous x"]
)
def test_a_selector_within_the_scope(selector: str) -> None:
    parse_config({"model": {"kind": "tdnmt"}, "decoding": {"selector": selector}})
    parse_config({"model": {"kind": "san", "scope": 1000}, "decoding": {"selector": "previous 1000"}})
