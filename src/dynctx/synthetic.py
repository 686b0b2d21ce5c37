"""A small language pair with known answers: what an earlier sentence decides, and which one.

English-like sentences with German-like translations. "it" is translated er, sie or es, by the gender of the last
thing that was mentioned; "there" is translated darin, darauf or dort, by the kind of the last place. A sentence is
thus decided by no earlier sentence, by one, or by two, at any distance up to the scope, and a model that sees single
sentences can do no better than guess among three.

    the lamp is old.        die Lampe ist alt.
    anna laughs.            anna lacht.
    it waits.               sie wartet.            decided by the sentence at distance 2

In the harder `owned` corpus things and places belong to people, and what decides is not what was said last but what was
said of the same person. There, every other sentence that a translator is given is one more that may mislead it.

    anna has a lamp.        anna hat eine Lampe.
    ben has a dog.          ben hat einen Hund.
    anna paints it.         anna malt sie.         decided by the sentence at distance 2
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
HAVING = {"er": ("einen", "ihn"), "sie": ("eine", "sie"), "es": ("ein", "es")}  # article and pronoun of what one has
PLACES = {
    "darin": ["forest Wald", "cellar Keller", "kitchen Küche", "garden Garten"],
    "darauf": ["roof Dach", "mountain Berg", "bridge Brücke", "island Insel"],
    "dort": ["harbour Hafen", "market Markt", "station Bahnhof", "border Grenze"],
}
PEOPLE = ["anna", "ben", "clara", "david", "emma", "felix"]
VERBS = ["sleeps schläft", "waits wartet", "falls fällt", "sings singt", "burns brennt", "laughs lacht"]
DEEDS = ["paints malt", "hides versteckt", "sells verkauft", "finds findet"]  # what one does with a thing
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


def make_owned_document(rng: random.Random, length: int, scope: int) -> list[Sentence]:
    sentences: list[Sentence] = []
    things: dict[str, tuple[str, int]] = {}  # of each person: the pronoun of the thing, and where it is mentioned
    places: dict[str, tuple[str, int]] = {}
    for here in range(length):
        # what is still within reach; nobody is given a second one before the first is out of it
        things = {person: it for person, it in things.items() if here - it[1] <= scope}
        places = {person: there for person, there in places.items() if here - there[1] <= scope}
        both = sorted(things.keys() & places.keys())
        asked = [("it", p) for p in things] + [("there", p) for p in places] + [("both", p) for p in both] * 2
        told = [(kind, p) for p in PEOPLE for kind, known in (("thing", things), ("place", places)) if p not in known]
        choices = [[("nothing", rng.choice(PEOPLE))], told, told, asked, asked]
        kind, person = rng.choice(rng.choice([some for some in choices if some]))
        if kind == "nothing":
            verb, acts = rng.choice(VERBS).split()
            sentences.append(Sentence(f"{person} {verb}.", f"{person} {acts}."))
        elif kind == "thing":
            gender = rng.choice(list(THINGS))
            noun, nomen = rng.choice(THINGS[gender]).split()
            article, pronoun = HAVING[gender]
            sentences.append(Sentence(f"{person} has a {noun}.", f"{person} hat {article} {nomen}."))
            things[person] = (pronoun, here)
        elif kind == "place":
            adverb = rng.choice(list(PLACES))
            noun, nomen = rng.choice(PLACES[adverb]).split()
            sentences.append(Sentence(f"{person} sees the {noun}.", f"{person} sieht {nomen}."))
            places[person] = (adverb, here)
        else:
            verb, acts = rng.choice(DEEDS if kind != "there" else VERBS).split()
            source, target, decided = [person, verb], [person, acts], []
            if kind != "there":
                source, target = [*source, "it"], [*target, things[person][0]]
                decided.append((things[person][0], here - things[person][1]))
            if kind != "it":
                source, target = [*source, "there"], [*target, places[person][0]]
                decided.append((places[person][0], here - places[person][1]))
            sentences.append(Sentence(" ".join(source) + ".", " ".join(target) + ".", decided))
    return sentences


def make_corpus(
    documents: int, seed: int, length: int = 14, scope: int = 6, owned: bool = False
) -> list[list[Sentence]]:
    rng = random.Random(seed)
    make = make_owned_document if owned else make_document
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
