"""What may and what must not change a translation: the same tests for every translator that reads context.

A selection never leaks: whatever was not selected (and every other sentence of the batch, and padding) can hold any
words without changing one bit of a sentence's logits, while every selected sentence does change them.
"""

from __future__ import annotations

import dataclasses

import pytest
import torch
from small_documents import (
    ALL,
    FIRSTS,
    KINDS,
    LEAKS,
    ORDERED,
    SCOPE,
    SELECTED,
    WITH_TARGETS,
    V,
    kinds,
    logits,
    norms,
    one_per_row,
    packed,
    selection_of,
    small_model,
    small_store,
    translated,
)

from dynctx.corpus import TokenStore
from dynctx.subwords import EOS, PAD, SEP


def outsiders(which: str, sentence: int) -> set[int]:
    """Sentences that must not matter to this one."""
    first, selected = FIRSTS[sentence], {sentence - distance for distance in SELECTED[sentence]}
    chosen = {
        "unselected": set(range(max(first, sentence - SCOPE), sentence)),
        "beyond the scope": set(range(first, max(first, sentence - SCOPE))),
        "later": {s for s in ALL if s > sentence and FIRSTS[s] == first},
        "other documents": {s for s in ALL if FIRSTS[s] != first},
        "all others": set(ALL),
    }[which]
    return chosen - selected - {sentence}


def test_the_batch_is_what_these_tests_need() -> None:
    batch = packed(small_store())
    assert sorted(batch.sentences.tolist()) == ALL
    numbers = [set(row.tolist()) - {-1} for row in batch.source.sentence]
    assert max(map(len, numbers)) > 2 and numbers[-1] == set()
    assert (batch.context is not None) and (batch.context.sentence < 0).any()
    assert all(max(SELECTED[s], default=0) <= s - FIRSTS[s] for s in ALL)


# what must not matter


@pytest.mark.parametrize(("kind", "which"), LEAKS)
@norms
def test_what_was_not_selected_cannot_matter(kind: str, norm: str, which: str) -> None:
    model = small_model(kind, norm)
    before = translated(model, packed(small_store()))
    tried = 0
    for sentence in ALL:
        if changed := outsiders(which, sentence):
            after = translated(model, packed(small_store(changed)))
            assert torch.equal(before[sentence], after[sentence]), sentence
            tried += 1
    assert tried >= 2


@kinds
@norms
def test_other_rows_cannot_matter(kind: str, norm: str) -> None:
    model = small_model(kind, norm)
    before = translated(model, one_per_row(small_store(), ALL))
    for sentence in ALL:
        after = translated(model, one_per_row(small_store(outsiders("all others", sentence)), ALL))
        assert torch.equal(before[sentence], after[sentence]), sentence


@kinds
@norms
@pytest.mark.parametrize("word", [EOS, SEP, 9])
def test_padding_cannot_matter(kind: str, norm: str, word: int) -> None:
    model, batch = small_model(kind, norm), packed(small_store())
    assert batch.context is not None
    source, target, context = (side.sentence < 0 for side in (batch.source, batch.target, batch.context))
    assert source.any() and target.any() and context.any()
    assert (batch.context.ids[context] == PAD).all()
    changed = dataclasses.replace(
        batch,
        source=dataclasses.replace(batch.source, ids=batch.source.ids.masked_fill(source, word)),
        target=dataclasses.replace(batch.target, ids=batch.target.ids.masked_fill(target, word)),
        prefix=batch.prefix.masked_fill(target, word),
        context=dataclasses.replace(batch.context, ids=batch.context.ids.masked_fill(context, word)),
    )
    before, after = (logits(model, b, selection_of(b)) for b in (batch, changed))
    assert not torch.equal(before[target], after[target])
    assert torch.equal(before[~target], after[~target])


@kinds
def test_a_candidate_that_does_not_exist_is_not_selected(kind: str) -> None:
    model, batch = small_model(kind, "post"), packed(small_store())
    assert not batch.present.all()
    everything = logits(model, batch, torch.ones_like(batch.present))
    assert torch.equal(everything, logits(model, batch, batch.present))


@kinds
def test_no_selection_is_the_empty_selection(kind: str) -> None:
    model, batch = small_model(kind, "post"), packed(small_store())
    assert torch.equal(logits(model, batch, None), logits(model, batch, torch.zeros_like(batch.present)))


@kinds
def test_a_selection_is_not_written_to(kind: str) -> None:
    model, batch = small_model(kind, "post"), packed(small_store())
    selection = torch.ones_like(batch.present)
    present = batch.present.clone()
    logits(model, batch, selection)
    assert selection.all() and torch.equal(batch.present, present)


# what must matter


@kinds
@norms
def test_every_selected_sentence_matters(kind: str, norm: str) -> None:
    model, store = small_model(kind, norm), small_store()
    before = translated(model, packed(store))
    tried = 0
    for sentence in ALL:
        for distance in SELECTED[sentence]:
            if len(store.source_ids(sentence - distance)) == 1:  # the empty line has no word to change
                continue
            after = translated(model, packed(small_store({sentence - distance}, sides=(0,))))
            assert (before[sentence] != after[sentence]).any(dim=-1).all(), (sentence, distance)
            tried += 1
    assert tried == 12


@pytest.mark.parametrize("kind", KINDS)
@norms
def test_translations_of_selected_sentences_matter_where_they_are_read(kind: str, norm: str) -> None:
    """Every selected translation to a model that reads them, none to any other."""
    model, store = small_model(kind, norm), small_store()
    before = translated(model, packed(store))
    tried = 0
    for sentence in ALL:
        for distance in SELECTED[sentence]:
            after = translated(model, packed(small_store({sentence - distance}, sides=(1,))))
            changed = (before[sentence] != after[sentence]).any(dim=-1)
            assert changed.all() if kind in WITH_TARGETS else not changed.any(), (sentence, distance)
            tried += 1
    assert tried == 14


@kinds
def test_selections_differ_from_each_other(kind: str) -> None:
    """All 16 selections of a sentence give other logits. (Sentence 9: none of its candidates is empty but 5.)"""
    model, sentence = small_model(kind, "post"), 9
    batch = one_per_row(small_store(), [sentence] * 16)
    numbers = torch.arange(16)[:, None]
    found = logits(model, batch, (numbers >> torch.arange(SCOPE)) % 2 == 1)[:, 0]  # [16, V]
    distance = torch.cdist(found, found).fill_diagonal_(1.0)
    if kind not in ("concat", *WITH_TARGETS):  # to select the empty line too is no difference
        without = torch.arange(int(kind.startswith("tdnmt")), 8)  # distance 4 is the empty line, sentence 5
        assert torch.allclose(found[without], found[without + 8], atol=1e-12, rtol=0)
        distance = distance[:8, :8]
    assert distance.min() > 1e-3


@pytest.mark.parametrize("kind", ORDERED)
@pytest.mark.parametrize(("sentence", "first", "second"), [(12, 10, 11), (8, 4, 6)])
def test_the_order_of_selected_sentences_matters(kind: str, sentence: int, first: int, second: int) -> None:
    model, store = small_model(kind, "post"), small_store()
    assert {sentence - first, sentence - second} == SELECTED[sentence]
    places = [slice(store.source_starts[s], store.source_starts[s + 1]) for s in (first, second)]
    swapped = store.source.copy()
    swapped[places[0]], swapped[places[1]] = store.source[places[1]], store.source[places[0]]  # equally long
    batch, other = packed(store), packed(dataclasses.replace(store, source=swapped))
    before, after = translated(model, batch)[sentence], translated(model, other)[sentence]
    assert ((before - after).abs() > 1e-6).any(dim=-1).all()


# every layout gives the same


@kinds
@norms
def test_mixed_batches_equal_sentences_translated_alone(kind: str, norm: str) -> None:
    model, store = small_model(kind, norm), small_store()
    in_rows = translated(model, packed(store))
    in_batch = translated(model, one_per_row(store, ALL))
    reordered = translated(model, one_per_row(store, ALL[::-1]))
    for sentence in ALL:
        alone = translated(model, one_per_row(store, [sentence]))[sentence]
        assert alone.shape == (len(store.target_ids(sentence)), V)
        for other in (in_rows, in_batch, reordered):
            assert torch.allclose(other[sentence], alone, atol=1e-10, rtol=0), sentence


@kinds
@norms
@pytest.mark.parametrize("selected", ["nothing", "some", "everything"])
def test_all_numbers_are_finite(kind: str, norm: str, selected: str) -> None:
    """States, logits and gradients, also where nothing lies (the last row is empty)."""
    model, batch = small_model(kind, norm), packed(small_store())
    selection = {"nothing": None, "some": selection_of(batch), "everything": batch.present}[selected]
    memory = model.encode(batch, selection)
    found = model.output(model.decode(memory, batch))
    assert torch.isfinite(memory.states).all() and torch.isfinite(found).all()
    found[batch.target.sentence >= 0].logsumexp(dim=-1).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is None or torch.isfinite(parameter.grad).all(), name


@kinds
@norms
def test_what_the_loss_moves(kind: str, norm: str) -> None:
    """Embeddings of words that stand nowhere else: of unselected sentences never, of selected ones where their words
    are read and not states of them."""
    model = small_model(kind, norm)
    document = [([7, 8], [9]), ([10], [9]), ([11, 12], [9]), ([13], [9]), ([14], [9])]
    batch = one_per_row(TokenStore.from_ids([document]), [4])
    states = model.decode(model.encode(batch, torch.tensor([[False, False, True, False]])), batch)
    (states * torch.randn_like(states))[batch.target.sentence >= 0].sum().backward()
    gradient = model.source_embedding.weight.grad
    assert gradient is not None
    moved = {word for word in range(7, V) if gradient[word].abs().max() > 0}
    if model.needs_drafts:
        assert moved == {9}  # what the sentence model gives is fixed
    elif not model.lays_context:
        assert moved == {9, 14}  # states of context sentences are fixed
    else:
        assert moved == {9, 10, 14}  # the target, the selected sentence, the source
