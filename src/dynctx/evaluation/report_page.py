"""The report as one self-contained page: no script, no font and no image from elsewhere, light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from dynctx.evaluation.oracle import LARGEST_SCOPE
from dynctx.evaluation.report import Facts, Run
from dynctx.evaluation.report_figures import Drawn

EXAMPLES = 8  # shown of each kind

STYLE = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1f2328; --soft: #57606a; --line: #d0d7de;
  --tint: #f3f5f8; --mark: #fff3c4; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171c; --ink: #e3e7ec; --soft: #9aa4af; --line: #343b45;
  --tint: #1d222a; --mark: #4d4215; } }
body { margin: 0 auto; max-width: 60rem; padding: 1.5rem; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; overflow-wrap: anywhere; } h2 { font-size: 1.2rem; margin-top: 2.4rem; }
p.soft, figcaption, td.soft { color: var(--soft); } figure { margin: 1rem 0; }
figure svg { width: 100%; height: auto; max-width: 44rem; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(22rem, 100%), 1fr)); gap: 1rem; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
td.n, th.n { text-align: right; } dt { font-weight: 600; margin-top: .5rem; } dd { margin-left: 1rem; }
.example { border: 1px solid var(--line); border-radius: .5rem; padding: .6rem .9rem; margin: .7rem 0; }
.example table { width: 100%; } .example td:first-child { white-space: nowrap; color: var(--soft); width: 7rem; }
.side { background: var(--tint); border-radius: .4rem; padding: .4rem .7rem; } .side p { margin: 0; }
tr.chosen td { background: var(--mark); } details summary { cursor: pointer; }
""".strip()

WORDS = """
<dl>
<dt>Context</dt><dd>The sentences before the one being translated. At most {scope} of them are candidates.</dd>
<dt>Selection</dt><dd>Those of the candidates that the translator was given. It may be empty: many sentences can be
translated well on their own.</dd>
<dt>Distance</dt><dd>How many sentences back a candidate stands; 1 is the sentence just before.</dd>
<dt>BLEU, chrF</dt><dd>How much a translation has in common with a person's translation, the reference, 0 to 100.
Document BLEU counts over whole documents.</dd>
<dt>Reward</dt><dd>How easily the model says the reference, 0 to 1: what the selection was trained by. It needs no
translating, and sees changes that BLEU is too coarse for.</dd>
<dt>Oracle</dt><dd>The best of all possible selections, found by trying them all against the reference. Nobody can do
this in use; it shows how much a selection could gain at most.</dd>
</dl>
""".strip()


def page(facts: Facts, figures: Sequence[Drawn], model: str, split: str, examples: int = EXAMPLES) -> str:
    """examples: translations shown of each kind; without any, no text of the corpus is on the page."""
    drawn = {figure.name: figure for figure in figures}
    scope = facts.split.gatherer.scope
    parts = [
        _head(facts, model, split),
        _summary(facts),
        "<h2>Words used here</h2>" + WORDS.format(scope=scope),
        "<h2>Translation quality</h2>" + _scores(facts),
    ]
    if scope:
        parts += [
            "<h2>What was selected</h2>" + _selected(facts),
            f'<div class="pair">{_figure(drawn["sizes"])}{_figure(drawn["reaches"])}</div>',
            _figure(drawn["distances"]),
            "<h2>Along the document</h2>" + _positions_text(facts),
            _figure(drawn["positions"]),
            "<h2>What it changed</h2>" + _changed(facts, facts.none, examples) + _changed(facts, facts.full, examples),
            "<h2>Reward against BLEU</h2>"
            "<p>Each dot is a sentence with something selected: how its selection changed the reward and the BLEU of "
            "its translation, compared with no context. If the reward is a good guide, dots lie to the upper right and "
            "the lower left.</p>",
            _figure(drawn["reward-bleu"]),
            "<h2>The oracle</h2>" + _oracle(facts),
            _figure(drawn["oracle"]) if facts.oracle is not None else "",
        ]
    parts += ["<h2>Cost</h2>" + _cost(facts), _figure(drawn["cost"]), "<h2>How this was made</h2>" + _made(facts)]
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(model)} on {escape(split)}</title>\n<style>\n{STYLE}\n</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def _head(facts: Facts, model: str, split: str) -> str:
    config = facts.split.model.config
    languages = f"{config.data.source_language or '?'} to {config.data.target_language or '?'}"
    return (
        f"<h1>Context selection of {escape(model)}</h1>"
        f'<p class="soft">{escape(config.model.kind)} model, {escape(languages)}; test set {escape(split)}: '
        f"{len(facts.split):,} sentences in {len(facts.split.ids):,} documents; context chosen by "
        f"<b>{escape(facts.selector)}</b></p>"
    )


def _summary(facts: Facts) -> str:
    own, none, full = (run.scores[0].value for run in (facts.own, facts.none, facts.full))
    changed = _different(facts, facts.none)
    sentences = [
        f"With its selection the model has {own:.2f} BLEU, {own - none:+.2f} against no context and {own - full:+.2f} "
        "against all of the context."
    ]
    if facts.split.gatherer.scope:
        sizes = facts.sizes
        sentences.append(
            f"It selected {sizes.mean():.2f} of {facts.candidates.mean():.2f} candidates on average, and nothing at "
            f"all for {100 * (sizes == 0).mean():.1f} % of the sentences. Against no context "
            f"{len(changed):,} translations changed ({100 * len(changed) / max(1, len(facts.filled)):.1f} %)."
        )
        sentences.append(
            f"The context it gave tells {facts.told.cxmi:+.3f} nats about a reference (CXMI; above 0 means that it "
            "helps)."
        )
    else:
        sentences.append("This model reads no context, so there is nothing to select.")
    return f"<p>{' '.join(sentences)}</p>"


def _scores(facts: Facts) -> str:
    names = [score.name for score in facts.own.scores]
    rows = [["context", *names, "mean reward"]]
    for label, run in (("none", facts.none), ("all", facts.full), (f"selected ({facts.selector})", facts.own)):
        rows.append([label, *(f"{score.value:.2f}" for score in run.scores), f"{run.rewards.mean():.4f}"])
    return _table(rows)


def _selected(facts: Facts) -> str:
    sizes, reaches = facts.sizes, facts.reaches
    return (
        f"<p>{100 * (sizes == 0).mean():.1f} % of the sentences got no context (none was selected, or none was there), "
        f"{100 * (sizes <= 3).mean():.1f} % at most three sentences. The mean size is {sizes.mean():.2f}, the mean of "
        f"the greatest distance {reaches.mean():.2f}.</p>"
        '<p class="soft">Kang et al. (2020) report of TDNMT on TED talks from Chinese to English, scope 6: 26.2 % '
        "none, 78.9 % at most three, mean size 2.05, mean greatest distance 2.57.</p>"
    )


def _positions_text(facts: Facts) -> str:
    what = "the probability that the scorer gave each candidate, and to needing none of them"
    if facts.probabilities is None:
        what = "how often each candidate was selected (this selector gives no probabilities)"
    return f"<p>Mean over all documents of {what}, by the place of the sentence in its document.</p>"


def _different(facts: Facts, other: Run) -> list[int]:
    return [s for s in facts.filled.tolist() if facts.own.texts[s] != other.texts[s]]


def _changed(facts: Facts, other: Run, count: int) -> str:
    """The translations that differ most in BLEU from those with no context, or with all of it."""
    changed = _different(facts, other)
    name = "no context" if other is facts.none else "all of the context"
    gains = {s: float(facts.own.sentence_bleu[s] - other.sentence_bleu[s]) for s in changed}
    better = sorted((s for s in changed if gains[s] > 0), key=lambda s: (-gains[s], s))
    worse = sorted((s for s in changed if gains[s] < 0), key=lambda s: (gains[s], s))
    text = (
        f"<h3>Against {name}</h3><p>{len(changed):,} translations differ: {len(better):,} have a higher sentence BLEU "
        f"with the selection, {len(worse):,} a lower one, {len(changed) - len(better) - len(worse):,} the same."
        f"{' The selected sentences are marked.' if count else ''}</p>"
    )
    for title, shown in (("largest gains", better[:count]), ("largest losses", worse[:count])):
        if shown:
            examples = "".join(_example(facts, other, s, gains[s]) for s in shown)
            text += f"<details{' open' if title.endswith('gains') else ''}><summary>The {title}</summary>"
            text += f"{examples}</details>"
    return text


def _example(facts: Facts, other: Run, sentence: int, gain: float) -> str:
    split = facts.split
    document, place = split.place(sentence)
    chosen = facts.selection[sentence]
    candidates = min(len(chosen), place - 1)
    rows = []
    for distance in range(candidates, 0, -1):
        mark = ' class="chosen"' if chosen[distance - 1] else ""
        probability = ""
        if facts.probabilities is not None:
            probability = f" ({facts.probabilities[sentence, distance - 1]:.2f})"
        before = escape(split.sources[sentence - distance])
        rows.append(f"<tr{mark}><td>{distance} before{probability}</td><td>{before}</td></tr>")
    lines = [("source", split.sources[sentence]), ("reference", split.references[sentence])]
    rows += [f"<tr><td>{name}</td><td>{escape(text)}</td></tr>" for name, text in lines]
    where = f"document {escape(document)}, sentence {place}: BLEU {gain:+.1f}"
    sides = "".join(
        f'<div class="side"><p class="soft">with {escape(name)} context</p><p>{escape(text)}</p></div>'
        for name, text in (
            ("no" if other is facts.none else "all of the", other.texts[sentence]),
            ("the selected", facts.own.texts[sentence]),
        )
    )
    table = f'<div class="scroll"><table>{"".join(rows)}</table></div><div class="pair">{sides}</div>'
    return f'<div class="example"><p class="soft">{where}</p>{table}</div>'


def _oracle(facts: Facts) -> str:
    found = facts.oracle
    if found is None:
        return (
            f"<p>Left out: a scope of {facts.split.gatherer.scope:,} sentences has more subsets than can be tried; "
            f"{LARGEST_SCOPE} sentences are the most.</p>"
        )
    rows = [["selection", "mean reward", "the oracle gains", "sentences selected"]]
    rows += [[w.name, f"{w.value:.4f}", f"{w.gain:+.4f}", f"{w.size:.2f}"] for w in found.ways]
    return (
        f"<p>All possible selections of {found.sentences:,} sentences were tried. The empty one was best for "
        f"{100 * found.empty_best:.1f} % of them, and the model's own as good as the best for "
        f"{100 * found.agreement:.1f} %.</p>{_table(rows)}"
    )


def _cost(facts: Facts) -> str:
    none, own = facts.none.sentences_per_second, facts.own.sentences_per_second
    return (
        f"<p>Translating the test set, beam {facts.beam}, on {escape(facts.device)}: {own:,.1f} sentences a second "
        f"with its selection, {none:,.1f} with no context ({none / own:.2f} times as fast). One run each: differences "
        "of a few percent mean nothing.</p>"
    )


def _made(facts: Facts) -> str:
    lines = "".join(f"<li>{escape(s.name)}: <code>{escape(s.signature)}</code></li>" for s in facts.own.scores)
    scored = len(facts.split.scorable)
    skipped = len(facts.split) - scored
    return (
        f"<p>Rewards are means over {scored:,} sentences ({skipped:,} have no source or no reference). "
        f"The seed is {facts.split.model.config.seed}.</p><ul>{lines}</ul>"
    )


def _figure(drawn: Drawn) -> str:
    return f"<figure>{drawn.inline}<figcaption>{escape(drawn.title)}</figcaption></figure>"


def _table(rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th{' class=n' if place else ''}>{escape(cell)}</th>" for place, cell in enumerate(rows[0]))
    body = "".join(
        "<tr>" + "".join(f"<td{' class=n' if place else ''}>{escape(c)}</td>" for place, c in enumerate(row)) + "</tr>"
        for row in rows[1:]
    )
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'
