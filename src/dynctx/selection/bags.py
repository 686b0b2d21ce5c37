"""Another reader for the context scorer, not the paper's: mean word vectors of sentence and candidate, compared.

What the paper's scorer has to find out by attention from nothing, that two sentences speak of the same things, lies
open in the translator's word vectors. No pair goes through a layer of its own, so reading costs next to nothing.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dynctx.layers import Embedding
from dynctx.linear import Linear
from dynctx.selection.instances import Instances
from dynctx.subwords import SEP


class Bags(nn.Module):
    """A pair's state, of the mean vectors a and b of its two sides and of their lengths in words, which means do not
    show: relu(W [a; b; a * b; |a - b|; log l_a; log l_b])."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.project = Linear(width, width)
        self.compare = Linear(4 * width + 2, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, instances: Instances, embedding: Embedding) -> Tensor:
        """[n, scope + 1, d]"""
        means, lengths = mean_vectors(instances, embedding)  # [I, 2, d], [I, 2]
        a, b = self.project(F.layer_norm(means, means.shape[2:])).unbind(1)
        compared = torch.cat([a, b, a * b, (a - b).abs(), lengths.log().to(a.dtype)], dim=1)
        states = self.dropout(self.compare.rectified(compared))
        return states[instances.head]


def mean_vectors(instances: Instances, embedding: Embedding) -> tuple[Tensor, Tensor]:
    """[I, 2, d] of the words between <DCS> and <SEP> and of those behind; how many these are [I, 2], at least 1."""
    packed, room = instances.packed, len(instances.place)
    ids, position, whose = (x.flatten() for x in (packed.ids, packed.position, packed.sentence))
    whose = torch.where(whose >= 0, whose, room)  # padding has a place of its own, and so have <DCS> and <SEP>
    border = torch.zeros(room + 1, dtype=torch.int64, device=ids.device)
    border.index_add_(0, whose, torch.where(ids == SEP, position, 0))
    behind = position - border[whose]
    place = 2 * torch.where((position == 0) | (behind == 0), room, whose) + (behind > 0)
    vectors = embedding.scaled(ids)  # [R L, d]
    sums = vectors.new_zeros(2 * room + 2, vectors.shape[1]).index_add_(0, place, vectors)
    counts = vectors.new_zeros(2 * room + 2).index_add_(0, place, torch.ones_like(vectors[:, 0])).clamp(min=1)
    return (sums / counts[:, None]).view(room + 1, 2, -1)[:-1], counts.view(room + 1, 2)[:-1]
