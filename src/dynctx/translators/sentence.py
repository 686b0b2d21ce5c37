"""SentNmt: the sentence-level Transformer, the start and the control of every document-level model.

This module also says what a translator is to the rest of the project: `encode` a batch under a selection into a
`Memory`, then `decode` the whole target (training, scoring), or `begin` and `step` (search).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from dynctx.batches import Batch
from dynctx.config import ModelConfig
from dynctx.layers import DecoderLayer, Embedding, EncoderLayer, Growing, KeyValue, LayerSizes, causal, same_sentence
from dynctx.linear import Linear

# the parts of the sentence model, by the first word of their parameters' names, in every model built on it
BASE = ("source_embedding", "target_embedding", "encoder", "decoder", "encoder_norm", "decoder_norm", "output")


@dataclass
class Memory:
    """What the decoder may look at: states, and the sentence each belongs to (negative: to none)."""

    states: Tensor  # [R, S, d]
    sentence: Tensor  # [R, S]


@dataclass
class Attended:
    """The memory as keys and values of every decoder layer, with the mask of who sees what."""

    memory: list[KeyValue]  # one a layer
    memory_mask: Tensor  # [R, 1, T or 1, S]

    def rows(self, chosen: Tensor) -> Attended:
        return Attended([kv.rows(chosen) for kv in self.memory], self.memory_mask[chosen])


@dataclass
class Cache:
    """A search in progress: R sentences with `beam` hypotheses each.

    Hypotheses never move. All keys of a sentence's beam lie side by side, `beam` more each step, and `ancestors`
    says which of them a hypothesis descends from; choosing parents permutes that small mask and nothing else.
    """

    beam: int
    attended: Attended
    grown: list[Growing]  # one a layer
    ancestors: Tensor  # [R, beam, keys so far]
    step: int = 0

    def descend(self, parents: Tensor) -> None:
        """parents [R, beam]: the hypothesis that each new one continues."""
        index = parents[:, :, None].expand(-1, -1, self.ancestors.shape[2])
        self.ancestors = self.ancestors.gather(1, index)

    def prune(self) -> None:
        """Forget the keys that no hypothesis descends from any more: of old steps, most of a beam's."""
        alive = self.ancestors.any(dim=1)  # [R, keys]
        keys = alive.shape[1]
        needed = -(-int(alive.sum(dim=1).max()) // 8) * 8
        if needed * 4 > keys * 3:
            return
        kept = torch.argsort(~alive, dim=1, stable=True)[:, :needed]  # in their order, the dead ones to fill up
        self.ancestors = self.ancestors.gather(2, kept[:, None].expand(-1, self.beam, -1))
        for grown in self.grown:
            grown.pick(kept)

    def keep(self, rows: Tensor) -> None:
        """Go on with these sentences only."""
        self.attended = self.attended.rows(rows)
        for grown in self.grown:
            grown.keep(rows)
        self.ancestors = self.ancestors[rows]


class SentNmt(nn.Module):
    """Transformer encoder-decoder over single sentences (Vaswani et al. 2017)."""

    def __init__(self, config: ModelConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.scope = 0  # candidates that a batch must bring along
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

    def frozen_in_stage_two(self) -> list[str]:
        """Parts (first words of parameter names) that the model's authors keep fixed after stage 1."""
        return []

    def compile_layers(self) -> None:
        """All layers of a kind share the compiled code, so it takes seconds, not minutes."""
        for layer in [*self.encoder, *self.decoder]:
            layer.compile()

    # encoding

    def encode(self, batch: Batch, selection: Tensor | None = None) -> Memory:
        """selection [n, scope]: accepted by every translator; to this one it does not matter."""
        source = batch.source
        x = self.source_embedding(source.ids, source.position, source.ids.shape[1])
        mask = same_sentence(source.sentence, source.sentence)
        for layer in self.encoder:
            x = layer(x, mask)
        return Memory(self.encoder_norm(x), source.sentence)

    # decoding

    def attend_to(self, memory: Memory, queries: Tensor | None) -> Attended:
        """Keys and values for every layer. queries [R, T]: sentence numbers; None: one sentence a row."""
        if queries is None:
            mask = (memory.sentence >= 0)[:, None, None, :]
        else:
            mask = same_sentence(queries, memory.sentence)
        return Attended([layer.memory_attention.project(memory.states) for layer in self.decoder_layers()], mask)

    def decoder_layer(
        self, number: int, x: Tensor, mask: Tensor, attended: Attended, grown: Growing | None = None
    ) -> Tensor:
        return self.decoder[number](x, mask, attended.memory[number], attended.memory_mask, grown)

    def decoder_layers(self) -> list[DecoderLayer]:
        return cast(list[DecoderLayer], list(self.decoder))

    def decode(self, memory: Memory, batch: Batch) -> Tensor:
        """States [R, T, d] that predict the target at every position, given the true prefix."""
        target = batch.target
        x = self.target_embedding(batch.prefix, target.position, target.ids.shape[1])
        mask = causal(same_sentence(target.sentence, target.sentence))
        attended = self.attend_to(memory, target.sentence)
        for number in range(len(self.decoder)):
            x = self.decoder_layer(number, x, mask, attended)
        return self.decoder_norm(x)

    def begin(self, memory: Memory, beam: int) -> Cache:
        """Start a search; the memory must hold one sentence a row."""
        ancestors = torch.zeros(len(memory.states), beam, 0, dtype=torch.bool, device=memory.states.device)
        return Cache(beam, self.attend_to(memory, None), [Growing() for _ in self.decoder], ancestors)

    def step(self, cache: Cache, tokens: Tensor) -> Tensor:
        """The last tokens [R, beam] of each hypothesis -> logits [R, beam, V] of the next."""
        itself = torch.eye(cache.beam, dtype=torch.bool, device=tokens.device).expand(len(tokens), -1, -1)
        cache.ancestors = torch.cat([cache.ancestors, itself], dim=2)
        x = self.target_embedding(tokens, torch.full_like(tokens, cache.step), cache.step + 1)
        mask = cache.ancestors[:, None]
        for number in range(len(self.decoder)):
            x = self.decoder_layer(number, x, mask, cache.attended, cache.grown[number])
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
