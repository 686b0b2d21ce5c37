"""Configuration from files and overrides, and back to YAML; every message names the place and the way out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dynctx.config import Config, DataConfig, ParallelFiles, apply_overrides, load_config, parse_config
from dynctx.documents import TextFile
from dynctx.errors import DynctxError
from dynctx.plain_data import to_yaml

# each list is ten of the list before it: short to write, and far too long to be shown whole
MANY = b"[&l0 [a], %s]" % b", ".join(b"&l%d [%s]" % (k, b", ".join([b"*l%d" % (k - 1)] * 10)) for k in range(1, 8))


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
        ("seed=2020-13-45", "override 'seed=2020-13-45': the value is not valid YAML"),
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
        (b"seed: 2020-13-45\n", "FILE: not valid YAML: month must be in 1..12"),
        (b"seed: " + b"[" * 20_000, "FILE: the config is nested too deeply"),
        (b"seed: " + MANY, "FILE: seed is [[...], [...], [...], [...], [...], [...], ...] (a list)"),
        (b"model: {kind: " + MANY + b"}", "FILE: model.kind is [[...], [...], [...], [...], [...], [...], ...], exp"),
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
    folder=texts | st.sampled_from(["no", "yes", "1", "1e3", "null", "~", "2012-01-01", "0x1f", "=", "<<"]),
    source_language=st.sampled_from(["", "no", "yes", "null", "pt-BR", "zh_Hans"]),
    train=st.lists(corpora, max_size=2),
    dev=st.none() | corpora,
    test=st.dictionaries(texts, corpora, max_size=2),
    character_coverage=st.floats(0.98, 1),
    max_ratio=st.floats(1e-30, 1e30),
)


@settings(max_examples=60, deadline=None)
@given(data=data_configs, seed=st.integers(0, 2**63 - 1), peak=st.floats(0, 1, exclude_min=True))
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
