"""One process at a time writes to a folder, and a claim ends with its process, however that ends."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tiny_runs import Warm, reached, refused, until

from dynctx import claims
from dynctx.claims import Busy, claimed
from dynctx.errors import DynctxError

pytest_plugins = ("tiny_fixtures",)

HOLD = """
import sys, time
from dynctx.claims import claimed
with claimed(sys.argv[1]):
    print("mine", flush=True)
    time.sleep(60)
"""


def test_a_second_claim_is_refused_and_says_who_has_the_first(tmp_path: Path) -> None:
    with (
        claimed(tmp_path / "run"),
        pytest.raises(Busy, match=rf"run: another process \({os.getpid()}\) works there"),
        claimed(tmp_path / "run"),
    ):
        raise AssertionError("claimed twice")
    with claimed(tmp_path / "run"), claimed(tmp_path / "other"):
        pass
    assert list(tmp_path.iterdir()) == []  # nothing was written, nothing stays


def test_what_was_written_stays_and_so_does_a_folder_that_was_there(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    with claimed(tmp_path / "old"), claimed(tmp_path / "a" / "new"):
        (tmp_path / "a" / "new" / "model").write_text("weights")
    assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*")) == ["a", "a/new", "a/new/model", "old"]


def test_a_claim_ends_with_an_error_and_with_a_process_that_is_killed(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), claimed(tmp_path):
        raise ZeroDivisionError
    with subprocess.Popen([sys.executable, "-c", HOLD, tmp_path], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "mine\n"
        with pytest.raises(Busy, match=rf"\({other.pid}\)"), claimed(tmp_path):
            pass
        other.send_signal(signal.SIGKILL)
        other.wait()
        with claimed(tmp_path):
            pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("folder", [".", "made/and/removed"])
def test_whoever_waits_comes_next_and_never_two_at_once(folder: str, tmp_path: Path) -> None:
    """Each thread opens the file by itself, so to the lock they are as good as processes."""
    inside, most, turns = 0, 0, 0

    def work() -> None:
        nonlocal inside, most, turns
        for _ in range(50):
            with claimed(tmp_path / folder, wait=True):
                inside += 1
                most, turns = max(most, inside), turns + 1
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, turns) == (1, 200)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(DynctxError, match="file/run: cannot be written: Not a directory"),
        claimed(tmp_path / "file/run"),
    ):
        pass


def test_a_file_system_without_locks_is_worked_on_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(claims.fcntl, "flock", no_locks)
    with claimed(tmp_path / "run"):
        (tmp_path / "run" / "model").write_text("weights")
    assert [place.name for place in (tmp_path / "run").iterdir()] == ["model"]


def test_two_runs_do_not_share_an_output(tiny_config: Path, warm: Warm, tmp_path: Path) -> None:
    settings = [tiny_config, f"training.output={tmp_path / 'run'}", "training.updates=100000"]
    first = warm.start("train", *settings)
    until(lambda: reached(tmp_path / "run"))
    message = refused(warm.run("train", *settings))
    assert message.startswith(f"{tmp_path / 'run'}: another process ({first.pid}) works there")
    first.kill()
    first.wait()
    again = warm.run("train", *settings[:2], f"training.updates={reached(tmp_path / 'run')}")
    assert again.code == 0 and "going on from update" in again.out
    assert not (tmp_path / "run" / ".claim").exists()
