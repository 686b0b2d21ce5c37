"""CADec (Voita et al., ACL 2019): a second decoder that corrects a draft of the sentence model.

The sentence model, frozen, gives encoder states of the source and of the selected sentences, a draft translation, and
decoder states of the draft and of the selected sentences' translations. The second decoder attends to both banks of
states, each marked with the distance of its sentence (0: this one), and writes the translation anew. With nothing
selected the banks hold the source and the draft alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dynctx.batches import Batch, retargeted, shifted
from dynctx.config import ModelConfig
from dynctx.corpus import Ints
from dynctx.layers import Attention, DecoderLayer, Growing, KeyValue, LayerSizes, additive, joined, same_sentence
from dynctx.linear import Linear
from dynctx.packing import round_up
from dynctx.subwords import EOS, SPECIAL
from dynctx.translators.bank import (
    Bank,
    BankedNmt,
    Pairs,
    Side,
    candidates,
    lay_pairs,
    own_memory,
    quiet,
    rounded,
    sentence_memory,
)
from dynctx.translators.context import NOT_SELECTED
from dynctx.translators.sampling import draw
from dynctx.translators.sentence import BASE, Attended, Memory, SentNmt, layer_sizes, view

LONGEST = 0.02  # share of a batch's sentences that are too long to be sampled in training


class BankAttention(Attention):
    """Attention whose keys come from a bank that may be wider than its weight, by columns of zeros."""

    def project(self, states: Tensor) -> KeyValue:
        linear = self.key_value
        if states.shape[-1] == linear.in_features:
            return super().project(states)
        weight = F.pad(linear.weight, (0, states.shape[-1] - linear.in_features))
        key, value = F.linear(states, weight, linear.bias).chunk(2, dim=-1)
        return KeyValue(self._split(key), self._split(value))


class SecondLayer(DecoderLayer):
    """Masked self-attention, attention to the source bank, attention to the target bank, feed-forward."""

    def __init__(self, sizes: LayerSizes, distances: int) -> None:
        super().__init__(sizes)
        width, heads, dropout = sizes.width, sizes.heads, sizes.attention_dropout
        self.memory_attention = BankAttention(width, heads, dropout, keys_from=width + distances)
        self.target_attention = BankAttention(width, heads, dropout, keys_from=2 * width + distances)
        self.target_residual = type(self.memory_residual)(sizes)

    def forward(  # type: ignore[override]
        self,
        x: Tensor,
        mask: Tensor,
        memory: KeyValue,
        memory_mask: Tensor,
        target: KeyValue,
        target_mask: Tensor,
        cache: Growing | None = None,
    ) -> Tensor:
        x = self.consult(self.attend(x, mask, cache), memory, memory_mask)
        change = self.target_attention(self.target_residual.before(x), target_mask, target)
        return self.transform(self.target_residual.after(x, change))


@dataclass(frozen=True)
class DraftedBank(Bank):
    """A bank, and what the sentence model makes of the batch itself."""

    memory: Memory  # [R, S, d] encoder states
    draft: Batch  # the same sentences with their drafts as targets, [R, D]
    draft_states: Tensor  # [R, D, d] decoder states


@dataclass
class CadecMemory(Memory):
    """`states` is the source bank [R, S + N, d + scope + 1]; on a GPU, which wants it so, a multiple of 8 wide."""

    target: Tensor  # [R, D + M, 2 d + scope + 1], likewise
    target_sentence: Tensor  # [R, D + M]


@dataclass
class CadecAttended(Attended):
    target: list[KeyValue]  # one a layer
    target_mask: Tensor  # [R, 1, T or 1, D + M]

    def rows(self, chosen: Tensor) -> CadecAttended:
        base, target = super().rows(chosen), [kv.rows(chosen) for kv in self.target]
        return CadecAttended(base.memory, base.memory_mask, target, self.target_mask[chosen])

    def joined(self, queries: int) -> CadecAttended:
        target, mask = joined(self.target, self.target_mask, queries)
        return replace(super().joined(queries), target=target, target_mask=mask)


class Cadec(BankedNmt):
    reads_targets = True
    needs_drafts = True
    only_reads_base = True
    needs_sentence_model = True

    def __init__(self, config: ModelConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__(config, source_vocabulary, target_vocabulary)
        sizes = replace(layer_sizes(config), norm="pre")
        self.second_decoder = nn.ModuleList(SecondLayer(sizes, config.scope + 1) for _ in self.decoder)
        self.second_norm = nn.LayerNorm(config.width, eps=1e-6)
        self.base_output = self.output
        self.output = Linear(config.width, target_vocabulary, bias=False)

    def base_parts(self) -> list[str]:
        return [*(name for name in BASE if name != "output"), "base_output"]

    def frozen_in_stage_two(self) -> list[str]:
        return self.base_parts()

    def inherit(self, new: set[str]) -> list[str]:
        """The output layer starts as the sentence model's, whose own is either tied or copied to `output`."""
        with torch.no_grad():
            if "base_output.weight" in new:
                self.base_output.weight.copy_(self.output.weight)
                return ["base_output"]
            if "output.weight" in new:
                self.output.weight.copy_(self.base_output.weight)
                return ["output"]
        return []

    def sentence_model(self) -> SentNmt:
        parts = {name: part for name, part in self._modules.items() if name in BASE}
        return view(self.config, {**parts, "output": self.base_output})

    def compile_layers(self) -> None:
        super().compile_layers()
        for layer in self.second_decoder:
            layer.compile()

    # what the sentence model gives

    def bank(self, batch: Batch, drafts: list[list[int]] | None = None, known: Bank | None = None) -> DraftedBank:
        """Drafts are as given, or as in training, or else by greedy search."""
        drawn = drafts is None and self.training
        # one draw for the batch, on the host: nobody waits for it
        sampled = drawn and float(torch.rand(())) >= self.config.cadec.reference_drafts
        if sampled and known is None:  # with the batch's own sentences, which are encoded here for their samples too
            numbers = np.union1d(candidates(batch, self.scope), batch.numbers)
            known = self.bank_of(batch.origin, numbers, batch.source.ids.shape[1])
        bank = super().bank(batch, None, known)
        base = self.sentence_model()
        if drafts is not None:
            draft = drafted(batch, drafts)
        elif sampled:
            draft = self.sampled_draft(base, batch, bank)
        elif drawn:
            draft = noisy(batch, self.config.cadec.reference_noise, self.output.out_features)
        else:
            draft = retargeted(batch, np.arange(len(batch)), *drafts_of(base, batch, 2 * batch.plan.lengths[0] + 10))
        with torch.no_grad():  # dropout is as in training, for this sentence's own states
            memory = base.encode(batch)
            states = base.decode(memory, draft)
        return DraftedBank(bank.numbers, bank.source, bank.target, memory, draft, states)

    def sampled_draft(self, base: SentNmt, batch: Batch, bank: Bank) -> Batch:
        """A sample of the sentence model, with less noise than references get."""
        own, vocabulary = self.config.cadec, self.output.out_features
        limits = np.ceil(1.25 * batch.plan.lengths[1]).astype(np.int64) + 1
        # the few longest would take as many steps again as all the others, and keep their references
        few = limits > np.quantile(limits, 1 - LONGEST, method="higher")
        memory = own_memory(batch, bank)  # encoded already, without dropout
        sampled, room, lengths = drafts_of(base, batch, np.where(few, 0, limits), own.temperature, memory)
        references = sentence_targets(batch)  # [n, L]
        width = max(sampled.shape[1], references.shape[1])
        sampled, references = (F.pad(x, (0, width - x.shape[1]), value=EOS) for x in (sampled, references))
        kept, theirs = batch.origin.to_device(few), batch.plan.lengths[1]
        drafts = torch.where(kept[:, None], references, sampled)
        lengths = torch.where(kept, batch.origin.to_device(theirs), lengths)
        laid = retargeted(batch, np.arange(len(batch)), drafts, np.where(few, theirs, room), lengths)
        return noisy(laid, own.sample_noise, vocabulary)

    # the second decoder

    def encode(self, batch: Batch, selection: Tensor | None = None, bank: Bank | None = None) -> CadecMemory:
        drafted = bank if isinstance(bank, DraftedBank) else self.bank(batch, known=bank)
        selection = self.allowed(batch, selection)
        memory, draft = drafted.memory, drafted.draft.target
        assert drafted.target is not None
        states, sentence = self.lay(batch, drafted, drafted.source, selection, [memory.states], memory.sentence)
        said = F.embedding(draft.ids, self.target_embedding.weight)
        target, target_sentence = self.lay(
            batch, drafted, drafted.target, selection, [said, drafted.draft_states], draft.sentence
        )
        return CadecMemory(states.detach(), sentence, target.detach(), target_sentence)

    def lay(
        self, batch: Batch, bank: Bank, side: Side, selection: Tensor, own: list[Tensor], sentence: Tensor
    ) -> tuple[Tensor, Tensor]:
        """This sentence's states beside those of its candidates, each with its distance as a one-hot vector.

        own: [R, L, d] each, sentence [R, L] -> [R, L + N, width], and whose they are [R, L + N]
        """
        pairs: Pairs = lay_pairs(batch, bank, side, self.scope)
        past = [side.states[pairs.index]]
        if side.said is not None:
            past.insert(0, F.embedding(side.said[pairs.index], self.target_embedding.weight))
        known = selection.shape[1]
        chosen = selection[pairs.sentence.clamp(min=0), (pairs.distance - 1).clamp(0, known - 1)]
        chosen &= (pairs.sentence >= 0) & (pairs.distance <= known)
        owner = torch.where(chosen, pairs.sentence, NOT_SELECTED)
        distance = torch.cat([torch.zeros_like(sentence), pairs.distance], dim=1)
        width = sum(x.shape[-1] for x in past) + self.scope + 1
        spare = round_up(width) - width if sentence.is_cuda else 0  # columns of zeros
        mark = distance[..., None] == torch.arange(self.scope + 1 + spare, device=distance.device)
        both = [torch.cat([rounded(x), rounded(y)], dim=1) for x, y in zip(own, past)]
        return torch.cat([*both, mark.to(both[0].dtype)], dim=2), torch.cat([sentence, owner], dim=1)

    def decoder_layers(self) -> list[DecoderLayer]:
        return cast(list[DecoderLayer], list(self.second_decoder))

    def attend_to(self, memory: Memory, queries: Tensor | None) -> CadecAttended:
        base, memory = super().attend_to(memory, queries), cast(CadecMemory, memory)
        if queries is None:
            mask = (memory.target_sentence >= 0)[:, None, None, :]
        else:
            mask = same_sentence(queries, memory.target_sentence)
        layers = cast(list[SecondLayer], list(self.second_decoder))
        target = [layer.target_attention.project(memory.target) for layer in layers]
        return CadecAttended(base.memory, base.memory_mask, target, additive(mask, memory.states))

    def decoder_layer(
        self, number: int, x: Tensor, mask: Tensor, attended: Attended, grown: Growing | None = None
    ) -> Tensor:
        layer, seen = self.second_decoder[number], cast(CadecAttended, attended)
        return layer(x, mask, seen.memory[number], seen.memory_mask, seen.target[number], seen.target_mask, grown)

    def finish(self, x: Tensor, attended: Attended) -> Tensor:
        return self.second_norm(x)


def drafted(batch: Batch, drafts: list[list[int]]) -> Batch:
    """The batch with these translations (ids without EOS) in the place of its targets."""
    room = np.array([len(ids) + 1 for ids in drafts])
    padded = np.full((len(drafts), room.max()), EOS)
    for place, ids in zip(padded, drafts):
        place[: len(ids)] = ids
    return retargeted(batch, np.arange(len(batch)), batch.origin.to_device(padded), room)


def noisy(batch: Batch, share: float, vocabulary: int) -> Batch:
    """Some inner words of the targets are replaced by random words; never the first, nor what ends them."""
    target = batch.target
    following = F.pad(target.sentence[:, 1:], (0, 1), value=-1)
    inner = (target.sentence >= 0) & (target.position > 0) & (following == target.sentence)
    chosen = inner & (torch.rand(target.ids.shape, device=target.ids.device) < share)
    words = torch.randint_like(target.ids, len(SPECIAL), vocabulary)
    target = replace(target, ids=torch.where(chosen, words, target.ids))
    return replace(batch, target=target, prefix=shifted(target))


def sentence_targets(batch: Batch) -> Tensor:
    """[n, L] the targets with one sentence a row; what comes after EOS means nothing."""
    lengths, width = batch.plan.lengths[1], batch.target.ids.shape[1]
    begins = batch.origin.to_device(batch.plan.row * width + batch.plan.offsets[1])
    index = begins[:, None] + torch.arange(int(lengths.max()), device=begins.device)
    return batch.target.ids.flatten()[index.clamp(max=batch.target.ids.numel() - 1)]


def drafts_of(
    base: SentNmt, batch: Batch, limits: Ints, temperature: float = 0.0, memory: Memory | None = None
) -> tuple[Tensor, Ints, Tensor]:
    """[n, L] a sample of the model for each sentence, with EOS, at most `limits` tokens before it; the room that takes,
    and the lengths. Temperature 0: the likeliest token each time. memory: of the sentences, one a row, if it is known.

    What is laid out later has a place for all that may come, and so does not depend on what the others say.
    """
    longest = int(limits.max())
    with quiet(base), torch.compiler.set_stance("force_eager"):
        cache = base.begin(memory or sentence_memory(batch, base.encode(batch)), 1)
        drawn = draw(base, cache, batch.origin.to_device(limits), temperature, longest=longest, scored=False)
    return drawn.tokens, limits + 1, drawn.lengths
