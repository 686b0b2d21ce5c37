"""`dynctx translate` and `dynctx select`: files in, files out."""

from __future__ import annotations

import dataclasses
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from dynctx.commands import bar, changed, check_chooses, explained, precision, selector_of, warn
from dynctx.config import Config, DecodingConfig
from dynctx.config_rules import AT_MOST, COLDEST
from dynctx.devices import pick_device
from dynctx.documents import Document, write_jsonl
from dynctx.errors import DynctxError, at
from dynctx.files import atomic_write, check_place, check_spared, split_suffixes, write_bytes
from dynctx.formats import SUFFIXES, Reading, open_file
from dynctx.formats.sentences import is_chinese
from dynctx.formats.template import Template
from dynctx.languages import is_foreign, primary
from dynctx.linear import to_int8
from dynctx.model_folder import Model, default_model, load_model, read_config
from dynctx.pipeline import Choice, select_documents, translate_and_explain
from dynctx.processes import ALONE, Processes

LINES = ("txt", "jsonl")  # formats whose files can stand one after the other


@dataclasses.dataclass
class Job:
    """A file to read and where its translation goes; None is standard output."""

    path: str
    output: Path | None


def translate_files(
    files: Sequence[Path],
    folder: Path | None,
    output: Path | None,
    *,
    into_folder: bool = False,
    beam: int | None = None,
    batch: int | None = None,
    sample: bool = False,
    temperature: float = 1.0,
    seed: int = 1,
    int8: bool = False,
    device: str = "auto",
    selector: str | None = None,
    explain: Path | None = None,
    format: str = "auto",
    split: bool = False,
    column: str | None = None,
    scene_gap: float = 7.0,
    again: bool = False,
    encoding: str = "utf-8",
    quiet: bool = False,
    processes: Processes = ALONE,
) -> None:
    """Read everything before translating anything, and write only when all is done."""
    start = time.monotonic()
    folder = folder or default_model()
    config = read_config(folder)
    jobs = planned(files, output, into_folder)
    if processes.count > 1 and any(job.path == "-" for job in jobs):
        raise DynctxError("several processes cannot share standard input; write it to a file")
    check_explain(explain, jobs)
    reading = reading_for(config, format, split, column, scene_gap, again, encoding)
    scope, language = config.model.scope, config.data.source_language or ""
    templates = [open_file(job.path, for_output(reading, job.output), warn).needed(scope, language) for job in jobs]
    check_outputs(jobs, templates)
    for place in [*(job.output for job in jobs), explain]:
        check_place(place)
    for template in templates:
        check_script(template, config.data.source_language)
    decoding = changed(config.decoding, beam=beam, batch_sentences=batch)
    if not COLDEST <= temperature < math.inf:
        raise DynctxError(f"temperature must be at least {COLDEST}, not {temperature:g}")
    if not 0 <= seed <= AT_MOST["seed"]:
        raise DynctxError(f"the seed must lie in 0 to {AT_MOST['seed']}, not {seed}")
    decoding = dataclasses.replace(decoding, sampling=sample, temperature=temperature)
    model = load_model(folder, pick_device(device))
    if int8:
        to_int8(model.translator)
    torch.manual_seed(seed)
    translated, choices = translate_templates(model, templates, decoding, selector, quiet, processes)
    if not processes.leads:
        return
    if explain is not None:
        with atomic_write(explain) as file:
            file.writelines(explanation(templates, choices, translated))
    write_all(jobs, templates, translated)
    if output is not None and not quiet:
        written = f"{output}/" if to_folder(jobs) else str(jobs[0].output)
        warn(summary(templates, choices, time.monotonic() - start, written))


def translate_templates(
    model: Model,
    templates: Sequence[Template],
    decoding: DecodingConfig,
    selector: str | None,
    quiet: bool,
    processes: Processes = ALONE,
) -> tuple[list[Document], list[list[Choice]]]:
    """The translation of each document of all files, and the context of each sentence; both empty without any text."""
    documents = [document for template in templates for document in template.documents]
    if not documents:
        warn("nothing to translate: there is no text, or all of it has a translation (--again makes new ones)")
        return [], []
    language = model.config.data.source_language or ""
    count = sum(not is_foreign(sentence, language) for document in documents for sentence in document.sentences)
    with bar(count, quiet) as advance, precision(model.device):
        chosen = selector_of(model, selector)
        return translate_and_explain(
            model, documents, decoding, chosen, advance, warn, for_people=True, processes=processes
        )


def explanation(
    templates: Sequence[Template], choices: list[list[Choice]], translated: Sequence[Document] | None = None
) -> list[str]:
    """A line for each sentence of all files; of several files it names the one that the sentence is in."""
    documents = [document for template in templates for document in template.documents]
    names = [template.name for template in templates for _ in template.groups] if len(templates) > 1 else None
    places = [place for template in templates for place in template.places]
    return [f"{line}\n" for line in explained(documents, choices, translated, names, places)]


def summary(templates: Sequence[Template], choices: Sequence[Sequence[Choice]], seconds: float, place: str) -> str:
    """What was done, on one line."""
    groups = [group for template in templates for group in template.groups]
    done = [c for group, chosen in zip(groups, choices) for s, c in zip(group.sentences, chosen) if s.needed]
    kept = sum(choice.kept for choice in done)
    return (
        f"{counted(len(done) - kept, 'sentence')} of {counted(len(groups), 'document')} translated in {seconds:.1f} s, "
        f"{sum(bool(choice.selected) for choice in done)} with context"
        + (f", {kept} kept as they are" if kept else "")
        + f"; written to {place}"
    )


def counted(number: int, name: str) -> str:
    return f"{number:,} {name}" + ("s" if number != 1 else "")


def select_context(
    files: Sequence[Path],
    folder: Path | None,
    output: Path | None,
    selector: str | None,
    device: str,
    *,
    format: str = "auto",
    split: bool = False,
    column: str | None = None,
    scene_gap: float = 7.0,
    encoding: str = "utf-8",
) -> None:
    """For each sentence its candidates, their probabilities and what was selected, as JSON lines."""
    folder = folder or default_model()
    for path in files:
        spared(Job(str(path), output))
    check_place(output)
    reading = reading_for(read_config(folder), format, split, column, scene_gap, True, encoding)
    templates = [open_file(str(file), reading, warn) for file in files]
    documents = [document for template in templates for document in template.documents]
    model = load_model(folder, pick_device(device))
    if selector is None:
        check_chooses(model)
    with precision(model.device):
        choices = select_documents(model, documents, selector_of(model, selector), for_people=True)
    lines = explanation(templates, choices)
    if output is None:
        sys.stdout.writelines(lines)
    else:
        with atomic_write(output) as file:
            file.writelines(lines)


def reading_for(
    config: Config, format: str, split: bool, column: str | None, scene_gap: float, again: bool, encoding: str
) -> Reading:
    if not scene_gap >= 0:
        raise DynctxError(f"scene gap must be 0 or more seconds, not {scene_gap:g}")
    languages = config.data.source_language or "", config.data.target_language or ""
    return Reading(
        *languages,
        format=format,
        split=split,
        column=column,
        scene_gap=scene_gap,
        again=again,
        encoding=encoding.lower(),
    )


def for_output(reading: Reading, output: Path | None) -> Reading:
    return dataclasses.replace(reading, output_suffix=split_suffixes(output)[0] if output else "")


def planned(files: Sequence[Path], output: Path | None, into_folder: bool = False) -> list[Job]:
    """Which file goes where. A folder becomes a folder, with the same names in it. into_folder: so is the output."""
    folders = [file for file in files if file.is_dir()]
    several = into_folder or (len(files) > 1 and output is not None and not output.suffix)
    if not folders and not several and not (output is not None and output.is_dir()):
        return [spared(Job(str(file), output)) for file in files]
    if output is None:
        raise DynctxError(f"{at(folders[0])}: is a folder; say where to write with -o FOLDER")
    if output.is_file():
        raise DynctxError(f"{at(output)}: is a file; several files are written to a folder")
    jobs: list[Job] = []
    for file in files:
        if str(file) == "-":
            raise DynctxError("standard input has no name in a folder; write it to a file")
        jobs += folder_jobs(file, output) if file.is_dir() else [Job(str(file), output / file.name)]
    taken: dict[Path | None, str] = {}
    for job in jobs:
        if job.output in taken:
            raise DynctxError(f"{at(job.path)} and {taken[job.output]} would both be written to {job.output}")
        taken[job.output] = job.path
        spared(job)
    return jobs


def spared(job: Job) -> Job:
    """The same, unless it would write over what it reads."""
    if job.path != "-":
        check_spared(job.output, job.path)
    return job


def check_explain(explain: Path | None, jobs: Sequence[Job]) -> None:
    """What explains the translations writes over nothing that is read or written here."""
    if explain == Path("-"):
        raise DynctxError("--explain needs the name of a file; `dynctx select` shows the context on standard output")
    for job in jobs:
        spared(Job(job.path, explain))
        if explain is not None and job.output is not None and job.output.resolve() == explain.resolve():
            raise DynctxError(f"{at(explain)}: is both the translation and its explanation; name two files")


def folder_jobs(folder: Path, output: Path) -> list[Job]:
    """Files of a known format, in all folders below, except hidden and empty ones and what is in the output already."""
    found, left = [], 0
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if not path.is_file() or hidden or path.resolve().is_relative_to(output.resolve()):
            continue
        if split_suffixes(path)[0] in SUFFIXES and path.stat().st_size:
            found.append(Job(str(path), output / path.relative_to(folder)))
        else:
            left += 1
    if folder.resolve().is_relative_to(output.resolve()):
        raise DynctxError(f"{at(output)}: holds what is to be translated; write to another folder")
    if not found:
        raise DynctxError(f"{at(folder)}: holds no file to translate ({' '.join(SUFFIXES)})")
    if left:
        warn(f"{folder}: {counted(left, 'file')} left out, empty or of another format")
    return found


def check_outputs(jobs: Sequence[Job], templates: Sequence[Template]) -> None:
    """A subtitle file is not written as a text file: only the text changes, never the format."""
    for job, template in zip(jobs, templates):
        suffix = split_suffixes(job.output)[0] if job.output else ""
        if suffix in SUFFIXES and SUFFIXES[suffix] not in (template.format, "jsonl"):
            fitting = next(known for known, format in SUFFIXES.items() if format == template.format)
            raise DynctxError(f"{job.output}: {template.name} is {template.format}; name the output {fitting}")
        if len(jobs) > 1 and not to_folder(jobs) and suffix != ".jsonl" and template.format not in LINES:
            raise DynctxError(f"{template.name}: cannot be joined to other files; write them to a folder: -o FOLDER")


def check_script(template: Template, language: str) -> None:
    """The easiest mistake: a file in a language that the model does not know."""
    texts = [sentence for document in template.documents for sentence in document.sentences]
    chinese = sum(map(is_chinese, texts))
    if texts and all(is_foreign(text, language) for text in texts):
        warn(f"{template.name}: has no word of {language}, which this model translates from; all is kept as it is")
    elif language and primary(language) not in ("zh", "ja") and chinese > len(texts) / 2:
        warn(f"{template.name}: looks like Chinese or Japanese, but this model translates from {language}")


def to_folder(jobs: Sequence[Job]) -> bool:
    return len({job.output for job in jobs}) == len(jobs) > 1


def write_all(jobs: Sequence[Job], templates: Sequence[Template], translated: Sequence[Document]) -> None:
    documents = iter(translated)
    parts = [[next(documents) for _ in template.groups] for template in templates]
    if to_folder(jobs):  # all are made before any is written
        contents = [content(template, part) for template, part in zip(templates, parts)]
        for job, data in zip(jobs, contents):
            assert job.output is not None
            write_bytes(job.output, data)
        return
    output = jobs[0].output
    if output is not None and split_suffixes(output)[0] == ".jsonl" and any(t.format != "jsonl" for t in templates):
        write_jsonl(translated, output)
        return
    data = joined([content(template, part) for template, part in zip(templates, parts)])
    if output is None:
        sys.stdout.buffer.write(data)
    else:
        write_bytes(output, data)


def content(template: Template, translated: list[Document]) -> bytes:
    empty = sum(not sentence for document in translated for sentence in document.sentences)
    if empty and template.format == "txt":
        warn(f"{empty} translations are empty lines, not borders of documents; write .jsonl to tell them apart")
    return template.filled(translated, warn)


def joined(contents: list[bytes]) -> bytes:
    """Text files one after the other, with a blank line between."""
    return b"\n".join([text if text.endswith(b"\n") else text + b"\n" for text in contents[:-1]] + contents[-1:])
