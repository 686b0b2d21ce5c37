"""The parts every network here is made of: attention, feed-forward, residual steps, positions, caches.

Shapes in comments: R rows, L positions of a row, Q query and K key positions, H heads, d width. In training a row
holds several packed sentences; in decoding a row is one sentence and its positions are the hypotheses of a beam.
Both go through the same modules.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dynctx.linear import Linear
from dynctx.side_by_side import apart, beside, seen_keys, some_beside

FEW_QUERIES = 64  # up to so many, attention on a CPU is done in plain products


def same_sentence(queries: Tensor, keys: Tensor) -> Tensor:
    """[R, Q], [R, K] sentence numbers -> [R, 1, Q, K]: a token sees the tokens of its own sentence.

    Padding (-1) and what was not selected (-2) see everything, because a softmax over no key at all is not a
    number; nothing reads their result. No token of a sentence ever sees them.
    """
    queries = queries[:, None, :, None]
    return (queries == keys[:, None, None, :]) | (queries < 0)


def causal(mask: Tensor) -> Tensor:
    """[R, 1, L, L] without what lies after each position."""
    return mask & torch.ones(mask.shape[-2:], dtype=torch.bool, device=mask.device).tril()


def product_type(x: Tensor) -> torch.dtype:
    """The type that products with x are computed in: its own, or autocast's."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def additive(mask: Tensor, states: Tensor) -> Tensor:
    """What may be seen as what is added to the scores of these states, 0 or -inf: made once for all layers."""
    return torch.zeros_like(mask, dtype=product_type(states)).masked_fill_(~mask, -torch.inf)


def sinusoids(length: int, width: int) -> Tensor:
    """[length, width]: sines in the first half of the channels, cosines in the second, timescales 1 to 1e4."""
    half = width // 2
    step = math.log(1e4) / max(half - 1, 1)
    angles = torch.arange(length)[:, None] * torch.exp(torch.arange(half) * -step)
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class Dropout(nn.Dropout):
    """As torch's, with a mask that is made several times as fast on a CPU: four 16-bit draws of each 64 random bits."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.p or x.device.type != "cpu" or torch.compiler.is_compiling():
            return super().forward(x)
        bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        draws = bits.view(torch.int16)[: x.numel()].view(x.shape)
        keep = (draws >= round(self.p * 2**16) - 2**15).to(x.dtype).mul_(1 / (1 - self.p))
        return x * keep


class Embedding(nn.Module):
    """Token embedding times sqrt(d), plus the sinusoid of the position; dropout last."""

    positions: Tensor

    def __init__(self, vocabulary: int, width: int, dropout: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocabulary, width))
        nn.init.normal_(self.weight, std=width**-0.5)
        self.dropout, self.scale = Dropout(dropout), width**0.5
        self.register_buffer("positions", sinusoids(256, width), persistent=False)
        self.outgrown: list[Tensor] = []  # tables that a recorded step may still read (dynctx.replay)

    def forward(self, ids: Tensor, position: Tensor, longest: int) -> Tensor:
        """[R, L] ids and positions, all below `longest` -> [R, L, d]."""
        return self.dropout(self.look_up(ids, position, longest))

    def look_up(self, ids: Tensor, position: Tensor, longest: int, dtype: torch.dtype | None = None) -> Tensor:
        """The same without dropout. dtype: of the result, from tables rounded to it."""
        self.reach(longest)
        weight = self.weight.to(dtype or self.weight.dtype)
        where = F.embedding(position, self.positions.to(weight.dtype))
        return torch.add(where, F.embedding(ids, weight), alpha=self.scale)

    def scaled(self, ids: Tensor) -> Tensor:
        """Without positions, too."""
        return F.embedding(ids, self.weight) * self.scale

    def reach(self, longest: int) -> None:
        """Sinusoids have no last position: lengthen the table when a longer sentence comes."""
        if longest > len(self.positions):
            table = sinusoids(2 * longest, self.weight.shape[1])
            self.outgrown.append(self.positions)
            self.positions = table.to(self.positions.device, self.positions.dtype)


@dataclass
class KeyValue:
    """Keys and values of one attention, split into heads."""

    key: Tensor  # [R, H, K, d/H]
    value: Tensor  # [R, H, K, d/H]

    def rows(self, chosen: Tensor) -> KeyValue:
        return KeyValue(take(self.key, chosen), take(self.value, chosen))

    def at(self, place: Tensor) -> KeyValue:
        """These positions, counted through all rows: [R', K'] -> keys and values [R', H, K', d/H]."""
        key, value = (x.transpose(1, 2).flatten(0, 1)[place].transpose(1, 2) for x in (self.key, self.value))
        return KeyValue(key, value).compact()

    def compact(self) -> KeyValue:
        """The same, where they are read once for each word that is written, in the order in which they are read."""
        if self.key.requires_grad or self.key.device.type != "cpu":
            return self
        return KeyValue(self.key.contiguous(), self.value.contiguous())


def joined(
    memory: list[KeyValue], mask: Tensor, queries: int, at: Tensor | None = None
) -> tuple[list[KeyValue], Tensor]:
    """Keys and values of every layer with their mask [R, 1, 1, K], for rows side by side of so many queries each.

    at [R, K]: where each key lies, counted through all rows of the memory, if not in its own row.
    """
    place, mask = seen_keys(mask, queries)
    if at is not None:
        place = at.reshape(len(place), -1).gather(1, place)
        return [kv.at(place) for kv in memory], mask
    return [KeyValue(some_beside(kv.key, place), some_beside(kv.value, place)) for kv in memory], mask


def take(x: Tensor, chosen: Tensor) -> Tensor:
    """These rows of [R, H, K, d/H], laid in memory as they were: each position with all its heads, or each head."""
    if x.stride(1) < x.stride(2):
        return x.transpose(1, 2)[chosen].transpose(1, 2)
    return x[chosen]


class Growing:
    """Self-attention's keys and values while decoding: `beam` new positions a step, room doubled when full."""

    def __init__(self) -> None:
        self.key: Tensor | None = None
        self.value: Tensor | None = None
        self.length = 0

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """[R, H, beam, d/H] -> all keys and values so far."""
        end = self.length + key.shape[2]
        if self.key is None or self.value is None or end > self.key.shape[2]:
            self.key, self.value = self._enlarged(self.key, key), self._enlarged(self.value, value)
        self.key[:, :, self.length : end] = key
        self.value[:, :, self.length : end] = value
        self.length = end
        return self.key[:, :, :end], self.value[:, :, :end]

    def _enlarged(self, old: Tensor | None, new: Tensor) -> Tensor:
        rows, heads, step, size = new.shape
        room = new.new_empty(rows, heads, max(16 * step, 2 * self.length), size)
        if old is not None:
            room[:, :, : self.length] = old[:, :, : self.length]
        return room

    def pick(self, kept: Tensor) -> None:
        """Go on with these positions of each row only. kept [R, k]"""
        if self.key is not None and self.value is not None:
            index = kept[:, None, :, None].expand(-1, self.key.shape[1], -1, self.key.shape[3])
            self.length = kept.shape[1]
            self.key, self.value = self.key.gather(2, index), self.value.gather(2, index)

    def keep(self, chosen: Tensor) -> None:
        if self.key is not None and self.value is not None:
            self.key, self.value = take(self.key, chosen), take(self.value, chosen)


class Room(Growing):
    """The same with room made beforehand, written at places that the device counts.

    Between two enlargements no tensor moves or grows, so a step can be recorded once and replayed. All heads of a
    position lie together, so that rows can stand side by side.
    """

    def __init__(self, places: Tensor, room: int) -> None:
        """places [beam]: where the step that is being made writes; room: for so many positions."""
        super().__init__()
        self.places, self.room = places, room

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """[R, H, beam, d/H] -> all the room; what lies behind this step means nothing."""
        if self.key is None or self.value is None:
            self.key, self.value = self._enlarged(None, key), self._enlarged(None, value)
        self.key.index_copy_(2, self.places, key)
        self.value.index_copy_(2, self.places, value)
        return self.key, self.value

    def enlarge(self, room: int) -> None:
        self.room = room
        if self.key is not None and self.value is not None:
            self.key, self.value = self._enlarged(self.key, self.key), self._enlarged(self.value, self.value)

    def _enlarged(self, old: Tensor | None, new: Tensor) -> Tensor:
        rows, heads, _, size = new.shape
        made = new.new_zeros(rows, self.room, heads, size).transpose(1, 2)
        if old is not None:
            made[:, :, : old.shape[2]] = old
        return made


def attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float = 0.0) -> Tensor:
    """[R, H, Q, d/H], keys and values [R, H, K, d/H], mask [R, 1, Q, K] -> [R, H, Q, d/H].

    The mask says what may be seen, or is what is added to the scores (`additive`). One for more queries than there are
    is of rows side by side, and so may be the keys.

    On a CPU, torch's fused kernel takes two or three times as long as three plain products for a few short queries
    (those of a beam, of a batch of single sentences); for one query it is the faster one, for long rows the smaller.
    """
    if mask is not None and mask.shape[2] > query.shape[2]:
        group = mask.shape[2] // query.shape[2]
        if len(key) > len(mask):
            key, value = beside(key, group), beside(value, group)
        return apart(attention(beside(query, group), key, value, mask, dropout), group)
    rows, heads, queries, size = query.shape
    few = 1 < queries <= FEW_QUERIES and query.device.type == "cpu" and not torch.compiler.is_compiling()
    if not few or dropout or (torch.is_grad_enabled() and query.requires_grad):
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
    weights = torch.bmm(query.flatten(0, 1) * size**-0.5, key.flatten(0, 1).transpose(1, 2))  # [R H, Q, K]
    if mask is not None:
        weights.view(rows, heads, queries, -1).add_(additive(mask, weights) if mask.dtype == torch.bool else mask)
    return torch.bmm(weights.softmax(dim=-1), value.flatten(0, 1)).view(rows, heads, queries, size)


class Attention(nn.Module):
    """Multi-head attention. `keys_from` another width makes it a cross attention with its own key projection."""

    def __init__(self, width: int, heads: int, dropout: float = 0.0, keys_from: int | None = None) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        if keys_from is None:
            self.query_key_value = Linear(width, 3 * width, blocks=3)
        else:
            self.query = Linear(width, width)
            self.key_value = Linear(keys_from, 2 * width, blocks=2)
        self.output = Linear(width, width)

    def forward(
        self, x: Tensor, mask: Tensor | None, memory: KeyValue | None = None, cache: Growing | None = None
    ) -> Tensor:
        """x [R, Q, d], mask [R, 1, Q, K] of what may be seen -> [R, Q, d]."""
        if memory is not None:
            query, key, value = self._split(self.query(x)), memory.key, memory.value
        else:
            query, key, value = map(self._split, self.query_key_value(x).chunk(3, dim=-1))
            if cache is not None:
                key, value = cache.append(key, value)
        dropout = self.dropout if self.training else 0.0
        mixed = attention(query, key, value, mask, dropout)
        rows, _, length, _ = mixed.shape
        return self.output(mixed.transpose(1, 2).reshape(rows, length, -1))

    def of(self, queries: Tensor, slot: Tensor, x: Tensor, mask: Tensor) -> Tensor:
        """Self-attention of some positions only: queries [I, d] out of x [R, L, d] -> [I, d].

        mask [R, 1, Q, L] of what Q queries a row may see; slot [I]: the place of each among these, counted through all
        rows. Rows have more or fewer of them, so what is done besides attention is done to those there are.
        """
        width = x.shape[2]
        weight, bias = self.query_key_value.weight, self.query_key_value.bias
        query = F.linear(queries, weight[:width], bias[:width])  # [I, d]
        query = query.new_zeros(mask.shape[0] * mask.shape[2], width).index_copy(0, slot, query)
        key, value = F.linear(x, weight[width:], bias[width:]).chunk(2, dim=-1)
        query, key, value = self._split(query.view(len(x), -1, width)), self._split(key), self._split(value)
        mixed = attention(query, key, value, mask, self.dropout if self.training else 0.0)
        return self.output(mixed.transpose(1, 2).flatten(0, 1).flatten(1)[slot])

    def project(self, states: Tensor) -> KeyValue:
        """Keys and values of what is attended to; computed once a sentence."""
        key, value = self.key_value(states).chunk(2, dim=-1)
        return KeyValue(self._split(key), self._split(value)).compact()

    def _split(self, x: Tensor) -> Tensor:
        rows, length, width = x.shape
        return x.view(rows, length, self.heads, width // self.heads).transpose(1, 2)


class FeedForward(nn.Module):
    def __init__(self, width: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.inner, self.outer = Linear(width, inner), Linear(inner, width)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.dropout(self.inner.rectified(x)))


@dataclass(frozen=True)
class LayerSizes:
    """What a layer needs to know of the configuration."""

    width: int
    inner: int
    heads: int
    norm: str  # "post" or "pre"
    dropout: float
    attention_dropout: float = 0.0
    relu_dropout: float = 0.0


class LayerNorm(nn.LayerNorm):
    """As torch's, but states in use that are as rough as autocast's products stay so, and are not copied to float32."""

    def __init__(self, width: int) -> None:
        super().__init__(width, eps=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        if x.dtype == self.weight.dtype or torch.is_grad_enabled():
            return super().forward(x)
        with torch.autocast(x.device.type, enabled=False):
            weight, bias = self.weight.to(x.dtype), self.bias.to(x.dtype)
            return F.layer_norm(x, self.normalized_shape, weight, bias, self.eps)


class Residual(nn.Module):
    """x + f(x) with layer norm behind the sum (post) or before f (pre), and dropout on f's output."""

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__()
        self.norm = LayerNorm(sizes.width)
        self.dropout = Dropout(sizes.dropout)
        self.pre = sizes.norm == "pre"

    def before(self, x: Tensor) -> Tensor:
        return self.norm(x) if self.pre else x

    def after(self, x: Tensor, change: Tensor) -> Tensor:
        x = x + self.dropout(change)
        return x if self.pre else self.norm(x)


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward; the two halves can be called apart to put something between them."""

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__()
        self.self_attention = Attention(sizes.width, sizes.heads, sizes.attention_dropout)
        self.self_residual = Residual(sizes)
        self.feed_forward = FeedForward(sizes.width, sizes.inner, sizes.relu_dropout)
        self.feed_forward_residual = Residual(sizes)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        return self.transform(self.attend(x, mask))

    def attend(self, x: Tensor, mask: Tensor | None, cache: Growing | None = None) -> Tensor:
        change = self.self_attention(self.self_residual.before(x), mask, cache=cache)
        return self.self_residual.after(x, change)

    def at(self, place: Tensor, slot: Tensor, x: Tensor, mask: Tensor) -> Tensor:
        """The layer's output at some positions only: place [I] in x [R, L, d], counted through all rows -> [I, d].

        slot and mask: see `Attention.of`.
        """
        some = x.flatten(0, 1)[place]
        before = self.self_residual.before
        change = self.self_attention.of(before(some), slot, before(x), mask)
        return self.transform(self.self_residual.after(some, change))

    def transform(self, x: Tensor) -> Tensor:
        return self.feed_forward_residual.after(x, self.feed_forward(self.feed_forward_residual.before(x)))


class DecoderLayer(EncoderLayer):
    """Masked self-attention, attention over the source's states, feed-forward."""

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__(sizes)
        self.memory_attention = Attention(sizes.width, sizes.heads, sizes.attention_dropout, keys_from=sizes.width)
        self.memory_residual = Residual(sizes)

    def forward(  # type: ignore[override]
        self,
        x: Tensor,
        mask: Tensor | None,
        memory: KeyValue,
        memory_mask: Tensor | None,
        cache: Growing | None = None,
    ) -> Tensor:
        return self.transform(self.consult(self.attend(x, mask, cache), memory, memory_mask))

    def consult(self, x: Tensor, memory: KeyValue, memory_mask: Tensor | None) -> Tensor:
        change = self.memory_attention(self.memory_residual.before(x), memory_mask, memory)
        return self.memory_residual.after(x, change)
