"""The token store: what is written is read back, and what is damaged is named."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dynctx.corpus import StoreWriter, TokenStore, reserved, some_documents
from dynctx.errors import DynctxError
from dynctx.subwords import EOS

Documents = list[list[tuple[list[int], list[int]]]]

# Two documents: sentences 0 1 | 2, the second of them with an empty target.
DOCUMENTS: Documents = [[([10, 11], [20]), ([12], [])], [([13, 14, 15], [21, 22])]]
USABLE = [True, False, True]

ARRAYS = ("source.tokens", "target.tokens", "source.starts", "target.starts", "documents", "usable")


def write(folder: Path, documents: Documents, usable: list[bool], vocabulary: int = 100) -> TokenStore:
    writer, flags = StoreWriter(folder, vocabulary), iter(usable)
    for document in documents:
        writer.add([s for s, _ in document], [t for _, t in document], [next(flags) for _ in document])
    writer.close()
    return TokenStore.open(folder)


def arrays(store: TokenStore) -> list[list[int]]:
    names = ("source", "target", "source_starts", "target_starts", "documents", "usable")
    return [getattr(store, name).tolist() for name in names]


def message(folder: Path) -> str:
    with pytest.raises(DynctxError) as caught:
        TokenStore.open(folder)
    return str(caught.value)


def test_a_fingerprint_tells_texts_apart(tmp_path: Path) -> None:
    """All of it counts: a piece, where sentences and documents begin, and what is fit for training."""
    first, again = (write(tmp_path / name, DOCUMENTS, USABLE).fingerprint for name in ("a", "b"))
    assert first == again and len(first) == 16
    others: list[tuple[Documents, list[bool]]] = [
        ([[([10, 99], [20]), ([12], [])], DOCUMENTS[1]], USABLE),  # another source
        ([[([10, 11], [99]), ([12], [])], DOCUMENTS[1]], USABLE),  # another target
        ([DOCUMENTS[0] + DOCUMENTS[1]], USABLE),  # one document
        ([DOCUMENTS[1], DOCUMENTS[0]], [True, True, False]),  # another order
        (DOCUMENTS, [True, True, True]),
    ]
    found = {write(tmp_path / str(n), *other).fingerprint for n, other in enumerate(others)}
    assert len(found | {first}) == 6


def test_written_arrays(tmp_path: Path) -> None:
    store = write(tmp_path / "train", DOCUMENTS, USABLE)
    assert arrays(store) == [
        [10, 11, EOS, 12, EOS, 13, 14, 15, EOS],
        [20, EOS, EOS, 21, 22, EOS],
        [0, 3, 5, 9],
        [0, 2, 3, 6],
        [0, 2, 3],
        [True, False, True],
    ]
    assert len(store) == 3
    assert store.document_starts.tolist() == [0, 0, 2]
    assert store.source_ids(1) == [12, EOS]
    assert store.target_ids(1) == [EOS]
    assert store.target_ids(2) == [21, 22, EOS]


def test_store_is_memory_mapped_and_read_only(tmp_path: Path) -> None:
    store = write(tmp_path / "train", DOCUMENTS, USABLE)
    for array in (store.source, store.target, store.source_starts, store.target_starts, store.documents, store.usable):
        assert isinstance(array, np.memmap)
        assert not array.flags.writeable
    assert store.usable.dtype == np.bool_
    assert sorted(path.name for path in (tmp_path / "train").iterdir()) == sorted([*ARRAYS, "store.json"])


sentence = st.lists(st.integers(7, 65535), max_size=5)
documents = st.lists(st.lists(st.tuples(sentence, sentence), min_size=1, max_size=5), min_size=1, max_size=5)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(documents=documents, data=st.data())
def test_a_store_in_memory_equals_the_one_on_disk(tmp_path: Path, documents: Documents, data: st.DataObject) -> None:
    size = sum(map(len, documents))
    usable = data.draw(st.lists(st.booleans(), min_size=size, max_size=size))
    kept, built = write(tmp_path / "s", documents, usable, 65536), TokenStore.from_ids(documents, usable)
    assert arrays(kept) == arrays(built)
    assert kept.document_starts.tolist() == built.document_starts.tolist()
    pairs = [pair for document in documents for pair in document]
    assert [kept.source_ids(i) for i in range(size)] == [[*source, EOS] for source, _ in pairs]
    assert [kept.target_ids(i) for i in range(size)] == [[*target, EOS] for _, target in pairs]


def test_in_memory_all_is_usable_unless_said_otherwise() -> None:
    assert TokenStore.from_ids(DOCUMENTS).usable.tolist() == [True, True, True]


def test_an_empty_side_is_only_ends(tmp_path: Path) -> None:
    store = write(tmp_path / "train", [[([], []), ([], [])]], [False, False])
    assert arrays(store) == [[EOS, EOS], [EOS, EOS], [0, 1, 2], [0, 1, 2], [0, 2], [False, False]]


@pytest.mark.parametrize("vocabulary, dtype", [(65536, np.uint16), (65537, np.int32)])
def test_width_of_an_id(tmp_path: Path, vocabulary: int, dtype: type) -> None:
    highest = vocabulary - 1
    store = write(tmp_path / "train", [[([highest], [7, highest])]], [True], vocabulary)
    assert store.source.dtype == store.target.dtype == dtype
    assert store.source_ids(0) == [highest, EOS]
    assert store.target_ids(0) == [7, highest, EOS]


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("change", [-1, 1])
def test_a_file_of_the_wrong_size_is_named(tmp_path: Path, name: str, change: int) -> None:
    write(tmp_path / "train", DOCUMENTS, USABLE)
    path = tmp_path / "train" / name
    content = path.read_bytes()
    path.write_bytes(content[:-1] if change < 0 else content + b"\0")
    expected = f"{path}: {len(content) + change} bytes, expected {len(content)}; run 'dynctx prepare' again"
    assert message(tmp_path / "train") == expected


@pytest.mark.parametrize("name", ["store.json", *ARRAYS])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "train"
    write(folder, DOCUMENTS, USABLE)
    (folder / name).unlink()
    assert message(folder) == f"{folder}: no prepared corpus here ({name} is missing); run 'dynctx prepare' first"


def test_no_such_folder(tmp_path: Path) -> None:
    assert message(tmp_path / "nowhere").startswith(f"{tmp_path / 'nowhere'}: no prepared corpus here")
    (tmp_path / "file").write_text("")
    assert message(tmp_path / "file").startswith(f"{tmp_path / 'file'}: no prepared corpus here")


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b'{"arrays": {"source.tok',
        b"\xff\xfe",
        b"[]",
        b"null",
        b"{}",
        b'{"arrays": []}',
        b'{"arrays": {}}',
        b'{"arrays": {"usable": ["no such type", 3]}}',
        b'{"arrays": {"usable": ["|u1"]}}',
        b'{"arrays": {"usable": 3}}',
    ],
)
def test_a_damaged_description_is_named(tmp_path: Path, damaged: bytes) -> None:
    write(tmp_path / "train", DOCUMENTS, USABLE)
    path = tmp_path / "train" / "store.json"
    path.write_bytes(damaged)
    text = message(tmp_path / "train")
    assert text.startswith(f"{path}: damaged (") and text.endswith("run 'dynctx prepare' again")


def test_a_description_without_one_of_the_arrays(tmp_path: Path) -> None:
    write(tmp_path / "train", DOCUMENTS, USABLE)
    path = tmp_path / "train" / "store.json"
    about = json.loads(path.read_text())
    del about["arrays"]["target.starts"]
    path.write_text(json.dumps(about))
    assert message(tmp_path / "train") == f"{path}: damaged ('target.starts'); run 'dynctx prepare' again"


def test_interrupted_writing_leaves_the_older_store(tmp_path: Path) -> None:
    folder = tmp_path / "train"
    before = arrays(write(folder, DOCUMENTS, USABLE))
    writer = StoreWriter(folder, 100)
    writer.add([[50]], [[60]], [True])
    for file in writer.files.values():
        file.flush()
    assert arrays(TokenStore.open(folder)) == before
    # the next attempt starts afresh and replaces it whole
    after = write(folder, [[([51], [61])]], [True])
    assert arrays(after)[:2] == [[51, EOS], [61, EOS]]
    assert [path.name for path in tmp_path.iterdir()] == ["train"]


def test_interrupted_first_writing_leaves_nothing(tmp_path: Path) -> None:
    StoreWriter(tmp_path / "train", 100).add([[50]], [[60]], [True])
    assert "no prepared corpus here" in message(tmp_path / "train")


def test_an_open_store_outlives_its_replacement(tmp_path: Path) -> None:
    """A run that has mapped the old arrays goes on while the corpus is prepared anew."""
    old = write(tmp_path / "train", DOCUMENTS, USABLE)
    write(tmp_path / "train", [[([51], [61])]], [True])
    assert old.source_ids(2) == [13, 14, 15, EOS]


def test_documents_are_drawn_whole_and_always_the_same() -> None:
    pairs = [([7], [8])] * 4
    store = TokenStore.from_ids([pairs] * 5)
    store.usable[5] = False  # its document counts three
    usable = np.asarray(store.usable)
    for wanted, documents in ((0, 0), (1, 1), (5, 2), (99, 5)):
        found = some_documents(store, usable, wanted).reshape(5, 4)
        assert (found.sum(axis=1) == usable.reshape(5, 4).sum(axis=1) * found.any(axis=1)).all()
        assert found.any(axis=1).sum() == documents
    assert (some_documents(store, usable, 9) == some_documents(store, usable, 9)).all()


def test_what_is_reserved_is_at_most_its_share() -> None:
    pairs = [([7], [8])]
    store = TokenStore.from_ids([pairs * 5, pairs * 5, pairs * 90])
    assert not reserved(store, 0.0).any()
    assert reserved(store, 0.05).sum() == 5  # a large document is left out, not cut
    assert reserved(store, 0.15)[:10].all() and reserved(store, 0.15).sum() == 10
    assert reserved(store, 0.97).sum() in (10, 95)  # whichever is drawn first
    with pytest.raises(DynctxError, match=r"training\.reserve is 0\.01, and every document"):
        reserved(store, 0.01)
