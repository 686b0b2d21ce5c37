"""`dynctx reproduce TABLE`: train what a table of results needs, score its rows, and write it down.

A table is a YAML file: runs that start from one another, and rows that score a run with a selector beside a control.
Runs and rows are worked off in order, for one seed after the other. What is finished is kept and not done again, so
the same command goes on where it was stopped, here or on another machine that has the `runs` and the results, with the
translations that lie beside them. Given several times at once, the command shares the work: a call leaves out what
another one is at, and comes back to it.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from dynctx import __version__
from dynctx.claims import Busy, claimed
from dynctx.config import Config, apply_overrides, load_config
from dynctx.documents import Document
from dynctx.errors import DynctxError, at
from dynctx.evaluation import bleu
from dynctx.evaluation.compare import score_documents
from dynctx.evaluation.significance import paired_bootstrap
from dynctx.files import atomic_write
from dynctx.model_folder import check_selector, find_model, load_model, read_about, read_config
from dynctx.pipeline import translate_and_explain
from dynctx.prepared import fingerprint_of, read_held_out
from dynctx.table_pages import keyed, markdown, means
from dynctx.tables import TableRow, asked, chosen_rows, compared, is_scored, load_table

TRANSLATIONS = ".translations.json"  # beside the results: what they were scored on
WAIT = 2.0  # seconds between two looks at what another call is at


class OutOfTime(Exception):
    """The time for this call is used up; the next one goes on."""


class Reproduction:
    """The work on one table."""

    def __init__(
        self,
        path: Path,
        output: Path,
        minutes: float,
        command: str,
        scoring: bool = True,
        only: tuple[str, ...] = (),
        seeds: tuple[int, ...] = (),
    ) -> None:
        self.table, self.output, self.command, self.scoring = load_table(path), output, command, scoring
        self.rows = chosen_rows(self.table, path, only, seeds)
        self.path = path
        self.common = self.settled(self.table.settings, "settings")
        self.table.beam = self.table.beam or self.common.decoding.beam
        self.text = ""  # the fingerprint of the test set
        self.checked: set[tuple[str, int]] = set()  # runs that are what the table says, and their seeds
        self.known: dict[str, list[bleu.Score]] = {}  # scores as they are compared, by the same
        self.deadline = time.monotonic() + 60 * minutes if minutes else None
        self.results: dict[str, dict[str, Any]] = {}  # by "name / seed"
        self.said: dict[str, list[list[str]]] = {}  # the translations, by the same
        self.changed: set[str] = set()  # what this call has found out and not written yet
        self.read_before: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {}  # by suffix: a table is a large file
        self.waiting = False  # for other calls
        self.look()
        self.check_controls()

    def check_controls(self) -> None:
        """What the chosen rows are compared with is there, or chosen too: asked before any training."""
        chosen = {row.name for row in self.rows}
        for row in self.rows if self.scoring else ():
            for seed in row.seeds:
                for control in compared(row):
                    if control not in chosen and keyed(control, seed) not in self.said:
                        raise DynctxError(
                            f"row {row.name!r} is compared with {control!r}: add --rows {control!r}, or leave the "
                            "scoring to another call (--unscored)"
                        )

    def read(self, suffix: str) -> dict[str, Any]:
        place = self.output.with_suffix(suffix)
        if not place.exists():
            return {}
        about = place.stat()
        state = about.st_ino, about.st_mtime_ns, about.st_size  # a new file has another number
        if self.read_before.get(suffix, ((), {}))[0] != state:
            try:
                content = dict(json.loads(place.read_text(encoding="utf-8"))["rows"])
            except (KeyError, TypeError, ValueError):
                raise DynctxError(f"{at(place)}: damaged; remove it to begin again") from None
            self.read_before[suffix] = state, content
        return self.read_before[suffix][1]

    def run(self) -> bool:
        """True when the whole table is there, or those of its rows that were asked for."""
        wanted = [(row, seed) for row in self.rows for seed in row.seeds]
        wanted.sort(key=lambda pair: pair[1])  # one seed after the other
        self.text = fingerprint_of(read_held_out(self.common.data.folder, self.table.test))
        for row, seed in wanted:  # before anything is done or written
            self.check_row(row, seed)
        try:
            self.score_what_can_be(wanted)  # what has been translated, here or elsewhere: that costs no training
            while left := [pair for pair in wanted if not self.is_finished(*pair)]:
                if self.advance(left):
                    self.waiting = False
                else:
                    self.wait()
        except OutOfTime:
            print("the time is up; the same command goes on from here", flush=True)
            return False
        finally:
            self.write()
        return True

    def is_finished(self, row: TableRow, seed: int) -> bool:
        record = self.results.get(keyed(row.name, seed))
        return record is not None and (not self.scoring or is_scored(record, row))

    def advance(self, left: list[tuple[TableRow, int]]) -> bool:
        """Work on these rows, but those that other calls are at; whether there was anything to do."""
        found = False
        for row, seed in left:
            try:
                if keyed(row.name, seed) not in self.results:
                    self.ensure(row.run, seed)
                    with claimed(self.folder(row.run, seed)):
                        self.look()
                        if keyed(row.name, seed) not in self.results:
                            self.translate(row, seed)
                    found = True
            except Busy:
                continue
            found |= self.score_what_can_be([(row, seed)])
        return found

    def score_what_can_be(self, rows: list[tuple[TableRow, int]]) -> bool:
        """Score those rows that are translated, as their controls are; whether there were any."""
        there = self.results.keys() | self.said.keys()
        ready = [
            (row, seed)
            for row, seed in rows
            if all(keyed(name, seed) in there for name in (row.name, *compared(row)))
            and keyed(row.name, seed) in self.results
            and not self.is_finished(row, seed)
        ]
        for row, seed in ready:
            self.score(row, seed)
        return bool(ready)

    def wait(self) -> None:
        """For the other calls: all that is left is theirs, or waits for what is theirs."""
        if not self.waiting:
            print("what is left is being done by other calls of this command; waiting for them", flush=True)
        self.waiting = True
        self.look_at_the_clock()
        time.sleep(WAIT)
        self.look()

    def look(self) -> None:
        """What other calls have written since."""
        own = {key: self.results[key] for key in self.changed}
        said = {key: self.said[key] for key in self.changed & self.said.keys()}
        self.results = {**self.read(".json"), **own}
        self.said = {**self.read(TRANSLATIONS), **said}

    def place(self, name: str, seed: int) -> Path:
        """Where a run's model is: of a run that is a model from elsewhere, there."""
        return Path(self.table.runs[name].model or self.folder(name, seed))

    def folder(self, name: str, seed: int) -> Path:
        return Path(self.table.folder) / f"seed{seed}" / name

    def config(self, name: str, seed: int) -> Config:
        run = self.table.runs[name]
        if run.model:
            known = read_config(run.model)
            return replace(self.common, model=known.model, scorer=known.scorer)
        # one folder of labels for all runs that learn from them may be named in the table's settings
        own = [f"labels.folder={self.labels(name, seed)}"] if run.labels else []
        settings = [*own, *self.table.settings, f"seed={seed}", f"training.output={self.place(name, seed)}"]
        if run.init:
            settings.append(f"training.init={self.place(run.init, seed)}")
        if run.labels:
            settings.append(f"labels.model={self.place(run.labels, seed)}")
        return self.settled([*settings, *run.settings], f"run {name!r}")

    def settled(self, settings: list[str], whose: str) -> Config:
        config = load_config(self.table.config)
        try:
            return apply_overrides(config, settings)
        except DynctxError as error:
            raise DynctxError(f"{at(self.path)}: {whose}: {str(error).removeprefix('overrides: ')}") from None

    def labels(self, name: str, seed: int) -> Path:
        return self.folder(name, seed).with_name(f"{name}-labels")

    def ensure(self, name: str, seed: int) -> None:
        """Train a run and all that it builds on, as far as that is not there."""
        if self.is_there(name, seed):
            return
        run = self.table.runs[name]
        for other in (run.init, run.labels):
            if other:
                self.ensure(other, seed)
        self.look_at_the_clock()
        from dynctx.commands import label_corpus
        from dynctx.training import run as train

        config = self.config(name, seed)
        with claimed(config.training.output):
            if self.is_there(name, seed):  # by now: another call was at it
                return
            if run.labels and not label_corpus(config, self.deadline):
                raise OutOfTime
            print(f"== {name}, seed {seed}", flush=True)
            if train(config, self.deadline).get("paused"):
                raise OutOfTime

    def is_there(self, name: str, seed: int) -> bool:
        if self.table.runs[name].model:
            return True
        place = self.place(name, seed)
        finished = (place / "state" / "finished.json").exists()
        brought = (place / "model").exists() and not (place / "state").exists()  # from another machine
        return finished or brought

    def check_row(self, row: TableRow, seed: int) -> None:
        """A row that is there already, and the runs it rests on, must be what the table asks for now."""
        config = self.config(row.run, seed)
        if row.selector not in ("", "oracle"):
            config.scorer.enabled |= config.training.stage != "translation"
            try:
                check_selector(row.selector, config)
            except DynctxError as error:
                raise DynctxError(f"row {row.name!r}: {error}") from None
        self.check_run(row.run, seed)
        record = self.results.get(keyed(row.name, seed), {})
        for name, now in asked(self.table, row, config.decoding, self.text).items():
            if record.get(name, now) != now:
                says = f"the test set {self.table.test!r} is now" if name == "text" else "the table now says"
                raise DynctxError(
                    f"{at(self.output.with_suffix('.json'))}: row {row.name!r}, seed {seed}, was made with {name} "
                    f"{record[name]!r}, and {says} {now!r}; give it another name, or remove it there"
                )

    def check_run(self, name: str, seed: int) -> None:
        from dynctx.labels.pseudo_labels import check_kind, wanted_of
        from dynctx.training.same_run import since

        if (name, seed) in self.checked:
            return
        self.checked.add((name, seed))
        run, place, config = self.table.runs[name], self.place(name, seed), self.config(name, seed)
        for other in (run.init, run.labels):
            if other:
                self.check_run(other, seed)
        if run.model:
            return
        if not self.is_there(name, seed):
            if run.labels and not (config.labels.train or config.labels.dev):
                check_kind(Path(config.labels.folder), wanted_of(config))
            return
        if run.init and self.is_there(run.init, seed):
            began, now = (read_about(find_model(p)) for p in (place, self.place(run.init, seed)))
            if began.get("init", now.get("weights")) != now.get("weights"):
                raise DynctxError(
                    f"{place}: this run began with other weights than {self.place(run.init, seed)} now has; remove it "
                    "and the rows that it has in the results, or bring back what it began with"
                )
        differing = since(place, config)
        if not differing:
            return
        message = f"{place}: this run was made with another config: {'; '.join(differing)}"
        if not (place / "state").exists():  # brought from elsewhere, as what has been made of it since, perhaps
            return print(message, flush=True)
        raise DynctxError(f"{message}. Set it back, or remove the run and the rows that it has in the results")

    def look_at_the_clock(self) -> None:
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise OutOfTime

    def translate(self, row: TableRow, seed: int) -> None:
        """Translate the test set with a row's run and selector."""
        self.look_at_the_clock()
        from dynctx.commands import changed, oracle_of, precision
        from dynctx.devices import pick_device

        config = self.config(row.run, seed)
        model = load_model(self.place(row.run, seed), pick_device(config.runtime.device))
        pairs = read_held_out(config.data.folder, self.table.test)
        what = asked(self.table, row, config.decoding, self.text)
        wanted = what["decoding"]["selector"]
        choose = model.choose(wanted) if wanted and wanted != "oracle" else model.selector
        selector = oracle_of(model, pairs) if wanted == "oracle" else choose
        together = 1024 if model.device.type == "cuda" else 64
        decoding = changed(config.decoding, beam=self.table.beam, batch_sentences=together)
        start = time.monotonic()
        with precision(model.device):
            found, choices = translate_and_explain(model, [source for source, _ in pairs], decoding, selector)
        seconds = time.monotonic() - start
        sizes = [len(choice.selected) for chosen in choices for choice in chosen]
        self.results[keyed(row.name, seed)] = {
            "row": row.name,
            "seed": seed,
            **what,
            "selector": selector.name,
            "selected": round(sum(sizes) / max(1, len(sizes)), 3),
            "empty": round(sum(not size for size in sizes) / max(1, len(sizes)), 3),
            "seconds": round(seconds, 1),
            "model": {key: model.about.get(key) for key in ("updates", "run_updates", "minutes", "versions")},
            "torch": torch.__version__,
            "device": "CPU, float32" if model.device.type == "cpu" else f"{model.device.type.upper()}, bfloat16",
            "dynctx": __version__,
        }
        self.said[keyed(row.name, seed)] = [list(document.sentences) for document in found]
        self.changed.add(keyed(row.name, seed))
        self.forget_comparisons(row.name, seed)
        self.write(translated=True)
        print(f"{row.name}, seed {seed}: translated in {seconds:.1f} s", flush=True)

    def forget_comparisons(self, name: str, seed: int) -> None:
        """What was compared with an earlier translation of this row is to be compared again."""
        self.known.pop(keyed(name, seed), None)
        for key, record in self.results.items():
            if record["seed"] == seed and name in [found["row"] for found in record.get("against", [])]:
                record.pop("scores", None)
                self.changed.add(key)

    def score(self, row: TableRow, seed: int) -> None:
        """Score a row's translations, and compare them with those of its control of the same seed."""
        record = self.results[keyed(row.name, seed)]
        scores = self.scores(row.name, seed)
        comparisons = {name: paired_bootstrap(scores[0], self.scores(name, seed)[0]) for name in compared(row)}
        record |= {
            "scores": {score.name: round(score.value, 2) for score in scores},
            "signatures": {score.name: score.signature for score in scores},
            "against": [
                {"row": name, "delta": round(found.delta, 2), "p": found.p_value} for name, found in comparisons.items()
            ],
        }
        self.changed.add(keyed(row.name, seed))
        self.write()
        print(f"{row.name}, seed {seed}: " + ", ".join(f"{k} {v}" for k, v in record["scores"].items()), flush=True)

    def scores(self, name: str, seed: int) -> list[bleu.Score]:
        """BLEU first, which is what rows are compared by."""
        key, place = keyed(name, seed), self.output.with_suffix(TRANSLATIONS)
        if key not in self.said:
            raise DynctxError(
                f"{at(place)}: lacks the translations of row {name!r}, seed {seed}; bring them, or begin anew"
            )
        if key not in self.known:
            data = self.common.data
            references = [target for _, target in read_held_out(data.folder, self.table.test)]
            found = [Document(d.id, tuple(s)) for d, s in zip(references, self.said[key])]
            self.known[key] = score_documents(found, references, data.target_language or "en")
        return self.known[key]

    def write(self, translated: bool = False) -> None:
        """What this call has found out, beside what others have written."""
        with claimed(self.output.parent, wait=True):
            self.look()
            if translated:
                with atomic_write(self.output.with_suffix(TRANSLATIONS)) as file:
                    json.dump({"rows": self.said}, file, ensure_ascii=False)
            with atomic_write(self.output.with_suffix(".json")) as file:
                content = {"title": self.table.title, "command": self.command, "rows": self.results}
                content["means"] = means(self.table, self.results)
                json.dump(content, file, ensure_ascii=False)
            with atomic_write(self.output.with_suffix(".md")) as file:
                file.write(markdown(self.table, self.command, self.results))
        self.changed.clear()


def reproduce(
    path: Path,
    output: Path | None,
    minutes: float,
    scoring: bool = True,
    only: tuple[str, ...] = (),
    seeds: tuple[int, ...] = (),
) -> bool:
    if minutes < 0:
        raise DynctxError(f"--minutes {minutes:g}: must not be negative (0: no limit)")
    table = load_table(path)
    config = load_config(table.config)
    place = output or Path("results") / Path(config.data.folder).name / path.stem
    command = f"dynctx reproduce {path}" + (f" --output {output}" if output else "")
    print(f"{table.title}: {len(table.rows)} rows of {len({row.run for row in table.rows})} runs", flush=True)
    return Reproduction(path, place, minutes, command, scoring, only, seeds).run()
