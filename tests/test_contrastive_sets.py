"""Readers of contrastive sets: each format as it was published, and each way in which a file can be broken."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from dynctx.errors import DynctxError
from dynctx.evaluation.contrastive_sets import Item, as_record, read_set, read_sets, stem

OURS: dict[str, Any] = {
    "set": "deixis",
    "id": 4,
    "src_ctx": ["You are late .", "Am I ?"],
    "src": "You know .",
    "tgt_ctx": [["Ты опоздал .", "Я ?"], ["Вы опоздали .", "Я ?"]],
    "cands": ["Ты знаешь .", "Вы знаете ."],
    "true": 1,
    "dist": 2,
}
ITEM = Item(
    ("You are late .", "Am I ?"),
    "You know .",
    (("Ты опоздал .", "Я ?"), ("Вы опоздали .", "Я ?")),
    ("Ты знаешь .", "Вы знаете ."),
    1,
    2,
    "deixis",
)
VOITA = {
    "src": "You are late . _eos Am I ? _eos You know .",
    "dst": ["Ты опоздал . _eos Я ? _eos Ты знаешь .", "Вы опоздали . _eos Я ? _eos Вы знаете ."],
    "true_ind": 1,
    "ctx_dist": 2,
}


def write(path: Path, content: Any) -> Path:
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    path.write_text(text, encoding="utf-8")
    return path


def changed(record: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """With these fields; a field of None is left out."""
    both = {**record, **fields}
    return {name: value for name, value in both.items() if value is not None}


# our own format


def test_our_lines(tmp_path: Path) -> None:
    assert read_set(write(tmp_path / "a.jsonl", json.dumps(OURS) + "\n\n")) == [ITEM]


def test_one_target_context_for_all_candidates(tmp_path: Path) -> None:
    record = changed(OURS, tgt_ctx=["Ты опоздал .", "Я ?"], kind="T-V")
    (item,) = read_set(write(tmp_path / "a.jsonl", record))
    assert item.target_contexts == (("Ты опоздал .", "Я ?"),) * 2
    assert item.kind == "T-V"


def test_without_context_and_without_a_name(tmp_path: Path) -> None:
    record = changed(OURS, src_ctx=[], tgt_ctx=[], dist=None, set=None)
    (item,) = read_set(write(tmp_path / "some_set.jsonl", record))
    assert (item.source_context, item.target_contexts) == ((), ((), ()))
    assert (item.distance, item.phenomenon) == (None, "some_set")


def test_packed_and_several_files(tmp_path: Path) -> None:
    with lzma.open(tmp_path / "a.jsonl.xz", "wt", encoding="utf-8") as file:
        file.write(json.dumps(OURS) + "\n")
    assert read_sets([tmp_path / "a.jsonl.xz", tmp_path / "a.jsonl.xz"]) == [ITEM, ITEM]
    assert stem("x/voita.test.jsonl.xz") == "voita.test" and stem("deixis.json") == "deixis"


def test_written_items_read_back_the_same(tmp_path: Path) -> None:
    shared = Item(("a",), "b", (("x",), ("x",), ("x",)), ("u", "v", "w"), 2, None, "p", "he")
    lines = "".join(json.dumps(as_record(item)) + "\n" for item in (ITEM, shared))
    assert read_set(write(tmp_path / "a.jsonl", lines)) == [ITEM, shared]
    assert as_record(shared)["tgt_ctx"] == ("x",)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"src": None}, "'src' is missing"),
        ({"src": 3}, "'src' should be text, found 3"),
        ({"src": "  "}, "an empty source or candidate"),
        ({"src_ctx": "You"}, "'src_ctx' should be a list of sentences"),
        ({"cands": ["Ты"], "tgt_ctx": [["a", "b"]]}, "1 candidates; there is nothing to decide with fewer than 2"),
        ({"true": 2}, "the true candidate is number 2 of 2, from 0"),
        ({"true": "0"}, "'true' should be a whole number, found '0'"),
        ({"dist": -1}, "'dist' should be a whole number, found -1"),
        ({"tgt_ctx": [["a", "b"]]}, "1 target contexts for 2 candidates"),
        ({"tgt_ctx": [["a", "b"], ["a"]]}, "2 context sentences in the source but 1 in the target"),
        ({"tgt_ctx": [["a", "b"], "ab"]}, "'tgt_ctx' should be a list of sentences"),
    ],
)
def test_broken_lines(fields: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", json.dumps(OURS) + "\n" + json.dumps(changed(OURS, **fields)))
    with pytest.raises(DynctxError) as error:
        read_set(path)
    assert str(error.value).startswith(f"{path}:2: {message}")


def test_not_json(tmp_path: Path) -> None:
    with pytest.raises(DynctxError, match=r"a\.jsonl:1: not JSON"):
        read_set(write(tmp_path / "a.jsonl", "{"))
    with pytest.raises(DynctxError, match=r"a\.jsonl:1: an item is a JSON object, found list"):
        read_set(write(tmp_path / "a.jsonl", "[1]"))
    with pytest.raises(DynctxError, match=r"b\.json: not JSON"):
        read_set(write(tmp_path / "b.json", "[{]"))


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DynctxError, match=r"a contrastive set is a \.jsonl"):
        read_set(write(tmp_path / "a.txt", "x"))
    for content in ([], [1], [{"x": 1}], "3"):
        with pytest.raises(DynctxError, match="not a contrastive set that is known here"):
            read_set(write(tmp_path / "a.json", content))
    with pytest.raises(DynctxError, match="no contrastive item in it"):
        read_sets([write(tmp_path / "a.jsonl", "\n")])


# Voita et al. 2019


def test_voita_json(tmp_path: Path) -> None:
    (item,) = read_set(write(tmp_path / "deixis.json", [VOITA]))
    assert item == ITEM


def test_voita_without_a_distance(tmp_path: Path) -> None:
    (item,) = read_set(write(tmp_path / "deixis.json", [changed(VOITA, ctx_dist=None)]))
    assert item.distance is None


def test_voita_broken(tmp_path: Path) -> None:
    fewer = changed(VOITA, dst=["Ты опоздал . _eos Ты знаешь .", VOITA["dst"][1]])
    with pytest.raises(DynctxError, match="item 2: 2 context sentences in the source but 1 in the target"):
        read_set(write(tmp_path / "a.json", [VOITA, fewer]))
    with pytest.raises(DynctxError, match="item 1: 'true_ind' is missing"):
        read_set(write(tmp_path / "a.json", [changed(VOITA, true_ind=None)]))


@pytest.mark.parametrize("folder", ["", "scoring_data"])
@pytest.mark.parametrize("suffix", [".src", ".dst"])
def test_voita_flat(folder: str, suffix: str, tmp_path: Path) -> None:
    """The text is that of the flat files, here in lower case; groups, truth and distance are those of the JSON."""
    write(tmp_path / "deixis.json", [VOITA, VOITA])
    (tmp_path / folder).mkdir(exist_ok=True)
    write(tmp_path / folder / "deixis.src", f"{VOITA['src'].lower()}\n" * 4)  # type: ignore[attr-defined]
    lines = [text.lower() for text in VOITA["dst"]] * 2  # type: ignore[attr-defined]
    write(tmp_path / folder / "deixis.dst", "".join(f"{line}\n" for line in lines))
    items = read_set(tmp_path / folder / f"deixis{suffix}")
    assert len(items) == 2 and items[0] == items[1]
    assert items[0].source_context == ("you are late .", "am i ?")
    assert items[0].candidates == ("ты знаешь .", "вы знаете .")
    assert (items[0].true, items[0].distance) == (1, 2)


def test_voita_flat_broken(tmp_path: Path) -> None:
    source = write(tmp_path / "deixis.src", f"{VOITA['src']}\n" * 2)
    write(tmp_path / "deixis.dst", "a _eos b _eos c\n")
    with pytest.raises(DynctxError, match=r"2 lines in \.src but 1 in \.dst"):
        read_set(source)
    write(tmp_path / "deixis.dst", "a _eos b _eos c\na _eos b _eos d\n")
    with pytest.raises(DynctxError, match=r"needs deixis\.json here or one folder up"):
        read_set(source)
    write(tmp_path / "deixis.json", [VOITA, VOITA])
    with pytest.raises(DynctxError, match=r"deixis\.src:3: lines 3 to 4 should be item 2"):
        read_set(source)
    write(tmp_path / "deixis.json", [VOITA])
    write(source, f"{VOITA['src']}\nother _eos b _eos c\n")
    with pytest.raises(DynctxError, match=r"should be item 1 of deixis\.json and have one source"):
        read_set(source)
    write(source, f"{VOITA['src']}\n" * 3)
    write(tmp_path / "deixis.dst", "a _eos b _eos c\na _eos b _eos d\n" + "a _eos b _eos d\n")
    with pytest.raises(DynctxError, match=r"3 lines, but the items of deixis\.json have 2 candidates"):
        read_set(source)


# ContraPro

PRO = {
    "src segment": "I saw it.",
    "ref segment": "Ich sah ihn.",
    "src pronoun": "It",
    "ref pronoun": "er",
    "ante distance": 1,
    "intrasegmental": False,
    "errors": [{"contrastive": "Ich sah sie."}, {"contrastive": "Ich sah es."}],
}


def test_contrapro_without_context(tmp_path: Path) -> None:
    (item,) = read_set(write(tmp_path / "contrapro.json", [PRO]))
    assert item.candidates == ("Ich sah ihn.", "Ich sah sie.", "Ich sah es.")
    assert (item.true, item.distance, item.kind, item.phenomenon) == (0, 1, "it:er", "contrapro")
    assert (item.source_context, item.target_contexts) == ((), ((), (), ()))


def test_contrapro_with_the_context_that_its_script_writes(tmp_path: Path) -> None:
    """Two sentences of context for each of six candidates; the second item begins its document."""
    path = write(tmp_path / "contrapro.json", [PRO, {**PRO, "src segment": "Take it."}])
    write(tmp_path / "contrapro.text.en", "I saw it.\n" * 3 + "Take it.\n" * 3)
    write(tmp_path / "contrapro.text.de", "x\n" * 6)
    write(tmp_path / "contrapro.context.en", "One.\nThe moon.\n" * 3 + "\nA knife.\n" * 3)
    write(tmp_path / "contrapro.context.de", "Eins.\nDer Mond.\n" * 3 + "\nEin Messer.\n" * 3)
    first, second = read_set(path)
    assert first.source_context == ("One.", "The moon.")
    assert first.target_contexts == (("Eins.", "Der Mond."),) * 3
    assert second.source_context == ("A knife.",)
    assert second.target_contexts == (("Ein Messer.",),) * 3


def test_contrapro_broken(tmp_path: Path) -> None:
    path = tmp_path / "contrapro.json"
    for fields, message in (
        ({"errors": 3}, "'errors' should be a list"),
        ({"errors": []}, "1 candidates"),
        ({"errors": [{}]}, "'contrastive' is missing"),
        ({"ref segment": None}, "'ref segment' is missing"),
    ):
        with pytest.raises(DynctxError, match=f"item 2: {message}"):
            read_set(write(path, [PRO, changed(PRO, **fields)]))  # type: ignore[arg-type]
    write(path, [PRO])
    write(tmp_path / "contrapro.text.en", "I saw it.\n" * 2)
    write(tmp_path / "contrapro.text.de", "x\n" * 3)
    with pytest.raises(DynctxError, match=r"text\.en: 2 lines, but contrapro\.json has 3 candidates"):
        read_set(path)
    write(tmp_path / "contrapro.text.en", "Other.\n" * 3)
    with pytest.raises(DynctxError, match="which side is the source"):
        read_set(path)
    write(tmp_path / "contrapro.text.en", "I saw  it.\n" * 3)
    write(tmp_path / "contrapro.context.en", "a\n" * 4)
    with pytest.raises(DynctxError, match=r"context\.en: 4 lines are not the same number for each of 3 candidates"):
        read_set(path)


# Bawden et al. 2018

RIGHT, WRONG = ["C'est grave ?", "Il faut l'enlever."], ["C'est grave ?", "Il faut le tuer."]


def test_bawden_lexical_choice(tmp_path: Path) -> None:
    block = {
        "type": "disambig",
        "examples": [{"src": ["Is it serious?", "Get rid of it."], "trg": {"correct": RIGHT, "incorrect": WRONG}}],
    }
    (item,) = read_set(write(tmp_path / "lexical-choice.json", {"1": block}))
    assert item == Item(
        ("Is it serious?",),
        "Get rid of it.",
        (("C'est grave ?",), ("C'est grave ?",)),
        ("Il faut l'enlever.", "Il faut le tuer."),
        0,
        1,
        "lexical-choice",
        "disambig",
    )


def test_bawden_anaphora(tmp_path: Path) -> None:
    targets = [{"correct": RIGHT, "incorrect": WRONG}, {"semi-correct": WRONG, "incorrect": RIGHT}]
    items = read_set(write(tmp_path / "anaphora.json", {"7": {"src": ["Is it?", "Go."], "trg": targets}}))
    assert [(item.candidates[0], item.kind) for item in items] == [
        ("Il faut l'enlever.", "correct"),
        ("Il faut le tuer.", "semi-correct"),
    ]


def test_bawden_broken(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for block, message in (
        ({"src": ["a", "b"]}, "'trg' is missing"),
        ({"src": ["a", "b"], "trg": 3}, "'trg' should be a list"),
        ({"src": ["a", "b"], "trg": [{"correct": RIGHT}]}, "'incorrect' is missing"),
        ({"src": [], "trg": [{"correct": RIGHT, "incorrect": WRONG}]}, "without sentences"),
        ({"src": ["a"], "trg": [{"correct": RIGHT, "incorrect": WRONG}]}, "0 context sentences in the source but 1"),
        ({"examples": [3]}, "an item is a JSON object, found int"),
    ):
        with pytest.raises(DynctxError, match=f"block 5: .*{message}"):
            read_set(write(path, {"5": block}))


# the sets themselves, where they are at hand

SHARED = Path(__file__).parents[2] / "shared" / "contrastive"


@pytest.mark.skipif(not SHARED.is_dir(), reason="the contrastive sets are not part of the project")
@pytest.mark.parametrize(
    ("name", "items", "candidates"),
    [
        ("voita19_en-ru_deixis_test", 2500, 5000),
        ("voita19_en-ru_lex_cohesion_test", 1500, 3428),
        ("voita19_en-ru_ellipsis_infl", 500, 2520),
        ("voita19_en-ru_ellipsis_vp", 500, 5203),
    ],
)
def test_the_published_sets_have_their_sizes(name: str, items: int, candidates: int) -> None:
    found = read_set(SHARED / f"{name}.jsonl.xz")
    assert (len(found), sum(len(item.candidates) for item in found)) == (items, candidates)
