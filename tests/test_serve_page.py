"""The page in a real browser. Skipped, with the reason, where there is none."""

from __future__ import annotations

from typing import Any

from pages import cells, direct, done, lit, square, texts, translate, until, used
from serving import SENTENCES

from dynctx.model_folder import Model
from dynctx.pipeline import Wish

pytest_plugins = ("tiny_fixtures", "page_fixtures")


def test_a_document_is_translated(page: Any, model: Model) -> None:
    translate(page, "\n".join(SENTENCES), 7)
    assert cells(page, "source") == SENTENCES
    assert cells(page, "translation") == texts(direct(model, SENTENCES))
    assert cells(page, "plain") == texts(direct(model, SENTENCES, "none"))
    assert page.inner_text("#status") == "7 of 7 lines"
    assert "English to German" in page.inner_text("#languages")
    page.uncheck("#beside")
    assert not page.locator(".line .plain").first.is_visible()


def test_translations_appear_as_they_are_made(page: Any) -> None:
    page.evaluate(
        """() => { window.seen = new Set();
        new MutationObserver(() => seen.add(document.querySelectorAll('.line:not(.waiting)').length))
        .observe(document.getElementById('lines'), {subtree: true, childList: true, attributes: true}); }"""
    )
    sentences = [f"the cat sat {k}" for k in range(100)]  # more than one request takes
    translate(page, "\n".join(sentences), 100)
    seen = page.evaluate("[...seen].sort((a, b) => a - b)")
    assert len(seen) > 20 and seen[-1] == 100
    assert cells(page, "source") == sentences


def test_a_long_document_keeps_its_context_from_request_to_request(page: Any, model: Model) -> None:
    sentences = (SENTENCES * 8)[:50]
    translate(page, "\n".join(sentences), 50)
    assert cells(page, "translation") == texts(direct(model, sentences))


def test_pointing_at_a_line_lights_up_its_context(page: Any, model: Model) -> None:
    translate(page, "\n".join(SENTENCES), 7)
    found = direct(model, SENTENCES)
    for line, (_, choice) in enumerate(found, 1):
        page.hover(f".line[data-place='{line - 1}'] .translation")
        light = lit(page)
        assert set(light) == used(choice, line)
        brightest = sorted(light, key=lambda k: -light[k])
        assert brightest == sorted(light, key=lambda k: -choice.probabilities[line - k])
    assert any(len(choice.selected) > 1 for _, choice in found)
    page.hover("#text")
    assert lit(page) == {}


def by_hand(model: Model, line: int, *distances: int) -> str:
    return direct(model, SENTENCES, wish=Wish([line - 1], {line - 1: distances}))[line - 1][0]


def wait_for_translation(page: Any, line: int, text: str) -> None:
    """The text of a line, without the note on what it was before."""
    until(
        page,
        """([place, text]) => { const row = document.querySelector(`.line[data-place='${place}']`);
        const cell = row.querySelector('.translation').cloneNode(true); cell.querySelector('.as-chosen')?.remove();
        return !row.classList.contains('waiting') && cell.textContent === text; }""",
        [line - 1, text],
    )


def test_a_click_switches_a_line_of_context_and_translates_again(page: Any, model: Model) -> None:
    translate(page, "\n".join(SENTENCES), 7)
    text, choice = direct(model, SENTENCES)[6]
    target = next(d for d in (1, 2, 3) if by_hand(model, 7, *({*choice.selected} ^ {d})) != text)
    was = target in choice.selected
    button = square(page, 7, target)
    assert button.get_attribute("aria-pressed") == str(was).lower()
    assert f"Line {7 - target}, {target} back: {'used' if was else 'not used'}, probability" in button.get_attribute(
        "aria-label"
    )
    button.click()
    wait_for_translation(page, 7, by_hand(model, 7, *({*choice.selected} ^ {target})))
    assert button.get_attribute("aria-pressed") == str(not was).lower()
    assert page.inner_text(".line[data-place='6'] .as-chosen") == f"as chosen by the model: {text}"
    button.click()  # and back
    wait_for_translation(page, 7, text)
    assert page.locator(".as-chosen").count() == 0 and page.locator(".undo").count() == 0
    button.click()
    page.click(".undo")
    wait_for_translation(page, 7, text)
    assert cells(page, "translation") == texts(direct(model, SENTENCES))


def test_a_line_is_held_and_its_context_clicked(page: Any, model: Model) -> None:
    translate(page, "\n".join(SENTENCES), 7)
    _, choice = direct(model, SENTENCES)[6]
    page.click(".line[data-place='6'] .source")
    page.hover(".line[data-place='2'] .source")
    assert set(lit(page)) == used(choice, 7)  # the line is held, wherever the pointer goes
    page.click(".line[data-place='5'] .source")  # one back
    expected = {*choice.selected} ^ {1}
    wait_for_translation(page, 7, by_hand(model, 7, *expected))
    assert set(lit(page)) == {7 - d for d in expected}
    page.click(".line[data-place='0'] .source")  # out of reach: it is held instead
    assert page.locator(".line.held").get_attribute("data-place") == "0"
    page.click(".line[data-place='0'] .source")
    assert page.locator(".line.held").count() == 0


def test_all_of_it_by_keyboard(page: Any, model: Model) -> None:
    page.focus("#text")
    page.keyboard.insert_text("\n".join(SENTENCES))
    page.keyboard.press("Control+Enter")
    done(page, 7)
    page.focus(".line[data-place='0']")
    page.keyboard.press("End")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowDown")
    _, choice = direct(model, SENTENCES)[6]
    assert set(lit(page)) == used(choice, 7)
    page.keyboard.press("2")
    wait_for_translation(page, 7, by_hand(model, 7, *({*choice.selected} ^ {2})))
    page.keyboard.press("0")
    wait_for_translation(page, 7, direct(model, SENTENCES)[6][0])
    page.keyboard.press("Tab")  # from the line to its squares, the oldest first
    assert page.evaluate("document.activeElement.dataset.distance") == "3"
    page.keyboard.press("Space")
    wait_for_translation(page, 7, by_hand(model, 7, *({*choice.selected} ^ {3})))
    assert page.evaluate("document.activeElement.dataset.distance") == "3"  # the focus stays
    page.keyboard.press("Escape")
    # one line alone is in the order of tabs, not hundreds of squares
    assert page.locator("#lines [tabindex='0']").count() == 1 + 1 + 3


def test_paragraphs_are_split_and_put_together_again(page: Any, model: Model) -> None:
    text = "  the cat sat! a dog ran!\n\nit rains today"
    translate(page, text, 3)
    assert cells(page, "source") == ["the cat sat!", "a dog ran!", "it rains today"]
    first, second, third = texts(direct(model, ["the cat sat!", "a dog ran!", "it rains today"]))
    page.click("#copy")
    until(page, "document.getElementById('status').textContent === 'Copied.'")
    assert page.evaluate("navigator.clipboard.readText()") == f"  {first} {second}\n\n{third}"
    page.uncheck("#split")
    translate(page, text, 2)


def test_addresses_that_a_translation_has_lost_are_put_at_its_end(page: Any, model: Model) -> None:
    sentences = ["see http://a.b/c?d, or www.e.f!", "it rains", "ask g.h@i-j.org today"]
    translate(page, "\n".join(sentences), 3)
    first, second, third = texts(direct(model, sentences))
    assert "http://a.b/c?d" not in first and "g.h@i-j.org" not in third  # a tiny model copies nothing
    page.click("#copy")
    until(page, "document.getElementById('status').textContent === 'Copied.'")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == f"{first} http://a.b/c?d www.e.f\n{second}\n{third} g.h@i-j.org"
