"""Translations drawn at random from a model, or by taking the likeliest token each time."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dynctx.replay import Replayed
from dynctx.subwords import BOS, DCS, EOS, NON, PAD, SEP, UNK
from dynctx.translators.sentence import Cache, SentNmt

NEVER = [PAD, UNK, BOS, DCS, SEP, NON]  # symbols that no translation contains
LOOK_EVERY = 8  # steps between two looks at who has ended: a look waits for the device


@dataclass(frozen=True)
class Drawn:
    """n translations with EOS, which also fills up what lies behind it."""

    tokens: Tensor  # [n, L]
    lengths: Tensor  # [n] EOS included
    log_probability: Tensor  # [n] summed over the tokens, EOS included; at temperature 1, whatever they were drawn at


class Sampler:
    """Rows still being written. `limits` [r]: the most tokens of each, EOS not counted."""

    def __init__(self, model: SentNmt, cache: Cache, limits: Tensor, longest: int, temperature: float) -> None:
        rows, device = len(limits), limits.device
        self.model, self.cache, self.limits, self.temperature = model, cache, limits, temperature
        self.step = torch.zeros(1, dtype=torch.int64, device=device)
        self.tokens = torch.full((rows, 1), BOS, device=device)
        self.drawn = torch.full((rows, longest), EOS, device=device)
        self.score = torch.zeros(rows, device=device)
        self.ended = torch.zeros(rows, dtype=torch.bool, device=device)
        self.never = torch.tensor(NEVER, device=device)
        self.uniform = torch.empty(0)  # [r, L] the random numbers of all steps

    def advance(self) -> None:
        """One token more for each row: all in place, nothing read back to the host."""
        logits = self.model.step(self.cache, self.tokens)[:, 0].float()  # [r, V]
        logits = logits.index_fill(1, self.never, -torch.inf)
        if self.temperature:
            # where a number drawn from [0, total) falls among the summed-up probabilities
            summed = (logits / self.temperature).softmax(dim=-1).cumsum(dim=1)
            number = self.uniform.index_select(1, self.step) * summed[:, -1:]
            token = torch.searchsorted(summed, number, right=True).clamp(max=logits.shape[1] - 1)
        else:
            token = logits.argmax(dim=-1, keepdim=True)
        token = token.masked_fill((self.ended | (self.step >= self.limits))[:, None], EOS)
        gained = logits.gather(1, token).squeeze(1) - torch.logsumexp(logits, dim=-1)
        self.score.add_(gained.masked_fill(self.ended, 0.0))
        self.drawn.index_copy_(1, self.step, token)
        self.tokens.copy_(token)
        self.ended.logical_or_(token[:, 0] == EOS)
        self.step.add_(1)

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows only."""
        self.cache.keep(rows)
        for name in ("limits", "tokens", "drawn", "score", "ended", "uniform"):
            setattr(self, name, getattr(self, name)[rows])


def worth_leaving(rows: int, on_gpu: bool) -> int:
    """With how few of the rows still going on it pays to go on without the others.

    On a GPU a smaller batch must be recorded anew, and below a thousand rows a step takes as long for half of them.
    """
    if not on_gpu:
        return rows // 2
    return rows // 4 if rows >= 1024 else 0


@torch.no_grad()
def draw(
    model: SentNmt,
    cache: Cache,
    limits: Tensor,
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
    longest: int = 0,
) -> Drawn:
    """A translation for each row (the cache's beam must be 1). Temperature 0: the likeliest token each time.

    longest: the largest of the limits, if it is known to the host.
    """
    longest = (longest or int(limits.max())) + 1
    going = Sampler(model, cache, limits, longest, temperature)
    if temperature:
        going.uniform = torch.rand(len(limits), longest, generator=generator, device=limits.device)
    else:
        going.uniform = torch.empty(len(limits), 0, device=limits.device)
    left = torch.arange(len(limits), device=limits.device)  # the rows still here
    tokens, score = going.drawn.clone(), going.score.clone()
    advance = Replayed(going.advance, limits.device)
    for step in range(longest):
        if step == cache.room:
            model.enlarge(cache)
            advance.changed()
        advance()
        if step % LOOK_EVERY == LOOK_EVERY - 1 and step + 1 < longest:
            alive = int((~going.ended).sum())
            if not alive:
                break
            if alive <= worth_leaving(len(left), limits.is_cuda):
                tokens[left], score[left] = going.drawn, going.score
                kept = torch.nonzero(~going.ended).squeeze(1)
                left = left[kept]
                going.keep(kept)
                advance.changed()
    tokens[left], score[left] = going.drawn, going.score
    return Drawn(tokens, (tokens != EOS).sum(dim=1) + 1, score)
