"""Files: lines out of text and archives, files that cannot be read, and writing that leaves all or nothing."""

from __future__ import annotations

import errno
import gzip
import lzma
import os
import stat
from pathlib import Path

import pytest
from document_helpers import message, read

from dynctx.files import atomic_write, read_lines

pytest_plugins = ("document_fixtures",)


# Reading


def test_lines_come_without_their_ends(put):
    assert list(read_lines(put("a", "\ufeff a \r\n\r\n\tb\n c"))) == [" a ", "", "\tb", " c"]


@pytest.mark.parametrize("suffix, pack", [("", bytes), (".xz", lzma.compress), (".gz", gzip.compress)])
def test_broken_utf8_names_line_and_byte(put, suffix, pack):
    said = message(read, put("a.en" + suffix, pack(b"One.\n\n" + "ä".encode() + b"b\xe4c\n")))
    assert f"a.en{suffix}:3:" in said and "0xe4" in said and "offset 3 " in said


@pytest.mark.parametrize("suffix, pack", [(".xz", lzma.compress), (".gz", gzip.compress), (".XZ", lzma.compress)])
def test_archives(put, suffix, pack):
    text = "One.\r\n\nTwo\u2028.\n"
    assert read(put("a.en" + suffix, pack(text.encode()))) == [("1", ["One."]), ("2", ["Two\u2028."])]


@pytest.mark.parametrize("suffix, pack", [(".xz", lzma.compress), (".gz", gzip.compress)])
def test_damaged_archives(put, suffix, pack):
    whole = pack(b"".join(b"%d some sentence\n" % (i * i) for i in range(9999)))
    for broken in (whole[: len(whole) // 2], whole[:2000] + b"\0" * 2000 + whole[4000:], b"no archive\n"):
        said = message(read, put("a.en" + suffix, broken))
        assert f"a.en{suffix}: damaged archive" in said


@pytest.mark.parametrize("content", ["", "\n \n\n", "\ufeff\r\n"])
def test_no_sentence(put, content):
    assert "a.en: holds no sentence" in message(read, put("a.en", content))


def test_missing_file_suggests_the_nearest(put, tmp_path):
    put("train.en.xz", b"")
    said = message(read, str(tmp_path / "train.en"))
    assert f"{tmp_path}/train.en: no such file" in said and "train.en.xz?" in said
    assert "nowhere/a.en: no such file" in message(read, "nowhere/a.en")
    assert "b.ids: no such file" in message(read, put("a.en", "One.\n"), docids="b.ids")


def test_directory(tmp_path):
    assert f"{tmp_path}: is a directory" in message(read, str(tmp_path))


def test_permission(put, monkeypatch):
    path = put("a.en", "One.\n")

    def refuse(*_):
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr("dynctx.files._open_bytes", refuse)
    assert "a.en: no permission" in message(read, path)


# Atomic writing


def test_atomic_write_of_text_and_bytes(tmp_path):
    path = tmp_path / "folder" / "file"
    with atomic_write(path) as text:
        text.write("ä\r\nb\n")
        text.flush()
        assert not path.exists()
    assert path.read_bytes() == b"\xc3\xa4\r\nb\n"
    with atomic_write(path, "wb") as raw:
        raw.write(b"\xff\n")
    assert path.read_bytes() == b"\xff\n"
    assert os.listdir(path.parent) == ["file"]


def test_two_files_of_a_folder_can_be_written_at_a_time(tmp_path):
    with atomic_write(tmp_path / "a") as first, atomic_write(tmp_path / "b") as second:
        first.write("1")
        second.write("2")
    assert (tmp_path / "a").read_text() == "1" and (tmp_path / "b").read_text() == "2"


@pytest.mark.parametrize("mode", ["w", "wb"])
@pytest.mark.parametrize("suffix", ["", ".xz", ".gz"])
@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt(), FileNotFoundError(2, "no", "other")])
def test_a_failed_block_leaves_the_target_alone(tmp_path, mode, suffix, error):
    path = tmp_path / f"file{suffix}"
    path.write_text("before")
    with pytest.raises(type(error)) as caught, atomic_write(path, mode) as file:
        file.write("half" if mode == "w" else b"half")
        raise error
    assert caught.value is error
    assert path.read_text() == "before" and os.listdir(tmp_path) == [path.name]


def test_a_full_disk_is_told_with_the_path(tmp_path):
    path = tmp_path / "file"
    for text in ("", "x" * 100_000):

        def fill(text: str = text) -> None:
            with atomic_write(path) as file:
                file.write(text)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        said = message(fill)
        assert f"{path}: cannot be written: No space left" in said
        assert os.listdir(tmp_path) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs the device /dev/full")
@pytest.mark.parametrize("mode", ["w", "wb"])
def test_a_device_is_written_to_and_not_replaced(mode):
    def fill() -> None:
        with atomic_write("/dev/full", mode) as file:
            file.write("x" if mode == "w" else b"x")

    assert "/dev/full: cannot be written: No space left" in message(fill)
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


def test_targets_that_cannot_be_files(put, tmp_path):
    def write(path: Path) -> None:
        with atomic_write(path):
            pass

    assert f"{tmp_path}: cannot be written: is a directory" in message(write, tmp_path)
    put("plain", "")
    below = tmp_path / "plain" / "deep" / "file"
    assert f"{below}: cannot be written: " in message(write, below)
    assert os.listdir(tmp_path) == ["plain"]


def test_a_link_stays_a_link(put, tmp_path):
    put("real", "before")
    (tmp_path / "link").symlink_to("real")
    with atomic_write(tmp_path / "link") as file:
        file.write("after")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_text() == "after"


def test_new_files_follow_the_umask(tmp_path):
    with atomic_write(tmp_path / "file"):
        pass
    (tmp_path / "plain").touch()
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_packed_text_is_reproducible(tmp_path, monkeypatch):
    for name, now in (("a.gz", 1e9), ("b.gz", 2e9)):
        monkeypatch.setattr("time.time", lambda now=now: now)
        with atomic_write(tmp_path / name) as file:
            file.write("one\n")
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()
    assert list(read_lines(tmp_path / "a.gz")) == ["one"]
