"""What the commands of the evaluation suite do that is more than one call."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dynctx.commands import bar, changed, precision, selector_of
from dynctx.config import load_config
from dynctx.corpus import Ints
from dynctx.devices import pick_device
from dynctx.documents import Document, TextFile, read_documents, read_parallel
from dynctx.errors import DynctxError
from dynctx.evaluation import annotation, contrastive, empty_context, oracle, pronouns, selection_accuracy
from dynctx.evaluation import compare as comparing
from dynctx.evaluation import context_use as using
from dynctx.evaluation.contrastive_sets import as_record, read_sets
from dynctx.evaluation.evaluate import read_aligned
from dynctx.evaluation.split import Pairs, Split
from dynctx.files import atomic_write, check_place, check_spared
from dynctx.labels.outside_values import read_values
from dynctx.model_folder import Model, check_selector, find_model, load_model, read_config
from dynctx.pipeline import translate_documents
from dynctx.prepared import read_held_out
from dynctx.selection.strategies import FromFile


def load(folder: Path, device: str) -> Model:
    return load_model(folder, pick_device(device))


def held_out(model: Model, split: str, data: Path | None) -> Pairs:
    return read_held_out(data or model.config.data.folder, split)


def write_json(path: Path | None, content: Any) -> None:
    if path is not None:
        with atomic_write(path) as file:
            json.dump(content, file, indent=1, ensure_ascii=False)
            file.write("\n")


def contrast(
    folder: Path, files: Sequence[Path], selector: str | None, items_to: Path | None, device: str
) -> tuple[dict[str, Any], str]:
    """Accuracies on contrastive sets: as plain data, and as text."""
    check_place(items_to)
    check_spared(items_to, *files)
    items = read_sets(list(files))
    model = load(folder, device)
    chosen = selector_of(model, selector)
    if isinstance(chosen, FromFile):
        raise DynctxError(
            "contrast: --selector 'fixed FILE' goes by the lines of a text, and contrastive sets have none"
        )
    count = sum(len(item.candidates) for item in items)
    with bar(count) as advance, precision(model.device):
        results = contrastive.decide(model, items, chosen, advance)
        reads = contrastive.what_it_reads(model)
    rows, notes = contrastive.accuracies(results), contrastive.remarks(results, reads)
    scope = model.translator.scope
    selected = selection_accuracy.selection_accuracy(results, scope, chosen.name) if scope else []
    text = contrastive.to_text(rows, notes)
    if selected:
        text += f"\n\n{selection_accuracy.to_text(selected)}"
    if items_to is not None:
        with atomic_write(items_to) as file:
            for result in results:
                record = as_record(result.item)
                record |= {"scores": result.scores, "right": result.right, "tie": result.tie}
                record["selected"] = result.selected
                file.write(json.dumps(record, ensure_ascii=False) + "\n")
    content = {
        "model": str(folder),
        "selector": chosen.name,
        "reads": {"source_context": reads.source, "target_context": reads.target},
        "accuracy": [row.to_json() for row in rows],
        "remarks": notes,
        "selection": [row.to_json() for row in selected],
    }
    return content, text


def build_contrast(source: Path, target: Path, prefix: Path, scope: int) -> str:
    """The pronoun set of a corpus: PREFIX.dev.jsonl, PREFIX.test.jsonl and PREFIX.counts.json."""
    found = pronouns.build(read_parallel(source, target), scope)
    if not found.dev and not found.test:
        raise DynctxError(
            f"{source}: no pronoun was found that Chinese leaves out and {target} has; are these Chinese and English?"
        )
    for name, items in (("dev", found.dev), ("test", found.test)):
        with atomic_write(prefix.with_name(f"{prefix.name}.{name}.jsonl")) as file:
            file.writelines(json.dumps(as_record(item), ensure_ascii=False) + "\n" for item in items)
    write_json(prefix.with_name(f"{prefix.name}.counts.json"), found.counts())
    return found.to_text()


def run_oracle(
    folder: Path,
    split: str,
    data: Path | None,
    criterion: str,
    sentences: int,
    beam: int | None,
    selector: str | None,
    seed: int,
    context: str,
    device: str,
    values: Path | None = None,
) -> oracle.OracleReport:
    if values is not None and (context, criterion, beam) != ("true", "reward", None):
        raise DynctxError("--values says what every set is worth: there is no criterion, context or beam to choose")
    if context not in ("true", "shuffled", "other document"):
        raise DynctxError(f"context {context!r}: expected true, shuffled or other document")
    if criterion not in ("reward", "bleu"):
        raise DynctxError(f"criterion {criterion!r}: expected reward or bleu")
    model = load(folder, device)
    own = selector_of(model, selector)
    texts = Split(model, held_out(model, split, data))
    chosen = some_of(texts.scorable, sentences, seed)
    if values is not None:
        scope = model.translator.scope
        table = read_values(str(values), "reward", scope, texts.gatherer.store).astype(np.float64)
        return oracle.report(texts, oracle.known_values(texts, chosen, table), own)
    if context != "true":
        known, true = using.foreseen(texts, own), chosen
        texts, chosen = using.in_other_context(
            texts, chosen, "shuffled" if context == "shuffled" else "other document", seed
        )
        if known is not None:
            own = using.Carried(known[true], chosen, own.name)
    decoding = changed(model.config.decoding, beam=beam)
    with bar(oracle.tries(texts.gatherer, chosen), doing=oracle.TRYING) as advance, precision(model.device):
        found = oracle.value_of_subsets(texts, chosen, "reward" if criterion == "reward" else "bleu", decoding, advance)
        return oracle.report(texts, found, own)


def some_of(sentences: Ints, count: int, seed: int) -> Ints:
    """`count` of them, drawn evenly (0: all), in order."""
    if count < 0:
        raise DynctxError(f"{count} sentences: give 0 for all, or how many")
    if not count or count >= len(sentences):
        return sentences
    return np.sort(np.random.default_rng(seed).permutation(sentences)[:count])


def run_context_use(
    folder: Path,
    split: str,
    data: Path | None,
    beam: int | None,
    selector: str | None,
    seed: int,
    sentences_to: Path | None,
    device: str,
) -> tuple[dict[str, Any], str]:
    check_place(sentences_to)
    model = load(folder, device)
    chosen = selector_of(model, selector)
    texts = Split(model, held_out(model, split, data))
    decoding = changed(model.config.decoding, beam=beam)
    with bar(4 * len(texts.filled)) as advance, precision(model.device):
        uses = using.context_use(texts, chosen, decoding, seed, advance)
        told = using.cxmi(texts, chosen)
    if sentences_to is not None:
        with atomic_write(sentences_to) as file:
            for place, (sentence, nats) in enumerate(zip(texts.scorable.tolist(), told.per_sentence)):
                document, number = texts.place(sentence)
                record = {"document": document, "sentence": number, "p_cxmi": round(float(nats), 6)}
                record["tokens"] = int(told.tokens[place])
                file.write(json.dumps(record, ensure_ascii=False) + "\n")
    content = {
        "model": str(folder),
        "split": split,
        "selector": chosen.name,
        "seed": seed,
        "conditions": [use.to_json() for use in uses],
    }
    return content, using.to_text(uses)


def run_empty_context(
    folder: Path,
    split: str,
    data: Path | None,
    annotations: Path | None,
    margin: float,
    beam: int | None,
    selector: str | None,
    device: str,
) -> tuple[dict[str, Any], str]:
    entries = empty_context.read_annotations(annotations) if annotations is not None else None
    model = load(folder, device)
    own = selector_of(model, selector)
    texts = Split(model, held_out(model, split, data))
    decoding = changed(model.config.decoding, beam=beam)
    selectors = {s.name: s for s in (model.choose("none"), model.choose("full"), own)}
    with precision(model.device):
        if entries is not None:
            truth, where = empty_context.find(texts, entries), str(annotations)
        else:
            truth = empty_context.automatic(texts, margin)
            where = f"automatic: no context makes the reference likelier by more than {margin:g} nats"
        predicted = texts.select(own).sum(axis=1) == 0
        with bar(len(selectors) * len(truth)) as advance:
            lines = {name: texts.translate(chosen, decoding, advance, truth) for name, chosen in selectors.items()}
    found = empty_context.report(texts, truth, where, predicted, lines)
    content = {"model": str(folder), "split": split, "selector": own.name, **found.to_json()}
    return content, found.to_text()


def write_annotation_sheet(
    data: Path,
    split: str,
    folder: Path,
    annotator: str,
    sentences: int | None,
    scope: int | None,
    seed: int | None,
) -> str:
    """None: as the sheets that are there already, or 500 sentences, a scope of 6 and seed 1."""
    pairs = read_held_out(data, split)
    sample = annotation.load_sample(folder)
    if sample is not None:
        sample.check(folder, split, pairs, sentences, scope, seed)
    else:
        given = ((sentences, 500), (scope, 6), (seed, 1))
        count, before, start = (usual if value is None else value for value, usual in given)
        sample = annotation.draw(pairs, count, before, start, split)
        sample.save(folder)
    path, step = annotation.write_next(folder, annotator, pairs, sample)
    if step == 4:
        return f"{annotator}: all three steps are filled in; read them with 'dynctx annotate read'"
    column = annotation.FILL[step - 1]
    how = "translate each sentence" if step == 1 else "answer yes or no"
    return (
        f"{path}: step {step} of 3, {len(sample.places):,} sentences; fill in the column {column!r} ({how}), "
        "then give this command again"
    )


def read_annotation_sheets(folder: Path, annotators: Sequence[str], output: Path | None) -> str:
    entries = annotation.read_back(folder, annotators)
    if output is not None:
        with atomic_write(output) as file:
            file.writelines(f"{entry.to_line()}\n" for entry in entries)
    empty = sum(entry.empty for entry in entries)
    lines = [f"{len(entries):,} sentences, {empty:,} need no context ({100 * empty / len(entries):.1f} %)"]
    if len(annotators) == 2:
        (a, b), counts, value = empty_context.agreement(entries)
        lines.append(f"both say empty {counts.both}, only {a} {counts.wrongly_empty}, only {b} {counts.missed}, ")
        lines[-1] += f"neither {counts.neither}; Cohen's kappa {value:.2f}"
    return "\n".join(lines)


def run_compare(
    systems: Sequence[str],
    split: str | None,
    data: Path | None,
    reference: Path | None,
    baseline: str | None,
    language: str | None,
    beam: int | None,
    samples: int,
    seed: int,
    device: str,
) -> comparing.Table:
    parsed = [comparing.parse_system(text) for text in systems]
    baseline = baseline or parsed[0][0]
    comparing.check_names([name for name, _, _ in parsed], baseline)
    models = [path for _, path, _ in parsed if path.is_dir()]
    folder = data
    if folder is None and reference is None and models:
        folder = Path(load_config(find_model(models[0]) / "config.yaml").data.folder)
    if (reference is None) == (split is None):
        raise DynctxError("compare: name the test set, either --split (with --data) or --reference")
    if reference is not None:
        if models:
            raise DynctxError(f"{models[0]}: a model needs the source to translate; use --split and --data")
        sources, references = [], list(read_documents(reference))
    else:
        if folder is None:
            raise DynctxError("compare: --split needs --data, the folder that 'dynctx prepare' made")
        pairs = read_held_out(folder, split or "")
        sources, references = [source for source, _ in pairs], [target for _, target in pairs]
    where = TextFile(str(reference)) if reference is not None else TextFile(f"{folder}/{split}.jsonl", column="target")
    sizes = [len(document.sentences) for document in references]
    # files and names first: what is wrong with them should show before hours of translating
    for _, path, selector in parsed:
        if path.is_dir() and selector is not None:
            check_selector(selector, read_config(path))
    lines = {name: read_aligned(TextFile(str(path)), where, sizes) for name, path, _ in parsed if not path.is_dir()}
    for name, path, selector in parsed:
        if path.is_dir():
            model = load(path, device)
            language = language or model.config.data.target_language or None
            lines[name] = model_lines(model, sources, beam, selector)
    found = [comparing.System(name, lines[name]) for name, _, _ in parsed]
    return comparing.compare(found, references, baseline, language or "en", samples, seed)


def model_lines(model: Model, sources: Sequence[Document], beam: int | None, selector: str | None) -> list[str]:
    decoding = changed(model.config.decoding, beam=beam)
    with bar(sum(len(document.sentences) for document in sources)) as advance, precision(model.device):
        translated = translate_documents(model, sources, decoding, selector_of(model, selector), progress=advance)
    return [sentence for document in translated for sentence in document.sentences]


def make_report(
    folder: Path,
    split: str,
    data: Path | None,
    output: Path,
    beam: int | None,
    selector: str | None,
    oracle_sentences: int,
    examples: int,
    seed: int,
    device: str,
) -> None:
    from dynctx.evaluation import report

    check_place(output)
    if examples < 0:
        raise DynctxError("--examples must not be negative")
    model = load(folder, device)
    chosen = selector_of(model, selector)
    texts = Split(model, held_out(model, split, data))
    decoding = changed(model.config.decoding, beam=beam)
    with bar(3 * len(texts.filled)) as advance, precision(model.device):
        facts = report.gather(texts, chosen, decoding, some_of(texts.scorable, oracle_sentences, seed), advance)
    report.write(facts, str(folder), split, output, examples)
