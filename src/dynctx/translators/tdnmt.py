"""TDNMT (Zhang et al., EMNLP 2018): a context encoder, and attention to it in every layer behind a gate.

The selected sentences, oldest first, are one sequence that ends in EOS; nothing selected leaves the EOS alone, which
is encoded and attended like any other context. In stage 2 the sentence model is frozen and only the new parts learn:
the context encoder, the context attentions, their gates and norms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor, nn

from dynctx.batches import Batch
from dynctx.config import ModelConfig, TdnmtConfig
from dynctx.layers import (
    Attention,
    DecoderLayer,
    EncoderLayer,
    Growing,
    KeyValue,
    LayerSizes,
    additive,
    joined,
    product_type,
    same_sentence,
)
from dynctx.linear import Linear
from dynctx.subwords import EOS
from dynctx.translators.bank import Bank
from dynctx.translators.context import candidates_of, owners, positions, selected_tokens
from dynctx.translators.context_encoders import BiLstm, Embeddings, SelfAttention
from dynctx.translators.sentence import BASE, Attended, Memory, SentNmt, layer_sizes


class ContextAttention(nn.Module):
    """y = MHA(x, C, C);  g = sigmoid(x W_x + y W_y);  x <- LN(g * x + (1 - g) * y).

    The gate takes the place of the residual sum and nothing is dropped out. In a pre-norm network the stream is not
    scaled down: with n = LN(x), y = MHA(n, C, C) and the gate of n and y, x <- x + (1 - g) * y.
    """

    def __init__(self, sizes: LayerSizes, gated: bool, context_width: int) -> None:
        super().__init__()
        self.attention = Attention(sizes.width, sizes.heads, keys_from=context_width)
        self.gated, self.pre = gated, sizes.norm == "pre"
        if gated:
            self.gate_state = Linear(sizes.width, sizes.width, bias=False)
            self.gate_context = Linear(sizes.width, sizes.width, bias=False)
        self.norm = nn.LayerNorm(sizes.width, eps=1e-6)
        self.dropout = nn.Dropout(sizes.dropout)  # of the ungated variant

    def forward(self, x: Tensor, context: KeyValue, mask: Tensor, bypass: Tensor | None = None) -> Tensor:
        """x [R, L, d]; mask [R, 1, L or 1, N]; bypass [R, L or 1]: positions that go on unchanged.

        Where contexts of several rows share one there are fewer of these; the rows then stand side by side.
        """
        shape = x.shape
        x = x.reshape(len(context.key), -1, shape[2])
        state = self.norm(x) if self.pre else x
        state = state.to(product_type(state))  # once for both products
        y = self.attention(state, mask, context)
        if not self.gated:
            mixed = x + self.dropout(y)
        else:
            shut = torch.sigmoid(self.gate_context.negated_sum(self.gate_state(state), y))  # 1 - g, exact where small
            mixed = x + shut * (y if self.pre else y - state)
        out = mixed if self.pre else self.norm(mixed)
        out = out.view(shape)
        return out if bypass is None else torch.where(bypass[:, :, None], x.view(shape), out)


@dataclass
class ContextMemory(Memory):
    context: Tensor  # [R, N, d or 2 d], or fewer rows where contexts share one
    context_sentence: Tensor  # [R, N], negative where not selected
    begins: Tensor | None  # [n] then, where the context of each sentence begins, counted through all rows
    longest: int  # and how long it is at most
    empty: Tensor | None  # [n] sentences with nothing selected, where these go round the context


@dataclass
class ContextAttended(Attended):
    context: list[KeyValue]  # one a layer
    context_mask: Tensor  # [R, 1, T or 1, N], additive
    bypass: Tensor | None  # [R, T or 1]
    place: Tensor | None = None  # [R, N] where contexts share rows: the place of each key, counted through all of them

    def rows(self, chosen: Tensor) -> ContextAttended:
        base = super().rows(chosen)
        context = self.context if self.place is not None else [kv.rows(chosen) for kv in self.context]
        bypass, place = (None if x is None else x[chosen] for x in (self.bypass, self.place))
        return ContextAttended(base.memory, base.memory_mask, context, self.context_mask[chosen], bypass, place)

    def apart(self) -> ContextAttended:
        if self.place is None:
            return self
        return replace(self, context=[kv.at(self.place) for kv in self.context], place=None)

    def joined(self, queries: int) -> ContextAttended:
        context, mask = joined(self.context, self.context_mask, queries, self.place)
        return replace(super().joined(queries), context=context, context_mask=mask, place=None)


def encoder_layer(
    layer: EncoderLayer,
    attention: ContextAttention,
    x: Tensor,
    mask: Tensor,
    states: Tensor,
    context_mask: Tensor,
    bypass: Tensor | None,
) -> Tensor:
    """Self-attention, context attention, feed-forward."""
    x = layer.attend(x, mask)
    return layer.transform(attention(x, attention.attention.project(states), context_mask, bypass))


def decoder_layer(
    layer: DecoderLayer,
    attention: ContextAttention,
    x: Tensor,
    mask: Tensor,
    memory: KeyValue,
    memory_mask: Tensor,
    context: KeyValue,
    context_mask: Tensor,
    bypass: Tensor | None,
    grown: Growing | None,
) -> Tensor:
    """Masked self-attention, context attention, attention to the source, feed-forward."""
    x = attention(layer.attend(x, mask, grown), context, context_mask, bypass)
    return layer.transform(layer.consult(x, memory, memory_mask))


def build_context_encoder(sizes: LayerSizes, config: TdnmtConfig) -> SelfAttention | Embeddings | BiLstm:
    if config.context_encoder == "embedding":
        return Embeddings(sizes)
    return (SelfAttention if config.context_encoder == "self_attention" else BiLstm)(sizes, config.context_layers)


def context_places(batch: Batch, rows: int, width: int) -> tuple[Tensor | None, int]:
    """Where the context of each sentence [n] begins, counted through all these rows, and how long it is at most; no
    places where contexts lie in the rows of their sentences."""
    plan, sentence_rows = batch.plan, len(batch.source.ids)
    if rows == sentence_rows:
        return None, 0
    begins = plan.row * rows // sentence_rows * width + plan.offsets[2]
    return batch.origin.to_device(begins), int(plan.lengths[2].max())


class Tdnmt(SentNmt):
    contexts_together = 4  # long and short ones fill a row evenly; more would make attention to it wider

    def __init__(self, config: ModelConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__(config, source_vocabulary, target_vocabulary)
        self.scope = config.scope
        sizes, own = layer_sizes(config), config.tdnmt
        self.context_encoder = build_context_encoder(sizes, own)
        width = self.context_encoder.width
        self.encoder_context = nn.ModuleList(ContextAttention(sizes, own.gate, width) for _ in self.encoder)
        self.decoder_context = nn.ModuleList(ContextAttention(sizes, own.gate, width) for _ in self.decoder)
        self.run_encoder_layer: Callable[..., Tensor] = encoder_layer
        self.run_decoder_layer: Callable[..., Tensor] = decoder_layer

    def frozen_in_stage_two(self) -> list[str]:
        return list(BASE)

    def compile_layers(self) -> None:
        self.run_encoder_layer = torch.compile(encoder_layer)
        self.run_decoder_layer = torch.compile(decoder_layer)

    def encode(self, batch: Batch, selection: Tensor | None = None, bank: Bank | None = None) -> ContextMemory:
        states, sentence, empty = self.encode_context(batch, selection)
        source = batch.source
        x = self.source_embedding(source.ids, source.position, source.ids.shape[1])
        mask = additive(same_sentence(source.sentence, source.sentence), x)
        context_mask = additive(same_sentence(source.sentence.view(len(sentence), -1), sentence), x)
        bypass = None if empty is None else empty[source.sentence.clamp(min=0)]
        for layer, attention in zip(self.encoder, self.encoder_context):
            x = self.run_encoder_layer(layer, attention, x, mask, states, context_mask, bypass)
        begins, longest = context_places(batch, *sentence.shape)
        return ContextMemory(self.encoder_norm(x), source.sentence, states, sentence, begins, longest, empty)

    def encode_context(self, batch: Batch, selection: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """States [R, N, d or 2 d] of the selected tokens, whose they are [R, N], and which sentences have none [n]."""
        context, selection = candidates_of(batch, selection)
        # inside the sequence sentences follow each other directly; one EOS ends it, selected or not
        ends = context.ids == EOS
        after = torch.cat([context.sentence[:, 1:], torch.full_like(context.sentence[:, :1], -1)], dim=1)
        last = (context.sentence >= 0) & (context.sentence != after)
        visible = (selected_tokens(context, selection) & ~ends) | last
        sentence = owners(context, visible)
        states = self.context_encoder(self.source_embedding, context.ids, positions(context, visible), sentence)
        if not torch.is_grad_enabled():  # once for the keys and values of all layers, whose gradients would be added up
            states = states.to(product_type(states))
        empty = ~selection.any(dim=1) if self.config.tdnmt.empty_context == "bypass" else None
        return states, sentence, empty

    def attend_to(self, memory: Memory, queries: Tensor | None) -> ContextAttended:
        base, memory = super().attend_to(memory, queries), cast(ContextMemory, memory)
        attentions = cast(list[ContextAttention], list(self.decoder_context))
        context, place = [attention.attention.project(memory.context) for attention in attentions], None
        if queries is None:
            mask = (memory.context_sentence >= 0)[:, None, None, :]
            if memory.begins is not None:
                place = memory.begins[:, None] + torch.arange(memory.longest, device=mask.device)  # [R, K]
                inside = place < memory.context_sentence.numel()
                place = torch.where(inside, place, 0)
                row = torch.arange(len(place), device=mask.device)[:, None]
                mask = (inside & (memory.context_sentence.flatten()[place] == row))[:, None, None, :]
            bypass = None if memory.empty is None else memory.empty[:, None]
        else:
            mask = same_sentence(queries.view(len(memory.context), -1), memory.context_sentence)
            bypass = None if memory.empty is None else memory.empty[queries.clamp(min=0)]
        return ContextAttended(base.memory, base.memory_mask, context, additive(mask, memory.context), bypass, place)

    def decoder_layer(
        self, number: int, x: Tensor, mask: Tensor, attended: Attended, grown: Growing | None = None
    ) -> Tensor:
        attended = cast(ContextAttended, attended)
        return self.run_decoder_layer(
            self.decoder[number],
            self.decoder_context[number],
            x,
            mask,
            attended.memory[number],
            attended.memory_mask,
            attended.context[number],
            attended.context_mask,
            attended.bypass,
            grown,
        )
