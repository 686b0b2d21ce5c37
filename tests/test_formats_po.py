"""Gettext catalogues: messages without a translation get one, every other byte stays."""

from __future__ import annotations

import io

import pytest
from format_helpers import Files, replaced, sentences, shouted, swapped, translated, unchanged, unexpected
from hypothesis import given, settings
from hypothesis import strategies as st
from translate.storage.pypo import pofile, quoteforpo

from dynctx.formats import po

pytest_plugins = ("format_fixtures",)
quick = settings(max_examples=150, deadline=None)

CATALOGUE = r"""# A header comment, with  spaces
#
msgid ""
msgstr ""
"Language: de\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\n"

#. for translators
#: src/a.c:12 src/b.c:5
#, c-format
msgid "Delete %d file in <b>%s</b>? It is 100%% gone."
msgid_plural "Delete %d files in <b>%s</b>?"
msgstr[0] ""
msgstr[1] ""


#, fuzzy, no-wrap
#| msgid "old"
msgctxt "menu"
msgid ""
"A long text that goes over several lines, as gettext does.\n"
"\n"
"Next \"line\" here.\n"
msgstr "alt\n"

#  odd comment
msgid   "Done"
msgstr "Fertig"
msgid "Directly below"
msgstr ""

#~ msgid "gone"
#~ msgstr "weg"
"""

TABLE = {
    "Delete %d file in %s?": "%d Datei in %s entfernen?",
    "It is 100% gone.": "Sie ist zu 100% weg.",
    "Delete %d files in %s?": "%d Dateien in %s entfernen?",
    "A long text that goes over several lines, as gettext does.": "Ein langer Text.",
    'Next "line" here.': 'Nächste "Zeile" hier, und zwar eine so lange, dass sie in der Datei umgebrochen werden muss.',
    "Done": "-",
    "Directly below": "Direkt darunter",
}
EXPECTED = [
    ('msgstr[0] ""', 'msgstr[0] "%d Datei in <b>%s</b> entfernen? Sie ist zu 100%% weg."'),
    ('msgstr[1] ""', 'msgstr[1] "%d Dateien in <b>%s</b> entfernen?"'),
    (
        'msgstr "alt\\n"',
        'msgstr ""\n"Ein langer Text.\\n"\n"\\n"\n'
        '"Nächste \\"Zeile\\" hier, und zwar eine so lange, dass sie in der Datei "\n"umgebrochen werden muss.\\n"',
    ),
    ('below"\nmsgstr ""', 'below"\nmsgstr "Direkt darunter"'),
]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_po(files: Files, end: str) -> None:
    app = files.open("app.po", CATALOGUE.replace("\n", end))
    assert sentences(app) == [list(TABLE)]
    expected = CATALOGUE
    for old, new in EXPECTED:
        assert expected.count(old) == 1, old
        expected = expected.replace(old, new)
    assert replaced(app, TABLE) == expected.replace("\n", end)


def test_what_another_reader_finds(files: Files) -> None:
    written = replaced(files.open("app.po", CATALOGUE), TABLE)
    store = pofile(io.BytesIO(written.encode()))
    found = {str(unit.source): unit for unit in store.units}
    plural = found["Delete %d file in <b>%s</b>? It is 100%% gone."]
    assert plural.target.strings[1] == "%d Dateien in <b>%s</b> entfernen?"
    assert found["Done"].target == "Fertig" and found["gone"].isobsolete()
    long = next(unit for unit in store.units if unit.isfuzzy())
    assert long.target.startswith("Ein langer Text.\n\nNächste") and long.getcontext() == "menu"


def test_again(files: Files) -> None:
    assert 'msgstr "dONE"' in shouted(files.open("app.po", CATALOGUE, again=True))


def test_an_unchanged_text_has_the_lines_of_its_source(files: Files) -> None:
    written = unchanged(files.open("app.po", CATALOGUE))
    message = '"A long text that goes over several lines, as gettext does.\\n"\n"\\n"\n"Next \\"line\\" here.\\n"\n'
    assert written.count(f'""\n{message}') == 2


def test_one_form_for_any_number(files: Files) -> None:
    """Chinese has no plural: its one form is the translation of the plural."""
    app = files.open("app.po", 'msgid "%d file"\nmsgid_plural "%d files"\nmsgstr[0] ""\n')
    assert replaced(app, {"%d file": "-%d", "%d files": "%d 个文件"}).endswith('msgstr[0] "%d 个文件"\n')


def test_three_forms(files: Files) -> None:
    app = files.open(
        "app.po", 'msgid "%d file"\nmsgid_plural "%d files"\n' + "".join(f'msgstr[{n}] ""\n' for n in range(3))
    )
    assert replaced(app, {"%d file": "eins %d", "%d files": "mehr %d"}).endswith(
        'msgstr[0] "eins %d"\nmsgstr[1] "mehr %d"\nmsgstr[2] "mehr %d"\n'
    )


def test_messages_without_words_are_copied(files: Files) -> None:
    app = files.open("app.po", 'msgid "%d / %d"\nmsgstr ""\n\nmsgid "a"\nmsgstr ""\n')
    assert sentences(app) == [["a"]]
    assert 'msgid "%d / %d"\nmsgstr "%d / %d"\n' in shouted(app)


def test_a_file_for_another_language(files: Files) -> None:
    files.open("app.po", CATALOGUE, target_language="de_AT")
    assert files.warnings == []
    files.open("app.po", CATALOGUE, target_language="fr")
    (said,) = files.warnings
    assert said.endswith("app.po:4: Language is 'de', but the model translates to 'fr'")


def test_a_lost_placeholder(files: Files) -> None:
    said: list[str] = []
    app = files.open("app.po", 'msgid "Hello {name}!"\nmsgstr ""\n')
    assert replaced(app, {"Hello {name}!": "Hallo!"}, said.append).endswith('msgstr "Hallo! {name}"\n')
    assert len(said) == 1 and "app.po:1: the translation has lost '{name}'" in said[0]


def test_a_file_without_wrapping_stays_so(files: Files) -> None:
    long = "word " * 30
    app = files.open("app.po", f'msgid ""\n"{long}end\\n"\n"two"\nmsgstr ""\n')
    assert shouted(app).endswith(f'msgstr ""\n"{long.upper()}END\\n"\n"TWO"\n')


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", 'a.po: holds no message (msgid "..." and msgstr "...")'),
        ("# nothing\n", 'a.po: holds no message (msgid "..." and msgstr "...")'),
        ('msgid "a\nmsgstr ""\n', 'a.po:1: "a is no string; it ends with a quotation mark'),
        ('msgid "a"\nmsgstr "b" c\n', 'a.po:2: "b" c is no string; it ends with a quotation mark'),
        ('msgid "a"\nmsgid "b"\nmsgstr ""\n', "a.po:1: the message has no msgstr; add it"),
        ('msgid "a"\n', "a.po:1: the message has no msgstr; add it"),
        ('msgctxt "a"\nmsgstr ""\n', "a.po:1: the message has no msgid; add it"),
        ('\nmsgstr "a"\n', "a.po:2: msgstr without a msgid before it"),
        ('msgid "a"\nmsgstr ""\nwhat is this\n', "a.po:3: 'what is this' is no line of a PO file"),
        ('msgid "a"\nmsgstr ""\n\n"lost"\n', "a.po:4: '\"lost\"' is no line of a PO file"),
        (b'msgid "\xe9"\nmsgstr ""\n', "a.po:1: not UTF-8: byte 0xe9 at byte offset 7 of the line; "),
    ],
)
def test_broken_files(files: Files, content: str | bytes, said: str) -> None:
    assert files.refused("a.po", content).startswith(said)


MESSAGE = st.lists(
    st.sampled_from(
        ["word ", "One. Two.", "\n", "\n\n", "%s", "%%", '"', "\\", "<b>", "</b>", "\t", "{x}", "中。文", "é"]
    ),
    min_size=1,
    max_size=8,
).map("".join)


def test_several_messages_in_one_are_left_to_people(files: Files) -> None:
    text = 'msgid "{n, plural, one {a cat} other {cats}}"\nmsgstr ""\n\nmsgid "the cat"\nmsgstr ""\n'
    app = files.open("a.po", text)
    assert sentences(app) == [["the cat"]]
    assert len(files.warnings) == 1 and files.warnings[0].startswith(f"{files.folder}/a.po:1: several messages in one")
    assert shouted(app) == text.removesuffix('""\n') + '"THE CAT"\n'


@quick
@given(st.lists(MESSAGE, min_size=1, max_size=4, unique=True), st.booleans())
def test_any_message(messages: list[str], formatted: bool) -> None:
    flag = "#, c-format\n" if formatted else ""
    text = "\n".join(f'{flag}msgid {chr(10).join(quoteforpo(m))}\nmsgstr ""\n' for m in messages)
    app = po.read(text, "a.po", ("en", "de"), False, unexpected)
    assert [unit.target for unit in pofile(io.BytesIO(unchanged(app).encode())).units] == messages
    written = translated(app, swapped)
    found = [unit.target for unit in pofile(io.BytesIO(written.encode())).units]
    assert [target.lower() for target in found] == [message.lower() for message in messages]
    if formatted:
        assert all(target.count("%s") == message.count("%s") for target, message in zip(found, messages))
    assert "".join(line for line in written.splitlines(True) if line.startswith(("msgid", "#"))) == "".join(
        line for line in text.splitlines(True) if line.startswith(("msgid", "#"))
    )
