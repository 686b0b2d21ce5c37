"""The commands of the evaluation suite as a user meets them."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_models import PAIRS, prepared_folder, saved, tiny_model
from tiny_runs import Ended, Run, refused

from dynctx import commands, commands_evaluation, pipeline
from dynctx.documents import Document, write_jsonl
from dynctx.evaluation import oracle
from dynctx.evaluation.contrastive import decide
from dynctx.evaluation.contrastive_sets import read_sets
from dynctx.evaluation.split import Split
from dynctx.model_folder import load_model
from dynctx.prepared import read_held_out

pytest_plugins = ("command_line",)

COMMANDS = (
    "contrast",
    "contrast build",
    "contrast-build",
    "oracle",
    "context-use",
    "empty-context",
    "annotate",
    "compare",
    "report",
)

ITEM = {
    "set": "p",
    "src_ctx": ["the cat sat", "a dog ran"],
    "src": "it rains",
    "tgt_ctx": ["on the mat", "in the park"],
    "cands": ["today", "again", "a house"],
    "true": 1,
    "dist": 2,
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("model") / "tdnmt", tiny_model("tdnmt", True, selector="probability-first"))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared_folder(tmp_path_factory.mktemp("data") / "data")


@pytest.fixture
def items(tmp_path: Path) -> Path:
    path = tmp_path / "p.jsonl"
    others = [{**ITEM, "true": 0, "dist": 1}, {**ITEM, "src_ctx": [], "tgt_ctx": [], "dist": None}]
    path.write_text("".join(json.dumps(item) + "\n" for item in (ITEM, *others)), encoding="utf-8")
    return path


def succeeded(ended: Ended) -> str:
    assert (ended.code, ended.err) == (0, ""), ended
    return ended.out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, run: Run) -> None:
    usage = succeeded(run(*command.split(), "--help"))
    assert usage.startswith("Usage: ") and f"dynctx {command.replace('-build', ' build')} [OPTIONS]" in usage


def test_contrast(model: Path, items: Path, run: Run, tmp_path: Path) -> None:
    kept = tmp_path / "kept.jsonl"
    content = json.loads(succeeded(run("contrast", model, items, "--items", kept, "--json", "--selector", "full")))
    loaded = load_model(model)
    results = decide(loaded, read_sets([items]), loaded.choose("full"))
    records = [json.loads(line) for line in kept.read_text().splitlines()]
    for record, result in zip(records, results, strict=True):
        assert record["scores"] == pytest.approx(result.scores, rel=1e-6)
        assert (record["right"], record["selected"]) == (result.right, list(result.selected))
    whole = content["accuracy"][0]
    assert whole["accuracy"] == pytest.approx(sum(result.right for result in results) / 3)
    assert content["reads"] == {"source_context": True, "target_context": False}
    assert [row["selector"] for row in content["selection"]] == [
        *("full", "previous 1", "random 1", "random, as many as selected")
    ]
    assert content["selection"][0]["contains"] == 1.0
    # the kept items are a set themselves
    assert read_sets([kept])[0].candidates == ("today", "again", "a house")
    text = succeeded(run("contrast", model, items))
    assert "distance unknown" in text and "random 1" in text
    assert "cannot have more than" in text  # the first two items differ in their truth alone


def test_contrast_refuses(model: Path, items: Path, run: Run, tmp_path: Path) -> None:
    items.write_text(items.read_text() + "{}\n")
    assert refused(run("contrast", model, items)) == f"{items}:4: 'cands' is missing"
    items.write_text(items.read_text().replace("{}\n", ""))
    given = tmp_path / "given.jsonl"
    given.write_text('{"selected": [1]}\n')
    assert "goes by the lines of a text" in refused(run("contrast", model, items, "--selector", f"fixed {given}"))
    assert "no such file" in refused(run("contrast", model, tmp_path / "none.jsonl"))
    before = items.read_text()
    said = refused(run("contrast", model, items, "--items", items))
    assert said == f"{items}: would be overwritten; write to another place" and items.read_text() == before


def test_contrast_build(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zh, en = tmp_path / "a.zh", tmp_path / "a.en"
    zh.write_text("开始了。\n什么时候走\n\n开始了。\n什么时候来\n", encoding="utf-8")
    en.write_text("Here goes.\nWhen did she leave?\n\nHere goes.\nWhen did he come?\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    text = succeeded(run("contrast", "build", zh, en, "-o", tmp_path / "out" / "zero"))
    assert "test: 1 items, 7 candidates (he 1)" in text
    (item,) = read_sets([tmp_path / "out" / "zero.test.jsonl"])
    assert item.candidates[item.true] == "When did he come?" and item.kind == "he"
    assert json.loads((tmp_path / "out" / "zero.counts.json").read_text())["dev"]["items"] == 1
    en.write_text("one line\n", encoding="utf-8")
    refused(run("contrast-build", zh, en, "-o", tmp_path / "out" / "other"))
    assert not list((tmp_path / "out").glob("other*"))


def test_a_model_in_a_folder_named_build(
    model: Path, items: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a model makes `contrast build` mean that folder: most folders of this name are something else."""
    monkeypatch.chdir(tmp_path)
    build = tmp_path / "build"
    build.mkdir()
    assert "dynctx contrast build [OPTIONS]" in succeeded(run("contrast", "build", "--help"))
    (build / "model").symlink_to(model)
    assert "distance 1" in succeeded(run("contrast", "build", items))
    assert "dynctx contrast build [OPTIONS]" in succeeded(run("contrast-build", "--help"))


def oracle_values(model: Path, place: Path) -> Path:
    """What sets of candidates are worth to a translator to which the sentence before is all that matters."""
    lines, scope = [], load_model(model).translator.scope
    for source, _ in read_held_out(place.parent, "news"):
        for number in range(len(source.sentences)):
            sets = [s for size in range(scope + 1) for s in combinations(range(1, min(scope, number) + 1), size)]
            lines.append({" ".join(map(str, s)) or "none": 2.0 * (1 in s) - len(s) for s in sets})
    place.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return place


def test_oracle(model: Path, data: Path, run: Run) -> None:
    text = succeeded(run("oracle", model, "news", "--data", data, "--sentences", "5"))
    assert text.startswith("5 sentences\n") and "own (probability-first)" in text
    content = json.loads(
        succeeded(run("oracle", model, "news", "--data", data, "--criterion", "bleu", "--beam", "1", "--json"))
    )
    assert content["sentences"] == 10 and content["ways"][-1]["name"] == "oracle"
    assert all(way["gain"] >= 0 for way in content["ways"])
    luck = succeeded(run("oracle", model, "news", "--data", data, "--context", "other document", "--sentences", "5"))
    assert luck.startswith("5 sentences") and luck != text
    assert "expected true, shuffled" in refused(run("oracle", model, "news", "--data", data, "--context", "x"))
    table = oracle_values(model, data / "worth.jsonl")
    told = succeeded(run("oracle", model, "news", "--data", data, "--values", table, "--selector", "previous 1"))
    # only the sentence before is worth anything, and less with each other one
    assert "mean value" in told and "the model's own selection is as good as the oracle's for 100.0 %" in told
    beam = refused(run("oracle", model, "news", "--data", data, "--values", table, "--beam", "2"))
    assert "no criterion, context or beam to choose" in beam
    assert "expected reward or bleu" in refused(run("oracle", model, "news", "--data", data, "--criterion", "x"))
    assert "no such prepared split" in refused(run("oracle", model, "nope", "--data", data))


def test_the_oracle_of_a_text_with_long_lines(
    model: Path, data: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """References are judged line by line; lines 4 and 9 are translated in two parts each, and line 10 after such a one
    reaches a line less far with its scope of 3."""
    monkeypatch.setattr(pipeline, "LONGEST", 10)
    told: list[list[tuple[int, ...]]] = []
    explain = pipeline.translate_and_explain

    def watched(*given: Any, **named: Any) -> Any:
        found = explain(*given, **named)
        told.append([choice.selected for document in found[1] for choice in document])
        return found

    monkeypatch.setattr(pipeline, "translate_and_explain", watched)
    assert run("test", model, "news", "--data", data, "--selector", "oracle").code == 0
    loaded = load_model(model)
    assert [len(ids) > 10 for ids in loaded.source.encode([s for d, _ in PAIRS for s in d.sentences])] == [
        n in (4, 9) for n in range(12)
    ]
    best = Split(loaded, PAIRS).select(oracle.Oracle(loaded.translator))
    expected = [tuple(distance + 1 for distance, chosen in enumerate(row) if chosen) for row in best]
    expected[2], expected[10] = (), tuple(distance for distance in expected[10] if distance < 3)  # 2 is empty
    assert told == [expected] and len(set(expected)) > 3


@pytest.mark.filterwarnings("error::UserWarning")  # of a figure whose names leave no room for it
def test_a_file_of_selections_in_every_command(model: Path, data: Path, run: Run, tmp_path: Path) -> None:
    place = tmp_path / "s.jsonl"
    place.write_text('{"selected": [1]}\n' * 12)
    name = f"fixed {place}"
    page = tmp_path / "page.html"
    succeeded(run("report", model, "news", "--data", data, "--selector", name, "-o", page))
    assert page.exists()
    for context in ("true", "shuffled", "other document"):
        text = succeeded(run("oracle", model, "news", "--data", data, "--selector", name, "--context", context))
        assert f"own ({name})" in text


def test_the_oracle_tells_how_far_it_is(model: Path, data: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    bars: list[tuple[str, int, list[int]]] = []

    class Bar(commands.bar):
        def __init__(self, total: int, quiet: bool = False, doing: str = "translating") -> None:
            bars.append((doing, total, []))
            super().__init__(total, quiet, doing)

        def __enter__(self) -> Any:
            super().__enter__()
            return bars[-1][2].append

    for module in (commands, commands_evaluation):
        monkeypatch.setattr(module, "bar", Bar)
    succeeded(run("oracle", model, "news", "--data", data))
    succeeded(run("test", model, "news", "--data", data, "--selector", "oracle"))
    assert [doing for doing, _, _ in bars] == ["trying subsets", "trying subsets", "translating"]
    assert all(sum(counts) == total > 0 for doing, total, counts in bars if doing != "translating")


def test_a_selector_beyond_the_scope_is_refused(model: Path, data: Path, run: Run) -> None:
    for command in (("test", model, "news"), ("oracle", model, "news"), ("compare", f"{model}@previous 4", "--split")):
        chosen = ["news"] if command[0] == "compare" else ["--selector", "previous 4"]
        said = refused(run(*command, *chosen, "--data", data))
        assert said == "selector 'previous 4' asks for more sentences than the model's scope of 3 (model.scope)"
    succeeded(run("test", model, "news", "--data", data, "--selector", "previous 3"))


def test_context_use(model: Path, data: Path, run: Run, tmp_path: Path) -> None:
    kept = tmp_path / "p.jsonl"
    arguments = ("context-use", model, "news", "--data", data, "--selector", "full", "--sentences", kept, "--json")
    content = json.loads(succeeded(run(*arguments)))
    assert [use["condition"] for use in content["conditions"]] == ["true", "shuffled", "other document", "none"]
    records = [json.loads(line) for line in kept.read_text().splitlines()]
    assert len(records) == 10 and records[2]["document"] == "one" and records[2]["sentence"] == 4
    mean = sum(record["p_cxmi"] for record in records) / 10
    assert mean == pytest.approx(content["conditions"][0]["cxmi"], rel=1e-4)


def test_empty_context(model: Path, data: Path, run: Run, tmp_path: Path) -> None:
    text = succeeded(run("empty-context", model, "news", "--data", data, "--margin", "5"))
    assert text.startswith("10 sentences, ") and "more than 5 nats" in text
    notes = tmp_path / "a.jsonl"
    notes.write_text('{"document": "one", "sentence": 4, "labels": {"a": true, "b": true}}\n')
    content = json.loads(
        succeeded(run("empty-context", model, "news", "--data", data, "--annotation", notes, "--json"))
    )
    assert (content["sentences"], content["empty"]) == (1, 1)
    assert set(content["bleu"]) == {"none", "full", "probability-first"}
    notes.write_text("{}\n")
    assert "a.jsonl:1" in refused(run("empty-context", model, "news", "--data", data, "--annotation", notes))


def test_annotate(run: Run, tmp_path: Path) -> None:
    documents = [(Document("d", tuple("abcdefgh")), Document("d", tuple("ABCDEFGH")))]
    data = prepared_folder(tmp_path / "data", documents)
    folder = tmp_path / "sheets"

    def answer(annotator: str, step: int, answers: list[str]) -> None:
        command = ("annotate", "write", data, "news", folder, "--annotator", annotator, "--scope", "2")
        assert f"step {step} of 3, 6 sentences" in succeeded(run(*command))
        path = folder / f"{annotator}.step{step}.tsv"
        head, *lines = path.read_text().splitlines()
        path.write_text("\n".join([head, *(line + a for line, a in zip(lines, answers, strict=True))]) + "\n")

    for annotator, second, third in (
        ("ann", ["yes"] * 4 + ["no"] * 2, ["no"] * 3 + ["yes"] * 3),
        ("bob", ["yes"] * 6, ["no"] * 2 + ["yes"] * 4),
    ):
        answer(annotator, 1, ["x"] * 6)
        answer(annotator, 2, second)
        answer(annotator, 3, third)
    output = tmp_path / "a.jsonl"
    text = succeeded(run("annotate", "read", folder, "ann", "bob", "-o", output))
    # empty: ann 1 2 3, bob 1 2; agreement 5/6, by chance (3 * 2 + 3 * 4) / 36 = 1/2: kappa 2/3
    assert text == (
        "6 sentences, 2 need no context (33.3 %)\n"
        "both say empty 2, only ann 1, only bob 0, neither 3; Cohen's kappa 0.67\n"
    )
    assert sum(json.loads(line)["empty"] for line in output.read_text().splitlines()) == 2
    assert "all three steps are filled in" in succeeded(
        run("annotate", "write", data, "news", folder, "--annotator", "bob")
    )
    assert "cy.step1.tsv: no such file" in refused(run("annotate", "read", folder, "cy"))


def test_sheets_of_one_folder_are_of_one_sample(run: Run, tmp_path: Path) -> None:
    """A second annotator's sheet for another split, text or number would not be of the same sentences."""
    documents = [(Document("d", tuple("abcdefgh")), Document("d", tuple("ABCDEFGH")))]
    data, folder = prepared_folder(tmp_path / "data", documents), tmp_path / "sheets"
    prepared_folder(tmp_path / "data", documents, "other")
    changed = [(documents[0][0], Document("d", tuple("ABCDEFGX")))]
    prepared_folder(tmp_path / "changed", changed)

    def write(annotator: str, *options: str, split: str = "news", source: Path = data) -> Ended:
        return run("annotate", "write", source, split, folder, "--annotator", annotator, *options)

    drawn = ("--sentences", "4", "--scope", "1", "--seed", "3")
    succeeded(write("ann", *drawn))
    sample = json.loads((folder / "sample.json").read_text())
    assert [sample[key] for key in ("split", "sentences", "scope", "seed")] == ["news", 4, 1, 3]
    here = f"{folder / 'sample.json'}: the sheets here"
    assert refused(write("bob", split="other")) == f"{here} are of 'news', not of 'other'; use another folder"
    said = refused(write("bob", source=tmp_path / "changed"))
    assert said == f"{here} are of another text named 'news'; use another folder"
    for name, was, asked in (("sentences", 4, 5), ("scope", 1, 2), ("seed", 3, 1)):
        said = refused(write("bob", f"--{name}", str(asked)))
        assert said == f"{here} were drawn with --{name} {was}, not {asked}; use another folder"
    assert not list(folder.glob("bob*"))
    succeeded(write("bob"))
    succeeded(write("cy", *drawn))
    sheets = {(folder / f"{name}.step1.tsv").read_text() for name in ("ann", "bob", "cy")}
    assert len(sheets) == 1
    # sheets that an earlier version began know only their places
    (folder / "sample.json").write_text(json.dumps({key: sample[key] for key in ("scope", "places")}))
    succeeded(write("dan", "--sentences", "9"))
    assert (folder / "dan.step1.tsv").read_text() in sheets


def test_compare(model: Path, data: Path, run: Run, tmp_path: Path) -> None:
    perfect = tmp_path / "perfect.jsonl"
    write_jsonl([target for _, target in PAIRS], perfect)
    arguments = (f"ref={perfect}", f"none={model}@none", "--split", "news", "--data", data, "--baseline", "none")
    content = json.loads(succeeded(run("compare", *arguments, "--format", "json")))
    assert [system["name"] for system in content["systems"]] == ["ref", "none"]
    assert content["systems"][0]["scores"]["chrF"] == pytest.approx(100)
    (tmp_path / "short").write_text("a\nb\n")
    message = refused(run("compare", f"x={model}", tmp_path / "short", "--split", "news", "--data", data))
    assert "short (2 sentences in 1 document) does not match" in message and "news.jsonl (12 sentences" in message
    assert "two systems have one name" in refused(run("compare", f"x={model}", f"x={perfect}", "--split", "news"))
    out = tmp_path / "t.tex"
    succeeded(run("compare", *arguments, "--format", "latex", "-o", out))
    assert out.read_text().startswith(r"\begin{tabular}")


def test_compare_files_alone(run: Run, tmp_path: Path) -> None:
    for name, lines in (("ref", "a b c d\n\ne f g h\n"), ("one", "a b c d\ne f g x\n"), ("bad", "a\n")):
        (tmp_path / name).write_text(lines)
    text = succeeded(run("compare", tmp_path / "one", f"x={tmp_path / 'ref'}", "--reference", tmp_path / "ref"))
    assert "2 sentences in 2 documents" in text
    assert "does not match" in refused(run("compare", tmp_path / "bad", "--reference", tmp_path / "ref"))
    assert "name the test set" in refused(run("compare", tmp_path / "one"))
    assert "--split needs --data" in refused(run("compare", tmp_path / "one", "--split", "news"))
    assert "expected text" in refused(run("compare", tmp_path / "one", "--format", "x"))


def test_a_model_cannot_translate_a_reference(model: Path, run: Run, tmp_path: Path) -> None:
    (tmp_path / "ref").write_text("a\n")
    assert "needs the source" in refused(run("compare", model, "--reference", tmp_path / "ref"))


def test_report(model: Path, data: Path, run: Run, tmp_path: Path) -> None:
    page = tmp_path / "out" / "r.html"
    assert succeeded(run("report", model, "news", "--data", data, "-o", page)) == f"{page}\n"
    assert page.read_text().startswith("<!doctype html>") and (tmp_path / "out" / "r.figures" / "cost.png").exists()


def test_the_models_own_data_folder_is_the_default(run: Run, tmp_path: Path) -> None:
    import copy
    import dataclasses

    loaded = tiny_model("concat")
    config = copy.deepcopy(loaded.config)
    config.data.folder = str(prepared_folder(tmp_path / "own"))
    folder = saved(tmp_path / "m", dataclasses.replace(loaded, config=config))
    assert succeeded(run("oracle", folder, "news", "--sentences", "2")).startswith("2 sentences")
    content = json.loads(succeeded(run("compare", folder, "--split", "news", "--format", "json")))
    lines = Split(loaded, PAIRS).translate(loaded.selector)
    assert content["sentences"] == len(lines)


def test_some_of_the_sentences_are_drawn_evenly_and_in_order() -> None:
    everything = np.arange(5, 105)
    drawn = [commands_evaluation.some_of(everything, 10, seed).tolist() for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    for found in drawn:
        assert found == sorted(set(found)) and len(found) == 10 and max(found) > 50  # not the first ten
    for count in (0, 100, 200):
        assert commands_evaluation.some_of(everything, count, 1).tolist() == everything.tolist()
