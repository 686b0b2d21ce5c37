"""CXMI by hand, and changed contexts that change what they should and nothing else."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
from tiny_models import PAIRS, SCOPE, tiny_model
from torch import Tensor

from dynctx.batches import Batch, Gatherer
from dynctx.beam_search import Hypothesis
from dynctx.corpus import Ints
from dynctx.decoding import translate
from dynctx.documents import Document
from dynctx.errors import DynctxError
from dynctx.evaluation.context_use import (
    CONDITIONS,
    changed_store,
    context_use,
    cxmi,
    in_other_context,
    information,
    to_text,
)
from dynctx.evaluation.split import Split
from dynctx.scoring import Scores
from dynctx.selection.strategies import parse_selector

FULL = parse_selector("full", 1)


def scores(*values: float) -> Scores:
    return Scores(np.array(values), np.array([2, 4, 4])[: len(values)], None)


def test_information_by_hand() -> None:
    """Gains of 1, -0.5 and 2 nats over sentences of 2, 4 and 4 pieces."""
    found = information(scores(-3.0, -6.5, -8.0), scores(-4.0, -6.0, -10.0))
    assert found.per_sentence.tolist() == [1.0, -0.5, 2.0]
    assert found.cxmi == pytest.approx(2.5 / 3)
    assert found.per_token == pytest.approx(0.25)


def test_no_context_tells_nothing() -> None:
    for kind, selector in (("sentence", "full"), ("tdnmt", "none")):
        split = Split(tiny_model(kind), PAIRS)
        assert cxmi(split, parse_selector(selector, 1)).per_sentence.tolist() == pytest.approx([0.0] * 10, abs=1e-4)


def test_cxmi_is_the_difference_of_scores() -> None:
    split = Split(tiny_model("tdnmt"), PAIRS)
    full, none = (split.select(parse_selector(name, 1)) for name in ("full", "none"))
    expected = split.score(full).log_probability - split.score(none).log_probability
    found = cxmi(split, parse_selector("full", 1))
    assert found.per_sentence.tolist() == pytest.approx(expected.tolist(), abs=1e-4)
    # the first sentence of a document has no context to learn from
    first = split.scorable.tolist().index(5)
    assert found.per_sentence[first] == pytest.approx(0.0, abs=1e-4)
    assert abs(found.per_sentence).max() > 1


# changed stores

NUMBERED = [
    (Document(name, tuple(f"{word} {word * k}" for k in range(1, 9))), Document(name, tuple(["a dog"] * 8)))
    for name, word in (("one", "a"), ("two", "t"))
]


def contexts(split: Split, condition: str, seed: int = 1) -> list[list[list[int]]]:
    """For each sentence the sources before it in the changed store, without EOS."""
    gatherer, numbers = changed_store(split, condition, seed)  # type: ignore[arg-type]
    store = gatherer.store
    found = []
    for sentence, number in enumerate(numbers.tolist()):
        first = int(gatherer.firsts[number])
        assert store.source_ids(number) == split.gatherer.store.source_ids(sentence)
        assert store.target_ids(number) == split.gatherer.store.target_ids(sentence)
        found.append([store.source_ids(k)[:-1] for k in range(first, number)])
    return found


def own(split: Split) -> list[list[list[int]]]:
    ids = split.model.source.encode(split.sources)
    return [[ids[k] for k in range(max(s - SCOPE, split.gatherer.firsts[s]), s)] for s in range(len(split))]


def test_true_context_is_the_documents_own() -> None:
    split = Split(tiny_model("concat"), NUMBERED)
    assert contexts(split, "true") == contexts(split, "none") == own(split)


@pytest.mark.parametrize("kind", ["han", "cadec"])
def test_translations_of_the_context_are_references(kind: str) -> None:
    """Who reads them translates as if it had said them itself, under every condition."""
    model = copy.deepcopy(tiny_model(kind))
    model.config.decoding.beam = 1
    split = Split(model, PAIRS)
    (true, *_) = context_use(split, FULL)
    gatherer = split.gatherer
    for sentence in split.filled.tolist():
        (found,) = translate(model.translator, gatherer, np.array([sentence]), model.config.decoding, FULL)
        assert model.target.decode([found.ids]) == [true.texts[sentence]]
    other = [(source, Document(target.id, tuple(["house"] * len(target.sentences)))) for source, target in PAIRS]
    (changed, *_) = context_use(Split(model, other), FULL)
    firsts = gatherer.firsts[split.filled] == split.filled
    same = [changed.texts[sentence] == true.texts[sentence] for sentence in split.filled]
    assert all(np.array(same)[firsts]) and not all(same)


def test_shuffled_context_is_of_the_same_document_but_of_elsewhere() -> None:
    split = Split(tiny_model("concat"), NUMBERED)
    ids = split.model.source.encode(split.sources)
    for sentence, (found, true) in enumerate(zip(contexts(split, "shuffled"), own(split))):
        assert len(found) == len(true)
        document = ids[:8] if sentence < 8 else ids[8:]
        others = [entry for entry in document if entry not in true and entry != ids[sentence]]
        assert all(entry in others for entry in found)
        assert len({tuple(entry) for entry in found}) == len(found)  # no sentence twice


def test_shuffled_context_of_a_short_document() -> None:
    """Four sentences: the last has nothing but its own context, the first has none."""
    pair = (Document("x", ("a", "dog", "cat", "house")), Document("x", ("a", "a", "a", "a")))
    split = Split(tiny_model("concat"), [pair])
    ids = split.model.source.encode(split.sources)
    found = contexts(split, "shuffled")
    assert [len(entry) for entry in found] == [0, 1, 2, 3]
    assert sorted(found[3]) == sorted(ids[:3])
    assert found[1][0] in (ids[2], ids[3])


def test_context_of_another_document() -> None:
    split = Split(tiny_model("concat"), NUMBERED)
    ids = split.model.source.encode(split.sources)
    for sentence, found in enumerate(contexts(split, "other document")):
        other = ids[8:] if sentence < 8 else ids[:8]
        assert len(found) == min(SCOPE, sentence % 8)
        if found:
            first = other.index(found[0])
            assert found == other[first : first + len(found)]  # a piece, in order


def test_another_document_that_is_short_lends_what_it_has() -> None:
    split = Split(tiny_model("concat"), [NUMBERED[0], (Document("s", ("a dog",)), Document("s", ("a",)))])
    (dog,) = split.model.source.encode(["a dog"])
    assert contexts(split, "other document")[7] == [dog] * SCOPE


def test_other_contexts_are_the_same_for_one_seed() -> None:
    split = Split(tiny_model("concat"), NUMBERED)
    for condition in ("shuffled", "other document"):
        assert contexts(split, condition) == contexts(split, condition)
        assert contexts(split, condition) != contexts(split, condition, seed=2)


def test_a_single_document_has_no_other() -> None:
    split = Split(tiny_model("concat"), NUMBERED[:1])
    with pytest.raises(DynctxError, match="one document only"):
        changed_store(split, "other document")


def test_under_each_condition() -> None:
    model = tiny_model("tdnmt")
    split = Split(model, PAIRS)
    full = parse_selector("full", 1)
    uses = {use.condition: use for use in context_use(split, full)}
    assert tuple(uses) == CONDITIONS
    assert uses["true"].texts == split.translate(full)
    assert uses["none"].texts == split.translate(parse_selector("none", 1))
    assert uses["shuffled"].texts != uses["true"].texts
    assert uses["true"].cxmi == pytest.approx(cxmi(split, full).cxmi, rel=1e-4)
    assert uses["none"].cxmi == pytest.approx(0.0, abs=1e-4)
    assert uses["other document"].cxmi != pytest.approx(uses["true"].cxmi, rel=1e-3)
    assert uses["true"].against_true is None
    compared = uses["none"].against_true
    assert compared is not None and compared.delta == pytest.approx(uses["none"].bleu - uses["true"].bleu)
    assert set(uses["none"].to_json()) == {
        *("condition", "bleu", "cxmi", "cxmi_per_token", "delta", "p_value", "delta_interval")
    }
    assert to_text(list(uses.values())).count("\n") == 4


@pytest.mark.parametrize("name", ["random 1", "random subset", "random 1 or none", "file"])
def test_draws_and_files_select_the_same_in_a_changed_store(name: str, tmp_path: Path) -> None:
    """They go by the number of a sentence, which is another one there; so the table and the sentences agree."""
    split = Split(tiny_model("tdnmt"), PAIRS)
    if name == "file":
        lines = [f'{{"selected": [{1 + n % 3}]}}' for n in range(len(split))]
        (tmp_path / "given.jsonl").write_text("\n".join(lines) + "\n")
        name = f"fixed {tmp_path / 'given.jsonl'}"
    selector = parse_selector(name, 5)
    uses = {use.condition: use for use in context_use(split, selector)}
    assert uses["true"].cxmi == pytest.approx(cxmi(split, selector).cxmi, rel=1e-4)
    assert uses["true"].texts == split.translate(selector)
    assert uses["other document"].cxmi != pytest.approx(uses["true"].cxmi, rel=1e-3)


def test_a_learned_selector_chooses_among_what_is_there() -> None:
    model = tiny_model("tdnmt", scorer=True)
    split, asked = Split(model, PAIRS), []
    judged = model.choose("probability-first")

    class Spy:
        name = "spy"

        def select(self, batch: Batch, draw: int = 0) -> Tensor:
            asked.append(batch.origin)
            return judged.select(batch, draw)

    context_use(split, Spy())
    assert len({id(gatherer) for gatherer in asked}) == 3 and split.gatherer not in asked


def test_what_a_wrong_context_loses_is_below_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """Perfect with the true context, cut short with any other: every difference is a loss."""
    line = "the cat sat on the mat"
    pairs = [(Document(name, ("a dog", "a cat") * 3), Document(name, (line,) * 6)) for name in ("one", "two")]
    split = Split(tiny_model("tdnmt"), pairs)
    calls: list[int] = []

    def scripted(model: object, gatherer: Gatherer, numbers: Ints, *rest: object) -> list[Hypothesis]:
        calls.append(len(numbers))
        ids = [gatherer.store.target_ids(number)[:-1] for number in numbers.tolist()]
        return [Hypothesis(found if len(calls) == 1 else found[: len(found) - 2], 0.0) for found in ids]

    monkeypatch.setattr("dynctx.evaluation.context_use.translate", scripted)
    true, *others = context_use(split, parse_selector("full", 1))
    assert true.bleu == pytest.approx(100)
    for use in others:
        assert use.against_true is not None and 0 < use.bleu < 100
        assert use.against_true.delta == pytest.approx(use.bleu - 100) and max(use.against_true.delta_interval) < 0


def test_some_sentences_in_other_context() -> None:
    """Each asked for once, last in a document of its own with its own reference, after as many others as before."""
    split = Split(tiny_model("tdnmt"), NUMBERED)
    asked = np.array([2, 7, 8, 15])
    found, numbers = in_other_context(split, asked, "other document")
    assert [found.sources[n] for n in numbers] == [split.sources[n] for n in asked]
    assert [found.references[n] for n in numbers] == [split.references[n] for n in asked]
    assert np.diff(found.starts).tolist() == [1 + min(SCOPE, n % 8) for n in asked.tolist()]
    for place, number in enumerate(asked.tolist()):
        before = found.sources[found.starts[place] : numbers[place]]
        own = "a" if number < 8 else "t"
        assert all(not line.startswith(own) for line in before), before
    same, numbers = in_other_context(split, asked, "true")
    for place, number in enumerate(asked.tolist()):
        before = same.sources[same.starts[place] : numbers[place]]
        assert before == split.sources[number - min(SCOPE, number % 8) : number]
