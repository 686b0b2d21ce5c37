"""Pseudo labels: values against the plain way of computing them, runs that stop, folders that do not fit."""

from __future__ import annotations

import itertools
import json
import math
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import DEV, WriteParallel

from dynctx.batches import Gatherer
from dynctx.config import Config, DataConfig, DecodingConfig, LabelsConfig, ModelConfig
from dynctx.corpus import TokenStore
from dynctx.decoding import Started, search
from dynctx.errors import DynctxError
from dynctx.evaluation.bleu import sentence_bleus
from dynctx.labels import pseudo_labels
from dynctx.labels.pseudo_labels import (
    Labels,
    bleu_values,
    check_text,
    label,
    likelihood_values,
    load_values,
    pairs_of,
    statistics,
    write,
)
from dynctx.losses import token_losses
from dynctx.model_folder import Model
from dynctx.prepare import prepare
from dynctx.prepared import load_subwords
from dynctx.translators import build_translator

NAN = float("nan")
SCOPE = 2


def alone() -> None:
    """What is waited for where there is one process."""


def quiet(text: str) -> None:
    """Says nothing."""


@pytest.fixture
def judge(prepared: DataConfig) -> Model:
    """An untrained model of the corpus of conftest.py, as good a judge as any."""
    source, target = load_subwords(Path(prepared.folder))
    config = Config(data=prepared)
    config.model = ModelConfig(
        kind="tdnmt", scope=SCOPE, width=16, feed_forward=16, heads=2, encoder_layers=1, decoder_layers=1, dropout=0.1
    )
    folder = str(Path(prepared.folder).with_name("labels"))
    config.labels = LabelsConfig(model="judge", folder=folder, batch_tokens=100)
    torch.manual_seed(2)
    translator = build_translator(config.model, len(source), len(target))
    with torch.no_grad():
        for parameter in translator.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return Model(config, translator, source, target, {})


def gatherer_of(model: Model, split: str = "train") -> Gatherer:
    return Gatherer(TokenStore.open(Path(model.config.data.folder) / split), SCOPE)


def made(model: Model, *, rank: int = 0, world: int = 1, barrier: Callable[[], None] = alone) -> Path:
    label(model.config, model, rank, world, quiet, barrier)
    return Path(model.config.labels.folder)


# values


def test_every_candidate_alone_and_non() -> None:
    store = TokenStore.from_ids([[([7], [8])] * 3, [([7], [8])] * 2])
    row, column, chosen = pairs_of(Gatherer(store, SCOPE), np.array([2, 3, 4]))
    assert list(zip(row.tolist(), column.tolist())) == [(0, 0), (0, 1), (0, 2), (1, 2), (2, 0), (2, 2)]
    assert chosen.tolist() == [[1, 0], [0, 1], [0, 0], [0, 0], [1, 0], [0, 0]]


def each(gatherer: Gatherer, sentence: int) -> dict[int, torch.Tensor]:
    """By column: the selection of that candidate alone, or of none."""
    count = min(SCOPE, sentence - int(gatherer.firsts[sentence]))
    columns = [*range(count), SCOPE]
    return {column: (torch.arange(SCOPE) == column)[None] for column in columns}


@torch.no_grad()
def test_likelihoods_are_those_of_one_sentence_at_a_time(judge: Model) -> None:
    gatherer = gatherer_of(judge)
    sentences = np.flatnonzero(np.asarray(gatherer.store.usable))
    found = likelihood_values(judge, gatherer, sentences, batch_tokens=60)  # several batches
    assert found.shape == (6, SCOPE + 1)
    translator = judge.translator.eval()
    for number, sentence in enumerate(sentences.tolist()):
        expected = [NAN] * (SCOPE + 1)
        batch = gatherer.one_per_row(np.array([sentence]), multiple=1)
        for column, selection in each(gatherer, sentence).items():
            logits = translator.output(translator.decode(translator.encode(batch, selection), batch))
            expected[column] = -float(token_losses(logits, batch.target.ids).sum())
        assert found[number].tolist() == pytest.approx(expected, rel=1e-4, nan_ok=True), sentence
    assert np.nanstd(found[:, 0] - found[:, -1]) > 0.01  # context matters to this judge


@torch.no_grad()
def test_bleus_are_those_of_one_sentence_at_a_time(judge: Model) -> None:
    """The reference is what the judge says with the nearest candidate: something to find."""
    plain = gatherer_of(judge)
    sentences = np.flatnonzero(np.asarray(plain.store.usable))
    said: dict[int, dict[int, list[int]]] = {}
    for sentence in range(len(plain.store)):
        batch = plain.one_per_row(np.array([sentence]), multiple=1)
        limit = torch.tensor([len(plain.store.source_ids(sentence)) - 1 + 50])
        said[sentence] = {}
        for column, selection in each(plain, sentence).items():
            model = judge.translator.eval()
            started = Started(model.encode(batch, selection), limit)
            (hypothesis,) = search(model, DecodingConfig(beam=1), started, lambda: None)()
            said[sentence][column] = hypothesis.ids
    pairs = [(plain.store.source_ids(s)[:-1], next(iter(said[s].values()))) for s in range(len(plain.store))]
    borders = [*np.unique(plain.firsts).tolist(), len(pairs)]
    gatherer = Gatherer(TokenStore.from_ids([pairs[a:b] for a, b in itertools.pairwise(borders)]), SCOPE)
    found = bleu_values(judge, gatherer, sentences, batch_tokens=60)
    for number, sentence in enumerate(sentences.tolist()):
        expected = [NAN] * (SCOPE + 1)
        for column, ids in said[sentence].items():
            texts = judge.target.decode([ids, pairs[sentence][1]])
            (expected[column],) = sentence_bleus(texts[:1], texts[1:], language="xyz")
        assert found[number].tolist() == pytest.approx(expected, abs=1e-4, nan_ok=True), sentence
    assert np.nanmin(found) < 1 and np.nanmax(found) > 99
    assert (np.nanmax(found, 1) != np.nanmin(found, 1)).any()  # context matters to this judge


def test_a_judge_whose_weights_are_no_numbers_says_so(judge: Model) -> None:
    torch.nn.init.constant_(next(judge.translator.parameters()), math.nan)
    with pytest.raises(DynctxError, match="its weights are damaged"):
        bleu_values(judge, gatherer_of(judge), np.array([0, 1]), batch_tokens=60)


def test_bleus_are_counted_in_words_of_the_target_language(judge: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    judge.config.data.target_language = "zh"  # whose characters are words
    languages: list[str] = []

    def counted(texts: list[str], references: list[str], *, language: str) -> list[float]:
        languages.append(language)
        return [0.0] * len(texts)

    monkeypatch.setattr("dynctx.labels.pseudo_labels.sentence_bleus", counted)
    bleu_values(judge, gatherer_of(judge), np.array([0, 1]), batch_tokens=60)
    assert languages == ["zh"]


# the folder


def test_labels_on_disk(judge: Model) -> None:
    folder = made(judge)
    gatherer = gatherer_of(judge)
    usable = np.asarray(gatherer.store.usable)
    values = np.load(folder / "train.npy")
    expected = likelihood_values(judge, gatherer, np.flatnonzero(usable), 10_000)
    assert values.shape == (9, SCOPE + 1) and np.isnan(values[~usable]).all()
    np.testing.assert_allclose(values[usable], expected, rtol=1e-4)
    assert sorted(path.name for path in folder.iterdir()) == ["about.json", "dev.npy", "train.npy"]
    about = json.loads((folder / "about.json").read_text())
    assert about["kind"] == "likelihood" and about["train"] == statistics(values, 0.0)
    labels = Labels.of(load_values(folder, "train", "likelihood", 9, SCOPE))
    with_candidates = np.arange(9) > gatherer.firsts
    assert labels.counts.any(axis=1).tolist() == (usable & with_candidates).tolist()


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "train.npy"
    write(place, np.zeros((2, 3), np.float32))
    before = place.read_bytes()

    def full(file: Any, values: Any, **_: Any) -> None:
        file.write(b"some")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(DynctxError, match="cannot be written: No space left on device"):
        write(place, np.ones((2, 3), np.float32))
    assert place.read_bytes() == before and os.listdir(tmp_path) == ["train.npy"]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_killed_run_goes_on_where_it_was(judge: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pseudo_labels, "PART", 2)  # three parts of train, three of dev
    whole = contents(made(judge))
    judge.config.labels.folder = str(tmp_path / "again")
    judged: list[list[int]] = []

    def values(model: Model, gatherer: Gatherer, sentences: np.ndarray, batch_tokens: int) -> np.ndarray:
        if len(judged) == 2:
            judged.append([])
            raise KeyboardInterrupt
        judged.append(sentences.tolist())
        return likelihood_values(model, gatherer, sentences, batch_tokens)

    likelihood = pseudo_labels.KINDS["likelihood"]
    monkeypatch.setitem(pseudo_labels.KINDS, "likelihood", replace(likelihood, judge=values))
    with pytest.raises(KeyboardInterrupt):
        made(judge)
    assert not (tmp_path / "again" / "train.npy").exists()
    (tmp_path / "again" / "parts" / "train-000002.partial").write_bytes(b"half")  # as a kill may leave one
    folder = made(judge)
    # sentences 0, 1, 4 | 6, 7, 8 are fit for training; nothing is judged twice
    assert judged[:2] + judged[3:4] == [[0, 1], [4, 6], [7, 8]]
    assert contents(folder) == whole
    before = len(judged)
    made(judge)  # and a finished folder is left alone
    assert len(judged) == before and contents(folder) == whole


def test_labelling_stops_between_two_parts_when_its_time_is_up(
    judge: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pseudo_labels, "PART", 2)  # three parts of train, three of dev
    whole = contents(made(judge))
    judge.config.labels.folder = str(tmp_path / "again")
    clock = itertools.count(1)  # a second for each look at it
    monkeypatch.setattr(pseudo_labels, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    assert label(judge.config, judge, 0, 1, quiet, alone, deadline=2) is False
    assert sorted(path.name for path in (tmp_path / "again" / "parts").iterdir()) == [
        *("train-000000.npy", "train-000001.npy")
    ]
    assert label(judge.config, judge, 0, 1, quiet, alone, deadline=100) is True
    assert contents(tmp_path / "again") == whole


def test_two_processes_write_what_one_writes(judge: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge.translator.eval()  # the two share it, and one must not put it back to training under the other
    monkeypatch.setattr(pseudo_labels, "PART", 2)
    one = contents(made(judge))
    judge.config.labels.folder = str(tmp_path / "two")
    barrier = threading.Barrier(2, timeout=60)
    said: dict[int, list[str]] = {0: [], 1: []}

    def wait() -> None:
        barrier.wait()

    def process(rank: int) -> None:
        with torch.no_grad():
            label(judge.config, judge, rank, 2, said[rank].append, wait)

    threads = [threading.Thread(target=process, args=(rank,)) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert contents(tmp_path / "two") == one
    assert [text for text in said[1] if "part" in text] == ["train: part 2 of 3", "dev: part 2 of 3"]


def test_labels_of_another_kind_are_not_mixed(judge: Model) -> None:
    folder = made(judge)
    before = contents(folder)
    judge.config.labels.kind = "bleu"
    with pytest.raises(DynctxError, match=r"labels of another kind lie here .kind was 'likelihood', is 'bleu'"):
        made(judge)
    judge.config.labels.kind, judge.config.labels.model = "likelihood", "another"
    with pytest.raises(DynctxError, match="model was 'judge', is 'another'"):
        made(judge)
    assert contents(folder) == before


def test_a_judge_that_was_trained_again_is_another(judge: Model) -> None:
    folder = made(judge)
    said: list[str] = []
    with torch.no_grad():
        label(judge.config, judge, 0, 1, said.append, lambda: None)
    assert said == [f"train: judged already, in {folder}", f"dev: judged already, in {folder}"]
    before = contents(folder)
    with torch.no_grad():
        next(judge.translator.parameters())[0, 0] += 0.5
    with pytest.raises(DynctxError, match=r"weights was '\w+', is '\w+'\); use another folder"):
        made(judge)
    assert contents(folder) == before
    about = json.loads((folder / "about.json").read_text())
    del about["weights"]  # as labels made earlier have it
    (folder / "about.json").write_text(json.dumps(about))
    made(judge)


def test_labels_of_other_text_are_refused(judge: Model, write_parallel: WriteParallel) -> None:
    """As many sentences, other words: nothing but the text tells them apart."""
    folder = made(judge)
    before, data = contents(folder), Path(judge.config.data.folder)
    check_text(folder, {split: TokenStore.open(data / split).fingerprint for split in ("train", "dev")})
    write_parallel("dev", [[(source, target[::-1] + "x") for source, target in document] for document in DEV])
    prepare(judge.config.data, say=quiet, threads=1)
    with pytest.raises(DynctxError, match=r"other text than the prepared data now holds \(dev\); run 'dynctx label'"):
        made(judge)
    text = {split: TokenStore.open(data / split).fingerprint for split in ("train", "dev")}
    with pytest.raises(DynctxError, match=r"now holds \(dev\)"):
        check_text(folder, text)
    check_text(folder, {"train": text["train"]})
    assert contents(folder) == before
    about = json.loads((folder / "about.json").read_text())
    del about["text"]  # as labels made earlier have it
    (folder / "about.json").write_text(json.dumps(about))
    check_text(folder, text)
    made(judge)
    assert "text" not in json.loads((folder / "about.json").read_text())  # nobody knows what text they are of


@pytest.mark.parametrize("damage", [b"", b"\x93NUMPY", b"nothing like it"])
def test_a_damaged_file_is_named(judge: Model, damage: bytes) -> None:
    place = made(judge) / "train.npy"
    place.write_bytes(damage)
    with pytest.raises(DynctxError, match=r"train\.npy.*damaged.*run 'dynctx label' again"):
        load_values(place.parent, "train", "likelihood", 9, SCOPE)


def test_a_truncated_file_is_named(judge: Model) -> None:
    place = made(judge) / "train.npy"
    place.write_bytes(place.read_bytes()[:-5])
    with pytest.raises(DynctxError, match=r"train\.npy.*damaged"):
        load_values(place.parent, "train", "likelihood", 9, SCOPE)


def test_nothing_is_unpickled(judge: Model) -> None:
    place = made(judge) / "train.npy"
    with open(place, "wb") as file:
        np.save(file, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(DynctxError, match=r"train\.npy.*damaged"):
        load_values(place.parent, "train", "likelihood", 9, SCOPE)


def test_labels_must_fit_the_corpus_and_the_scope(judge: Model, tmp_path: Path) -> None:
    folder = made(judge)
    with pytest.raises(DynctxError, match="labels of 9 sentences in 3 columns, expected 9 in 7"):
        load_values(folder, "train", "likelihood", 9, 6)
    with pytest.raises(DynctxError, match="expected 10 in 3"):
        load_values(folder, "train", "likelihood", 10, SCOPE)
    with pytest.raises(DynctxError, match="no labels here; run 'dynctx label' first"):
        load_values(tmp_path / "nowhere", "train", "likelihood", 9, SCOPE)


def test_a_damaged_about_is_named(judge: Model) -> None:
    folder = made(judge)
    (folder / "about.json").write_text("{")
    with pytest.raises(DynctxError, match=r"about\.json: damaged"):
        made(judge)


def test_a_judge_that_knows_the_reserve_is_refused(judge: Model) -> None:
    """Labels of a reserve come from a model that has not learned from it, and are used with that reserve."""
    config = replace(judge.config, training=replace(judge.config.training, reserve=0.5))
    with pytest.raises(DynctxError, match=r"trained with training\.reserve 0, and the config has 0\.5"):
        label(config, judge, 0, 1, print, lambda: None)
    folder = made(judge)
    with pytest.raises(DynctxError, match=r"labels with training\.reserve 0, but here it is 0\.5"):
        load_values(folder, "train", "likelihood", 9, SCOPE, 0.5)
