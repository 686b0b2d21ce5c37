"""XLIFF 1.2 and 2, and TMX: targets are added or filled, the rest of the file does not change."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from format_helpers import Files, replaced, sentences, shouted, translated, unchanged, unexpected
from hypothesis import given, settings
from hypothesis import strategies as st

from dynctx.formats import tmx, xliff

pytest_plugins = ("format_fixtures",)
quick = settings(max_examples=150, deadline=None)

XLIFF_1 = """<?xml version='1.0' encoding="UTF-8"?>
<!-- a comment with <source>no source</source> -->
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2" xmlns:x="urn:other">
  <file original="app.html" source-language="en-US" datatype="html">
    <header><note>Not this.</note></header>
    <body>
      <trans-unit id="1">
        <source>Hello <g id="1">big <x id="2"/> world</g>. How are &quot;you&quot; &amp; {name}?</source>
        <note>a note</note>
      </trans-unit>
      <trans-unit id='2' approved="yes"><source>Done.</source><target state="final">Fertig.</target></trans-unit>
      <group translate="no">
        <trans-unit id="3"><source>Keep</source></trans-unit>
        <trans-unit id="4" translate="yes"><source>But not this</source></trans-unit>
      </group>
      <trans-unit id="5">
        <source><![CDATA[A <b>bold</b> text & more]]></source>
        <target/>
        <alt-trans><source>x</source><target>y</target></alt-trans>
        <x:source>other</x:source>
      </trans-unit>
      <trans-unit id="6"><source>New one</source><target state="new" x:a="1">New one</target></trans-unit>
      <trans-unit id="7"><source>   </source></trans-unit>
      <trans-unit id="8"><source>One
          line</source><seg-source><mrk mtype="seg">One line</mrk></seg-source></trans-unit>
    </body>
  </file>
  <file original="b.html" source-language="en" target-language="de-AT"><body>
    <trans-unit id="1"><source>Second &lt;i&gt;file&lt;/i&gt;</source></trans-unit>
  </body></file>
</xliff>
"""


def test_xliff_1(files: Files) -> None:
    app = files.open("app.xlf", XLIFF_1)
    first = ["Hello big  world.", 'How are "you" & {name}?', "Done.", "But not this", "A bold text & more", "New one"]
    assert sentences(app) == [[*first, "One line"], ["Second file"]]
    assert [document.id for document in app.documents] == ["app.html", "b.html"]
    table = {
        "Hello big  world.": "Hallo große Welt.",
        'How are "you" & {name}?': "Wie gehts {name} & dir?",
        "Done.": "nicht zu sehen",
        "But not this": "Aber dies nicht",
        "A bold text & more": "Der fettere Text & mehr",
        "New one": "Ein neuer",
        "One line": "Eine Zeile",
        "Second file": "Zweite Datei",
    }
    expected = XLIFF_1
    for old, new in [
        ('datatype="html">', 'datatype="html" target-language="de">'),
        (
            "        <note>a note</note>",
            '        <target>Hallo <g id="1">große<x id="2"/> Welt</g>. Wie gehts {name} &amp; dir?</target>\n'
            "        <note>a note</note>",
        ),
        ("<source>But not this</source>", "<source>But not this</source><target>Aber dies nicht</target>"),
        ("<target/>", "<target>Der &lt;b>fettere&lt;/b> Text &amp; mehr</target>"),
        ('x:a="1">New one<', 'x:a="1">Ein neuer<'),
        ("</seg-source>", '</seg-source><target><mrk mtype="seg">Eine Zeile</mrk></target>'),
        ("&lt;/i&gt;</source>", "&lt;/i&gt;</source><target>Zweite &lt;i&gt;Datei&lt;/i&gt;</target>"),
    ]:
        assert expected.count(old) == 1, old
        expected = expected.replace(old, new)
    assert replaced(app, table) == expected
    assert files.warnings == []


def test_xliff_again(files: Files) -> None:
    app = files.open("app.xlf", XLIFF_1, again=True)
    written = shouted(app)
    assert '<target state="final">dONE.</target>' in written
    # what is written is translated, so that nothing is left to do
    once = files.open("once.xlf", shouted(files.open("app.xlf", XLIFF_1)).replace('state="new"', ""))
    assert sentences(once.needed(3)) == [] and unchanged(once.needed(3)).count("<target") == 8


XLIFF_2 = """<xlf:xliff xmlns:xlf="urn:oasis:names:tc:xliff:document:2.0" version="2.1" srcLang="en"\r
 ><xlf:file id="f1">\r
  <xlf:unit id="u"><xlf:notes><xlf:note>n</xlf:note></xlf:notes>\r
   <xlf:originalData><xlf:data id="d">source</xlf:data></xlf:originalData>\r
   <xlf:segment id="s1">\r
    <xlf:source>Press <xlf:pc id="1">Save</xlf:pc> and <xlf:mrk id="m" translate="no">NoTouch</xlf:mrk> now.\
</xlf:source>\r
   </xlf:segment>\r
   <xlf:ignorable><xlf:source> </xlf:source></xlf:ignorable>\r
   <xlf:segment state="initial"><xlf:source>Two<xlf:ph id="2"/></xlf:source><xlf:target>Two</xlf:target></xlf:segment>\r
   <xlf:segment state="reviewed"><xlf:source>Three</xlf:source><xlf:target>Drei</xlf:target></xlf:segment>\r
   <xlf:segment><xlf:source>Four</xlf:source><xlf:target>Vier</xlf:target></xlf:segment>\r
  </xlf:unit>\r
  <xlf:unit id="v" translate="no"><xlf:segment><xlf:source>Never</xlf:source></xlf:segment></xlf:unit>\r
</xlf:file></xlf:xliff>"""


def test_xliff_2(files: Files) -> None:
    app = files.open("app.xliff", XLIFF_2)
    assert sentences(app) == [["Press Save and NoTouch now.", "Two", "Three", "Four"]]
    table = {"Press Save and NoTouch now.": "Jetzt NoTouch und Save drücken.", "Two": "Zwei", "Three": "-", "Four": "-"}
    target = (
        '\r\n    <xlf:target>Jetzt <xlf:mrk id="m" translate="no">NoTouch</xlf:mrk> und '
        '<xlf:pc id="1">Save</xlf:pc> drücken.</xlf:target>'
    )
    expected = XLIFF_2.replace('srcLang="en"\r\n ', 'srcLang="en"\r\n  trgLang="de"')
    expected = expected.replace(" now.</xlf:source>", f" now.</xlf:source>{target}")
    expected = expected.replace("<xlf:target>Two</xlf:target>", '<xlf:target>Zwei<xlf:ph id="2"/></xlf:target>')
    assert replaced(app, table) == expected


def test_several_messages_in_one_are_left_to_people(files: Files) -> None:
    units = (
        "<trans-unit id='1'><source>{VAR_PLURAL, plural, =0 {no mail} other {<x id='n'/> mails}}</source></trans-unit>"
        "<trans-unit id='2'><source>the cat, plural</source></trans-unit>"
    )
    text = f"<xliff version='1.2'><file original='f' target-language='de'>{units}</file></xliff>"
    app = files.open("a.xlf", text)
    assert sentences(app) == [["the cat, plural"]]
    assert files.warnings == [
        f"{files.folder}/a.xlf:1: several messages in one ({{..., plural, ...}}): left without a translation; "
        "translate it by hand"
    ]
    assert shouted(app) == text.replace("plural</source>", "plural</source><target>THE CAT, PLURAL</target>")


def test_candidates_of_what_is_left_to_do_stay(files: Files) -> None:
    """Translated units are context for those that follow, as far back as the model looks."""
    units = "".join(
        f"<trans-unit id='{n}'><source>Unit {word}</source>{'' if n == 4 else '<target>t</target>'}</trans-unit>"
        for n, word in enumerate(["one", "two", "three", "four", "five", "six"])
    )
    app = files.open("a.xlf", f"<xliff version='1.2'><file original='f'>{units}</file></xliff>")
    assert sentences(app.needed(2)) == [["Unit three", "Unit four", "Unit five"]]
    assert sentences(app.needed(0)) == [["Unit five"]]
    assert sentences(app.needed(1, "en")) == [["Unit four", "Unit five"]]
    assert len(sentences(app.needed(1, "zh"))[0]) == 5  # lines in another script are nobody's, and not counted


def test_xliff_of_another_language(files: Files) -> None:
    files.open("app.xlf", XLIFF_1, source_language="zh")
    assert len(files.warnings) == 2
    assert "app.xlf:4: source-language is 'en-US', but the model translates from 'zh'" in files.warnings[0]
    files.warnings.clear()
    files.open("app.xlf", XLIFF_1, target_language="fr")
    (said,) = files.warnings
    assert "app.xlf:28: target-language is 'de-AT', but the model translates to 'fr'" in said


def test_segments_without_words_are_copied(files: Files) -> None:
    app = files.open("a.xlf", UNIT.format("42 <x id='1'/>"))
    assert sentences(app) == [] and "<target>42 <x id='1'/></target>" in unchanged(app)
    memory = "<tmx><tu><tuv xml:lang='en'><seg>{}</seg></tuv></tu><tu><tuv xml:lang='en'><seg>a</seg></tuv></tu></tmx>"
    assert '<tuv xml:lang="de"><seg>42</seg></tuv>' in unchanged(files.open("a.tmx", memory.format("42")))
    assert unchanged(files.open("a.tmx", memory.format(" "))).count("<tuv") == 3


TMX = """<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en-US" datatype="plaintext"/>
<body>
  <tu tuid="1">
    <note>keep</note>
    <tuv xml:lang="en-US"><seg>Press <bpt i="1">&lt;b&gt;</bpt>OK<ept i="1">&lt;/b&gt;</ept> to go on.</seg></tuv>
  </tu>
  <tu>
    <tuv xml:lang="fr"><seg>Deux</seg></tuv>
    <tuv xml:lang="EN_GB">
      <prop type="x">p</prop>
      <seg>Two <hi type="t">sentences</hi>. Here they are.</seg>
    </tuv>
  </tu>
  <tu><tuv xml:lang="en"><seg>Empty</seg></tuv><tuv xml:lang="de-DE"><seg></seg></tuv></tu>
  <tu><tuv xml:lang="de"><seg>Fertig</seg></tuv><tuv xml:lang="en"><seg>Done</seg></tuv></tu>
  <tu><tuv xml:lang="fr"><seg>Sans anglais</seg></tuv></tu>
</body></tmx>
"""


def test_tmx(files: Files) -> None:
    memory = files.open("m.tmx", TMX)
    assert sentences(memory) == [["Press OK to go on.", "Two sentences.", "Here they are.", "Empty", "Done"]]
    table = {
        "Press OK to go on.": "Weiter mit OK hier.",
        "Two sentences.": "Zwei Sätze.",
        "Here they are.": "Hier sind sie.",
        "Empty": "Leer",
        "Done": "-",
    }
    expected = TMX
    for old, new in [
        (
            "to go on.</seg></tuv>",
            'to go on.</seg></tuv>\n    <tuv xml:lang="de"><seg>Weiter <bpt i="1">&lt;b&gt;</bpt>mit<ept i="1">'
            "&lt;/b&gt;</ept> OK hier.</seg></tuv>",
        ),
        (
            "they are.</seg>\n    </tuv>",
            'they are.</seg>\n    </tuv>\n    <tuv xml:lang="de">\n      <seg>Zwei <hi type="t">Sätze</hi>. '
            "Hier sind sie.</seg>\n    </tuv>",
        ),
        ('"de-DE"><seg>', '"de-DE"><seg>Leer'),
    ]:
        assert expected.count(old) == 1, old
        expected = expected.replace(old, new)
    assert replaced(memory, table) == expected


def test_tmx_in_utf_16(files: Files) -> None:
    content = ("\ufeff" + TMX.replace('encoding="utf-8"', 'encoding="utf-16"').replace("\n", "\r\n")).encode(
        "utf-16-le"
    )
    memory = files.open("m.tmx", content)
    written = shouted(memory)
    assert written.startswith("\ufeff<?xml") and '\r\n    <tuv xml:lang="de"><seg>pRESS' in written


def test_an_old_encoding(files: Files) -> None:
    content = XLIFF_1.replace('"UTF-8"', '"iso-8859-1"').replace("a note", "eine Notiz für dich").encode("latin-1")
    app = files.open("app.xlf", content)
    written = app.filled([type(d)(d.id, tuple("ü 好" for _ in d.sentences)) for d in app.documents], lambda m: None)
    assert "für dich".encode("latin-1") in written and "ü &#22909;".encode("latin-1") in written


# what is refused

UNIT = "<xliff version='1.2'><file><trans-unit id='1'><source>{}</source></trans-unit></file></xliff>"
BOMB = "<!DOCTYPE x [<!ENTITY a 'aaaa'><!ENTITY b '&a;&a;'>]>\n" + UNIT.format("&b;")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.xlf", BOMB, "a.xlf:1: the document type declares entities or elements; remove the part in [ ]"),
        ("a.xlf", "\n" + UNIT.format("<g>"), "a.xlf:2: not well-formed XML, at column 60: mismatched tag"),
        ("a.xlf", UNIT.format("&nbsp;"), "a.xlf:1: not well-formed XML, at column 55: undefined entity"),
        ("a.xlf", "", "a.xlf:1: not well-formed XML, at column 1: no element found"),
        ("a.xlf", "<tmx/>", "a.xlf:1: <tmx version=''> is no XLIFF 1.2 or 2"),
        ("a.xlf", "<xliff version='3.0'/>", "a.xlf:1: <xliff version='3.0'> is no XLIFF 1.2 or 2"),
        (
            "a.xlf",
            "<?xml version='1.0' encoding='x-y'?><a/>",
            "a.xlf:1: unknown encoding 'x-y'; save the file as UTF-8",
        ),
        ("a.tmx", "<xliff/>", "a.tmx:1: <xliff> is no TMX"),
        (
            "a.tmx",
            TMX.replace("EN_GB", "it").replace('"en', '"es'),
            "a.tmx: no <tuv> with text in 'en'; there are: de, ",
        ),
    ],
)
def test_what_is_refused(files: Files, name: str, content: str, said: str) -> None:
    assert files.refused(name, content).startswith(said)


def test_no_file_is_ever_read_from_xml(files: Files, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    outside = f'<!DOCTYPE x [<!ENTITY s SYSTEM "file://{secret}">]>{UNIT.format("&s;")}'
    assert "the document type declares" in files.refused("a.xlf", outside)
    dtd = tmp_path / "x.dtd"
    dtd.write_text('<!ENTITY s "secret">')
    app = files.open("a.xlf", f'<!DOCTYPE x SYSTEM "{dtd}">{UNIT.format("Say &s; twice")}')
    assert sentences(app) == [["Say &s; twice"]]  # kept as it is written, and not looked up
    assert "<target>sAY &s; TWICE</target>" in shouted(app)


CONTENT = st.recursive(
    st.sampled_from(
        ["a word", " ", "One. Two.", "&amp;", "&#160;", "<x id='1'/>", "<ph id='2'>&lt;b></ph>", "<!-- c -->"]
    )
    | st.sampled_from(["<![CDATA[<i>x</i> &\n y]]>", "\n   ", "{name}", "&lt;b&gt;", "中。文"]),
    lambda inner: st.lists(inner, max_size=4).map("".join) | inner.map(lambda text: f"<g id='3'>{text}</g>"),
    max_leaves=10,
)


def text_of(content: str, tag: str) -> list[str]:
    return ["".join(element.itertext()) for element in ElementTree.fromstring(content).iter(tag)]


@quick
@given(CONTENT, st.sampled_from(["", "kurz", "etwas ganz anderes & <b>"]))
def test_any_segment_stays_well_formed(content: str, other: str) -> None:
    text = UNIT.format(content)
    app = xliff.read(text, "a.xlf", ("en", "de"), False, lambda m: None)
    same = unchanged(app)
    if app.groups:
        assert text_of(same, "target") == text_of(text, "source")  # CDATA and comments apart, the same
    changed = translated(app, lambda _: other, lambda m: None)
    ElementTree.fromstring(changed)
    for tag in ("<x id='1'/>", "<ph id='2'>", "<g id='3'>", "{name}"):
        assert changed.count(tag) >= text.count(tag) * (2 if app.groups else 1)
    memory = (
        f"<tmx><tu><tuv xml:lang='en'><seg>{content}</seg></tuv></tu><tu><tuv lang='en'><seg>a</seg></tuv></tu></tmx>"
    )
    ElementTree.fromstring(unchanged(tmx.read(memory, "a.tmx", ("en", "de"), False, unexpected)))
