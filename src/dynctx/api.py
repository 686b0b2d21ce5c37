"""The Python API: load a model, translate documents, ask which context a sentence needs.

    import dynctx

    model = dynctx.load()  # or a model folder
    print(model.translate(["他病了", "睡着了"]))  # ["He's sick.", "He's asleep."]

What is documented here and in docs/api.md stays as it is from one release to the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, overload

from dynctx.commands import changed, check_chooses, precision, selector_of
from dynctx.devices import pick_device
from dynctx.documents import Document, is_text
from dynctx.errors import DynctxError
from dynctx.linear import to_int8
from dynctx.model_folder import Model, default_model, load_model
from dynctx.pipeline import Choice, select_documents, translate_and_explain
from dynctx.selection.strategies import Selector

Sentences = Sequence[str]
Documents = Sequence[list[str] | tuple[str, ...]]
T = TypeVar("T")


@dataclass(frozen=True)
class Translation:
    """A translated sentence and the context it was given. Distances count sentences back: 1 is the one before."""

    text: str
    selected: tuple[int, ...]  # distances, nearest first
    probabilities: dict[int, float]  # by distance, of every candidate; empty where no scorer chose
    non: float | None  # the probability of needing none of them
    kept: bool = False  # has no letter of the source language's script, so it was left as it is


def load(folder: str | Path | None = None, *, device: str = "auto", int8: bool = False) -> DocumentTranslator:
    """A model from its folder; without one, the model that comes with dynctx.

    device: auto (a GPU where there is one), cpu or cuda. int8: 8-bit weights on the CPU, faster, a little less exact.
    """
    model = load_model(default_model() if folder is None else folder, pick_device(device))
    if int8:
        to_int8(model.translator)
    return DocumentTranslator(model)


class DocumentTranslator:
    """A model ready for use."""

    def __init__(self, model: Model) -> None:
        self.model = model

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target language; empty where the model does not say."""
        data = self.model.config.data
        return data.source_language or "", data.target_language or ""

    @property
    def scope(self) -> int:
        """How many sentences back a context can be."""
        return self.model.translator.scope

    @overload
    def translate(
        self,
        sentences: Sentences,
        *,
        explain: Literal[False] = False,
        beam: int | None = None,
        selector: str | None = None,
        batch: int | None = None,
    ) -> list[str]: ...
    @overload
    def translate(
        self,
        sentences: Documents,
        *,
        explain: Literal[False] = False,
        beam: int | None = None,
        selector: str | None = None,
        batch: int | None = None,
    ) -> list[list[str]]: ...
    @overload
    def translate(
        self,
        sentences: Sentences,
        *,
        explain: Literal[True],
        beam: int | None = None,
        selector: str | None = None,
        batch: int | None = None,
    ) -> list[Translation]: ...
    @overload
    def translate(
        self,
        sentences: Documents,
        *,
        explain: Literal[True],
        beam: int | None = None,
        selector: str | None = None,
        batch: int | None = None,
    ) -> list[list[Translation]]: ...
    @overload
    def translate(
        self,
        sentences: Sentences | Documents,
        *,
        explain: bool,
        beam: int | None = None,
        selector: str | None = None,
        batch: int | None = None,
    ) -> list[str] | list[list[str]] | list[Translation] | list[list[Translation]]: ...
    def translate(
        self,
        sentences: Sentences | Documents,
        *,
        explain: bool = False,
        beam: int | None = None,
        selector: str | None = None,
        batch: int | None = None,
    ) -> Any:
        """A document (a list of sentences in order) or several (a list of lists), sentence by sentence.

        explain: `Translation`s with the selected context instead of texts. beam: hypotheses kept in search, 1 is
        greedy. selector: none, full, previous N, probability-first, size-first N, ...; default: as trained. batch:
        sentences translated together.
        """
        documents, several = as_documents(sentences)
        decoding = replace(changed(self.model.config.decoding, beam=beam, batch_sentences=batch), sampling=False)
        with precision(self.model.device):
            translated, choices = translate_and_explain(
                self.model, documents, decoding, chosen(self.model, selector), for_people=True
            )
        if not explain:
            return shaped([list(document.sentences) for document in translated], several)
        found = [
            [Translation(text, c.selected, c.probabilities, c.non, c.kept) for text, c in zip(document.sentences, told)]
            for document, told in zip(translated, choices)
        ]
        return shaped(found, several)

    @overload
    def select(self, sentences: Sentences, *, selector: str | None = None) -> list[Choice]: ...
    @overload
    def select(self, sentences: Documents, *, selector: str | None = None) -> list[list[Choice]]: ...
    def select(self, sentences: Sentences | Documents, *, selector: str | None = None) -> Any:
        """Which earlier sentences each sentence needs, without translating: for a translator of your own."""
        documents, several = as_documents(sentences)
        if selector is None:
            check_chooses(self.model)
        with precision(self.model.device):
            choices = select_documents(self.model, documents, chosen(self.model, selector), for_people=True)
        return shaped(choices, several)


def as_documents(sentences: Sentences | Documents) -> tuple[list[Document], bool]:
    """The documents, and whether they were given as several."""
    if isinstance(sentences, str):
        raise TypeError("expected a list of sentences, not one string; write [sentence]")
    if sentences is None or isinstance(sentences, Set | Mapping) or not isinstance(sentences, Iterable):
        raise TypeError(f"expected a list of sentences, in order, not {type(sentences).__name__}")
    given: list[Any] = list(sentences)
    several = bool(given) and not isinstance(given[0], str)
    documents = given if several else [given]
    for document in documents:
        if not isinstance(document, list | tuple) or not all(isinstance(sentence, str) for sentence in document):
            raise TypeError("expected a list of sentences, or a list of lists of sentences")
        for number, sentence in enumerate(document, 1):
            if not is_text(sentence):
                raise DynctxError(f"sentence {number} is not valid Unicode (half of a surrogate pair): {sentence!a}")
    return [Document(str(number), tuple(document)) for number, document in enumerate(documents, 1)], several


def chosen(model: Model, selector: str | None) -> Selector:
    if selector is not None and not isinstance(selector, str):
        raise TypeError(f"expected the name of a selector, such as 'previous 2', not {selector!r}")
    return selector_of(model, selector)


def shaped(found: list[list[T]], several: bool) -> list[T] | list[list[T]]:
    return found if several else found[0]
