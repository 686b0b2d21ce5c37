"""Rows that share one attention: what they say is what they say alone."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from small_documents import SCOPE, V, kinds, small_model, small_store

from dynctx.batches import Gatherer
from dynctx.beam_search import BeamSearch, Hypothesis
from dynctx.config import DecodingConfig
from dynctx.decoding import translate
from dynctx.layers import Embedding, attention, take
from dynctx.selection.strategies import parse_selector
from dynctx.side_by_side import apart, beside, filled_up, join, seen_keys, some_beside, together
from dynctx.translators.sampling import draw, fall, pick
from dynctx.translators.sentence import Cache, FixedCache, Memory, SentNmt

INF = torch.inf


@pytest.mark.parametrize(
    ("rows", "queries", "keys", "expected"),
    [
        (4096, 4, 16, 16),  # 64 queries, 256 keys
        (4096, 4, 17, 8),  # 16 of them would have 272 keys
        (4096, 4, 200, 1),
        (4096, 64, 8, 1),
        (24, 4, 8, 8),
        (7, 1, 8, 1),
    ],
)
def test_how_many_rows_share_a_tile(rows: int, queries: int, keys: int, expected: int) -> None:
    assert together(rows, queries, keys) == expected


def test_a_joined_mask() -> None:
    """Two rows of two keys, of which the first row sees the first only; one query each."""
    mask = torch.tensor([[0.0, -INF], [0.0, 0.0]])[:, None, None, :]
    assert join(mask, 1).tolist() == [[[[0.0, -INF, -INF, -INF], [-INF, -INF, 0.0, 0.0]]]]
    assert join(mask, 2).tolist() == [
        [[[0.0, -INF, -INF, -INF]] * 2 + [[-INF, -INF, 0.0, 0.0]] * 2]  # the same for both queries
    ]


def test_a_mask_that_cannot_be_joined_stays() -> None:
    mask = torch.zeros(3, 1, 1, 5)
    assert join(mask, 4) is mask


def test_keys_that_nobody_sees_are_left_out() -> None:
    """Two rows of 16 keys: the first sees keys 0 and 2 of its own, the second its first nine."""
    mask = torch.full((2, 1, 1, 16), -INF)
    mask[0, ..., [0, 2]], mask[1, ..., :9] = 0.0, 0.0
    place, joined = seen_keys(mask, 2)
    assert place.shape == (1, 16) and place[0, :11].tolist() == [0, 2, *range(16, 25)]  # 11 of 32, made up to 16
    assert joined.shape == (1, 1, 4, 16)
    first, second = [0.0] * 2 + [-INF] * 14, [-INF] * 2 + [0.0] * 9 + [-INF] * 5
    assert joined[0, 0].tolist() == [first, first, second, second]
    keys = torch.arange(32.0).view(2, 1, 16, 1).expand(-1, 3, -1, 5)  # three heads
    assert some_beside(keys, place)[0, 1, :, 4].tolist() == place[0].tolist()


def test_there_and_back() -> None:
    x = torch.arange(4 * 3 * 2 * 5).view(4, 2, 3, 5).transpose(1, 2)  # [R=4, H=3, L=2, 5], heads together
    joined = beside(x, 2)
    assert joined.shape == (2, 3, 4, 5) and joined.data_ptr() == x.data_ptr()  # nothing is copied
    assert torch.equal(joined[1, 2, 3], x[3, 2, 1])
    assert torch.equal(apart(joined, 2), x)


@pytest.mark.parametrize("queries", [1, 3])
def test_attention_side_by_side_is_attention_alone(queries: int) -> None:
    """What a row may not see weighs nothing at all, however large it is: that much is true to the last bit."""
    torch.manual_seed(1)
    query, key, value = (
        torch.randn(8, length, 2, 4, dtype=torch.float64).transpose(1, 2) for length in (queries, 5, 5)
    )
    mask = torch.zeros(8, 1, 1, 5, dtype=torch.float64)
    mask[::2, ..., 3:] = -INF
    expected = attention(query, key, value, mask.expand(-1, -1, queries, -1))
    assert torch.allclose(attention(query, key, value, join(mask, queries)), expected, atol=1e-15, rtol=0)
    before = attention(query, key, value, join(mask, queries))[:2]
    key[2:], value[2:] = 1e6, 1e6
    assert torch.equal(attention(query, key, value, join(mask, queries))[:2], before)


def test_rows_are_taken_as_they_lie() -> None:
    together = torch.randn(4, 5, 3, 2).transpose(1, 2)  # [R, H, K, d/H], the heads of a position together
    taken = take(together, torch.tensor([2, 0]))
    assert torch.equal(taken, together[[2, 0]]) and taken.stride(1) < taken.stride(2)
    heads = torch.randn(4, 3, 5, 2)
    assert take(heads, torch.tensor([1])).is_contiguous()


def test_filling_up() -> None:
    assert filled_up(3, torch.device("cpu")).tolist() == [0, 1, *[2] * 14]
    assert filled_up(32, torch.device("cpu")).tolist() == list(range(32))


def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    """But for the recording of steps."""
    init = BeamSearch.__init__

    def begin(self: SentNmt, memory: Memory, beam: int) -> Cache:
        return self.begin_fixed(self.attend_to(memory, None), beam, room)

    def on_gpu(self: BeamSearch, *values: Any, **named: Any) -> None:
        init(self, *values, **named)
        self.on_gpu = True

    monkeypatch.setattr(SentNmt, "begin", begin)
    monkeypatch.setattr(BeamSearch, "__init__", on_gpu)


@kinds
@pytest.mark.parametrize("settings", [{"beam": 1}, {"beam": 4}, {"sampling": True}])
def test_searches_say_the_same(kind: str, settings: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """All of a search as on a GPU: rows filled up and side by side, little room to begin with, and the next batch
    started meanwhile."""
    model, store = small_model(kind, "pre"), small_store()
    gatherer = Gatherer(store, model.scope, lay_context=model.lays_context)
    config = dataclasses.replace(DecodingConfig(max_extra=6, batch_sentences=4), **settings)

    def run() -> list[Hypothesis]:
        torch.manual_seed(7)
        return translate(model, gatherer, np.arange(len(store)), config, parse_selector("previous 2", 1))

    expected = run()
    as_on_a_gpu(monkeypatch, room=3)
    found = run()
    assert [x.ids for x in found] == [x.ids for x in expected]
    assert [x.log_probability for x in found] == pytest.approx([x.log_probability for x in expected], abs=1e-9)


@kinds
@pytest.mark.parametrize("beam", [1, 3])
def test_rows_that_leave_stand_side_by_side_again(kind: str, beam: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """80 rows of very different limits: as on a GPU a quarter of them goes on, and says what it says alone."""
    model, store = small_model(kind, "pre"), small_store()
    batch = Gatherer(store, SCOPE).one_per_row(np.resize(np.arange(len(store)), 80))
    limits = torch.tensor([20 if row % 16 == 0 else row % 4 for row in range(80)])
    sizes: list[int] = []
    keep = FixedCache.keep

    def watched(self: FixedCache, rows: torch.Tensor) -> None:
        sizes.append(len(rows))
        keep(self, rows)

    monkeypatch.setattr(FixedCache, "keep", watched)
    with torch.no_grad():
        memory = model.encode(batch, batch.present)
        expected = BeamSearch(model, model.begin(memory, beam), limits, 0.6).run()
        search = BeamSearch(model, model.begin_fixed(model.attend_to(memory, None), beam, 8), limits, 0.6)
        search.on_gpu = True
        found = search.run()
    assert sizes == [32]  # 20 and more to a multiple of 16
    assert [x.ids for x in found] == [x.ids for x in expected]
    assert [x.log_probability for x in found] == pytest.approx([x.log_probability for x in expected], abs=1e-9)


def test_a_table_of_positions_that_was_replaced_is_kept() -> None:
    """A recorded step may read it while the next batch, with a longer sentence, is encoded."""
    embedding = Embedding(10, 4, 0.0)
    before = embedding.positions
    embedding.reach(300)
    assert len(embedding.positions) == 600 and embedding.outgrown[0] is before


# drawing


def test_where_a_number_falls() -> None:
    sizes = torch.tensor([[0.5, 0.0, 0.25, 0.25]])
    found = [fall(sizes, torch.tensor([[number]])) for number in (0.0, 0.49, 0.5, 0.8, 1.0, -0.1)]
    assert [int(which) for which, _ in found] == [0, 0, 2, 3, 3, 0]
    assert [float(inside) for _, inside in found[:4]] == pytest.approx([0, 0.49, 0, 0.05])


def test_nothing_without_a_chance_is_drawn() -> None:
    """Of 300 tokens only 7, 130 and 299 have any; each number of [0, 1] draws one of them."""
    chances = torch.zeros(1001, 300)
    chances[:, 7], chances[:, 130], chances[:, 299] = 0.25, 0.5, 0.25
    drawn = pick(chances, torch.linspace(0, 1, 1001)[:, None]).squeeze(1)
    assert drawn[[0, 249, 251, 749, 751, 1000]].tolist() == [7, 7, 130, 130, 299, 299]
    assert set(drawn.tolist()) == {7, 130, 299}


def test_draws_are_as_frequent_as_they_are_likely() -> None:
    torch.manual_seed(3)
    chances = torch.randn(200).softmax(0)
    drawn = pick(chances.expand(200_000, -1), torch.rand(200_000, 1)).squeeze(1)
    frequent = torch.bincount(drawn, minlength=200) / 200_000
    assert float((frequent - chances).abs().max()) < 0.002  # 4 standard deviations of the likeliest


def test_scores_are_left_out_where_nobody_wants_them() -> None:
    model, gatherer = small_model("sentence", "pre"), Gatherer(small_store(), 0)
    memory = model.encode(gatherer.one_per_row(np.arange(4)))
    limits = torch.full((4,), 5)
    scored, not_scored = (draw(model, model.begin(memory, 1), limits, 0.0, scored=scored) for scored in (True, False))
    assert torch.equal(scored.tokens, not_scored.tokens) and int(scored.tokens.max()) < V
    assert bool((scored.log_probability < 0).all()) and bool((not_scored.log_probability == 0).all())
