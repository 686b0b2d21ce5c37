"""The context scorer: its input, its size, what it may and may not look at, and the two strategies."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from dynctx.batches import Gatherer
from dynctx.config import ScorerConfig
from dynctx.corpus import TokenStore
from dynctx.layers import Embedding, same_sentence, sinusoids
from dynctx.selection.instances import Instances, alike, gather_instances
from dynctx.selection.scorer import Scorer, judge, probability_first, size_first
from dynctx.subwords import DCS, NON, SEP

SCOPE = 3
Documents = list[list[tuple[list[int], list[int]]]]
DOCUMENTS: Documents = [
    [([10, 11], [20]), ([12], [21]), ([13, 14, 15], [23]), ([19], [9]), ([20, 21], [9])],
    [([16], [24]), ([17, 18], [25])],
]


def instances_of(sentences: list[int], documents: Documents = DOCUMENTS) -> Instances:
    gatherer = Gatherer(TokenStore.from_ids(documents), SCOPE)
    numbers = np.array(sentences)
    return gather_instances(gatherer, numbers)


def read(instances: Instances, number: int, column: int) -> list[int]:
    """The ids of one instance, in order."""
    owner = instances.head[number, column]
    return instances.packed.ids[instances.packed.sentence == owner].tolist()


def tiny_scorer(**settings: object) -> tuple[Scorer, Embedding]:
    torch.manual_seed(3)
    scorer = Scorer(ScorerConfig(dropout=0.0, **settings), 16, 32, 2, SCOPE).double().eval()  # type: ignore[arg-type]
    return scorer, Embedding(40, 16, 0.0).double()


def test_instances_word_for_word() -> None:
    instances = instances_of([2, 0, 6])
    assert instances.present.tolist() == [[1, 1, 0, 1], [0, 0, 0, 1], [1, 0, 0, 1]]
    assert read(instances, 0, 0) == [DCS, 13, 14, 15, SEP, 12]
    assert read(instances, 0, 1) == [DCS, 13, 14, 15, SEP, 10, 11]
    assert read(instances, 0, 3) == [DCS, 13, 14, 15, SEP, NON]
    assert read(instances, 1, 3) == [DCS, 10, 11, SEP, NON]
    assert read(instances, 2, 0) == [DCS, 17, 18, SEP, 16]


def test_heads_are_the_first_positions() -> None:
    instances = instances_of([4, 6, 3])
    packed, heads = instances.packed, instances.head[instances.present]
    assert packed.ids.flatten()[instances.place].tolist() == [DCS] * len(heads)
    assert torch.equal(packed.sentence.flatten()[instances.place[heads]], heads)
    assert torch.equal(instances.owner.flatten()[instances.slot[heads]], heads)
    rows, queries = instances.owner.shape
    assert torch.equal(instances.slot // queries, instances.place // packed.ids.shape[1])  # in the same row
    assert len(set(heads.tolist())) == len(heads) == int((packed.ids == DCS).sum())
    assert int((instances.owner >= 0).sum()) == len(heads) and rows == len(packed.ids)


def test_a_layer_at_some_positions_is_the_layer() -> None:
    """What the last pair layer leaves out was never looked at."""
    scorer, embedding = tiny_scorer(pair_layers=1)
    instances = instances_of([4, 6, 3, 0])
    packed = instances.packed
    x = embedding.look_up(packed.ids, packed.position, packed.ids.shape[1])
    layer = scorer.pair_layers[0]
    everywhere = layer(x, same_sentence(packed.sentence, packed.sentence))
    mask = same_sentence(instances.owner, packed.sentence)
    found = layer.at(instances.place, instances.slot, x, mask)  # type: ignore[operator]
    assert torch.allclose(found, everywhere.flatten(0, 1)[instances.place], atol=1e-12, rtol=0)


def test_base_size_is_the_papers() -> None:
    scorer = Scorer(ScorerConfig(), 512, 2048, 8, 6)
    assert sum(p.numel() for p in scorer.parameters()) == 12_741_121


@pytest.mark.parametrize(("pair", "over"), [(1, 0), (2, 1), (4, 2)])
def test_any_depth(pair: int, over: int) -> None:
    scorer, embedding = tiny_scorer(pair_layers=pair, set_layers=over)
    scores = scorer(instances_of([2, 0]), embedding)
    assert scores.shape == (2, SCOPE + 1)
    assert bool(((scores > 0) & (scores < 1)).all())


def test_embedding_is_shared_and_not_a_parameter() -> None:
    scorer, embedding = tiny_scorer()
    assert not any(p is embedding.weight for p in scorer.parameters())
    instances = instances_of([2])
    before = scorer(instances, embedding)
    with torch.no_grad():
        embedding.weight[12] += 1.0
    after = scorer(instances, embedding)
    assert after[0, 0] != before[0, 0]
    after[0, 0].backward()
    assert embedding.weight.grad is not None and bool(embedding.weight.grad[12].any())


def test_scores_do_not_depend_on_the_batch() -> None:
    scorer, embedding = tiny_scorer()
    together = scorer(instances_of([4, 2, 0, 6]), embedding)
    for row, sentence in enumerate([4, 2, 0, 6]):
        alone = instances_of([sentence])
        seen = alone.present[0]
        assert torch.allclose(together[row][seen], scorer(alone, embedding)[0][seen], atol=1e-12)


def lines_of(lengths: list[int]) -> Gatherer:
    """One document with lines of so many words."""
    lines = [([10 + number % 20] * length, [9]) for number, length in enumerate(lengths)]
    return Gatherer(TokenStore.from_ids([lines]), SCOPE)


def test_sentences_share_rows_with_those_of_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pair has two positions more than words: 53 of a long and a short line, 102 of two long ones."""
    numbers = np.arange(40)[::-1].copy()

    def widths(gatherer: Gatherer, parts: list[np.ndarray]) -> list[int]:
        assert sorted(np.concatenate(parts).tolist()) == list(range(40))
        return [gather_instances(gatherer, numbers[part]).packed.ids.shape[1] for part in parts]

    monkeypatch.setattr("dynctx.selection.instances.MANY", 5)
    scattered = lines_of([50 if n % 7 == 0 else 1 for n in range(40)])  # no two within the scope of each other
    assert widths(scattered, alike(scattered, numbers)) == [64]
    gatherer = lines_of([50 if n > 30 else 1 for n in range(40)])
    parts = alike(gatherer, numbers)
    assert widths(gatherer, parts) == [64, 128]
    assert numbers[parts[1]].tolist() == list(range(39, 31, -1))  # 31 is long, and reads short ones only
    monkeypatch.setattr("dynctx.selection.instances.MANY", 9)
    assert [len(part) for part in alike(gatherer, numbers)] == [32, 8]  # nowhere else to go
    monkeypatch.setattr("dynctx.selection.instances.MANY", 33)
    assert [len(part) for part in alike(gatherer, numbers)] == [40]


def test_in_groups_or_together_probabilities_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    (scorer, embedding), numbers = tiny_scorer(), np.array([39, 3, 8, 35, 36, 0, 33, 20])
    gatherer = lines_of([50 if n > 30 else 1 for n in range(40)])
    asked, batch = judge(scorer, embedding), gatherer.bare(numbers)
    together = asked(batch)
    monkeypatch.setattr("dynctx.selection.instances.MANY", 2)
    assert len(alike(gatherer, numbers)) == 2
    assert torch.allclose(asked(batch), together, atol=1e-6)
    for row, number in enumerate(numbers.tolist()):
        assert torch.allclose(asked(gatherer.bare(np.array([number])))[0], together[row], atol=1e-6)


def test_no_more_is_read_together_than_memory_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """One word a line: an instance has 4 tokens, one with NON too. 1, 2, 3 and then 4 instances a sentence."""
    monkeypatch.setattr("dynctx.selection.instances.TOKENS", {"cpu": 20})
    parts = alike(lines_of([1] * 8), np.arange(8))  # tokens 4, 8, 12, 16, 16, ...: in all 4, 12, 24, 40, 56, 72, ...
    assert [part.tolist() for part in parts] == [[0, 1], [2], [3, 4], [5], [6], [7]]
    assert alike(lines_of([1]), np.arange(0)) == []


@torch.no_grad()
def test_pairs_are_read_in_autocasts_precision_and_near_enough() -> None:
    scorer, embedding = tiny_scorer(squash=False)
    scorer, embedding, instances = scorer.float(), embedding.float(), instances_of([4, 2, 6])
    exact = scorer(instances, embedding)
    with torch.autocast("cpu", torch.bfloat16):
        assert scorer.read_pairs(instances, embedding).dtype == torch.bfloat16
        rough = scorer(instances, embedding)
        with torch.enable_grad():
            assert scorer.read_pairs(instances, embedding).dtype == torch.float32  # what learns is summed up exactly
    assert not torch.equal(rough, exact)
    assert torch.allclose(rough[instances.present], exact[instances.present], atol=0.05)


def changed(sentence: int, ids: list[int]) -> Documents:
    copy = [list(document) for document in DOCUMENTS]
    copy[0][sentence] = (ids, copy[0][sentence][1])
    return copy


def test_candidates_are_weighed_against_each_other_unless_independent() -> None:
    scorer, embedding = tiny_scorer()
    before, after = instances_of([4]), instances_of([4], changed(1, [30]))  # the candidate at distance 3
    assert scorer(before, embedding)[0, 0] != scorer(after, embedding)[0, 0]
    alone, still = (scorer(i, embedding, independent=True)[0] for i in (before, after))
    assert torch.equal(alone[[0, 1, 3]], still[[0, 1, 3]])
    assert alone[2] != still[2]


def test_what_lies_outside_the_scope_cannot_matter() -> None:
    scorer, embedding = tiny_scorer()
    before = scorer(instances_of([4]), embedding)
    assert torch.equal(before, scorer(instances_of([4], changed(0, [30, 31])), embedding))


def test_distance_is_visible_only_with_distance_positions() -> None:
    """Candidates 1 and 2 swapped: without distances the scores are swapped, with them they are others."""
    same_length: Documents = [[([10], [9]), ([11], [9]), ([12], [9])]]
    swapped: Documents = [[([11], [9]), ([10], [9]), ([12], [9])]]
    for positions in (False, True):
        scorer, embedding = tiny_scorer(distance_positions=positions)
        one = scorer(instances_of([2], same_length), embedding)[0]
        two = scorer(instances_of([2], swapped), embedding)[0]
        assert torch.allclose(one[[0, 1]], two[[1, 0]], atol=1e-12) != positions


def test_probabilities_are_a_softmax_over_those_present() -> None:
    """Scores 0.9, absent, 0.4 and NON 0.5: 2.4596, 0, 1.4918 and 1.6487 over their sum, 5.6001."""
    scorer, _ = tiny_scorer()
    scores = torch.tensor([[0.9, 0.8, 0.4, 0.5]], dtype=torch.float64)
    found = scorer.probabilities(scores, torch.tensor([[True, False, True, True]]))
    assert found[0].tolist() == pytest.approx([2.4596 / 5.6001, 0.0, 1.4918 / 5.6001, 1.6487 / 5.6001], abs=1e-4)


def test_probability_first_takes_what_beats_non() -> None:
    """A tie with NON is not better than NON."""
    table = torch.tensor([[0.3, 0.2, 0.1, 0.2], [0.1, 0.1, 0.1, 0.7], [0.3, 0.3, 0.2, 0.1]])
    assert probability_first(table).tolist() == [[1, 0, 0], [0, 0, 0], [1, 1, 1]]


def test_size_first_never_counts_non_or_the_absent() -> None:
    table = torch.tensor([[0.1, 0.3, 0.2, 0.4], [0.2, 0.0, 0.0, 0.8], [0.0, 0.0, 0.0, 1.0]])
    present = torch.tensor([[1, 1, 1, 1], [1, 0, 0, 1], [0, 0, 0, 1]]).bool()
    assert size_first(table, present[:, :-1], 2).tolist() == [[0, 1, 1], [1, 0, 0], [0, 0, 0]]


@torch.no_grad()
def test_scores_that_are_not_squashed_are_what_the_sigmoid_takes() -> None:
    instances = instances_of([4, 2])
    (squashed, embedding), (plain, _) = tiny_scorer(), tiny_scorer(squash=False)
    assert torch.allclose(squashed(instances, embedding), plain(instances, embedding).sigmoid(), atol=1e-12)
    # far out, where a sigmoid is flat, the probabilities go on: softmax of (20, 21, 22) is that of (0, 1, 2)
    scores, present = torch.tensor([[20.0, 21.0, 0.0, 22.0]]), torch.tensor([[True, True, False, True]])
    expected = torch.tensor([[0.09003057, 0.24472847, 0.0, 0.66524096]])
    assert torch.allclose(plain.probabilities(scores, present), expected, atol=1e-6)


@torch.no_grad()
def test_scores_are_finer_than_the_layers_under_autocast() -> None:
    """Layers may run in bfloat16, but scores rounded to it would be ties where there are none."""
    scorer, embedding = tiny_scorer(squash=False)
    with torch.autocast("cpu", torch.bfloat16):
        scores = scorer.float()(instances_of([4, 2, 6]), embedding.float())
    assert scores.dtype == torch.float32 and not torch.equal(scores, scores.bfloat16().float())


def test_a_candidate_stands_at_its_distance_and_none_at_nought() -> None:
    """Sines of the position first, then cosines; the first pair has the position itself as its angle."""
    distances = Scorer(ScorerConfig(), 8, 16, 2, scope=3).distances
    assert distances[:, 0].tolist() == pytest.approx([math.sin(1), math.sin(2), math.sin(3), 0.0])
    assert distances[:, 4].tolist() == pytest.approx([math.cos(1), math.cos(2), math.cos(3), 1.0])
    assert distances[3].tolist() == [0.0] * 4 + [1.0] * 4


# the whole network, written out for one sentence


def attended(weights: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    """Two heads over the positions of x [T, d], all of which see each other."""
    query, key, value = (
        (x @ weights[f"{name}.query_key_value.weight"].T).add(weights[f"{name}.query_key_value.bias"]).chunk(3, dim=1)
    )
    mixed = []
    for head in range(2):
        part = slice(8 * head, 8 * head + 8)
        mixed.append((query[:, part] @ key[:, part].T / math.sqrt(8)).softmax(1) @ value[:, part])
    return torch.cat(mixed, 1) @ weights[f"{name}.output.weight"].T + weights[f"{name}.output.bias"]


def layer(weights: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    """Post-norm, as in the paper's own sentence model."""

    def norm(part: str, y: Tensor) -> Tensor:
        y = (y - y.mean(1, keepdim=True)) / (y.var(1, correction=0, keepdim=True) + 1e-6).sqrt()
        return y * weights[f"{name}.{part}.norm.weight"] + weights[f"{name}.{part}.norm.bias"]

    def map(part: str, y: Tensor) -> Tensor:
        return y @ weights[f"{name}.feed_forward.{part}.weight"].T + weights[f"{name}.feed_forward.{part}.bias"]

    x = norm("self_residual", x + attended(weights, f"{name}.self_attention", x))
    return norm("feed_forward_residual", x + map("outer", map("inner", x).relu()))


@pytest.mark.parametrize(("pairs", "upper", "squash"), [(2, 1, True), (1, 2, False), (1, 0, True)])
@torch.no_grad()
def test_the_network_by_hand(pairs: int, upper: int, squash: bool) -> None:
    """Each pair read by itself, then the states at <DCS> with their distances together; nothing between W1 and W2."""
    scorer, embedding = tiny_scorer(pair_layers=pairs, set_layers=upper, squash=squash)
    for parameter in scorer.parameters():
        parameter.add_(0.2 * torch.randn_like(parameter))
    weights = dict(scorer.named_parameters())
    found = scorer(instances_of([4]), embedding)[0]
    words = [[19], [13, 14, 15], [12], [NON]]  # of the candidates of sentence 4, the nearest first
    states = []
    for distance, other in zip((1, 2, 3, 0), words):
        ids = torch.tensor([DCS, 20, 21, SEP, *other])
        x = embedding.weight[ids] * 4 + sinusoids(len(ids), 16).double()  # 4: the square root of the width
        for number in range(pairs):
            x = layer(weights, f"pair_layers.{number}", x)
        states.append(x[0] + sinusoids(4, 16).double()[distance])
    heads = torch.stack(states)
    for number in range(upper):
        heads = layer(weights, f"set_layers.{number}", heads)
    scores = (heads @ weights["hidden.weight"].T + weights["hidden.bias"]) @ weights["score.weight"].T
    expected = (scores + weights["score.bias"])[:, 0]
    expected = torch.sigmoid(expected) if squash else expected
    assert found.tolist() == pytest.approx(expected.tolist(), abs=1e-6)
    assert expected.std() > 1e-3
