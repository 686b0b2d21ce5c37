"""Names of languages, and how far a text looks like one of them. A model knows one pair only."""

from __future__ import annotations

import unicodedata
from collections import Counter

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
# the first word of the Unicode names of a language's letters, where these are not Latin
SCRIPTS = {
    "ar": ("ARABIC",),
    "bg": ("CYRILLIC",),
    "el": ("GREEK",),
    "fa": ("ARABIC",),
    "he": ("HEBREW",),
    "hi": ("DEVANAGARI",),
    "ja": ("CJK", "HIRAGANA", "KATAKANA"),
    "ko": ("HANGUL", "CJK"),
    "ru": ("CYRILLIC",),
    "uk": ("CYRILLIC",),
    "zh": ("CJK",),
}
LOOKED_AT = 1000  # characters


def same_language(asked: str, code: str) -> bool:
    """zh-CN is zh; a model that does not say its languages takes any."""
    return code == "und" or asked.lower().replace("_", "-").partition("-")[0] == code.lower().partition("-")[0]


def confidence(text: str, code: str) -> float:
    """The percentage of letters that are of the language's script: all that can be said without a detector."""
    letters = [c for c in text[:LOOKED_AT] if c.isalpha()]
    scripts = Counter(unicodedata.name(c, "?").replace("-", " ").partition(" ")[0] for c in letters)
    own = sum(scripts[script] for script in SCRIPTS.get(code.partition("-")[0], ("LATIN",)))
    return round(100 * own / len(letters), 1) if letters else 0.0
