"""HAN (Miculicich et al., EMNLP 2018): hierarchical attention on top of the encoder, of the decoder, or of both.

Each word attends to the words of each selected sentence apart, which gives one summary a sentence, then to these
summaries; a gate mixes the result with the word's own state. The context is states of the same kind (the encoder's
for the encoder, the decoder's for the decoder) of earlier sentences, as the sentence model alone makes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dynctx.batches import Batch
from dynctx.config import ModelConfig
from dynctx.layers import Attention, FeedForward, KeyValue, LayerSizes, additive
from dynctx.linear import Linear
from dynctx.subwords import BOS, EOS, PAD, UNK
from dynctx.translators.bank import Bank, BankedNmt, Past, Side, lay_past
from dynctx.translators.sentence import Attended, Memory, layer_sizes

NOTHING = -2  # the column of a sentence that is not selected; no token stands in it


@dataclass
class Words:
    """The words of the context as one attention sees them, and which of them belong to each candidate."""

    words: KeyValue  # [R, H, N, d/H]
    masks: Tensor  # [scope, R, 1, Q or 1, N] additive
    exists: Tensor  # [R, Q or 1, scope] selected, and not without words

    def rows(self, chosen: Tensor) -> Words:
        return Words(self.words.rows(chosen), self.masks[:, chosen], self.exists[chosen])


class HierarchicalAttention(nn.Module):
    """Section 3 of the paper, with the norms and the stopped gradients of its authors' code.

    q_w = LN(stop(h)),  q_s = LN(stop(h))
    s_j = LN(MHA(q_w, H_j, H_j))          one for each sentence j
    d = MHA(q_s, {s_j}, {s_j});  d <- d + FFN(LN(d))
    g = sigmoid(W [h; d] + b);  out = LN((1 - g) * h + g * d)
    """

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__()
        width = sizes.width
        self.word_query_norm = nn.LayerNorm(width, eps=1e-6)
        self.sentence_query_norm = nn.LayerNorm(width, eps=1e-6)
        self.word_attention = Attention(width, sizes.heads, sizes.attention_dropout, keys_from=width)
        self.word_norm = nn.LayerNorm(width, eps=1e-6)
        self.sentence_attention = Attention(width, sizes.heads, sizes.attention_dropout, keys_from=width)
        self.feed_forward_norm = nn.LayerNorm(width, eps=1e-6)
        self.feed_forward = FeedForward(width, sizes.inner, sizes.relu_dropout)
        self.dropout = nn.Dropout(sizes.dropout)
        self.gate = Linear(2 * width, width)
        self.norm = nn.LayerNorm(width, eps=1e-6)

    def forward(self, h: Tensor, words: Words) -> Tensor:
        """h [R, Q, d] -> [R, Q, d]"""
        fixed = h.detach()
        summaries = self.summarise(self.word_query_norm(fixed), words)  # [R, Q, scope, d]
        d = self.weigh(self.sentence_query_norm(fixed), summaries, words.exists)
        d = d + self.dropout(self.feed_forward(self.feed_forward_norm(d)))
        gate = torch.sigmoid(self.gate(torch.cat([h, d.to(h.dtype)], dim=-1)))
        # without any context the word's state goes on alone
        gate = gate * words.exists.any(dim=-1, keepdim=True)
        return self.norm((1 - gate) * h + gate * d)

    def summarise(self, query: Tensor, words: Words) -> Tensor:
        """What each word finds in each sentence: [R, Q, d] -> [R, Q, scope, d]"""
        attention = self.word_attention
        split, dropout = attention._split(attention.query(query)), attention.dropout if self.training else 0.0
        key, value = words.words.key, words.words.value
        found = [F.scaled_dot_product_attention(split, key, value, mask, dropout) for mask in words.masks]
        mixed = torch.stack(found, dim=3)  # [R, H, Q, scope, d/H]
        return self.word_norm(attention.output(mixed.permute(0, 2, 3, 1, 4).flatten(3)))

    def weigh(self, query: Tensor, summaries: Tensor, exists: Tensor) -> Tensor:
        """Attention of each word to its own few summaries: [R, Q, d], [R, Q, scope, d] -> [R, Q, d]"""
        attention = self.sentence_attention
        heads = (attention.heads, -1)
        query = attention.query(query).unflatten(-1, heads)[:, :, None]  # [R, Q, 1, H, d/H]
        key, value = (x.unflatten(-1, heads) for x in attention.key_value(summaries).chunk(2, dim=-1))
        scores = (query * key).sum(-1) / key.shape[-1] ** 0.5  # [R, Q, scope, H]
        # where nothing exists the softmax is over everything, and the gate shuts it out
        seen = exists | ~exists.any(dim=-1, keepdim=True)
        weights = scores.masked_fill(~seen[..., None], -torch.inf).softmax(dim=2)
        weights = F.dropout(weights, attention.dropout, self.training)
        mixed = (weights[..., None].to(value.dtype) * value).sum(2)  # [R, Q, H, d/H]
        return attention.output(mixed.flatten(2))

    def look(self, side: Side, past: Past, selection: Tensor, queries: Tensor | None) -> Words:
        """The context under a selection [n, scope], for queries [R, Q] of these sentences (None: one a row)."""
        ids = side.read[past.index]
        special = (ids == PAD) | (ids == UNK) | (ids == BOS) | (ids == EOS)
        column = past.column.masked_fill(special, -1)  # [R, N]
        distance = torch.arange(selection.shape[1], device=ids.device)
        wanted = torch.where(selection, past.nearest[:, None] - distance, NOTHING)  # [n, scope]
        wanted = wanted[:, None] if queries is None else wanted[queries.clamp(min=0)]  # [R, Q or 1, scope]
        masks = wanted.permute(2, 0, 1)[:, :, None, :, None] == column[:, None, None, :]  # [scope, R, 1, Q, N]
        exists = masks.any(dim=-1)  # [scope, R, 1, Q]
        words = self.word_attention.project(side.states[past.index])
        # a softmax over no word at all is not a number; what it finds instead is weighed by nothing
        seen = additive(masks | ~exists[..., None], words.key)
        return Words(words, seen, exists[:, :, 0].permute(1, 2, 0))


@dataclass
class HanMemory(Memory):
    context: Side | None  # states of earlier translations, for the decoder's attention
    past: Past | None
    selection: Tensor  # [n, scope]


@dataclass
class HanAttended(Attended):
    words: Words

    def rows(self, chosen: Tensor) -> HanAttended:
        base = super().rows(chosen)
        return HanAttended(base.memory, base.memory_mask, self.words.rows(chosen))


class Han(BankedNmt):
    def __init__(self, config: ModelConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__(config, source_vocabulary, target_vocabulary)
        sizes = layer_sizes(config)
        self.encoder_context = HierarchicalAttention(sizes) if config.han.encoder else None
        self.decoder_context = HierarchicalAttention(sizes) if config.han.decoder else None
        self.reads_targets = config.han.decoder

    def compile_layers(self) -> None:
        super().compile_layers()
        for module in (self.encoder_context, self.decoder_context):
            if module is not None:
                module.compile()

    def encode(self, batch: Batch, selection: Tensor | None = None, bank: Bank | None = None) -> HanMemory:
        bank = bank or self.bank(batch)
        selection = self.allowed(batch, selection)
        memory = super().encode(batch)
        states = memory.states
        if self.encoder_context is not None:
            sources = lay_past(batch, bank, bank.source, self.scope)
            words = self.encoder_context.look(bank.source, sources, selection, batch.source.sentence)
            states = self.encoder_context(states, words)
        side = bank.target
        past = None if side is None else lay_past(batch, bank, side, self.scope)
        return HanMemory(states, memory.sentence, side, past, selection)

    def attend_to(self, memory: Memory, queries: Tensor | None) -> Attended:
        base, memory = super().attend_to(memory, queries), cast(HanMemory, memory)
        if self.decoder_context is None or memory.context is None or memory.past is None:
            return base
        words = self.decoder_context.look(memory.context, memory.past, memory.selection, queries)
        return HanAttended(base.memory, base.memory_mask, words)

    def finish(self, x: Tensor, attended: Attended) -> Tensor:
        states = super().finish(x, attended)
        if self.decoder_context is None:
            return states
        return self.decoder_context(states, cast(HanAttended, attended).words)
