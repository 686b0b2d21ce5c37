"""Search step by step says what the full decoder says, for every translator that reads context."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from small_documents import V, kinds, logits, norms, one_per_row, selection_of, small_model, small_store
from torch import Tensor

from dynctx.batches import Gatherer, Packed
from dynctx.corpus import TokenStore
from dynctx.errors import DynctxError
from dynctx.subwords import BOS
from dynctx.translators.sentence import FixedCache, SentNmt


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
    of fixed room as on a GPU too, where nothing moves but when rows leave or it is enlarged, and rows stand side by
    side."""
    model, store = small_model(kind, norm), small_store()
    rng = np.random.default_rng(beam)
    rows = [7, 0, 4, 8, 2, 5]
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
                assert len(cache.attended.memory_mask) < len(rows)
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
