"""SAN (Maruf et al., NAACL 2019): selective attention over all earlier sentences, on top of the encoder.

Each source word weighs the sentences by sparsemax, most of them by nothing at all, and the words inside each sentence
by softmax. The context is the sentence model's own encoder states: of a frozen copy of it, or of the encoder as it
is, without gradient. The scope may be a whole document: nothing here grows with it but one row of weights a word.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from dynctx.batches import Batch
from dynctx.config import ModelConfig
from dynctx.layers import FeedForward, LayerSizes
from dynctx.linear import Linear
from dynctx.subwords import EOS
from dynctx.translators.bank import Bank, BankedNmt, Past, Side, lay_past
from dynctx.translators.sentence import Memory, SentNmt, layer_sizes, view

# weights (rows x heads x words x context words) that are held at a time
LARGEST = {"cpu": 2**25, "cuda": 2**27}


class _Sparsemax(torch.autograd.Function):
    """Martins and Astudillo (2016): the point of the simplex nearest to the scores."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor) -> Tensor:
        ordered = scores.sort(dim=-1, descending=True).values
        count = torch.arange(1, scores.shape[-1] + 1, device=scores.device, dtype=scores.dtype)
        total = ordered.cumsum(dim=-1)
        size = (1 + count * ordered > total).sum(dim=-1, keepdim=True).clamp(min=1)  # of the support
        threshold = (total.gather(-1, size - 1) - 1) / size
        weights = (scores - threshold).clamp(min=0)
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (weights,) = ctx.saved_tensors
        support = weights > 0
        inside = gradients[0] * support
        mean = inside.sum(dim=-1, keepdim=True) / support.sum(dim=-1, keepdim=True).clamp(min=1)
        return (inside - mean) * support


def sparsemax(scores: Tensor, seen: Tensor) -> Tensor:
    """Weights over the last dimension, among what is seen; all zero where nothing is."""
    some = seen.any(dim=-1, keepdim=True)
    # the lowest weight there is goes to what is not seen: a score 1 below the highest is never in the support
    lowest = torch.finfo(scores.dtype).min
    highest = scores.masked_fill(~seen, lowest).amax(dim=-1, keepdim=True).detach()
    return _Sparsemax.apply(torch.where(seen, scores, highest - 2)) * (some & seen)


class SelectiveAttention(nn.Module):
    """a_j = Qs x . Ks mean(H_j) / sqrt(d_h);      alpha = sparsemax(a)         over sentences
    b_jw = Qw x . Kw h_jw / sqrt(d_h);            beta_j = softmax(b_j)        over the words of each
    c = O sum_jw alpha_j beta_jw V h_jw           for each head, side by side before O
    """

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__()
        width = sizes.width
        self.heads, self.dropout = sizes.heads, sizes.attention_dropout
        self.query = Linear(width, 2 * width, bias=False, blocks=2)  # Qs, Qw
        self.sentence_key = Linear(width, width, bias=False)  # Ks
        self.key_value = Linear(width, 2 * width, bias=False, blocks=2)  # Kw, V
        self.output = Linear(width, width, bias=False)  # O

    def forward(self, x: Tensor, states: Tensor, column: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        """x [R, Q, d], states [R, N, d], column [R, N] of each word (-1: none), seen [R, Q, J] columns.

        -> what was found [R, Q, d], and whether there was anything to find [R, Q]
        """
        sentence_query, query = map(self._split, self.query(x).chunk(2, dim=-1))
        key, value = map(self._split, self.key_value(states).chunk(2, dim=-1))
        number = torch.arange(seen.shape[2], device=column.device)
        member = column[:, None, :] == number[:, None]  # [R, J, N]
        size = member.sum(-1)  # words of each column
        means = member.to(states.dtype) @ states / size.clamp(min=1)[..., None]  # [R, J, d]
        seen = seen & (size > 0)[:, None]
        scale = key.shape[-1] ** -0.5
        sentence_scores = sentence_query @ self._split(self.sentence_key(means)).transpose(2, 3)  # [R, H, Q, J]
        scores = query @ key.transpose(2, 3)  # [R, H, Q, N]
        with torch.autocast(x.device.type, enabled=False):
            alpha = sparsemax(full(sentence_scores) * scale, seen[:, None])
            weights = self.combine(alpha, full(scores) * scale, column, member)
        weights = F.dropout(weights, self.dropout, self.training)
        mixed = weights.to(value.dtype) @ value  # [R, H, Q, d/H]
        return self.output(mixed.transpose(1, 2).flatten(2)), seen.any(dim=-1)

    def combine(self, alpha: Tensor, scores: Tensor, column: Tensor, member: Tensor) -> Tensor:
        """alpha_j times the softmax of the scores inside sentence j. [R, H, Q, J], [R, H, Q, N] -> [R, H, Q, N]"""
        word = (column >= 0)[:, None, None]
        scores = scores.masked_fill(~word, -torch.inf)
        with torch.no_grad():  # the highest of each sentence, which the exponential is taken relative to
            home = column.clamp(min=0)[:, None, None].expand_as(scores)
            highest = torch.full_like(alpha, -torch.inf).scatter_reduce_(-1, home, scores, "amax")
            highest = highest.masked_fill(highest == -torch.inf, 0.0).gather(-1, home)
        exponentials = (scores - highest).exp()
        # heads and queries as one side of the products: side by side, each head would get a copy of who belongs where
        belongs, sides = member.to(scores.dtype), alpha.shape[1:3]  # [R, J, N]
        sums = (exponentials.flatten(1, 2) @ belongs.transpose(1, 2)).unflatten(1, sides)  # at least 1 where a word is
        shares = (alpha / sums.clamp(min=0.5)).flatten(1, 2) @ belongs
        return shares.unflatten(1, sides) * exponentials

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


def full(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()


class ContextLayer(nn.Module):
    """c = LN(attention(x));  c = LN(FFN(c));  g = sigmoid(x C_s + c C_c);  out = g * x + (1 - g) * c

    There is no residual sum on the way of c, and no norm behind the gate. Without context, out = x.
    """

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__()
        self.attention = SelectiveAttention(sizes)
        self.attention_norm = nn.LayerNorm(sizes.width, eps=1e-6)
        self.feed_forward = FeedForward(sizes.width, sizes.inner, sizes.relu_dropout)
        self.feed_forward_norm = nn.LayerNorm(sizes.width, eps=1e-6)
        self.gate_state = Linear(sizes.width, sizes.width, bias=False)
        self.gate_context = Linear(sizes.width, sizes.width, bias=False)
        self.dropout = nn.Dropout(sizes.dropout)

    def forward(self, x: Tensor, states: Tensor, column: Tensor, seen: Tensor) -> Tensor:
        found, some = self.attention(x, states, column, seen)
        context = self.attention_norm(self.dropout(found))
        context = self.feed_forward_norm(self.dropout(self.feed_forward(context)))
        gate = torch.sigmoid(self.gate_state(x) + self.gate_context(context))
        return torch.where(some[..., None], gate * x + (1 - gate) * context, x)


class San(BankedNmt):
    def __init__(self, config: ModelConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__(config, source_vocabulary, target_vocabulary)
        self.context_layer = ContextLayer(layer_sizes(config))
        self.needs_sentence_model = config.san.context_states == "frozen_copy"
        if self.needs_sentence_model:
            parts = {"embedding": self.source_embedding, "encoder": self.encoder, "norm": self.encoder_norm}
            self.context_encoder = nn.ModuleDict({name: copy.deepcopy(part) for name, part in parts.items()})
            self.context_encoder.requires_grad_(False)

    def context_model(self) -> SentNmt:
        if not self.needs_sentence_model:
            return self.sentence_model()
        kept, own = self.context_encoder, self._modules
        encoder = {"source_embedding": kept["embedding"], "encoder": kept["encoder"], "encoder_norm": kept["norm"]}
        return view(self.config, {"target_embedding": own["target_embedding"], **encoder})

    def inherit(self, new: set[str]) -> list[str]:
        if not any(name.startswith("context_encoder.") for name in new):
            return []
        for name, part in (
            ("embedding", self.source_embedding),
            ("encoder", self.encoder),
            ("norm", self.encoder_norm),
        ):
            self.context_encoder[name].load_state_dict(part.state_dict())
        return ["context_encoder"]

    def compile_layers(self) -> None:
        super().compile_layers()
        if self.needs_sentence_model:
            for layer in self.context_model().encoder:
                layer.compile()

    def encode(self, batch: Batch, selection: Tensor | None = None, bank: Bank | None = None) -> Memory:
        bank = bank or self.bank(batch)
        selection = self.allowed(batch, selection)
        past = lay_past(batch, bank, bank.source, self.scope)
        memory = super().encode(batch)
        columns = selected_columns(past, selection)  # [n, J]
        # a whole document of context is a great many weights: some rows at a time
        weights = past.index.shape[1] * max(self.config.heads * memory.states.shape[1], past.columns)
        step = max(1, LARGEST.get(memory.states.device.type, 2**25) // weights)
        parts = [
            self.with_context(memory, bank.source, past, columns, slice(first, first + step), step)
            for first in range(0, len(memory.states), step)
        ]
        return Memory(parts[0] if len(parts) == 1 else torch.cat(parts), memory.sentence)

    def with_context(self, memory: Memory, side: Side, past: Past, columns: Tensor, rows: slice, step: int) -> Tensor:
        """Some rows of the memory, mixed with their context."""
        seen = columns[memory.sentence[rows].clamp(min=0)]  # [rows, S, J]

        def work(x: Tensor) -> Tensor:
            index = past.index[rows]
            column = past.column[rows].masked_fill(side.read[index] == EOS, -1)
            return self.context_layer(x, side.states[index], column, seen)

        x = memory.states[rows]
        if step < len(memory.states) and torch.is_grad_enabled():
            return checkpoint(work, x, use_reentrant=False)
        return work(x)


def selected_columns(past: Past, selection: Tensor) -> Tensor:
    """[n, J] which columns of its row a sentence has selected. selection [n, scope]."""
    scope = selection.shape[1]
    distance = past.nearest[:, None] - torch.arange(past.columns, device=selection.device)  # less 1
    return selection.gather(1, distance.clamp(0, scope - 1)) & (distance >= 0) & (distance < scope)
