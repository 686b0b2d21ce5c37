"""Beam search over the rows of a batch; finished sentences leave it, and the rest goes on in a smaller one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dynctx.errors import DynctxError
from dynctx.packing import round_up
from dynctx.replay import Replayed
from dynctx.side_by_side import ROWS
from dynctx.subwords import BOS, EOS
from dynctx.translators.sampling import NEVER
from dynctx.translators.sentence import Cache, SentNmt

LOOK_EVERY = 4  # steps between two looks at who is done, on a GPU: a look waits for it
PRUNE_EVERY = 8  # steps between two looks at which keys are still needed
SMALLEST = 16  # rows below which a smaller batch is no faster
ROWWISE = ("number", "limits", "tokens", "history", "scores", "done", "best_penalised", "best_score", "best_ids")


@dataclass(frozen=True)
class Hypothesis:
    """One translation: ids without EOS, and its log-probability (sum over tokens, EOS included)."""

    ids: list[int]
    log_probability: float


def length_penalty(length: Any, alpha: float) -> Any:
    """((5 + n) / 6) ** alpha: what a hypothesis' log-probability is divided by. n counts EOS."""
    return ((5.0 + length) / 6.0) ** alpha


@dataclass(frozen=True)
class Found:
    """What a search has found, on the host: number, ids and score of rows as they left, so many of them wanted."""

    left: list[tuple[Tensor, Tensor, Tensor]]
    wanted: int

    def hypotheses(self) -> list[Hypothesis]:
        """In the order of the rows."""
        results: dict[int, Hypothesis] = {}
        for numbers, ids, scores in self.left:
            check_numbers(scores.tolist())
            lengths = (ids != EOS).sum(dim=1)  # EOS is what comes after a translation, and nowhere in it
            for number, own, length, score in zip(numbers.tolist(), ids.numpy(), lengths.tolist(), scores.tolist()):
                results[number] = Hypothesis(own[:length].tolist(), score)
        return [results[row] for row in range(self.wanted)]


def check_numbers(scores: list[float]) -> None:
    """Weights that are no numbers, or too large, would end every translation at once, and nobody would know."""
    if any(math.isnan(score) for score in scores):
        raise DynctxError("the model's scores are no numbers: its weights are damaged, or its training went astray")


class BeamSearch:
    """Beam search over the rows of a batch; beam 1 is greedy search.

    Each step ranks all continuations of a row's hypotheses. One that ends and ranks among the first `beam` is
    finished and competes by penalised score; the best `beam` that do not end live on. A row is done when no live
    hypothesis can overtake its best finished one, or at its limit, where ending is forced.
    """

    def __init__(self, model: SentNmt, cache: Cache, limits: Tensor, alpha: float, forced_length: int = 0) -> None:
        """limits [R]: the most tokens of each translation, EOS not counted. `forced_length` is for benchmarks."""
        rows, beam, device = cache.rows, cache.beam, limits.device
        self.wanted = len(limits)
        limits = F.pad(limits, (0, rows - len(limits)))  # what only fills up the cache ends at once
        self.model, self.cache, self.beam, self.alpha = model, cache, beam, alpha
        self.limits, self.forced_length = limits, forced_length
        self.longest = int(limits.max()) + 1
        self.never, self.step = torch.tensor(NEVER, device=device), torch.zeros(1, dtype=torch.int64, device=device)
        self.number = torch.arange(rows, device=device)  # [r] the input row of each row still here
        self.tokens = torch.full((rows, beam), BOS, device=device)
        self.history = torch.full((rows, beam, self.longest), EOS, device=device)  # EOS where nothing is said yet
        self.scores = torch.full((rows, beam), -torch.inf, dtype=torch.float64, device=device)
        self.scores[:, 0] = 0.0  # one live hypothesis to begin with, or all would be the same
        self.best_penalised = torch.full_like(self.scores[:, 0], -torch.inf)
        self.best_score = torch.full_like(self.best_penalised, torch.nan)  # until there is one
        self.best_ids = torch.full((rows, self.longest), EOS, device=device)
        self.done = torch.zeros(rows, dtype=torch.bool, device=device)
        self.left: list[tuple[Tensor, Tensor, Tensor]] = []  # number, ids and score of rows that are done
        self.on_gpu = limits.is_cuda

    def run(self) -> list[Hypothesis]:
        return self.search().hypotheses()

    def search(self, meanwhile: Callable[[], None] | None = None) -> Found:
        """`meanwhile` is done once, where there is a device to wait for that is busy with the search."""
        advance = Replayed(self.advance, self.limits.device, self.cache.rows * self.beam)
        for step in range(self.longest):
            if step == self.cache.room:
                self.model.enlarge(self.cache)
                advance.changed(len(self.number) * self.beam)
            advance()
            if self.beam > 1 and step % PRUNE_EVERY == PRUNE_EVERY - 1:
                self.cache.prune()
            if self.on_gpu and step % LOOK_EVERY != LOOK_EVERY - 1 and step + 1 < self.longest:
                continue
            if self.on_gpu and meanwhile is not None:
                meanwhile()
                meanwhile = None
            here = len(self.number)
            if self.leave():
                break
            if len(self.number) < here:
                advance.changed(len(self.number) * self.beam)
        return Found([(number.cpu(), ids.cpu(), score.cpu()) for number, ids, score in self.left], self.wanted)

    def advance(self) -> None:
        """One token more for each hypothesis: all in place, nothing read back to the host."""
        scores, hypothesis, token = self.candidates()
        ends = token == EOS
        at_limit = self.step >= self.limits
        self.finish(scores, hypothesis, ends, at_limit)
        # the best that do not end live on
        best, chosen = scores.masked_fill(ends, -torch.inf).topk(self.beam, dim=1)
        parents = hypothesis.gather(1, chosen)
        self.scores.copy_(best)
        self.tokens.copy_(token.gather(1, chosen))
        self.cache.descend(parents)
        past = self.history.gather(1, parents[:, :, None].expand_as(self.history))
        self.history.copy_(past.index_copy_(2, self.step, self.tokens[:, :, None]))
        if self.beam == 1:  # greedy search ends with the first end
            overtaken = self.best_penalised > -torch.inf
        else:  # scores only fall, so a live hypothesis at best keeps its score up to the limit
            overtaken = self.best_penalised >= self.scores[:, 0] / length_penalty(self.limits + 1.0, self.alpha)
        self.done.logical_or_(at_limit | overtaken)
        self.step.add_(1)

    def candidates(self) -> tuple[Tensor, Tensor, Tensor]:
        """The best continuations of each row, best first: score, hypothesis and token, [r, 2 beam + beam].

        The last `beam` are the ends of every hypothesis, wherever they rank: a row at its limit must end.
        """
        logits = self.model.step(self.cache, self.tokens)
        logits = logits.float() if logits.dtype != torch.float64 else logits
        logits.index_fill_(2, self.never, -torch.inf)
        if self.forced_length:
            logits[:, :, EOS] = torch.where(self.step < self.forced_length, -torch.inf, 1e4)
        width = min(2 * self.beam, logits.shape[2])
        top, token = logits.topk(width, dim=2)  # [r, beam, 2 beam]: no more can matter
        ending, highest = logits[:, :, EOS].clone(), top[:, :, :1]
        # log of the summed exponentials, in place and with the highest known: several times as fast as logsumexp
        normaliser = self.scores - highest.squeeze(2) - logits.sub_(highest).exp_().sum(dim=2).log()  # [r, beam]
        scores = (top + normaliser[:, :, None]).flatten(1)
        scores, chosen = scores.topk(min(2 * self.beam, scores.shape[1]), dim=1)
        hypothesis, token = chosen // width, token.flatten(1).gather(1, chosen)
        endings = ending + normaliser
        return (
            torch.cat([scores, endings], dim=1),
            torch.cat([hypothesis, torch.arange(self.beam, device=chosen.device).expand_as(endings)], dim=1),
            torch.cat([token, torch.full_like(endings, EOS, dtype=torch.int64)], dim=1),
        )

    def finish(self, scores: Tensor, hypothesis: Tensor, ends: Tensor, at_limit: Tensor) -> None:
        ranked = torch.arange(scores.shape[1], device=scores.device) < self.beam
        counts = ends & (ranked | at_limit[:, None])
        score, which = scores.masked_fill(~counts, -torch.inf).max(dim=1)
        penalised = score / length_penalty(self.step + 1.0, self.alpha)
        better = (penalised > self.best_penalised) & ~self.done
        parent = hypothesis.gather(1, which[:, None])
        ids = self.history.gather(1, parent[:, :, None].expand(-1, -1, self.longest)).squeeze(1)
        self.best_ids.copy_(torch.where(better[:, None], ids, self.best_ids))
        self.best_score.copy_(torch.where(better, score, self.best_score))
        self.best_penalised.copy_(torch.where(better, penalised, self.best_penalised))

    def leave(self) -> bool:
        """Go on with a smaller batch once enough rows are done to pay for the copy. True: all are done.

        On a GPU a step of another shape must be recorded anew, so a batch becomes a quarter there or stays, and is
        filled up with rows that are done already.
        """
        size, live = len(self.done), int((~self.done).sum())
        if live:
            quarter = size
            while quarter >= 4 * max(live, SMALLEST):
                quarter = round_up(quarter // 4, ROWS)
            smaller = quarter if self.on_gpu else live
            if smaller * 8 > size * 7:
                return False
        else:
            smaller = 0
        order = torch.argsort(self.done, stable=True)  # live rows first
        gone = order[smaller:]
        self.left.append((self.number[gone], self.best_ids[gone], self.best_score[gone]))
        if not live:
            return True
        left = order[:smaller].sort().values
        self.cache.keep(left)
        for name in ROWWISE:
            setattr(self, name, getattr(self, name)[left])
        return False
