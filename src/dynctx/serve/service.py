"""A model with its batcher, its limits and its counts: what the routes share."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import replace

from starlette.requests import Request

from dynctx.errors import DynctxError
from dynctx.model_folder import Model
from dynctx.pipeline import first_candidates
from dynctx.serve.batching import Answer, Batcher, BatchSizes, Task
from dynctx.serve.limits import Clients, Limits, Refused
from dynctx.serve.metrics import Metrics

FORMS = "none, full, previous N, probability-first, size-first N"
SERVED = [[form.split()[0]] for form in FORMS.split(", ")]
LONGEST_SELECTOR = 40  # characters
MOST_SELECTED = 1000  # the N of `previous N`
Answers = AsyncGenerator[list[Answer], None]


class Service:
    def __init__(
        self,
        model: Model,
        limits: Limits | None = None,
        sizes: BatchSizes | None = None,
        api_key: str | None = None,
        selector: str | None = None,
        name: str = "model",
    ) -> None:
        self.model, self.limits, self.api_key, self.name = model, limits or Limits(), api_key, name
        self.clients, self.metrics = Clients(self.limits.requests), Metrics()
        config = model.config
        self.source, self.target = config.data.source_language or "und", config.data.target_language or "und"
        self.selector = self.checked_selector(selector or model.selector.name)
        sizes = sizes or BatchSizes(sentences=256 if model.device.type == "cuda" else 32)
        decoding = replace(config.decoding, sampling=False, batch_sentences=sizes.sentences)
        self.batcher = Batcher(model, decoding, sizes, self.limits.waiting, self.metrics)

    def checked_selector(self, name: str) -> str:
        """Its name as the selector itself writes it, so that those that choose alike are batched together."""
        if len(name) > LONGEST_SELECTOR:
            raise DynctxError(f"selector {name[:LONGEST_SELECTOR]!r}...: no selector has so long a name")
        first = name.split()[:1]
        if first == ["random"]:  # what it draws would depend on what else is in the batch
            raise DynctxError(f"selector {name!r}: the service does not choose at random; take full or previous N")
        if first not in SERVED:  # above all not `fixed FILE`: no request names a file of this machine
            raise DynctxError(f"selector {name!r}: expected one of: {FORMS}")
        selector = self.model.choose(name)
        size = getattr(selector, "n", None) or getattr(selector, "size", None) or 0
        if size > MOST_SELECTED:
            raise DynctxError(f"selector {name!r}: more than {MOST_SELECTED} sentences")
        return selector.name

    def check_key(self, request: Request, given: str | None) -> None:
        if self.api_key is None:
            return
        scheme, _, header = request.headers.get("authorization", "").partition(" ")
        key = given or (header.strip() if scheme.lower() == "bearer" else "")
        if not key:
            reason = "an API key is needed (api_key, or the header Authorization: Bearer KEY)"
            raise Refused(401, reason, {"WWW-Authenticate": "Bearer"})
        if not secrets.compare_digest(key.encode("utf-8", "replace"), self.api_key.encode()):
            raise Refused(403, "the API key is not valid")

    def check_sentences(self, sentences: Sequence[str]) -> None:
        most = self.limits
        if len(sentences) > most.sentences:
            raise Refused(413, f"{len(sentences)} sentences; one request may have {most.sentences}")
        for number, sentence in enumerate(sentences, 1):
            if len(sentence) > most.characters:
                raise Refused(413, f"sentence {number} has {len(sentence)} characters; it may have {most.characters}")

    def check_distances(self, sentences: Sequence[str], selected: Mapping[int, Collection[int]]) -> None:
        """Whether what is selected by hand, by place, are candidates; those of lines that are kept as they are say
        nothing and do no harm."""
        language = self.model.config.data.source_language or ""
        firsts = first_candidates(sentences, self.model.translator.scope, language) if selected else []
        for place, distances in selected.items():
            reach = place - firsts[place]
            for distance in distances:
                if not 1 <= distance <= reach:
                    can = f"1 to {reach}" if reach else "none"
                    raise Refused(400, f"selection of sentence {place + 1}: distance {distance}; it can have {can}")

    async def answers(
        self,
        sentences: Sequence[str],
        places: Sequence[int],
        selector: str,
        selected: Mapping[int, Collection[int]],
        translate: bool = True,
    ) -> Answers:
        """Translations as they are made. Whoever stops listening has given the rest up."""
        if not places:
            return
        loop = asyncio.get_running_loop()
        end, found = loop.time() + self.limits.seconds, asyncio.Queue[list[Answer] | Refused]()

        def deliver(item: list[Answer] | Refused) -> None:
            loop.call_soon_threadsafe(found.put_nowait, item)

        task, missing = Task(sentences, places, selector, selected, deliver, translate), len(places)
        self.batcher.submit(task)
        try:
            while missing:
                item = await asyncio.wait_for(found.get(), end - loop.time())
                if isinstance(item, Refused):
                    raise item
                missing -= len(item)
                yield item
        except TimeoutError:
            raise Refused(504, f"not done within {self.limits.seconds:g} s; ask for fewer sentences") from None
        finally:
            self.batcher.give_up(task)
            if missing:
                self.metrics.abandoned.inc()

    async def translations(self, sentences: Sequence[str]) -> list[str]:
        """All of a document, by the service's selector."""
        self.check_sentences(sentences)
        found = [""] * len(sentences)
        async for answers in self.answers(sentences, range(len(sentences)), self.selector, {}):
            for answer in answers:
                found[answer.place] = answer.translation or ""
        return found
