"""Tiny training runs for the tests of training and of the commands, in processes that start at once.

Importing torch and Lightning takes seconds. `Warm` is a process that has done so, and forks itself for each
command: what runs is `dynctx.cli.main`, in a process of its own that can be killed like any other.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from dynctx.config import Config, load_config

WORDS = ["the", "cat", "dog", "sees", "big", "red", "house", "tree"]
# what a run changes on disk; a call that only reads is no moment worth crashing at
CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir")
TIME_LIMIT = 60.0  # seconds that a command may take, on the slowest of machines
TRAINING: dict[str, Any] = {
    "output": "run",
    "updates": 60,
    "batch_tokens": 256,
    "update_batches": 2,
    "schedule": {"peak": 0.02, "warmup": 20},
    "validate_every": 15,
    "validation": {"beam": 2, "max_extra": 5},
    "average": 2,
    "checkpoint_every": 7,
    "log_every": 7,
}


def write_corpus(folder: Path) -> None:
    """Documents whose translation is each word spelled backwards."""
    rng = random.Random(3)
    for name, documents in (("train", 30), ("dev", 2), ("news", 2)):
        sides: tuple[list[str], list[str]] = ([], [])
        for _ in range(documents):
            sentences = [rng.choices(WORDS, k=rng.randint(3, 8)) for _ in range(6)]
            sides[0].append("".join(" ".join(words) + "\n" for words in sentences))
            sides[1].append("".join(" ".join(word[::-1] for word in words) + "\n" for words in sentences))
        for suffix, side in zip(("src", "tgt"), sides):
            (folder / f"{name}.{suffix}").write_text("\n".join(side), encoding="utf-8")


def write_config(folder: Path, name: str = "config.yaml") -> Path:
    """A config for the corpus in `folder`; its runs go there too."""

    def pair(split: str) -> dict[str, str]:
        return {"source": str(folder / f"{split}.src"), "target": str(folder / f"{split}.tgt")}

    content = {
        "seed": 5,
        "data": {
            "folder": str(folder / "data"),
            "source_language": "en",
            "target_language": "de",
            "train": [pair("train")],
            "dev": pair("dev"),
            "test": {"news": pair("news")},
            "vocabulary": 60,
            "byte_fallback": False,
        },
        "model": {
            "width": 32,
            "feed_forward": 32,
            "heads": 2,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "norm": "pre",
            "dropout": 0.1,
        },
        "training": {**TRAINING, "output": str(folder / "run")},
        "runtime": {"device": "cpu", "threads": 1},
    }
    place = folder / name
    place.write_text(yaml.safe_dump(content), encoding="utf-8")
    return place


def train_here(config: Path, output: Path, *overrides: str) -> dict[str, Any]:
    """A run in this process; returns its final record."""
    from dynctx.training import run

    return run(changed(config, output, *overrides))


def changed(config: Path, output: Path, *overrides: str) -> Config:
    return load_config(config, [f"training.output={output}", *overrides])


def log_of(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (output / "log.jsonl").read_text(encoding="utf-8").splitlines()]


def curve(output: Path) -> list[tuple[int, float]]:
    """(update, loss) of every line of training."""
    return [(line["update"], line["loss"]) for line in log_of(output) if "loss" in line]


def reached(output: Path) -> int:
    """The update of the last checkpoint; 0 without one. May be asked of a run in progress."""
    return max((int(place.name[-8:]) for place in (output / "state").glob("update-*")), default=0)


def last_checkpoint(output: Path) -> Path:
    return sorted((output / "state").glob("update-*"))[-1]


def learned(output: Path) -> dict[str, Any]:
    """All that a run leaves behind except times: equal for two runs that ended alike, bit for bit."""
    progress = json.loads((last_checkpoint(output) / "progress.json").read_text())
    for name in ("seconds", "checksum"):
        del progress[name]
    del progress["config"]["training"]["output"]
    validations = [(line["update"], line["validation"]) for line in log_of(output) if "validation" in line]
    return {
        "model": (output / "model" / "model.safetensors").read_bytes(),
        "tensors": (last_checkpoint(output) / "state.safetensors").read_bytes(),
        "progress": progress,
        "files": sorted(str(p.relative_to(output)) for p in output.rglob("*") if "tensorboard" not in p.parts),
        "curve": curve(output),
        "validations": validations,
    }


@dataclass
class Ended:
    code: int  # negative: the signal it died of
    out: str
    err: str


def until(happened: Callable[[], object]) -> None:
    """Wait for what a command does on its way; one that has died never does it."""
    deadline = time.monotonic() + TIME_LIMIT
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.002)


class Started:
    """A command in a process of its own."""

    def __init__(self, warm: Warm, pid: int, out: Path, err: Path) -> None:
        self.warm, self.pid, self.out, self.err = warm, pid, out, err

    def kill(self, number: int = signal.SIGKILL) -> None:
        os.kill(self.pid, number)

    def wait(self) -> Ended:
        code = self.warm.ask({"wait": self.pid})
        return Ended(code, self.out.read_text(encoding="utf-8"), self.err.read_text(encoding="utf-8"))


class Warm:
    """Starts commands from a process that has imported everything."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.server = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def ask(self, request: dict[str, Any]) -> int:
        assert self.server.stdin and self.server.stdout
        self.server.stdin.write(json.dumps(request) + "\n")
        self.server.stdin.flush()
        return int(self.server.stdout.readline())

    def start(
        self, *arguments: str | Path, crash: int = 0, limit: int = 0, environment: dict[str, str] | None = None
    ) -> Started:
        """crash: die at this change of the disk, counted from 1. limit: the largest file, in bytes."""
        self.count += 1
        out, err = self.folder / f"{self.count}.out", self.folder / f"{self.count}.err"
        request = {"arguments": [str(a) for a in arguments], "out": str(out), "err": str(err)}
        pid = self.ask({**request, "crash": crash, "limit": limit, "environment": environment or {}})
        return Started(self, pid, out, err)

    def run(self, *arguments: str | Path, crash: int = 0, limit: int = 0) -> Ended:
        return self.start(*arguments, crash=crash, limit=limit).wait()

    def close(self) -> None:
        self.server.kill()
        self.server.communicate()


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def start_two(warm: Warm, *arguments: str | Path) -> list[Started]:
    """What torchrun does, but from a process that has imported everything. The second dies if it writes a file."""
    common = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0", "TORCHELASTIC_RUN_ID": "test"}
    common |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    ranks = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in (0, 1)]
    return [warm.start(*arguments, crash=number, environment=common | rank) for number, rank in enumerate(ranks)]


def run_two(warm: Warm, *arguments: str | Path) -> list[Ended]:
    ended = [process.wait() for process in start_two(warm, *arguments)]
    assert [process.code for process in ended] == [0, 0], ended
    return ended


def serve() -> None:
    """The process that `Warm` talks to: a request a line, a number for an answer."""
    from lightning.fabric import Fabric  # noqa: F401
    from torch.utils.tensorboard import SummaryWriter  # noqa: F401 (imported once for all)

    import dynctx.cli
    import dynctx.commands
    import dynctx.training.loop
    import dynctx.training.translation  # noqa: F401

    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            answer = wait(request["wait"])
        else:
            answer = os.fork()
            if answer == 0:
                command(request)
        print(answer, flush=True)


def wait(pid: int) -> int:
    """The exit code; a process that hangs, as one of two may that do not agree, is killed."""
    deadline = time.monotonic() + TIME_LIMIT
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.002)


def command(request: dict[str, Any]) -> None:
    """One command, in the forked process; does not return."""
    from dynctx import cli

    code: Any = 0
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(request[name], os.O_WRONLY | os.O_CREAT), number)
    try:
        os.environ.update(request["environment"])
        if request["limit"]:
            resource.setrlimit(resource.RLIMIT_FSIZE, (request["limit"], request["limit"]))
        if request["crash"]:
            crash_at(request["crash"])
        sys.argv = ["dynctx", *request["arguments"]]
        cli.main()
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def crash_at(number: int) -> None:
    """Die as by kill -9, just before the disk is changed for the `number`th time."""
    count = 0

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        writes = event == "open" and isinstance(arguments[1], str) and any(c in arguments[1] for c in "wax")
        writes = writes and arguments[0] != os.devnull
        if event in CHANGES or writes:
            count += 1
            if count == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


if __name__ == "__main__":
    serve()


Run = Callable[..., Ended]


def refused(ended: Ended) -> str:
    """The one line that a mistake is answered with."""
    assert (ended.code, ended.out) == (2, ""), ended
    assert ended.err.startswith("dynctx: ") and ended.err.count("\n") == 1, ended.err
    return ended.err.removeprefix("dynctx: ").rstrip("\n")
