"""The report: its figures' numbers by hand, and a page that stands alone."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from xml.etree import ElementTree

import numpy as np
import pytest
from tiny_models import PAIRS, tiny_model

from dynctx.batches import Gatherer
from dynctx.corpus import TokenStore
from dynctx.documents import Document
from dynctx.evaluation import report, report_figures, report_page
from dynctx.evaluation.bleu import sentence_bleu
from dynctx.evaluation.report import Facts, rank_correlation
from dynctx.evaluation.split import Split

TAGS = [
    *PAIRS,
    (
        Document("<b>&", ("the <script>alert(1)</script> cat", "a dog & a cat")),
        Document("<b>&", ("the <i>cat</i>", "a dog")),
    ),
]


@cache
def facts(kind: str = "tdnmt", selector: str = "probability-first") -> Facts:
    model = tiny_model(kind, scorer=kind != "sentence")
    split = Split(model, TAGS)
    return report.gather(split, model.choose(selector), model.config.decoding, split.scorable)


# numbers


def test_sizes_reaches_and_places() -> None:
    """Three sentences of one document: selected {1, 3}, nothing, {2}."""
    selection = np.array([[1, 0, 1], [0, 0, 0], [0, 1, 0]], bool)
    gatherer = Gatherer(TokenStore.from_ids([[([7], [7])] * 9]), 3)
    split = SimpleNamespace(filled=np.array([6, 7, 8]), gatherer=gatherer)
    whole = np.concatenate([np.zeros((6, 3), bool), selection])
    made = Facts(cast(Split, split), "x", whole, *[cast(Any, None)] * 8)
    assert made.sizes.tolist() == [2, 0, 1]
    assert made.reaches.tolist() == [3, 0, 2]
    assert made.places.tolist() == [7, 8, 9]
    assert made.candidates.tolist() == [3, 3, 3]


def test_histogram() -> None:
    assert report_figures.histogram(np.array([0, 0, 2, 1]), 3).tolist() == [0.5, 0.25, 0.25, 0.0]


def test_rank_correlation_by_hand() -> None:
    x = np.array([1.0, 2.0, 3.0, 4.0])
    assert rank_correlation(x, x**3) == pytest.approx(1.0)
    assert rank_correlation(x, -x) == pytest.approx(-1.0)
    # ranks 1 2 3 4 against 2 1 4 3: 1 - 6 * 4 / (4 * 15)
    assert rank_correlation(x, np.array([20.0, 10.0, 90.0, 30.0])) == pytest.approx(0.6)
    # equal values share a rank: 1.5 1.5 3 4 against 1 2 3 4
    assert rank_correlation(np.array([5.0, 5.0, 6.0, 7.0]), x) == pytest.approx(4.5 / np.sqrt(4.5 * 5))
    assert rank_correlation(np.ones(4), x) is None


def test_facts_are_those_of_the_parts() -> None:
    found = facts()
    split = found.split
    chosen = split.model.choose("probability-first")
    assert found.selector == "probability-first"
    assert (found.selection == split.select(chosen)).all()
    assert found.own.texts == split.translate(chosen)
    assert found.none.texts == split.translate(split.model.choose("none"))
    assert found.full.texts == split.translate(split.model.choose("full"))
    assert found.own.sentence_bleu[0] == pytest.approx(sentence_bleu(found.own.texts[0], split.references[0]))
    rewards = split.score(found.selection, rewards=True).reward
    assert rewards is not None and found.own.rewards.tolist() == pytest.approx(rewards.tolist(), rel=1e-4)
    assert found.probabilities is not None
    filled = found.probabilities[split.filled]
    assert filled.sum(axis=1).tolist() == pytest.approx([1.0] * len(filled), rel=1e-5)
    # probability-first: selected is what is likelier than needing none
    assert ((filled[:, :-1] > filled[:, -1:]) == found.selection[split.filled]).all()
    assert found.own.sentences_per_second > 0


def test_changes_are_of_sentences_with_something_selected() -> None:
    found = facts()
    rewards, bleus = report_figures.changes(found)
    assert len(rewards) == len(bleus) == int(found.selection[found.split.scorable].any(axis=1).sum()) > 0
    assert np.abs(rewards).min() > 0  # context changed every one of them


# the page


class Links(HTMLParser):
    """What a page would fetch, and whether its tags are balanced."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in ("meta", "br", "path", "use", "rect", "image"):
            self.open.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "action", "data") and not (value or "").startswith(("#", "data:")):
                self.fetched.append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("path", "use", "rect", "image"):
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(page: str) -> Links:
    links = Links()
    links.feed(page)
    return links


@cache
def page(kind: str = "tdnmt", selector: str = "probability-first") -> str:
    found = facts(kind, selector)
    return report_page.page(found, report_figures.draw_all(found), "runs/<x>", "test")


def test_the_page_stands_alone() -> None:
    links = read(page())
    assert links.open == []
    assert links.fetched == []
    assert "script" not in links.tags and "link" not in links.tags
    assert not re.search(r"@import|url\((?!#)", page())


def test_text_of_the_corpus_stays_text() -> None:
    assert "<script>" not in page() and "<i>cat" not in page()
    assert "runs/&lt;x&gt;" in page()


def test_the_page_says_what_there_is_to_say() -> None:
    text = " ".join("".join(read(page()).text).split())
    found = facts()
    for words in ("Words used here", "What was selected", "Along the document", "Reward against BLEU", "The oracle"):
        assert words in text
    share = 100 * (found.sizes == 0).mean()
    assert f"{share:.1f} % of the sentences got no context" in text
    changed = sum(a != b for a, b in zip(found.own.texts, found.none.texts))
    assert f"Against no context {changed:,} translations changed" in text
    assert found.oracle is not None
    assert f"The empty one was best for {100 * found.oracle.empty_best:.1f} %" in text
    assert "prefers-color-scheme: dark" in page()
    for figure in ("sizes", "reaches", "distances", "positions", "reward-bleu", "oracle", "cost"):
        assert f'id="{figure}-figure_1"' in page()


def test_a_page_to_pass_on_has_no_text_of_the_corpus() -> None:
    found = facts()
    better = replace(found, own=replace(found.own, sentence_bleu=found.none.sentence_bleu + 1))  # so there are gains
    figures = report_figures.draw_all(found)
    shown, without = (report_page.page(better, figures, "m", "s", examples) for examples in (8, 0))
    assert "reference</td>" in shown and "reference</td>" not in without
    assert "translations differ" in without and "are marked" not in without


def test_ids_are_unique() -> None:
    ids = re.findall(r'\bid="([^"]+)"', page())
    assert len(ids) == len(set(ids)) > 50
    for used in re.findall(r'(?:href="#|url\(#)([^")]+)', page()):
        assert used in ids


def test_a_rule_and_a_model_without_context() -> None:
    rule = " ".join("".join(read(page("tdnmt", "previous 2")).text).split())
    assert "this selector gives no probabilities" in rule
    blind = " ".join("".join(read(page("sentence", "none")).text).split())
    assert "This model reads no context" in blind and "The oracle" not in blind


def test_a_scope_of_whole_documents_has_no_oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    """2 ** 1000 subsets cannot be tried: the page says so, and has all the rest in figures that can be read."""
    model = tiny_model("san", scope=1000)
    words = ("a dog", "the cat", "we saw", "it rains")
    split = Split(model, [*TAGS, (Document("long", words * 8), Document("long", words * 8))])
    usual = facts()
    monkeypatch.setattr(report.oracle, "value_of_subsets", lambda *given: pytest.fail("tried"))
    found = report.gather(split, model.choose("full"), model.config.decoding, split.scorable)
    assert found.oracle is None
    figures = report_figures.draw_all(found)
    assert [figure.name for figure in figures] == ["sizes", "reaches", "distances", "positions", "reward-bleu", "cost"]
    text = " ".join("".join(read(report_page.page(found, figures, "m", "s")).text).split())
    assert "Left out: a scope of 1,000 sentences has more subsets than can be tried; 10 sentences are the most." in text
    # 31 candidates at most, three to a bar
    assert report_figures.ranges(found) == [(n, min(n + 2, 31)) for n in range(1, 32, 3)]
    assert report_figures.ranges(usual) == [(1, 1), (2, 2), (3, 3)]
    assert "28-30" in figures[0].inline and ">31<" in figures[0].inline


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("selector", ["probability-first", "full"])
def test_documents_of_one_sentence(selector: str) -> None:
    """Nothing to select from, and nothing to divide by."""
    model = tiny_model("tdnmt", scorer=True)
    split = Split(model, [PAIRS[2]])
    found = report.gather(split, model.choose(selector), model.config.decoding, split.scorable)
    text = "".join(read(report_page.page(found, report_figures.draw_all(found), "m", "s")).text)
    assert "100.0 % of the sentences got no context" in text


def test_figures_take_the_pages_colour_and_the_files_their_own() -> None:
    for figure in report_figures.draw_all(facts()):
        ElementTree.fromstring(figure.svg)
        ElementTree.fromstring(figure.inline)
        assert "currentColor" in figure.inline and report_figures.INK not in figure.inline
        assert "#ffffff" not in figure.inline  # nothing white in the dark
        assert report_figures.INK in figure.svg
        assert figure.png.startswith(b"\x89PNG")
        assert "<text" in figure.inline


def test_written_files(tmp_path: Path) -> None:
    report.write(facts(), "m", "s", tmp_path / "r.html")
    names = sorted(path.name for path in (tmp_path / "r.figures").iterdir())
    expected = ["sizes", "reaches", "distances", "positions", "reward-bleu", "oracle", "cost"]
    assert names == sorted(f"{name}.{suffix}" for name in expected for suffix in ("png", "svg"))
    first = {path.name: path.read_bytes() for path in (tmp_path / "r.figures").iterdir()}
    report.write(facts(), "m", "s", tmp_path / "r.html")
    assert first == {path.name: path.read_bytes() for path in (tmp_path / "r.figures").iterdir()}
    assert (tmp_path / "r.html").read_text(encoding="utf-8").startswith("<!doctype html>")
