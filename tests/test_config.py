"""Configuration from plain data: what is taken, what is refused, and the manual of them all."""

from __future__ import annotations

import dataclasses
import typing
from pathlib import Path
from typing import Any, Literal

import pytest
from config_parts import PAIR, keys, refused

from dynctx import config as configuration
from dynctx.config import Config, ParallelFiles, load_config, parse_config
from dynctx.config_rules import beyond_scope
from dynctx.documents import TextFile
from dynctx.errors import DynctxError
from dynctx.plain_data import convert, read_yaml, to_dict
from dynctx.training.loop import learning_rate

CONFIGS = Path(__file__).parent.parent / "configs"


# ---- from plain data


def test_nothing_gives_the_defaults() -> None:
    config = parse_config({})
    assert config == Config()
    assert (config.seed, config.data.vocabulary, config.model.width) == (1, 16000, 512)
    assert config.training.validation.batch_sentences == 256
    assert config.decoding.batch_sentences == 64


def test_defaults_are_not_shared() -> None:
    one = Config()
    one.data.train.append(ParallelFiles(TextFile("a"), TextFile("b")))
    one.training.schedule.peak = 1.0
    assert Config().data.train == [] and Config().training.schedule.peak == 7e-4


def test_values_reach_their_places() -> None:
    content = {
        "seed": 7,
        "data": {"train": [PAIR, PAIR | {"documents": 3}], "dev": PAIR, "test": {"tst": PAIR, 2012: PAIR}},
        "model": {"norm": "pre", "dropout": 0},
        "training": {"schedule": {"peak": 1}, "validation": {"beam": 2}},
    }
    config = parse_config(content)
    pair = ParallelFiles(TextFile("a.en"), TextFile("a.de"))
    assert config.seed == 7
    assert config.data.train == [pair, dataclasses.replace(pair, documents=3)]
    assert config.data.dev == pair
    assert config.data.test == {"tst": pair, "2012": pair}
    assert config.model.norm == "pre"
    assert config.training.schedule.peak == 1.0 and isinstance(config.training.schedule.peak, float)
    assert isinstance(config.model.dropout, float)
    assert (config.training.validation.beam, config.decoding.beam) == (2, 4)
    # what stands beside a given value keeps its default, a section's own default included
    assert config.training.schedule.warmup == 4000


def test_a_text_file_in_its_short_and_long_form() -> None:
    long = {"path": "a.tsv", "format": "tsv", "column": "en", "document_column": "talk", "docids": None}
    train = parse_config({"data": {"train": [{"source": "a.en", "target": long}]}}).data.train
    assert train == [ParallelFiles(TextFile("a.en"), TextFile("a.tsv", "tsv", None, "en", "talk"))]


@pytest.mark.parametrize(
    "content, expected",
    [
        ({"sed": 1}, "unknown key 'sed' (did you mean 'seed'?)"),
        ({"updates": 3}, "unknown key 'updates' (did you mean training.updates?)"),
        ({"beam": 3}, "unknown key 'beam' (did you mean training.validation.beam or decoding.beam?)"),
        (
            {"training": {"schedule": {"warmups": 1}}},
            "unknown key 'warmups' (did you mean 'warmup'?) in training.schedule",
        ),
        (
            {"zzz": 1},
            "unknown key 'zzz' (known keys: seed, data, model, scorer, labels, reinforce, training, decoding, runtime)",
        ),
        (
            {1: 2},
            "unknown key '1' (known keys: seed, data, model, scorer, labels, reinforce, training, decoding, runtime)",
        ),
        (
            {"data": {"train": [PAIR, PAIR | {"document": 3}]}},
            "unknown key 'document' (did you mean 'documents'?) in data.train[1]",
        ),
        (
            {"data": {"test": {"tst": {"source": {"pth": "a"}, "target": "b"}}}},
            "unknown key 'pth' (did you mean 'path'?) in data.test.tst.source",
        ),
        ({"seed": "one"}, "seed is 'one' (text), expected a whole number"),
        ({"seed": 1.5}, "seed is 1.5 (a number), expected a whole number"),
        ({"seed": True}, "seed is True (true/false), expected a whole number"),
        ({"seed": None}, "seed is None (nothing), expected a whole number"),
        ({"seed": [1]}, "seed is [1] (a list), expected a whole number"),
        ({"model": {"dropout": True}}, "model.dropout is True (true/false), expected a number"),
        ({"model": {"dropout": "much"}}, "model.dropout is 'much' (text), expected a number"),
        ({"data": {"joint": 1}}, "data.joint is 1 (a whole number), expected true or false"),
        ({"data": {"joint": "yes"}}, "data.joint is 'yes' (text), expected true or false"),
        ({"data": {"folder": 3}}, "data.folder is 3 (a whole number), expected text"),
        ({"data": {"source_language": False}}, "data.source_language is False (true/false), expected text"),
        ({"model": {"norm": "prae"}}, "model.norm is 'prae', expected one of: post, pre; did you mean pre?"),
        ({"model": {"norm": 7}}, "model.norm is 7, expected one of: post, pre"),
        ({"model": {"norm": ["pre"]}}, "model.norm is ['pre'], expected one of: post, pre; did you mean pre?"),
        ({"model": 3}, "model should be a mapping, found a whole number"),
        ({"model": None}, "model should be a mapping, found nothing"),
        ({"data": {"train": PAIR}}, "data.train should be a list, found a mapping"),
        ({"data": {"test": [PAIR]}}, "data.test should be a mapping, found a list"),
        ({"data": {"dev": "a.en"}}, "data.dev should be a mapping, found text"),
        ({"data": {"dev": {"source": "a.en"}}}, "data.dev.target is missing"),
        ({"data": {"train": [PAIR, {"target": "a"}]}}, "data.train[1].source is missing"),
        ({"data": {"dev": PAIR | {"source": {"format": "tsv"}}}}, "data.dev.source.path is missing"),
        ({"data": {"dev": PAIR | {"source": 3}}}, "data.dev.source should be a mapping, found a whole number"),
        (
            {"data": {"dev": PAIR | {"source": {"path": "a", "docids": 3}}}},
            "data.dev.source.docids is 3 (a whole number), expected text",
        ),
    ],
)
def test_refused(content: dict[str, Any], expected: str) -> None:
    assert refused(content) == expected


def test_true_is_no_choice_among_numbers() -> None:
    assert convert(Literal[0, 1], 1, "my.yaml", "key") == 1
    with pytest.raises(DynctxError, match=r"my\.yaml: key is True, expected one of: 0, 1"):
        convert(Literal[0, 1], True, "my.yaml", "key")


# ---- the manual


def given_keys(content: dict[str, Any], path: str = "") -> set[str]:
    """The same of plain data; an empty mapping is a value."""
    found: set[str] = set()
    for name, value in content.items():
        found |= given_keys(value, f"{path}{name}.") if isinstance(value, dict) and value else {path + name}
    return found


def test_the_manual_lists_every_key_with_its_default() -> None:
    content = read_yaml(CONFIGS / "manual.yaml")
    assert given_keys(content) == keys(Config)
    assert "training.schedule.peak" in keys(Config)
    defaults = to_dict(Config())
    assert to_dict(parse_config(content)) == defaults
    # what a pair of files may have stands in comments
    text = (CONFIGS / "manual.yaml").read_text(encoding="utf-8")
    for kind in (ParallelFiles, TextFile):
        for field in dataclasses.fields(kind):
            assert field.name in text


def test_the_manual_names_every_choice() -> None:
    """In the comment of a key stand all the values it may have."""
    lines = (CONFIGS / "manual.yaml").read_text(encoding="utf-8").splitlines()
    sections = [kind for kind in vars(configuration).values() if dataclasses.is_dataclass(kind)]
    choices = [
        (name, typing.get_args(hint))
        for kind in sections
        for name, hint in typing.get_type_hints(kind).items()
        if typing.get_origin(hint) is typing.Literal
    ]
    assert len(choices) > 5
    for name, values in choices:
        about = [line for line in lines if line.strip().startswith(f"{name}:")]
        assert any(all(str(value) in line for value in values) for line in about), name


@pytest.mark.parametrize(("kind", "scale", "warmup"), [("tdnmt", 0.1, 4000), ("han", 2, 8000), ("cadec", 1, 16000)])
def test_the_rates_of_the_papers(kind: str, scale: float, warmup: int) -> None:
    """scale d^-0.5 min(t warmup^-1.5, t^-0.5), as their authors have it in stage 2."""
    config = load_config(CONFIGS / "ted_zh-en" / f"{kind}.yaml")
    for update in (1, warmup, 4 * warmup):
        expected = scale * config.model.width**-0.5 * min(update * warmup**-1.5, update**-0.5)
        assert learning_rate(config.training.schedule, update) == pytest.approx(expected, rel=1e-3)


def test_the_rate_of_san() -> None:
    config = load_config(CONFIGS / "ted_zh-en" / "san.yaml")
    assert [learning_rate(config.training.schedule, update) for update in (1, 7000)] == [1e-4, 1e-4]
    assert (config.model.dropout, config.model.attention_dropout, config.training.patience) == (0.2, 0.2, 10)


@pytest.mark.parametrize("path", sorted(CONFIGS.rglob("*.yaml")), ids=lambda path: str(path.relative_to(CONFIGS)))
def test_every_config_of_the_project_is_valid(path: Path) -> None:
    command = path.read_text(encoding="utf-8").partition("\n")[0]  # the one that runs it
    assert command.startswith("#")
    assert path.name == "manual.yaml" or f"configs/{path.relative_to(CONFIGS)}" in command
    if f"dynctx reproduce configs/{path.relative_to(CONFIGS)}" in command:
        from dynctx.reproduce import Reproduction

        table = Reproduction(path, Path("nowhere"), 0, command)
        for name in table.table.runs:
            table.config(name, 1)
        for row in table.rows:
            assert not beyond_scope(row.selector, table.config(row.run, 1).model)
    else:
        load_config(path)
