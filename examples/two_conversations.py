"""Two conversations in one stream: lay pairs of documents into each other, as two talks in one chat room.

    python examples/two_conversations.py SOURCE TARGET -o data/mixed/train [--documents 64] [--seed 1]

Which of two documents goes on is drawn line by line, so that of the lines before a line about half belong to the other
conversation, and nothing but their words tells which. So the right context is known: a selector that chooses takes the
lines of a line's own conversation (OUTPUT.own.jsonl, for the selector `fixed OUTPUT.own.jsonl`).

Writes OUTPUT.source and OUTPUT.target with blank lines between documents, OUTPUT.own.jsonl, and OUTPUT.values.jsonl,
which says the same as values to learn from (labels.train, labels.dev): 1 for a line of the same conversation, else -1.
A document is paired with one that stands half of all documents away from it: neighbours may be episodes of one series.
"""

from __future__ import annotations

import argparse
import json
import random
from itertools import islice
from pathlib import Path

from dynctx.documents import Document, read_parallel, write_documents
from dynctx.files import atomic_write

SCOPE = 6


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


def main() -> None:
    parser = argparse.ArgumentParser(description="Lay pairs of documents into each other.")
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--documents", type=int, default=0, help="only the first so many; 0: all")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    pairs = list(islice(read_parallel(asked.source, asked.target), asked.documents or None))
    half, rng = len(pairs) // 2, random.Random(asked.seed)
    sources, targets, own, worth = [], [], [], []
    for one, other in zip(pairs[:half], pairs[half:]):
        drawn = turns((len(one[0].sentences), len(other[0].sentences)), rng)
        sources.append(merged((one[0], other[0]), drawn))
        targets.append(merged((one[1], other[1]), drawn))
        own += own_lines(drawn)
        worth += values(drawn)
    Path(asked.output).parent.mkdir(parents=True, exist_ok=True)
    write_documents(sources, asked.output + ".source")
    write_documents(targets, asked.output + ".target")
    with atomic_write(asked.output + ".own.jsonl") as file:
        file.writelines(json.dumps({"selected": distances}) + "\n" for distances in own)
    with atomic_write(asked.output + ".values.jsonl") as file:
        file.writelines(json.dumps(line) + "\n" for line in worth)
    mean = sum(map(len, own)) / max(1, len(own))
    print(f"{len(own):,} lines in {half} documents; of the {SCOPE} before one {mean:.2f} are of its own conversation")


if __name__ == "__main__":
    main()
