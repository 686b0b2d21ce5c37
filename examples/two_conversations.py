"""Two conversations in one stream: lay pairs of documents into each other, as two talks in one chat room.

    python examples/two_conversations.py SOURCE TARGET -o data/mixed/train [--documents 64] [--seed 1]
    python examples/two_conversations.py SOURCE TARGET -o data/quoted/train --quoting SOURCE TARGET --share 0.25

Which of two documents goes on is drawn line by line, so that of the lines before a line about half belong to the other
conversation, and nothing but their words tells which. So the right context is known: a selector that chooses takes the
lines of a line's own conversation (OUTPUT.own.jsonl, for the selector `fixed OUTPUT.own.jsonl`).

A document is paired with one that stands half of all documents away from it: neighbours may be episodes of one series.
With --quoting, each is instead laid into as many lines of another corpus as make up that share of the stream.

Writes OUTPUT.source and OUTPUT.target with blank lines between documents, OUTPUT.own.jsonl, OUTPUT.values.jsonl, which
says the same as values to learn from (labels.train, labels.dev): 1 for a line of the same conversation, else -1, and
OUTPUT.whose, with a 0 for each line of the first conversation, a 1 for each of the second, and the same blank lines.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from dynctx.documents import Document, read_parallel, write_documents
from dynctx.errors import DynctxError
from dynctx.files import atomic_write

SCOPE = 6
Pair = tuple[Document, Document]  # source and target


def turns(lengths: tuple[int, int], rng: random.Random) -> list[int]:
    """Whose turn it is, 0 or 1, line by line; every way to lay the two into each other is as likely as any other."""
    drawn = [0] * lengths[0] + [1] * lengths[1]
    rng.shuffle(drawn)
    return drawn


def own_lines(drawn: list[int], scope: int = SCOPE) -> list[list[int]]:
    """For each line the distances, up to the scope, of the lines of its own conversation."""
    return [
        [distance for distance in range(1, min(scope, place) + 1) if drawn[place - distance] == whose]
        for place, whose in enumerate(drawn)
    ]


def values(drawn: list[int], scope: int = SCOPE) -> list[dict[str, int]]:
    """The same as what each line before is worth, beside none of them."""
    return [
        {"none": 0} | {str(d): 1 if d in own else -1 for d in range(1, min(scope, place) + 1)}
        for place, own in enumerate(own_lines(drawn, scope))
    ]


def merged(documents: tuple[Document, Document], drawn: list[int]) -> Document:
    lines = [iter(document.sentences) for document in documents]
    return Document("+".join(str(document.id) for document in documents), tuple(next(lines[whose]) for whose in drawn))


def halves(pairs: list[Pair]) -> Iterator[tuple[Pair, Pair]]:
    """Each document of the first half with one of the second."""
    half = len(pairs) // 2
    return zip(pairs[:half], pairs[half:])


def quoting(pairs: list[Pair], others: Iterator[Pair], share: float) -> Iterator[tuple[Pair, Pair]]:
    """Each document with the next lines of another corpus, which are to be such a share of both."""
    lines = (line for source, target in others for line in zip(source.sentences, target.sentences))
    for number, pair in enumerate(pairs):
        wanted = round(len(pair[0].sentences) * share / (1 - share))
        taken = list(islice(lines, wanted))
        if len(taken) < wanted:
            raise DynctxError(f"the other corpus has too few lines: they are used up after {number} documents")
        source, target = (Document("quoted", tuple(line[side] for line in taken)) for side in (0, 1))
        yield pair, (source, target)


def main() -> None:
    parser = argparse.ArgumentParser(description="Lay pairs of documents into each other.")
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--documents", type=int, default=0, help="only the first so many; 0: all")
    parser.add_argument("--quoting", nargs=2, metavar=("SOURCE", "TARGET"), help="the second conversation's corpus")
    parser.add_argument("--share", type=float, default=0.25, help="of its lines in the stream")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    if not 0 < asked.share < 1:
        parser.error(f"--share {asked.share}: expected a number between 0 and 1")
    rng = random.Random(asked.seed)
    pairs = list(islice(read_parallel(asked.source, asked.target), asked.documents or None))
    both = quoting(pairs, read_parallel(*asked.quoting), asked.share) if asked.quoting else halves(pairs)
    sources, targets, own, worth, whose = [], [], [], [], []
    for one, other in both:
        drawn = turns((len(one[0].sentences), len(other[0].sentences)), rng)
        sources.append(merged((one[0], other[0]), drawn))
        targets.append(merged((one[1], other[1]), drawn))
        own += own_lines(drawn)
        worth += values(drawn)
        whose.append(Document("", tuple(map(str, drawn))))
    Path(asked.output).parent.mkdir(parents=True, exist_ok=True)
    for suffix, documents in ((".source", sources), (".target", targets), (".whose", whose)):
        write_documents(documents, asked.output + suffix)
    with atomic_write(asked.output + ".own.jsonl") as file:
        file.writelines(json.dumps({"selected": distances}) + "\n" for distances in own)
    with atomic_write(asked.output + ".values.jsonl") as file:
        file.writelines(json.dumps(line) + "\n" for line in worth)
    mean = sum(map(len, own)) / max(1, len(own))
    print(
        f"{len(own):,} lines in {len(sources)} documents; of the {SCOPE} before one {mean:.2f} are of its conversation"
    )


if __name__ == "__main__":
    try:
        main()
    except DynctxError as error:
        raise SystemExit(f"two_conversations: {error}") from None
