"""Attention, feed-forward, positions, caches: against hand-made values and plain loops."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from dynctx.layers import (
    Attention,
    DecoderLayer,
    Embedding,
    EncoderLayer,
    FeedForward,
    Growing,
    LayerSizes,
    additive,
    attention,
    causal,
    same_sentence,
    sinusoids,
)

BASE = LayerSizes(width=512, inner=2048, heads=8, norm="post", dropout=0.1)


def tiny(norm: str = "post", dropout: float = 0.0) -> LayerSizes:
    return LayerSizes(width=8, inner=16, heads=2, norm=norm, dropout=dropout)


def parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def unsettle(module: nn.Module) -> nn.Module:
    """Biases start at 0 and gains at 1, where forgetting one would not show: make all of them random, in float64."""
    for parameter in module.double().parameters():
        nn.init.normal_(parameter, std=0.5)
    return module


# positions and masks


def test_sinusoids_of_width_6_by_hand() -> None:
    # half = 3 channels with timescales 1e4 ** (0/2, 1/2, 2/2) = 1, 100, 10000; sines first, then cosines
    expected = [
        [0.0, 0.0, 0.0, 1.0, 1.0, 1.0],
        [math.sin(1), math.sin(0.01), math.sin(0.0001), math.cos(1), math.cos(0.01), math.cos(0.0001)],
        [math.sin(2), math.sin(0.02), math.sin(0.0002), math.cos(2), math.cos(0.02), math.cos(0.0002)],
    ]
    assert torch.allclose(sinusoids(3, 6), torch.tensor(expected), atol=1e-6, rtol=1e-5)
    assert sinusoids(3, 6)[1, 1].item() == pytest.approx(0.00999983, abs=1e-8)


def test_a_token_sees_its_own_sentence_and_padding_sees_everything() -> None:
    queries, keys = torch.tensor([[0, 1, -1]]), torch.tensor([[0, 0, 1, -1]])
    expected = [
        [True, True, False, False],
        [False, False, True, False],
        [True, True, True, True],
    ]
    mask = same_sentence(queries, keys)
    assert mask.shape == (1, 1, 3, 4)
    assert mask[0, 0].tolist() == expected


def test_sentence_masks_are_made_row_by_row() -> None:
    numbers = torch.tensor([[0, 0], [1, 2]])
    assert same_sentence(numbers, numbers).tolist() == [
        [[[True, True], [True, True]]],
        [[[True, False], [False, True]]],
    ]


def test_causal_removes_what_lies_after() -> None:
    numbers = torch.tensor([[0, 0, 1]])
    mask = causal(same_sentence(numbers, numbers))
    assert mask[0, 0].tolist() == [[True, False, False], [True, True, False], [False, False, True]]


def test_a_mask_that_is_added() -> None:
    mask = torch.tensor([[True, False, True]])
    found = additive(mask, torch.zeros(1, dtype=torch.float64))
    assert found.dtype == torch.float64 and found.tolist() == [[0.0, -math.inf, 0.0]]
    with torch.autocast("cpu", torch.bfloat16):  # products are computed in autocast's type, so the mask has it
        assert additive(mask, torch.zeros(1)).dtype == torch.bfloat16
    assert additive(mask, torch.zeros(1)).dtype == torch.float32


def test_embedding_is_scaled_by_the_root_of_the_width_and_gets_its_position() -> None:
    embedding = Embedding(5, 16, dropout=0.0)
    ids, position = torch.tensor([[3, 4]]), torch.tensor([[0, 2]])
    expected = 4.0 * embedding.weight[[3, 4]] + sinusoids(3, 16)[[0, 2]]  # sqrt(16) = 4
    assert torch.allclose(embedding(ids, position, 3)[0], expected, atol=1e-6)


def test_embeddings_start_with_a_deviation_that_the_scale_undoes() -> None:
    torch.manual_seed(0)
    weight = Embedding(4000, 64, dropout=0.0).weight
    assert weight.std().item() * 64**0.5 == pytest.approx(1.0, abs=0.01)  # 256,000 draws: 7 standard errors


def test_positions_have_no_last_one() -> None:
    embedding = Embedding(5, 8, dropout=0.0)
    with torch.no_grad():
        embedding.weight.zero_()
    assert len(embedding.positions) == 256
    for last in (255, 256, 1000):
        found = embedding(torch.tensor([[1]]), torch.tensor([[last]]), last + 1)
        assert torch.allclose(found[0, 0], sinusoids(last + 1, 8)[last], atol=1e-6)
    assert "positions" not in embedding.state_dict()  # not a weight: it is never stored


def test_a_table_lengthened_while_decoding_serves_training() -> None:
    embedding = Embedding(5, 8, dropout=0.0)
    ids, position = torch.tensor([[1]]), torch.tensor([[300]])
    with torch.inference_mode():
        embedding(ids, position, 301)
    embedding(ids, position, 301).sum().backward()
    assert embedding.weight.grad is not None
    assert embedding.weight.grad[1].tolist() == pytest.approx([8**0.5] * 8)


# attention


def plain_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, heads: int) -> list[list[list[float]]]:
    """Softmax attention by loops over numbers. query [R, Q, d], key and value [R, K, d], mask [R, Q, K]."""
    size = query.shape[2] // heads
    rows = []
    for r in range(len(query)):
        rows.append([[0.0] * query.shape[2] for _ in range(query.shape[1])])
        for q in range(query.shape[1]):
            seen = [k for k in range(key.shape[1]) if mask[r, q, k]]
            for h in range(heads):
                channels = range(h * size, (h + 1) * size)
                scores = [sum(float(query[r, q, c] * key[r, k, c]) for c in channels) / size**0.5 for k in seen]
                total = sum(math.exp(score) for score in scores)
                for c in channels:
                    mixed = sum(math.exp(score) * float(value[r, k, c]) for score, k in zip(scores, seen))
                    rows[r][q][c] = mixed / total
    return rows


@pytest.mark.parametrize("queries", [1, 2, 5, 70])  # one, a few and many: each has its own kernel on a CPU
@torch.no_grad()
def test_attention_equals_plain_loops_for_any_number_of_queries(queries: int) -> None:
    torch.manual_seed(1)
    rows, keys, heads, size = 2, 4, 2, 3
    query, key, value = (torch.randn(rows, n, heads * size, dtype=torch.float64) for n in (queries, keys, keys))
    mask = torch.rand(rows, queries, keys) < 0.6
    mask[:, :, 1] = True  # nobody sees nothing
    expected = torch.tensor(plain_attention(query, key, value, mask, heads), dtype=torch.float64)

    def split(x: Tensor) -> Tensor:
        return x.view(rows, -1, heads, size).transpose(1, 2)

    found = attention(split(query), split(key), split(value), mask[:, None])
    added = attention(split(query), split(key), split(value), additive(mask[:, None], query))
    assert torch.equal(found, added)
    assert torch.allclose(found.transpose(1, 2).flatten(2), expected, atol=1e-12)
    everything = torch.ones_like(mask)
    expected = torch.tensor(plain_attention(query, key, value, everything, heads), dtype=torch.float64)
    found = attention(split(query), split(key), split(value), None)
    assert torch.allclose(found.transpose(1, 2).flatten(2), expected, atol=1e-12)


def affine(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.einsum("rqi,oi->rqo", x, weight) + bias


@torch.no_grad()
def test_self_attention_equals_plain_loops() -> None:
    torch.manual_seed(0)
    attention = Attention(8, heads=2)
    unsettle(attention)
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    sentence = torch.tensor([[0, 0, 0, 1, 1], [2, 2, 3, 3, 3]])
    mask = causal(same_sentence(sentence, sentence))
    weights, biases = attention.query_key_value.weight, attention.query_key_value.bias
    query, key, value = (affine(x, weights[i : i + 8], biases[i : i + 8]) for i in (0, 8, 16))
    mixed = torch.tensor(plain_attention(query, key, value, mask[:, 0], heads=2), dtype=torch.float64)
    expected = affine(mixed, attention.output.weight, attention.output.bias)
    assert torch.allclose(attention(x, mask), expected, atol=1e-12)


@torch.no_grad()
def test_cross_attention_to_another_width_equals_plain_loops() -> None:
    torch.manual_seed(1)
    attention = Attention(8, heads=4, keys_from=6)
    unsettle(attention)
    x, states = torch.randn(2, 3, 8, dtype=torch.float64), torch.randn(2, 5, 6, dtype=torch.float64)
    mask = torch.rand(2, 1, 3, 5) < 0.6
    mask[..., 0] = True
    query = affine(x, attention.query.weight, attention.query.bias)
    weights, biases = attention.key_value.weight, attention.key_value.bias
    key, value = (affine(states, weights[i : i + 8], biases[i : i + 8]) for i in (0, 8))
    mixed = torch.tensor(plain_attention(query, key, value, mask[:, 0], heads=4), dtype=torch.float64)
    expected = affine(mixed, attention.output.weight, attention.output.bias)
    assert torch.allclose(attention(x, mask, attention.project(states)), expected, atol=1e-12)


def test_attention_dropout_works_in_training_only() -> None:
    torch.manual_seed(0)
    attention = Attention(8, heads=2, dropout=0.5)
    x = torch.randn(1, 6, 8)
    assert not torch.equal(attention(x, None), attention(x, None))
    mask, slot = torch.ones(1, 1, 2, 6, dtype=torch.bool), torch.arange(2)
    assert not torch.equal(attention.of(x[0, :2], slot, x, mask), attention.of(x[0, :2], slot, x, mask))
    attention.eval()
    assert torch.equal(attention(x, None), attention(x, None))
    assert torch.equal(attention.of(x[0, :2], slot, x, mask), attention.of(x[0, :2], slot, x, mask))


@pytest.mark.parametrize(("module", "blocks"), [("self", 3), ("cross", 2)])
def test_fused_projections_start_within_the_bounds_of_the_single_matrices(module: str, blocks: int) -> None:
    torch.manual_seed(0)
    if module == "self":
        fused = Attention(128, heads=4).query_key_value
        bound = math.sqrt(6 / (128 + 128))  # Glorot: of one 128 x 128 matrix, not of the 384 x 128 stack
    else:
        fused = Attention(128, heads=4, keys_from=64).key_value
        bound = math.sqrt(6 / (64 + 128))
    for block in fused.weight.chunk(blocks):
        # 8192 uniform draws or more: the largest lies within a hundredth of the bound
        assert 0.99 * bound < block.abs().max().item() <= bound
        assert block.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.03)
    assert not fused.bias.any()


# feed-forward


def test_feed_forward_by_hand() -> None:
    module = FeedForward(2, 3, dropout=0.0)
    with torch.no_grad():
        module.inner.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
        module.inner.bias.copy_(torch.tensor([0.0, -1.0, 1.0]))
        module.outer.weight.copy_(torch.tensor([[1.0, 2.0, 3.0], [-1.0, 0.0, 1.0]]))
        module.outer.bias.copy_(torch.tensor([0.5, -0.5]))
    # x = (2, -3): inner (2, -3, -1) + (0, -1, 1) = (2, -4, 0) -> relu (2, 0, 0); outer (2, -2) + (0.5, -0.5)
    # x = (1, 4): inner (1, 3, 6) -> outer (1 + 6 + 18, -1 + 6) + (0.5, -0.5)
    found = module(torch.tensor([[[2.0, -3.0], [1.0, 4.0]]]))
    assert found.tolist() == [[[2.5, -2.5], [25.5, 4.5]]]


def test_feed_forward_dropout_is_on_the_rectified_and_works_in_training_only() -> None:
    torch.manual_seed(0)
    module = FeedForward(1, 1000, dropout=0.5)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(0.0)
        module.inner.bias.fill_(1.0)
        module.outer.weight.fill_(1.0)  # so the output counts what is left: about 500 of 1000, each scaled to 2
    found = module(torch.zeros(1, 1, 1)).item()
    assert 800 < found < 1200 and found != 1000
    assert found % 2 == 0
    module.eval()
    assert module(torch.zeros(1, 1, 1)).item() == 1000


def test_an_encoder_layer_of_base_size_has_the_parameters_of_the_paper() -> None:
    with torch.device("meta"):
        # attention 4 (512 * 512 + 512), feed-forward 2 * 512 * 2048 + 2048 + 512, two norms of 2 * 512
        assert parameters(EncoderLayer(BASE)) == 1_050_624 + 2_099_712 + 2_048 == 3_152_384
        assert parameters(DecoderLayer(BASE)) == 3_152_384 + 1_050_624 + 1_024  # one attention and norm more


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_layers_are_the_composition_of_their_parts(norm: str) -> None:
    torch.manual_seed(0)
    layer = DecoderLayer(tiny(norm))
    unsettle(layer)
    x, states = torch.randn(2, 4, 8, dtype=torch.float64), torch.randn(2, 3, 8, dtype=torch.float64)
    memory = layer.memory_attention.project(states)
    mask = torch.ones(2, 1, 4, 4, dtype=torch.bool).tril()
    memory_mask = torch.tensor([True, True, False]).expand(2, 1, 4, 3)
    parts: list[tuple[nn.Module, Callable[[Tensor], Tensor]]] = [
        (layer.self_residual.norm, lambda y: layer.self_attention(y, mask)),
        (layer.memory_residual.norm, lambda y: layer.memory_attention(y, memory_mask, memory)),
        (layer.feed_forward_residual.norm, layer.feed_forward),
    ]
    expected = x
    for normalise, function in parts:
        expected = (
            expected + function(normalise(expected)) if norm == "pre" else normalise(expected + function(expected))
        )
    assert torch.allclose(layer(x, mask, memory, memory_mask), expected, atol=1e-12)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_layer_at_some_positions_is_the_whole_layer_there(norm: str) -> None:
    torch.manual_seed(0)
    layer = EncoderLayer(tiny(norm))
    unsettle(layer)
    x, mask = torch.randn(2, 5, 8, dtype=torch.float64), torch.rand(2, 1, 5, 5) < 0.6
    mask |= torch.eye(5, dtype=torch.bool)
    # position 3 and 0 of the first row, 1 of the second, whose other two queries nobody asks for
    some = torch.stack([mask[0][:, [3, 0, 0]], mask[1][:, [1, 4, 4]]])  # [R, 1, Q, L]
    whole = layer(x, mask)
    expected = torch.stack([whole[0, 3], whole[0, 0], whole[1, 1]])
    found = layer.at(torch.tensor([3, 0, 5 + 1]), torch.tensor([0, 1, 3 + 0]), x, some)
    assert torch.allclose(found, expected, atol=1e-12)


def test_dropout_of_a_layer_is_silent_in_use() -> None:
    torch.manual_seed(0)
    layer, x = EncoderLayer(tiny(dropout=0.5)), torch.randn(2, 3, 8)
    assert not torch.equal(layer(x, None), layer(x, None))
    layer.eval()
    assert torch.equal(layer(x, None), layer(x, None))


# the growing cache


@settings(max_examples=30, deadline=None)
@example(beam=3, keeps=[None] * 40, seed=0)  # the room, 16 steps at first, is doubled twice
@example(beam=1, keeps=[*[None] * 20, [2, 0], *[None] * 20], seed=0)
@given(
    beam=st.integers(1, 4),
    keeps=st.lists(st.one_of(st.none(), st.lists(st.integers(0, 2), min_size=1, max_size=3)), min_size=1, max_size=40),
    seed=st.integers(0, 99),
)
def test_the_growing_cache_equals_concatenation(beam: int, keeps: list[list[int] | None], seed: int) -> None:
    """One new position a step; after some steps only some rows go on (here even repeated or reordered)."""
    generator = torch.Generator().manual_seed(seed)
    grown, rows = Growing(), 3
    keys = values = torch.empty(rows, 2, 0, 5)
    for chosen in keeps:
        key, value = (torch.randn(rows, 2, beam, 5, generator=generator) for _ in range(2))
        keys, values = torch.cat([keys, key], dim=2), torch.cat([values, value], dim=2)
        found = grown.append(key, value)
        assert torch.equal(found[0], keys)
        assert torch.equal(found[1], values)
        if chosen is not None:
            picked = torch.tensor([row % rows for row in chosen])
            grown.keep(picked)
            keys, values, rows = keys[picked], values[picked], len(picked)


def test_keeping_rows_of_an_empty_cache_is_allowed() -> None:
    grown = Growing()
    grown.keep(torch.tensor([0]))
    key = torch.ones(1, 1, 2, 3)
    assert torch.equal(grown.append(key, key)[0], key)
