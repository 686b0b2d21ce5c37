"""Translations drawn at random from a model, or by taking the likeliest token each time."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from dynctx.packing import round_up
from dynctx.replay import Replayed
from dynctx.side_by_side import ROWS
from dynctx.subwords import BOS, DCS, EOS, NON, PAD, SEP, UNK
from dynctx.translators.sentence import Cache, SentNmt

NEVER = [PAD, UNK, BOS, DCS, SEP, NON]  # symbols that no translation contains
BLOCK = 128  # tokens whose probabilities are summed up first
LOOK_EVERY = 8  # steps between two looks at who has ended: a look waits for the device


@dataclass(frozen=True)
class Drawn:
    """n translations with EOS, which also fills up what lies behind it."""

    tokens: Tensor  # [n, L]
    lengths: Tensor  # [n] EOS included
    log_probability: Tensor  # [n] summed over the tokens, EOS included, at temperature 1 whatever they were drawn at;
    # 0 where nobody wants to know, and not a number where the model's scores are none


class Sampler:
    """Rows still being written. `limits` [r]: the most tokens of each, EOS not counted."""

    def __init__(
        self, model: SentNmt, cache: Cache, limits: Tensor, longest: int, temperature: float, scored: bool
    ) -> None:
        rows, device = len(limits), limits.device
        self.model, self.cache, self.limits, self.temperature = model, cache, limits, temperature
        self.scored = scored
        self.step = torch.zeros(1, dtype=torch.int64, device=device)
        self.tokens = torch.full((rows, 1), BOS, device=device)
        self.drawn = torch.full((rows, longest), EOS, device=device)
        self.score = torch.zeros(rows, device=device)
        self.ended = torch.zeros(rows, dtype=torch.bool, device=device)
        self.never = torch.tensor(NEVER, device=device)
        self.uniform = torch.empty(0)  # [r, L] the random numbers of all steps

    def advance(self) -> None:
        """One token more for each row: all in place, nothing read back to the host."""
        logits = self.model.step(self.cache, self.tokens)[:, 0]  # [r, V]
        logits.index_fill_(1, self.never, -torch.inf)
        if self.temperature:
            chances = self.scaled(logits).softmax(dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))
            token = pick(chances, self.uniform.index_select(1, self.step))
        else:
            highest, token = logits.max(dim=-1, keepdim=True)
            self.score.add_((highest - highest).squeeze(1))  # nothing, but where it is no number
        token = token.masked_fill((self.ended | (self.step >= self.limits))[:, None], EOS)
        if self.scored:
            logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
            gained = logits.gather(1, token).squeeze(1) - torch.logsumexp(logits, dim=-1)
            self.score.add_(gained.masked_fill(self.ended, 0.0))
        self.drawn.index_copy_(1, self.step, token)
        self.tokens.copy_(token)
        self.ended.logical_or_(token[:, 0] == EOS)
        self.step.add_(1)

    def scaled(self, logits: Tensor) -> Tensor:
        """Over the temperature; by a power of two in their own type, which is exact."""
        if self.temperature == 1:
            return logits
        exact = math.frexp(self.temperature)[0] == 0.5
        return (logits if exact else logits.to(torch.promote_types(logits.dtype, torch.float32))) / self.temperature

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows only."""
        self.cache.keep(rows)
        for name in ("limits", "tokens", "drawn", "score", "ended", "uniform"):
            setattr(self, name, getattr(self, name)[rows])


def pick(chances: Tensor, uniform: Tensor) -> Tensor:
    """Draws [r, 1] from the probabilities [r, V]: where a number of [0, 1) falls among their sums.

    First the block in which it falls, then the place there: what is summed up step by step is short, which takes a
    fraction of the time. Nothing that has no chance is ever drawn.
    """
    if over := chances.shape[1] % BLOCK:  # even padding with nothing would copy all of it
        chances = F.pad(chances, (0, BLOCK - over))
    blocks = chances.unflatten(1, (-1, BLOCK))  # [r, B, BLOCK]
    sums = blocks.sum(dim=2)
    block, left = fall(sums, uniform.to(sums.dtype) * sums.sum(dim=1, keepdim=True))
    inside = blocks.gather(1, block[:, :, None].expand(-1, -1, BLOCK)).squeeze(1)
    return block * BLOCK + fall(inside, left)[0]


def fall(sizes: Tensor, number: Tensor) -> tuple[Tensor, Tensor]:
    """Pieces of these sizes [r, k] lie end to end: the one in which the number [r, 1] falls, and how far inside it.

    Rounding may put the number before the first or behind the last, or into one of no size: then it is the largest.
    """
    ends = sizes.cumsum(dim=1)
    which = torch.searchsorted(ends, number, right=True).clamp(max=sizes.shape[1] - 1)
    which = torch.where(sizes.gather(1, which) > 0, which, sizes.argmax(dim=1, keepdim=True))
    return which, number - (ends.gather(1, which) - sizes.gather(1, which))


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
    longest: int = 0,
    scored: bool = True,
    meanwhile: Callable[[], None] | None = None,
) -> Drawn:
    """A translation for each row (the cache's beam must be 1). Temperature 0: the likeliest token each time.

    longest: the largest of the limits, if it is known to the host; scored: with their log-probabilities; `meanwhile` is
    done once, where there is a device to wait for that is busy.
    """
    longest, wanted = (longest or int(limits.max())) + 1, len(limits)
    uniform = torch.rand(wanted, longest if temperature else 0, device=limits.device)
    more = cache.rows - wanted  # rows that fill up the cache end at once
    limits = F.pad(limits, (0, more))
    going = Sampler(model, cache, limits, longest, temperature, scored)
    going.uniform = F.pad(uniform, (0, 0, 0, more))
    left = torch.arange(len(limits), device=limits.device)  # the rows still here
    tokens, score = going.drawn.clone(), going.score.clone()
    advance = Replayed(going.advance, limits.device, cache.rows)
    for step in range(longest):
        if step == cache.room:
            model.enlarge(cache)
            advance.changed(len(left))
        advance()
        if step % LOOK_EVERY == LOOK_EVERY - 1 and step + 1 < longest:
            if meanwhile is not None and limits.is_cuda:
                meanwhile()
                meanwhile = None
            alive = int((~going.ended).sum())
            if not alive:
                break
            kept_rows = round_up(alive, ROWS) if cache.room >= 0 else alive  # a cache with room stands side by side
            if alive <= worth_leaving(len(left), limits.is_cuda) and kept_rows < len(left):
                tokens[left], score[left] = going.drawn, going.score
                kept = torch.argsort(going.ended, stable=True)[:kept_rows]  # the living first
                left = left[kept]
                going.keep(kept)
                advance.changed(len(left))
    tokens[left], score[left] = going.drawn, going.score
    tokens, score = tokens[:wanted], score[:wanted]
    return Drawn(tokens, (tokens != EOS).sum(dim=1) + 1, score)
