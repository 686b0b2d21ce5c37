"""Configuration: what is read, what is refused, and that every message names the place and the way out."""

from __future__ import annotations

import dataclasses
import typing
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dynctx import config as configuration
from dynctx.config import Config, DataConfig, ParallelFiles, apply_overrides, load_config, parse_config
from dynctx.documents import TextFile
from dynctx.errors import DynctxError
from dynctx.plain_data import convert, read_yaml, to_dict, to_yaml

CONFIGS = Path(__file__).parent.parent / "configs"
PAIR = {"source": "a.en", "target": "a.de"}


def refused(content: dict[str, Any]) -> str:
    with pytest.raises(DynctxError) as caught:
        parse_config(content, where="my.yaml")
    text = str(caught.value)
    assert text.startswith("my.yaml: ") and "\n" not in text
    return text.removeprefix("my.yaml: ")


def override_refused(*overrides: str) -> str:
    with pytest.raises(DynctxError) as caught:
        apply_overrides(Config(), overrides)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def file_refused(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    with pytest.raises(DynctxError) as caught:
        load_config(path)
    return str(caught.value).replace(str(path), "FILE")


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


@pytest.mark.parametrize(
    "content, problem",
    [
        ({"model": {"width": 510}}, "model.width (510) must be a multiple of model.heads (8)"),
        ({"model": {"width": 0}}, "model.width (0) must be a multiple of model.heads (8)"),
        ({"model": {"width": 7, "heads": 7}}, "model.width (7) must be even"),
        ({"model": {"heads": 0}}, "model.heads (0) must be at least 1"),
        ({"model": {"heads": -8}}, "model.heads (-8) must be at least 1"),
        ({"model": {"dropout": 1.0}}, "model.dropout must lie in [0, 1)"),
        ({"model": {"attention_dropout": -0.1}}, "model.attention_dropout must lie in [0, 1)"),
        ({"model": {"relu_dropout": float("nan")}}, "model.relu_dropout must lie in [0, 1)"),
        ({"model": {"kind": "san", "scope": 0}}, "model.scope must be at least 1 for a model that reads context"),
        (
            {"model": {"kind": "han", "han": {"encoder": False, "decoder": False}}},
            "model.han needs encoder or decoder, or both",
        ),
        ({"model": {"cadec": {"temperature": 0}}}, "model.cadec.temperature must be above 0"),
        ({"model": {"cadec": {"sample_noise": 1.1}}}, "model.cadec.sample_noise must lie in [0, 1]"),
        ({"training": {"run_length": -1}}, "training.run_length must not be negative"),
        ({"data": {"vocabulary": 15}}, "data.vocabulary (15) must be at least 16"),
        ({"data": {"max_length": 0}}, "data.max_length (0) must be at least 1"),
        ({"data": {"subword_sample": -1}}, "data.subword_sample must not be negative"),
        (
            {"data": {"joint": False}},
            "model.tie_embeddings: all needs one joint vocabulary; ",
        ),
        ({"data": {"train": [PAIR, PAIR | {"documents": -1}]}}, "documents must not be negative"),
        ({"data": {"dev": PAIR | {"documents": -1}}}, "documents must not be negative"),
        ({"data": {"test": {"tst": PAIR | {"documents": -1}}}}, "documents must not be negative"),
        ({"training": {"update_batches": 0}}, "training.update_batches must be at least 1"),
        ({"training": {"validate_every": 0}}, "training.validate_every must be at least 1"),
        ({"training": {"checkpoint_every": 0}}, "training.checkpoint_every must be at least 1"),
        ({"training": {"log_every": 0}}, "training.log_every must be at least 1"),
        ({"training": {"updates": -1}}, "training.updates must not be negative"),
        ({"training": {"label_smoothing": 1}}, "training.label_smoothing must lie in [0, 1)"),
        ({"training": {"label_smoothing": -0.1}}, "training.label_smoothing must lie in [0, 1)"),
        ({"training": {"validation": {"beam": 0}}}, "beam must be at least 1"),
        ({"decoding": {"beam": 0}}, "beam must be at least 1"),
    ],
)
def test_rules(content: dict[str, Any], problem: str) -> None:
    assert refused(content).startswith(problem)


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


# ---- overrides


@pytest.mark.parametrize(
    "override, section, key, value",
    [
        ("seed=3", "", "seed", 3),
        ("training.schedule.peak=1e-4", "training.schedule", "peak", 1e-4),  # YAML 1.1 takes this for text
        ("training.schedule.peak=3e-4", "training.schedule", "peak", 3e-4),
        ("training.schedule.peak=2", "training.schedule", "peak", 2.0),
        ("training.output=runs/a=b", "training", "output", "runs/a=b"),
        ("training.init=''", "training", "init", ""),
        ("training.init=", "training", "init", ""),
        ("data.source_language='no'", "data", "source_language", "no"),
        ("data.joint=true", "data", "joint", True),
        (
            "data.train=[{source: a, target: {path: b, format: tsv}}]",
            "data",
            "train",
            [ParallelFiles(TextFile("a"), TextFile("b", "tsv"))],
        ),
        ("data.dev={source: a, target: b}", "data", "dev", ParallelFiles(TextFile("a"), TextFile("b"))),
        (
            "data.test.wmt={source: a, target: b}",
            "data",
            "test",
            {"wmt": ParallelFiles(TextFile("a"), TextFile("b"))},
        ),
        ("data.dev=null", "data", "dev", None),
    ],
)
def test_one_override(override: str, section: str, key: str, value: object) -> None:
    """It changes one value and nothing else."""
    config = Config()
    changed = apply_overrides(config, [override])
    place: Any = changed
    for part in filter(None, section.split(".")):
        place = getattr(place, part)
    assert getattr(place, key) == value and type(getattr(place, key)) is type(value)
    default: Any = Config()
    for part in filter(None, section.split(".")):
        default = getattr(default, part)
    setattr(place, key, getattr(default, key))
    assert changed == config == Config()


def test_overrides_follow_each_other_and_are_checked_together() -> None:
    config = apply_overrides(Config(), ["data.joint=false", "seed=2", "model.tie_embeddings=target", "seed=3"])
    assert (config.data.joint, config.model.tie_embeddings, config.seed) == (False, "target", 3)


@pytest.mark.parametrize(
    "override, expected",
    [
        ("seed", "override 'seed': expected key=value, such as training.updates=2000"),
        ("=3", "override '=3': expected key=value, such as training.updates=2000"),
        ("seed=[", "override 'seed=[': the value is not valid YAML"),
        ("trainin.updates=1", "override 'trainin.updates=1': unknown key 'trainin' (did you mean 'training'?)"),
        ("training.shedule.peak=1", "override 'training.shedule.peak=1': unknown key 'shedule' (did you mean 'sche"),
        ("training.update=1", "overrides: unknown key 'update' (did you mean 'updates'?) in training"),
        ("sed=1", "overrides: unknown key 'sed' (did you mean 'seed'?)"),
        ("seed.a=1", "override 'seed.a=1': seed has no keys of its own"),
        ("seed.a.b=1", "override 'seed.a.b=1': seed has no keys of its own"),
        ("data.train.0=1", "override 'data.train.0=1': data.train has no keys of its own"),
        ("data.dev.documents=3", "override 'data.dev.documents=3': data.dev is not set; give all of it"),
        ("data.test.a.source=b", "override 'data.test.a.source=b': unknown key 'a'"),
        ("training.updates=", "overrides: training.updates is '' (text), expected a whole number"),
        ("training.updates=1e4", "overrides: training.updates is '1e4' (text), expected a whole number"),
        ("model.heads=3", "overrides: model.width (512) must be a multiple of model.heads (3)"),
    ],
)
def test_refused_override(override: str, expected: str) -> None:
    assert override_refused("seed=5", override).startswith(expected)


def test_overrides_reach_into_what_the_file_gives(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("data: {dev: {source: a, target: b}, test: {t: {source: c, target: d}}}")
    config = load_config(tmp_path / "c.yaml", ["data.dev.documents=3", "data.test.t.source=e"])
    assert config.data.dev == ParallelFiles(TextFile("a"), TextFile("b"), 3)
    assert config.data.test == {"t": ParallelFiles(TextFile("e"), TextFile("d"))}


# ---- files


def test_an_empty_file_gives_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("# nothing yet\n")
    assert load_config(tmp_path / "c.yaml") == Config()


def test_text_is_utf8_with_or_without_a_mark(tmp_path: Path) -> None:
    for mark in ("", "\ufeff"):
        (tmp_path / "c.yaml").write_text(f"{mark}data: {{folder: 数据}}", encoding="utf-8")
        assert load_config(tmp_path / "c.yaml").data.folder == "数据"


@pytest.mark.parametrize(
    "content, expected",
    [
        (b"seed: 1\nmodel: {norm: pre\ndata: 3\n", "FILE:3: not valid YAML: "),
        (b"seed: 1\nmodel:\n\tnorm: pre\n", "FILE:3: not valid YAML: "),
        (b"- a\n- b\n", "FILE: a config is a mapping of keys to values, found a list"),
        (b"hello\n", "FILE: a config is a mapping of keys to values, found text"),
        (b"seed: 1 # \xe9t\xe9\n", "FILE: the config is not UTF-8 (byte 10)"),
        (b"sede: 1\n", "FILE: unknown key 'sede' (did you mean 'seed'?)"),
        (b"model: {heads: 3}\n", "FILE: model.width (512) must be a multiple"),
        (b"seed: 1\nmodel: {}\nseed: 2\n", "FILE:3: key 'seed' appears twice"),
        (b"data:\n  test:\n    t: {source: a,\n        source: b}\n", "FILE:4: key 'source' appears twice"),
        (b"data:\n  train:\n  - {source: a,\n     source: b}\n", "FILE:4: key 'source' appears twice"),
        (b"seed: &a [*a]\n", "FILE: seed is [[...]] (a list)"),
        (b"seed: !!python/name:os.system\n", "FILE:1: not valid YAML: "),
    ],
)
def test_refused_file(tmp_path: Path, content: bytes, expected: str) -> None:
    assert file_refused(tmp_path / "c.yaml", content).startswith(expected)


def test_the_same_key_in_two_places_is_no_repetition(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("data: {train: [&p {source: a, target: b}, {<<: *p, source: c}]}\n")
    pairs = load_config(tmp_path / "c.yaml").data.train
    assert [(pair.source.path, pair.target.path) for pair in pairs] == [("a", "b"), ("c", "b")]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path, problem in [(tmp_path / "no.yaml", "No such file or directory"), (tmp_path, "Is a directory")]:
        with pytest.raises(DynctxError) as caught:
            load_config(path)
        assert str(caught.value) == f"{path}: cannot read the config: {problem}"


# ---- there and back

# not U+0085, which PyYAML writes as a line end
texts = st.text(st.characters(codec="utf-8", exclude_characters="\x85"), max_size=8)
text_files = st.builds(TextFile, texts, texts, st.none() | texts, st.none() | texts, st.none() | texts)
corpora = st.builds(ParallelFiles, text_files, text_files, st.integers(0, 10**9))
data_configs = st.builds(
    DataConfig,
    folder=texts,
    source_language=texts | st.sampled_from(["no", "yes", "1", "1e3", "null", "~", "2012-01-01", "0x1f", "=", "<<"]),
    train=st.lists(corpora, max_size=2),
    dev=st.none() | corpora,
    test=st.dictionaries(texts, corpora, max_size=2),
    character_coverage=st.floats(0, 1),
    max_ratio=st.floats(1e-30, 1e30),
)


@settings(max_examples=60, deadline=None)
@given(data=data_configs, seed=st.integers(-(2**63), 2**63), peak=st.floats(0, 1))
def test_yaml_round_trip(data: DataConfig, seed: int, peak: float) -> None:
    config = Config(seed=seed, data=data)
    config.training.schedule.peak = peak
    # names, since the difference of two large values takes pytest long and hypothesis asks for it often
    survives = parse_config(yaml.safe_load(to_yaml(config))) == config
    assert survives
    unchanged = apply_overrides(config, []) == config
    assert unchanged


def test_yaml_is_for_reading_too() -> None:
    lines = to_yaml(Config(data=DataConfig(folder="数据"))).splitlines()
    assert lines[:3] == ["seed: 1", "data:", "  folder: 数据"]  # in the order of the manual, in its own letters
    assert [line for line in lines if not line.startswith(" ")][2:] == [
        "model:",
        "scorer:",
        "labels:",
        "reinforce:",
        "training:",
        "decoding:",
        "runtime:",
    ]


# ---- the manual


def keys(kind: Any, path: str = "") -> set[str]:
    """Every key of a configuration, sections expanded: seed, training.schedule.peak, ..."""
    found: set[str] = set()
    for name, hint in typing.get_type_hints(kind).items():
        found |= keys(hint, f"{path}{name}.") if dataclasses.is_dataclass(hint) else {path + name}
    return found


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
    else:
        load_config(path)
