"""Of a table's translations of two conversations in one stream, those of one: files to score by themselves.

    python examples/one_conversation.py RESULTS/TABLE.translations.json data/quoting/test 0 -o data/quoting/dialogue
    dynctx compare data/quoting/dialogue/none.jsonl ... --reference data/quoting/dialogue/reference.jsonl

The second argument is what examples/two_conversations.py was told to write; the third is the conversation, 0 or
1 (or what else OUTPUT.whose has; several, as in 2,3, are kept together).
Writes a file for each row of the table, by its name, and one of the references.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

from dynctx.documents import Document, read_documents, write_jsonl


def kept(documents: list[list[str]], whose: list[Document], which: str) -> list[Document]:
    """The lines of one conversation; `whose` says of each line which one it is of. Documents without are left out."""
    found = []
    for lines, about in zip(documents, whose, strict=True):
        if own := tuple(line for line, owner in zip(lines, about.sentences, strict=True) if owner in which.split(",")):
            found.append(Document(about.id, own))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="The translations of one of two conversations.")
    parser.add_argument("translations")
    parser.add_argument("stream")
    parser.add_argument("conversation")
    parser.add_argument("-o", "--output", type=Path, required=True)
    asked = parser.parse_args()
    whose = list(read_documents(asked.stream + ".whose"))
    rows = json.loads(Path(asked.translations).read_text(encoding="utf-8"))["rows"]
    rows["reference"] = [list(document.sentences) for document in read_documents(asked.stream + ".target")]
    asked.output.mkdir(parents=True, exist_ok=True)
    for name, documents in rows.items():
        place = asked.output / f"{re.sub(r'[^a-z0-9]+', '-', name.removesuffix(' / 1').lower())}.jsonl"
        write_jsonl(kept(documents, whose, asked.conversation), place)
        print(place)


if __name__ == "__main__":
    main()
