"""Translating sentences of a corpus: greedy, beam and sampling, by one code path for validation, evaluation and use.

Sentences are sorted by length into batches and their translations put back in order, so the result does not
depend on the batch size (but in 8 bits, `dynctx.linear`). While a GPU searches one batch, the host makes the
next one ready.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dynctx.batches import Gatherer, with_targets
from dynctx.beam_search import BeamSearch, Hypothesis, check_numbers
from dynctx.config import DecodingConfig
from dynctx.corpus import Ints
from dynctx.devices import many_shapes
from dynctx.packing import evenly
from dynctx.selection.strategies import Previous, Selector
from dynctx.translators.bank import Bank, BankedNmt, merge
from dynctx.translators.sampling import Drawn, draw
from dynctx.translators.sentence import Cache, Memory, SentNmt

BANK_TOKENS = 2**17  # source tokens whose states are held at a time
BANK_BATCH = 2**14  # and that are encoded together
CLASSES = 6  # of length, from one to twice as much: within one, sentences are batched by their contexts

Later = Callable[[], list[Hypothesis]]  # what a search has found, brought to the host when it is asked for


def sample(model: SentNmt, cache: Cache, limits: Tensor, temperature: float = 1.0) -> list[Hypothesis]:
    """One draw from the model for each row (the cache's beam must be 1)."""
    return hypotheses(draw(model, cache, limits, temperature))


def hypotheses(drawn: Drawn) -> list[Hypothesis]:
    """On the host."""
    lengths, scores = drawn.lengths.tolist(), drawn.log_probability.tolist()
    check_numbers(scores)
    return [Hypothesis(ids[: n - 1], score) for ids, n, score in zip(drawn.tokens.tolist(), lengths, scores)]


def batches_by_length(
    lengths: Ints, batch_sentences: int, contexts: Ints | None = None, batch_tokens: int = 0
) -> list[Ints]:
    """Positions in batches of similar length, the longest first (so memory, if it lacks, lacks at once).

    Of sentences about as long, those whose contexts are come together: most of what is read may be context, and its
    padding would cost more than the few steps that a batch of mixed lengths is longer. batch_tokens: a batch has no
    more positions than that, padding counted, or has one sentence.
    """
    if contexts is None:
        order = np.argsort(-lengths, kind="stable")
    else:
        order = np.lexsort((-contexts, -np.ceil(CLASSES * np.log2(np.maximum(lengths, 1)))))
    if not batch_tokens:
        return [order[i : i + batch_sentences] for i in range(0, len(order), batch_sentences)]
    longest = np.maximum.accumulate(lengths[order][::-1])[::-1].tolist()  # of each and all behind it
    batches, first = [], 0
    while first < len(order):
        size = max(1, min(batch_sentences, batch_tokens // longest[first]))
        batches.append(order[first : first + size])
        first += size
    return batches


@torch.inference_mode()
def translate(
    model: SentNmt,
    gatherer: Gatherer,
    sentences: Ints,
    config: DecodingConfig,
    selector: Selector,
    progress: Callable[[int], None] | None = None,
) -> list[Hypothesis]:
    """Translations of these sentences of the store, in their order, with the context that the selector gives.

    A model that reads earlier translations takes its own: each sentence comes when all that it reads is translated.
    """
    model.eval()
    task = Translating(model, gatherer, sentences, config, selector, progress)
    if isinstance(model, BankedNmt) and model.reads_targets:
        task.in_turn(model)
    elif isinstance(model, BankedNmt):
        task.by_documents(model)
    else:
        task.some(np.arange(len(sentences)), None)
    return [hypothesis for hypothesis in task.found if hypothesis is not None]


@dataclass(frozen=True)
class Started:
    """A batch that is ready to be searched."""

    memory: Memory
    limits: Tensor  # [R]


def overlapped(
    batches: list[Ints],
    start: Callable[[Ints], Started],
    work: Callable[[Started, Callable[[], None]], Later],
    keep: Callable[[Ints, Later], None],
) -> None:
    """Start each batch, work on it and keep what was found, one after the other.

    Work may call what it is given: then, while it waits itself, the batch before is kept and the next one started.
    """
    ahead: list[Started] = []
    behind: list[tuple[Ints, Later]] = []

    def keep_last() -> None:
        while behind:
            keep(*behind.pop())

    for number, batch in enumerate(batches):
        if not ahead:
            keep_last()
            ahead.append(start(batch))
        following = batches[number + 1 : number + 2]

        def meanwhile(following: list[Ints] = following) -> None:
            ahead.extend(start(batch) for batch in following)  # first, for the device to have it
            keep_last()

        behind.append((batch, work(ahead.pop(), meanwhile)))
    keep_last()


class Translating:
    """The sentences of one call, and what has been found for them."""

    def __init__(
        self,
        model: SentNmt,
        gatherer: Gatherer,
        sentences: Ints,
        config: DecodingConfig,
        selector: Selector,
        progress: Callable[[int], None] | None,
    ) -> None:
        self.model, self.gatherer, self.sentences = model, gatherer, sentences
        self.config, self.selector, self.progress = config, selector, progress
        self.found: list[Hypothesis | None] = [None] * len(sentences)
        self.place = {number: place for place, number in enumerate(sentences.tolist())}
        self.lengths = gatherer.lengths_of(sentences)[0]
        beforehand = gatherer.lay_context or model.reads_targets
        self.chosen = self.choose() if beforehand else None  # [n, scope]
        self.drafts = drafts_in_use(model, gatherer, sentences, config)

    def choose(self) -> NDArray[np.bool_]:
        """What is selected for each sentence: known beforehand, nothing has to wait for it later."""
        batch = self.gatherer.bare(self.sentences)
        return (self.selector.select(batch) & batch.present).cpu().numpy()

    def some(self, places: Ints, bank: Bank | None) -> None:
        """Translate the sentences at these places of the list."""
        size, lengths = self.config.batch_sentences, self.lengths[places]
        if self.chosen is None or not self.gatherer.lay_context:
            batches = [places[chosen] for chosen in batches_by_length(lengths, size)]
        else:
            contexts = self.gatherer.lengths_of(self.sentences[places], self.chosen[places])[2]
            batches = [
                places[chosen[evenly(contexts[chosen], self.model.contexts_together)]]
                for chosen in batches_by_length(lengths, size, contexts)
            ]
        overlapped(
            batches, lambda chosen: self.start(chosen, bank), partial(search, self.model, self.config), self.keep
        )

    def start(self, chosen: Ints, bank: Bank | None) -> Started:
        """The sentences at these places, one a row, as the encoder sees them; of their candidates only what is
        selected is read."""
        numbers = self.sentences[chosen]
        given = None if self.chosen is None else self.chosen[chosen]
        batch = self.gatherer.one_per_row(numbers, given, self.model.contexts_together)
        selection = self.selector.select(batch) if given is None else self.gatherer.to_device(given)
        limits = self.gatherer.to_device(self.lengths[chosen] - 1 + self.config.max_extra)  # EOS not counted
        drafts = None if self.drafts is None else [self.drafts[number] for number in numbers.tolist()]
        with many_shapes():
            known = self.model.bank(batch, drafts, bank)
            return Started(self.model.encode(batch, selection, known), limits)

    def keep(self, chosen: Ints, found: Later) -> None:
        for place, hypothesis in zip(chosen.tolist(), found()):
            self.found[place] = hypothesis
        if self.progress is not None:
            self.progress(len(chosen))

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

    def states_of(self, model: BankedNmt, numbers: Ints) -> Bank:
        """A bank of many sentences, encoded some at a time."""
        size = np.cumsum(self.gatherer.lengths_of(numbers)[0]) // BANK_BATCH
        parts = np.split(numbers, np.flatnonzero(np.diff(size)) + 1)
        return merge([model.bank_of(self.gatherer, part) for part in parts])

    def in_turn(self, model: BankedNmt) -> None:
        """In waves: with fixed context sentence i of all documents together, with little of it many more at a time."""
        turn, last_read = self.turns()
        untold = np.array(sorted(number for number in last_read if number not in self.place), np.int64)
        # states of what will still be read, and the last wave that reads any of them
        banks = [(len(turn), self.recall(model, untold))] if len(untold) else []
        for wave in range(int(turn.max(initial=-1)) + 1):
            here = np.flatnonzero(turn == wave)
            banks = [(last, bank) for last, bank in banks if last >= wave]
            known = [bank for _, bank in banks] or [self.recall(model, self.sentences[here[:1]])]  # never empty
            self.some(here, merge(known))
            read = [number for number in np.sort(self.sentences[here]).tolist() if number in last_read]
            if read:
                banks.append((max(last_read[number] for number in read), self.recall(model, np.array(read))))

    def turns(self) -> tuple[Ints, dict[int, int]]:
        """The wave of each sentence [n], after all that it reads; and of each that is read, the last wave that does."""
        assert self.chosen is not None
        turn, last_read = np.zeros(len(self.sentences), np.int64), dict[int, int]()
        for place in np.argsort(self.sentences).tolist():
            number = int(self.sentences[place])
            read = (number - 1 - np.flatnonzero(self.chosen[place])).tolist()
            turn[place] = max((turn[self.place[earlier]] + 1 for earlier in read if earlier in self.place), default=0)
            for earlier in read:
                last_read[earlier] = max(last_read.get(earlier, 0), int(turn[place]))
        return turn, last_read

    def recall(self, model: BankedNmt, numbers: Ints) -> Bank:
        """States of these sentences and of what they were translated to; of those that are not, of what the store has:
        nothing in use, and references where these are known."""
        parts = []
        for chosen in batches_by_length(self.gatherer.lengths_of(numbers)[0], self.config.batch_sentences):
            past = self.gatherer.one_per_row(numbers[chosen])
            parts.append(model.remember(with_targets(past, [self.said(int(n)) for n in numbers[chosen]])))
        return merge(parts)

    def said(self, number: int) -> list[int]:
        if number not in self.place:
            return self.gatherer.store.target_ids(number)[:-1]
        hypothesis = self.found[self.place[number]]
        return hypothesis.ids if hypothesis is not None else []


def drafts_in_use(
    model: SentNmt, gatherer: Gatherer, sentences: Ints, config: DecodingConfig
) -> dict[int, list[int]] | None:
    """What the sentence model makes of each of these sentences, by their numbers, for a model that corrects it."""
    if not model.needs_drafts:
        return None
    numbers = np.unique(sentences)
    found = translate(model.sentence_model(), gatherer, numbers, replace(config, sampling=False), Previous(0))
    return {number: hypothesis.ids for number, hypothesis in zip(numbers.tolist(), found)}


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
    found: list[Hypothesis | None] = [None] * len(sentences)

    def keep(rows: Ints, hypotheses: Later) -> None:
        for place, hypothesis in zip(rows.tolist(), hypotheses()):
            found[place] = hypothesis
        if progress is not None:
            progress(len(rows))

    pairs = Pairs(model, gatherer, sentences, chosen, config)
    overlapped(pairs.batches(), pairs.start, partial(search, model, config), keep)
    return [hypothesis for hypothesis in found if hypothesis is not None]


@torch.inference_mode()
def guess_pairs(
    model: SentNmt,
    gatherer: Gatherer,
    sentences: Ints,
    chosen: NDArray[np.bool_],
    config: DecodingConfig,
    batch_tokens: int,
    keep: Callable[[Ints, list[list[int]]], None],
) -> None:
    """The same by the likeliest token each time, which nobody wants to know the probability of: half of the work.

    keep: is given places and ids of some of them, as often as there are any, while the device is busy with others.
    """

    def work(started: Started, meanwhile: Callable[[], None]) -> Later:
        with many_shapes():
            cache = model.begin(started.memory, 1)
            return partial(hypotheses, draw(model, cache, started.limits, 0.0, scored=False, meanwhile=meanwhile))

    pairs = Pairs(model, gatherer, sentences, chosen, config)
    batches = pairs.batches(batch_tokens)
    overlapped(batches, pairs.start, work, lambda rows, found: keep(rows, [guess.ids for guess in found()]))


class Pairs:
    """Sentences [m] with a context for each [m, scope], in batches."""

    def __init__(
        self, model: SentNmt, gatherer: Gatherer, sentences: Ints, chosen: NDArray[np.bool_], config: DecodingConfig
    ) -> None:
        model.eval()
        self.model, self.gatherer, self.config = model, gatherer, config
        self.sentences, self.chosen = sentences, chosen
        self.lengths, _, self.contexts = gatherer.lengths_of(sentences, chosen)
        self.drafts = drafts_in_use(model, gatherer, sentences, config)

    def batches(self, batch_tokens: int = 0) -> list[Ints]:
        contexts = self.contexts if self.gatherer.lay_context else None
        batches = batches_by_length(self.lengths, self.config.batch_sentences, contexts, batch_tokens)
        return [rows[evenly(self.contexts[rows], self.model.contexts_together)] for rows in batches]

    def start(self, rows: Ints) -> Started:
        model, gatherer, numbers = self.model, self.gatherer, self.sentences[rows]
        batch = gatherer.one_per_row(numbers, self.chosen[rows], model.contexts_together)
        limits = gatherer.to_device(self.lengths[rows] - 1 + self.config.max_extra)
        own = None if self.drafts is None else [self.drafts[number] for number in numbers.tolist()]
        with many_shapes():
            return Started(model.encode(batch, gatherer.to_device(self.chosen[rows]), model.bank(batch, own)), limits)


def search(model: SentNmt, config: DecodingConfig, started: Started, meanwhile: Callable[[], None]) -> Later:
    with many_shapes():
        if config.sampling:
            drawn = sample(model, model.begin(started.memory, 1), started.limits, config.temperature)
            return lambda: drawn
        cache = model.begin(started.memory, config.beam)
        return BeamSearch(model, cache, started.limits, config.length_penalty).search(meanwhile).hypotheses
