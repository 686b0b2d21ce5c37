"""ASS and SSA: only the words of Dialogue lines change; styles, timings, blocks, drawings and comments stay."""

from __future__ import annotations

import re

import pytest
from format_helpers import Files, replaced, sentences, shouted, translated, unchanged, unexpected
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dynctx.formats import ass

pytest_plugins = ("format_fixtures",)
quick = settings(max_examples=400, deadline=None)

HEAD = r"""[Script Info]
; Dialogue: 0,0:00:00.00,0:00:01.00,a comment
Title: 电影
ScriptType: v4.00+

[V4+ Styles]
Format: Name, Fontname, Fontsize
Style: Default,思源黑体,20

[Events]
Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text
"""
FILM = (
    HEAD
    + r"""Comment: 0,0:00:00.00,0:00:01.00,Default,,0,0,0,,不要翻译
Dialogue: 0,0:00:01.00,0:00:03.00,Default,安,0,0,0,,{\an8}{\i1}你见到她了吗{\i0}
Dialogue: 0,0:00:03.10,0:00:05.00,Default,,0,0,0,,见到了， 很好，\N 很高兴
Dialogue: 0,0:00:05.10,0:00:07.00,Default,,0,0,0,,- 她说什么了\N- {\b1}别{\b0}来
Dialogue: 1,0:00:05.10,0:00:07.00,Sign,,0,0,0,,{\p1\pos(3,4)}m 0 0 l 10 0 10 10{\p0}医院
Dialogue: 0,0:00:07.00,0:00:07.50,Default,,0,0,0,,
Dialogue: 0,0:00:20.00,0:00:21.00,Default,,0,0,0,Banner;5,♪ 啦啦，啦 ♪

[Fonts]
Dialogue: 不在这里
"""
)


def read(text: str) -> list[list[str]]:
    return sentences(ass.read(text, "film.ass", "zh"))


def event(start: float, text: str = "一句话") -> str:
    return f"Dialogue: 0,0:00:{start:05.2f},0:00:{start + 1:05.2f},Default,,0,0,0,,{text}\n"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_only_words_change(files: Files, end: str, mark: str) -> None:
    text = mark + FILM.replace("\n", end)
    film = files.open("film.ass", text, source_language="zh", target_language="en")
    assert sentences(film) == [
        ["你见到她了吗", "见到了， 很好， 很高兴", "她说什么了", "别来", "医院"],
        ["啦啦，啦"],
    ]
    assert unchanged(film) == text
    table = {
        "你见到她了吗": "Did you see her?",
        "见到了， 很好， 很高兴": "I did, she is well and happy",
        "她说什么了": "What did she say?",
        "别来": "Don't come",
        "医院": "Hospital",
        "啦啦，啦": "La la, la",
    }
    expected = text
    for old, new in {
        "你见到她了吗": "Did you see her?",
        r"见到了， 很好，\N 很高兴": r"I did, she is well\N and happy",
        "她说什么了": "What did she say?",
        r"{\b1}别{\b0}来": r"{\b1}Don't{\b0} come",
        "医院": "Hospital",
        "啦啦，啦": "La la, la",
    }.items():
        expected = expected.replace(old, new)
    assert replaced(film, table) == expected


def test_places_name_the_line_of_the_file(files: Files) -> None:
    film = files.open("film.ass", FILM, source_language="zh", target_language="en")
    places = [sentence.place for group in film.groups for sentence in group.sentences]
    assert [place["line"] for place in places] == [13, 14, 15, 15, 16, 18]
    assert places[3] == {"subtitle": "3", "start": "0:00:05.10", "end": "0:00:07.00", "line": 15}


def test_fields_are_those_of_the_format_line() -> None:
    text = (
        "[Script Info]\n[Events]\nFormat: Marked, Start, End, Style, Text\n"
        "Dialogue: Marked=0,0:00:01.00,0:00:02.00,Default,一,二\n"
    )
    assert read(text) == [["一,二"]]
    ten = "[Events]\n" + event(1, "一,二")  # none: ten of them
    assert read(ten) == [["一,二"]]


@pytest.mark.parametrize(
    ("starts", "documents"),
    [
        ([1, 3, 5], [3]),
        ([1, 3, 12], [2, 1]),  # silence
        ([1, 20, 40, 2, 4], [1, 1, 1, 2]),  # signs of the whole film first, then what is said
        ([4, 2, 6], [3]),  # a little back
    ],
)
def test_silence_and_a_way_back_start_a_document(starts: list[float], documents: list[int]) -> None:
    found = read(HEAD + "".join(map(event, starts)))
    assert list(map(len, found)) == documents


def test_blocks_stay_between_the_words_they_stood_between() -> None:
    film = ass.read(HEAD + event(1, r"{\k20}one {\k30}two {\k25}three\htimes{an aside}"), "film.ass")
    assert sentences(film) == [["one two three\xa0times"]]
    assert r"{\k20}ONE {\k30}TWO {\k25}THREE\hTIMES{an aside}" in shouted(film)


def test_a_drawing_is_no_text() -> None:
    shape = r"{\pos(1,2)\p4}m 0 0 b 1 1 2 2{\p0}"
    assert read(HEAD + event(1, shape) + event(2)) == [["一句话"]]
    assert unchanged(ass.read(HEAD + event(1, shape), "film.ass")) == HEAD + event(1, shape)


def test_a_translation_cannot_make_a_block_or_a_break() -> None:
    film = ass.read(HEAD + event(1), "film.ass")
    assert translated(film, lambda _: r"{\b1}a\Nb", unexpected).endswith(",,(/b1)a/Nb\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD, "film.ass: holds no line of Dialogue below [Events]"),
        (
            HEAD + "Dialogue: 0,0:00:01.00,0:00:02.00,一\n",
            "film.ass:12: 'Dialogue: 0,0:00:01.00,0:00:02.00,一' has 4 fields; 10 are needed",
        ),
        (
            HEAD + "Dialogue: 0,1.00,0:00:02.00,Default,,0,0,0,,一\n",
            "film.ass:12: '1.00' to '0:00:02.00' is no timing; write 0:00:01.00,0:00:02.50",
        ),
        (
            "[Events]\nFormat: Start, Text, End\n" + event(1),
            "film.ass:2: 'Format: Start, Text, End': Start, End and, at the end, Text are needed",
        ),
    ],
)
def test_broken_files_are_refused(files: Files, text: str, message: str) -> None:
    assert files.refused("film.ass", text) == message


def test_known_by_its_first_line(files: Files) -> None:
    assert files.open("film", FILM, source_language="zh", target_language="en").format == "ass"
    assert files.open("film.ssa", FILM, source_language="zh", target_language="en").format == "ass"


@example(["a b", "{", "\\N", "}"])  # a block, though an odd one
@given(st.lists(st.sampled_from(["{\\i1}", "{\\i0}", "{\\k9}", "\\N", "\\h", "{", "}", " ", "词", "a b", "- ", "♪"])))
@quick
def test_any_text_comes_back_as_it_was(parts: list[str]) -> None:
    text = HEAD + event(1, "".join(parts))
    film = ass.read(text, "film.ass", "zh")
    assert unchanged(film) == text
    # and whatever the translation, every block and break is there once
    marks = sorted(re.findall(r"\{\\\w+\}|\\N", "".join(parts)))
    assert sorted(re.findall(r"\{\\\w+\}|\\N", shouted(film).split("\n")[11])) == marks
