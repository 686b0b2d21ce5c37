"""Which script a language is written in: what can be said of a text's language without a detector.

A line without a letter of the source language's script is nothing that a model can translate: it answers with an
invention. Of languages in Latin script nothing can be said so, since most others have Latin letters among their own.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache

CYRILLIC, ARABIC, DEVANAGARI = ("CYRILLIC",), ("ARABIC",), ("DEVANAGARI",)
# what the Unicode names of a language's letters have in common, where these are not Latin
SCRIPTS = {
    "am": ("ETHIOPIC",),
    "ar": ARABIC,
    "be": CYRILLIC,
    "bg": CYRILLIC,
    "bn": ("BENGALI",),
    "el": ("GREEK",),
    "fa": ARABIC,
    "he": ("HEBREW",),
    "hi": DEVANAGARI,
    "hy": ("ARMENIAN",),
    "ja": ("CJK", "HIRAGANA", "KATAKANA"),
    "ka": ("GEORGIAN",),
    "km": ("KHMER",),
    "ko": ("HANGUL", "CJK"),
    "lo": ("LAO",),
    "mk": CYRILLIC,
    "mr": DEVANAGARI,
    "my": ("MYANMAR",),
    "ne": DEVANAGARI,
    "ru": CYRILLIC,
    "ta": ("TAMIL",),
    "te": ("TELUGU",),
    "th": ("THAI",),
    "uk": CYRILLIC,
    "ur": ARABIC,
    "yue": ("CJK",),
    "zh": ("CJK",),
}


def primary(language: str) -> str:
    """`zh` of `zh-CN` and `zh_TW`."""
    return language.lower().replace("_", "-").split("-")[0]


@lru_cache(8192)  # not without end: a service reads what anybody sends
def is_letter_of(character: str, scripts: tuple[str, ...]) -> bool:
    words = unicodedata.name(character, "").replace("-", " ").split()
    return character.isalpha() and any(script in words for script in scripts)


def is_foreign(text: str, language: str) -> bool:
    """Whether a text has no letter of the language's script; never of a language in Latin script or an unknown one."""
    scripts = SCRIPTS.get(primary(language))
    return scripts is not None and not any(is_letter_of(character, scripts) for character in text)
