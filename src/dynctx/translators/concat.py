"""concat: the selected sentences joined to the source (Tiedemann and Scherrer 2017), n sentences in, one out.

    z_k <SEP> ... z_1 <SEP> x_1 .. x_I </s>

The network is the sentence model's; only its input grows. An empty selection is a sentence-level input.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dynctx.batches import Batch
from dynctx.config import ModelConfig
from dynctx.layers import additive, same_sentence
from dynctx.subwords import EOS, SEP
from dynctx.translators.bank import Bank
from dynctx.translators.context import candidates_of, owners, positions, selected_tokens
from dynctx.translators.sentence import Memory, SentNmt


class Concat(SentNmt):
    def __init__(self, config: ModelConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__(config, source_vocabulary, target_vocabulary)
        self.scope = config.scope

    def encode(self, batch: Batch, selection: Tensor | None = None, bank: Bank | None = None) -> Memory:
        context, selection = candidates_of(batch, selection)
        source = batch.source
        visible = selected_tokens(context, selection)  # [R, N]
        sentence = torch.cat([owners(context, visible), source.sentence], dim=1)  # [R, N + S]
        ids = torch.cat([context.ids.masked_fill(context.ids == EOS, SEP), source.ids], dim=1)
        # a source position counts from the first selected token
        lengths = torch.zeros(len(batch), dtype=torch.int64, device=visible.device)
        lengths.index_add_(0, context.sentence.clamp(min=0).flatten(), visible.long().flatten())
        shift = torch.where(source.sentence >= 0, lengths[source.sentence.clamp(min=0)], 0)
        position = torch.cat([positions(context, visible), source.position + shift], dim=1)
        x = self.source_embedding(ids, position, ids.shape[1])
        mask = additive(same_sentence(sentence, sentence), x)
        for layer in self.encoder:
            x = layer(x, mask)
        return Memory(self.encoder_norm(x), sentence)
