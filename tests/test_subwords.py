"""Subword models: fixed special symbols, text in and out, and what cannot be used is refused."""

from __future__ import annotations

import io
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from dynctx.errors import DynctxError
from dynctx.subwords import BOS, DCS, EOS, NON, PAD, SEP, SPECIAL, UNK, Subwords, _sample, train_subwords

TEXT = [
    f"{subject} {verb} the {thing} again{end}"
    for subject in ("she", "he", "the cat", "my neighbour")
    for verb in ("sees", "leaves", "wants")
    for thing in ("house", "garden", "old book")
    for end in (".", "?")
]


@pytest.fixture(scope="module")
def model() -> Subwords:
    return train_subwords(TEXT, 400, threads=1)


@pytest.fixture(scope="module")
def exact() -> Subwords:
    """Nothing is normalised, so that any text comes back as it was, spaces apart."""
    return train_subwords(TEXT, 400, normalization="identity", threads=1)


@pytest.fixture(scope="module")
def coarse() -> Subwords:
    """Without bytes to fall back on, letters not in TEXT are unknown."""
    return train_subwords(TEXT, 60, byte_fallback=False, character_coverage=1.0, threads=1)


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@pytest.mark.parametrize("byte_fallback", [True, False])
def test_special_symbols_have_fixed_ids(kind: str, byte_fallback: bool) -> None:
    assert (PAD, UNK, BOS, EOS, DCS, SEP, NON) == (0, 1, 2, 3, 4, 5, 6)
    text = [*TEXT, *("</s> the<SEP>cat <pad>" for _ in range(30))]  # these are text in training, too
    trained = train_subwords(text, 320, kind=kind, byte_fallback=byte_fallback, threads=1)
    expected = ["<pad>", "<unk>", "<s>", "</s>", "<DCS>", "<SEP>", "<NON>"]
    assert trained.processor.IdToPiece(list(range(7))) == expected == list(SPECIAL)


def test_kinds() -> None:
    """The pieces of BPE are numbered in the order of their merges, those of a unigram model have probabilities."""
    scores = {}
    for kind in ("bpe", "unigram"):
        processor = train_subwords(TEXT, 320, kind=kind, threads=1).processor
        scores[kind] = [processor.GetScore(i) for i in range(263, 273)]
    assert scores["bpe"] == [0, -1, -2, -3, -4, -5, -6, -7, -8, -9]
    assert all(score < 0 and score != round(score) for score in scores["unigram"])


@pytest.mark.parametrize("text", [*SPECIAL, "a<SEP>b</s>c", "<s> x </s>", "▁<NON>", "<DCS><DCS>", "<0x41>"])
def test_text_that_looks_like_a_symbol_is_text(model: Subwords, exact: Subwords, text: str) -> None:
    for each in (model, exact):
        (ids,) = each.encode([text])
        assert ids and min(ids) >= len(SPECIAL)
        assert each.decode([ids]) == [text.replace("▁", "").strip()]


def test_pieces_add_up_to_the_sentence(model: Subwords) -> None:
    (ids,) = model.encode(["the garden"])
    assert "".join(model.processor.IdToPiece(ids)) == "▁the▁garden"


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="▁")), max_size=4))
def test_any_text_comes_back(exact: Subwords, sentences: list[str]) -> None:
    """Bytes stand in for letters never seen, so nothing is lost but doubled spaces and those around."""
    ids = exact.encode(sentences)
    assert all(i >= len(SPECIAL) for sentence in ids for i in sentence)
    decoded = exact.decode(ids)
    assert len(decoded) == len(sentences)
    for sentence, again in zip(sentences, decoded):
        assert again == " ".join(part for part in sentence.split(" ") if part).strip()


def test_known_text_comes_back(model: Subwords, coarse: Subwords) -> None:
    assert coarse.decode(coarse.encode(TEXT)) == model.decode(model.encode(TEXT)) == TEXT


def test_an_empty_sentence_is_an_empty_list(model: Subwords) -> None:
    assert model.encode(["", "  ", "the cat"])[:2] == [[], []]
    assert model.decode([[], []]) == ["", ""]
    assert model.encode([]) == model.decode([]) == []


def test_threads_do_not_change_the_encoding(model: Subwords) -> None:
    assert model.encode(TEXT, threads=2) == model.encode(TEXT, threads=1) == [model.encode([t])[0] for t in TEXT]


def test_decoding_leaves_special_symbols_out(model: Subwords, coarse: Subwords) -> None:
    (ids,) = model.encode(["my cat"])
    assert model.decode([[BOS, *ids, EOS, PAD, PAD], [SEP, DCS, NON], [UNK]]) == ["my cat", "", ""]
    between = [i for id in ids for i in (id, *range(7))]
    assert model.decode([between]) == ["my cat"]
    (ids,) = coarse.encode(["my 猫"])
    assert UNK in ids and coarse.decode([ids]) == ["my"]


def test_the_sign_that_stands_for_unknown_is_text_too(exact: Subwords) -> None:
    """SentencePiece prints an unknown piece as ⁇, which must not take the real sign with it."""
    assert exact.decode(exact.encode(["what ⁇ again"])) == ["what ⁇ again"]


def test_normalisation(model: Subwords, exact: Subwords) -> None:
    assert model.decode(model.encode(["ｔｈｅ　cat"])) == ["the cat"]
    assert exact.decode(exact.encode(["ｔｈｅ　cat"])) == ["ｔｈｅ　cat"]


def test_save_and_load(model: Subwords, tmp_path: Path) -> None:
    model.save(tmp_path / "new" / "spm.model")
    again = Subwords.load(tmp_path / "new" / "spm.model")
    assert len(again) == len(model)
    assert again.encode(TEXT) == model.encode(TEXT)
    assert again.model == model.model


@pytest.mark.parametrize("keep", [0, 1, 50, 1000])
def test_a_damaged_model_is_named(model: Subwords, tmp_path: Path, keep: int) -> None:
    path = tmp_path / "spm.model"
    path.write_bytes(model.model[:keep])
    with pytest.raises(DynctxError) as caught:
        Subwords.load(path)
    assert str(caught.value) == f"{path}: not a SentencePiece model, or a damaged one"
    path.write_bytes(model.model[:4] + bytes([model.model[4] ^ 255]) + model.model[5:])  # in the first symbol's text
    with pytest.raises(DynctxError, match="not a SentencePiece model, or a damaged one"):
        Subwords.load(path)


def test_a_missing_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(DynctxError) as caught:
        Subwords.load(tmp_path / "none.model")
    assert str(caught.value) == f"{tmp_path / 'none.model'}: cannot read the subword model: No such file or directory"


def test_a_foreign_model_is_refused(tmp_path: Path) -> None:
    """One with SentencePiece's own ids, and one that lacks only our last symbol."""
    ours: dict[str, Any] = dict(pad_id=0, unk_id=1, bos_id=2, eos_id=3)
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "symbol 0 should be <pad>"),
        (ours, "symbol 4 should be <DCS>"),
        (ours | {"control_symbols": ["<DCS>", "<SEP>"]}, "symbol 6 should be <NON>"),
    ]
    for options, problem in cases:
        written = io.BytesIO()
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=iter(TEXT), model_writer=written, vocab_size=38, minloglevel=2, **options
        )
        (tmp_path / "foreign.model").write_bytes(written.getvalue())
        with pytest.raises(DynctxError) as caught:
            Subwords.load(tmp_path / "foreign.model")
        assert str(caught.value).startswith(f"{tmp_path / 'foreign.model'}: {problem}; only models made by 'dynctx")


SAMPLED = """
import random, sys
from dynctx.subwords import train_subwords
rng = random.Random(0)
text = [" ".join("".join(rng.choices("abcdefgh", k=4)) for _ in range(5)) for _ in range(400)]
for seed in (1, 1, 2):
    print(train_subwords(text, 60, byte_fallback=False, sample=50, seed=seed, threads=1).model.hex())
"""


def test_training_is_a_function_of_the_seed() -> None:
    """50 of 400 sentences are drawn, the seed decides which; nothing that lives in one process only has a say."""
    runs = [subprocess.run([sys.executable, "-c", SAMPLED], capture_output=True, check=True) for _ in range(2)]
    assert runs[0].stdout == runs[1].stdout
    one, again, other = runs[0].stdout.split()
    assert one == again != other


def test_sample_is_drawn_evenly() -> None:
    words = list("abcdefgh")
    assert (
        list(_sample(words, 0, seed=1)) == list(_sample(words, 8, seed=1)) == list(_sample(words, 99, seed=1)) == words
    )
    counts: Counter[str] = Counter()
    for seed in range(2000):
        drawn = list(_sample(iter(words), 3, seed))
        assert len(set(drawn)) == 3
        counts.update(drawn)
    # 750 expected of each; four standard deviations of a binomial (3/8 of 2000) are 87
    assert all(abs(counts[word] - 750) < 87 for word in words)


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_a_vocabulary_that_is_too_small(kind: str) -> None:
    """256 bytes and 7 symbols alone are more than 100."""
    with pytest.raises(DynctxError) as caught:
        train_subwords(TEXT, 100, kind=kind, threads=1)
    text = str(caught.value)
    assert "could not be trained with vocabulary 100" in text
    assert "A larger data.vocabulary (or data.byte_fallback: false) may help" in text


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_a_small_corpus_gives_a_smaller_vocabulary(kind: str) -> None:
    assert 263 < len(train_subwords(["a b c", "ab"] * 5, 5000, kind=kind, threads=1)) < 300


def test_empty_and_very_long_sentences_are_no_hindrance() -> None:
    """SentencePiece alone drops lines over 4,192 bytes: z and 猫 occur in such lines only."""
    lines = ["", "the cat", "", "z" * 5000, "猫" * 5000, ""] * 10
    trained = train_subwords(lines, 330, character_coverage=1.0, threads=1)
    known = {piece.replace("▁", "") for piece in trained.processor.IdToPiece(list(range(263, len(trained))))}
    assert {"c", "z", "猫"} <= known


@pytest.mark.parametrize("sample", [0, 10])
@pytest.mark.parametrize("error", [DynctxError("train.en:3: not UTF-8"), KeyboardInterrupt()])
def test_trouble_with_the_text_is_told_as_it_is(error: BaseException, sample: int) -> None:
    """SentencePiece would wrap the exception of a sentence iterator into its own, traceback and all."""

    def broken() -> Iterator[str]:
        yield from TEXT
        raise error

    with pytest.raises(type(error)) as caught:
        train_subwords(broken(), 400, sample=sample, threads=1)
    assert caught.value is error


def test_nothing_to_train_on() -> None:
    with pytest.raises(DynctxError, match="could not be trained"):
        train_subwords(["", ""], 400, threads=1)


def test_sentencepiece_is_quiet(capfd: pytest.CaptureFixture[str]) -> None:
    train_subwords(TEXT, 400, threads=1)
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""
