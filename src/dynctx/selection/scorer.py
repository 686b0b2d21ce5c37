"""The context scorer (section 3.1 of the paper): how much each candidate would help to translate a sentence.

L1 encoder layers read each pair of source and candidate; the states at <DCS> of one source sentence's candidates go
through L2 more layers, so that candidates can be weighed against each other; two linear maps and a sigmoid make the
score (eq. 2), a softmax over a sentence's candidates the probability of selection (eq. 3). In place of L1 there may be
another reader (`dynctx.selection.bags`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from dynctx.batches import Batch
from dynctx.config import ScorerConfig
from dynctx.devices import many_shapes
from dynctx.layers import Embedding, EncoderLayer, LayerSizes, product_type, same_sentence, sinusoids
from dynctx.linear import Linear
from dynctx.selection.bags import Bags
from dynctx.selection.instances import Instances, alike, gather_instances


class Scorer(nn.Module):
    """The embedding is the translator's, passed in and never copied: it is not a parameter of the scorer."""

    distances: Tensor

    def __init__(self, config: ScorerConfig, width: int, feed_forward: int, heads: int, scope: int) -> None:
        super().__init__()
        self.config, self.scope = config, scope
        self.undecided = 0.5 if config.squash else 0.0  # the score of a label that could be 1 or 0
        self.dropout = nn.Dropout(config.dropout)
        sizes = LayerSizes(width, feed_forward, heads, "post", config.dropout)
        pairs = config.reader == "pairs"
        self.pair_layers = nn.ModuleList(EncoderLayer(sizes) for _ in range(config.pair_layers if pairs else 0))
        self.bags = None if pairs else Bags(width, config.dropout)
        self.set_layers = nn.ModuleList(EncoderLayer(sizes) for _ in range(config.set_layers))
        self.hidden = Linear(width, width // 2)
        self.score = Linear(width // 2, 1)
        # NON stands at distance 0, in the last column
        order = torch.tensor([*range(1, scope + 1), 0])
        self.register_buffer("distances", sinusoids(scope + 1, width)[order], persistent=False)

    def forward(self, instances: Instances, embedding: Embedding, independent: bool = False) -> Tensor:
        """Scores [n, scope + 1], the last column NON's; in (0, 1), unless they are not to be squashed.

        `independent` keeps each candidate to itself in the upper layers, as while learning from pseudo labels.
        """
        heads = self.read_pairs(instances, embedding) if self.bags is None else self.bags(instances, embedding)
        heads = heads.to(self.score.weight.dtype)  # from here on exact again, under autocast too
        if self.config.distance_positions:
            heads = heads + self.distances.to(heads.dtype)
        seen = instances.present[:, None, None, :]
        if independent:
            seen = torch.eye(self.scope + 1, dtype=torch.bool, device=seen.device)[None, None]
        for upper in self.set_layers:
            heads = upper(heads, seen)
        with torch.autocast(heads.device.type, enabled=False):  # in bfloat16 scores near each other would be the same
            scores = self.score(self.hidden(heads.to(self.score.weight.dtype))).squeeze(-1).float()
        return torch.sigmoid(scores) if self.config.squash else scores  # eq. 2

    def read_pairs(self, instances: Instances, embedding: Embedding) -> Tensor:
        """The states at <DCS> [n, scope + 1, d], each pair by itself."""
        packed = instances.packed
        # in use, states between products are as rough as these: a good part of reading is how often memory goes by
        rough = None if torch.is_grad_enabled() else product_type(embedding.weight)
        x = self.dropout(embedding.look_up(packed.ids, packed.position, packed.ids.shape[1], rough))
        mask = same_sentence(packed.sentence, packed.sentence)
        *lower, last = cast(list[EncoderLayer], list(self.pair_layers))
        for layer in lower:
            x = layer(x, mask)
        # of the last layer only the states at <DCS> are needed: a small part of its work
        mask = same_sentence(instances.owner, packed.sentence)
        return last.at(instances.place, instances.slot, x, mask)[instances.head]

    def probabilities(self, scores: Tensor, present: Tensor) -> Tensor:
        """P_select [n, scope + 1] over the candidates that exist, NON included (eq. 3)."""
        return self.log_probabilities(scores, present).exp()

    def log_probabilities(self, scores: Tensor, present: Tensor) -> Tensor:
        """log P_select, -inf where there is no candidate."""
        return (scores / self.config.temperature).masked_fill(~present, -torch.inf).log_softmax(dim=1)


def judge(scorer: Scorer, embedding: Embedding) -> Callable[[Batch], Tensor]:
    """What a learned selector asks: P_select [n, scope + 1] of a batch, without dropout and without gradient."""

    @torch.no_grad()
    def probabilities(batch: Batch) -> Tensor:
        scorer.eval()
        found = torch.empty(len(batch), scorer.scope + 1, device=batch.origin.device)
        for part in alike(batch.origin, batch.numbers):
            instances = gather_instances(batch.origin, batch.numbers[part])
            with many_shapes():
                own = scorer.probabilities(scorer(instances, embedding), instances.present)
            found[batch.origin.to_device(part)] = own.to(found.dtype)
        return found

    return probabilities


def probability_first(probabilities: Tensor) -> Tensor:
    """[n, scope + 1] -> [n, scope]: every candidate more probable than NON."""
    return probabilities[:, :-1] > probabilities[:, -1:]


def size_first(probabilities: Tensor, present: Tensor, size: int) -> Tensor:
    """[n, scope + 1], [n, scope] -> [n, scope]: the `size` most probable candidates (all, where fewer exist)."""
    candidates = probabilities[:, :-1].masked_fill(~present, -1.0)
    rank = candidates.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    return present & (rank < size)
