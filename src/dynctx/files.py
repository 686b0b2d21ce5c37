"""Text files in and out: lines are read strictly, results appear whole or not at all.

A path that ends in `.xz` or `.gz` is compressed on disk, both ways; `-` reads the standard input.
"""

from __future__ import annotations

import difflib
import gzip
import io
import lzma
import os
import secrets
import sys
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal, TextIO, overload

from dynctx.errors import DynctxError, at

StrPath = str | os.PathLike[str]

BOM = "\ufeff"
DAMAGE = (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile)  # of a packed file


def split_suffixes(path: StrPath) -> tuple[str, str]:
    """What a file holds and how it is packed: `(".tsv", ".xz")` for `a.tsv.XZ`, `(".en", "")` for `a.en`."""
    stem, suffix = os.path.splitext(os.fspath(path).lower())
    return (os.path.splitext(stem)[1], suffix) if suffix in (".xz", ".gz") else (suffix, "")


def display_name(path: StrPath) -> str:
    """The name of an input in messages."""
    return "<stdin>" if os.fspath(path) == "-" else os.fspath(path)


def read_lines(path: StrPath) -> Iterator[str]:
    """The lines of a UTF-8 file, without line ends and without a byte order mark.

    Only `\\n` and `\\r\\n` end a line. Reading bytes keeps it so: text mode also splits at a lone `\\r`, and
    `str.splitlines` at U+2028, U+0085, `\\x0b` and `\\x0c`, each of which would shift the two sides of a
    corpus against each other.
    """
    number = 0
    line = b""
    try:
        with _open_bytes(path) as file:
            for number, line in enumerate(file, 1):  # noqa: B007 (the handlers below use both)
                # Concatenated files carry byte order marks in the middle too, hence on every line.
                yield line.decode("utf-8").rstrip("\r\n").lstrip(BOM)
    except UnicodeDecodeError as error:
        raise not_utf8(display_name(path), number, line[error.start], error.start) from None
    except DAMAGE as error:
        raise _damaged(path, f" after line {number}", error) from None
    except OSError as error:
        raise _unreadable(path, error) from None


def read_bytes(path: StrPath) -> bytes:
    """All of a file, unpacked."""
    try:
        with _open_bytes(path) as file:
            return file.read()
    except DAMAGE as error:
        raise _damaged(path, "", error) from None
    except OSError as error:
        raise _unreadable(path, error) from None


def write_bytes(path: StrPath, data: bytes) -> None:
    """A file that appears whole or not at all, packed as its suffix says."""
    with atomic_write(path, "wb") as file, _packed(file, split_suffixes(path)[1]) as packed:
        packed.write(data)


@contextmanager
def _open_bytes(path: StrPath) -> Iterator[IO[bytes]]:
    name = os.fspath(path)
    packing = split_suffixes(name)[1]
    if name == "-":
        yield sys.stdin.buffer
    elif packing:
        unpack: Any = lzma.open if packing == ".xz" else gzip.open
        # The buffer nearly halves the time: a decompressor alone runs Python code for each line.
        with unpack(name) as unpacked, io.BufferedReader(unpacked, 1 << 16) as file:
            yield file
    else:
        with open(name, "rb") as file:
            yield file


CONVERT = "convert it, for instance Chinese with iconv -f GB18030 -t UTF-8"


def not_utf8(name: str, line: int, byte: int, offset: int, remedy: str = CONVERT) -> DynctxError:
    return DynctxError(
        f"{at(name, line)}: not UTF-8: byte 0x{byte:02x} at byte offset {offset} of the line; "
        f"{remedy} (or name it .xz or .gz if it is packed)"
    )


def _damaged(path: StrPath, where: str, error: Exception) -> DynctxError:
    return DynctxError(
        f"{at(display_name(path))}: damaged archive, unreadable{where} ({error}); fetch or compress the file again"
    )


def _unreadable(path: StrPath, error: OSError) -> DynctxError:
    where = at(display_name(path))
    if isinstance(error, FileNotFoundError):
        folder, name = os.path.split(os.fspath(path))
        with suppress(OSError):
            near = difflib.get_close_matches(name, os.listdir(folder or "."), n=1)
            if near:
                return DynctxError(f"{where}: no such file; did you mean {os.path.join(folder, near[0])}?")
        return DynctxError(f"{where}: no such file; check the path (a relative one starts at {os.getcwd()})")
    if isinstance(error, IsADirectoryError):
        return DynctxError(f"{where}: is a directory; name a file in it")
    if isinstance(error, PermissionError):
        return DynctxError(f"{where}: no permission to read it; change its mode (chmod +r) or its owner")
    return DynctxError(f"{where}: cannot be read: {error.strerror or error}; check the disk and the path")


def check_place(path: StrPath | None) -> None:
    """What cannot be written shows before hours of work. Folders that are missing are made later."""
    if path is None:
        return
    place = Path(path)
    if place.exists() and not place.is_file() and not place.is_dir():  # a pipe, or /dev/null
        return
    if place.is_dir():
        raise DynctxError(f"{at(place)}: cannot be written: it is a folder; name a file in it")
    if place.is_file() and not os.access(place, os.W_OK):  # a rename would replace it all the same
        raise DynctxError(f"{at(place)}: cannot be written: it is protected (chmod +w, or write elsewhere)")
    above = next(folder for folder in place.resolve().parents if folder.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise DynctxError(f"{at(place)}: cannot be written: {above} is no folder that you may write to")


def check_spared(path: StrPath | None, *read: StrPath) -> None:
    """Nothing is written over what it is made from."""
    for source in read if path is not None else ():
        if Path(path or "").resolve() == Path(source).resolve():
            raise DynctxError(f"{at(source)}: would be overwritten; write to another place")


@overload
def atomic_write(path: StrPath, mode: Literal["w"] = "w") -> AbstractContextManager[TextIO]: ...
@overload
def atomic_write(path: StrPath, mode: Literal["wb"]) -> AbstractContextManager[BinaryIO]: ...
@contextmanager
def atomic_write(path: StrPath, mode: Literal["w", "wb"] = "w") -> Iterator[Any]:
    """A handle whose content becomes `path` when the block ends well; otherwise `path` stays as it was.

    `"w"` is UTF-8 text with `\\n` line ends, compressed as the suffix says; `"wb"` is bytes as they are.
    The parent folder is created.
    """
    # A device or a pipe (/dev/stdout) is written to; a file in its place would be a surprise.
    special = os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)
    target = os.fspath(path) if special else os.path.realpath(path)  # a link stays, what it points to changes
    written = target if special else os.path.join(os.path.dirname(target), f".{secrets.token_hex(8)}.tmp")
    try:
        if os.path.isdir(target):
            raise IsADirectoryError(None, "is a directory")
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(written, "wb" if special else "xb") as raw:
            if mode == "wb":
                yield raw
            else:
                with _text_handle(raw, split_suffixes(path)[1]) as text:
                    yield text
            raw.flush()
            if not special:
                os.fsync(raw.fileno())  # before the rename, lest a power cut leave an empty file there
        if not special:
            os.replace(written, target)
    except BaseException as error:
        if not special:
            with suppress(OSError):
                os.unlink(written)
        # A failed write names no file, a failed open or rename ours, a failed mkdir a folder above it.
        # An error that names anything else comes from the caller's block.
        if isinstance(error, OSError) and (error.filename in (None, written) or target.startswith(str(error.filename))):
            raise DynctxError(
                f"{at(path)}: cannot be written: {error.strerror or error}; "
                "free the disk, change the permissions or choose another path"
            ) from error
        raise


@contextmanager
def _text_handle(raw: IO[bytes], packing: str) -> Iterator[TextIO]:
    """UTF-8 text over `raw`, which stays open."""
    with _packed(raw, packing) as packed:
        text = io.TextIOWrapper(packed, encoding="utf-8", newline="\n")
        try:
            yield text
            text.flush()
        finally:
            # Detaching flushes once more. That fails only after an error, which is the one to tell.
            with suppress(OSError, ValueError):
                text.detach()


@contextmanager
def _packed(raw: IO[bytes], packing: str) -> Iterator[Any]:
    if packing == ".xz":
        with lzma.open(raw, "wb") as packed:
            yield packed
    elif packing == ".gz":
        # No name and no time stamp: the same text gives the same bytes.
        with gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as packed:
            yield packed
    else:
        yield raw


def share(path: StrPath) -> None:
    """Let others read a file as the umask says; some libraries make theirs for the owner alone."""
    mask = os.umask(0)
    os.umask(mask)
    os.chmod(path, 0o666 & ~mask)
