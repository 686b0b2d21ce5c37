"""Languages by their codes: names, and scripts, which tell of a text's language what can be told without a detector.

A line without a letter of the source language's script is nothing that a model can translate: it answers with an
invention. Of languages in Latin script nothing can be said so, since most others have Latin letters among their own.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache

NAMES = {
    "ar": "Arabic",
    "cs": "Czech",
    "de": "German",
    "el": "Greek",
    "en": "English",
    "es": "Spanish",
    "fa": "Persian",
    "fi": "Finnish",
    "fr": "French",
    "he": "Hebrew",
    "hi": "Hindi",
    "it": "Italian",
    "ja": "Japanese",
    "ko": "Korean",
    "nl": "Dutch",
    "pl": "Polish",
    "pt": "Portuguese",
    "ro": "Romanian",
    "ru": "Russian",
    "sv": "Swedish",
    "tr": "Turkish",
    "uk": "Ukrainian",
    "vi": "Vietnamese",
    "zh": "Chinese",
}
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
LOOKED_AT = 1000  # characters


def primary(language: str) -> str:
    """`zh` of `zh-CN` and `zh_TW`."""
    return language.lower().replace("_", "-").split("-")[0]


def name_of(language: str) -> str:
    """In English; a code that is not known is its own name."""
    return NAMES.get(primary(language), language)


@lru_cache(8192)  # not without end: a service reads what anybody sends
def is_letter_of(character: str, scripts: tuple[str, ...]) -> bool:
    words = unicodedata.name(character, "").replace("-", " ").split()
    return character.isalpha() and any(script in words for script in scripts)


def is_foreign(text: str, language: str) -> bool:
    """Whether a text has no letter of the language's script; never of a language in Latin script or an unknown one."""
    scripts = SCRIPTS.get(primary(language))
    return scripts is not None and not any(is_letter_of(character, scripts) for character in text)


def is_kept(text: str, language: str) -> bool:
    """Whether a line is left as it is: it has something to say, and that in another script."""
    return not text.isspace() and text != "" and is_foreign(text, language)


def is_read(text: str, language: str) -> bool:
    """Whether a line is for the model: any other is neither translated nor anybody's context."""
    return text.strip() != "" and not is_foreign(text, language)


def same_language(asked: str, code: str) -> bool:
    """zh-CN is zh; a model that does not say its languages takes any."""
    return code == "und" or primary(asked) == primary(code)


def confidence(text: str, code: str) -> float:
    """The percentage of letters that are of the language's script: all that can be said without a detector."""
    letters = [c for c in text[:LOOKED_AT] if c.isalpha()]
    scripts = SCRIPTS.get(primary(code), ("LATIN",))
    own = sum(is_letter_of(c, scripts) for c in letters)
    return round(100 * own / len(letters), 1) if letters else 0.0
