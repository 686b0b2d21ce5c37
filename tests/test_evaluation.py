"""Scores, their significance, and the report made of them."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.significance import PairedTest

from dynctx.documents import TextFile
from dynctx.errors import DynctxError
from dynctx.evaluation import bleu
from dynctx.evaluation.bleu import (
    Score,
    corpus_bleu,
    corpus_chrf,
    corpus_ter,
    document_bleu,
    sentence_bleu,
    sentence_bleus,
    tokenised_bleu,
)
from dynctx.evaluation.evaluate import Report, evaluate
from dynctx.evaluation.significance import bootstrap_interval, paired_bootstrap

Write = Callable[[str, str], str]

HYPOTHESES = ["the cat sat on the mat", "it rains today again"]
REFERENCES = ["the cat sat on a mat", "it rains today again now"]


def random_corpus(size: int, noise: float, seed: int = 1) -> tuple[list[str], list[str]]:
    """References of 3 to 20 words and copies of them in which each word is wrong with probability `noise`."""
    rng = random.Random(seed)
    words = [f"w{number}" for number in range(50)] + ["it's", "3.5%", "(so)", "well-known"]
    references = [" ".join(rng.choices(words, k=rng.randint(3, 20))) + "." for _ in range(size)]
    hypotheses = [
        " ".join(rng.choice(words) if rng.random() < noise else word for word in line.split()) for line in references
    ]
    return hypotheses, references


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


# --- significance


def summed(values: list[float]) -> Score:
    """A score that is the sum of its units."""
    return Score("sum", sum(values), "sum", np.array(values)[:, None], lambda row: float(row[0]))


def test_bootstrap_p_by_hand() -> None:
    # Differences +1, +1, -1. A draw of three is not positive if it holds -1 twice or thrice:
    # 3 * (1/3)^2 * 2/3 + (1/3)^3 = 7/27, and twice that for both sides.
    comparison = paired_bootstrap(summed([2, 2, 0]), summed([1, 1, 1]), samples=5000)
    assert comparison.delta == 1
    assert comparison.p_value == pytest.approx(14 / 27, abs=0.03)
    assert comparison.delta_interval == (-3, 3)
    assert comparison.system_interval == (0, 6)
    assert comparison.baseline_interval == (3, 3)


@pytest.mark.parametrize(("units", "floor"), [(1, 1.0), (2, 0.5), (6, 1 / 32), (30, 2 / 1001)])
def test_p_is_modest_about_few_units(units: int, floor: float) -> None:
    comparison = paired_bootstrap(summed([2] * units), summed([1] * units))
    assert comparison.p_value == pytest.approx(floor)
    assert comparison.units == units


def test_identical_systems_do_not_differ() -> None:
    hypotheses, references = random_corpus(50, noise=0.3)
    score = corpus_bleu(hypotheses, [references])
    comparison = paired_bootstrap(score, score)
    assert comparison.delta == 0
    assert comparison.p_value == 1
    assert comparison.delta_interval == (0, 0)


@pytest.mark.parametrize("metric", [corpus_bleu, corpus_chrf])
def test_better_system_is_significantly_better(metric: Callable[..., Score]) -> None:
    good, references = random_corpus(80, noise=0.2)
    bad = random_corpus(80, noise=0.5)[0]
    better, worse = metric(good, [references]), metric(bad, [references])
    comparison = paired_bootstrap(better, worse, samples=300, seed=3)
    assert comparison.delta == better.value - worse.value > 0
    assert comparison.p_value < 0.05
    assert 0 < comparison.delta_interval.low < comparison.delta < comparison.delta_interval.high
    assert comparison.system_interval.low < better.value < comparison.system_interval.high
    assert comparison.signature == f"{better.signature}|bs:300|seed:3"

    swapped = paired_bootstrap(worse, better, samples=300, seed=3)
    assert swapped.delta == -comparison.delta
    assert swapped.p_value == comparison.p_value
    assert swapped.system_interval == comparison.baseline_interval


def test_bootstrap_is_a_function_of_the_seed() -> None:
    hypotheses, references = random_corpus(40, noise=0.3)
    system, baseline = corpus_bleu(hypotheses, [references]), corpus_bleu(hypotheses[::-1], [references])
    first = paired_bootstrap(system, baseline, samples=50, seed=5)
    assert first == paired_bootstrap(system, baseline, samples=50, seed=5)
    assert first.delta_interval != paired_bootstrap(system, baseline, samples=50, seed=6).delta_interval


def test_bootstrap_agrees_with_sacrebleu() -> None:
    good, references = random_corpus(120, noise=0.30)
    bad = random_corpus(120, noise=0.34)[0]
    metrics = {"BLEU": BLEU(), "chrF2": CHRF()}
    _, theirs = PairedTest([("baseline", bad), ("system", good)], metrics, [references], "bs", n_samples=500)()
    for name, metric in (("BLEU", corpus_bleu), ("chrF2", corpus_chrf)):
        ours = paired_bootstrap(metric(good, [references]), metric(bad, [references]), samples=500)
        baseline, system = theirs[name]
        assert ours.baseline == pytest.approx(baseline.score) and ours.system == pytest.approx(system.score)
        # The same seed draws the same sentences, so the half widths of the intervals are equal.
        for interval, result in ((ours.baseline_interval, baseline), (ours.system_interval, system)):
            assert (interval.high - interval.low) / 2 == pytest.approx(result.ci, rel=1e-6)
        # sacreBLEU counts one tail, and how far draws stray from their mean; near enough for a bell curve.
        assert 0.005 < system.p_value < 0.3
        assert ours.p_value / 2 == pytest.approx(system.p_value, abs=0.02)


def test_bootstrap_refuses_what_cannot_be_compared() -> None:
    system = corpus_bleu(["a b", "c d"], [["a b", "c d"]])
    with pytest.raises(DynctxError, match="score both on the same test set"):
        paired_bootstrap(system, corpus_bleu(["a b"], [["a b"]]))
    with pytest.raises(DynctxError, match="score both translations in the same way"):
        paired_bootstrap(system, corpus_chrf(["a b", "c d"], [["a b", "c d"]]))
    with pytest.raises(DynctxError, match="0 resamples asked for"):
        paired_bootstrap(system, system, samples=0)
    with pytest.raises(DynctxError, match="seed -1 is negative"):
        paired_bootstrap(system, system, seed=-1)


def test_bootstrap_interval_of_a_mean() -> None:
    # The mean of 100 tosses of a coin has a standard deviation of 0.05.
    low, high = bootstrap_interval([0.0, 1.0] * 50, samples=2000)
    assert (low, high) == pytest.approx((0.5 - 1.96 * 0.05, 0.5 + 1.96 * 0.05), abs=0.011)
    assert bootstrap_interval([3.0, 3.0]) == (3.0, 3.0)
    with pytest.raises(DynctxError, match="no values"):
        bootstrap_interval([])


# --- evaluate


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    monkeypatch.chdir(tmp_path)

    def write_file(name: str, text: str) -> str:
        Path(name).write_text(text, encoding="utf-8")
        return name

    return write_file


REFERENCE = "the cat sat on a mat\nit rains today again now\n\nwe all went home by train\n"  # two documents
HYPOTHESIS = "the cat sat on the mat\nit rains today again\n\nwe all went home by bus\n"


def values(report: Report) -> dict[str, float]:
    return {score.name: score.value for score in report.scores}


def test_evaluate_scores_files(write: Write) -> None:
    report = evaluate(write("hyp", HYPOTHESIS), [write("ref", REFERENCE)], language="en")
    hypotheses = [line for line in HYPOTHESIS.split("\n") if line]
    references = [line for line in REFERENCE.split("\n") if line]
    assert values(report) == {
        "BLEU": corpus_bleu(hypotheses, [references]).value,
        "document BLEU": document_bleu([hypotheses[:2], hypotheses[2:]], [[references[:2], references[2:]]]).value,
        "chrF": corpus_chrf(hypotheses, [references]).value,
        "tokenised BLEU": tokenised_bleu(hypotheses, [references]).value,
        "TER": corpus_ter(hypotheses, [references]).value,
    }
    assert (report.documents, report.sentences, report.empty) == (2, 3, 0)
    assert report.length_ratio == 16 / 17
    assert report.seen is None and report.against is None and not report.comparisons and not report.absent


@pytest.mark.parametrize("borderless", ["{}\n{}\n{}\n", "{}\n{}\n{}"])
def test_evaluate_takes_borders_from_the_reference(write: Write, borderless: str) -> None:
    reference, translated = write("ref", REFERENCE), [line for line in HYPOTHESIS.split("\n") if line]
    marked = evaluate(write("hyp", HYPOTHESIS), [reference], language="en")
    one_document = json.dumps({"sentences": translated})
    for bare in (write("bare", borderless.format(*translated)), write("bare.jsonl", one_document)):
        report = evaluate(bare, [reference], language="en")
        assert report.documents == 2
        assert values(report) == values(marked)


@pytest.mark.parametrize("text", ["\nb c d e\nf g h i\nj k l m\n", "a b c d\n\n\nj k l m\n", "a b c d\ne\nf\n\n"])
def test_empty_translations_are_counted(write: Write, text: str) -> None:
    reference = write("ref", "a b c d\n\nb c d e\nf g h i\n\nj k l m\n")
    report = evaluate(write("hyp", text), [reference], language="en")
    assert report.empty == text.split("\n")[:4].count("")
    assert f"{report.empty} empty translation" in report.to_text()
    assert (report.sentences, report.documents) == (4, 3)
    single = evaluate(write("hyp", text), [write("ref", "a b c d\nb c d e\nf g h i\nj k l m\n")], language="en")
    assert (single.empty, single.documents) == (report.empty, 1)
    assert values(single)["BLEU"] == values(report)["BLEU"]


def test_evaluate_several_references_and_formats(write: Write) -> None:
    first = write("ref1", "a b c x\n\ne f g h\n")
    second = write("ref2.tsv", "doc\ten\tde\n1\ty b c d\t-\n2\te f g h\t-\n")
    hypothesis = write("hyp.jsonl", '{"id": "x", "sentences": ["a b c d"]}\n{"id": "y", "sentences": [""]}\n')
    report = evaluate(hypothesis, [first, TextFile(second, column="en")], language="en")
    assert (
        values(report)["BLEU"] == corpus_bleu(["a b c d", ""], [["a b c x", "e f g h"], ["y b c d", "e f g h"]]).value
    )
    assert (report.empty, report.documents) == (1, 2)
    assert report.to_json()["references"] == ["ref1", "ref2.tsv"]


TRAIN = "noch  ein Satz \n\nDas  ist\tschon bekannt\nanderes\n" * 3


def test_seen_lines_are_counted_and_left_out(write: Write) -> None:
    sources = write("src", "Das ist neu\nDas ist schon bekannt\n\nNoch ein Satz\n\nnoch ein Satz\n")
    reference = write("ref", "this is quite new\nthis is known already\n\none more of them\n\none more of these\n")
    hypothesis = write("hyp", "this is quite new\nx\n\none more of them\n\ny\n")
    train = [write("train1", "nichts\n"), write("train2", TRAIN)]

    told = evaluate(hypothesis, [reference], sources=sources, train=train, language="en")
    assert "2 of 4 lines also occur in train" in told.to_text()
    assert (told.sentences, told.documents) == (4, 3)
    assert told.to_json()["seen_in_train"] == {"count": 2, "of": 4, "left_out": False}

    left = evaluate(hypothesis, [reference], sources=sources, train=train, leave_out_seen=True, language="en")
    assert "left out 2 of 4 lines that also occur in train" in left.to_text()
    assert (left.sentences, left.documents) == (2, 2)
    assert values(left)["BLEU"] == values(left)["document BLEU"] == values(left)["tokenised BLEU"] == pytest.approx(100)
    assert values(left)["TER"] == 0 and values(told)["TER"] > 0


def test_what_is_left_out_counts_nowhere(write: Write) -> None:
    reference = write("ref", "a b c d\ne f g h\ni j k l\n")
    hypothesis, baseline = write("hyp", "a b c d\n\ni j k l\n"), write("base", "a b c d\ne f g h\ni j k x\n")
    report = evaluate(
        hypothesis,
        [reference],
        against=baseline,
        train=[write("train", "e f g h\n")],
        leave_out_seen=True,
        language="en",
    )
    assert report.empty == 0
    assert report.comparisons[0].baseline == corpus_bleu(["a b c d", "i j k x"], [["a b c d", "i j k l"]]).value
    assert report.comparisons[0].units == 2


def test_without_sources_references_are_looked_for(write: Write) -> None:
    first, second = write("ref1", "a b c d\ne f g h\ni j k l\n"), write("ref2", "a b\ne f\ni j\n")
    train = write("train.tsv", "doc\ttext\n1\ti  j\n1\tg h\n2\ta b c d\n")
    report = evaluate(write("hyp", "a\nb\nc\n"), [first, second], train=[train], leave_out_seen=True, language="en")
    assert report.to_json()["seen_in_train"] == {"count": 2, "of": 3, "left_out": True}
    assert report.sentences == 1


def test_empty_lines_are_not_seen(write: Write) -> None:
    sources = write("src.jsonl", '{"sentences": ["", "x"]}\n')
    reference, hypothesis = write("ref", "a\nb\n"), write("hyp", "a\nb\n")
    report = evaluate(hypothesis, [reference], sources=sources, train=[write("train", "\n\ny\n")], language="en")
    assert report.seen is not None and report.seen.count == 0


def test_evaluate_against_a_baseline(write: Write) -> None:
    good, references = random_corpus(40, noise=0.1)
    bad = random_corpus(40, noise=0.6)[0]
    reference = write("ref", "\n\n".join("\n".join(references[start : start + 4]) for start in range(0, 40, 4)))
    files = [write(name, "\n".join(texts)) for name, texts in (("good", good), ("bad", bad))]
    report = evaluate(files[0], [reference], against=files[1], samples=200, seed=7, language="de")
    assert [each.name for each in report.comparisons] == ["BLEU", "document BLEU", "chrF", "tokenised BLEU"]
    assert [each.units for each in report.comparisons] == [40, 10, 40, 40]
    assert all(each.p_value < 0.05 and each.delta > 0 for each in report.comparisons)
    assert report.comparisons[0] == paired_bootstrap(
        corpus_bleu(good, [references]), corpus_bleu(bad, [references]), samples=200, seed=7
    )
    shown = json.loads(json.dumps(report.to_json()))["against"]
    assert shown["baseline"] == "bad"
    assert shown["comparisons"][0]["delta"] == report.comparisons[0].delta
    assert (shown["comparisons"][0]["samples"], shown["comparisons"][0]["seed"]) == (200, 7)
    assert shown["comparisons"][0]["delta_interval"] == list(report.comparisons[0].delta_interval)
    assert "against bad (paired bootstrap, 200 resamples, seed 7)" in report.to_text()


def test_report_as_text(write: Write) -> None:
    reference = write("ref", "one two three four\n")
    report = evaluate(write("hyp", "one two three x\n"), [reference], against=reference, language="en", samples=10)
    text = (
        report.to_text()
        .replace(f"|version:{version('sacrebleu')}", "")
        .replace(f"sacremoses-{version('sacremoses')}", "sm")
    )
    # BLEU: 3/4, 2/3, 1/2 and, smoothed, 1/2 of 1/1. TER: one word of four.
    # chrF: of the 12 characters all but the x match: 11/12, 10/11, 9/10, 8/9, 7/8, 6/7 of the n-grams, and
    # 11/15, 10/14, 9/13, 8/12, 7/11, 6/10 of those of the reference, which has 15. The means are P = 0.89113
    # and R = 0.67383, and F2 = 5PR / (4P + R) = 0.7084.
    # A single document, whatever it shows, proves nothing: p = 1.
    assert text.splitlines() == [
        "1 sentence in 1 document, length ratio 1.000",
        "",
        "BLEU            59.46  nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp",
        "document BLEU   59.46  nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|unit:document",
        "chrF            70.84  nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no",
        "tokenised BLEU   0.00  nrefs:1|case:mixed|eff:no|tok:moses-en-sm|smooth:none",
        "TER             25.00  nrefs:1|case:lc|tok:tercom|norm:no|punct:yes|asian:no",
        "",
        "against ref (paired bootstrap, 10 resamples, seed 12345)",
        "                system  baseline    delta       95 % interval      p",
        "BLEU             59.46    100.00   -40.54    [-40.54, -40.54]  1.000",
        "document BLEU    59.46    100.00   -40.54    [-40.54, -40.54]  1.000",
        "chrF             70.84    100.00   -29.16    [-29.16, -29.16]  1.000",
        "tokenised BLEU    0.00    100.00  -100.00  [-100.00, -100.00]  1.000",
    ]


def test_tokenised_bleu_is_absent_without_sacremoses(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sacremoses", None)  # importing it raises ModuleNotFoundError
    hypothesis, reference = write("hyp", HYPOTHESIS), write("ref", REFERENCE)
    report = evaluate(hypothesis, [reference], against=reference, language="nl", samples=10)
    assert "tokenised BLEU" not in values(report) and len(report.comparisons) == 3
    reason = "needs sacremoses, which is not installed: pip install sacremoses"
    assert report.to_json()["absent"] == {"tokenised BLEU": reason}
    assert f"tokenised BLEU      -  {reason}" in report.to_text()
    assert "tokenised BLEU" in values(evaluate(hypothesis, [reference], language="zh"))  # needs no Moses


@pytest.mark.parametrize(
    ("hypothesis", "message"),
    [
        # A sentence is missing from the second document.
        ("a\nb\n\nc\n", r"^hyp \(3 sentences in 2 documents\) does not match "
                        r"ref \(4 sentences in 2 documents\): .* ref:4 but 1 at hyp:4"),
        # Borders elsewhere.
        ("a\n\nb\nc\nd\n", r"^hyp \(4 sentences in 2 documents\) does not match .* ref:1 but 1 at hyp:1"),
        # No borders, and a sentence too few; one too many.
        ("a\nb\nc\n", r"^hyp \(3 sentences in 1 document\) does not match .*hyp:1 has no document borders"),
        ("a\nb\nc\nd\ne\n", r"^hyp \(5 sentences in 1 document\) does not match"),
        # A document too many, or an empty translation beside borders.
        ("a\nb\n\nc\n\nd\n", r"^hyp \(4 sentences in 3 documents\).*empty translation .* reads as a border"),
    ],
)  # fmt: skip
def test_mismatch_is_an_error_with_counts(write: Write, hypothesis: str, message: str) -> None:
    reference = write("ref", "a\nb\n\nc\nd\n")
    with pytest.raises(DynctxError, match=message):
        evaluate(write("hyp", hypothesis), [reference], language="en")


@pytest.mark.parametrize("role", ["sources", "against", "second reference"])
def test_every_file_is_aligned(write: Write, role: str) -> None:
    reference, hypothesis, other = write("ref", REFERENCE), write("hyp", HYPOTHESIS), write("other", "x\n")
    with pytest.raises(DynctxError, match=r"^other \(1 sentence in 1 document\) does not match ref \(3 sent"):
        evaluate(
            hypothesis,
            [reference, other] if role == "second reference" else [reference],
            sources=other if role == "sources" else None,
            against=other if role == "against" else None,
            language="en",
        )


def test_standard_input(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    reference = write("ref", REFERENCE)
    with Path(write("hyp", HYPOTHESIS)).open() as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert evaluate("-", [reference], language="en").to_json()["hypothesis"] == "<stdin>"
    with Path(write("hyp", "a\n")).open() as file:
        monkeypatch.setattr(sys, "stdin", file)
        with pytest.raises(DynctxError, match=r"^<stdin> \(1 sentence in 1 document\) .* need the same doc"):
            evaluate("-", [reference], language="en")


def test_lines_of_structured_files_are_not_sentences(write: Write) -> None:
    hypothesis = write("hyp.jsonl", '{"sentences": ["a", "b"]}\n' * 4)  # four lines, but eight sentences
    with pytest.raises(DynctxError, match=r"^hyp.jsonl \(8 sentences in 4 documents\) does not match"):
        evaluate(hypothesis, [write("ref", "a\nb\n\nc\nd\n")], language="en")


def test_reference_without_borders(write: Write) -> None:
    with pytest.raises(DynctxError, match=r"does not match ref .*ref:1 has no document borders"):
        evaluate(write("hyp", "a\n\nb\n"), [write("ref", "a\nb\n")], language="en")


def test_usage_errors(write: Write) -> None:
    hypothesis, reference = write("hyp", HYPOTHESIS), write("ref", REFERENCE)
    with pytest.raises(DynctxError, match="no reference translation given"):
        evaluate(hypothesis, [], language="en")
    with pytest.raises(DynctxError, match="name it with train"):
        evaluate(hypothesis, [reference], leave_out_seen=True, language="en")
    with pytest.raises(DynctxError, match="ref: all 3 lines also occur in train"):
        evaluate(hypothesis, [reference], train=[reference], leave_out_seen=True, language="en")
    with pytest.raises(DynctxError, match="'english' is not a language code"):
        evaluate(hypothesis, [reference], language="english")
    with pytest.raises(DynctxError, match=r"^missing: no such file"):
        evaluate("missing", [reference], language="en")


def test_scorers_are_imported_only_when_used() -> None:
    code = (
        "import sys, dynctx.evaluation.evaluate; "
        "print([name for name in ('sacrebleu', 'sacremoses', 'torch') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
