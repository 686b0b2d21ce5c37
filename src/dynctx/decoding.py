"""Search: greedy, beam and sampling, by one code path for validation, evaluation and use.

Sentences are sorted by length into batches and their translations put back in order, so the result does not
depend on the batch size. Finished sentences leave their batch, and the rest goes on in a smaller one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from dynctx.batches import Batch, Gatherer, with_targets
from dynctx.config import DecodingConfig
from dynctx.corpus import Ints
from dynctx.devices import many_shapes
from dynctx.packing import round_up
from dynctx.replay import Replayed
from dynctx.selection.strategies import Previous, Selector
from dynctx.side_by_side import ROWS
from dynctx.subwords import BOS, EOS
from dynctx.translators.bank import Bank, BankedNmt, merge
from dynctx.translators.sampling import NEVER, draw
from dynctx.translators.sentence import Cache, SentNmt

BANK_TOKENS = 2**17  # source tokens whose states are held at a time
BANK_BATCH = 2**14  # and that are encoded together
LOOK_EVERY = 4  # steps between two looks at who is done, on a GPU: a look waits for it
PRUNE_EVERY = 8  # steps between two looks at which keys are still needed
APART = 20  # one sentence in so many has an uncommonly long context
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
        self.best_score = torch.zeros_like(self.best_penalised)
        self.best_ids = torch.full((rows, self.longest), EOS, device=device)
        self.done = torch.zeros(rows, dtype=torch.bool, device=device)
        self.results: dict[int, Hypothesis] = {}
        self.on_gpu = limits.is_cuda

    def run(self) -> list[Hypothesis]:
        advance = Replayed(self.advance, self.limits.device)
        for step in range(self.longest):
            if step == self.cache.room:
                self.model.enlarge(self.cache)
                advance.changed(len(self.number) * self.beam)
            advance()
            if self.beam > 1 and step % PRUNE_EVERY == PRUNE_EVERY - 1:
                self.cache.prune()
            if self.on_gpu and step % LOOK_EVERY != LOOK_EVERY - 1 and step + 1 < self.longest:
                continue
            here = len(self.number)
            if self.leave():
                break
            if len(self.number) < here:
                advance.changed(len(self.number) * self.beam)
        return [self.results[row] for row in range(self.wanted)]

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
        self.keep_results(order[smaller:])
        if not live:
            return True
        left = order[:smaller].sort().values
        self.cache.keep(left)
        for name in ROWWISE:
            setattr(self, name, getattr(self, name)[left])
        return False

    def keep_results(self, rows: Tensor) -> None:
        ids = self.best_ids[rows]
        lengths = (ids != EOS).sum(dim=1)  # EOS is what comes after a translation, and nowhere in it
        found = zip(self.number[rows].tolist(), ids.cpu().numpy(), lengths.tolist(), self.best_score[rows].tolist())
        for number, own, length, score in found:
            self.results[number] = Hypothesis(own[:length].tolist(), score)


def sample(
    model: SentNmt, cache: Cache, limits: Tensor, temperature: float = 1.0, generator: torch.Generator | None = None
) -> list[Hypothesis]:
    """One draw from the model for each row (the cache's beam must be 1)."""
    drawn = draw(model, cache, limits, temperature, generator)
    lengths, scores = drawn.lengths.tolist(), drawn.log_probability.tolist()
    return [Hypothesis(ids[: n - 1], score) for ids, n, score in zip(drawn.tokens.tolist(), lengths, scores)]


def batches_by_length(
    lengths: NDArray[np.int64], batch_sentences: int, context: NDArray[np.int64] | None = None
) -> list[NDArray[np.int64]]:
    """Positions in batches of similar length, the longest first (so memory, if it lacks, lacks at once).

    context: lengths of what each is read with, which is padded too: of many sentences, the few that are read with the
    most have batches of their own.
    """
    order = np.argsort(-lengths, kind="stable")
    few = len(order) // APART if context is not None and context.any() and len(order) > 2 * batch_sentences else 0
    apart = np.zeros(len(order), bool)
    if few and context is not None:
        apart[np.argsort(-context, kind="stable")[:few]] = True
    parts = (order[apart[order]], order[~apart[order]])
    return [part[i : i + batch_sentences] for part in parts for i in range(0, len(part), batch_sentences)]


@torch.inference_mode()
def translate(
    model: SentNmt,
    gatherer: Gatherer,
    sentences: NDArray[np.int64],
    config: DecodingConfig,
    selector: Selector,
    progress: Callable[[int], None] | None = None,
) -> list[Hypothesis]:
    """Translations of these sentences of the store, in their order, with the context that the selector gives.

    A model that reads earlier translations takes its own: sentence i of all documents together, in order.
    """
    model.eval()
    task = Translating(model, gatherer, sentences, config, selector, progress)
    if isinstance(model, BankedNmt) and model.reads_targets:
        task.in_order(model)
    elif isinstance(model, BankedNmt):
        task.by_documents(model)
    else:
        task.some(np.arange(len(sentences)), None)
    return [hypothesis for hypothesis in task.found if hypothesis is not None]


class Translating:
    """The sentences of one call, and what has been found for them."""

    def __init__(
        self,
        model: SentNmt,
        gatherer: Gatherer,
        sentences: NDArray[np.int64],
        config: DecodingConfig,
        selector: Selector,
        progress: Callable[[int], None] | None,
    ) -> None:
        self.model, self.gatherer, self.sentences = model, gatherer, sentences
        self.config, self.selector, self.progress = config, selector, progress
        self.found: list[Hypothesis | None] = [None] * len(sentences)
        self.place = {number: place for place, number in enumerate(sentences.tolist())}
        self.lengths, _, self.context = gatherer.lengths_of(sentences)
        self.drafts: list[Hypothesis] = []
        if model.needs_drafts:
            plain = replace(config, sampling=False)
            self.drafts = translate(model.sentence_model(), gatherer, sentences, plain, Previous(0))

    def some(self, places: NDArray[np.int64], bank: Bank | None) -> None:
        """Translate the sentences at these places of the list."""
        for chosen in batches_by_length(self.lengths[places], self.config.batch_sentences, self.context[places]):
            chosen = places[chosen]
            batch, selection = self.selected(self.sentences[chosen])
            limits = self.gatherer.to_device(self.lengths[chosen] - 1 + self.config.max_extra)  # EOS not counted
            drafts = [self.drafts[place].ids for place in chosen] if self.drafts else None
            known = self.model.bank(batch, drafts, bank)
            hypotheses = search(self.model, batch, selection, limits, self.config, known)
            for place, hypothesis in zip(chosen.tolist(), hypotheses):
                self.found[place] = hypothesis
            if self.progress is not None:
                self.progress(len(chosen))

    def selected(self, numbers: NDArray[np.int64]) -> tuple[Batch, Tensor]:
        """These sentences, one a row, and what is selected for them; of their candidates only that is read."""
        if not self.gatherer.lay_context:
            batch = self.gatherer.one_per_row(numbers)
            return batch, self.selector.select(batch)
        selection = self.selector.select(self.gatherer.bare(numbers))
        return self.gatherer.one_per_row(numbers, selection.cpu().numpy()), selection

    def by_documents(self, model: BankedNmt) -> None:
        """Whole documents, as many at a time as memory allows; each sentence is encoded once for all it serves."""
        first, document = np.unique(self.gatherer.firsts[self.sentences], return_inverse=True)
        last = np.zeros_like(first)
        np.maximum.at(last, document, self.sentences)
        starts = np.asarray(self.gatherer.store.source_starts)
        chunk = np.cumsum(starts[last + 1] - starts[first]) // BANK_TOKENS  # [documents]
        for which in np.unique(chunk):
            members = np.flatnonzero(chunk == which)
            numbers = np.concatenate([np.arange(first[m], last[m] + 1) for m in members])
            self.some(np.flatnonzero(chunk[document] == which), self.states_of(model, numbers))

    def states_of(self, model: BankedNmt, numbers: NDArray[np.int64]) -> Bank:
        """A bank of many sentences, encoded some at a time."""
        size = np.cumsum(self.gatherer.lengths_of(numbers)[0]) // BANK_BATCH
        parts = np.split(numbers, np.flatnonzero(np.diff(size)) + 1)
        return merge([model.bank_of(self.gatherer, part) for part in parts])

    def in_order(self, model: BankedNmt) -> None:
        firsts = self.gatherer.firsts[self.sentences]
        position = self.sentences - firsts
        window: list[Bank] = []  # the last sentences of every document, as far back as the scope
        for here in range(int(position.max(initial=-1)) + 1):
            self.some(np.flatnonzero(position == here), merge(window) if window else None)
            going_on = np.unique(firsts[position > here])  # documents that have more to translate
            if len(going_on):
                window = [*window, self.recall(model, going_on + here)][-model.scope :]

    def recall(self, model: BankedNmt, numbers: NDArray[np.int64]) -> Bank:
        """States of these sentences and of what they were translated to; what was not translated says nothing."""
        parts = []
        for chosen in batches_by_length(self.gatherer.lengths_of(numbers)[0], self.config.batch_sentences):
            past = self.gatherer.one_per_row(numbers[chosen])
            parts.append(model.remember(with_targets(past, [self.said(int(n)) for n in numbers[chosen]])))
        return merge(parts)

    def said(self, number: int) -> list[int]:
        hypothesis = self.found[self.place[number]] if number in self.place else None
        return hypothesis.ids if hypothesis is not None else []


@torch.inference_mode()
def translate_pairs(
    model: SentNmt,
    gatherer: Gatherer,
    sentences: Ints,
    chosen: NDArray[np.bool_],
    config: DecodingConfig,
    progress: Callable[[int], None] | None = None,
) -> list[Hypothesis]:
    """Translations of sentences [m], each with the context chosen for it [m, scope]; a sentence may come many times."""
    model.eval()
    found: list[Hypothesis | None] = [None] * len(sentences)
    lengths = gatherer.lengths_of(sentences)[0]
    for rows in batches_by_length(lengths, config.batch_sentences):
        batch = gatherer.one_per_row(sentences[rows], chosen[rows])
        limits = gatherer.to_device(lengths[rows] - 1 + config.max_extra)
        hypotheses = search(model, batch, gatherer.to_device(chosen[rows]), limits, config)
        for place, hypothesis in zip(rows.tolist(), hypotheses):
            found[place] = hypothesis
        if progress is not None:
            progress(len(rows))
    return [hypothesis for hypothesis in found if hypothesis is not None]


def search(
    model: SentNmt, batch: Batch, selection: Tensor, limits: Tensor, config: DecodingConfig, bank: Bank | None = None
) -> list[Hypothesis]:
    with many_shapes():
        memory = model.encode(batch, selection, bank)
        if config.sampling:
            return sample(model, model.begin(memory, 1), limits, config.temperature)
        return BeamSearch(model, model.begin(memory, config.beam), limits, config.length_penalty).run()


def reference_bank(model: SentNmt, batch: Batch, config: DecodingConfig) -> Bank | None:
    """What it takes to score the references of a batch, one a row: earlier references, and drafts as in use."""
    if not model.needs_drafts:
        return model.bank(batch)
    base, lengths = model.sentence_model(), batch.plan.lengths[0]
    limits = torch.from_numpy(lengths - 1 + config.max_extra).to(batch.origin.device)
    cache = base.begin(base.encode(batch), config.beam)
    drafts = BeamSearch(base, cache, limits, config.length_penalty).run()
    return model.bank(batch, [draft.ids for draft in drafts])
