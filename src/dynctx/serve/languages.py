"""Names of languages, and how far a text looks like one of them. A model knows one pair only."""

from __future__ import annotations

from dynctx.scripts import SCRIPTS, is_letter_of, primary

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
LOOKED_AT = 1000  # characters


def same_language(asked: str, code: str) -> bool:
    """zh-CN is zh; a model that does not say its languages takes any."""
    return code == "und" or primary(asked) == primary(code)


def confidence(text: str, code: str) -> float:
    """The percentage of letters that are of the language's script: all that can be said without a detector."""
    letters = [c for c in text[:LOOKED_AT] if c.isalpha()]
    scripts = SCRIPTS.get(primary(code), ("LATIN",))
    own = sum(is_letter_of(c, scripts) for c in letters)
    return round(100 * own / len(letters), 1) if letters else 0.0
