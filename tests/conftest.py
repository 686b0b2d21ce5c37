"""A parallel corpus small enough to count by hand, for every test that needs one on disk.

Its languages have three letters each, a b c and x y z, and its subword model knows single letters only: a sentence
has one piece for each letter and one for the beginning of each word ("a bc" is 5 pieces: ▁ a ▁ b c). With
max_length 10 and max_ratio 2 every reason for dropping a training pair occurs once, and each limit is met exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dynctx.config import DataConfig, ParallelFiles
from dynctx.documents import TextFile
from dynctx.prepare import prepare

Pairs = list[list[tuple[str, str]]]  # documents of (source, target)
WriteParallel = Callable[[str, Pairs], ParallelFiles]

SIDES = ("src", "tgt")

TRAIN: Pairs = [
    [
        ("ab", "xy"),  # 3 and 3 pieces
        ("a b c", "x y z"),  # 6, 6
        ("", "x"),  # 0, 2: empty
        ("abcabcabca", "xyz"),  # 11, 4: longer than max_length
    ],
    [
        ("c", "z"),  # 2, 2
        ("a", "xyzxyzxyz"),  # 2, 10: one more than max_ratio allows
        ("a", "xyzxyzxy"),  # 2, 9: at the limit, 2 * 2 + 5
        ("abcabcabc", "xyzxyzxyz"),  # 10, 10: at the limit
    ],
    [("ab", "zz")],  # 3, 3
]
DEV: Pairs = [
    [("ab", "xy"), ("ab", "yx"), ("cc", "z")],  # the first pair and the second source are in TRAIN
    [("c", "x"), ("abcabcabcabc", "zz"), ("bb", "")],  # the first source is in TRAIN
]
TEST: Pairs = [[("a b c", "x y z"), ("a", "xyzxyzxyz")]]  # both in TRAIN, the second among the dropped


@pytest.fixture
def write_parallel(tmp_path: Path) -> WriteParallel:
    """Writes documents as NAME.src, NAME.tgt and NAME.ids (a form with room for empty sentences)."""

    def write(name: str, documents: Pairs) -> ParallelFiles:
        pairs = [(str(number), *pair) for number, document in enumerate(documents, 1) for pair in document]
        for k, suffix in enumerate(("ids", "src", "tgt")):
            (tmp_path / f"{name}.{suffix}").write_text("".join(line[k] + "\n" for line in pairs), encoding="utf-8")
        source, target = (TextFile(str(tmp_path / f"{name}.{s}"), docids=str(tmp_path / f"{name}.ids")) for s in SIDES)
        return ParallelFiles(source, target)

    return write


@pytest.fixture
def tiny_data(tmp_path: Path, write_parallel: WriteParallel) -> DataConfig:
    """The corpus above, not yet prepared: train, dev and a test set called "news"."""
    return DataConfig(
        folder=str(tmp_path / "data"),
        source_language="abc",
        target_language="xyz",
        train=[write_parallel("train", TRAIN)],
        dev=write_parallel("dev", DEV),
        test={"news": write_parallel("news", TEST)},
        vocabulary=14,  # 7 special symbols, ▁, a b c, x y z: nothing is left for merges
        subwords="bpe",
        character_coverage=1.0,
        byte_fallback=False,
        max_length=10,
        max_ratio=2.0,
    )


@pytest.fixture
def prepared(tiny_data: DataConfig) -> DataConfig:
    """The same after `dynctx prepare`: `folder` holds the stores."""
    prepare(tiny_data, say=lambda message: None, threads=1)
    return tiny_data


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that take minutes first: two processes share files, and neither should wait for the last one.

    (xdist would have files with few tests last, which just these are: hence --no-loadscope-reorder.)
    """
    items.sort(key=lambda item: not item.path.name.startswith(("test_system", "test_resume")))
