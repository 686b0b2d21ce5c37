"""The two laws of selections against enumeration: what they say of every subset, and what they draw."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from dynctx.config import ReinforceConfig
from dynctx.selection import policy
from dynctx.selection.policy import Policy, drawings, subsets
from dynctx.selection.strategies import Judged

# scope 3 and NON; in the second row the candidate at distance 3 does not exist, in the third none does
ROWS = [[0.4, 0.25, 0.15, 0.2], [0.5, 0.2, 0.0, 0.3], [0.0, 0.0, 0.0, 1.0]]
SCOPE = 3
LAWS = ["sequential", "independent"]


def policy_of(rows: list[list[float]], sizes: list[int], with_non: bool = True, law: str = "sequential") -> Policy:
    table = torch.tensor(rows, dtype=torch.float64).log()
    return Policy(table, torch.tensor(sizes), with_non, law == "independent")


def enumerated(row: list[float], size: int, with_non: bool) -> list[float]:
    """The sequential law draw by draw, over all orders: the probability of each subset of the candidates."""
    found = [0.0] * 2**SCOPE
    drawable = [*row[:-1], row[-1] if with_non else 0.0]
    possible = [column for column, p in enumerate(drawable) if p > 0]
    total = sum(drawable)
    for order in itertools.permutations(possible, min(size, len(possible))):
        left, probability = total, 1.0
        for column in order:
            probability *= drawable[column] / left
            left -= drawable[column]
        found[sum(1 << column for column in order if column < SCOPE)] += probability
    return found


def test_subsets_are_numbered_by_their_bits() -> None:
    assert subsets(2) == [[False, False], [True, False], [False, True], [True, True]]
    assert drawings(2) == [([1, 2], [[0], [0]], [[0], [1]]), ([3], [[2, 1]], [[0, 1]])]


@pytest.mark.parametrize("with_non", [True, False])
@pytest.mark.parametrize("size", [0, 1, 2, 3])
def test_exact_is_the_sum_over_all_orders(size: int, with_non: bool) -> None:
    sizes = [min(size, sum(p > 0 for p in row[:-1]) + with_non) for row in ROWS]
    found = policy_of(ROWS, sizes, with_non).exact()
    for number, row in enumerate(ROWS):
        assert found[number].tolist() == pytest.approx(enumerated(row, sizes[number], with_non), abs=1e-12), number


def test_literal_probabilities_of_two_draws() -> None:
    """{1} is 1 then NON, or NON then 1: 0.4 * 0.2 / 0.6 + 0.2 * 0.4 / 0.8. {1, 2}: 0.4 * 0.25 / 0.6 + the other way."""
    found = policy_of(ROWS[:1], [2]).exact()[0]
    assert found[0b001].item() == pytest.approx(0.4 * 0.2 / 0.6 + 0.2 * 0.4 / 0.8)
    assert found[0b011].item() == pytest.approx(0.4 * 0.25 / 0.6 + 0.25 * 0.4 / 0.75)
    assert found[0b000].item() == found[0b111].item() == 0.0


def test_literal_probabilities_of_the_independent_law() -> None:
    """Candidate 1 is in with 0.4 / (0.4 + 0.2), 2 with 0.25 / 0.45, 3 with 0.15 / 0.35."""
    found = policy_of(ROWS[:1], [1], law="independent").exact()[0]
    one, two, three = 0.4 / 0.6, 0.25 / 0.45, 0.15 / 0.35
    assert found[0b001].item() == pytest.approx(one * (1 - two) * (1 - three))
    assert found[0b110].item() == pytest.approx((1 - one) * two * three)


def test_the_likeliest_of_the_independent_law_is_probability_first() -> None:
    """Of row 1: 1 and 2, which beat NON. Of row 2: 1 alone. Of row 3: nothing."""
    found = policy_of(ROWS, [1, 1, 1], law="independent").exact()
    assert found.argmax(dim=1).tolist() == [0b011, 0b001, 0b000]


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("sizes", [[1, 1, 1], [2, 2, 1], [4, 3, 1]])
def test_exact_sums_to_one_and_leaves_out_the_absent(law: str, sizes: list[int]) -> None:
    found = policy_of(ROWS, sizes, law=law).exact()
    assert found.sum(dim=1).tolist() == pytest.approx([1.0] * 3, abs=1e-12)
    with_third = torch.tensor([subset[2] for subset in subsets(SCOPE)])
    assert bool((found[1, with_third] == 0).all())
    assert found[2].tolist() == [1.0, *[0.0] * 7]


@pytest.mark.parametrize("law", LAWS)
def test_exact_is_not_rounded_under_autocast(law: str) -> None:
    """In bfloat16 a sum of probabilities is known to 0.4 % only."""
    rows = torch.rand(50, SCOPE + 1, generator=torch.Generator().manual_seed(0)) + 0.01
    policy = Policy(rows.log_softmax(1), torch.full((50,), 2), True, law == "independent")
    plain = policy.exact()
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(policy.exact(), plain)


def test_probabilities_next_to_nothing_still_sum_to_one() -> None:
    """What is left after the likely one was drawn is far below what 1 - p can hold in float32."""
    rare = [1.0, 2e-9, 1e-9, 1e-9]
    found = Policy(torch.tensor([rare]).log(), torch.tensor([2]), with_non=True).exact()[0]
    expected = [0.0, 0.25, 0.0, 0.5, 0.0, 0.25, 0.0, 0.0]  # 1 first, then in proportion 2 : 1 : 1
    assert found.tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("law", "sizes", "with_non"),
    [("sequential", [2, 2, 1], True), ("sequential", [2, 1, 0], False), ("independent", [1, 1, 1], True)],
)
def test_draws_are_as_frequent_as_exact_says(law: str, sizes: list[int], with_non: bool) -> None:
    count = 20_000
    torch.manual_seed(4)
    weights = 1 << torch.arange(SCOPE)
    for row, size in zip(ROWS, sizes):
        selection, log_probability = policy_of([row] * count, [size] * count, with_non, law).sample()
        exact = policy_of([row], [size], with_non, law).exact()[0]
        codes = (selection * weights).sum(1)
        shares = torch.bincount(codes, minlength=2**SCOPE) / count
        spread = (exact * (1 - exact) / count).sqrt()
        assert bool(((shares - exact).abs() <= 5 * spread + 1e-9).all()), (row, shares, exact)
        assert bool((log_probability <= 0).all())
        if law == "independent":  # there the log-probability is the selection's own
            assert torch.allclose(log_probability.exp(), exact[codes], atol=1e-12)


def test_log_probabilities_of_the_sequential_law_are_of_orders() -> None:
    """Two draws of three: each set comes in two orders, whose probabilities together are the set's."""
    torch.manual_seed(6)
    selection, log_probability = policy_of([ROWS[0]] * 400, [2] * 400).sample()
    exact = policy_of(ROWS[:1], [2]).exact()[0]
    seen: dict[int, set[float]] = {}
    for code, value in zip((selection * (1 << torch.arange(SCOPE))).sum(1).tolist(), log_probability.tolist()):
        seen.setdefault(code, set()).add(round(math.exp(value), 9))
    assert sorted(seen) == [0b001, 0b010, 0b011, 0b100, 0b101, 0b110]
    for code, values in seen.items():
        assert len(values) == 2 and sum(values) == pytest.approx(exact[code].item(), abs=1e-6)


def test_as_many_as_asked_for() -> None:
    torch.manual_seed(2)
    without, _ = policy_of(ROWS * 50, [2, 1, 0] * 50, with_non=False).sample()
    assert without.sum(1).tolist() == [2, 1, 0] * 50
    with_it, _ = policy_of(ROWS * 50, [2, 3, 1] * 50).sample()
    assert set(with_it[0::3].sum(1).tolist()) == {1, 2}  # NON may be one of the two
    assert with_it[1::3].tolist() == [[True, True, False]] * 50
    assert not with_it[2::3].any()


def scores_policy(law: str, with_non: bool, sizes: list[int]) -> tuple[Tensor, Policy]:
    """A policy over scores that require a gradient, made as the scorer makes it."""
    scores = torch.tensor([[0.3, -0.1, 0.2, 0.1]] * 3, dtype=torch.float64, requires_grad=True)
    absent = torch.tensor(ROWS) == 0
    table = scores.masked_fill(absent, -torch.inf).log_softmax(dim=1)
    return scores, Policy(table, torch.tensor(sizes), with_non, law == "independent")


@pytest.mark.parametrize(
    ("law", "with_non", "sizes"),
    [("sequential", True, [2, 2, 1]), ("sequential", False, [2, 1, 0]), ("independent", True, [1, 1, 1])],
)
def test_gradients_are_finite_where_candidates_are_absent(law: str, with_non: bool, sizes: list[int]) -> None:
    torch.manual_seed(3)
    values = torch.linspace(0, 1, 2**SCOPE, dtype=torch.float64)
    for what in ("sample", "exact", "entropy"):
        scores, policy = scores_policy(law, with_non, sizes)
        if what == "sample":
            policy.sample()[1].sum().backward()
        elif what == "exact":
            (policy.exact() * values).sum().backward()
        else:
            policy.entropy().sum().backward()
        assert scores.grad is not None
        assert bool(scores.grad.isfinite().all()), what
        assert bool((scores.grad[1, 2] == 0) & (scores.grad[2, :3] == 0).all()), what
        assert bool(scores.grad[0].any()), what


def test_entropy() -> None:
    found = policy_of([[0.5, 0.25, 0.0, 0.25], [0.0, 0.0, 0.0, 1.0]], [1, 1]).entropy()
    assert found.tolist() == pytest.approx([1.5 * math.log(2), 0.0])


def test_entropy_of_the_independent_law() -> None:
    """Candidates are in with 2/3 and 1/2, the third does not exist; it is the entropy of the four selections."""
    policy = policy_of([[0.5, 0.25, 0.0, 0.25], [0.0, 0.0, 0.0, 1.0]], [1, 1], law="independent")
    assert policy.entropy().tolist() == pytest.approx([math.log(3) - 2 / 3 * math.log(2) + math.log(2), 0.0])
    probability = policy.exact()[0]
    probability = probability[probability > 0]
    assert policy.entropy()[0].item() == pytest.approx(-(probability * probability.log()).sum().item())


@pytest.mark.parametrize(
    ("scores", "draws", "with_non"), [([0.0, 1.0, 0.5, 60.0], 1, False), ([60.0, 1.0, 0.5, 0.0], 2, True)]
)
def test_what_is_far_from_likely_still_sums_to_one(scores: list[float], draws: int, with_non: bool) -> None:
    policy = Policy(torch.tensor([scores]).log_softmax(1), torch.tensor([draws]), with_non)
    torch.testing.assert_close(policy.exact().sum(1), torch.ones(1))


@pytest.mark.parametrize(
    ("size", "sampling", "sizes", "with_non"),
    [
        (None, "include_non", [1, 1, 2], True),  # as many as Z*, but one draw at least: NON can be drawn away
        (None, "match_size", [0, 1, 2], False),
        (2, "include_non", [0, 1, 2], False),  # size-first never draws NON
        (2, "match_size", [0, 1, 2], False),
    ],
)
def test_what_is_drawn_beside_the_strategys_own(
    size: int | None, sampling: str, sizes: list[int], with_non: bool
) -> None:
    own = ReinforceConfig(sampling=sampling)  # type: ignore[arg-type]
    star = torch.tensor([[False] * 3, [True, False, False], [True, True, False]])
    strategy = Judged(lambda batch: batch.present, size)
    made = policy.policy_of(own, strategy, torch.tensor([ROWS[0]] * 3).log(), star)
    assert (made.sizes.tolist(), made.with_non, made.independent) == (sizes, with_non, False)
    own = ReinforceConfig(sampling=sampling, law="independent")  # type: ignore[arg-type]
    assert policy.policy_of(own, strategy, torch.tensor([ROWS[0]] * 3).log(), star).independent
