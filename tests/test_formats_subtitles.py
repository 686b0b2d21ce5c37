"""SRT and WebVTT: timings and tags stay, cues become sentences, silence starts a document, broken files are refused."""

from __future__ import annotations

import pytest
from format_helpers import Files, replaced, sentences, shouted, swapped, translated, unchanged, unexpected
from hypothesis import given, settings
from hypothesis import strategies as st

from dynctx.formats import srt, webvtt

pytest_plugins = ("format_fixtures",)
quick = settings(max_examples=150, deadline=None)

FILM = """\ufeff1\r
00:00:01,000 --> 00:00:02,500\r
<i>你要去哪儿，\r
现在？</i>\r
\r
2\r
00:00:02,000 --> 00:00:04,000 X1:40 X2:600\r
- 回家。\r
- <b>一个</b>人？\r
\r
3\r
00:00:05,000 --> 00:00:06,000\r
\r
\r
4\r
0:0:20.5 --> 0:0:21.0\r
{\\an8}♪ La la <font color="#fff">la</font> ♪\r
\r
5\r
00:00:22,000 --> 00:00:23,000\r
...\r
"""


def test_srt(files: Files) -> None:
    film = files.open("film.srt", FILM, source_language="zh", target_language="en")
    assert sentences(film) == [["你要去哪儿， 现在？", "回家。", "一个人？"], ["La la la"]]
    assert unchanged(film) == FILM
    table = {
        "你要去哪儿， 现在？": "Where are you going now?",
        "回家。": "Home.",
        "一个人？": "Alone?",
        "La la la": "Tra la la",
    }
    assert replaced(film, table) == FILM.replace("你要去哪儿，\r\n现在？", "Where are you\r\ngoing now?").replace(
        "- 回家。\r\n- <b>一个</b>人？", "- Home.\r\n- <b>Alone</b>?"
    ).replace('La la <font color="#fff">la</font>', 'Tra la <font color="#fff">la</font>')


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        ("小明：你在干什么？\n小红：我在吃饭", "zh", ["小明：你在干什么？", "小红：我在吃饭"]),
        ("<i>小明：</i>去哪儿\n<i>小红：</i>回家", "zh", ["小明：去哪儿", "小红：回家"]),
        ("MARY: Where?\nDR. WHO: Home,\nI think.", "en", ["MARY: Where?", "DR. WHO: Home, I think."]),
        ("See you at\n10:30 or so", "en", ["See you at 10:30 or so"]),
        ("He said\nthis: no", "en", ["He said this: no"]),
    ],
)
def test_a_name_begins_a_sentence(files: Files, text: str, language: str, expected: list[str]) -> None:
    film = files.open("film.srt", f"1\n00:00:01,000 --> 00:00:02,000\n{text}\n", source_language=language)
    assert sentences(film) == [expected]


def cue(start: int, end: int, text: str = "Text here.", number: int = 1) -> str:
    return f"{number}\n00:00:{start:02d},000 --> 00:00:{end:02d},000\n{text}\n\n"


@pytest.mark.parametrize(
    ("cues", "gap", "documents"),
    [
        ([(1, 2), (9, 10)], 7.0, 1),  # a silence of 7 seconds is not longer than 7 seconds
        ([(1, 2), (10, 11)], 7.0, 2),
        ([(1, 2), (10, 11)], 8.0, 1),
        ([(1, 20), (2, 3), (21, 22)], 7.0, 1),  # the first one is still shown
        ([(30, 31), (1, 2), (3, 4)], 0.0, 1),  # out of order: there is no silence
        ([(1, 2), (2, 3), (4, 5)], 0.0, 2),
    ],
)
def test_a_silence_starts_a_document(files: Files, cues: list[tuple[int, int]], gap: float, documents: int) -> None:
    film = files.open("film.srt", "".join(cue(*times) for times in cues), scene_gap=gap)
    assert len(sentences(film)) == documents


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("One line\nand another.", ["One line and another."]),
        ("- First.\n- Second.", ["First.", "Second."]),
        ("Well then...\n- Yes?", ["Well then...", "Yes?"]),
        ("<i>- First,</i>\n<i>and on.\n- Second.</i>", ["First, and on.", "Second."]),
        ("– Dash.\n— Another.\n－Third.", ["Dash.", "Another.", "Third."]),
        ("-5 degrees\n-10 at night", ["-5 degrees -10 at night"]),
        ("-Really?\n--And then", ["Really?", "And then"]),
        ("Blank line\n\ninside.", ["Blank line", "inside."]),
        ("Hello\n42\nworld", ["Hello 42 world"]),
        ("♪", []),
        ("[music]", ["music"]),
        ("- [knocks] Who?\n- (sighs) Me. [laughs]", ["knocks", "Who?", "sighs", "Me.", "laughs"]),
        ("<i>[music\nplays] Hello</i>", ["music plays", "Hello"]),
        ("The man (my brother) left.", ["The man (my brother) left."]),
        ("The man left (my brother).", ["The man left (my brother)."]),
        ("Yes. (laughs) No.", ["Yes.", "laughs", "No."]),
        ("你好(笑)吗【旁白】好", ["你好", "笑", "吗", "旁白", "好"]),
        ("Open [ and ) and (42) and []", ["Open [ and ) and (42) and []"]),
        ("-Where? -Here. -5", ["Where?", "Here. -5"]),
        ("- Well - no", ["Well - no"]),
        ("- 你好 - 再见", ["你好", "再见"]),
        ("#la la la#", ["#la la la#"]),
        ("# la la #", ["la la"]),
        ("#我爱你\n一生一世#", ["我爱你 一生一世"]),
        ("I am #1 in C#", ["I am #1 in C#"]),
    ],
)
def test_lines_of_a_cue(files: Files, lines: str, expected: list[str]) -> None:
    content = cue(1, 2, lines) + cue(3, 4, "End.")
    film = files.open("film.srt", content)
    assert [s for document in sentences(film) for s in document] == [*expected, "End."]
    assert unchanged(film) == content and shouted(film).lower() == content.lower()


@pytest.mark.parametrize(
    ("line", "table", "expected"),
    [
        ("[音乐]", {"音乐": "Music."}, "[Music]"),
        ("（电话铃响）", {"电话铃响": "The phone rings."}, "(The phone rings)"),
        ("【旁白】三年以后", {"旁白": "Narrator", "三年以后": "Three years later."}, "[Narrator] Three years later."),
        ("她(笑)说", {"她": "She", "笑": "laughs", "说": "says"}, "She (laughs) says"),
        ("好[笑][哭]好", {"好": "Well", "笑": "laughs", "哭": "cries"}, "Well [laughs] [cries] Well"),
        ("[door slams]谁啊", {"door slams": "door slams", "谁啊": "Who?"}, "[door slams] Who?"),
        ("[笑] <i>谁啊</i>", {"笑": "laughs", "谁啊": "Who?"}, "[laughs] <i>Who?</i>"),
        ("（OK）", {"OK": "OK"}, "（OK）"),  # kept is kept
        ("(好。)", {"好。": "Well."}, "(Well.)"),
        ("[嗯]", {"嗯": "Well..."}, "[Well...]"),
        ("谁啊\nWho is it?", {"谁啊": "Who?", "Who is it?": "Who is it?"}, "Who?\nWho is it?"),  # in two languages
        (
            "<i>谁啊</i>\n<i>Who is it?</i>\n我",
            {"谁啊": "Who?", "Who is it?": "Who is it?", "我": "Me."},
            "<i>Who?</i>\n<i>Who is it?</i>\nMe.",
        ),
        ("我喜欢\niPhone\n手机", {"我喜欢 iPhone 手机": "I like iPhone phones."}, "I like\niPhone\nphones."),
        ("唉\n♪～", {"唉": "Oh."}, "Oh.\n♪～"),
        ("-谁啊 -我", {"谁啊": "Who?", "我": "Me."}, "-Who? -Me."),
        ("#我爱你#", {"我爱你": "I love you."}, "#I love you.#"),
    ],
)
@pytest.mark.parametrize("name", ["film.srt", "film.vtt"])
def test_notes_dashes_and_songs_are_kept(
    files: Files, name: str, line: str, table: dict[str, str], expected: str
) -> None:
    head = "WEBVTT\n\n" if name == "film.vtt" else "1\n"
    content = f"{head}00:00:01.000 --> 00:00:02.000\n{{}}\n"
    film = files.open(name, content.format(line), source_language="zh", target_language="en")
    assert replaced(film, table) == content.format(expected)
    assert unchanged(film) == content.format(line)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "film.srt: holds no subtitle (a line such as 00:00:01,000 --> 00:00:02,500)"),
        ("Only text.\n", "film.srt:1: holds no subtitle (a line such as 00:00:01,000 --> 00:00:02,500)"),
        ("Title\n" + cue(1, 2), "film.srt:1: 'Title' before the first subtitle; it starts with a number"),
        (
            "1\n00:00:01,000 -> 00:00:02,000\nhello\n\n" + cue(3, 4),
            "film.srt:2: '00:00:01,000 -> 00:00:02,000' is no timing",
        ),
        ("1\nhello\n\n" + cue(3, 4), "film.srt:2: 'hello' is no timing"),
        ("1\n\0\n" + cue(3, 4), "film.srt:2: no text: it holds a NUL byte"),
        (
            cue(1, 2) + "2\n00:00:03 --> 00:00:04\nText\n",
            "film.srt:6: '00:00:03 --> 00:00:04' is no timing; write 00:00:01,000 --> 00:00:02,500",
        ),
        (
            cue(1, 2) + "2\n00:00:03,000 -> 00:00:04,000\nText\n",
            "film.srt:6: '00:00:03,000 -> 00:00:04,000' is no timing; write 00:00:01,000 --> 00:00:02,500",
        ),
        (cue(1, 2).encode() + b"\xff\n", "film.srt:5: not UTF-8: byte 0xff at byte offset 0 of the line; "),
    ],
)
def test_broken_srt(files: Files, content: str | bytes, said: str) -> None:
    assert files.refused("film.srt", content).startswith(said)


def test_srt_in_utf_16(files: Files) -> None:
    content = FILM.encode("utf-16-le")
    film = files.open("film.srt", content)
    assert sentences(film)[1] == ["La la la"]
    assert film.filled(film.documents, unexpected) == content


CUE_TEXT = st.lists(
    st.sampled_from(
        [
            "Hi ",
            "<i>",
            "</i>",
            "- ",
            "-",
            "\n",
            "\r\n",
            "♪",
            "word.",
            "中文",
            "<b>",
            "</b>",
            "-5",
            "a > b",
            " ",
            "{\\an8}",
            "[",
            "]",
            "(",
            ")",
            "#",
        ]
    ),
    max_size=8,
).map("".join)


@quick
@given(st.lists(st.tuples(st.integers(0, 58), CUE_TEXT), min_size=1, max_size=4))
def test_any_srt_comes_back_as_it_was(cues: list[tuple[int, str]]) -> None:
    text = "".join(cue(start, start + 1, lines, number) for number, (start, lines) in enumerate(cues, 1))
    film = srt.read(text, "film.srt", "en")
    assert unchanged(film) == text
    assert shouted(film).lower() == text.lower()


# WebVTT

TALK = """WEBVTT - A talk
Kind: captions

STYLE
::cue { color: red }

NOTE a comment --- of
two lines

intro
00:01.000 --> 00:02.000 align:start line:0%
<v Roger>Hello &amp; <c.loud>welcome</c>,
dear &lt;friend&gt;.

01:00:20.000 --> 01:00:21.000
<v Ann>First voice.
<v Bob>Second <00:20.500>voice.</v>

01:00:21.000 --> 01:00:22.000

"""


def test_webvtt(files: Files) -> None:
    talk = files.open("talk.vtt", TALK)
    assert sentences(talk) == [["Hello & welcome, dear <friend>."], ["First voice.", "Second voice."]]
    assert unchanged(talk) == TALK
    table = {
        "Hello & welcome, dear <friend>.": "Hallo & willkommen, a<b --> c.",
        "First voice.": "Erste Stimme.",
        "Second voice.": "Zweite Stimme.",
    }
    written = replaced(talk, table)
    assert "<v Roger>Hallo &amp; <c.loud>willkommen</c>,\na&lt;b --&gt; c.\n" in written
    assert "<v Ann>Erste Stimme.\n<v Bob>Zweite <00:20.500>Stimme.</v>\n" in written
    untouched = [
        line for line in TALK.splitlines() if "voice" not in line and "friend" not in line and "Hello" not in line
    ]
    assert [line for line in written.splitlines() if line in untouched] == untouched


def test_webvtt_with_windows_line_ends(files: Files) -> None:
    content = "\ufeff" + TALK.replace("\n", "\r\n")
    talk = files.open("talk.vtt", content)
    assert unchanged(talk) == content
    assert sentences(talk) == sentences(files.open("other.vtt", TALK))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "a.vtt: a WebVTT file begins with WEBVTT"),
        ("1\n00:01.000 --> 00:02.000\nHi\n", "a.vtt:1: a WebVTT file begins with WEBVTT"),
        ("WEBVTT\n\n", "a.vtt: holds no subtitle (a line such as 00:01.000 --> 00:02.500)"),
        (
            "WEBVTT\n\n00:01,000 --> 00:02,000\nHi\n",
            "a.vtt:3: '00:01,000 --> 00:02,000' is no timing; write 00:01.000 --> 00:02.500",
        ),
        ("WEBVTT\n\nlost text\n", "a.vtt:3: 'lost text' stands alone; a subtitle needs a timing line"),
        (
            "WEBVTT\n\nname\nmore\n00:01.000 --> 00:02.000\nHi\n",
            "a.vtt:4: 'more' is no timing; write 00:01.000 --> 00:02.500",
        ),
        (
            "WEBVTT\n\n00:01.000 --> 00:02.000\nHi\n00:03.000 --> 00:04.000\nHo\n",
            "a.vtt:5: '00:03.000 --> 00:04.000' needs a blank line before",
        ),
    ],
)
def test_broken_webvtt(files: Files, content: str, said: str) -> None:
    assert files.refused("a.vtt", content) == said


@quick
@given(st.lists(CUE_TEXT.map(lambda text: "\n".join(filter(str.strip, text.splitlines()))), min_size=1, max_size=4))
def test_any_webvtt_comes_back_as_it_was(cues: list[str]) -> None:
    times = "00:01.000 --> 00:02.000"
    text = "WEBVTT\n\n" + "".join(f"{times}\n{lines}\n\n" if lines else f"{times}\n\n" for lines in cues)
    talk = webvtt.read(text, "talk.vtt", "en")
    assert unchanged(talk) == text
    assert translated(talk, swapped).lower() == text.lower()


def test_srt_what_converters_leave_behind(files: Files) -> None:
    head = "1\n00:00:01,000 --> 00:00:02,000\n"
    table = {
        "你去哪儿了 去医院": "Where were you? In hospital.",
        "他 & 她 <3 走了": "He & she <3 left.",
        "谁？": "Who?",
        "我": "Me.",
    }
    for source, expected in [
        (r"你去哪儿了\N去医院", r"Where were you?\NIn hospital."),
        (r"- 谁？\N- 我", r"- Who?\N- Me."),
        ("他 &amp; 她 &lt;3 走了", "He &amp; she &lt;3 left."),
    ]:
        film = files.open("a.srt", f"{head}{source}\n", source_language="zh")
        assert unchanged(film) == f"{head}{source}\n"
        assert replaced(film, table) == f"{head}{expected}\n"
