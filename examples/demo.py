"""The demo: a dialogue translated by the model that comes with dynctx, and what each line was translated with.

    make demo

Spoken Chinese leaves out who does something; English has to say it. Where the line alone does not tell, an earlier
one may, and the model chooses which of the six previous lines to read: each one that its scorer finds more probable
than NON, which stands for "no context needed". Every line is also translated without context; where that gives
something else, it is shown below.
"""

from __future__ import annotations

import time
from pathlib import Path

import dynctx

DIALOGUE = Path(__file__).with_name("dialogue.zh.txt")
SHOWN = 4  # characters of an earlier line
MARGIN = " " * 4
HEAD = """\
{} lines of a dialogue, {} to {}. Below each: its translation; the one without context, where that is another; and
[the earlier lines it was given: how many lines back, how it begins, its probability; NON: that none is needed].
"""
NEXT = """\
Next:
  . .venv/bin/activate
  dynctx translate examples/film.srt -o film.en.srt --explain why.jsonl    # a file of yours: docs/translate.md
  dynctx serve                                                             # the page at http://127.0.0.1:5000
  python examples/train_synthetic.py                                       # train two models in a minute"""


def main() -> None:
    start = time.monotonic()
    lines = DIALOGUE.read_text(encoding="utf-8").splitlines()
    model = dynctx.load()
    print(HEAD.format(len(lines), *model.languages))
    translations = model.translate(lines, explain=True)
    alone = model.translate(lines, selector="none")
    for number, (line, translation, other) in enumerate(zip(lines, translations, alone)):
        print(f"{number + 1:>2}  {line}")
        print(f"{MARGIN}{translation.text}")
        if other != translation.text:
            print(f"{MARGIN}without context: {other}")
        print(f"{MARGIN}{context(lines[:number], translation)}")
    print()
    print(summary(translations, alone))
    print(f"Loaded and translated twice in {time.monotonic() - start:.0f} s.")
    print(NEXT)


def context(earlier: list[str], translation: dynctx.Translation) -> str:
    """The chosen lines, nearest first: how far back, how they begin, how probable; and NON, which they had to beat."""
    if not earlier:
        return "[nothing before it]"
    chosen = [
        f"{distance} {shortened(earlier[-distance])} {percent(translation.probabilities[distance])}"
        for distance in translation.selected
    ]
    return f"[{', '.join(chosen) or 'none'}; NON {percent(translation.non)}]"


def shortened(line: str) -> str:
    return line if len(line) <= SHOWN else line[: SHOWN - 1].rstrip() + "…"


def percent(probability: float | None) -> str:
    return "" if probability is None else f"{100 * probability:.1f}%"


def summary(translations: list[dynctx.Translation], alone: list[str]) -> str:
    candidates = sum(len(translation.probabilities) for translation in translations)
    chosen = sum(len(translation.selected) for translation in translations)
    none = sum(bool(translation.probabilities) and not translation.selected for translation in translations)
    changed = sum(translation.text != other for translation, other in zip(translations, alone))
    return (
        f"{chosen} of {candidates} earlier lines were chosen, none at all for {none} of the lines; "
        f"context changed {changed} of {len(translations)} translations."
    )


if __name__ == "__main__":
    main()
