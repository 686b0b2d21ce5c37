"""A contrastive set of dropped pronouns, from any Chinese-English corpus.

Chinese leaves the subject out where it is understood; English must say he, she, they. What it should say, an earlier
sentence often decides. An item is a sentence pair whose reference has one subject pronoun that its source does not
have; its candidates are the reference with that pronoun exchanged. The rules are those of RULES, applied in this
order, and the counts of what each left out are part of the result. docs/evaluation.md explains each.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from dynctx.documents import Document
from dynctx.errors import DynctxError
from dynctx.evaluation.contrastive_sets import Item
from dynctx.evaluation.english_subjects import SUBJECTS, Subject, exchanges, find_subject, words

# the pronouns of the source, the longer ones first, and the English person of each
PERSONS = {
    "我们": "we", "咱们": "we", "俺们": "we", "咱": "we", "你们": "you", "您": "you", "你": "you", "妳": "you",
    "他们": "they", "她们": "they", "它们": "they", "我": "I", "俺": "I", "他": "he", "她": "she", "它": "it",
}  # fmt: skip
PRONOUN = re.compile("|".join(PERSONS))
UNCLEAR = re.compile("自己|人家|大家|各位|彼此|本人|双方|[谁吾汝牠祂]")  # somebody is named, but not which person
POINTERS = re.compile("[这那此该]")  # "this", "that": in English often "it" or "they"
CHINESE = re.compile("[\u3400-\u9fff]")
SENTENCE_END = re.compile(r"[.?!…][\"'”’)\]]*$")

# set phrases, which no context decides; the pronoun and what follows, as words in lower case
PHRASES = (
    "you know", "you see", "you mean", "i mean", "i guess", "i think", "i see", "i know",
    "i'm afraid", "i promise", "i swear", "i bet", "i hope", "i beg", "i suppose", "you're welcome", "you bet",
    "you too", "you're right", "you're kidding", "are you sure", "are you okay", "are you all right", "you okay",
    "you all right", "how are you", "excuse you", "here you go", "there you go", "here we go", "here it is",
    "there it is", "that's it",
)  # fmt: skip
# "it" that stands for nothing: by the word after its verb, by the verb, or by any later word
EMPTY_IT = words(
    "okay ok alright all right fine good great nice bad late early time true possible impossible clear hard easy cold "
    "hot dark over important like just only not no called me us"
)
EMPTY_IT_VERBS = words("seems seemed looks looked takes took turns turned feels felt sounds means depends")
EMPTY_IT_LATER = words("rain rains raining snow snows snowing matter matters mattered")

RULES = (
    "empty line",
    "no sentence before it in the document",
    "no subject pronoun in the reference",
    "several subject pronouns in the reference",
    "an unknown contraction",
    "nothing follows the pronoun",
    "the same person again in the reference",
    "the source names somebody that the rest of the reference does not",
    "it or they, and the source points at something",
    "the reference is not a whole sentence",
    "the reference before it is not a whole sentence",
    "too short or lengths too different",
    "a set phrase",
    "an it that stands for nothing",
    "fewer than two candidates",
    "the same pair stands in the set already",
)


@dataclass
class PronounSet:
    """Items of the two parts, and what was left out and why."""

    dev: list[Item] = field(default_factory=list)
    test: list[Item] = field(default_factory=list)
    offered: dict[Item, tuple[str, ...]] = field(default_factory=dict)  # the pronouns of each item's candidates
    left_out: Counter[str] = field(default_factory=Counter)
    pairs: int = 0
    documents: int = 0

    def counts(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "documents": self.documents,
            "pairs": self.pairs,
            "left_out": {rule: self.left_out[rule] for rule in RULES if self.left_out[rule]},
        }
        for name, items in (("dev", self.dev), ("test", self.test)):
            by_pronoun = Counter(item.kind for item in items)
            found[name] = {
                "items": len(items),
                "candidates": sum(len(item.candidates) for item in items),
                "by_pronoun": {pronoun: by_pronoun[pronoun] for pronoun in SUBJECTS if by_pronoun[pronoun]},
                "chance": sum(1 / len(item.candidates) for item in items) / len(items) if items else None,
                "most_frequent": frequent(items, self.offered),
            }
        return found

    def to_text(self) -> str:
        counts = self.counts()
        lines = [f"{self.pairs:,} sentence pairs in {self.documents:,} documents; left out:"]
        lines += [f"  {count:>8,}  {rule}" for rule, count in counts["left_out"].items()]
        for name in ("dev", "test"):
            part = counts[name]
            shown = ", ".join(f"{pronoun} {count:,}" for pronoun, count in part["by_pronoun"].items())
            lines.append(f"{name}: {part['items']:,} items, {part['candidates']:,} candidates ({shown})")
            if part["items"]:
                lines.append(
                    f"  chance {100 * part['chance']:.1f} %, always the most frequent pronoun that is offered "
                    f"{100 * part['most_frequent']:.1f} %"
                )
        return "\n".join(lines)


def frequent(items: list[Item], offered: dict[Item, tuple[str, ...]]) -> float | None:
    """The accuracy of whoever takes, of the pronouns an item offers, the one that is true most often in the part."""
    if not items:
        return None
    count = Counter(item.kind for item in items)
    best = (max(offered[item], key=lambda pronoun: (count[pronoun], -SUBJECTS.index(pronoun))) for item in items)
    return sum(pronoun == item.kind for pronoun, item in zip(best, items)) / len(items)


def build(documents: Iterable[tuple[Document, Document]], scope: int = 6, every: int = 4) -> PronounSet:
    """Go through a corpus. Every `every`th document, from the first, is of the dev part; the others are of the test."""
    if scope < 1 or every < 2:
        raise DynctxError(f"scope {scope} must be at least 1, and every {every}th document for dev at least 2")
    found = PronounSet()
    met: set[tuple[str, str]] = set()
    for number, (source, target) in enumerate(documents):
        part, name = (found.dev, "dev") if number % every == 0 else (found.test, "test")
        found.documents += 1
        for place in range(len(source.sentences)):
            found.pairs += 1
            made = _item(source.sentences, target.sentences, place, scope, f"pronouns_{name}")
            if isinstance(made, str):
                found.left_out[made] += 1
                continue
            item, pronouns = made
            pair = (item.source, item.candidates[item.true])
            if pair in met:
                found.left_out[RULES[-1]] += 1
                continue
            met.add(pair)
            part.append(item)
            found.offered[item] = pronouns
    return found


def _item(
    sources: tuple[str, ...], references: tuple[str, ...], place: int, scope: int, name: str
) -> tuple[Item, tuple[str, ...]] | str:
    """The item that a sentence makes and the pronouns it offers, or the rule that leaves it out."""
    source, reference = sources[place].strip(), references[place].strip()
    if not source or not reference:
        return "empty line"
    if place == 0:
        return "no sentence before it in the document"
    named = Counter(PERSONS[match] for match in PRONOUN.findall(source))
    subject = find_subject(reference, named)
    if isinstance(subject, str):
        return subject
    # every pronoun of the source must be another one of the reference: then the subject is the one that was dropped
    if UNCLEAR.search(source) or named - Counter(subject.others):
        return "the source names somebody that the rest of the reference does not"
    if subject.pronoun in ("it", "they") and POINTERS.search(source):
        return "it or they, and the source points at something"
    if not SENTENCE_END.search(reference) or not reference.lstrip("\"'“‘-– ")[:1].isupper():
        return "the reference is not a whole sentence"
    if not SENTENCE_END.search(references[place - 1].strip()):
        return "the reference before it is not a whole sentence"
    characters, length = len(CHINESE.findall(source)), len(subject.words)
    if characters < 2 or length < 3 or length > 2 * characters + 2 or characters > 4 * length:
        return "too short or lengths too different"
    if is_phrase(subject):
        return "a set phrase"
    if subject.pronoun == "it" and stands_for_nothing(subject):
        return "an it that stands for nothing"
    candidates = exchanges(subject)
    if len(candidates) < 2:
        return "fewer than two candidates"
    first = max(0, place - scope)
    before = tuple(references[first:place])
    order = tuple(pronoun for pronoun in SUBJECTS if pronoun in candidates)
    texts = tuple(candidates[pronoun] for pronoun in order)
    item = Item(
        tuple(sources[first:place]),
        source,
        (before,) * len(texts),
        texts,
        order.index(subject.pronoun),
        None,
        name,
        subject.pronoun,
    )
    return item, order


def is_phrase(subject: Subject) -> bool:
    """Whether the subject stands in a set phrase, or is sorry."""
    found = [subject.word(number).lower() for number in range(len(subject.words))]
    if "sorry" in found[subject.at + 1 : subject.at + 4]:
        return True
    for phrase in map(str.split, PHRASES):
        for first in range(max(0, subject.at - len(phrase) + 1), subject.at + 1):
            if found[first : first + len(phrase)] == phrase:
                return True
    return False


def stands_for_nothing(subject: Subject) -> bool:
    """ "It is raining", "it seems": there is nothing that "it" could be exchanged with."""
    after = [subject.word(number).lower() for number in range(subject.at + 1, len(subject.words))]
    if after[0] in EMPTY_IT_VERBS or EMPTY_IT_LATER.intersection(after):
        return True
    if subject.ending == "'s" or subject.inverted:
        return after[0] in EMPTY_IT
    return after[0] in ("is", "was", "isn't", "wasn't") and len(after) > 1 and after[1] in EMPTY_IT
