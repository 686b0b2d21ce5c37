"""Batches that bring along only the candidates that will be selected, and batches with other targets."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from dynctx.batches import Gatherer, retargeted
from dynctx.config import ModelConfig
from dynctx.corpus import TokenStore
from dynctx.planning import plan_pairs
from dynctx.selection.policy import subsets
from dynctx.subwords import BOS, EOS
from dynctx.translators import build_translator
from dynctx.translators.sentence import SentNmt

V = 29
SCOPE = 3
SMALL = ModelConfig(
    kind="tdnmt", width=16, feed_forward=24, heads=4, encoder_layers=2, decoder_layers=1, dropout=0.3, scope=SCOPE
)
# sentences 0 .. 4 | 5 6; sentence 1 is an empty line
STORE = TokenStore.from_ids(
    [
        [([7, 8], [20]), ([], [21, 22]), ([9, 10, 11], [23]), ([12], [24, 25]), ([13, 7], [20, 22, 24])],
        [([13], [26]), ([14, 15], [27])],
    ]
)
GATHERER = Gatherer(STORE, SCOPE)


def model_of(kind: str) -> SentNmt:
    """In float64, every parameter random, left in training mode: dropout is the scoring's business."""
    torch.manual_seed(4)
    model = build_translator(dataclasses.replace(SMALL, kind=kind), V, V).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model.train()


def every_pair() -> tuple[np.ndarray, np.ndarray]:
    """Each sentence with each subset of the candidates it has: [m], [m, scope]."""
    pairs = [
        (sentence, subset)
        for sentence in range(len(STORE))
        for subset in subsets(SCOPE)
        if not any(subset[sentence - int(GATHERER.firsts[sentence]) :])
    ]
    return np.array([sentence for sentence, _ in pairs]), np.array([subset for _, subset in pairs])


@pytest.mark.parametrize("kind", ["concat", "tdnmt"])
@torch.no_grad()
def test_what_is_not_chosen_need_not_be_there(kind: str) -> None:
    """The same logits from a batch that brings only the chosen candidates along, packed or one a row."""
    model = model_of(kind).eval()
    sentences, chosen = every_pair()
    selection = torch.from_numpy(chosen)

    full = GATHERER.one_per_row(sentences, multiple=1)
    compact = GATHERER.one_per_row(sentences, chosen, multiple=1)
    assert full.context is not None and compact.context is not None
    assert int((compact.context.sentence >= 0).sum()) < int((full.context.sentence >= 0).sum())
    wanted = model.output(model.decode(model.encode(full, selection), full))  # [m, T, V]
    found = model.output(model.decode(model.encode(compact, selection), compact))
    real = full.target.sentence >= 0
    torch.testing.assert_close(found[real], wanted[real], rtol=0, atol=1e-10)

    order, plan, shape = plan_pairs(GATHERER, sentences, chosen)
    assert sorted(order.tolist()) == list(range(len(sentences))) and shape.rows > 1
    assert np.array_equal(plan.sentences, sentences[order]) and np.array_equal(plan.chosen, chosen[order])
    batch = GATHERER.gather(plan, shape)
    packed = model.output(model.decode(model.encode(batch, selection[order]), batch))
    for number, place in enumerate(order.tolist()):
        mine = packed[batch.target.sentence == number]
        torch.testing.assert_close(mine, wanted[place, : len(mine)], rtol=0, atol=1e-10)


def test_plans_bring_only_what_is_chosen() -> None:
    """Sentence 4 with the candidates at distance 1 and 3: 12 EOS, and EOS alone of the empty line, oldest first."""
    chosen = np.array([[True, False, True], [False, False, False]])
    order, plan, shape = plan_pairs(GATHERER, np.array([4, 4]), chosen)
    context = GATHERER.gather(plan, shape).context
    assert context is not None and order.tolist() == [0, 1]
    eos = STORE.source_ids(1)[0]
    assert context.ids[context.sentence == 0].tolist() == [eos, 12, eos]
    assert context.slot[context.sentence == 0].tolist() == [2, 0, 0]
    assert context.ids[context.sentence == 1].tolist() == [eos]  # nothing chosen: the lone EOS
    assert context.slot[context.sentence == 1].tolist() == [SCOPE]


@torch.no_grad()
def test_other_targets_for_some_sentences() -> None:
    """What was encoded serves them too, and each is scored as in a corpus that has it as its target."""
    model = model_of("tdnmt").eval()
    sentences, chosen = np.array([2, 3, 4, 6]), np.array([[1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 0, 0]], np.bool_)
    order, plan, shape = plan_pairs(GATHERER, sentences, chosen)
    sentences, chosen = sentences[order], chosen[order]
    assert sentences[[0, 2, 3]].tolist() == [2, 4, 6]
    batch = GATHERER.gather(plan, shape)
    memory = model.encode(batch, torch.from_numpy(chosen))
    texts = {0: [25, 26, 27, EOS], 2: [28, EOS], 3: [20, 20, 20, 20, 20, EOS]}
    filled = torch.tensor([ids + [EOS] * (6 - len(ids)) for ids in texts.values()])
    other = retargeted(batch, np.array(list(texts)), filled, np.array([len(ids) for ids in texts.values()]))
    found = model.output(model.decode(memory, other))
    changed = [[([7, 8], [20]), ([], [21, 22]), ([9, 10, 11], [25, 26, 27]), ([12], [24, 25]), ([13, 7], [28])],
               [([13], [26]), ([14, 15], [20] * 5)]]  # fmt: skip
    alone = Gatherer(TokenStore.from_ids(changed), SCOPE)
    assert (other.target.sentence != 1).all()  # it has no other target
    for number, ids in texts.items():
        mine = other.target.sentence == number
        assert other.target.ids[mine].tolist() == ids
        assert other.prefix[mine].tolist() == [BOS, *ids[:-1]]
        single = alone.one_per_row(sentences[number : number + 1])
        states = model.decode(model.encode(single, torch.from_numpy(chosen[number : number + 1])), single)
        torch.testing.assert_close(found[mine], model.output(states)[0, : len(ids)], rtol=0, atol=1e-10)
