"""SentNmt: the sentence-level Transformer, the start and the control of every document-level model.

This module also says what a translator is to the rest of the project: `encode` a batch under a selection into a
`Memory`, then `decode` the whole target (training, scoring), or `begin` and `step` (search).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self, cast

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
    Room,
    additive,
    causal,
    joined,
    same_sentence,
)
from dynctx.linear import Linear
from dynctx.side_by_side import filled_up, join

if TYPE_CHECKING:
    from dynctx.translators.bank import Bank

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
    memory_mask: Tensor  # [R, 1, T or 1, S], additive

    def rows(self, chosen: Tensor) -> Attended:
        return Attended([kv.rows(chosen) for kv in self.memory], self.memory_mask[chosen])

    def apart(self) -> Self:
        """The same with what each row sees in that row."""
        return self

    def joined(self, queries: int) -> Self:
        """The same for rows that stand side by side, so many queries each."""
        memory, mask = joined(self.memory, self.memory_mask, queries)
        return replace(self, memory=memory, memory_mask=mask)


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
    room: int = -1  # steps that there is room for; this one makes room as it goes

    @property
    def rows(self) -> int:
        return len(self.ancestors)

    def extend(self, tokens: Tensor) -> tuple[Tensor, Tensor, int]:
        """One more position for the tokens [R, beam]: where they stand, what they see [R, 1, beam, keys], the reach."""
        itself = torch.eye(self.beam, dtype=torch.bool, device=tokens.device).expand(len(tokens), -1, -1)
        self.ancestors = torch.cat([self.ancestors, itself], dim=2)
        self.step += 1
        return torch.full_like(tokens, self.step - 1), self.ancestors[:, None], self.step

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

    def enlarge(self) -> None:
        """Make room for more steps, where room is made beforehand."""

    def seen(self, mask: Tensor) -> Tensor:
        """The additive mask [R, 1, beam, keys] as attention is to have it."""
        return mask

    def keep(self, rows: Tensor) -> None:
        """Go on with these sentences only."""
        self.attended = self.attended.rows(rows)
        for grown in self.grown:
            grown.keep(rows)
        self.ancestors = self.ancestors[rows]


class FixedCache(Cache):
    """A cache with room for some steps, counted on the device: every step does the same work in the same place, until
    the room is used up and must be enlarged. `dynctx.replay` makes use of it. Rows stand side by side."""

    def __init__(self, beam: int, attended: Attended, layers: int, room: int) -> None:
        device, rows = attended.memory_mask.device, len(attended.memory_mask)
        self.place = torch.full((1,), -1, device=device)
        self.slots = torch.arange(-beam, 0, device=device)  # [beam] where the keys of this step lie
        self.itself = torch.eye(beam, dtype=torch.bool, device=device)
        rooms: list[Growing] = [Room(self.slots, room * beam) for _ in range(layers)]
        ancestors = torch.zeros(rows, beam, room * beam, dtype=torch.bool, device=device)
        super().__init__(beam, attended.joined(beam), rooms, ancestors, room=room)
        self.alone = attended  # the same with each row by itself

    def extend(self, tokens: Tensor) -> tuple[Tensor, Tensor, int]:
        self.place.add_(1)
        self.slots.add_(self.beam)
        self.ancestors.index_copy_(2, self.slots, self.itself.expand(len(tokens), -1, -1))
        return self.place.expand_as(tokens), self.ancestors[:, None], self.room

    def descend(self, parents: Tensor) -> None:
        index = parents[:, :, None].expand(-1, -1, self.ancestors.shape[2])
        self.ancestors.copy_(self.ancestors.gather(1, index))

    def prune(self) -> None:
        """Nothing may move."""

    def seen(self, mask: Tensor) -> Tensor:
        return join(mask, self.beam)

    def keep(self, rows: Tensor) -> None:
        self.attended = self.alone
        super().keep(rows)
        self.alone, self.attended = self.attended, self.attended.joined(self.beam)

    def enlarge(self) -> None:
        """Room for twice as many steps."""
        self.room *= 2
        self.ancestors = torch.cat([self.ancestors, torch.zeros_like(self.ancestors)], dim=2)
        for grown in cast(list[Room], self.grown):
            grown.enlarge(self.room * self.beam)


def first_room(hypotheses: int) -> int:
    """Steps to make room for at once: each enlargement is recorded anew, but every step reads all the room there is."""
    return 64 if hypotheses <= 1024 else 32 if hypotheses <= 4096 else 16


class SentNmt(nn.Module):
    """Transformer encoder-decoder over single sentences (Vaswani et al. 2017)."""

    run_length = 1  # neighbours that should share a batch in training, so that they serve each other as context
    contexts_together = 1  # sentences whose contexts share a row in translation
    lays_context = True  # candidates are read as tokens beside their sentence, not from a bank of states
    reads_targets = False  # translations of earlier sentences are context too: documents are translated in order
    needs_drafts = False  # translations by the sentence model are corrected
    only_reads_base = False  # the sentence model inside gives states, and no gradient comes back to it: it never learns
    needs_sentence_model = False  # there is nothing to learn without one to start from

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

    def base_parts(self) -> list[str]:
        """Parts that make up the sentence model."""
        return list(BASE)

    def inherit(self, new: set[str]) -> list[str]:
        """After a start from an earlier model: fill those `new` parameters that are copies of older ones.

        Returns their parts.
        """
        return []

    def sentence_model(self) -> SentNmt:
        """The sentence model inside: the same modules, without what was added to them."""
        return view(self.config, {name: part for name, part in self._modules.items() if name in BASE})

    def compile_layers(self) -> None:
        """All layers of a kind share the compiled code, so it takes seconds, not minutes."""
        for layer in [*self.encoder, *self.decoder]:
            layer.compile()

    # encoding

    def bank(self, batch: Batch, drafts: list[list[int]] | None = None, known: Bank | None = None) -> Bank | None:
        """What `encode` needs beside the batch, whatever the selection; a model that needs nothing has none.

        drafts: what the sentence model makes of each sentence, for a model that needs them. known: a bank that
        holds the states of all candidates already.
        """
        return None

    def encode(self, batch: Batch, selection: Tensor | None = None, bank: Bank | None = None) -> Memory:
        """selection [n, scope] and bank: accepted by every translator; to this one they do not matter."""
        source = batch.source
        x = self.source_embedding(source.ids, source.position, source.ids.shape[1])
        mask = additive(same_sentence(source.sentence, source.sentence), x)
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
        projected = [layer.memory_attention.project(memory.states) for layer in self.decoder_layers()]
        return Attended(projected, additive(mask, memory.states))

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
        mask = additive(causal(same_sentence(target.sentence, target.sentence)), x)
        attended = self.attend_to(memory, target.sentence)
        for number in range(len(self.decoder_layers())):
            x = self.decoder_layer(number, x, mask, attended)
        return self.finish(x, attended)

    def finish(self, x: Tensor, attended: Attended) -> Tensor:
        """From the last layer to the states that predict."""
        return self.decoder_norm(x)

    def begin(self, memory: Memory, beam: int) -> Cache:
        """Start a search; the memory must hold one sentence a row. On a GPU its steps can be replayed, and there may
        be more rows at the end, which mean nothing."""
        attended, rows, device = self.attend_to(memory, None), len(memory.states), memory.states.device
        if memory.states.is_cuda:
            return self.begin_fixed(attended, beam, first_room(rows * beam))
        ancestors = torch.zeros(rows, beam, 0, dtype=torch.bool, device=device)
        return Cache(beam, attended.apart(), [Growing() for _ in self.decoder_layers()], ancestors)

    def begin_fixed(self, attended: Attended, beam: int, room: int) -> FixedCache:
        rows = filled_up(len(attended.memory_mask), attended.memory_mask.device)
        if len(rows) > len(attended.memory_mask):
            attended = attended.rows(rows)
        return FixedCache(beam, attended, len(self.decoder_layers()), room)

    def enlarge(self, cache: Cache) -> None:
        """Make room for more steps, where room is made beforehand."""
        cache.enlarge()
        self.target_embedding.reach(cache.room)

    def step(self, cache: Cache, tokens: Tensor) -> Tensor:
        """The last tokens [R, beam] of each hypothesis -> logits [R, beam, V] of the next."""
        position, mask, reach = cache.extend(tokens)
        x = self.target_embedding(tokens, position, reach)
        mask = cache.seen(additive(mask, self.target_embedding.weight))
        for number in range(len(self.decoder_layers())):
            x = self.decoder_layer(number, x, mask, cache.attended, cache.grown[number])
        return self.output(self.finish(x, cache.attended))


def view(config: ModelConfig, parts: dict[str, nn.Module | None]) -> SentNmt:
    """A sentence model made of these modules, which stay where they are: it owns no parameter of its own."""
    model = SentNmt.__new__(SentNmt)
    nn.Module.__init__(model)
    model.config, model.scope = config, 0
    model._modules.update(parts)
    return model


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
