"""The linear map: the CPU kernel against torch's own, weights that change, 8 bits."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dynctx import linear
from dynctx.config import ModelConfig
from dynctx.linear import Int8Linear, Linear, round_together, to_int8
from dynctx.translators.sentence import SentNmt

needs_onednn = pytest.mark.skipif(not linear.ONEDNN, reason="this build of torch has no oneDNN")


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The weights that oneDNN was called with."""
    called: list[Tensor] = []
    multiply = linear._multiply

    def watched(x: Tensor, weight: Tensor, *rest: Any) -> Tensor:
        called.append(weight)
        return multiply(x, weight, *rest)

    monkeypatch.setattr(linear, "_multiply", watched)
    return called


def made(inputs: int = 6, outputs: int = 5, bias: bool = True) -> Linear:
    torch.manual_seed(0)
    module = Linear(inputs, outputs, bias)
    if bias:
        nn.init.normal_(module.bias)
    return module


@torch.no_grad()
def is_fresh(module: Linear) -> bool:
    """The map without gradients, where weights are laid out beforehand, uses the weights as they are now."""
    x = torch.randn(3, module.in_features)
    return torch.allclose(module(x), F.linear(x, module.weight, module.bias), atol=1e-5)


# forward and backward


@needs_onednn
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(6,), (7, 6), (2, 3, 6), (2, 3, 4, 6), (0, 6), (1, 1, 6)])
def test_the_kernel_equals_torch_forward_and_backward(shape: tuple[int, ...], bias: bool, kernel: list[Tensor]) -> None:
    module = made(bias=bias)
    x = torch.randn(shape, requires_grad=True)
    upstream = torch.randn(*shape[:-1], 5)
    inputs = [x, *module.parameters()]
    found, expected = module(x), F.linear(x, module.weight, module.bias)
    assert torch.allclose(found, expected, atol=1e-5)
    wanted = torch.autograd.grad(expected, inputs, upstream)
    for gradient, other in zip(torch.autograd.grad(found, inputs, upstream), wanted):
        assert gradient.shape == other.shape
        assert torch.allclose(gradient, other, atol=1e-5)
    assert len(kernel) == 2  # once forward, once for the gradient of x


@needs_onednn
def test_gradients_of_inputs_that_are_not_contiguous() -> None:
    module, x = made(), torch.randn(6, 3, 4).permute(2, 1, 0).requires_grad_()
    upstream = torch.randn(5, 3, 4).permute(2, 1, 0)
    inputs = [x, module.weight, module.bias]
    found = torch.autograd.grad(module(x), inputs, upstream)
    wanted = torch.autograd.grad(F.linear(x, module.weight, module.bias), inputs, upstream)
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(found, wanted))


@pytest.mark.parametrize("trained", ["weight", "bias", "x"])
def test_what_is_frozen_gets_no_gradient_and_the_rest_its_own(trained: str) -> None:
    module, x = made(), torch.randn(4, 6)
    tensors = {"weight": module.weight, "bias": module.bias, "x": x}
    for name, tensor in tensors.items():
        tensor.requires_grad_(name == trained)
    module(x).square().sum().backward()
    found = {name: tensor.grad for name, tensor in tensors.items()}
    tensors[trained].grad = None
    F.linear(x, module.weight, module.bias).square().sum().backward()
    assert [name for name, gradient in found.items() if gradient is not None] == [trained]
    assert torch.allclose(found[trained], tensors[trained].grad, atol=1e-4)  # type: ignore[arg-type]


# weights laid out beforehand


@needs_onednn
def test_without_gradients_the_laid_out_weight_is_used_and_made_once(kernel: list[Tensor]) -> None:
    module = made()
    for _ in range(3):
        assert is_fresh(module)
    assert len(kernel) == 3
    assert all(weight.is_mkldnn for weight in kernel)
    assert kernel[0] is kernel[1] is kernel[2]


def test_changes_in_place_are_seen() -> None:
    module = made()
    assert is_fresh(module)
    with torch.no_grad():
        module.weight.mul_(2.0)
    assert is_fresh(module)
    with torch.no_grad():
        module.weight[1, 2] = 7.0
    assert is_fresh(module)


@pytest.mark.parametrize("fused", [True, False])  # a fused step leaves the version counter of a weight alone
def test_steps_of_an_optimizer_are_seen(fused: bool) -> None:
    module = made()
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.5, fused=fused)
    for _ in range(3):
        assert is_fresh(module)
        before = module.weight.detach().clone()
        module(torch.randn(4, 6)).square().sum().backward()
        assert is_fresh(module)  # between gradient and step
        optimizer.step()
        assert (module.weight - before).abs().max() > 0.1
        assert is_fresh(module)


def test_loaded_and_replaced_weights_are_seen() -> None:
    module, other = made(), Linear(6, 5)
    assert is_fresh(module)
    module.load_state_dict(other.state_dict())
    assert torch.equal(module.weight, other.weight)
    assert is_fresh(module)
    for weight in (torch.randn(5, 6), torch.randn(5, 6)):  # both as new as each other
        module.weight = nn.Parameter(weight)
        assert is_fresh(module)
    assert is_fresh(module.double().float())


def test_a_module_in_use_can_be_copied_and_its_copy_is_its_own() -> None:
    module = made()
    assert is_fresh(module)
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        with torch.no_grad():
            twin.weight.neg_()
        assert is_fresh(twin)
        assert torch.equal(twin.weight, -module.weight)
    assert is_fresh(module)


def test_the_layout_is_no_part_of_the_weights() -> None:
    module = made()
    assert is_fresh(module)
    assert set(module.state_dict()) == {"weight", "bias"}


def test_a_module_made_in_inference_mode_works() -> None:
    with torch.inference_mode():
        module = made()
        x = torch.randn(2, 6)
        assert torch.allclose(module(x), F.linear(x, module.weight, module.bias), atol=1e-6)


# the plain path


def test_float64_takes_the_plain_path(kernel: list[Tensor]) -> None:
    module, x = made().double(), torch.randn(3, 6, dtype=torch.float64)
    with torch.no_grad():
        assert torch.equal(module(x), F.linear(x, module.weight, module.bias))
    assert module(x).dtype == torch.float64
    assert not kernel


def test_autocast_takes_the_plain_path(kernel: list[Tensor]) -> None:
    module, x = made(), torch.randn(3, 6)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert module(x).dtype == torch.bfloat16
    assert not kernel


@pytest.fixture
def roundings(monkeypatch: pytest.MonkeyPatch) -> list[torch.dtype]:
    """The precision of each weight that was rounded and kept."""
    found: list[torch.dtype] = []
    rounded = Linear.rounded

    def watched(self: Linear, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
        before = self._rounded
        result = rounded(self, dtype)
        if self._rounded is not before:
            found.append(dtype)
        return result

    monkeypatch.setattr(Linear, "rounded", watched)
    return found


def test_under_autocast_a_weight_in_use_is_rounded_once(roundings: list[torch.dtype]) -> None:
    module, x = made(), torch.randn(3, 6)
    low = [t.detach().bfloat16() for t in (x, module.weight, module.bias)]
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        found = [module(x) for _ in range(3)]
    assert roundings == [torch.bfloat16]
    assert all(torch.equal(y, F.linear(*low)) for y in found)


def test_under_autocast_changed_weights_are_rounded_again(roundings: list[torch.dtype]) -> None:
    module, x = made(), torch.randn(3, 6)
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0)

    def is_right() -> bool:
        low = [t.detach().bfloat16() for t in (x, module.weight, module.bias)]
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            return torch.equal(module(x), F.linear(*low))

    assert is_right()
    module.weight.grad, module.bias.grad = torch.ones_like(module.weight), torch.ones_like(module.bias)
    optimizer.step()
    assert is_right()
    with torch.no_grad():
        module.weight.mul_(2)
    assert is_right()
    assert len(roundings) == 3


def test_what_is_frozen_is_not_rounded_again_while_other_weights_learn(roundings: list[torch.dtype]) -> None:
    module, other = made(), nn.Linear(2, 2)
    module.requires_grad_(False)
    optimizer = torch.optim.SGD(other.parameters(), lr=1.0)
    for _ in range(3):
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            module(torch.randn(3, 6))
        other(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    assert len(roundings) == 1
    module.requires_grad_(True)  # now it may be changed by any step
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        module(torch.randn(3, 6))
    assert len(roundings) == 2


def test_weights_rounded_together_are_those_rounded_one_by_one(roundings: list[torch.dtype]) -> None:
    modules = nn.ModuleList([made(), nn.Sequential(made(3, 4, bias=False), nn.ReLU(), made(4, 1))])
    linear.round_together(modules, torch.bfloat16)
    for module in (x for x in modules.modules() if isinstance(x, Linear)):
        weight, bias = module.rounded(torch.bfloat16)
        assert torch.equal(weight, module.weight.bfloat16())
        assert (bias is None) == (module.bias is None)
        assert bias is None or torch.equal(bias, module.bias.bfloat16())
    assert roundings == []  # all were there already
    kept = [x._rounded for x in modules.modules() if isinstance(x, Linear)]
    linear.round_together(modules, torch.bfloat16)  # nothing has changed
    assert all(x is y for x, y in zip(kept, (m._rounded for m in modules.modules() if isinstance(m, Linear))))


def test_autocast_in_another_precision_rounds_again() -> None:
    module, x = made(), torch.randn(3, 6)
    for dtype in (torch.bfloat16, torch.float16, torch.bfloat16):
        with torch.no_grad(), torch.autocast("cpu", dtype):
            found = module(x)
        assert torch.equal(found, F.linear(*[t.detach().to(dtype) for t in (x, module.weight, module.bias)]))


def test_under_autocast_what_learns_gets_its_gradient_and_what_is_frozen_passes_it_on() -> None:
    module, x = made(), torch.randn(3, 6, requires_grad=True)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        module(x)  # what was rounded here must not be in the way of training
    with torch.autocast("cpu", torch.bfloat16):
        module(x).float().sum().backward()
    assert module.weight.grad is not None and x.grad is not None
    expected = x.grad.clone()
    x.grad = module.weight.grad = None
    module.requires_grad_(False)
    with torch.autocast("cpu", torch.bfloat16):
        module(x).float().sum().backward()
    assert torch.equal(x.grad, expected) and module.weight.grad is None


# 8 bits


def small_model(tie: str = "all") -> SentNmt:
    torch.manual_seed(0)
    sizes = {"width": 32, "feed_forward": 64, "heads": 4, "encoder_layers": 1, "decoder_layers": 2}
    return SentNmt(ModelConfig(kind="sentence", tie_embeddings=tie, **sizes), 40, 40).eval()  # type: ignore[arg-type]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", ["float32", "float64", "autocast"])
def test_negated_sum(kind: str, bias: bool) -> None:
    """-(base + x W^T + b) with its gradients, whichever way it is computed."""
    module = made(bias=bias).to(torch.float64 if kind == "float64" else torch.float32)
    dtype = {"float32": torch.float32, "float64": torch.float64, "autocast": torch.bfloat16}[kind]
    base, x = torch.randn(2, 3, 5, dtype=dtype), torch.randn(2, 3, 6, dtype=dtype, requires_grad=True)
    tolerance = 0.05 if kind == "autocast" else 1e-6
    with torch.autocast("cpu", torch.bfloat16, enabled=kind == "autocast"):
        found = module.negated_sum(base, x)
        with torch.no_grad():
            again = module.negated_sum(base, x)
    expected = -(base.double() + F.linear(x.double(), module.weight.double(), module.bias.double() if bias else None))
    assert torch.allclose(found.double(), expected, atol=tolerance) and torch.allclose(again.double(), found.double())
    wanted = torch.autograd.grad(expected.sum(), [x, module.weight], retain_graph=True)
    for got, want in zip(torch.autograd.grad(found.sum(), [x, module.weight]), wanted):
        assert torch.allclose(got.double(), want.double(), atol=10 * tolerance)


def test_8_bits_replace_every_linear_map() -> None:
    model = small_model()
    # encoder layer: self-attention 2, feed-forward 2; decoder layer: 3 more of the cross attention; the output
    assert sum(isinstance(m, Linear) for m in model.modules()) == 4 + 2 * 7 + 1
    to_int8(model)
    assert not any(isinstance(m, nn.Linear) for m in model.modules())
    assert sum(isinstance(m, Int8Linear) for m in model.modules()) == 4 + 2 * 7 + 1


def test_8_bits_come_close() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(Linear(32, 64), nn.ReLU(), Linear(64, 16, bias=False))
    x = torch.randn(10, 32)
    with torch.no_grad():
        expected = module(x)
        to_int8(module)
        found = module(x)
    error = (found - expected).norm() / expected.norm()
    assert 0 < error < 0.03  # 8 bits: steps of 1/127 of the largest value, errors of a hundredth


def test_8_bits_are_used_to_the_full() -> None:
    # the largest weight is the largest number there is, or half of the precision is given away
    module = made(2, 2)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[0.5, -2.0], [1.0, 0.0]]))
    weight, _ = torch.ops.quantized.linear_unpack(Int8Linear(module).packed)
    assert weight.int_repr().tolist() == [[32, -127], [64, 0]]


def test_8_bits_rectify_what_they_map() -> None:
    module, x = made(32, 64), torch.randn(10, 32)
    small = Int8Linear(module)
    with torch.no_grad():
        assert torch.equal(module.rectified(x), F.relu(module(x)))
        assert torch.equal(small.rectified(x), F.relu(small(x)))
    assert (small(x) < 0).any()


@pytest.mark.parametrize("bias", [True, False])
def test_rectified_under_autocast_is_the_map_then_relu(bias: bool) -> None:
    """In one product where nothing is learned; with a gradient wanted of weights or of x, as before."""
    module, x = made(32, 64, bias=bias), torch.randn(3, 10, 32)
    with torch.autocast("cpu", torch.bfloat16):
        with torch.no_grad():
            expected = F.relu(module(x))
            assert torch.equal(module.rectified(x), expected) and (expected == 0).any()
        learned = module.rectified(x)
        assert learned.requires_grad and torch.equal(learned, expected)
        frozen = module.requires_grad_(False).rectified(x.requires_grad_())
        assert frozen.requires_grad and torch.equal(frozen, expected)


@pytest.mark.parametrize("together", [True, False])
def test_weights_rounded_in_use_serve_training_later(together: bool) -> None:
    """What is made in inference mode could not be kept for a gradient."""
    module, x = made().requires_grad_(False), torch.randn(2, 6)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        if together:
            round_together(module, torch.bfloat16)
        else:
            module(x)
    rounded = module._rounded
    with torch.autocast("cpu", torch.bfloat16):
        module(x.requires_grad_()).float().sum().backward()
    assert rounded is not None and module._rounded is rounded
    assert x.grad is not None and torch.allclose(x.grad, module.weight.sum(0).expand(2, 6), atol=0.02)


def test_8_bits_of_weights_that_are_all_zero() -> None:
    module = made(4, 3)
    nn.init.zeros_(module.weight)
    assert torch.allclose(Int8Linear(module)(torch.randn(2, 4)), module.bias.detach().expand(2, 3), atol=1e-6)


def test_8_bits_leave_the_tied_embedding_alone() -> None:
    model = small_model()
    before = model.target_embedding.weight.detach().clone()
    ids = torch.tensor([[9, 8, 7]])
    embedded = model.source_embedding(ids, torch.arange(3)[None], 3)
    logits = model.output(embedded).detach()
    to_int8(model)
    assert torch.equal(model.target_embedding.weight, before)
    assert torch.equal(model.source_embedding(ids, torch.arange(3)[None], 3), embedded)
    assert (model.output(embedded) - logits).norm() < 0.03 * logits.norm()
