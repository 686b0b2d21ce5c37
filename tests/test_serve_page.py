"""The page in a real browser. Skipped, with the reason, where there is none."""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from serving import SENTENCES, Server, tiny_model
from tiny_runs import Warm

from dynctx.documents import Document
from dynctx.formats import Reading, read_text
from dynctx.model_folder import Model, save_model
from dynctx.pipeline import Choice, Wish, translate_and_explain

pytest_plugins = ("tiny_fixtures",)
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
Found = list[tuple[str, Choice]]


def find_browser(playwright: Any) -> str:
    for name in BROWSERS:
        if place := shutil.which(name):
            return place
    own = playwright.chromium.executable_path
    if Path(own).exists():
        return own
    pytest.skip("no Chromium here (Debian: apt-get install chromium; elsewhere: playwright install chromium)")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (extra: dev)")
    with sync_api.sync_playwright() as playwright:
        place = find_browser(playwright)
        # in a container the browser's own sandbox and shared memory are often not to be had
        browser = playwright.chromium.launch(
            executable_path=place, args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def model() -> Model:
    return tiny_model()


@pytest.fixture(scope="module")
def server(model: Model, warm: Warm, browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("page") / "tiny"
    save_model(folder, model)
    server = Server(warm, folder, "--batch", "4", "--max-sentences", "40")
    yield server
    server.signal(signal.SIGTERM)
    server.ended()


@pytest.fixture
def page(browser: Any, server: Server) -> Iterator[Any]:
    """The page just opened. Nothing may be asked of anyone else, and the browser may have nothing to complain of."""
    context = browser.new_context(
        viewport={"width": 1280, "height": 900}, permissions=["clipboard-read", "clipboard-write"]
    )
    page = context.new_page()
    page.set_default_timeout(20_000)
    asked: list[str] = []
    complaints: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on(
        "console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None
    )
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(server.url)
    until(page, "document.getElementById('languages').textContent")
    yield page
    context.close()
    assert asked and all(url.startswith((server.url, "blob:" + server.url)) for url in asked)
    assert [text for text in complaints if "413" not in text and "400" not in text] == []  # which the page shows


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


def square(page: Any, line: int, distance: int) -> Any:
    return page.locator(f".line[data-place='{line - 1}'] .square[data-distance='{distance}']")


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


SRT = """1
00:00:01,000 --> 00:00:02,500
<i>the cat
sat</i>

2
00:00:03,000 --> 00:00:04,000
- [it rains] a dog ran
- we saw <b>a house</b>
"""


def test_subtitles_are_dropped_and_downloaded(page: Any, model: Model, tmp_path: Path) -> None:
    page.evaluate(
        """text => { const data = new DataTransfer(); data.items.add(new File([text], 'film.srt'));
        for (const kind of ['dragover', 'drop'])
          document.body.dispatchEvent(new DragEvent(kind, {dataTransfer: data, bubbles: true, cancelable: true})); }""",
        "\ufeff" + SRT.replace("\n", "\r\n"),
    )
    done(page, 4)
    assert cells(page, "source") == ["the cat sat", "it rains", "a dog ran", "we saw a house"]
    with page.expect_download() as waiting:
        page.click("#download")
    assert waiting.value.suggested_filename == "film.de.srt"
    waiting.value.save_as(tmp_path / "film.srt")
    lines = ["the cat sat", "it rains", "a dog ran", "we saw a house"]
    found = texts(direct(model, lines))
    template = read_text(SRT, "film.srt", "srt", Reading("en", "de"), print)
    expected = template.filled([Document("1", tuple(found))], lambda _: None)
    assert (tmp_path / "film.srt").read_bytes() == expected
    for kept in ("<i>", "</i>", "- [", "]", "\n- ", "<b>", "</b>", "\n\n2\n00:00:03,000 --> 00:00:04,000\n"):
        assert kept.encode() in expected


@pytest.fixture(scope="module")
def chinese(warm: Warm, browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service that takes English for another language than its own."""
    model = tiny_model()
    model.config.data.source_language = "zh"
    folder = tmp_path_factory.mktemp("page") / "chinese"
    save_model(folder, model)
    server = Server(warm, folder)
    yield server
    server.signal(signal.SIGTERM)
    server.ended()


def test_a_line_in_another_script_is_kept(browser: Any, chinese: Server) -> None:
    page = browser.new_page()
    page.goto(chinese.url)
    until(page, "document.getElementById('languages').textContent")
    translate(page, "猫 sat\nthe cat sat", 2)
    assert cells(page, "translation")[1] == "the cat sat"
    assert page.locator(".line").nth(1).locator(".context").text_content() == "kept as it is"
    page.locator(".line").nth(1).focus()
    page.keyboard.press("1")  # there is nothing to switch
    assert page.locator(".line.waiting").count() == 0 and not page.is_visible("#problem")
    page.close()


def test_a_broken_file_of_subtitles(page: Any) -> None:
    page.fill("#text", "1\n00:00:01,000 --> 00:00:02,000\nthe cat\n\n2\n00:00:03 --> 00:00:04\na dog\n")
    page.click("#translate")
    page.wait_for_selector("#problem:visible")
    assert page.inner_text("#problem").startswith("text.srt:6: '00:00:03 --> 00:00:04' is no timing")


def test_a_file_that_is_no_text(page: Any, tmp_path: Path) -> None:
    said = " is not a text in UTF-8. Save it as UTF-8, or use dynctx translate --encoding."
    for name, data in {"x.txt": b"\xff\xfe\x00", "y.txt": b"a\0b", "z.srt": "你好".encode("gb18030")}.items():
        (tmp_path / name).write_bytes(data)
        page.set_input_files("#file", tmp_path / name)
        until(page, "said => document.getElementById('problem').textContent === said", name + said)
    (tmp_path / "a.md").write_text("# the cat\n")
    page.set_input_files("#file", tmp_path / "a.md")
    until(page, "document.getElementById('problem').textContent.startsWith('a.md is not read by this page')")
    assert page.input_value("#text") == ""


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be"])
def test_a_text_that_says_its_encoding(page: Any, tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a.txt").write_bytes("\ufeffthe cat sat".encode(encoding))
    page.set_input_files("#file", tmp_path / "a.txt")
    done(page, 1)
    assert cells(page, "source") == ["the cat sat"]
    (tmp_path / "y.txt").write_text("the cat sat", encoding="utf-8")
    page.set_input_files("#file", tmp_path / "y.txt")
    done(page, 1)
    assert not page.is_visible("#problem")


def test_what_the_service_refuses_is_shown(page: Any) -> None:
    page.fill("#text", "x" * 3000)
    page.click("#translate")
    page.wait_for_selector("#problem:visible")
    assert page.inner_text("#problem") == "sentence 1 has 3000 characters; it may have 2000"
    page.fill("#text", " \n ")
    page.click("#translate")
    assert page.inner_text("#problem") == "There is nothing to translate yet."


def test_text_is_never_taken_for_markup(page: Any) -> None:
    hostile = "<img src=x onerror=alert(1)><script>alert(1)</script>"
    page.uncheck("#split")
    translate(page, hostile, 1)
    assert cells(page, "source") == [hostile]
    assert page.locator("#lines img, #lines script").count() == 0


def test_dark_mode(page: Any) -> None:
    def paper() -> str:
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    light = paper()
    page.emulate_media(color_scheme="dark")
    dark = paper()
    assert light != dark
    page.click("#theme")  # the other way round than the system
    assert paper() == light
    page.reload()
    assert paper() == light  # and it is remembered
    page.click("#theme")
    assert paper() == dark


def test_a_small_screen(page: Any) -> None:
    page.set_viewport_size({"width": 340, "height": 640})
    translate(page, "\n".join([*SENTENCES, "again" * 60]), 8)
    assert page.evaluate("document.documentElement.scrollWidth") <= 340
    box = square(page, 7, 1).bounding_box()
    assert box["width"] >= 32 and box["height"] >= 32  # room for a finger


def test_everything_has_a_name(page: Any) -> None:
    translate(page, "\n".join(SENTENCES), 7)
    nameless = page.evaluate(
        """[...document.querySelectorAll('button, input, textarea, a')]
        .filter(e => !e.hidden && !e.matches('.gap') && e.type !== 'file' && !e.labels?.length)
        .filter(e => !e.getAttribute('aria-label') && !e.textContent.trim() && !e.placeholder).map(e => e.outerHTML)"""
    )
    assert nameless == []
    assert page.evaluate("document.documentElement.lang") == "en"


def test_the_description_of_the_api(page: Any, server: Server) -> None:
    page.goto(f"{server.url}/docs")
    page.wait_for_selector(".route")
    titles = page.locator(".route h2").all_text_contents()
    paths = json.loads(page.request.get(f"{server.url}/openapi.json").text())["paths"]
    assert "POST/v1/documents" in titles and len(titles) == len(paths)
    assert "Distances to use as context" in page.inner_text("#routes")
