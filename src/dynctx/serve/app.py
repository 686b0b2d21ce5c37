"""The routes of the service. Each checks what it is asked, hands it to the batcher and shapes the answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Request, Response
from pydantic import BaseModel
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import FileResponse, JSONResponse
from starlette.staticfiles import StaticFiles

from dynctx.documents import Document
from dynctx.errors import DynctxError
from dynctx.formats.template import Template
from dynctx.languages import confidence, name_of, same_language
from dynctx.serve import schemas
from dynctx.serve.batching import Answer
from dynctx.serve.bodies import parse
from dynctx.serve.http import Outermost, add_errors, stream, unless_gone
from dynctx.serve.layout import file_text, templates_of
from dynctx.serve.limits import Refused
from dynctx.serve.service import Answers, Service

STATIC = str(files("dynctx.serve") / "static")
ERRORS: dict[int | str, dict[str, Any]] = {
    code: {"model": schemas.Error} for code in (400, 401, 403, 408, 413, 429, 500, 503, 504)
}


def make_app(service: Service, origins: Sequence[str] = ()) -> FastAPI:
    """origins: sites whose pages may use the service from a browser, beside its own."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.batcher.start()
        yield
        await asyncio.to_thread(service.batcher.close)

    app = FastAPI(
        title="dynctx",
        version=version("dynctx"),
        description="Document translation that chooses, for each sentence, the earlier sentences it needs as context.",
        lifespan=lifespan,
        docs_url=None,  # FastAPI's own page loads its scripts from elsewhere
        redoc_url=None,
    )
    if origins:
        app.add_middleware(CORSMiddleware, allow_origins=origins, allow_methods=["GET", "POST"], allow_headers=["*"])
    app.add_middleware(Outermost, metrics=service.metrics)
    add_errors(app)
    add_libretranslate(app, service)
    add_documents(app, service)
    add_files(app, service)
    add_state(app, service)
    add_pages(app)
    return app


def add_libretranslate(app: FastAPI, service: Service) -> None:
    @app.post(
        "/translate",
        response_model=schemas.TranslateAnswer,
        responses=ERRORS,
        openapi_extra=body_of(schemas.TranslateRequest),
    )
    async def translate(request: Request) -> Response:
        """Translate a text or a document; compatible with LibreTranslate."""
        asked = await parse(request, schemas.TranslateRequest, service.limits)
        service.check_key(request, asked.api_key)
        check_languages(service, asked.source, asked.target)
        texts = [asked.q] if isinstance(asked.q, str) else asked.q
        with service.clients.place(client_of(request)):
            # a long text takes a while to split, and others are waiting
            is_html = asked.format == "html"
            templates = await asyncio.to_thread(templates_of, texts, is_html, service.source, service.limits)
            sentences = [s for template in templates for document in template.documents for s in document.sentences]
            translated = await unless_gone(request, service.translations(sentences))
        found: Any = await asyncio.to_thread(fill, templates, translated)
        detected: Any = [detection(service, text) for text in texts]
        if isinstance(asked.q, str):
            found, detected = found[0], detected[0]
        answer = {"translatedText": found}
        if asked.source == "auto":
            answer["detectedLanguage"] = detected
        if asked.alternatives > 0:
            answer["alternatives"] = [] if isinstance(asked.q, str) else [[] for _ in texts]
        return JSONResponse(answer)

    @app.post(
        "/detect",
        response_model=list[schemas.Detection],
        responses=ERRORS,
        openapi_extra=body_of(schemas.DetectRequest),
    )
    async def detect(request: Request) -> Response:
        """How far a text looks like the one language that the model reads."""
        asked = await parse(request, schemas.DetectRequest, service.limits)
        service.check_key(request, asked.api_key)
        return JSONResponse([detection(service, asked.q if isinstance(asked.q, str) else " ".join(asked.q))])

    @app.get("/languages")
    async def languages() -> list[schemas.Language]:
        """The language that the model reads and the one that it writes."""
        return [language(service.source, [service.target]), language(service.target, [])]

    @app.get("/frontend/settings", include_in_schema=False)
    async def settings() -> dict[str, Any]:
        """What some clients of LibreTranslate ask for first."""
        return frontend_settings(service)


def add_documents(app: FastAPI, service: Service) -> None:
    @app.post(
        "/v1/documents",
        response_model=schemas.DocumentAnswer,
        responses=ERRORS,
        openapi_extra=body_of(schemas.DocumentRequest),
    )
    async def documents(request: Request) -> Response:
        """Translate a document sentence by sentence, and say what context each was given; or only say that."""
        asked = await parse(request, schemas.DocumentRequest, service.limits)
        service.check_key(request, asked.api_key)
        service.check_sentences(asked.sentences)
        try:
            selector = service.selector if asked.selector is None else service.checked_selector(asked.selector)
        except DynctxError as error:
            raise Refused(400, str(error)) from None
        count = len(asked.sentences)
        numbers = range(1, count + 1) if asked.numbers is None else sorted(set(asked.numbers))
        for number in [*numbers, *asked.selection]:
            if not 1 <= number <= count:
                raise Refused(400, f"sentence {number}: the document has sentences 1 to {count}")
        selected = {number - 1: distances for number, distances in asked.selection.items()}
        service.check_distances(asked.sentences, selected)
        places = [number - 1 for number in numbers]
        answers = service.answers(asked.sentences, places, selector, selected, asked.translate)
        client = client_of(request)
        if asked.stream:
            return await stream(request, service, client, answers, explained)
        with service.clients.place(client):
            found = await unless_gone(request, gather(answers))
        found.sort(key=lambda answer: answer.place)
        return JSONResponse({"selector": selector, "sentences": [explained(answer) for answer in found]})

    @app.get("/v1/model")
    async def model() -> schemas.ModelAnswer:
        """What is served: languages, scope, selector, limits."""
        return schemas.ModelAnswer(
            name=service.name,
            kind=service.model.config.model.kind,
            source=language(service.source, [service.target]),
            target=language(service.target, []),
            scope=service.model.translator.scope,
            selector=service.selector,
            scorer=service.model.scorer is not None,
            key_required=service.api_key is not None,
            limits=schemas.ModelLimits(
                body_bytes=service.limits.body_bytes,
                sentences=service.limits.sentences,
                characters=service.limits.characters,
            ),
        )


def add_files(app: FastAPI, service: Service) -> None:
    languages = service.source, service.target

    @app.post(
        "/v1/files/read",
        response_model=schemas.FileAnswer,
        responses=ERRORS,
        openapi_extra=body_of(schemas.FileRequest),
    )
    async def read_file(request: Request) -> Response:
        """The sentences of a file, for /v1/documents; /v1/files/write puts their translations into it."""
        asked = await parse(request, schemas.FileRequest, service.limits)
        service.check_key(request, asked.api_key)
        with service.clients.place(client_of(request)):
            template = await asyncio.to_thread(file_text, asked.name, asked.text, languages, service.limits)
        sentences = [sentence for document in template.documents for sentence in document.sentences]
        return JSONResponse({"format": template.format, "sentences": sentences})

    @app.post(
        "/v1/files/write",
        response_model=schemas.FilledAnswer,
        responses=ERRORS,
        openapi_extra=body_of(schemas.FilledRequest),
    )
    async def write_file(request: Request) -> Response:
        """The same file with translations of its sentences: timings, tags, notes and line breaks in their places."""
        asked = await parse(request, schemas.FilledRequest, service.limits)
        service.check_key(request, asked.api_key)
        with service.clients.place(client_of(request)):
            template = await asyncio.to_thread(file_text, asked.name, asked.text, languages, service.limits)
            count = sum(len(document.sentences) for document in template.documents)
            if count != len(asked.translations):
                raise Refused(400, f"{len(asked.translations)} translations for {count} sentences")
            (text,) = await asyncio.to_thread(fill, [template], asked.translations)
        return JSONResponse({"text": text})


def add_state(app: FastAPI, service: Service) -> None:
    @app.get("/health", responses={503: {"model": schemas.Error}})
    async def health() -> schemas.Health:
        """Whether translations are made: 200, or 503 while it stops."""
        if not service.batcher.alive:
            raise Refused(503, "the service is stopping")
        return schemas.Health(status="ok")

    @app.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """Counts and times, for Prometheus."""
        return Response(service.metrics.text(), media_type=service.metrics.content_type)


def add_pages(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return FileResponse(f"{STATIC}/index.html")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return FileResponse(f"{STATIC}/docs.html")

    app.mount("/static", StaticFiles(directory=STATIC), name="static")


def body_of(kind: type[BaseModel]) -> dict[str, Any]:
    """The description of a body that the route reads itself."""
    schema = kind.model_json_schema()
    types = ["application/json"]
    if kind not in (schemas.DocumentRequest, schemas.FileRequest, schemas.FilledRequest):
        types += ["application/x-www-form-urlencoded", "multipart/form-data"]
    return {"requestBody": {"required": True, "content": {name: {"schema": schema} for name in types}}}


def check_languages(service: Service, source: str, target: str) -> None:
    if source != "auto" and not same_language(source, service.source):
        raise Refused(400, f"{source} is not supported as source; this model reads {service.source}")
    if not same_language(target, service.target):
        raise Refused(400, f"{target} is not supported as target; this model writes {service.target}")


def language(code: str, targets: list[str]) -> schemas.Language:
    return schemas.Language(code=code, name=name_of(code), targets=targets)


def detection(service: Service, text: str) -> dict[str, Any]:
    return {"confidence": confidence(text, service.source), "language": service.source}


def frontend_settings(service: Service) -> dict[str, Any]:
    """The settings of LibreTranslate's own page, as far as they mean something here."""
    source, target = language(service.source, []), language(service.target, [])
    return {
        "apiKeys": service.api_key is not None,
        "charLimit": service.limits.characters,
        "filesTranslation": False,
        "frontendTimeout": 500,
        "keyRequired": service.api_key is not None,
        "language": {
            "source": {"code": source.code, "name": source.name},
            "target": {"code": target.code, "name": target.name},
        },
        "suggestions": False,
        "supportedFilesFormat": [],
    }


def client_of(request: Request) -> str:
    """An address counts as one client: behind a proxy that says so, the address it names."""
    return request.client.host if request.client else ""


def fill(templates: Sequence[Template], translations: Sequence[str]) -> list[str]:
    found = iter(translations)
    documents = [
        [Document(d.id, tuple(next(found) for _ in d.sentences)) for d in template.documents] for template in templates
    ]
    # what a translation has lost is put at its end; the client sees it there
    return [template.text(filled, lambda _: None) for template, filled in zip(templates, documents)]


async def gather(answers: Answers) -> list[Answer]:
    return [answer async for found in answers for answer in found]


def explained(answer: Answer) -> dict[str, Any]:
    """A sentence as schemas.Sentence has it."""
    choice = answer.choice
    return {
        "sentence": answer.place + 1,
        "translation": answer.translation,
        "selected": list(choice.selected),
        "probabilities": {str(distance): round(p, 6) for distance, p in sorted(choice.probabilities.items())},
        "non": None if choice.non is None else round(choice.non, 6),
        "kept": choice.kept,
    }
