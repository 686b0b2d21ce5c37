"""A service with the tiny model and its page in a browser; a plugin, for the tests of the page."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pages import until
from serving import Server, tiny_model
from tiny_runs import Warm

from dynctx.model_folder import Model, save_model

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


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
