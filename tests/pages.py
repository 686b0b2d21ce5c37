"""What the tests of the page do with it again and again."""

from __future__ import annotations

import time
from typing import Any

from dynctx.documents import Document
from dynctx.model_folder import Model
from dynctx.pipeline import Choice, Wish, translate_and_explain

Found = list[tuple[str, Choice]]


def until(page: Any, expression: str, argument: Any = None) -> None:
    """Playwright's own way of waiting runs code that the page's policy forbids."""
    deadline = time.monotonic() + 30
    while not page.evaluate(expression, argument):
        assert time.monotonic() < deadline, expression
        time.sleep(0.02)


def direct(model: Model, sentences: list[str], selector: str = "probability-first", wish: Wish | None = None) -> Found:
    documents = [Document("x", tuple(sentences))]
    wishes = None if wish is None else [wish]
    (document,), (choices,) = translate_and_explain(model, documents, selector=model.choose(selector), wishes=wishes)
    return list(zip(document.sentences, choices))


def texts(found: Found) -> list[str]:
    return [text for text, _ in found]


def translate(page: Any, text: str, lines: int) -> None:
    page.fill("#text", text)
    page.click("#translate")
    done(page, lines)


def done(page: Any, lines: int) -> None:
    """Until every line has its translation, and the one without context beside it."""
    until(
        page,
        "count => document.querySelectorAll('.line:not(.waiting)').length === count"
        " && [...document.querySelectorAll('.line .plain')].every(cell => cell.textContent)",
        lines,
    )


def cells(page: Any, name: str) -> list[str]:
    return page.locator(f".line .{name}").all_text_contents()


def lit(page: Any) -> dict[int, float]:
    """Lit lines, counted from 1, with how strong the light is."""
    return dict(
        page.evaluate(
            "[...document.querySelectorAll('.line.lit')]"
            ".map(row => [Number(row.dataset.place) + 1, Number(row.style.getPropertyValue('--strength'))])"
        )
    )


def used(choice: Choice, line: int) -> set[int]:
    return {line - distance for distance in choice.selected}


def square(page: Any, line: int, distance: int) -> Any:
    return page.locator(f".line[data-place='{line - 1}'] .square[data-distance='{distance}']")
