"""Scores of given targets: worked out by hand, the same in any company, and the same as sentence by sentence."""

from __future__ import annotations

import copy
import math
from typing import Any, cast

import numpy as np
import pytest
import torch
from tiny_models import PAIRS, SCOPE, tiny_model
from torch import Tensor, nn

from dynctx import scoring
from dynctx.batches import Batch, Gatherer
from dynctx.corpus import TokenStore
from dynctx.documents import Document
from dynctx.errors import DynctxError
from dynctx.evaluation.split import Given, Split, selections
from dynctx.scoring import score
from dynctx.selection.reward import likelihoods_and_costs
from dynctx.selection.strategies import parse_selector
from dynctx.subwords import EOS
from dynctx.translators.sentence import SentNmt

# ids 3 (EOS), 7 and 8 have these probabilities, whatever stands before them
PROBABILITY = {EOS: 0.2, 7: 0.5, 8: 0.3}
V = 9


class Unmoved(nn.Module):
    """A translator with one distribution for every position; context doubles nothing and halves nothing."""

    needs_drafts = False

    def __init__(self) -> None:
        super().__init__()
        self.target_embedding = nn.Embedding(V, 4)
        logits = torch.full((V,), -1e9)
        for number, probability in PROBABILITY.items():
            logits[number] = math.log(probability)
        self.logits = logits

    def bank(self, batch: Batch, drafts: Any) -> Any:
        return None

    def encode(self, batch: Batch, selection: Tensor, bank: Any) -> Any:
        return None

    def decode(self, memory: Any, batch: Batch) -> Tensor:
        return torch.zeros(*batch.target.ids.shape, 4)

    def output(self, states: Tensor) -> Tensor:
        return self.logits.expand(*states.shape[:-1], V)


def test_by_hand() -> None:
    """Targets 7 8 and 8, each with EOS: 0.5 * 0.3 * 0.2 and 0.3 * 0.2."""
    gatherer = Gatherer(TokenStore.from_ids([[([7], [7, 8]), ([8, 8], [8])]]), 0)
    found = score(cast(SentNmt, Unmoved()), gatherer, np.array([0, 1]), np.zeros((2, 0), bool), rewards=True)
    assert found.log_probability.tolist() == pytest.approx([math.log(0.03), math.log(0.06)], rel=1e-6)
    assert found.tokens.tolist() == [3, 2]
    # P1 = 0.5, P2 = 0.3: a word of probability p costs log(0.5 / p) + log 2.5
    costs = {word: math.log(0.5 / p) + math.log(2.5) for word, p in PROBABILITY.items()}
    expected = [math.exp(-(costs[7] + costs[8] + costs[EOS]) / 3), math.exp(-(costs[8] + costs[EOS]) / 2)]
    assert found.reward is not None and found.reward.tolist() == pytest.approx(expected, rel=1e-5)


def test_no_reward_unless_asked_for() -> None:
    gatherer = Gatherer(TokenStore.from_ids([[([7], [7])]]), 0)
    assert score(cast(SentNmt, Unmoved()), gatherer, np.array([0]), np.zeros((1, 0), bool)).reward is None


def one_by_one(model: SentNmt, gatherer: Gatherer, sentence: int, selection: np.ndarray) -> tuple[float, float]:
    """Log-probability and reward from the logits of a batch of one."""
    batch = gatherer.one_per_row(np.array([sentence]))
    with torch.no_grad():
        logits = model.output(model.decode(model.encode(batch, torch.from_numpy(selection)[None]), batch))
    real = batch.target.sentence >= 0
    likelihoods, costs = likelihoods_and_costs(logits, batch.target.ids)
    return float(likelihoods[real].sum()), math.exp(-float(costs[real].mean()))


@pytest.mark.parametrize("kind", ["sentence", "concat", "tdnmt"])
def test_as_sentence_by_sentence(kind: str) -> None:
    """In batches with others, the same sentence several times under different selections."""
    model = copy.deepcopy(tiny_model(kind))
    model.translator.double()  # in float32 a few of these are off by a ten-thousandth, in batches and by themselves
    split = Split(model, PAIRS)
    scope = split.gatherer.scope
    rng = np.random.default_rng(2)
    sentences = np.concatenate([split.scorable, split.scorable, [4, 4, 4]])
    selection = rng.random((len(sentences), scope)) < 0.5
    if scope:
        assert len({row.tobytes() for row in selection[sentences == 4]}) > 2
    found = score(model.translator, split.gatherer, sentences, selection, rewards=True, batch_tokens=150)
    expected = [one_by_one(model.translator, split.gatherer, s, row) for s, row in zip(sentences, selection)]
    assert found.log_probability.tolist() == pytest.approx([value for value, _ in expected], rel=1e-9)
    assert found.reward is not None
    assert np.log(found.reward).tolist() == pytest.approx([math.log(value) for _, value in expected], rel=1e-5)


def test_dropout_is_off_and_training_goes_on() -> None:
    """What a selection earns is asked in the midst of an update, and is no matter of chance."""
    model = copy.deepcopy(tiny_model("tdnmt")).translator
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.5
    split = Split(tiny_model("tdnmt"), PAIRS)
    selection = np.ones((len(split.scorable), SCOPE), bool)
    expected = score(model.eval(), split.gatherer, split.scorable, selection, rewards=True)
    assert not model.training
    found = score(model.train(), split.gatherer, split.scorable, selection, rewards=True)
    assert model.training and all(module.training for module in model.modules())
    assert found.log_probability.tolist() == expected.log_probability.tolist()
    assert found.reward is not None and expected.reward is not None
    assert found.reward.tolist() == expected.reward.tolist()


def test_context_makes_a_difference() -> None:
    split = Split(tiny_model("tdnmt"), PAIRS)
    sentences, selection = np.array([4, 4, 4]), np.array([[0, 0, 0], [1, 0, 0], [0, 0, 1]], bool)
    assert len({round(value, 3) for value in split.score(selection, sentences).log_probability}) == 3


def test_order_and_batch_size_do_not_matter() -> None:
    model = tiny_model("concat")
    split = Split(model, PAIRS)
    selection = split.select(parse_selector("random subset", 4))[split.scorable]
    whole = score(model.translator, split.gatherer, split.scorable, selection, rewards=True)
    order = np.random.default_rng(1).permutation(len(selection))
    for tokens in (1, 60, 10**5):
        again = score(
            model.translator,
            split.gatherer,
            split.scorable[order],
            selection[order],
            rewards=True,
            batch_tokens=tokens,
        )
        assert again.log_probability.tolist() == pytest.approx(whole.log_probability[order].tolist(), rel=1e-5)
        assert again.tokens.tolist() == whole.tokens[order].tolist()


def test_sentences_of_very_different_lengths() -> None:
    """70 and 300 pieces lie in other classes than 2; each is scored as alone."""
    rng = np.random.default_rng(3)
    model = tiny_model("concat")
    sizes = [(2, 3), (70, 60), (3, 300), (5, 2), (140, 4)]
    words = len(model.source)
    document = [(rng.integers(7, words, a).tolist(), rng.integers(7, words, b).tolist()) for a, b in sizes]
    gatherer = Gatherer(TokenStore.from_ids([document]), SCOPE)
    sentences, selection = np.arange(5), np.ones((5, SCOPE), bool)
    found = score(model.translator, gatherer, sentences, selection).log_probability
    expected = [one_by_one(model.translator, gatherer, k, selection[k])[0] for k in range(5)]
    assert found.tolist() == pytest.approx(expected, rel=1e-5)


def test_the_softmax_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    split = Split(tiny_model("tdnmt"), PAIRS)
    selection = split.select(parse_selector("full", 1))
    whole = split.score(selection, rewards=True)
    largest = 0
    output = split.model.translator.output

    def watched(states: Tensor) -> Tensor:
        nonlocal largest
        largest = max(largest, states.shape[0])
        return nn.Linear.forward(output, states)

    monkeypatch.setattr(scoring, "CHUNK_BYTES", {"cpu": 4 * len(split.model.target) * 5})
    monkeypatch.setattr(output, "forward", watched)
    parts = split.score(selection, rewards=True)
    assert largest == 5  # positions whose logits existed at once
    assert parts.log_probability.tolist() == pytest.approx(whole.log_probability.tolist(), rel=1e-6)
    assert parts.reward is not None and whole.reward is not None
    assert parts.reward.tolist() == pytest.approx(whole.reward.tolist(), rel=1e-4)


def test_under_bfloat16_the_softmax_stays_in_float32() -> None:
    split = Split(tiny_model("sentence"), PAIRS)
    selection = np.zeros((len(split), 0), bool)
    exact = split.score(selection).log_probability
    seen: list[torch.dtype] = []
    handle = split.model.translator.output.register_forward_hook(lambda m, i, o: seen.append(o.dtype))
    with torch.autocast("cpu", torch.bfloat16):
        rough = split.score(selection).log_probability
    handle.remove()
    assert set(seen) == {torch.float32}
    assert rough.tolist() != exact.tolist()  # the layers did run in bfloat16
    assert rough.tolist() == pytest.approx(exact.tolist(), rel=0.05)


def test_progress_counts_every_pair() -> None:
    split = Split(tiny_model("concat"), PAIRS)
    counts: list[int] = []
    selection = np.zeros((len(split.scorable), SCOPE), bool)
    score(tiny_model("concat").translator, split.gatherer, split.scorable, selection, progress=counts.append)
    assert sum(counts) == 10


def test_a_selection_of_another_shape_is_refused() -> None:
    split = Split(tiny_model("concat"), PAIRS)
    with pytest.raises(ValueError, match=r"shape \(2, 1\) for 2 sentences of scope 3"):
        split.score(np.zeros((2, 1), bool), np.array([0, 1]))


def test_selections_in_order() -> None:
    split = Split(tiny_model("concat"), PAIRS)
    found = selections(split.gatherer, np.array([4, 0, 1]), parse_selector("previous 2", 1))
    assert found.astype(int).tolist() == [[1, 1, 0], [0, 0, 0], [1, 0, 0]]
    blind = Split(tiny_model("sentence"), PAIRS)
    assert blind.select(parse_selector("full", 1)).shape == (12, 0)


# the split


def test_a_split_knows_its_places() -> None:
    split = Split(tiny_model("concat"), PAIRS)
    assert len(split) == 12 and split.starts.tolist() == [0, 5, 11, 12]
    assert split.place(0) == ("one", 1) and split.place(10) == ("two", 6) and split.place(11) == ("three", 1)
    assert split.filled.tolist() == [0, 1, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    assert split.scorable.tolist() == [0, 1, 3, 4, 5, 6, 7, 9, 10, 11]
    assert split.documents(list("abcdefghijkl")) == [list("abcde"), list("fghijk"), ["l"]]
    assert split.gatherer.store.target_ids(0) == [*split.model.target.encode(["on the mat"])[0], EOS]


@pytest.mark.parametrize("pairs", [[], [("a", "")], [("", "a")]])
def test_a_split_with_nothing_to_score(pairs: list[tuple[str, str]]) -> None:
    documents = [(Document("x", (source,)), Document("x", (target,))) for source, target in pairs]
    with pytest.raises(DynctxError, match="no sentence with both a source and a reference"):
        Split(tiny_model("concat"), documents)


def test_a_split_translates_as_the_pipeline_does() -> None:
    from dynctx.pipeline import translate_documents

    model = tiny_model("tdnmt")
    texts = Split(model, PAIRS).translate(model.choose("previous 1"))
    documents = translate_documents(model, [source for source, _ in PAIRS], None, model.choose("previous 1"))
    assert texts == [sentence for document in documents for sentence in document.sentences]
    assert texts[2] == ""


def test_given_repeats_a_selection() -> None:
    split = Split(tiny_model("concat"), PAIRS)
    selection = np.random.default_rng(1).random((12, SCOPE)) < 0.5
    present = split.select(parse_selector("full", 1))
    assert (split.select(Given(selection)) == (selection & present)).all()
