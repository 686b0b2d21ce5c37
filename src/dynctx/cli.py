"""The `dynctx` command: parse, call, print. Heavy libraries are imported only by the commands that use them."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn, Optional

import typer
from typer.core import TyperGroup

from dynctx import __version__
from dynctx.cli_evaluation import SelectorName
from dynctx.cli_evaluation import app as evaluation
from dynctx.errors import DynctxError

# the sections of `dynctx --help`: what a translator needs comes first
SECTIONS = {
    "Translating": ["translate", "serve", "info"],
    "Looking at context": ["select"],
    "Making models": ["prepare", "train", "label", "export"],
    "Scoring": ["test", "evaluate", "compare", "contrast", "contrast build", "report", "reproduce", "bench"],
    "Does context help": ["oracle", "context-use", "empty-context", "annotate"],
}


class Sections(TyperGroup):
    """Commands in sections, in the order of the table; those that it does not name come last."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """`contrast build` is one command of two words, unless `build` is a model; `contrast-build` always is."""
        model = any(Path("build", *inside, "config.yaml").exists() for inside in ((), ("model",)))
        if args[:2] == ["contrast", "build"] and not model:
            args = ["contrast build", *args[2:]]
        elif args[:1] == ["contrast-build"]:
            args = ["contrast build", *args[1:]]
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        named = {name for names in SECTIONS.values() for name in names}
        sections = SECTIONS | {"More": [name for name in self.commands if name not in named]}
        for title, names in sections.items():
            if names:
                with formatter.section(title):
                    formatter.write_dl([(name, self.commands[name].get_short_help_str(limit=200)) for name in names])


app = typer.Typer(
    cls=Sections,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
ConfigFile = Annotated[
    Path, typer.Argument(metavar="CONFIG", help="YAML file; configs/manual.yaml explains every key.")
]
Overrides = Annotated[
    Optional[list[str]], typer.Argument(metavar="[KEY=VALUE]...", help="Settings laid over the config.")  # noqa: UP045
]

ModelFolder = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("--model", "-m", help="Model folder; default: $DYNCTX_MODEL, or the one that comes with dynctx."),
]
FormatName = Annotated[
    str, typer.Option(help="txt, md, html, srt, vtt, ass, xliff, tmx, po, jsonl, ...; default: by name and content.")
]
Column = Annotated[Optional[str], typer.Option(help="JSON lines, TSV: the key or column that is the text.")]  # noqa: UP045
Split = Annotated[bool, typer.Option("--split", help="Plain text: split paragraphs, not one sentence a line.")]
Encoding = Annotated[
    str, typer.Option(help="Of the files: gb18030, big5, shift_jis, ...; UTF-16 and XML say it themselves.")
]
SceneGap = Annotated[float, typer.Option(help="Subtitles: seconds without one that start a new document.")]


def main() -> None:
    """Run a command; a problem the user can mend is one line on stderr and an exit code, never a traceback."""
    # threads that wait fall asleep soon: by default they spin on, which on a machine with other work costs most of the
    # speed; sleeping at once would cost a fifth of it on an idle machine
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")
    # blocks of GPU memory that can grow: without this, batches of many sizes fragment it
    os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    try:
        try:
            app()
        finally:
            sys.stdout.flush()  # what is wrong with the output shows here, and not when Python is shutting down
    except DynctxError as error:
        sys.stderr.write(f"dynctx: {error}\n")
        sys.exit(error.exit_code)
    except SystemExit as end:  # Typer turns a closed pipe and Ctrl-C into one
        if isinstance(end.__context__, BrokenPipeError):
            end_quietly()
        if end.code == 130:
            sys.stderr.write("dynctx: stopped\n")
        raise
    except KeyboardInterrupt:
        sys.stderr.write("dynctx: stopped\n")
        sys.exit(130)
    except BrokenPipeError:
        end_quietly()
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        end_quietly(f"dynctx: {error.filename or 'the output'}: cannot be written: {error.strerror}\n", 2)


def show_version(wanted: bool) -> None:
    if wanted:
        print(f"dynctx {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Translate documents, choosing for each sentence the earlier sentences it needs as context."""


def end_quietly(message: str = "", code: int = 0) -> NoReturn:
    """End without a second try to write what is left to write; `dynctx ... | head` is no error."""
    sys.stderr.write(message)
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


@app.command()
def prepare(config: ConfigFile, overrides: Overrides = None) -> None:
    """Train the subword model and write the token stores and the data card."""
    from dynctx.config import load_config
    from dynctx.prepare import card_text
    from dynctx.prepare import prepare as run

    print(card_text(run(load_config(config, overrides or []).data)))


@app.command()
def label(config: ConfigFile, overrides: Overrides = None) -> None:
    """Judge each candidate of each sentence by itself: pseudo labels, from which a context scorer first learns."""
    from dynctx.config import load_config

    settings = load_config(config, overrides or [])
    from dynctx.commands import label_corpus

    label_corpus(settings)


@app.command()
def train(config: ConfigFile, overrides: Overrides = None) -> None:
    """Train a model; the same command again goes on where it was stopped."""
    from dynctx.config import load_config

    settings = load_config(config, overrides or [])
    from dynctx.commands import train_model  # after what can be wrong has been said: this takes seconds

    train_model(settings)


@app.command()
def reproduce(
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="YAML file of a table: configs/*/table*.yaml.")],
    minutes: Annotated[float, typer.Option(help="Pause after this time; the same command goes on. 0: no limit.")] = 0.0,
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--output", "-o", help="Written with .md and .json; default: results/CORPUS/TABLE."),
    ] = None,
    unscored: Annotated[
        bool, typer.Option("--unscored", help="Leave the scoring, which needs no GPU, to another call.")
    ] = False,
    rows: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(help="Only rows with a name like this ('HAN*'); several times for several.", show_default=False),
    ] = None,
    seed: Annotated[
        Optional[list[int]],  # noqa: UP045
        typer.Option(help="Only this one of the table's seeds; several times for several.", show_default=False),
    ] = None,
) -> None:
    """Train and score what a table of results needs, and write it down."""
    from dynctx.reproduce import reproduce as run

    if not run(table, output, minutes, not unscored, tuple(rows or ()), tuple(seed or ())):
        raise typer.Exit(3)


@app.command()
def export(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Model folder, or that of a run.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the copy is to lie.")],
    half: Annotated[bool, typer.Option("--half", help="Weights in 16 bits: half the size.")] = False,
    split: Annotated[int, typer.Option(help="Files of at most so many MiB; 0: one file.")] = 0,
) -> None:
    """Copy a model to share it: what translating takes, and nothing of the training run."""
    from dynctx.commands import export_model

    export_model(model, folder, half, split)


@app.command()
def translate(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files or folders; - is standard input.")],
    model: ModelFolder = None,
    output: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--output", "-o", help="A file, or a folder (FOLDER/, or for several); default, and -: stdout."),
    ] = None,
    beam: Annotated[Optional[int], typer.Option(help="Hypotheses kept in search; 1 is greedy.")] = None,  # noqa: UP045
    batch: Annotated[Optional[int], typer.Option(help="Sentences translated together.")] = None,  # noqa: UP045
    sample: Annotated[bool, typer.Option("--sample", help="Draw translations from the model instead.")] = False,
    temperature: Annotated[float, typer.Option(help="For --sample.")] = 1.0,
    seed: Annotated[int, typer.Option(help="For --sample.")] = 1,
    int8: Annotated[
        bool, typer.Option("--int8", help="8-bit weights on the CPU: faster, a little less exact.")
    ] = False,
    selector: SelectorName = None,
    explain: Annotated[Optional[Path], typer.Option(help="Write the context of each sentence here (.jsonl).")] = None,  # noqa: UP045
    format: FormatName = "auto",
    split: Split = False,
    column: Column = None,
    scene_gap: SceneGap = 7.0,
    encoding: Encoding = "utf-8",
    again: Annotated[
        bool, typer.Option("--again", help="XLIFF, TMX, PO: also translate what has a translation.")
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, and no line at the end.")] = False,
) -> None:
    """Translate text, Markdown, HTML, subtitles, XLIFF, TMX, PO and JSON lines; only the text in them changes."""
    from dynctx.commands_translate import translate_files
    from dynctx.processes import processes_here

    with processes_here() as processes:
        translate_files(
            files,
            model,
            Path(output) if output is not None and output != "-" else None,
            into_folder=output is not None and output.endswith(("/", os.sep)),
            beam=beam,
            batch=batch,
            sample=sample,
            temperature=temperature,
            seed=seed,
            int8=int8,
            device=device,
            selector=selector,
            explain=explain,
            format=format,
            split=split,
            column=column,
            scene_gap=scene_gap,
            again=again,
            encoding=encoding,
            quiet=quiet,
            processes=processes,
        )


@app.command()
def select(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files; - is standard input.")],
    model: ModelFolder = None,
    output: Annotated[Optional[Path], typer.Option("--output", "-o", help="Where to write; default: stdout.")] = None,  # noqa: UP045
    selector: SelectorName = None,
    format: FormatName = "auto",
    split: Split = False,
    column: Column = None,
    scene_gap: SceneGap = 7.0,
    encoding: Encoding = "utf-8",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Show which earlier sentences each sentence would be translated with, as JSON lines."""
    from dynctx.commands_translate import select_context

    select_context(
        files,
        model,
        output if output != Path("-") else None,
        selector,
        device,
        format=format,
        split=split,
        column=column,
        scene_gap=scene_gap,
        encoding=encoding,
    )


@app.command()
def serve(
    model: ModelFolder = None,
    host: Annotated[str, typer.Option(help="Address to listen at; the default is reached from this machine only.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="0: any that is free.")] = 5000,
    api_key: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(envvar="DYNCTX_API_KEY", help="Serve only those who give this key (better in the environment)."),
    ] = None,
    selector: SelectorName = None,
    beam: Annotated[Optional[int], typer.Option(help="Hypotheses kept in search; 1 is greedy.")] = None,  # noqa: UP045
    batch: Annotated[Optional[int], typer.Option(help="Sentences translated together.")] = None,  # noqa: UP045
    int8: Annotated[
        bool, typer.Option("--int8", help="8-bit weights on the CPU: faster, a little less exact.")
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    allow_origin: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(help="A site whose pages may call this service from a browser, as https://example.org; repeat."),
    ] = None,
    max_body: Annotated[int, typer.Option(help="Bytes of a request.")] = 2 * 2**20,
    max_sentences: Annotated[int, typer.Option(help="Sentences of a request.")] = 1000,
    max_characters: Annotated[int, typer.Option(help="Characters of a sentence.")] = 2000,
    max_waiting: Annotated[int, typer.Option(help="Sentences that may wait, of all requests together.")] = 10_000,
    max_requests: Annotated[int, typer.Option(help="Requests of one client at a time.")] = 64,
    max_seconds: Annotated[float, typer.Option(help="Time for a request.")] = 120.0,
) -> None:
    """Translate over HTTP, for programs (as LibreTranslate does) and on a page at /."""
    from dynctx.serve.limits import Limits

    # oneDNN keeps code for every shape of batch it has met, 1024 of them and more than once: of more than these it
    # is no faster, and months of requests make for all shapes there are
    for name in ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY"):
        os.environ.setdefault(name, "256")
    limits = Limits(max_body, max_sentences, max_characters, max_waiting, max_requests, max_seconds)
    try:
        from dynctx.serve.server import serve as run
    except ModuleNotFoundError as error:
        raise DynctxError(f"dynctx serve needs {error.name}; pip install 'dynctx[serve]' brings it") from None

    from dynctx.model_folder import default_model

    run(model or default_model(), host, port, api_key, selector, beam, batch, int8, device, limits, allow_origin or ())


@app.command()
def info(
    place: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Argument(metavar="[FOLDER_OR_CONFIG]", help="Default: the model that translate would use."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """What a model is: languages, kind, data, scores, licence, size; then its parameters by part."""
    from dynctx.commands_info import show_info

    show_info(place, as_json)


@app.command()
def bench(
    threads: Annotated[int, typer.Option(help="CPU threads.")] = 2,
    repeats: Annotated[int, typer.Option(help="Timed runs of each measurement; the median counts.")] = 3,
) -> None:
    """Speed and memory on a fixed workload, as JSON lines."""
    from dynctx.bench import run

    run(threads, repeats)


# the commands of `dynctx.cli_evaluation` stand beside those of this file
app.registered_commands.extend(evaluation.registered_commands)
app.registered_groups.extend(evaluation.registered_groups)
