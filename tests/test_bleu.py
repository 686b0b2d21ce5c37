"""Scores of translations: of a corpus, of documents and of single sentences, by hand and as sacreBLEU has them."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from noisy_text import random_corpus
from sacrebleu.metrics import BLEU, CHRF, TER

from dynctx.errors import DynctxError
from dynctx.evaluation import bleu
from dynctx.evaluation.bleu import (
    corpus_bleu,
    corpus_chrf,
    corpus_ter,
    document_bleu,
    sentence_bleu,
    sentence_bleus,
    tokenised_bleu,
)

HYPOTHESES = ["the cat sat on the mat", "it rains today again"]
REFERENCES = ["the cat sat on a mat", "it rains today again now"]


# --- corpus scores


def test_bleu_by_hand() -> None:
    # Sentence 1, 6 words: "the" counts once (the reference has one): 5/6. No match for on the, the mat: 3/5;
    # sat on the, on the mat: 2/4; cat sat on the, sat on the mat: 1/3. Sentence 2: 4/4, 3/3, 2/2, 1/1.
    # Together 9/10, 6/8, 4/6, 2/4, whose product is 0.225; 10 words against 11.
    score = corpus_bleu(HYPOTHESES, [REFERENCES])
    assert score.value == pytest.approx(100 * math.exp(1 - 11 / 10) * 0.225**0.25)
    assert score.name == "BLEU"
    assert score.signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")


def test_document_bleu_by_hand() -> None:
    # The two sentences in a row have the n-grams above, and across the join "mat it" of (mat it): 7/9;
    # "mat it rains" of (the mat it, mat it rains): 5/8; "mat it rains today" of (on the mat it,
    # the mat it rains, mat it rains today): 3/7. 9/10 * 7/9 * 5/8 * 3/7 = 0.1875.
    score = document_bleu([HYPOTHESES], [[REFERENCES]])
    assert score.value == pytest.approx(100 * math.exp(1 - 11 / 10) * 0.1875**0.25)
    assert "|unit:document|" in score.signature
    # A document of one sentence is that sentence.
    apart = document_bleu([[line] for line in HYPOTHESES], [[[line] for line in REFERENCES]])
    assert apart.value == corpus_bleu(HYPOTHESES, [REFERENCES]).value


def test_document_bleu_matches_across_sentences() -> None:
    # The same words, split elsewhere: as a document nothing is wrong.
    score = document_bleu([["one two three", "four five"]], [[["one two", "three four five"]]])
    assert score.value == pytest.approx(100)
    assert corpus_bleu(["one two three", "four five"], [["one two", "three four five"]]).value < 60


def test_tokenised_bleu_by_hand() -> None:
    # Don 't go , he said .  against  Don 't go , she said .
    # 6/7; 4/6 (not ", he", "he said"); 2/5 (Don 't go, 't go ,); 1/4 (Don 't go ,): product 2/35.
    score = tokenised_bleu(["Don't go, he said."], [["Don't go, she said."]], language="en")
    assert score.value == pytest.approx(100 * (2 / 35) ** 0.25)
    assert "|tok:moses-en-sacremoses-" in score.signature
    assert "|smooth:none|" in score.signature and "case:mixed" in score.signature


def test_tokenised_bleu_knows_the_language() -> None:
    # French keeps the apostrophe with the article (l' eau), German stands it alone (l ' eau).
    french = tokenised_bleu(["l'eau est là ."], [["l'eau est là ."]], language="fr")
    german = tokenised_bleu(["l'eau est là ."], [["l'eau est là ."]], language="de-CH")
    assert french.counts[0][0] == 5 and german.counts[0][0] == 6
    assert "moses-de-" in german.signature


def test_tokenised_bleu_leaves_hyphens_alone() -> None:
    # So he is a well-known man here .  (8)  against  So he is a well known man here .  (9)
    # 7/8, 5/7, 3/6, 1/5: product 1/16, whose fourth root is 1/2.
    score = tokenised_bleu(["So he is a well-known man here."], [["So he is a well known man here."]])
    assert score.value == pytest.approx(50 * math.exp(1 - 9 / 8))


def test_tokenised_bleu_is_not_smoothed_and_is_cased() -> None:
    assert tokenised_bleu(["one two three x"], [["one two three four"]]).value == 0.0
    assert corpus_bleu(["one two three x"], [["one two three four"]]).value > 50
    assert tokenised_bleu(["A b c d e"], [["a b c d e"]]).value == pytest.approx(100 * 0.2**0.25)


@pytest.mark.parametrize("language", ["zh", "zh-CN", "zh_Hans", "ZH"])
def test_chinese_is_scored_by_characters(language: str) -> None:
    # 4/5, 3/4, 2/3, 1/2: product 1/5.
    expected = pytest.approx(100 * 0.2**0.25)
    hypothesis, reference = ["我们很爱你"], [["我们很爱他"]]
    by_sacrebleu = corpus_bleu(hypothesis, reference, language=language)
    by_characters = tokenised_bleu(["我们 很爱你"], reference, language=language)
    assert by_sacrebleu.value == expected and "tok:zh" in by_sacrebleu.signature
    assert by_characters.value == expected and "tok:characters" in by_characters.signature
    assert corpus_bleu(hypothesis, reference, language="en").value == 0.0
    # One character of five is wrong; as words the one word would be.
    assert corpus_ter(hypothesis, reference, language=language).value == pytest.approx(20)
    assert corpus_ter(hypothesis, reference, language="en").value == pytest.approx(100)


def test_japanese_uses_mecab_only_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    from sacrebleu.tokenizers import tokenizer_ja_mecab

    bleu.bleu_tokenizer.cache_clear()
    monkeypatch.setattr(tokenizer_ja_mecab, "MeCab", None)
    assert bleu.bleu_tokenizer("ja") == "char"
    bleu.bleu_tokenizer.cache_clear()
    monkeypatch.setattr(tokenizer_ja_mecab.TokenizerJaMecab, "__init__", lambda self: None)
    monkeypatch.setattr(tokenizer_ja_mecab.TokenizerJaMecab, "signature", lambda self: "ja-mecab")
    assert bleu.bleu_tokenizer("ja") == "ja-mecab"
    bleu.bleu_tokenizer.cache_clear()


def test_several_references() -> None:
    # Every n-gram up to 3 stands in one of the two, the 4-gram in neither: 1, 1, 1 and, smoothed, 1/2.
    score = corpus_bleu(["a b c d"], [["a b c x"], ["y b c d"]])
    assert score.value == pytest.approx(100 * 0.5**0.25)
    assert "nrefs:2" in score.signature
    # The length that counts is that of the closer reference.
    assert corpus_bleu(["a b c d"], [["a b c d e f g h"], ["a b c d e"]]).value == pytest.approx(
        100 * math.exp(1 - 5 / 4)
    )


def test_ter_by_hand() -> None:
    assert corpus_ter(["a b c d"], [["a b x d"]]).value == pytest.approx(25)


def test_agreement_with_sacrebleu() -> None:
    hypotheses, references = random_corpus(60, noise=0.4)
    others = random_corpus(60, noise=0.2)[0]
    hypotheses[7] = ""
    for both in ([references], [references, others]):
        for ours, metric in (
            (corpus_bleu(hypotheses, both), BLEU()),
            (corpus_chrf(hypotheses, both), CHRF()),
            (corpus_ter(hypotheses, both), TER()),
        ):
            assert ours.value == pytest.approx(metric.corpus_score(hypotheses, both).score, rel=1e-12)
            assert ours.signature == str(metric.get_signature())


@pytest.mark.parametrize(
    ("hypotheses", "references", "message"),
    [
        (["a", "b"], [["a", "b"], ["a"]], "BLEU: 2 translations but 1 lines in reference 2"),
        (["a"], [["a", "b"]], "BLEU: 1 translations but 2 lines in reference 1"),
        ([], [[]], "BLEU: there is nothing to score"),
        (["a"], [], "BLEU: at least one reference"),
    ],
)
def test_unequal_references(hypotheses: list[str], references: list[list[str]], message: str) -> None:
    with pytest.raises(DynctxError, match=message):
        corpus_bleu(hypotheses, references)


@pytest.mark.parametrize("language", ["german", "", "d", "de DE", "de-"])
def test_language_must_be_a_code(language: str) -> None:
    with pytest.raises(DynctxError, match=f"target language '{language}' is not a language code"):
        corpus_bleu(["a"], [["a"]], language=language)


# --- sentence BLEU

# What the 13a tokeniser treats in a special way, and the spaces that are not plain ones.
PIECES = [
    "a",
    "b",
    "Haus",
    "7",
    "3.5",
    ".",
    ",",
    "-",
    "'",
    "&quot;",
    "&amp;lt;",
    "<skipped>",
    "%",
    "(x)",
    "é",
    "中",
]
PIECES += [" ", " ", "  ", "\t", "\u00a0", "\u3000", "\n", "-\n", "\u2028", "\x1c"]
lines = st.lists(st.sampled_from(PIECES), max_size=25).map("".join) | st.text(max_size=12)


@example([(["x .5", "x.5"], "x . 5")], "zh")  # sacreBLEU's zh, unlike 13a, cuts by what stands in other words
@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.lists(lines, min_size=1, max_size=3), lines), max_size=3),
    st.sampled_from(["en", "zh"]),
)
def test_sentence_bleus_are_those_of_sacrebleu(groups: list[tuple[list[str], str]], language: str) -> None:
    pairs = [(hypothesis, reference) for hypotheses, reference in groups for hypothesis in hypotheses]
    pairs += [(reference, reference) for _, reference in pairs]
    metric = BLEU(effective_order=True, trg_lang=language)
    expected = [metric.sentence_score(hypothesis, [reference]).score for hypothesis, reference in pairs]
    assert sentence_bleus([pair[0] for pair in pairs], [pair[1] for pair in pairs], language=language) == expected


def test_sentence_bleus_of_near_translations() -> None:
    # Random strings seldom share 4-grams; these do.
    hypotheses, references = random_corpus(400, noise=0.15)
    metric = BLEU(effective_order=True)
    expected = [metric.sentence_score(pair[0], [pair[1]]).score for pair in zip(hypotheses, references)]
    assert sentence_bleus(hypotheses, references) == expected
    assert sum(0 < value < 100 for value in expected) > 200


def test_sentence_bleu_by_hand() -> None:
    # 3/4, 2/3, 1/2, and no 4-gram: 1/2 of 1/1. Product 1/8.
    assert sentence_bleu("one two three x", "one two three four") == pytest.approx(100 * 0.125**0.25)
    # Two words have no more than bigrams; the reference is twice as long.
    assert sentence_bleu("one two", "one two three four") == pytest.approx(100 * math.exp(-1))
    assert sentence_bleu("", "one") == sentence_bleu("one", "") == sentence_bleu("one", "two") == 0.0


def test_sentence_bleus_in_processes() -> None:
    hypotheses, references = random_corpus(9, noise=0.3)
    alone = sentence_bleus(hypotheses, references)
    assert len(set(alone)) > 3
    assert sentence_bleus(hypotheses, references, processes=2) == alone


def test_sentence_bleus_need_pairs() -> None:
    with pytest.raises(DynctxError, match="sentence BLEU: 2 translations but 1 references"):
        sentence_bleus(["a", "b"], ["a"])
