"""The commands as a user meets them: what they print, what they write, and how they fail."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import Ended, Run, refused, train_here, write_config, write_corpus

import dynctx
from dynctx import bench, cli, commands_info
from dynctx.config import Config, apply_overrides, load_config
from dynctx.plain_data import to_yaml

pytest_plugins = ("tiny_fixtures", "command_line")

TWO = "the cat sees the dog\n\nthe dog sees\nbig red house\n"  # two documents
BASE = 52_330_496  # parameters of Transformer base with one matrix of 16,000 words


# the command itself


def test_help_is_quick_and_imports_nothing_heavy() -> None:
    """Counts the processor's time, which does not depend on what else the machine does."""
    code = (
        "import sys, time; sys.argv = ['dynctx', '--help']\n"
        "from dynctx import cli\n"
        "try: cli.main()\n"
        "except SystemExit as end: assert end.code == 0\n"
        "heavy = {'torch', 'numpy', 'lightning', 'sacrebleu', 'sentencepiece', 'yaml'} & set(sys.modules)\n"
        "print(sorted(heavy), time.process_time(), file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy, seconds = ended.stderr.rsplit(maxsplit=1)
    assert heavy == "[]"
    assert float(seconds) < 1.0
    for command in ("prepare", "train", "translate", "evaluate", "test", "info", "bench"):
        assert f"\n  {command} " in ended.stdout


def test_what_a_translator_needs_comes_first(run: Run) -> None:
    listed = run("--help").out.split("--help ")[1]
    shown = re.findall(r"^(?:  ([a-z-]+(?: [a-z]+)?)  .*|(\w.*):)$", listed, re.MULTILINE)
    assert shown[:7] == [
        ("", "Translating"),
        ("translate", ""),
        ("serve", ""),
        ("info", ""),
        ("", "Looking at context"),
        ("select", ""),
        ("", "Making models"),
    ]
    there = {command.name or command.callback.__name__ for command in cli.app.registered_commands}  # type: ignore[union-attr]
    there |= {str(group.name) for group in cli.app.registered_groups}
    assert sorted(name for name, _ in shown if name) == sorted(there)  # each once


def test_the_version(run: Run) -> None:
    assert run("--version") == Ended(0, f"dynctx {dynctx.__version__}\n", "")


def test_help_is_in_whole_sentences(run: Run) -> None:
    shown = " ".join(run("--help").out.split())
    assert "only the text in them changes." in shown  # more than a line
    assert ".. " not in shown.split("Translating:")[1]


def test_every_command_has_help(run: Run) -> None:
    for command in ("prepare", "train", "translate", "evaluate", "test", "info", "bench"):
        ended = run(command, "--help")
        assert ended.code == 0 and "Usage: " in ended.out and ended.err == ""


@pytest.mark.parametrize("arguments", [["tarin"], ["train"], ["translate"], ["info", "a", "--nope"]])
def test_wrong_usage(arguments: list[str], run: Run) -> None:
    ended = run(*arguments)
    assert ended.code == 2 and "Usage: " in ended.err and "Traceback" not in ended.err


def test_ctrl_c(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(commands_info, "show_info", interrupt)
    assert run("info", tmp_path) == Ended(130, "", "dynctx: stopped\n")


def print_scores(tiny_config: Path, stdout: Any) -> subprocess.CompletedProcess[str]:
    """A command that prints a little, which stays in the buffer until the very end."""
    reference = str(tiny_config.parent / "news.tgt")
    command = [sys.executable, "-m", "dynctx", "evaluate", reference, reference, "--json"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, env=environment)


def test_a_closed_pipe_is_no_error(tiny_config: Path) -> None:
    """As in `dynctx evaluate ... | true`."""
    reading, writing = os.pipe()
    os.close(reading)
    ended = print_scores(tiny_config, writing)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_output_to_a_full_disk(tiny_config: Path) -> None:
    with open("/dev/full", "w") as full:
        ended = print_scores(tiny_config, full)
    assert ended.returncode == 2
    assert ended.stderr == "dynctx: the output: cannot be written: No space left on device\n"


def test_a_pipe_closed_early_is_no_error(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in `dynctx translate ... | head`: Typer meets the error first."""

    def closed(*_: Any) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr(commands_info, "show_info", closed)
    monkeypatch.setattr(os, "dup2", lambda *_: None)  # standard output belongs to pytest
    assert run("info", "x") == Ended(0, "", "")


def test_a_mistake_of_ours_keeps_its_traceback(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def bug(*_: Any) -> None:
        raise OSError(errno.ENOENT, "lost")

    monkeypatch.setattr(commands_info, "show_info", bug)
    with pytest.raises(OSError, match="lost"):
        run("info", "x")


# configs and data


@pytest.mark.parametrize("command", ["prepare", "train"])
def test_a_wrong_config(command: str, run: Run, tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    assert refused(run(command, config)) == f"{config}: cannot read the config: No such file or directory"
    config.write_text("training: {updats: 3}\n")
    said = refused(run(command, config))
    assert said == f"{config}: unknown key 'updats' (did you mean 'updates'?) in training"
    config.write_text("seed: 1\n")
    assert "unknown key 'trainig' (did you mean 'training'?)" in refused(run(command, config, "trainig.updates=1"))
    assert "expected key=value" in refused(run(command, config, "training.updates"))
    assert "training.updates is 'many'" in refused(run(command, config, "training.updates=many"))


def test_training_needs_prepared_data(run: Run, tiny_config: Path, tmp_path: Path) -> None:
    ended = run("train", tiny_config, f"data.folder={tmp_path}", f"training.output={tmp_path / 'run'}")
    assert refused(ended) == f"{tmp_path}: no prepared data here (data.folder); run 'dynctx prepare' first"
    assert not (tmp_path / "run").exists()


def test_training_from_a_missing_model(run: Run, tiny_config: Path, tmp_path: Path) -> None:
    ended = run("train", tiny_config, f"training.output={tmp_path / 'run'}", f"training.init={tmp_path / 'none'}")
    assert refused(ended).startswith(f"{tmp_path / 'none'}: no model here")
    assert not (tmp_path / "run").exists()


def test_prepare_and_train(run: Run, tmp_path: Path) -> None:
    """The whole way; the settings on the command line are those of the model."""
    write_corpus(tmp_path)
    config = write_config(tmp_path)
    ended = run("prepare", config, "data.vocabulary=50")
    assert ended.code == 0 and "train: 30 documents, 180 sentence pairs" in ended.out
    ended = run("train", config, "data.vocabulary=50", "training.updates=2", "seed=3")
    assert (ended.code, ended.err) == (0, "")
    assert "the end: update 2 of 2" in ended.out
    overrides = ["data.vocabulary=50", "training.updates=2", "seed=3"]
    assert load_config(tmp_path / "run" / "model" / "config.yaml") == load_config(config, overrides)


def test_evaluate(run: Run, tiny_config: Path) -> None:
    reference = tiny_config.parent / "news.tgt"
    ended = run("evaluate", reference, reference, "--language", "de")
    assert ended.code == 0 and "12 sentences in 2 documents" in ended.out
    report = json.loads(run("evaluate", reference, reference, "--language", "de", "--json").out)
    assert {score["name"]: score["value"] for score in report["scores"]}["BLEU"] == pytest.approx(100)
    assert "no such file" in refused(run("evaluate", reference.with_suffix(".none"), reference))


def test_test(run: Run, trained: Path, tiny_config: Path, tmp_path: Path) -> None:
    kept = tmp_path / "news.jsonl"
    ended = run("test", trained, "news", "--beam", "2", "-o", kept)
    record = json.loads(ended.out)
    assert (record["split"], record["beam"], record["sentences"]) == ("news", 2, 12)
    documents = [json.loads(line)["sentences"] for line in kept.read_text().splitlines()]
    assert [len(sentences) for sentences in documents] == [6, 6]
    reference = tiny_config.parent / "news.tgt"
    report = json.loads(run("evaluate", kept, reference, "--language", "de", "--json").out)
    scores = {score["name"]: round(score["value"], 2) for score in report["scores"]}
    assert record["scores"] == {name: scores[name] for name in record["scores"]}
    assert record["signatures"].keys() == record["scores"].keys()
    said = refused(run("test", trained, "olds"))
    assert said.endswith("olds.jsonl: no such prepared split; there are: dev, news")


def test_info_of_a_model(run: Run, trained: Path) -> None:
    info = json.loads(run("info", trained, "--json").out)
    about = json.loads((trained / "model" / "about.json").read_text())
    assert (info["kind"], info["languages"], info["updates"]) == ("sentence", ["en", "de"], about["updates"])
    assert info["scores"] == about["scores"]
    assert info["parameters"]["total"] == {"trainable": 19264, "frozen": 0}
    assert info["bytes_on_disk"] == sum(f.stat().st_size for f in (trained / "model").iterdir())
    users, out = run("info", trained).out.split("\n\n")
    assert users.splitlines() == [
        "run: English to German",
        "  kind        sentence, translates each sentence by itself",
        f"  trained on  {info['data'][0]['source']}",
        f"  scores      {', '.join(f'{name} {value}' for name, value in about['scores'].items())}",
        "  licence     not said",
        f"  size        0.0 million parameters, {info['bytes_on_disk'] / 2**20:.1f} MiB on disk",
        f"  folder      {trained / 'model'}",
        f"  more        {trained / 'model' / 'README.md'}",
    ]
    assert out.startswith("sentence model, en to de\nvocabulary: 60 source, 60 target (joint)\n")
    assert "  total                           19,264 trainable             0 frozen\n" in out
    assert f"updates: {about['updates']}\n" in out and f"  bleu: {about['scores']['bleu']}\n" in out


def test_info_of_a_config(run: Run, tiny_config: Path, tmp_path: Path) -> None:
    prepared = json.loads(run("info", tiny_config, "--json").out)
    assert prepared["parameters"]["total"] == {"trainable": 19264, "frozen": 0}
    assert (prepared["updates"], prepared["bytes_on_disk"]) == (None, 0)
    write_corpus(tmp_path)
    config = write_config(tmp_path)  # not prepared: the size that is asked for
    text = config.read_text().replace("vocabulary: 60", "vocabulary: 1000")
    config.write_text(text)
    info = json.loads(run("info", config, "--json").out)
    assert info["vocabulary"] == {"source": 1000, "target": 1000, "joint": True}
    assert info["parameters"]["target_embedding"]["trainable"] == 32000
    assert "updates" not in run("info", config).out
    assert refused(run("info", tmp_path / "none")) == f"{tmp_path / 'none'}: no such model folder or config"
    (tmp_path / "empty").mkdir()
    assert "no model here" in refused(run("info", tmp_path / "empty"))


def described(config: Path, *overrides: str) -> dict[str, Any]:
    config.write_text(to_yaml(apply_overrides(Config(), overrides)), encoding="utf-8")
    return commands_info.describe(config)


@pytest.mark.parametrize(
    ("kind", "scope", "new", "frozen"),
    [
        ("sentence", 0, 0, 0),
        ("concat", 2, 0, 0),
        ("tdnmt", 2, 22_063_616, BASE),
        ("han", 3, 9_461_760, 0),
        ("san", 6, 4_198_912, 18_914_304 + 16_000 * 512),  # the copy of embedding and encoder
        ("cadec", 3, 34_729_984 + 16_000 * 512, BASE),
    ],
)
def test_info_tells_what_is_new_and_what_would_be_frozen(
    kind: str, scope: int, new: int, frozen: int, tmp_path: Path
) -> None:
    sizes = [f"model.kind={kind}", f"model.scope={scope}", f"data.folder={tmp_path}"]
    info = described(tmp_path / "c.yaml", *sizes, "training.init=a sentence model")
    copy = frozen if kind == "san" else 0
    total = {"trainable": BASE + new + copy - frozen, "frozen": frozen}
    assert (info["new_parameters"], info["parameters"]["total"]) == (new, total)
    line = f"  new beside the sentence model: {new:,}"
    assert [said for said in commands_info.in_detail(info) if "new" in said] == ([line] if new else [])
    free = described(tmp_path / "c.yaml", *sizes, "training.init=a sentence model", "training.freeze=nothing")
    assert (free["new_parameters"], free["parameters"]["total"]["frozen"]) == (new, copy)


@pytest.mark.parametrize(
    ("settings", "learning"),
    [
        (["training.stage=scorer"], {"scorer"}),
        (["training.stage=reinforce", "reinforce.scorer_only=true"], {"scorer"}),
        (["training.stage=reinforce", "training.freeze=base"], {"scorer", "context_encoder", "encoder_context"}),
        (["scorer.enabled=true"], {"context_encoder", "encoder_context"}),
        (["training.stage=reinforce"], {"scorer", "context_encoder", "encoder_context", "encoder", "target_embedding"}),
    ],
)
def test_info_knows_what_each_stage_trains(settings: list[str], learning: set[str], tmp_path: Path) -> None:
    sizes = ["model.kind=tdnmt", "training.init=a model", f"data.folder={tmp_path}"]
    parts = described(tmp_path / "c.yaml", *sizes, *settings)["parameters"]
    some = ("scorer", "context_encoder", "encoder_context", "encoder", "target_embedding")
    assert {name for name in some if parts[name]["trainable"]} == learning
    assert all(not parts[name]["trainable"] or not parts[name]["frozen"] for name in some)


def test_bench(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The measurements themselves take minutes; here they only have to come out as JSON lines."""
    monkeypatch.setattr(bench, "start_up", lambda: 0.1)
    monkeypatch.setattr(bench, "alone", lambda work, *arguments: work(*arguments))
    monkeypatch.setattr(bench, "base_model", lambda device: None)
    monkeypatch.setattr(bench, "to_int8", lambda model: None)
    for speed in ("decode_speed", "training_speed"):
        monkeypatch.setattr(bench, speed, lambda *_: 12.345)
    lines = [json.loads(line) for line in run("bench", "--threads", "1").out.splitlines()]
    assert [line["what"] for line in lines] == ["start-up of the help", *["decode"] * 4, "train"]
    assert [line.get("precision") for line in lines[1:5]] == ["float32", "float32", "int8", "int8"]


def test_bench_measures_memory_in_a_process_of_its_own() -> None:
    assert bench.alone(os.getpid) != os.getpid()


def test_training_starts_from_a_model(tiny_config: Path, trained: Path, tmp_path: Path) -> None:
    """A run of no updates that starts from a model is that model."""
    train_here(tiny_config, tmp_path, f"training.init={trained}", "training.updates=0", "training.freeze=nothing")
    weights = [(folder / "model" / "model.safetensors").read_bytes() for folder in (trained, tmp_path)]
    assert weights[0] == weights[1]


def test_a_model_to_share(run: Run, trained: Path, tmp_path: Path) -> None:
    """Half the size, in small files, translating as the one in the run; what is there already stays."""
    shared = tmp_path / "shared"
    ended = run("export", trained, shared, "--half", "--split", "1")
    assert ended.code == 0 and f"{shared}: " in ended.out
    sizes = [sum(f.stat().st_size for f in folder.glob("*.safetensors")) for folder in (trained / "model", shared)]
    assert sizes[1] < 0.55 * sizes[0]
    text = "\n".join(f"{number} sentences" for number in range(5)).encode()
    lines = [run("translate", "-", "--model", model, stdin=text).out for model in (trained, shared)]
    assert lines[0] == lines[1] and len(lines[0].splitlines()) == 5
    before = {f.name: f.read_bytes() for f in shared.iterdir()}
    assert "is there already" in refused(run("export", trained, shared))
    assert {f.name: f.read_bytes() for f in shared.iterdir()} == before
    assert str(trained) not in (shared / "config.yaml").read_text()
    assert "must not be negative" in refused(run("export", trained, tmp_path / "other", "--split", "-1"))
