"""Requests of many users translated together, by one thread that owns the model.

Documents wait in a queue. Each turn takes one sentence of every document in it, round and round, until the batch is
full; so a long document leaves room for short ones, and its own translations come back as they are made.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from dynctx.commands import precision
from dynctx.config import DecodingConfig
from dynctx.devices import return_freed_memory
from dynctx.documents import Document
from dynctx.model_folder import Model
from dynctx.pipeline import Choice, Wish, first_candidates, select_documents, translate_and_explain
from dynctx.serve.limits import Refused
from dynctx.serve.metrics import Metrics

TRIM_SECONDS = 10.0  # memory is kept for the next batch, but not the most that any batch ever needed
log = logging.getLogger("dynctx.serve")


@dataclass(frozen=True)
class Answer:
    """A translated sentence, or only its context; `place` is its index in the document."""

    place: int
    translation: str | None
    choice: Choice


@dataclass(frozen=True)
class BatchSizes:
    """How much is translated at once."""

    sentences: int = 32
    tokens: int = 256  # of a sentence with its candidates, about; of longer ones fewer are taken
    window: float = 0.005  # seconds that an idle service waits for more requests after the first


class Task:
    """One document under way. `deliver` is called in the worker's thread, with answers or with what went wrong."""

    def __init__(
        self,
        sentences: Sequence[str],
        places: Sequence[int],
        selector: str,
        selected: Mapping[int, Collection[int]],
        deliver: Callable[[list[Answer] | Refused], None],
        translate: bool = True,
    ) -> None:
        self.sentences, self.selected, self.deliver = sentences, selected, deliver
        self.kind = selector, translate  # tasks of one kind are done in one call
        self.left = deque(places)
        self.firsts: list[int] | None = None  # found when it is first asked for, in the worker's thread

    def reach(self, place: int, scope: int, language: str) -> int:
        """The place of the first candidate of a sentence."""
        if self.firsts is None:
            self.firsts = first_candidates(self.sentences, scope, language)
        return self.firsts[place]

    def size(self, place: int, scope: int, language: str = "") -> int:
        """About how many subwords a sentence and its candidates are: in UTF-8 one has about four bytes."""
        first = self.reach(place, scope, language)
        return sum(len(text.encode()) // 4 + 2 for text in self.sentences[first : place + 1])


Turn = dict[Task, list[int]]  # places, by task


@dataclass(frozen=True)
class Part:
    """Sentences of a task as a document of their own, with those before them that they need."""

    task: Task
    offset: int  # the place of the document's first sentence in the task
    document: Document
    wish: Wish
    answered: Sequence[int]  # places in the task


class Batcher:
    def __init__(
        self, model: Model, decoding: DecodingConfig, sizes: BatchSizes, most_waiting: int, metrics: Metrics
    ) -> None:
        self.model, self.decoding, self.sizes, self.most_waiting = model, decoding, sizes, most_waiting
        self.metrics = metrics
        self.reading = model.translator.scope, model.config.data.source_language or ""  # what makes a line a candidate
        self.tasks: deque[Task] = deque()
        self.waiting = 0  # sentences of all tasks
        self.stopping = False
        self.changed = threading.Condition()
        self.thread = threading.Thread(target=self._run, name="translator", daemon=True)

    def start(self) -> None:
        self.thread.start()

    @property
    def alive(self) -> bool:
        return self.thread.is_alive() and not self.stopping

    def submit(self, task: Task) -> None:
        with self.changed:
            if not self.alive:
                raise Refused(503, "the service is stopping", {"Retry-After": "5"})
            if self.waiting + len(task.left) > self.most_waiting:
                reason = f"the queue is full ({self.waiting} sentences are waiting); try again soon"
                raise Refused(503, reason, {"Retry-After": "5"})
            self.tasks.append(task)
            self._count(len(task.left))
            self.changed.notify()

    def give_up(self, task: Task) -> None:
        """Nobody waits for this task any more: what it has not begun is not done."""
        with self.changed:
            if task in self.tasks:
                self.tasks.remove(task)
                self._count(-len(task.left))

    def close(self) -> None:
        """Finish what is waiting, then end the thread."""
        with self.changed:
            self.stopping = True
            self.changed.notify()
        if self.thread.is_alive():
            self.thread.join()

    # the worker's thread

    def _run(self) -> None:
        trimmed = time.monotonic()
        while turn := self._next_turn():
            start = time.perf_counter()
            self.metrics.batch_requests.observe(len(turn))
            self.metrics.batch_sentences.observe(sum(map(len, turn.values())))
            with precision(self.model.device):
                self._translate(turn)
            self.metrics.batch_seconds.observe(time.perf_counter() - start)
            if time.monotonic() - trimmed > TRIM_SECONDS:
                return_freed_memory()
                trimmed = time.monotonic()

    def _next_turn(self) -> Turn | None:
        """None where the service stops and nothing is left to do."""
        with self.changed:
            while True:
                idle = not self.tasks
                while not self.tasks:
                    if self.stopping:
                        return None
                    self.changed.wait()
                if idle:
                    self._wait_for_more()
                if self.tasks:  # or those that came have been given up since
                    return self._take()

    def _wait_for_more(self) -> None:
        end = time.monotonic() + self.sizes.window
        while self.waiting < self.sizes.sentences and not self.stopping and (left := end - time.monotonic()) > 0:
            self.changed.wait(left)

    def _take(self) -> Turn:
        turn: Turn = {}
        rows, longest = 0, 0
        while self.tasks and rows < self.sizes.sentences:
            task = self.tasks[0]
            longest = max(longest, task.size(task.left[0], *self.reading))
            if rows and (rows + 1) * longest > self.sizes.sentences * self.sizes.tokens:
                break
            self.tasks.popleft()
            count = len(task.left) if self._at_once(task.kind[1]) else 1
            turn.setdefault(task, []).extend(task.left.popleft() for _ in range(count))
            rows += count
            if task.left:
                self.tasks.append(task)
        self._count(-rows)
        return turn

    def _count(self, sentences: int) -> None:
        self.waiting += sentences
        self.metrics.waiting.set(self.waiting)

    def _translate(self, turn: Turn) -> None:
        """One call for all tasks that choose alike; after a failure each alone, so that only the cause fails."""
        for kind in dict.fromkeys(task.kind for task in turn):
            group = {task: places for task, places in turn.items() if task.kind == kind}
            try:
                answers = self._answers(group, *kind)
            except Exception:
                log.exception("a batch of %d requests failed", len(group))
                if len(group) > 1:
                    for task, places in group.items():
                        self._translate({task: places})
                else:
                    self._fail(*group)
                continue
            for task, found in answers.items():
                self.metrics.sentences.inc(len(found))
                task.deliver(found)

    def _fail(self, task: Task) -> None:
        self.metrics.failed.inc()
        self.give_up(task)
        task.deliver(Refused(500, "the translation failed through a fault of the service; its log says more"))

    def _answers(self, group: Turn, selector: str, translate: bool) -> dict[Task, list[Answer]]:
        parts = [part for task, places in group.items() for part in self._parts(task, places, translate)]
        documents, wishes = [part.document for part in parts], [part.wish for part in parts]
        chooser = self.model.choose(selector)
        said: list[Sequence[str | None]] = [[None] * len(document.sentences) for document in documents]
        if translate:
            translated, choices = translate_and_explain(
                self.model, documents, self.decoding, chooser, wishes=wishes, for_people=True
            )
            said = [document.sentences for document in translated]
        else:
            choices = select_documents(self.model, documents, chooser, for_people=True, wishes=wishes)
        found: dict[Task, list[Answer]] = {task: [] for task in group}
        for part, sentences, chosen in zip(parts, said, choices):
            found[part.task] += [Answer(k, sentences[k - part.offset], chosen[k - part.offset]) for k in part.answered]
        return found

    def _at_once(self, translate: bool) -> bool:
        """Whether a document is translated in one turn, from its beginning on: by a model that reads what it said."""
        return translate and self.model.translator.reads_targets

    def _parts(self, task: Task, places: list[int], translate: bool) -> list[Part]:
        if not self._at_once(translate):
            return [self._part(task, *run) for run in runs(places)]
        known = range(max(places) + 1)
        document = Document("", tuple(task.sentences[: len(known)]))
        return [Part(task, 0, document, Wish(known, task.selected), places)]

    def _part(self, task: Task, first: int, last: int) -> Part:
        offset = task.reach(first, *self.reading)
        selected = {k - offset: task.selected[k] for k in range(first, last + 1) if k in task.selected}
        document = Document("", tuple(task.sentences[offset : last + 1]))
        wish = Wish(range(first - offset, last + 1 - offset), selected)
        return Part(task, offset, document, wish, range(first, last + 1))


def runs(places: Sequence[int]) -> list[tuple[int, int]]:
    """First and last of each stretch of neighbours: [3, 4, 5, 9] -> [(3, 5), (9, 9)]."""
    borders = [k for k, (a, b) in enumerate(pairwise(places), 1) if b != a + 1]
    return [(places[a], places[b - 1]) for a, b in pairwise([0, *borders, len(places)])]
