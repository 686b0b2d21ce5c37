"""The pictures of the page in this folder, from a running service and a document.

    dynctx serve &
    python docs/screenshots.py http://127.0.0.1:5000 examples/dialogue.zh.txt 4

4, counted from 1, is the line pointed at. Needs playwright, a Chromium and a font with Chinese characters.
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

FOLDER = Path(__file__).parent


def main() -> None:
    url, document, line = sys.argv[1], Path(sys.argv[2]).read_text(encoding="utf-8"), int(sys.argv[3])
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = translated(browser, url, document, "light", 1180, 900)
        row(page, line).locator(".source").hover()
        save(page, "page.png")
        page = translated(browser, url, document, "dark", 1180, 900)
        brightest = "squares => squares.sort((a, b) => b.style.getPropertyValue('--strength') - "
        brightest += "a.style.getPropertyValue('--strength'))[0].click()"
        row(page, line).locator(".square:not(.gap)").evaluate_all(brightest)
        time.sleep(2)
        row(page, line).locator(".source").hover()
        save(page, "page-dark.png")
        page = translated(browser, url, document, "light", 390, 844)
        row(page, line).locator(".source").click()
        save(page, "page-small.png")
        browser.close()


def translated(browser: Browser, url: str, document: str, scheme: str, width: int, height: int) -> Page:
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    page.goto(url)
    page.fill("#text", document)
    page.click("#translate")
    page.wait_for_selector("#lines[aria-busy=false]")
    return page


def row(page: Page, line: int):
    return page.locator(f".line[data-place='{line - 1}']")


def save(page: Page, name: str) -> None:
    time.sleep(0.5)  # until the light has faded in
    page.screenshot(path=FOLDER / name)


if __name__ == "__main__":
    main()
