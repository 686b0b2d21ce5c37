"""What a newcomer meets first: the demo, and the example files, with the model that comes with dynctx."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from contextlib import redirect_stderr
from pathlib import Path
from xml.etree import ElementTree

import pytest

import dynctx
from dynctx import cli
from dynctx.formats.sentences import is_chinese
from dynctx.model_folder import SHIPPED

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
pytestmark = pytest.mark.skipif(
    not (ROOT / "models" / SHIPPED / "config.yaml").exists(), reason=f"models/{SHIPPED} is not in this copy"
)

XLIFF = "{urn:oasis:names:tc:xliff:document:1.2}"
CHOSEN = re.compile(r"(\d) (\S+(?: \S+)?) (\d+\.\d)%")


# the demo


@pytest.fixture(scope="module")
def shown() -> list[list[str]]:
    """What the demo prints, in blocks: a block begins with the number of a line; the last is what comes at the end."""
    ended = subprocess.run(
        [sys.executable, EXAMPLES / "demo.py"], capture_output=True, text=True, encoding="utf-8", timeout=300
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    dialogue, end = ended.stdout.split("\n\n", 1)[1].split("\n\n")
    return [block.splitlines() for block in re.split(r"\n(?=[ \d]\d  )", dialogue)] + [end.splitlines()]


def test_the_demo_shows_every_line(shown: list[list[str]]) -> None:
    lines = (EXAMPLES / "dialogue.zh.txt").read_text(encoding="utf-8").splitlines()
    assert 25 <= len(lines) <= 35 and all(map(is_chinese, lines))
    assert [block[0] for block in shown[:-1]] == [f"{number:>2}  {line}" for number, line in enumerate(lines, 1)]
    for number, translation, *_, context in shown[:-1]:
        assert re.fullmatch(r" {4}[A-Za-z].*", translation) and not is_chinese(translation), number
        assert context.startswith("    [") and context.endswith("]")


def test_the_demo_shows_what_was_chosen_and_why(shown: list[list[str]]) -> None:
    """The lines that are named stand where it says, and are those that beat NON."""
    lines = (EXAMPLES / "dialogue.zh.txt").read_text(encoding="utf-8").splitlines()
    assert shown[0][-1] == "    [nothing before it]"
    sizes = []
    for number, block in enumerate(shown[1:-1], 1):
        match = re.fullmatch(r"    \[(.*); NON (\d+\.\d)%\]", block[-1])
        assert match is not None, block
        chosen = CHOSEN.findall(match[1])
        assert (match[1] == "none") == (not chosen)
        for distance, start, probability in chosen:
            assert 1 <= int(distance) <= min(number, 6)
            assert lines[number - int(distance)].startswith(start.rstrip("…"))
            assert float(probability) >= float(match[2])
        distances = [int(distance) for distance, _, _ in chosen]
        assert distances == sorted(set(distances))
        sizes.append(len(chosen))
    assert max(sizes) > 1 and 0 in sizes
    end = shown[-1][0]
    assert end.startswith(f"{sum(sizes)} of ") and f"none at all for {sizes.count(0)} of the lines;" in end


def test_the_demo_shows_what_context_changes(shown: list[list[str]]) -> None:
    changed = [block for block in shown[:-1] if len(block) == 4]
    assert len(changed) >= 3 and len(changed) + sum(len(block) == 3 for block in shown) == len(shown) - 1
    for _, translation, other, _ in changed:
        assert other.startswith("    without context: ") and other.split(": ", 1)[1] != translation.strip()
    assert f"changed {len(changed)} of {len(shown) - 1} translations" in shown[-1][0]


def test_context_decides_the_pronoun() -> None:
    """A line that names nobody follows the ones before it, and has no way to without them."""
    sister = (EXAMPLES / "dialogue.zh.txt").read_text(encoding="utf-8").splitlines()[:4]
    brother = [line.replace("姐姐", "哥哥").replace("她", "他") for line in sister]
    assert brother[3] == sister[3]
    model = dynctx.load(device="cpu")
    she, he = (document[3] for document in model.translate([sister, brother]))
    assert " she " in she and " he " in he
    alone = model.translate([sister, brother], selector="none")
    assert alone[0][3] == alone[1][3]


def test_the_demo_says_what_to_do_next(shown: list[list[str]]) -> None:
    end = shown[-1]
    assert re.fullmatch(r"Loaded and translated twice in \d+ s\.", end[1]) and end[2] == "Next:"
    commands = "\n".join(end[3:])
    assert "dynctx translate examples/film.srt" in commands and "dynctx serve" in commands
    named = re.findall(r"(?:examples|docs)/[\w.]+", commands)
    assert len(named) >= 3 and all((ROOT / name).exists() for name in named)


# the files


@pytest.fixture(scope="module")
def translated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example files, translated as the README says (but quickly, with greedy search), and `why.jsonl`."""
    folder = tmp_path_factory.mktemp("examples")
    files = [str(EXAMPLES / name) for name in ("film.srt", "guide.md", "app.xlf")]
    options = ["-o", str(folder / "out"), "--beam", "1", "--explain", str(folder / "why.jsonl")]
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stderr(said), pytest.raises(SystemExit) as end:
        patch.setattr(sys, "argv", ["dynctx", "translate", "-q", *files, *options])
        cli.main()
    assert (end.value.code or 0, said.getvalue()) == (0, "")  # nothing lost, no language mistaken
    return folder


def both(translated: Path, name: str) -> tuple[list[str], list[str]]:
    before, after = (folder / name for folder in (EXAMPLES, translated / "out"))
    return before.read_text("utf-8").splitlines(), after.read_text("utf-8").splitlines()


def test_subtitles(translated: Path) -> None:
    before, after = both(translated, "film.srt")
    assert len(after) == len(before)
    for old, new in zip(before, after):
        assert (new == old) if not is_chinese(old) else (new and not is_chinese(new)), (old, new)
    text = "\n".join(after)
    assert [tag in text for tag in ("{\\an8}", "<i>", "</i>", "<b>", "</b>")] == [True] * 5
    assert "hospital" in text and sum(line.startswith("- ") for line in after) == 2


def test_scenes_are_documents(translated: Path) -> None:
    records = [json.loads(line) for line in (translated / "why.jsonl").read_text("utf-8").splitlines()]
    film = [record for record in records if record["file"].endswith("film.srt")]
    assert [record["document"] for record in film] == ["1"] * 9 + ["2"] * 5
    assert film[9]["text"] == "三天以后" and film[9]["selected"] == []
    assert any(record["selected"] for record in film[10:])


def beginning(line: str) -> str:
    """What makes it a heading, an item, a row of a table."""
    return re.sub(r"[^#>*|\d. -].*", "", line).rstrip()


def test_markdown(translated: Path) -> None:
    before, after = both(translated, "guide.md")
    assert len(after) == len(before)
    code = slice(before.index("   ```sh"), before.index("   ```") + 1)
    assert after[code] == before[code] and code.stop - code.start == 3
    assert after[:3] == before[:3]  # the front matter
    for old, new in zip(before[3:], after[3:]):
        assert not is_chinese(new)
        assert beginning(new) == beginning(old)
        assert new.count("|") == old.count("|") and new.count("*") == old.count("*")
        assert re.findall(r"\]\([^)]*\)", new) == re.findall(r"\]\([^)]*\)", old)
        for content in re.findall(r"\[([^]!]*)\]\(|(?<=\S.)\*+([^*]+)\*+", new):  # a link, emphasis
            assert "".join(content) == "".join(content).strip(), new
    assert "computer" in "\n".join(after)


def test_user_interface(translated: Path) -> None:
    before, after = (ElementTree.parse(folder / "app.xlf").getroot() for folder in (EXAMPLES, translated / "out"))
    assert [file.attrib["target-language"] for file in after.iter(f"{XLIFF}file")] == ["en"]
    units = list(zip(before.iter(f"{XLIFF}trans-unit"), after.iter(f"{XLIFF}trans-unit"), strict=True))
    assert len(units) >= 8
    tags = 0
    for old, new in units:
        assert old.attrib == new.attrib and parts(old, "source") == parts(new, "source")
        english, marks = parts(new, "target")
        assert english.strip() and not is_chinese(english)
        if old.find(f"{XLIFF}target") is not None:
            assert english == "Bye for now"  # what has a translation keeps it
        else:
            assert marks == parts(old, "source")[1]
        tags += len(marks)
    assert tags == 2


def parts(unit: ElementTree.Element, name: str) -> tuple[str, list[str]]:
    """The text of a unit's source or target, and the tags in it."""
    element = unit.find(XLIFF + name)
    assert element is not None
    return "".join(element.itertext()), [f"{tag.tag} {tag.attrib}" for tag in element]


def test_what_the_model_is(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """`dynctx info` alone begins with what a translator wants to know of the model that ships."""
    monkeypatch.delenv("DYNCTX_MODEL", raising=False)
    monkeypatch.setattr(sys, "argv", ["dynctx", "info"])
    with pytest.raises(SystemExit):
        cli.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[:7] == [
        "tvsub-zh-en: Chinese to English",
        "  kind        concat, chooses among the 6 previous sentences for each sentence (probability-first)",
        "  trained on  TVsub, all of it: 1.93 million pairs of lines of 2,687 TV episodes",
        "  scores      TVsub test, selected context: BLEU 22.03, chrF 40.3, document BLEU 29.01",
        "  licence     research and other non-commercial use, as the corpus it learned from (CC BY-NC-ND 4.0)",
        "  size        26.5 million parameters, 51.0 MiB on disk",
        f"  folder      {ROOT / 'models' / SHIPPED}",
    ]
