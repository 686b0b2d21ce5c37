"""SentNmt: the sentence-level Transformer, the start and the control of every document-level model.

This module also says what a translator is to the rest of the project: `encode` a batch under a selection into a
`Memory`, then `decode` a whole prefix (training, scoring) or `begin` and `step` (search).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor, nn

from dynctx.batches import Batch
from dynctx.config import ModelConfig
from dynctx.layers import (
    DecoderLayer,
    Embedding,
    EncoderLayer,
    Growing,
    KeyValue,
    LayerSizes,
    causal,
    same_sentence,
)
from dynctx.linear import Linear


@dataclass
class Memory:
    """What the decoder attends to."""

    states: Tensor  # [R, S, d]
    sentence: Tensor  # [R, S] sentence numbers, -1 at padding


@dataclass
class Cache:
    """A search in progress: R sentences with `beam` hypotheses each.

    Hypotheses never move. All keys of a sentence's beam lie side by side, `beam` more each step, and `ancestors`
    says which of them a hypothesis descends from; choosing parents permutes that small mask and nothing else.
    """

    beam: int
    memory: list[KeyValue]  # one a layer
    memory_mask: Tensor  # [R, 1, 1, S]
    grown: list[Growing]  # one a layer
    ancestors: Tensor  # [R, beam, keys so far]
    step: int = 0
    extra: dict[str, object] = field(default_factory=dict)

    def descend(self, parents: Tensor) -> None:
        """parents [R, beam]: the hypothesis that each new one continues."""
        index = parents[:, :, None].expand(-1, -1, self.ancestors.shape[2])
        self.ancestors = self.ancestors.gather(1, index)

    def keep(self, rows: Tensor) -> None:
        """Go on with these sentences only."""
        self.memory = [kv.rows(rows) for kv in self.memory]
        self.memory_mask = self.memory_mask[rows]
        for grown in self.grown:
            grown.keep(rows)
        self.ancestors = self.ancestors[rows]


class SentNmt(nn.Module):
    """Transformer encoder-decoder over single sentences (Vaswani et al. 2017)."""

    scope = 0

    def __init__(self, config: ModelConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        self.config = config
        sizes = layer_sizes(config)
        self.target_embedding = Embedding(target_vocabulary, config.width, config.dropout)
        if config.tie_embeddings == "all":
            self.source_embedding = self.target_embedding
        else:
            self.source_embedding = Embedding(source_vocabulary, config.width, config.dropout)
        self.encoder = nn.ModuleList(EncoderLayer(sizes) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(sizes) for _ in range(config.decoder_layers))
        pre = config.norm == "pre"
        self.encoder_norm = nn.LayerNorm(config.width, eps=1e-6) if pre else nn.Identity()
        self.decoder_norm = nn.LayerNorm(config.width, eps=1e-6) if pre else nn.Identity()
        self.output = Linear(config.width, target_vocabulary, bias=False)
        if config.tie_embeddings != "none":
            self.output.weight = self.target_embedding.weight

    def encode(self, batch: Batch, selection: Tensor | None = None) -> Memory:
        """Sentence-level: the selection is accepted, as by every translator, and does not matter."""
        return Memory(self.encode_source(batch), batch.source.sentence)

    def encode_source(self, batch: Batch) -> Tensor:
        source = batch.source
        x = self.source_embedding(source.ids, source.position, source.ids.shape[1])
        mask = same_sentence(source.sentence, source.sentence)
        for layer in self.encoder:
            x = layer(x, mask)
        return self.encoder_norm(x)

    def decode(self, memory: Memory, batch: Batch) -> Tensor:
        """States [R, T, d] that predict the target at every position, given the true prefix."""
        target = batch.target
        x = self.target_embedding(batch.prefix, target.position, target.ids.shape[1])
        mask = causal(same_sentence(target.sentence, target.sentence))
        memory_mask = same_sentence(target.sentence, memory.sentence)
        for layer in self.decoder_layers():
            x = layer(x, mask, layer.memory_attention.project(memory.states), memory_mask)
        return self.decoder_norm(x)

    def decoder_layers(self) -> list[DecoderLayer]:
        return cast(list[DecoderLayer], list(self.decoder))

    def begin(self, memory: Memory, beam: int) -> Cache:
        """Start a search; the memory must hold one sentence a row."""
        rows = len(memory.states)
        return Cache(
            beam=beam,
            memory=[layer.memory_attention.project(memory.states) for layer in self.decoder_layers()],
            memory_mask=(memory.sentence >= 0)[:, None, None, :],
            grown=[Growing() for _ in self.decoder],
            ancestors=torch.zeros(rows, beam, 0, dtype=torch.bool, device=memory.states.device),
        )

    def step(self, cache: Cache, tokens: Tensor) -> Tensor:
        """The last tokens [R, beam] of each hypothesis -> logits [R, beam, V] of the next."""
        itself = torch.eye(cache.beam, dtype=torch.bool, device=tokens.device).expand(len(tokens), -1, -1)
        cache.ancestors = torch.cat([cache.ancestors, itself], dim=2)
        position = torch.full_like(tokens, cache.step)
        x = self.target_embedding(tokens, position, cache.step + 1)
        mask = cache.ancestors[:, None]
        for layer, memory, grown in zip(self.decoder, cache.memory, cache.grown):
            x = layer(x, mask, memory, cache.memory_mask, grown)
        cache.step += 1
        return self.output(self.decoder_norm(x))


def layer_sizes(config: ModelConfig) -> LayerSizes:
    return LayerSizes(
        width=config.width,
        inner=config.feed_forward,
        heads=config.heads,
        norm=config.norm,
        dropout=config.dropout,
        attention_dropout=config.attention_dropout,
        relu_dropout=config.relu_dropout,
    )
