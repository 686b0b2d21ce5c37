"""Requests and answers, as the OpenAPI description shows them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

API_KEY = Field(None, description="Where the service asks for a key; an Authorization header does as well.")


class TranslateRequest(BaseModel):
    """As LibreTranslate has it. Fields that are not known are ignored, since its clients may send them."""

    q: Annotated[str | list[str], Field(description="A text, or a list of texts that are one document, in order.")]
    source: Annotated[str, Field(description="Language code, or auto.")] = "auto"
    target: Annotated[str, Field(description="Language code.")]
    format: Annotated[Literal["text", "html"] | None, Field(description="html: tags are kept.")] = "text"
    alternatives: Annotated[int, Field(description="Accepted; there are never any.")] = 0
    api_key: Annotated[str | None, API_KEY] = None


class Detection(BaseModel):
    confidence: Annotated[float, Field(description="Percent of the letters that are of the language's script.")]
    language: str


class TranslateAnswer(BaseModel):
    translatedText: str | list[str]
    detectedLanguage: Annotated[
        Detection | list[Detection] | None, Field(description="Where the source was auto; a list for a list.")
    ] = None


class DetectRequest(BaseModel):
    q: str | list[str]
    api_key: Annotated[str | None, API_KEY] = None


class Language(BaseModel):
    code: str
    name: str
    targets: list[str]


class DocumentRequest(BaseModel):
    """Sentences are numbered from 1. A distance counts sentences back: 1 is the one just before."""

    model_config = ConfigDict(extra="forbid")

    sentences: Annotated[list[str], Field(description="The document, in order.", min_length=1)]
    selector: Annotated[
        str | None, Field(description="none, full, previous N, probability-first, size-first N; default: the model's.")
    ] = None
    selection: Annotated[
        dict[int, list[int]], Field(description="Distances to use as context, by sentence; the selector does the rest.")
    ] = {}
    numbers: Annotated[
        list[int] | None, Field(description="The sentences to translate; the others serve as context only.")
    ] = None
    translate: Annotated[bool, Field(description="false: only say what context each sentence would be given.")] = True
    stream: Annotated[bool, Field(description="Answer with JSON lines, each sentence as soon as it is made.")] = False
    api_key: Annotated[str | None, API_KEY] = None


class Sentence(BaseModel):
    sentence: Annotated[int, Field(description="Its number in the document, from 1.")]
    translation: Annotated[str | None, Field(description="null where none was asked for.")]
    selected: Annotated[list[int], Field(description="Distances of the sentences it was translated with.")]
    probabilities: Annotated[dict[int, float], Field(description="Of each candidate, by distance.")]
    non: Annotated[float | None, Field(description="The probability of needing no context.")]
    kept: Annotated[bool, Field(description="Not in the source language's script, so left as it is.")] = False


class DocumentAnswer(BaseModel):
    selector: str
    sentences: list[Sentence]


class FileRequest(BaseModel):
    """A file of subtitles (.srt, .vtt, .ass) or HTML."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(description="Its suffix says the format.", max_length=300)]
    text: str
    api_key: Annotated[str | None, API_KEY] = None


class FileAnswer(BaseModel):
    format: str
    sentences: Annotated[list[str], Field(description="The text of the file, in order, without markup.")]


class FilledRequest(FileRequest):
    translations: Annotated[list[str], Field(description="One for each sentence that was read.")]


class FilledAnswer(BaseModel):
    text: Annotated[str, Field(description="The file with the translations in it.")]


class ModelLimits(BaseModel):
    body_bytes: int
    sentences: int
    characters: int


class ModelAnswer(BaseModel):
    """What the page needs to know."""

    name: str
    kind: str
    source: Language
    target: Language
    scope: Annotated[int, Field(description="How many sentences back a sentence may use, kept ones not counted.")]
    selector: str
    scorer: Annotated[bool, Field(description="Whether the model has a context scorer, and so probabilities.")]
    key_required: bool
    limits: ModelLimits


class Health(BaseModel):
    status: str


class Error(BaseModel):
    error: Annotated[str, Field(description="What is wrong, for people.")]
