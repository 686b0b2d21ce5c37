"""TDNMT's context encoders: what they make of the words of a context before the layers attend to them.

All have the words of many contexts in rows, of which some may be seen and some not, and each context is read as if it
stood alone: what is not selected has no state that anybody looks at, and no place in the order.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from dynctx.layers import Embedding, EncoderLayer, LayerSizes, additive, same_sentence


class SelfAttention(nn.Module):
    """Layers of a Transformer's encoder, with their own parameters."""

    def __init__(self, sizes: LayerSizes, layers: int) -> None:
        super().__init__()
        self.width = sizes.width
        self.layers = nn.ModuleList(EncoderLayer(sizes) for _ in range(layers))
        self.norm = nn.LayerNorm(sizes.width, eps=1e-6) if sizes.norm == "pre" else nn.Identity()

    def forward(self, embedding: Embedding, ids: Tensor, position: Tensor, sentence: Tensor) -> Tensor:
        """ids, position among the words that may be seen, and whose they are (negative: not to be seen), [R, N]."""
        x = embedding.look_up(ids, position, ids.shape[1])
        mask = additive(same_sentence(sentence, sentence), x)
        for layer in self.layers:
            x = layer(x, mask)
        return self.norm(x)


class Embeddings(nn.Module):
    """The words alone, in no order."""

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__()
        self.width = sizes.width

    def forward(self, embedding: Embedding, ids: Tensor, position: Tensor, sentence: Tensor) -> Tensor:
        return embedding.scaled(ids)


class BiLstm(nn.Module):
    """Forwards and backwards through each context; states are twice as wide. Words have an order and no positions."""

    def __init__(self, sizes: LayerSizes, layers: int) -> None:
        super().__init__()
        self.width = 2 * sizes.width
        self.lstm = nn.LSTM(sizes.width, sizes.width, layers, batch_first=True, bidirectional=True)

    def forward(self, embedding: Embedding, ids: Tensor, position: Tensor, sentence: Tensor) -> Tensor:
        seen = sentence >= 0
        owner, place = sentence[seen], position[seen]  # [words]
        lengths = torch.bincount(owner)
        words = embedding.scaled(ids)
        with torch.autocast(words.device.type, enabled=False):
            alone = words.new_zeros(len(lengths), int(lengths.max()), words.shape[2])  # [contexts, longest, d]
            alone[owner, place] = words[seen]
            packed = pack_padded_sequence(alone, lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False)
            states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
            rows = words.new_zeros(*ids.shape, self.width)
            rows[seen] = states[owner, place]
        return rows
