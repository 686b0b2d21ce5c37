"""Batches: what is packed, where it lies, which context it gets, and that any update can be entered again."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dynctx.batches import Batch, Gatherer, without_some_words
from dynctx.corpus import StoreWriter, TokenStore
from dynctx.errors import DynctxError
from dynctx.planning import Plan, Shape, choose_shape, plan_epoch, updates
from dynctx.subwords import BOS, EOS, PAD, UNK

quick = settings(max_examples=60, deadline=None)

# Two documents, sentences 0 1 | 2 3 4. With EOS the source lengths are 3 2 2 3 2, the target lengths 2 3 2 2 2.
TINY = TokenStore.from_ids(
    [
        [([10, 11], [20]), ([12], [21, 22])],
        [([13], [23]), ([14, 15], [24]), ([16], [25])],
    ]
)


@st.composite
def stores(draw: st.DrawFn) -> TokenStore:
    """Documents of sentences of 1 to 6 pieces (some empty), every id different, some pairs not usable."""
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=6))
    number = iter(range(100, 10_000))
    length = st.integers(0, 6)
    documents = [
        [(list(islice(number, draw(length))), list(islice(number, draw(length)))) for _ in range(size)]
        for size in sizes
    ]
    usable = draw(st.lists(st.booleans(), min_size=sum(sizes), max_size=sum(sizes)))
    return TokenStore.from_ids(documents, usable if any(usable) else None)


def fitting(lengths: np.ndarray, usable: np.ndarray, rows: int, extra: tuple[int, int, int]) -> Shape:
    """The narrowest shape that holds every usable sentence, and a little more."""
    widths = lengths[:, usable].max(1) + np.array(extra)
    return Shape(rows, *(int(width) for width in widths))


shapes = st.tuples(st.integers(1, 4), st.tuples(*[st.integers(0, 9)] * 3))


def plans_equal(one: Plan, other: Plan) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ("sentences", "row", "offsets"))


# ---- gathering


def test_lengths_of_the_three_sides() -> None:
    # context: the two sentences before, EOS included, but at least one EOS
    expected = [[3, 2, 2, 3, 2], [2, 3, 2, 2, 2], [1, 3, 1, 2, 5]]
    gatherer = Gatherer(TINY, scope=2)
    assert gatherer.lengths().tolist() == expected
    assert gatherer.lengths_of(np.array([4, 0])).tolist() == [[2, 3], [2, 2], [5, 1]]
    assert Gatherer(TINY, scope=1).lengths()[2].tolist() == [1, 3, 1, 2, 3]
    assert Gatherer(TINY, scope=0).lengths()[2].tolist() == [0] * 5


def test_gathered_rows() -> None:
    """Sentence 4 alone in the first row, 1 and 2 (another document) in the second."""
    plan = Plan(
        sentences=np.array([4, 1, 2]),
        row=np.array([0, 1, 1]),
        offsets=np.array([[0, 0, 2], [0, 0, 3], [0, 0, 3]]),
        lengths=np.array([[2, 2, 2], [2, 3, 2], [5, 3, 1]]),
    )
    batch = Gatherer(TINY, scope=2).gather(plan, Shape(rows=2, source=5, target=6, context=6))

    assert len(batch) == 3
    assert batch.sentences.tolist() == [4, 1, 2]
    assert batch.target_tokens == 7
    assert batch.source.ids.tolist() == [[16, EOS, PAD, PAD, PAD], [12, EOS, 13, EOS, PAD]]
    assert batch.source.sentence.tolist() == [[0, 0, -1, -1, -1], [1, 1, 2, 2, -1]]
    assert batch.source.position.tolist() == [[0, 1, 0, 0, 0], [0, 1, 0, 1, 0]]
    assert batch.target.ids.tolist() == [[25, EOS, PAD, PAD, PAD, PAD], [21, 22, EOS, 23, EOS, PAD]]
    assert batch.target.sentence.tolist() == [[0, 0, -1, -1, -1, -1], [1, 1, 1, 2, 2, -1]]
    assert batch.target.position.tolist() == [[0, 1, 0, 0, 0, 0], [0, 1, 2, 0, 1, 0]]
    assert batch.prefix.tolist() == [[BOS, 25, PAD, PAD, PAD, PAD], [BOS, 21, 22, BOS, 23, PAD]]
    context = batch.context
    assert context is not None
    # of sentence 4: sentences 2 and 3, oldest first; of sentence 1: sentence 0; of sentence 2: the lone EOS
    assert context.ids.tolist() == [[13, EOS, 14, 15, EOS, PAD], [10, 11, EOS, EOS, PAD, PAD]]
    assert context.slot.tolist() == [[1, 1, 0, 0, 0, -1], [0, 0, 0, 2, -1, -1]]
    assert context.sentence.tolist() == [[0, 0, 0, 0, 0, -1], [1, 1, 1, 2, -1, -1]]
    assert context.position.tolist() == [[0, 1, 2, 3, 4, 0], [0, 1, 2, 0, 0, 0]]
    assert batch.present.tolist() == [[True, True], [True, False], [False, False]]


def test_one_per_row() -> None:
    batch = Gatherer(TINY, scope=1).one_per_row(np.array([3, 0]))
    assert batch.source.ids.tolist() == [[14, 15, EOS] + 5 * [PAD], [10, 11, EOS] + 5 * [PAD]]
    assert batch.target.ids.tolist() == [[24, EOS] + 6 * [PAD], [20, EOS] + 6 * [PAD]]
    assert batch.prefix.tolist() == [[BOS, 24] + 6 * [PAD], [BOS, 20] + 6 * [PAD]]
    assert batch.context is not None
    assert batch.context.ids.tolist() == [[13, EOS] + 6 * [PAD], [EOS] + 7 * [PAD]]
    assert batch.context.slot.tolist() == [[0, 0] + 6 * [-1], [1] + 7 * [-1]]
    assert batch.present.tolist() == [[True], [False]]


def test_contexts_of_neighbours_share_a_row() -> None:
    """Two and two of four; of three, which two do not divide, each has its own."""
    gatherer = Gatherer(TINY, scope=1)
    batch = gatherer.one_per_row(np.array([3, 0, 4, 1]), together=2)
    assert batch.source.ids.shape == (4, 8)
    assert batch.context is not None
    assert batch.context.ids.tolist() == [[13, EOS, EOS] + 5 * [PAD], [14, 15, EOS, 10, 11, EOS, PAD, PAD]]
    assert batch.context.sentence.tolist() == [[0, 0, 1] + 5 * [-1], [2, 2, 2, 3, 3, 3, -1, -1]]
    alone = gatherer.one_per_row(np.array([3, 0, 4]), together=2).context
    assert alone is not None and alone.ids.shape == (3, 8)


def test_without_scope_there_is_no_context() -> None:
    batch = Gatherer(TINY, scope=0).one_per_row(np.array([4, 3]))
    assert batch.context is None
    assert batch.present.shape == (2, 0)
    assert batch.source.ids.tolist() == [[16, EOS] + [PAD] * 6, [14, 15, EOS] + [PAD] * 5]


def candidates(store: TokenStore, sentence: int, scope: int) -> list[tuple[int, int]]:
    """(id, slot) of a sentence's context, one document and one sentence at a time."""
    first = max(start for start in store.documents[:-1].tolist() if start <= sentence)
    found = [
        (id, distance - 1)
        for distance in range(scope, 0, -1)
        if sentence - distance >= first
        for id in store.source_ids(sentence - distance)
    ]
    return found or [(EOS, scope)]


def tokens_of(batch: Batch, side: str, number: int) -> list[int]:
    packed = getattr(batch, side)
    return packed.ids[packed.sentence == number].tolist()


@quick
@given(store=stores(), scope=st.integers(0, 4), shape=shapes, seed=st.integers(0, 99))
def test_gathering_agrees_with_the_store(
    store: TokenStore, scope: int, shape: tuple[int, tuple[int, int, int]], seed: int
) -> None:
    """Every sentence of an epoch has its own tokens, its own candidates and nobody else's."""
    gatherer = Gatherer(store, scope)
    lengths = gatherer.lengths()
    wide = fitting(lengths, store.usable, *shape)
    plans = plan_epoch(lengths, store.usable, wide, seed, epoch=0)
    batches = [gatherer.gather(plan, wide) for plan in plans]
    batches.append(gatherer.one_per_row(np.arange(len(store)), multiple=3))
    for batch in batches:
        for number, sentence in enumerate(batch.sentences.tolist()):
            target = store.target_ids(sentence)
            assert tokens_of(batch, "source", number) == store.source_ids(sentence)
            assert tokens_of(batch, "target", number) == target
            assert batch.prefix[batch.target.sentence == number].tolist() == [BOS, *target[:-1]]
            assert batch.source.position[batch.source.sentence == number].tolist() == [*range(lengths[0, sentence])]
            if batch.context is None:
                continue
            expected = candidates(store, sentence, scope)
            mine = batch.context.sentence == number
            assert list(zip(batch.context.ids[mine].tolist(), batch.context.slot[mine].tolist())) == expected
            assert batch.present[number].tolist() == [
                any(slot == place for _, slot in expected) for place in range(scope)
            ]
            # all three sides of a sentence lie in the same row
            rows = [(side.sentence == number).any(1).tolist() for side in (batch.source, batch.target, batch.context)]
            assert rows[0] == rows[1] == rows[2] and sum(rows[0]) == 1
        for packed in filter(None, (batch.source, batch.target, batch.context)):
            free = packed.sentence == -1
            assert (packed.ids[free] == PAD).all() and (packed.position[free] == 0).all()
        assert (batch.prefix[batch.target.sentence == -1] == PAD).all()
        assert batch.target_tokens == int((batch.target.sentence >= 0).sum())


def test_ids_above_32767_survive(tmp_path: Path) -> None:
    """A uint16 store is looked at as int16 on the way: 32768 and 65535 must not come out negative."""
    ids = [7, 32767, 32768, 40000, 65535]
    writer = StoreWriter(tmp_path / "train", vocabulary=65536)
    writer.add([ids, [8]], [ids[::-1], [9]], [True, True])
    writer.close()
    store = TokenStore.open(tmp_path / "train")
    assert store.source.dtype == np.uint16
    batch = Gatherer(store, scope=1).one_per_row(np.array([0, 1]), multiple=1)
    assert batch.source.ids[0].tolist() == [*ids, EOS]
    assert batch.target.ids[0].tolist() == [*ids[::-1], EOS]
    assert batch.prefix[0].tolist() == [BOS, *ids[::-1]]
    assert batch.context is not None and batch.context.ids[1].tolist() == [*ids, EOS]
    assert batch.source.ids.dtype == torch.int64


# ---- packing


def too_full(plan: Plan, inside: np.ndarray, more: np.ndarray, caps: tuple[int, int, int]) -> bool:
    """Whether a row has room for none of these. inside [n], more [3, m]"""
    return bool((plan.lengths[:, inside].sum(1)[:, None] + more > np.array(caps)[:, None]).any(0).all())


@quick
@given(store=stores(), scope=st.integers(0, 3), shape=shapes, seed=st.integers(0, 99), run=st.integers(1, 4))
def test_an_epoch_holds_every_usable_sentence_once(
    store: TokenStore, scope: int, shape: tuple[int, tuple[int, int, int]], seed: int, run: int
) -> None:
    lengths = Gatherer(store, scope).lengths()
    wide = fitting(lengths, store.usable, *shape)
    plans = plan_epoch(lengths, store.usable, wide, seed, 3, run, store.documents)
    assert sorted(np.concatenate([plan.sentences for plan in plans])) == np.flatnonzero(store.usable).tolist()
    caps = (wide.source, wide.target, wide.context)
    for plan in plans:
        assert plan.lengths.tolist() == lengths[:, plan.sentences].tolist()
        assert plan.row[0] == 0 and all(b - a in (0, 1) for a, b in pairwise(plan.row.tolist()))
        assert plan.row[-1] < wide.rows
        for k, cap in enumerate(caps):
            for row in range(wide.rows):
                inside = plan.row == row
                begins, ends = plan.offsets[k, inside], (plan.offsets[k] + plan.lengths[k])[inside]
                if inside.any():  # laid end to end from the row's first position, none beyond its last
                    assert begins.tolist() == [0, *ends[:-1].tolist()]
                    assert ends[-1] <= cap
        for place in np.flatnonzero(np.diff(plan.row)):  # a row ends only where the next sentence would not fit
            one, other = plan.row == plan.row[place], plan.row == plan.row[place + 1]
            if run > 1:
                assert too_full(plan, one, plan.lengths[:, [place + 1]], caps)
            else:  # the one that was filled first has no room for any sentence of the other
                full = too_full(plan, one, plan.lengths[:, other], caps)
                assert full or too_full(plan, other, plan.lengths[:, one], caps)
    assert sum(plan.row[-1] + 1 < wide.rows for plan in plans) <= 1  # only the last batch has rows left


def test_a_row_is_filled_to_its_last_position() -> None:
    """Six sentences of 2, 3 and 1 positions in rows of 4, 6 and 2: two a row, whichever side is the narrow one."""
    lengths, usable = np.repeat([[2], [3], [1]], 6, axis=1), np.ones(6, bool)
    for shape in (Shape(1, 4, 6, 2), Shape(1, 5, 60, 20), Shape(1, 40, 8, 20), Shape(1, 40, 60, 2)):
        plans = plan_epoch(lengths, usable, shape, seed=1, epoch=0)
        assert [len(plan.sentences) for plan in plans] == [2, 2, 2]
        assert all(plan.offsets.tolist() == [[0, 2], [0, 3], [0, 1]] for plan in plans)
        assert [plan.target_tokens for plan in plans] == [6, 6, 6]


def test_a_sentence_wider_than_the_rows_is_refused() -> None:
    lengths, usable = np.array([[2, 9], [2, 2], [0, 0]]), np.array([True, True])
    with pytest.raises(ValueError, match=r"longer than a row of \[8, 8, 0\]"):
        plan_epoch(lengths, usable, Shape(1, 8, 8), seed=1, epoch=0)
    assert len(plan_epoch(lengths, np.array([True, False]), Shape(1, 8, 8), seed=1, epoch=0)) == 1


def many(count: int = 200) -> tuple[np.ndarray, np.ndarray, Shape]:
    lengths = np.random.default_rng(0).integers(1, 9, (3, count))
    return lengths, np.ones(count, bool), Shape(2, 16, 16, 16)


def order(plans: list[Plan]) -> list[int]:
    return [int(sentence) for plan in plans for sentence in plan.sentences]


def test_order_is_a_function_of_seed_and_epoch() -> None:
    lengths, usable, shape = many()
    first = plan_epoch(lengths, usable, shape, seed=5, epoch=2)
    np.random.seed(0)  # no generator outside the function has a say
    torch.manual_seed(0)
    again = plan_epoch(lengths, usable, shape, seed=5, epoch=2)
    assert len(first) == len(again) and all(map(plans_equal, first, again))
    others = [(5, 3), (6, 2), (2, 5)]
    orders = [order(plan_epoch(lengths, usable, shape, seed, epoch)) for seed, epoch in others]
    assert order(first) not in orders
    assert all(one != other for one, other in pairwise(orders))


def test_batches_are_shuffled_too() -> None:
    """Else the half-empty last batch would end every epoch."""
    lengths, usable = np.ones((3, 7), int), np.ones(7, bool)
    sizes = {tuple(len(p.sentences) for p in plan_epoch(lengths, usable, Shape(1, 2, 2, 2), 1, e)) for e in range(30)}
    assert sizes == {(2, 2, 2, 1), (2, 2, 1, 2), (2, 1, 2, 2), (1, 2, 2, 2)}


@pytest.mark.parametrize("run_length", [1, 3])
@pytest.mark.parametrize("group", [1, 4])
def test_any_update_can_be_entered_again(group: int, run_length: int) -> None:
    lengths, usable, shape = many()
    documents = np.array([0, 50, 120, 200])

    def stream(epoch: int = 0, index: int = 0) -> Iterator[tuple[int, int, list[Plan]]]:
        return updates(lambda e: plan_epoch(lengths, usable, shape, 7, e, run_length, documents), group, epoch, index)

    count = len(plan_epoch(lengths, usable, shape, 7, 0, run_length, documents))
    whole = list(islice(stream(), 3 * count))
    assert [place[:2] for place in whole[:2]] == [(0, 0), (0, 1)]
    last = max(index for epoch, index, _ in whole if epoch == 0)
    assert last + 1 == -(-count // group)
    assert all(len(plans) == group for epoch, index, plans in whole if (epoch, index) < (0, last))
    assert len(whole[last][2]) == count - last * group
    for start in (0, 1, last - 1, last, last + 1, last + 3):
        epoch, index, _ = whole[start]
        for (*there, plans), (*here, rejoined) in zip(whole[start : start + 5], stream(epoch, index)):
            assert there == here
            assert len(plans) == len(rejoined) and all(map(plans_equal, plans, rejoined))
    # a checkpoint after the last update of an epoch names a place beyond it: the next epoch begins
    assert next(stream(0, last + 1))[:2] == (1, 0)


def test_runs_keep_neighbours_together() -> None:
    """Documents 0..4 and 5..6 in runs of two: 01 23 4 | 56; sentence 2 is not usable."""
    usable = np.array([True, True, False, True, True, True, True])
    lengths = np.ones((3, 7), int)

    def seen(epoch: int) -> str:
        documents, shape = np.array([0, 5, 7]), Shape(1, 7, 7, 7)
        return "".join(map(str, order(plan_epoch(lengths, usable, shape, 1, epoch, run_length=2, documents=documents))))

    orders = {seen(epoch) for epoch in range(40)}
    for found in orders:
        assert sorted(found) == list("013456")
        assert "01" in found and "56" in found
    assert len(orders) > 10  # of the 4! orders of the runs
    assert any("45" not in found for found in orders)  # neighbours in different runs do not stay together


# ---- the shape of a run


LENGTHS = np.array([[4, 6, 90], [5, 5, 90], [9, 1, 90]])  # means of the first two: 5, 5, 5


def test_shape_by_hand() -> None:
    usable = np.array([True, True, False])  # the third, long one does not count
    # target: four times the longest (5), up to the next 8: 24; the others have the same mean
    assert choose_shape(LENGTHS, usable, 1000) == Shape(rows=13, source=24, target=24, context=24)  # 1000 // 72
    assert choose_shape(LENGTHS * [[2], [1], [1]], usable, 1000) == Shape(10, 48, 24, 24)  # twice the mean
    assert choose_shape(LENGTHS, usable, 1000, row_length=40) == Shape(8, 40, 40, 40)  # 1000 // 120
    assert choose_shape(LENGTHS * [[1], [1], [0]], usable, 1000) == Shape(20, 24, 24, 0)  # 1000 // 48
    assert choose_shape(LENGTHS, usable, 10) == Shape(1, 24, 24, 24)  # never less than one row
    assert choose_shape(LENGTHS, ~usable, 1000) == Shape(2, 128, 128, 128)  # 90 * 4 is over 128


def test_shape_is_never_narrower_than_the_longest() -> None:
    """Means 3.99, 2.99 and 5.99: in proportion to a target of 200 the others would have 296 and 448."""
    lengths = np.array([[1] * 99 + [300], [1] * 99 + [200], [1] * 99 + [500]])
    shape = choose_shape(lengths, np.ones(100, bool), 4096, row_length=64)
    assert shape == Shape(4, 304, 200, 504)


@quick
@given(store=stores(), scope=st.integers(0, 4), budget=st.integers(1, 2000), row_length=st.sampled_from([0, 3, 20]))
def test_shape_holds_the_corpus_and_keeps_the_budget(
    store: TokenStore, scope: int, budget: int, row_length: int
) -> None:
    lengths = Gatherer(store, scope).lengths()
    shape = choose_shape(lengths, store.usable, budget, row_length)
    assert (lengths[:, store.usable].max(1) <= (shape.source, shape.target, shape.context)).all()
    width = shape.source + shape.target + shape.context
    assert shape.rows == 1 or shape.rows * width <= budget
    assert (shape.rows + 1) * width > budget


def test_nothing_usable() -> None:
    with pytest.raises(DynctxError, match=r"no sentence pair .* is fit for training \(see the data card\)"):
        choose_shape(LENGTHS, np.zeros(3, bool), 1000)


def test_shape_in_words() -> None:
    assert str(Shape(3, 16, 24)) == "3 rows of 16 source and 24 target positions"
    assert str(Shape(3, 16, 24, 32)) == "3 rows of 16 source + 32 context and 24 target positions"


def test_a_row_of_very_many_sentences_is_filled() -> None:
    """As the scorer's batches are: one row, which no window of the packing may cut short."""
    lengths, usable = np.stack([np.full(3000, 10), *np.zeros((2, 3000), int)]), np.ones(3000, bool)
    plans = plan_epoch(lengths, usable, Shape(1, 10_000, 0), 1, 0)
    assert [len(plan.sentences) for plan in plans] == [1000, 1000, 1000]


def test_some_words_of_the_sentence_and_none_of_its_context_are_dropped() -> None:
    """In 3,000 sentences of three words 20 % of these; never the end, padding, the target, an earlier sentence."""
    store = TokenStore.from_ids([[([10, 11, 12], [20])] * 3000])
    batch = Gatherer(store, 2).one_per_row(np.arange(3000))
    torch.manual_seed(1)
    found = without_some_words(batch, 0.2)
    dropped = found.source.ids == UNK
    assert dropped.shape == (3000, 8) and not dropped[:, 3:].any()
    assert dropped[:, :3].double().mean(0).tolist() == pytest.approx([0.2] * 3, abs=0.02)
    assert torch.equal(found.source.ids[~dropped], batch.source.ids[~dropped])
    assert found.context is batch.context and found.target is batch.target and found.prefix is batch.prefix
    assert torch.equal(without_some_words(batch, 0.0).source.ids, batch.source.ids)
