"""`prepare` from end to end on the corpus of conftest.py, whose every count is worked out by hand."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from conftest import DEV, TEST, TRAIN, Pairs, WriteParallel
from preparing import message, prepare

from dynctx import prepare as preparing
from dynctx.config import DataConfig
from dynctx.corpus import StoreWriter, TokenStore
from dynctx.documents import Document, TextFile
from dynctx.errors import DynctxError
from dynctx.prepare import card_text, check_splits, summarise, why_unfit
from dynctx.prepared import load_subwords, read_held_out
from dynctx.subwords import EOS, Subwords


def texts(store: TokenStore, folder: str) -> Pairs:
    """The documents of a store, decoded again."""
    models = load_subwords(folder)
    sides = [
        model.decode([ids(i)[:-1] for i in range(len(store))])
        for model, ids in zip(models, (store.source_ids, store.target_ids))
    ]
    pairs = list(zip(*sides))
    return [pairs[a:b] for a, b in zip(store.documents[:-1], store.documents[1:])]


def files_of(folder: str) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


# ---- the whole


def test_the_card_counts_what_is_there(tiny_data: DataConfig) -> None:
    card = prepare(tiny_data)
    assert card == json.loads((Path(tiny_data.folder) / "card.json").read_text(encoding="utf-8"))
    assert (card["source_language"], card["target_language"]) == ("abc", "xyz")
    assert card["vocabulary"] == {"source": 14, "target": 14, "joint": True}
    assert card["config"] == dataclasses.asdict(tiny_data)
    train, dev, news = (card["splits"][name] for name in ("train", "dev", "news"))
    assert list(card["splits"]) == ["train", "dev", "news"]
    assert [(split["documents"], split["sentences"]) for split in (train, dev, news)] == [(3, 9), (2, 6), (1, 2)]
    assert train["fit_for_training"] == 6
    assert train["dropped"] == {"empty": 1, "longer than max_length": 1, "length ratio over max_ratio": 1}
    assert dev["dropped"] == news["dropped"] == {}
    # train: 3 6 0 10 (cut from 11) 2 2 2 10 3 source pieces, 3 6 2 4 2 10 9 10 3 target pieces
    assert train["pieces"] == {"source": 38, "target": 49}
    assert dev["pieces"] == {"source": 27, "target": 13}
    assert news["pieces"] == {"source": 8, "target": 16}
    assert dev["overlap_with_train"] == {"sources": 3, "pairs": 1}
    assert news["overlap_with_train"] == {"sources": 2, "pairs": 2}
    assert "overlap_with_train" not in train
    lengths = train["lengths"]["source"]  # before anything is cut, sorted: 0 2 2 2 3 3 6 10 11
    assert {key: lengths[key] for key in ("mean", "p50", "p90", "p99", "max")} == dict(
        mean=4.33, p50=3, p90=11, p99=11, max=11
    )
    assert {name: count for name, count in lengths["histogram"].items() if count} == {
        "0": 1,
        "1-4": 5,
        "5-9": 1,
        "10-19": 2,
    }
    assert dev["lengths"]["source"]["max"] == 13


def test_the_folder(prepared: DataConfig) -> None:
    found = {path.name for path in Path(prepared.folder).iterdir()}
    assert found == {"spm.model", "train", "dev", "news", "dev.jsonl", "news.jsonl", "card.json"}


def test_unfit_pairs_keep_their_place(prepared: DataConfig) -> None:
    """They are context for what follows, cut to max_length, but never trained on."""
    store = TokenStore.open(Path(prepared.folder) / "train")
    expected = [list(document) for document in TRAIN]
    expected[0][3] = ("abcabcabc", "xyz")  # ▁ and nine letters
    assert texts(store, prepared.folder) == expected
    assert store.usable.tolist() == [True, True, False, False, True, False, True, True, True]
    assert store.source_ids(2) == [EOS]
    assert int(np.diff(store.source_starts).max()) == 10 + 1


def test_held_out_pairs_are_never_dropped_or_cut(prepared: DataConfig) -> None:
    for name, pairs in (("dev", DEV), ("news", TEST)):
        store = TokenStore.open(Path(prepared.folder) / name)
        assert texts(store, prepared.folder) == pairs
        assert store.usable.all()


def test_held_out_texts_are_read_back(prepared: DataConfig) -> None:
    assert read_held_out(prepared.folder, "dev") == [
        (Document("1", ("ab", "ab", "cc")), Document("1", ("xy", "yx", "z"))),
        (Document("2", ("c", "abcabcabcabc", "bb")), Document("2", ("x", "zz", ""))),
    ]
    assert len(read_held_out(prepared.folder, "news")) == 1


def test_separate_vocabularies(tiny_data: DataConfig) -> None:
    """7 symbols, ▁ and three letters each; the ids of a b c and of x y z are the same numbers."""
    card = prepare(dataclasses.replace(tiny_data, joint=False, vocabulary=11))
    assert card["vocabulary"] == {"source": 11, "target": 11, "joint": False}
    folder = Path(tiny_data.folder)
    assert sorted(path.name for path in folder.glob("spm*")) == ["spm.source.model", "spm.target.model"]
    source, target = load_subwords(folder)
    assert sorted(source.processor.IdToPiece(list(range(7, 11)))) == ["a", "b", "c", "▁"]
    assert sorted(target.processor.IdToPiece(list(range(7, 11)))) == ["x", "y", "z", "▁"]
    assert texts(TokenStore.open(folder / "dev"), tiny_data.folder) == DEV
    assert card["splits"]["train"]["pieces"] == {"source": 38, "target": 49}


@pytest.mark.parametrize("pair", [("a b c", "x"), ("a", "x y z")])
def test_ids_are_as_wide_as_the_larger_vocabulary_needs(
    tiny_data: DataConfig, write_parallel: WriteParallel, pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []

    class Listening(StoreWriter):
        def __init__(self, folder: Path, vocabulary: int) -> None:
            told.append(vocabulary)
            super().__init__(folder, vocabulary)

    monkeypatch.setattr(preparing, "StoreWriter", Listening)
    train = [write_parallel("train", [[pair]])]
    card = prepare(dataclasses.replace(tiny_data, train=train, dev=None, test={}, joint=False, vocabulary=13))
    sizes = {card["vocabulary"][side] for side in ("source", "target")}
    assert len(sizes) == 2 and told == [max(sizes)]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_kind_of_subwords(tiny_data: DataConfig, kind: Literal["bpe", "unigram"]) -> None:
    prepare(dataclasses.replace(tiny_data, subwords=kind))
    score = load_subwords(tiny_data.folder)[0].processor.GetScore(8)
    assert (score == -1) == (kind == "bpe")  # the second piece of BPE; a log probability of the other


def test_the_settings_of_subwords_are_those_of_the_config(
    tiny_data: DataConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, object]] = []
    train = preparing.train_subwords

    def watched(sentences: Iterable[str], vocabulary: int, **settings: Any) -> Subwords:
        asked.append({"vocabulary": vocabulary, **settings})
        return train(sentences, vocabulary, **settings)

    monkeypatch.setattr(preparing, "train_subwords", watched)
    own: dict[str, Any] = {
        "character_coverage": 0.98,
        "byte_fallback": True,
        "normalization": "identity",
        "vocabulary": 280,
    }
    prepare(dataclasses.replace(tiny_data, **own, subwords="unigram", subword_sample=5))
    assert asked == [{**own, "kind": "unigram", "sample": 5, "threads": 1}]


@pytest.mark.parametrize("joint", [True, False])
def test_subwords_of_another_model(tiny_data: DataConfig, tmp_path: Path, joint: bool) -> None:
    """To train that model further: nothing is trained, and the pieces are its own."""
    preparing.prepare(dataclasses.replace(tiny_data, joint=joint), say=print)
    (tmp_path / "run" / "model").mkdir(parents=True)
    (tmp_path / "run" / "model" / "config.yaml").write_text("seed: 1\n")
    for file in Path(tiny_data.folder).glob("spm*.model"):
        shutil.copy(file, tmp_path / "run" / "model")
    said: list[str] = []
    other = dataclasses.replace(
        tiny_data, folder=str(tmp_path / "other"), vocabulary=999, subwords_from=str(tmp_path / "run")
    )
    card = preparing.prepare(other, say=said.append)
    assert card["vocabulary"]["joint"] is joint and "training the subword model" not in " ".join(said)
    for theirs, ours in zip(load_subwords(tmp_path / "run" / "model"), load_subwords(other.folder)):
        assert theirs.model == ours.model
    with pytest.raises(DynctxError, match="nowhere"):
        preparing.prepare(dataclasses.replace(other, subwords_from=str(tmp_path / "nowhere")), say=said.append)


def test_a_joint_model_is_one_object(prepared: DataConfig) -> None:
    source, target = load_subwords(prepared.folder)
    assert source is target


def test_twice_is_as_once(tiny_data: DataConfig) -> None:
    prepare(tiny_data)
    before = files_of(tiny_data.folder)
    prepare(tiny_data)
    assert files_of(tiny_data.folder) == before
    prepare(dataclasses.replace(tiny_data, joint=False, vocabulary=11))
    prepare(tiny_data)  # no model of the other kind is left
    assert files_of(tiny_data.folder) == before


@pytest.mark.parametrize("chunk", [1, 4, 5])
def test_chunks_make_no_difference(tiny_data: DataConfig, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether documents are encoded alone, one after the first four sentences, or together."""
    prepare(tiny_data)
    before = files_of(tiny_data.folder)
    monkeypatch.setattr(preparing, "CHUNK", chunk)
    prepare(tiny_data)
    assert files_of(tiny_data.folder) == before


def test_only_the_first_documents(tiny_data: DataConfig) -> None:
    for files in (*tiny_data.train, tiny_data.dev):
        assert files is not None
        files.documents = 1
    card = prepare(tiny_data)
    train, dev = card["splits"]["train"], card["splits"]["dev"]
    assert (train["documents"], train["sentences"]) == (1, 4)
    assert train["dropped"] == {"empty": 1, "longer than max_length": 1}
    assert (dev["documents"], dev["sentences"]) == (1, 3)
    assert dev["overlap_with_train"] == {"sources": 2, "pairs": 1}  # "ab" twice
    assert [pair[0].sentences for pair in read_held_out(tiny_data.folder, "dev")] == [("ab", "ab", "cc")]
    assert len(TokenStore.open(Path(tiny_data.folder) / "dev")) == 3
    assert card["splits"]["news"]["overlap_with_train"] == {"sources": 1, "pairs": 1}


def test_several_training_corpora_follow_each_other(tiny_data: DataConfig, write_parallel: WriteParallel) -> None:
    """The limit on documents is each corpus's own, and the model is trained on what both hold."""
    extra = write_parallel("extra", [[("d", "w"), ("bb", "y")], [("e", "v")]])
    tiny_data.train[0].documents, extra.documents = 2, 1
    card = prepare(dataclasses.replace(tiny_data, train=[*tiny_data.train, extra], vocabulary=16))
    assert card["splits"]["train"]["documents"] == 3
    store = TokenStore.open(Path(tiny_data.folder) / "train")
    assert store.documents.tolist() == [0, 4, 8, 10]
    assert texts(store, tiny_data.folder)[2] == [("d", "w"), ("bb", "y")]
    pieces = load_subwords(tiny_data.folder)[0].processor.IdToPiece(list(range(7, card["vocabulary"]["source"])))
    assert sorted(pieces) == sorted("▁abcdxyzw")  # not e and v, which are beyond the limit
    assert card["splits"]["dev"]["overlap_with_train"]["sources"] == 4  # "bb" as well


def test_without_dev_and_test(tiny_data: DataConfig) -> None:
    card = prepare(dataclasses.replace(tiny_data, dev=None, test={}))
    assert list(card["splits"]) == ["train"]


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\r"])
def test_unicode_line_ends_inside_a_sentence(
    tiny_data: DataConfig, write_parallel: WriteParallel, separator: str
) -> None:
    """Only \\n ends a line; what else Python counts as a line end is part of the sentence."""
    sentence = f"a{separator}b"
    tiny_data.dev = write_parallel("dev", [[(sentence, f"x{separator}y"), ("c", "z")]])
    card = prepare(tiny_data)
    assert card["splits"]["dev"]["sentences"] == 2
    ((source, target),) = read_held_out(tiny_data.folder, "dev")
    assert source.sentences == (sentence, "c")
    assert target.sentences == (f"x{separator}y", "z")


def test_progress_is_told(tiny_data: DataConfig) -> None:
    said: list[str] = []
    preparing.prepare(tiny_data, say=said.append, threads=1)
    assert said[:4] == ["training the subword model", "encoding train", "encoding dev", "encoding news"]
    assert said[4:] == ["warning: most lines of news are in train as well: its scores will mean little"]


def test_card_text(tiny_data: DataConfig) -> None:
    lines = card_text(prepare(tiny_data)).splitlines()
    assert lines[0] == "vocabulary: 14 pieces (joint)"
    assert lines[1] == "train: 3 documents, 9 sentence pairs"
    assert lines[2] == "  source: 38 pieces, mean 4.33, median 3, 90 % up to 11, 99 % up to 11, longest 11"
    assert lines[3] == "    length 0: 11.1 %  1-4: 55.6 %  5-9: 11.1 %  10-19: 22.2 %"
    dropped = "1 empty, 1 longer than max_length, 1 length ratio over max_ratio"
    assert lines[6] == f"  not trained on, kept as context: {dropped}"
    assert lines[7] == "dev: 2 documents, 6 sentence pairs"
    assert lines[12] == "  also in train: 3 source lines, 1 whole pairs"


# ---- the parts


@pytest.mark.parametrize(
    "source, target, reason",
    [
        (1, 1, ""),
        (0, 3, "empty"),
        (3, 0, "empty"),
        (0, 99, "empty"),
        (20, 20, ""),
        (21, 20, "longer than max_length"),
        (20, 21, "longer than max_length"),
        (4, 17, ""),  # 3 * 4 + 5
        (4, 18, "length ratio over max_ratio"),
        (18, 4, "length ratio over max_ratio"),
        (1, 8, ""),
        (1, 9, "length ratio over max_ratio"),
    ],
)
def test_why_a_pair_is_unfit(source: int, target: int, reason: str) -> None:
    assert why_unfit([9] * source, [9] * target, DataConfig(max_length=20, max_ratio=3.0)) == reason


def test_summary_of_lengths() -> None:
    """A hundred sentences: lengths 1 to 98 once each, and two of 1000."""
    summary = summarise(Counter({**dict.fromkeys(range(1, 99), 1), 1000: 2}))
    assert summary["mean"] == 68.51  # (98 * 99 / 2 + 2000) / 100
    assert (summary["p50"], summary["p90"], summary["p99"], summary["max"]) == (50, 90, 1000, 1000)
    assert list(summary["histogram"].values()) == [0, 4, 5, 10, 10, 20, 30, 19, 2]


def test_summary_at_the_edges_of_the_bins() -> None:
    edges = [0, 1, 4, 5, 9, 10, 19, 20, 29, 30, 49, 50, 79, 80, 127, 128]
    assert list(summarise(Counter(edges))["histogram"].values()) == [1, 2, 2, 2, 2, 2, 2, 2, 1]


# ---- what goes wrong


def test_no_training_data() -> None:
    with pytest.raises(DynctxError, match=r"data\.train is empty: name at least one pair of training files"):
        check_splits(DataConfig())


@pytest.mark.parametrize("name", ["train", "dev", "", "..", "a/b", ".hidden", "a b", "card.json", "spm.model", "-_-"])
def test_names_a_test_set_cannot_have(tiny_data: DataConfig, name: str) -> None:
    """Even where there is no dev set: "dev" would be taken for one."""
    config = dataclasses.replace(tiny_data, dev=None, test={name: tiny_data.test["news"]})
    assert f"data.test: {name!r} cannot name a test set" in message(config)
    assert not Path(tiny_data.folder).exists()


def test_names_a_test_set_can_have(tiny_data: DataConfig) -> None:
    files = tiny_data.test["news"]
    names = ["tst2010-2013", "news_2", "7"]
    assert list(check_splits(dataclasses.replace(tiny_data, test=dict.fromkeys(names, files))))[2:] == names


def test_a_missing_text(tiny_data: DataConfig) -> None:
    tiny_data.train[0].source = TextFile("nowhere/train.en")
    assert message(tiny_data).startswith("nowhere/train.en: no such file")


def test_a_vocabulary_that_is_too_small(tiny_data: DataConfig) -> None:
    assert "vocabulary 13" in message(dataclasses.replace(tiny_data, vocabulary=13))


def test_a_split_that_is_not_there(prepared: DataConfig, tmp_path: Path) -> None:
    """Those that there are are named; train is none of them, since its texts are not kept."""
    with pytest.raises(DynctxError) as caught:
        read_held_out(prepared.folder, "wmt")
    place = Path(prepared.folder) / "wmt.jsonl"
    assert str(caught.value) == f"{place}: no such prepared split; there are: dev, news"
    (tmp_path / "file").touch()
    for folder in (tmp_path / "nowhere", tmp_path / "file"):
        with pytest.raises(DynctxError, match=f"no text is prepared in {folder}; run 'dynctx prepare' first"):
            read_held_out(folder, "news")


@pytest.mark.parametrize(
    "line", ['{"id": "1", "source": ["a"]', '{"id": "1", "source": ["a"]}', "[]", "null", "\udcff"]
)
def test_damaged_held_out_texts(prepared: DataConfig, line: str) -> None:
    path = Path(prepared.folder) / "dev.jsonl"
    path.write_bytes(path.read_bytes() + line.encode("utf-8", "surrogateescape") + b"\n")
    with pytest.raises(DynctxError) as caught:
        read_held_out(prepared.folder, "dev")
    assert str(caught.value).startswith(f"{path}: damaged (")
    assert str(caught.value).endswith("run 'dynctx prepare' again")


def test_a_missing_subword_model(tmp_path: Path) -> None:
    with pytest.raises(DynctxError) as caught:
        load_subwords(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / 'spm.model'}: cannot read the subword model")
