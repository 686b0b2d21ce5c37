"""The page: files that are dropped on it, what is refused, how it looks and whom it serves."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pages import cells, direct, done, square, texts, translate, until
from serving import SENTENCES, Server, tiny_model
from tiny_runs import Warm

from dynctx.documents import Document
from dynctx.formats import Reading, read_text
from dynctx.model_folder import Model, save_model

pytest_plugins = ("tiny_fixtures", "page_fixtures")


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


def test_kept_lines_are_no_candidates(browser: Any, chinese: Server) -> None:
    page = browser.new_page()
    page.goto(chinese.url)
    until(page, "document.getElementById('languages').textContent")
    translate(page, "猫 sat\nthe cat sat\n狗 ran\nthe dog ran\n猫 ran", 5)
    found = (
        "[...document.querySelectorAll('.line[data-place=\"4\"] .square:not(.gap)')].map(square => square.textContent)"
    )
    assert page.evaluate(found) == ["1", "3"]
    before = square(page, 5, 4).get_attribute("aria-pressed")
    page.locator(".line").nth(4).focus()
    page.keyboard.press("2")  # the second candidate, four lines back
    until(
        page,
        "before => document.querySelector(\".line[data-place='4'] .square[data-distance='4']\")"
        ".getAttribute('aria-pressed') !== before",
        before,
    )
    assert not page.is_visible("#problem")
    page.close()


def test_pasted_subtitles_are_known_by_their_first_line(page: Any) -> None:
    head = "[Script Info]\nTitle: a film\n\n[Events]\n"
    event = "Dialogue: 0,0:00:0%d.00,0:00:0%d.50,Default,,0,0,0,,%s\n"
    translate(page, head + event % (1, 1, r"{\i1}the cat{\i0}\N sat") + event % (2, 2, "a dog"), 2)
    assert cells(page, "source") == ["the cat sat", "a dog"]
    with page.expect_download() as waiting:
        page.click("#download")
    assert waiting.value.suggested_filename == "translation.de.ass"
    assert waiting.value.path().read_text().startswith(head + "Dialogue: 0,0:00:01.00,0:00:01.50,Default,,0,0,0,,{")


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
