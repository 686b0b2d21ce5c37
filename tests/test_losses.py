"""Cross-entropy: hand-made values, and the chunked one against naive autograd."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dynctx import losses
from dynctx.losses import smoothed_cross_entropy, token_losses

N, D, V = 11, 4, 9


def example(dtype: torch.dtype = torch.float64, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """States, output matrix, ids and weights; two positions weigh nothing, one weighs double."""
    generator = torch.Generator().manual_seed(seed)
    states = torch.randn(N, D, dtype=dtype, generator=generator).requires_grad_()
    output = torch.randn(V, D, dtype=dtype, generator=generator).requires_grad_()
    ids = torch.randint(V, (N,), generator=generator)
    weight = torch.ones(N)
    weight[[2, 7]], weight[4] = 0.0, 2.0
    return states, output, ids, weight


def naive(states: Tensor, output: Tensor, ids: Tensor, weight: Tensor, smoothing: float) -> Tensor:
    """The definition: minus the target distribution times the log-probabilities."""
    target = torch.full((len(ids), len(output)), smoothing / (len(output) - 1), dtype=states.dtype)
    target[torch.arange(len(ids)), ids] = 1 - smoothing
    return (-(target * (states @ output.t()).log_softmax(-1)).sum(-1) * weight).sum()


def gradients(loss: Tensor, *tensors: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, tensors))


# one token


# probabilities 1/8, 2/8, 5/8
LOGITS = torch.tensor([[math.log(1), math.log(2), math.log(5)]])


def test_plain_loss_by_hand() -> None:
    assert token_losses(LOGITS, torch.tensor([2])).item() == pytest.approx(math.log(8 / 5), abs=1e-6)


def test_smoothed_loss_by_hand() -> None:
    # the true class has 0.9, each of the two others 0.1 / 2 = 0.05
    expected = 0.9 * math.log(8 / 5) + 0.05 * math.log(8 / 1) + 0.05 * math.log(8 / 2)
    assert token_losses(LOGITS, torch.tensor([2]), 0.1).item() == pytest.approx(expected, abs=1e-6)
    assert expected == pytest.approx(0.5963, abs=1e-4)


def test_losses_keep_the_shape_and_do_not_see_a_shift_of_the_logits() -> None:
    logits, ids = torch.randn(2, 3, V), torch.randint(V, (2, 3))
    found = token_losses(logits, ids, 0.1)
    assert found.shape == (2, 3)
    assert torch.allclose(found, token_losses(logits + 50, ids, 0.1), atol=1e-3)


def test_half_precision_logits_are_summed_in_float32() -> None:
    logits = torch.randn(5, 1000).bfloat16()
    found = token_losses(logits, torch.arange(5), 0.1)
    assert found.dtype == torch.float32
    expected = token_losses(logits.double(), torch.arange(5), 0.1)
    assert expected.dtype == torch.float64
    assert torch.allclose(found.double(), expected, atol=1e-4)


# a whole batch


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), smoothing=st.sampled_from([0.0, 0.1, 0.5]))
def test_value_and_gradients_equal_naive_autograd(seed: int, smoothing: float) -> None:
    states, output, ids, weight = example(seed=seed)
    loss, expected = (f(states, output, ids, weight, smoothing) for f in (smoothed_cross_entropy, naive))
    assert loss.dtype == torch.float64
    assert torch.allclose(loss, expected, atol=1e-10, rtol=0)
    for found, wanted in zip(gradients(loss, states, output), gradients(expected, states, output)):
        assert torch.allclose(found, wanted, atol=1e-10, rtol=0)


@pytest.mark.parametrize("rows", [1, 3, 10, 11, 100])
def test_chunks_cannot_matter(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    states, output, ids, weight = example()
    sizes: list[int] = []

    def watched(logits: Tensor, *rest: Tensor | float) -> tuple[Tensor, Tensor]:
        sizes.append(len(logits))
        return losses.chunk_loss_and_gradient(logits, *rest)  # type: ignore[arg-type]

    monkeypatch.setitem(losses.CHUNK_BYTES, "cpu", 4 * V * rows)  # bytes of `rows` rows of float32 logits
    loss = smoothed_cross_entropy(states, output, ids, weight, 0.1, watched)
    assert sizes == [rows] * (N // rows) + [N % rows] * (N % rows > 0)
    expected = naive(states, output, ids, weight, 0.1)
    assert torch.allclose(loss, expected, atol=1e-10, rtol=0)
    for found, wanted in zip(gradients(loss, states, output), gradients(expected, states, output)):
        assert torch.allclose(found, wanted, atol=1e-10, rtol=0)


def test_a_chunk_never_has_less_than_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(losses.CHUNK_BYTES, "cpu", 1)
    states, output, ids, weight = example()
    loss = smoothed_cross_entropy(states, output, ids, weight, 0.1)
    assert torch.allclose(loss, naive(states, output, ids, weight, 0.1), atol=1e-10, rtol=0)


def test_rows_of_a_batch_are_summed() -> None:
    states, output, ids, weight = example()
    flat = smoothed_cross_entropy(states[:10], output, ids[:10], weight[:10], 0.1)
    rows = smoothed_cross_entropy(states[:10].view(2, 5, D), output, ids[:10].view(2, 5), weight[:10].view(2, 5), 0.1)
    assert torch.equal(flat, rows)


def test_a_position_without_weight_is_not_there() -> None:
    states, output, ids, weight = example()
    kept = weight > 0
    loss = smoothed_cross_entropy(states, output, ids, weight, 0.1)
    alone = smoothed_cross_entropy(states[kept], output, ids[kept], weight[kept], 0.1)
    assert torch.allclose(loss, alone, atol=1e-12, rtol=0)
    of_states, of_output = gradients(loss, states, output)
    assert not of_states[~kept].any()
    assert of_states[kept].all()
    assert torch.allclose(of_output, gradients(alone, output)[0], atol=1e-12, rtol=0)


def test_a_mask_serves_as_weight() -> None:
    states, output, ids, weight = example()
    mask = weight > 0
    assert torch.equal(
        smoothed_cross_entropy(states, output, ids, mask, 0.1),
        smoothed_cross_entropy(states, output, ids, mask.float(), 0.1),
    )


def test_gradients_follow_what_is_made_of_the_loss() -> None:
    states, output, ids, weight = example()
    loss = smoothed_cross_entropy(states, output, ids, weight, 0.1)
    once = gradients(loss, states, output)
    loss = smoothed_cross_entropy(states, output, ids, weight, 0.1)
    scaled = gradients(loss * -3.0 + 1.0, states, output)
    for found, wanted in zip(scaled, once):
        assert torch.allclose(found, -3.0 * wanted, atol=1e-12, rtol=0)


def test_no_positions_no_loss() -> None:
    states, output, ids, weight = example()
    assert smoothed_cross_entropy(states[:0], output, ids[:0], weight[:0], 0.1).item() == 0.0


def test_float32_is_close() -> None:
    states, output, ids, weight = example(torch.float32)
    loss = smoothed_cross_entropy(states, output, ids, weight, 0.1)
    assert loss.dtype == torch.float32
    expected = naive(states, output, ids, weight, 0.1)
    assert torch.allclose(loss, expected, rtol=1e-5)
    for found, wanted in zip(gradients(loss, states, output), gradients(expected, states, output)):
        assert torch.allclose(found, wanted, atol=1e-5)


def test_autocast_multiplies_in_bfloat16_and_sums_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(losses.CHUNK_BYTES, "cpu", 4 * V * 4)
    states, output, ids, weight = example(torch.float32)
    seen: list[torch.dtype] = []

    def watched(logits: Tensor, *rest: Tensor | float) -> tuple[Tensor, Tensor]:
        # rounded to the 8 bits of bfloat16, and nothing after them
        seen.append(logits.dtype)
        found, expected = (losses.chunk_loss_and_gradient(x, *rest) for x in (logits, logits.float()))  # type: ignore[arg-type]
        assert found[0].dtype == torch.float32 and torch.equal(found[0], expected[0])
        assert torch.equal(found[1], expected[1].bfloat16())  # rounded once, at the end
        return found

    with torch.autocast("cpu", torch.bfloat16):
        loss = smoothed_cross_entropy(states, output, ids, weight, 0.1, watched)
    assert seen == [torch.bfloat16] * 3
    assert loss.dtype == torch.float32
    expected = naive(states, output, ids, weight, 0.1)
    assert loss.item() == pytest.approx(expected.item(), rel=0.02)
    for found, wanted in zip(gradients(loss, states, output), gradients(expected, states, output)):
        assert found.dtype == torch.float32
        assert torch.allclose(found, wanted, atol=0.05)
        assert not torch.equal(found, wanted)
