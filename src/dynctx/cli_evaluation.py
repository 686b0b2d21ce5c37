"""The commands of `dynctx` that score: parse, call, print. Heavy libraries are imported only by those that use them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from dynctx.errors import DynctxError

app = typer.Typer()
SelectorName = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--selector", help="none, full, previous N, probability-first, ...; default: as trained."),
]
ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="Model folder.")]
SplitName = Annotated[
    str, typer.Argument(metavar="SPLIT", help="dev, or the name of a test set of the model's config.")
]
DataFolder = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("--data", help="Prepared data; default: where the model's config says."),
]
Beam = Annotated[Optional[int], typer.Option("--beam", help="Hypotheses kept in search; 1 is greedy.")]  # noqa: UP045
Device = Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def contrast(
    model: ModelArgument,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Contrastive sets (docs/evaluation.md).")],
    selector: SelectorName = None,
    items: Annotated[Optional[Path], typer.Option(help="Write the scores of every item here (.jsonl).")] = None,  # noqa: UP045
    as_json: AsJson = False,
    device: Device = "auto",
) -> None:
    """Is the right translation likelier than wrong ones? Accuracy by phenomenon and distance, and what was selected.

    'dynctx contrast build' makes such a set from a corpus.
    """
    import json

    from dynctx.commands_evaluation import contrast as run

    content, text = run(model, files, selector, items, device)
    print(json.dumps(content, indent=1, ensure_ascii=False) if as_json else text)


@app.command("contrast build")  # two words: see `Sections` in `dynctx.cli`
def contrast_build(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="Chinese documents.")],
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="Their English translations.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="PREFIX", help="Beginning of the files' names.")],
    scope: Annotated[int, typer.Option(help="Sentences of context of each item.")] = 6,
) -> None:
    """Make a contrastive set of dropped pronouns from a Chinese-English corpus."""
    from dynctx.commands_evaluation import build_contrast

    print(build_contrast(source, target, output, scope))


@app.command()
def oracle(
    model: ModelArgument,
    split: SplitName,
    data: DataFolder = None,
    criterion: Annotated[str, typer.Option(help="What the best subset is best by: reward or bleu.")] = "reward",
    sentences: Annotated[int, typer.Option(help="Only so many sentences, drawn at random; 0: all.")] = 0,
    beam: Beam = None,
    selector: SelectorName = None,
    seed: Annotated[int, typer.Option(help="Of the draw of sentences.")] = 1,
    context: Annotated[
        str, typer.Option(help="true; shuffled or other document: what of the gain is luck, not knowledge.")
    ] = "true",
    values: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Ask no translator: read what each set of candidates is worth to yours (docs/api.md)."),
    ] = None,
    as_json: AsJson = False,
    device: Device = "auto",
) -> None:
    """What could be gained by selecting the best of all subsets of the context for each sentence."""
    import json

    from dynctx.commands_evaluation import run_oracle

    found = run_oracle(model, split, data, criterion, sentences, beam, selector, seed, context, device, values)
    print(json.dumps(found.to_json(), indent=1) if as_json else found.to_text())


@app.command("context-use")
def context_use(
    model: ModelArgument,
    split: SplitName,
    data: DataFolder = None,
    beam: Beam = None,
    selector: SelectorName = None,
    seed: Annotated[int, typer.Option(help="Of the contexts that are drawn.")] = 1,
    sentences: Annotated[Optional[Path], typer.Option(help="Write P-CXMI of every sentence here (.jsonl).")] = None,  # noqa: UP045
    as_json: AsJson = False,
    device: Device = "auto",
) -> None:
    """Does the model use its context: CXMI, and BLEU with true, shuffled, other-document and no context."""
    import json

    from dynctx.commands_evaluation import run_context_use

    content, text = run_context_use(model, split, data, beam, selector, seed, sentences, device)
    print(json.dumps(content, indent=1, ensure_ascii=False) if as_json else text)


@app.command("empty-context")
def empty_context(
    model: ModelArgument,
    split: SplitName,
    data: DataFolder = None,
    annotation: Annotated[Optional[Path], typer.Option(help="File that 'dynctx annotate read' wrote.")] = None,  # noqa: UP045
    margin: Annotated[float, typer.Option(help="Without annotation: nats by which context must help.")] = 1.0,
    beam: Beam = None,
    selector: SelectorName = None,
    as_json: AsJson = False,
    device: Device = "auto",
) -> None:
    """Was context needed at all: precision, recall and F1 of selecting none, and BLEU on both kinds of sentences."""
    import json

    from dynctx.commands_evaluation import run_empty_context

    content, text = run_empty_context(model, split, data, annotation, margin, beam, selector, device)
    print(json.dumps(content, indent=1, ensure_ascii=False) if as_json else text)


annotate = typer.Typer(help="Annotate which sentences need no context.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(annotate, name="annotate")


@annotate.command("write")
def annotate_write(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Prepared data.")],
    split: Annotated[str, typer.Argument(metavar="SPLIT", help="dev, or the name of a test set.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the sheets are.")],
    annotator: Annotated[str, typer.Option(help="Whose sheet; becomes part of its name.")],
    sentences: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="How many, drawn at random; default: as in the sheets there, or 500."),
    ] = None,
    scope: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Sentences of context shown in step 3; default: as in the sheets there, or 6."),
    ] = None,
    seed: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Of the draw; default: as in the sheets there, or 1."),
    ] = None,
) -> None:
    """Write an annotator's next sheet: step 1, and each further one when the one before is filled in."""
    from dynctx.commands_evaluation import write_annotation_sheet

    print(write_annotation_sheet(data, split, folder, annotator, sentences, scope, seed))


@annotate.command("read")
def annotate_read(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the sheets are.")],
    annotators: Annotated[list[str], typer.Argument(metavar="ANNOTATOR...", help="Whose sheets; two for kappa.")],
    output: Annotated[Optional[Path], typer.Option("--output", "-o", help="Annotation file (.jsonl).")] = None,  # noqa: UP045
) -> None:
    """Read filled sheets back: who needs no context, and how far two annotators agree."""
    from dynctx.commands_evaluation import read_annotation_sheets

    print(read_annotation_sheets(folder, annotators, output))


@app.command()
def compare(
    systems: Annotated[
        list[str],
        typer.Argument(metavar="SYSTEM...", help="[NAME=]FILE of translations, or [NAME=]MODEL[@SELECTOR]."),
    ],
    split: Annotated[Optional[str], typer.Option(help="Prepared test set to compare on.")] = None,  # noqa: UP045
    data: DataFolder = None,
    reference: Annotated[Optional[Path], typer.Option(help="Or: a file of references.")] = None,  # noqa: UP045
    baseline: Annotated[Optional[str], typer.Option(help="Name of a system; default: the first.")] = None,  # noqa: UP045
    language: Annotated[Optional[str], typer.Option(help="Target language; default: the models', or en.")] = None,  # noqa: UP045
    form: Annotated[str, typer.Option("--format", help="text, markdown, latex or json.")] = "text",
    beam: Beam = None,
    samples: Annotated[int, typer.Option(help="Resamples of the bootstrap.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.")] = 12345,
    output: Annotated[Optional[Path], typer.Option("--output", "-o", help="Where to write; default: stdout.")] = None,  # noqa: UP045
    device: Device = "auto",
) -> None:
    """Several systems on one test set: BLEU, chrF, document BLEU, and paired bootstrap against a baseline."""
    from dynctx.commands_evaluation import run_compare
    from dynctx.files import atomic_write

    if form not in ("text", "markdown", "latex", "json"):
        raise DynctxError(f"format {form!r}: expected text, markdown, latex or json")
    table = run_compare(systems, split, data, reference, baseline, language, beam, samples, seed, device)
    if output is None:
        print(table.to(form))
    else:
        with atomic_write(output) as file:
            file.write(table.to(form) + "\n")


@app.command()
def report(
    model: ModelArgument,
    split: SplitName,
    output: Annotated[Path, typer.Option("--output", "-o", help="The page (.html); figures go beside it.")],
    data: DataFolder = None,
    beam: Beam = None,
    selector: SelectorName = None,
    oracle_sentences: Annotated[int, typer.Option(help="Sentences that the oracle is tried on; 0: all.")] = 1000,
    examples: Annotated[
        int, typer.Option(help="Translations shown of each kind; 0: no text of the corpus, to pass the page on.")
    ] = 8,
    seed: Annotated[int, typer.Option(help="Of the draw of sentences.")] = 1,
    device: Device = "auto",
) -> None:
    """One page about what a model selects, what that changes and what it costs."""
    from dynctx.commands_evaluation import make_report

    make_report(model, split, data, output, beam, selector, oracle_sentences, examples, seed, device)
    print(output)


@app.command()
def evaluate(
    hypothesis: Annotated[str, typer.Argument(metavar="HYP")],
    references: Annotated[list[str], typer.Argument(metavar="REF...")],
    sources: Annotated[Optional[str], typer.Option(help="Source lines, to find those seen in training.")] = None,  # noqa: UP045
    against: Annotated[Optional[str], typer.Option(help="Another system's translations: paired bootstrap.")] = None,  # noqa: UP045
    train: Annotated[Optional[list[str]], typer.Option(help="Training text to compare with; may be repeated.")] = None,  # noqa: UP045
    leave_out_seen: Annotated[
        bool, typer.Option("--leave-out-seen", help="Score without lines seen in training.")
    ] = False,
    language: Annotated[str, typer.Option(help="Target language: decides how text is tokenised for scores.")] = "en",
    samples: Annotated[int, typer.Option(help="Resamples of the bootstrap.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.")] = 12345,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Score translations: BLEU, chrF, TER, document BLEU, tokenised BLEU, with signatures."""
    import json

    from dynctx.evaluation.evaluate import evaluate as run

    report = run(
        hypothesis,
        references,
        sources=sources,
        against=against,
        train=train or [],
        leave_out_seen=leave_out_seen,
        language=language,
        samples=samples,
        seed=seed,
    )
    print(json.dumps(report.to_json(), indent=1, ensure_ascii=False) if as_json else report.to_text().rstrip("\n"))


@app.command()
def test(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Model folder.")],
    split: Annotated[str, typer.Argument(metavar="SPLIT", help="dev, or the name of a test set of its config.")],
    data: Annotated[Optional[Path], typer.Option(help="Prepared data; default: where the model's config says.")] = None,  # noqa: UP045
    output: Annotated[Optional[Path], typer.Option("--output", "-o", help="Keep the translations (.jsonl).")] = None,  # noqa: UP045
    beam: Annotated[Optional[int], typer.Option(help="Hypotheses kept in search; 1 is greedy.")] = None,  # noqa: UP045
    batch: Annotated[Optional[int], typer.Option(help="Sentences translated together.")] = None,  # noqa: UP045
    selector: SelectorName = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Translate a prepared test set and score it; prints JSON."""
    import json

    from dynctx.commands import test_model
    from dynctx.processes import processes_here

    with processes_here() as processes:
        found = test_model(model, split, data, output, beam, batch, device, selector, processes)
        print(json.dumps(found, ensure_ascii=False))
