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

from dynctx.batches import Batch, Packed, _round_up, _Tokens, shifted, with_targets
from dynctx.config import ModelConfig
from dynctx.corpus import Ints
from dynctx.layers import Attention, DecoderLayer, Growing, KeyValue, LayerSizes, same_sentence
from dynctx.linear import Linear
from dynctx.subwords import BOS, EOS, SPECIAL
from dynctx.translators.bank import (
    Bank,
    BankedNmt,
    Pairs,
    Side,
    lay_pairs,
    offsets_in_rows,
    quiet,
    rounded,
    sentence_memory,
)
from dynctx.translators.context import NOT_SELECTED
from dynctx.translators.sentence import BASE, Attended, Memory, SentNmt, layer_sizes, view

LONGEST = 0.02  # share of a batch's sentences that are too long to be sampled in training
LAYOUT = 32  # the width of drafts' rows is a multiple of this


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


class Cadec(BankedNmt):
    reads_targets = True
    needs_drafts = True
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
        """Drafts are as given (one sentence a row), or as in training, or else by greedy search."""
        bank = super().bank(batch, None, known)
        base = self.sentence_model()
        if drafts is not None:
            draft = with_targets(batch, drafts)
        elif self.training:
            draft = self.draw_draft(base, batch)
        else:
            lengths = 2 * batch.plan.lengths[0] + 10
            draft = lay_draft(batch, draw(base, batch, lengths), lengths)
        with torch.no_grad():  # dropout is as in training, for this sentence's own states
            memory = base.encode(batch)
            states = base.decode(memory, draft)
        return DraftedBank(bank.numbers, bank.source, bank.target, memory, draft, states)

    def draw_draft(self, base: SentNmt, batch: Batch) -> Batch:
        """The reference with noise, or a sample of the sentence model with less noise; one draw for the batch."""
        own, vocabulary = self.config.cadec, self.output.out_features
        if float(torch.rand(())) < own.reference_drafts:  # drawn on the host: nobody waits for it
            return noisy(batch, own.reference_noise, vocabulary)
        lengths = np.ceil(1.25 * batch.plan.lengths[1]).astype(np.int64) + 2
        # the few longest would take as many steps again as all the others, and keep their references
        few = lengths > np.quantile(lengths, 1 - LONGEST, method="higher")
        sampled = draw(base, batch, np.where(few, 0, lengths), own.temperature)
        lengths = np.where(few, batch.plan.lengths[1], lengths)
        references = sentence_targets(batch)  # [n, L]
        width = max(sampled.shape[1], references.shape[1])
        sampled, references = (F.pad(x, (0, width - x.shape[1]), value=EOS) for x in (sampled, references))
        drafts = torch.where(batch.origin.to_device(few)[:, None], references, sampled)
        return noisy(lay_draft(batch, drafts, lengths), own.sample_noise, vocabulary)

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
        spare = _round_up(width) - width if sentence.is_cuda else 0  # columns of zeros
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
        return CadecAttended(base.memory, base.memory_mask, target, mask)

    def decoder_layer(
        self, number: int, x: Tensor, mask: Tensor, attended: Attended, grown: Growing | None = None
    ) -> Tensor:
        layer, seen = self.second_decoder[number], cast(CadecAttended, attended)
        return layer(x, mask, seen.memory[number], seen.memory_mask, seen.target[number], seen.target_mask, grown)

    def finish(self, x: Tensor, attended: Attended) -> Tensor:
        return self.second_norm(x)


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


def draw(base: SentNmt, batch: Batch, lengths: Ints, temperature: float = 0.0) -> Tensor:
    """[n, L] a sample of the model for each sentence, at most `lengths` tokens; temperature 0: the likeliest token.

    What comes after EOS means nothing. No value is read back to the host, so nobody leaves when it has ended; but
    the longest stand first, and those that have all their tokens are cut off when they are half of the batch.
    """
    order = np.argsort(-lengths, kind="stable")
    order_t = batch.origin.to_device(order)
    live, longest = len(order), int(lengths.max())
    with quiet(base), torch.compiler.set_stance("force_eager"):
        memory = sentence_memory(batch, base.encode(batch))
        cache = base.begin(Memory(memory.states[order_t], memory.sentence[order_t]), 1)
        tokens = torch.full((live, 1), BOS, device=order_t.device)
        drawn = torch.full((live, longest), EOS, device=order_t.device)
        for step in range(longest):
            left = int((lengths > step).sum())
            if 2 * left <= live:
                cache.keep(torch.arange(left, device=tokens.device))
                tokens, live = tokens[:left], left
            logits = base.step(cache, tokens)[:, 0].float()  # [live, V]
            logits[:, :EOS] = logits[:, EOS + 1 : len(SPECIAL)] = -torch.inf  # no draft contains the other symbols
            if temperature:  # the highest of scores with Gumbel noise is a draw from their softmax
                logits = logits / temperature - torch.empty_like(logits).exponential_().log()
            tokens = logits.argmax(dim=-1, keepdim=True)
            drawn[:live, step] = tokens[:, 0]
    return torch.empty_like(drawn).index_copy_(0, order_t, drawn)


def lay_draft(batch: Batch, drawn: Tensor, lengths: Ints) -> Batch:
    """Drafts [n, L] of at most these lengths as the targets of a batch, each in its sentence's row."""
    row, rows = batch.plan.row, len(batch.source.ids)
    offset = offsets_in_rows(row, lengths)
    width = _round_up((offset + lengths).max(), LAYOUT)
    size_t, row_t, offset_t = batch.origin.to_device(np.stack([lengths, row, offset]))
    tokens = _Tokens.lay(size_t, row_t, offset_t, width, int(lengths.sum()))
    ends = drawn == EOS
    ended = (ends.cumsum(dim=1) - ends.long() > 0)[tokens.sentence, tokens.position]  # after its EOS
    target = Packed(
        tokens.scatter(drawn[tokens.sentence, tokens.position], rows, width, EOS),
        tokens.scatter(torch.where(ended, -1, tokens.sentence), rows, width, -1),
        tokens.scatter(tokens.position, rows, width, 0),
    )
    return replace(batch, target=target, prefix=shifted(target))
