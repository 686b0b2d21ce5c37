"""Labels and rewards of a translator that is not ours: files in, the same folder out, a selector that learns them."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from tiny_runs import changed, train_here

from dynctx.commands import label_corpus
from dynctx.corpus import TokenStore
from dynctx.documents import Document
from dynctx.errors import DynctxError
from dynctx.labels.outside_values import read_values, warn_of_gaps
from dynctx.model_folder import load_model
from dynctx.pipeline import select_documents

pytest_plugins = ("tiny_fixtures",)

SCOPE = 2
# sentences 0 1 2 3 | 4; with a scope of 2 they have 0, 1, 2, 2 and 0 candidates
STORE = TokenStore.from_ids([[([7], [8])] * 4, [([7], [8])]])
STORE_OF_TWO = TokenStore.from_ids([[([7], [8])] * 2])
NAN = float("nan")
SMALL = [
    "model.kind=concat",
    f"model.scope={SCOPE}",
    "scorer.pair_layers=1",
    "scorer.set_layers=1",
    "training.average=0",
]


def written(folder: Path, *lines: object) -> str:
    place = folder / "values.jsonl"
    place.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return str(place)


def test_single_candidates_by_hand(tmp_path: Path) -> None:
    lines = [{"none": -3}, {"none": -2, "1": -1.5}, {}, {"none": 0.5, "2": 0.25}, {"none": 1}]
    found = read_values(written(tmp_path, *lines), "likelihood", SCOPE, STORE)
    expected = [[NAN, NAN, -3], [-1.5, NAN, -2], [NAN] * 3, [NAN, 0.25, 0.5], [NAN, NAN, 1]]
    np.testing.assert_array_equal(found, np.array(expected, np.float32))


def test_sets_of_candidates_by_hand(tmp_path: Path) -> None:
    """Columns none, 1, 2, 1 and 2; what does not exist changes nothing."""
    full = {"none": 0.25, "1": 0.5, "2 1": 1, "2": 0.75}
    lines = [{"none": 0.125}, {"none": 0.25, "1": 0.5}, full, {}, {}]
    found = read_values(written(tmp_path, *lines), "reward", SCOPE, STORE)
    expected = [[0.125] * 4, [0.25, 0.5, 0.25, 0.5], [0.25, 0.5, 0.75, 1], [NAN] * 4, [NAN] * 4]
    np.testing.assert_array_equal(found, np.array(expected, np.float32))


def test_some_of_the_sets_will_do_to_learn_from(tmp_path: Path) -> None:
    lines = [{"none": 0.125}, {"none": 0.25}, {"none": 0.25, "2 1": 1}, {"none": 0.5, "1": 0.75, "2": 1}, {}]
    found = read_values(written(tmp_path, *lines), "reward", SCOPE, STORE, gaps=True)
    expected = [[0.125] * 4, [0.25, NAN, 0.25, NAN], [0.25, NAN, NAN, 1], [0.5, 0.75, 1, NAN], [NAN] * 4]
    np.testing.assert_array_equal(found, np.array(expected, np.float32))


@pytest.mark.parametrize(
    "kind, line, message",
    [
        ("likelihood", "[1, 2]", "values.jsonl:3: expected a JSON object of numbers"),
        ("likelihood", '{"none": ', "values.jsonl:3: expected a JSON object of numbers"),
        ("likelihood", {"none": "low"}, "values.jsonl:3: expected a JSON object of numbers"),
        ("likelihood", {"none": 1, "near": 2}, "values.jsonl:3: expected a JSON object of numbers"),
        ("likelihood", {"none": 1, "": 3}, "values.jsonl:3: expected a JSON object of numbers"),
        (
            "likelihood",
            {"none": 1, "1": 3, "01": 9},
            "values.jsonl:3: two values for one set of distances: 'none', '1',",
        ),
        ("reward", {"none": 1, "1 2": 3, "2 1": 9}, "values.jsonl:3: two values for one set of distances"),
        ("likelihood", '{"none": NaN}', "values.jsonl:3: nan is no value"),
        ("likelihood", {"1": 2}, 'values.jsonl:3: "none", the value without context, is missing'),
        ("likelihood", {"none": 1, "3": 2}, "values.jsonl:3: distance 3; this sentence has 2 candidates"),
        ("likelihood", {"none": 1, "0": 2}, "values.jsonl:3: distance 0; this sentence has 2 candidates"),
        ("bleu", {"none": 1, "1 2": 2}, r"values.jsonl:3: \[1, 2\] together; only labels.kind reward knows sets"),
        ("reward", {"none": 1, "1": 2}, "values.jsonl:3: 2 sets of 2 candidates, of which there are 4"),
    ],
)
def test_lines_that_are_wrong_are_named(kind: str, line: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(DynctxError, match=message):
        read_values(written(tmp_path, {}, {}, line, {}, {}), kind, SCOPE, STORE)


@pytest.mark.parametrize("count", [4, 6])
def test_a_line_for_each_sentence(count: int, tmp_path: Path) -> None:
    with pytest.raises(DynctxError, match=f"{count} lines for 5 sentences; one for each is needed"):
        read_values(written(tmp_path, *[{}] * count), "likelihood", SCOPE, STORE)


def test_values_made_anew_are_other_labels(tiny_config: Path, tmp_path: Path) -> None:
    """A run that has begun does not go on with them."""
    train_here(tiny_config, tmp_path / "reader", *SMALL, "training.updates=2", "training.validate_every=2")
    data = Path(load_model(tmp_path / "reader").config.data.folder)
    lengths = {split: len(TokenStore.open(data / split)) for split in ("train", "dev")}
    starts = {split: set(TokenStore.open(data / split).documents.tolist()) for split in lengths}
    settings = [*SMALL, f"labels.folder={tmp_path / 'labels'}", "training.stage=scorer"]
    settings += [f"training.init={tmp_path / 'reader'}", "training.updates=2", "training.validate_every=2"]
    settings += [f"labels.{split}={tmp_path / f'{split}.jsonl'}" for split in lengths]
    for gain in (1, -1):
        for split, count in lengths.items():
            lines = ['{"none": 0}' if s in starts[split] else f'{{"none": 0, "1": {gain}}}' for s in range(count)]
            (tmp_path / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
        assert label_corpus(changed(tiny_config, tmp_path / "run", *settings))
        if gain == 1:
            train_here(tiny_config, tmp_path / "run", *settings)
    with pytest.raises(DynctxError, match=r"begun with other text than there is now \(labels of train, labels of dev"):
        train_here(tiny_config, tmp_path / "run", *settings)


def test_distances_without_any_value_are_told_of(
    tiny_config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = changed(tiny_config, tmp_path, *SMALL)
    for split in ("train", "dev"):
        store = TokenStore.open(Path(config.data.folder) / split)
        starts = set(store.documents.tolist())
        lines = [{"none": 0} if s in starts else {"none": 0, "1": 1} for s in range(len(store))]
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    files = [f"labels.{split}={tmp_path / f'{split}.jsonl'}" for split in ("train", "dev")]
    label_corpus(changed(tiny_config, tmp_path, *SMALL, *files, f"labels.folder={tmp_path / 'labels'}"))
    assert "train: no value for distance 2: nothing is learned" in capsys.readouterr().out
    label_corpus(changed(tiny_config, tmp_path, *SMALL, *files, f"labels.folder={tmp_path / 'one'}", "model.scope=1"))
    assert "no value" not in capsys.readouterr().out


def test_distances_in_none_of_the_sets_are_told_of(
    tiny_config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = changed(tiny_config, tmp_path, *SMALL)
    files = [f"labels.{split}={tmp_path / f'{split}.jsonl'}" for split in ("train", "dev")]
    settings = [*SMALL, *files, "labels.kind=reward"]
    sets = [{}, {"1": 1}, {"1": 1, "2": 1, "1 2": 1}]
    for split in ("train", "dev"):
        store = TokenStore.open(Path(config.data.folder) / split)
        have = np.minimum(np.arange(len(store)) - store.document_starts, SCOPE)
        if split == "train":  # nothing says what the sentence two back is worth
            have = np.minimum(have, 1)
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps({"none": 0} | sets[n]) + "\n" for n in have))
    label_corpus(changed(tiny_config, tmp_path, *settings, f"labels.folder={tmp_path / 'labels'}"))
    said: list[str] = []  # with a scope of 1 there are as many sets as single values
    warn_of_gaps("train", np.array([[0.3, 0.3], [0.3, NAN]], np.float32), STORE_OF_TWO, 1, "reward", said.append)
    assert len(said) == 1 and said[0].startswith("train: no value for distance 1: ")
    told = capsys.readouterr().out
    assert "train: no value for distance 2: nothing is learned" in told and "dev: no value" not in told
    assert "of the subsets: the oracle knows these alone" in told
    (tmp_path / "dev.jsonl").write_text((tmp_path / "dev.jsonl").read_text().replace(', "1 2": 1', "", 1))
    with pytest.raises(DynctxError, match="3 sets of 2 candidates, of which there are 4: to be judged by, all are"):
        label_corpus(changed(tiny_config, tmp_path, *settings, f"labels.folder={tmp_path / 'gaps'}"))


def test_sets_of_a_scope_that_is_too_large(tiny_config: Path, tmp_path: Path) -> None:
    (tmp_path / "values.jsonl").write_text("{}\n")
    files = [f"labels.{split}={tmp_path / 'values.jsonl'}" for split in ("train", "dev")]
    settings = [*SMALL, "model.scope=40", "labels.kind=reward", f"labels.folder={tmp_path / 'labels'}", *files]
    with pytest.raises(DynctxError, match=r"a scope of 40 has 2 \*\* 40 subsets; a scope of 10 is the most"):
        label_corpus(changed(tiny_config, tmp_path, *settings))


def test_both_files_and_no_model(tiny_config: Path, tmp_path: Path) -> None:
    for settings, message in (
        (["labels.train=x"], r"labels\.dev is missing"),
        (["labels.dev=x"], r"labels\.train is missing"),
        (["labels.train=x", "labels.dev=x", "labels.model=y"], r"labels\.model and labels\.train: either"),
    ):
        with pytest.raises(DynctxError, match=message):
            label_corpus(changed(tiny_config, tmp_path, *SMALL, f"labels.folder={tmp_path / 'labels'}", *settings))
    assert not (tmp_path / "labels").exists()


@pytest.mark.parametrize("kind, between, gaps", [
    ("likelihood", False, False), ("likelihood", True, False), ("reward", False, False), ("reward", False, True),
])  # fmt: skip
def test_a_selector_learns_what_helps_another_translator(
    kind: str, between: bool, gaps: bool, tiny_config: Path, tmp_path: Path
) -> None:
    """To this one the sentence before is a nuisance, and the one before that a help.

    Labels put NON and the nuisance at 0 alike where there is a help, unless NON is to lie between; rewards of whole
    sets tell them apart, and so do those of some of the sets, of each sentence other ones.
    """
    rng = random.Random(1)
    train_here(tiny_config, tmp_path / "reader", *SMALL, "training.updates=5", "training.validate_every=5")
    data = Path(load_model(tmp_path / "reader").config.data.folder)
    for split in ("train", "dev"):
        store = TokenStore.open(data / split)
        with (tmp_path / f"{split}.jsonl").open("w") as file:
            for sentence in range(len(store)):
                have = min(SCOPE, int(sentence - store.document_starts[sentence]))
                sets = [(), (1,), (2,), (1, 2)][: 2**have] if kind == "reward" else [(), (1,), (2,)][: have + 1]
                if gaps and split == "train":
                    sets = [(), *rng.sample(sets[1:], min(1, len(sets) - 1))]
                worth = {" ".join(map(str, s)) or "none": 0.5 + 0.1 * ((2 in s) - (1 in s)) for s in sets}
                file.write(json.dumps(worth) + "\n")
    settings = [
        *SMALL,
        *(f"labels.{split}={tmp_path / f'{split}.jsonl'}" for split in ("train", "dev")),
        *(f"labels.kind={kind}", f"labels.folder={tmp_path / 'labels'}", "labels.together=true"),
        f"labels.between={str(between).lower()}",
        *("scorer.squash=false", "scorer.dropout=0", "reinforce.law=independent", "training.stage=scorer"),
        *(f"training.init={tmp_path / 'reader'}", "training.updates=200", "training.batch_tokens=2048"),
        *("training.schedule.peak=0.005", "training.validate_every=200"),
    ]
    assert label_corpus(changed(tiny_config, tmp_path / "selector", *settings))
    assert sorted(place.name for place in (tmp_path / "labels").iterdir()) == ["about.json", "dev.npy", "train.npy"]
    assert label_corpus(changed(tiny_config, tmp_path / "selector", *settings))  # again, as after a correction
    train_here(tiny_config, tmp_path / "selector", *settings)
    text = Document("new", ("the cat", "a dog sees", "big red house", "the tree", "red cat"))
    (choices,) = select_documents(load_model(tmp_path / "selector"), [text])
    assert [2 in choice.selected for choice in choices] == [False, False, True, True, True]
    assert choices[1].selected == ()
    if kind == "reward" or between:
        assert [choice.selected for choice in choices] == [(), (), (2,), (2,), (2,)]
