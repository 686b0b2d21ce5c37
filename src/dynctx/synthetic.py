"""A small language pair with known answers: what an earlier sentence decides, and which one.

English-like sentences with German-like translations. "it" is translated er, sie or es, by the gender of the last
thing that was mentioned; "there" is translated darin, darauf or dort, by the kind of the last place. A sentence is
thus decided by no earlier sentence, by one, or by two, at any distance up to the scope, and a model that sees single
sentences can do no better than guess among three.

    the lamp is old.        die Lampe ist alt.
    anna laughs.            anna lacht.
    it waits.               sie wartet.            decided by the sentence at distance 2

In the harder `counted` corpus a number says how many sentences ago the thing or place was mentioned. A selector knows
distances; a translator that reads the selected sentences as one text hardly does, so every sentence it is given beyond
the deciding ones is one more that may mislead it.

    the lamp sees the roof.       die Lampe sieht Dach.
    the dog waits there one.      der Hund wartet darauf.    decided by the sentence at distance 1
    it two sees the harbour.      sie sieht Hafen.           decided by the sentence at distance 2
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field

from dynctx.documents import Document

THINGS = {
    "er": ["dog Hund", "table Tisch", "apple Apfel", "train Zug", "spoon Löffel", "moon Mond"],
    "sie": ["cat Katze", "lamp Lampe", "flower Blume", "clock Uhr", "bottle Flasche", "sun Sonne"],
    "es": ["horse Pferd", "book Buch", "house Haus", "car Auto", "window Fenster", "boat Boot"],
}
ARTICLES = {"er": "der", "sie": "die", "es": "das"}
PLACES = {
    "darin": ["forest Wald", "cellar Keller", "kitchen Küche", "garden Garten"],
    "darauf": ["roof Dach", "mountain Berg", "bridge Brücke", "island Insel"],
    "dort": ["harbour Hafen", "market Markt", "station Bahnhof", "border Grenze"],
}
NUMBERS = ["one", "two", "three", "four", "five", "six"]
PEOPLE = ["anna", "ben", "clara", "david", "emma", "felix"]
VERBS = ["sleeps schläft", "waits wartet", "falls fällt", "sings singt", "burns brennt", "laughs lacht"]
ADJECTIVES = ["old alt", "new neu", "big groß", "small klein", "red rot", "quiet still"]


@dataclass
class Sentence:
    source: str
    target: str
    # the words that an earlier sentence decides, as (word of the target, distance of the sentence)
    decided: list[tuple[str, int]] = field(default_factory=list)

    @property
    def deciding(self) -> set[int]:
        return {distance for _, distance in self.decided}


def make_document(rng: random.Random, length: int, scope: int) -> list[Sentence]:
    sentences: list[Sentence] = []
    thing: tuple[str, int] | None = None  # its pronoun, and the sentence that mentions it
    place: tuple[str, int] | None = None
    for here in range(length):
        known = [
            None if mentioned is None or here - mentioned[1] > scope else mentioned for mentioned in (thing, place)
        ]
        kinds = ["thing", "place", "person"] + ["it"] * 2 * bool(known[0]) + ["there"] * 2 * bool(known[1])
        kinds += ["both"] * 3 * all(known)
        kind = rng.choice(kinds)
        verb, acts = rng.choice(VERBS).split()
        person = rng.choice(PEOPLE)
        if kind == "thing":
            pronoun = rng.choice(list(THINGS))
            noun, nomen = rng.choice(THINGS[pronoun]).split()
            adjective, eigen = rng.choice(ADJECTIVES).split()
            article = ARTICLES[pronoun]
            sentences.append(Sentence(f"the {noun} is {adjective}.", f"{article} {nomen} ist {eigen}."))
            thing = (pronoun, here)
        elif kind == "place":
            adverb = rng.choice(list(PLACES))
            noun, nomen = rng.choice(PLACES[adverb]).split()
            sentences.append(Sentence(f"{person} sees the {noun}.", f"{person} sieht {nomen}."))
            place = (adverb, here)
        elif kind == "person":
            sentences.append(Sentence(f"{person} {verb}.", f"{person} {acts}."))
        else:
            source, target, decided = [], [], []
            if kind in ("it", "both") and known[0]:
                source, target = ["it"], [known[0][0]]
                decided.append((known[0][0], here - known[0][1]))
            else:
                source, target = [person], [person]
            source, target = [*source, verb], [*target, acts]
            if kind in ("there", "both") and known[1]:
                source, target = [*source, "there"], [*target, known[1][0]]
                decided.append((known[1][0], here - known[1][1]))
            sentences.append(Sentence(" ".join(source) + ".", " ".join(target) + ".", decided))
    return sentences


def make_counted_document(rng: random.Random, length: int, scope: int) -> list[Sentence]:
    sentences: list[Sentence] = []
    things: dict[int, str] = {}  # by the sentence that mentions it: its pronoun
    places: dict[int, str] = {}
    for here in range(length):
        near = [[at for at in known if here - at <= scope] for known in (things, places)]
        subject = rng.choice(["thing"] * 2 + ["person"] * 2 + ["it"] * 3 * bool(near[0]))
        predicate = rng.choice(["place"] * 2 + ["verb"] * 2 + ["there"] * 3 * bool(near[1]))
        verb, acts = rng.choice(VERBS).split()
        decided = []
        if subject == "thing":
            things[here] = rng.choice(list(THINGS))
            noun, nomen = rng.choice(THINGS[things[here]]).split()
            source, target = f"the {noun}", f"{ARTICLES[things[here]]} {nomen}"
        elif subject == "it":
            at = rng.choice(near[0])
            source, target = f"it {NUMBERS[here - at - 1]}", things[at]
            decided.append((things[at], here - at))
        else:
            source = target = rng.choice(PEOPLE)
        if predicate == "place":
            places[here] = rng.choice(list(PLACES))
            noun, nomen = rng.choice(PLACES[places[here]]).split()
            source, target = f"{source} sees the {noun}.", f"{target} sieht {nomen}."
        elif predicate == "there":
            at = rng.choice(near[1])
            source, target = f"{source} {verb} there {NUMBERS[here - at - 1]}.", f"{target} {acts} {places[at]}."
            decided.append((places[at], here - at))
        else:
            source, target = f"{source} {verb}.", f"{target} {acts}."
        sentences.append(Sentence(source, target, decided))
    return sentences


def make_corpus(
    documents: int, seed: int, length: int = 14, scope: int = 6, counted: bool = False
) -> list[list[Sentence]]:
    rng = random.Random(seed)
    make = make_counted_document if counted else make_document
    return [make(rng, length, scope) for _ in range(documents)]


def as_documents(corpus: list[list[Sentence]]) -> tuple[list[Document], list[Document]]:
    """Source and target side."""
    source = [Document(str(n), tuple(s.source for s in sentences)) for n, sentences in enumerate(corpus, 1)]
    target = [Document(str(n), tuple(s.target for s in sentences)) for n, sentences in enumerate(corpus, 1)]
    return source, target


def decided_accuracy(corpus: list[list[Sentence]], translations: list[Document]) -> float:
    """The share of decided words that stand in the translation."""
    right = total = 0
    for sentences, document in zip(corpus, translations):
        for sentence, translation in zip(sentences, document.sentences):
            words = re.findall(r"\w+", translation)
            for word, _ in sentence.decided:
                total += 1
                right += word in words
    return right / max(1, total)
