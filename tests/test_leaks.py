"""What may and what must not change a translation: the same tests for every translator that reads context.

A selection never leaks: whatever was not selected (and every other sentence of the batch, and padding) can hold any
words without changing one bit of a sentence's logits, while every selected sentence does change them.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dynctx.batches import Batch, Gatherer, Packed
from dynctx.config import HanConfig, ModelConfig, SanConfig, TdnmtConfig
from dynctx.corpus import TokenStore
from dynctx.errors import DynctxError
from dynctx.planning import Shape, plan_epoch
from dynctx.subwords import BOS, EOS, PAD, SEP
from dynctx.translators import build_translator
from dynctx.translators.sentence import FixedCache, SentNmt

# a translator, and what is special about its configuration
KINDS = ["concat", "tdnmt", "tdnmt bypass", "han", "han encoder", "han decoder", "san", "san live", "cadec"]
ORDERED = ["concat", "tdnmt", "tdnmt bypass", "cadec"]  # those to which the order of the selected sentences matters
WITH_TARGETS = ["han", "han decoder", "cadec"]  # those that read translations of the selected sentences too
VARIANTS: dict[str, Any] = {
    "bypass": {"tdnmt": TdnmtConfig(empty_context="bypass")},
    "encoder": {"han": HanConfig(decoder=False)},
    "decoder": {"han": HanConfig(encoder=False)},
    "live": {"san": SanConfig(context_states="live_detached")},
}

# "all others" holds the rest, which tell more precisely what leaks: enough to ask of each model once
OUTSIDERS = ["unselected", "beyond the scope", "later", "other documents", "all others"]
LEAKS = [(kind, which) for kind in KINDS for which in OUTSIDERS if " " not in kind or which == "all others"]

kinds = pytest.mark.parametrize("kind", KINDS)
norms = pytest.mark.parametrize("norm", ["post", "pre"])

V = 31
SCOPE = 4

# lengths of source and target, documents 0 | 1 2 | 3 .. 9 | 10 11 12; sentence 5 is an empty line
LENGTHS = [
    [(3, 4)],
    [(2, 3), (4, 2)],
    [(3, 2), (2, 4), (0, 1), (2, 3), (5, 3), (1, 2), (3, 3)],
    [(3, 2), (3, 3), (2, 0)],
]
FIRSTS = [0, 1, 1, 3, 3, 3, 3, 3, 3, 3, 10, 10, 10]  # the first sentence of each one's document
# sentence -> distances of what is selected: nothing, some side by side, some apart, everything
SELECTED: dict[int, set[int]] = {
    **{0: set(), 1: set(), 2: {1}},
    **{3: set(), 4: set(), 5: {2}, 6: {1, 3}, 7: {1, 2, 3, 4}, 8: {2, 4}, 9: {3}},
    **{10: set(), 11: {1}, 12: {1, 2}},
}
ALL = sorted(SELECTED)


def small_model(kind: str, norm: str) -> SentNmt:
    """In float64 and with every parameter random, so that nothing rests on a zero bias."""
    name, _, variant = kind.partition(" ")
    layers = 2 if name in ("concat", "tdnmt") else 1  # where context is read between the layers, or behind them all
    config = ModelConfig(width=16, feed_forward=24, heads=4, encoder_layers=layers, decoder_layers=layers, scope=SCOPE)
    settings = VARIANTS[variant] if variant else {}
    torch.manual_seed(5)
    model = build_translator(dataclasses.replace(config, kind=name, norm=norm, **settings), V, V).double().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))
            elif "embedding" not in name:
                parameter.mul_(2.0)
    return model


def small_store(changed: set[int] | None = None, sides: tuple[int, ...] = (0, 1)) -> TokenStore:
    """The documents; in sentences of `changed` every word of the source (0) and the target (1) is another."""
    rng = np.random.default_rng(3)
    documents, number = [], 0
    for lengths in LENGTHS:
        pairs = []
        for pair in lengths:
            words = [rng.integers(7, V, length).tolist() for length in pair]
            for side in sides if number in (changed or set()) else ():
                words[side] = [7 + (word - 7 + 5) % (V - 7) for word in words[side]]
            pairs.append((words[0], words[1]))
            number += 1
        documents.append(pairs)
    return TokenStore.from_ids(documents)


def packed(store: TokenStore) -> Batch:
    """All sentences in one batch, several a row, and a last row with none."""
    gatherer, shape = Gatherer(store, SCOPE), Shape(rows=7, source=11, target=12, context=25)
    plans = plan_epoch(gatherer.lengths(), np.asarray(store.usable), shape, seed=3, epoch=0)
    assert len(plans) == 1
    return gatherer.gather(plans[0], shape)


def one_per_row(store: TokenStore, sentences: list[int]) -> Batch:
    return Gatherer(store, SCOPE).one_per_row(np.array(sentences))


def selection_of(batch: Batch) -> Tensor:
    rows = [[distance in SELECTED[s] for distance in range(1, SCOPE + 1)] for s in batch.sentences.tolist()]
    return torch.tensor(rows)


@torch.no_grad()
def logits(model: SentNmt, batch: Batch, selection: Tensor | None) -> Tensor:
    return model.output(model.decode(model.encode(batch, selection), batch))


def by_sentence(batch: Batch, tensor: Tensor) -> dict[int, Tensor]:
    """What belongs to each sentence of the store."""
    return {s: tensor[batch.target.sentence == n] for n, s in enumerate(batch.sentences.tolist())}


def translated(model: SentNmt, batch: Batch) -> dict[int, Tensor]:
    return by_sentence(batch, logits(model, batch, selection_of(batch)))


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
def test_what_was_not_selected_gets_no_gradient(kind: str, norm: str) -> None:
    """The embeddings of words that stand in unselected sentences only are not moved by the loss."""
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


# search


@torch.no_grad()
def full_logits(model: SentNmt, store: TokenStore, rows: list[int], histories: list[list[list[int]]]) -> Tensor:
    """[R, beam, V] next-token logits of every history (BOS first), from the decoder that sees it whole."""
    batch = one_per_row(store, rows)
    memory = model.encode(batch, selection_of(batch))
    found = []
    for beam in range(len(histories[0])):
        prefix = torch.tensor([beams[beam] for beams in histories])  # [R, T]
        number, position = (torch.arange(size) for size in prefix.shape)
        target = Packed(prefix, number[:, None].expand_as(prefix), position.expand_as(prefix))
        states = model.decode(memory, dataclasses.replace(batch, prefix=prefix, target=target))
        found.append(model.output(states[:, -1]))
    return torch.stack(found, dim=1)


@kinds
@norms
@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("fixed", [False, True])
def test_search_step_by_step_equals_the_full_decoder(kind: str, norm: str, beam: int, fixed: bool) -> None:
    """Empty, partial and full selections; arbitrary parents after each step; rows dropped and reordered. With a cache
    of fixed room as on a GPU too, where nothing moves but when rows leave or it is enlarged."""
    model, store = small_model(kind, norm), small_store()
    rng = np.random.default_rng(beam)
    rows = [7, 0, 4, 8, 2]
    batch = one_per_row(store, rows)
    with torch.no_grad():
        memory = model.encode(batch, selection_of(batch))
        cache = model.begin(memory, beam)
        if fixed:
            cache = FixedCache(beam, model.attend_to(memory, None), len(model.decoder_layers()), room=3)
        histories, before = [[[BOS]] * beam for _ in rows], None
        for step in range(8):
            if step == cache.room:
                cache.enlarge()
            tokens = torch.tensor([[history[-1] for history in beams] for beams in histories])
            found = model.step(cache, tokens)
            assert torch.allclose(found, full_logits(model, store, rows, histories), atol=1e-10, rtol=0), step
            if fixed:
                places = [cache.ancestors.data_ptr(), *(grown.key.data_ptr() for grown in cache.grown)]
                assert (places == before) is (step not in (0, 3, 5, 6)), step
                before = places
            if step in (2, 4):
                kept = [3, 0, 4, 1] if step == 2 else [3, 0]
                cache.keep(torch.tensor(kept))
                rows, histories = [rows[k] for k in kept], [histories[k] for k in kept]
            parents = rng.integers(0, beam, (len(rows), beam))
            cache.descend(torch.from_numpy(parents))
            histories = [
                [[*beams[parent], int(rng.integers(7, V))] for parent in chosen]
                for beams, chosen in zip(histories, parents.tolist())
            ]
    assert rows == [0, 8]  # kept [8, 7, 2, 0], then the last and the first of these


@kinds
@norms
def test_a_search_with_nothing_selected(kind: str, norm: str) -> None:
    model, batch = small_model(kind, norm), one_per_row(small_store(), [0, 4, 7])
    with torch.no_grad():
        memory = model.encode(batch, torch.zeros_like(batch.present))
        first = model.step(model.begin(memory, 2), torch.full((3, 2), BOS))
    expected = logits(model, batch, None)[:, :1].expand(-1, 2, -1)
    assert torch.allclose(first, expected, atol=1e-10, rtol=0)


@kinds
def test_a_batch_without_candidates_is_refused(kind: str) -> None:
    batch = Gatherer(small_store(), 0).one_per_row(np.array([4]))
    with pytest.raises(DynctxError, match=r"reads context.*scope 0"):
        small_model(kind, "post").encode(batch, None)
