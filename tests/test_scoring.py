"""Scoring many pairs at once: the same numbers as one by one, whatever the packing and whatever is left out."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import Tensor

from dynctx.batches import Gatherer, Shape, plan_pairs
from dynctx.config import ModelConfig
from dynctx.corpus import TokenStore
from dynctx.losses import token_losses
from dynctx.selection.policy import subsets
from dynctx.selection.reward import token_costs
from dynctx.selection.scoring import batch_rewards, by_token, log_likelihoods, score_pairs
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


def one_by_one(model: SentNmt, sentence: int, chosen: list[bool]) -> tuple[Tensor, Tensor]:
    """Logits [T, V] and ids [T] of a sentence by itself, with all its candidates laid out and a mask to choose."""
    batch = GATHERER.one_per_row(np.array([sentence]), multiple=1)
    states = model.decode(model.encode(batch, torch.tensor([chosen])), batch)
    return model.output(states)[0], batch.target.ids[0]


@pytest.mark.parametrize("kind", ["concat", "tdnmt"])
@pytest.mark.parametrize("batch_tokens", [1, 200, 10_000])
def test_many_pairs_score_as_each_by_itself(kind: str, batch_tokens: int) -> None:
    model = model_of(kind)
    sentences, chosen = every_pair()
    assert len(sentences) == 1 + 2 + 4 + 8 + 8 + 1 + 2
    likelihoods = score_pairs(model, GATHERER, sentences, chosen, log_likelihoods, batch_tokens)
    rewards = score_pairs(model, GATHERER, sentences, chosen, batch_rewards, batch_tokens)
    assert model.training  # as it was
    model.eval()
    with torch.no_grad():
        for number, (sentence, subset) in enumerate(zip(sentences.tolist(), chosen.tolist())):
            logits, ids = one_by_one(model, sentence, subset)
            likelihood = -float(token_losses(logits, ids).sum())
            reward = float(torch.exp(-token_costs(logits, ids).mean()))
            assert likelihoods[number].item() == pytest.approx(likelihood, abs=1e-9), (sentence, subset)
            assert rewards[number].item() == pytest.approx(reward, abs=1e-9), (sentence, subset)


def test_the_order_of_the_pairs_is_kept() -> None:
    model = model_of("tdnmt")
    sentences, chosen = every_pair()
    shuffled = np.random.default_rng(1).permutation(len(sentences))
    straight = score_pairs(model, GATHERER, sentences, chosen, log_likelihoods, 150)
    mixed = score_pairs(model, GATHERER, sentences[shuffled], chosen[shuffled], log_likelihoods, 150)
    torch.testing.assert_close(mixed, straight[torch.from_numpy(shuffled)], rtol=0, atol=1e-9)


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

    plans, shape = plan_pairs(GATHERER, sentences, chosen, batch_tokens=200)
    assert len(plans) > 1
    first = 0
    for plan in plans:
        batch = GATHERER.gather(plan, shape)
        assert plan.chosen is not None
        packed = model.output(model.decode(model.encode(batch, torch.from_numpy(plan.chosen)), batch))
        for number in range(len(plan.sentences)):
            mine = packed[batch.target.sentence == number]
            torch.testing.assert_close(mine, wanted[first + number, : len(mine)], rtol=0, atol=1e-10)
        first += len(plan.sentences)
    assert first == len(sentences)


def test_plans_bring_only_what_is_chosen() -> None:
    """Sentence 4 with the candidates at distance 1 and 3: 12 EOS, and EOS alone of the empty line, oldest first."""
    chosen = np.array([[True, False, True], [False, False, False]])
    plans, shape = plan_pairs(GATHERER, np.array([4, 4]), chosen, batch_tokens=1000)
    assert len(plans) == 1 and isinstance(shape, Shape)
    context = GATHERER.gather(plans[0], shape).context
    assert context is not None
    eos = STORE.source_ids(1)[0]
    assert context.ids[context.sentence == 0].tolist() == [eos, 12, eos]
    assert context.slot[context.sentence == 0].tolist() == [2, 0, 0]
    assert context.ids[context.sentence == 1].tolist() == [eos]  # nothing chosen: the lone EOS
    assert context.slot[context.sentence == 1].tolist() == [SCOPE]


def test_tokens_are_measured_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few logits may be held at a time, the values are those of all logits at once."""
    torch.manual_seed(1)
    states, output = torch.randn(3, 7, 4, dtype=torch.float64), torch.randn(V, 4, dtype=torch.float64)
    ids = torch.randint(V, (3, 7))
    expected = token_costs(states @ output.t(), ids)
    sizes: list[int] = []

    def measure(logits: Tensor, wanted: Tensor) -> Tensor:
        sizes.append(len(logits))
        return token_costs(logits, wanted)

    monkeypatch.setattr("dynctx.selection.scoring.CHUNK_BYTES", {"cpu": 4 * V * 5})
    found = by_token(states, output, ids, measure)
    assert sizes == [5, 5, 5, 5, 1]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
