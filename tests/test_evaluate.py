"""`evaluate`: files aligned with the reference and scored, lines seen in training, a baseline, and the report of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest
from noisy_text import random_corpus

from dynctx.documents import TextFile
from dynctx.errors import DynctxError
from dynctx.evaluation.bleu import corpus_bleu, corpus_chrf, corpus_ter, document_bleu, tokenised_bleu
from dynctx.evaluation.evaluate import Report, evaluate
from dynctx.evaluation.significance import paired_bootstrap

Write = Callable[[str, str], str]


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
    assert "2 of 4 sources also occur in train" in told.to_text()
    assert (told.sentences, told.documents) == (4, 3)
    assert told.to_json()["seen_in_train"] == {"count": 2, "of": 4, "left_out": False, "by": "sources"}

    left = evaluate(hypothesis, [reference], sources=sources, train=train, leave_out_seen=True, language="en")
    assert "left out 2 of 4 lines whose sources also occur in train" in left.to_text()
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
    assert report.to_json()["seen_in_train"] == {"count": 2, "of": 3, "left_out": True, "by": "references"}
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
    with pytest.raises(DynctxError, match="name it with --train"):
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
