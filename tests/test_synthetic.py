"""The made-up language pair: every answer is worked out again here, from the source text and a small dictionary."""

from __future__ import annotations

import re
from collections import Counter, defaultdict

import pytest

from dynctx.documents import Document
from dynctx.synthetic import Sentence, as_documents, decided_accuracy, make_corpus

PRONOUNS = {
    **dict.fromkeys(["dog", "table", "apple", "train", "spoon", "moon"], "er"),
    **dict.fromkeys(["cat", "lamp", "flower", "clock", "bottle", "sun"], "sie"),
    **dict.fromkeys(["horse", "book", "house", "car", "window", "boat"], "es"),
}
ADVERBS = {
    **dict.fromkeys(["forest", "cellar", "kitchen", "garden"], "darin"),
    **dict.fromkeys(["roof", "mountain", "bridge", "island"], "darauf"),
    **dict.fromkeys(["harbour", "market", "station", "border"], "dort"),
}
CORPUS = make_corpus(300, seed=1)


def last_mention(sources: list[str], pattern: str, words: dict[str, str]) -> tuple[str, int] | None:
    """What the last sentence that fits the pattern asks for, and how far back it stands."""
    for distance, source in enumerate(reversed(sources), 1):
        if found := re.fullmatch(pattern, source):
            return words[found[1]], distance
    return None


@pytest.mark.parametrize(("length", "scope"), [(14, 6), (14, 2), (30, 6)])
def test_every_answer_follows_from_the_last_mention(length: int, scope: int) -> None:
    for document in make_corpus(100, seed=2, length=length, scope=scope):
        assert len(document) == length
        sources = [sentence.source for sentence in document]
        for here, sentence in enumerate(document):
            expected = []
            words, target = re.findall(r"\w+", sentence.source), re.findall(r"\w+", sentence.target)
            if "it" in words:
                thing = last_mention(sources[:here], r"the (\w+) is \w+\.", PRONOUNS)
                assert thing is not None and target[0] == thing[0]
                expected.append(thing)
            if "there" in words:
                place = last_mention(sources[:here], r"\w+ sees the (\w+)\.", ADVERBS)
                assert place is not None and target[-1] == place[0]
                expected.append(place)
            assert sentence.decided == expected
            assert all(1 <= distance <= scope for _, distance in expected)


def test_articles_agree_with_pronouns() -> None:
    """der, die and das stand before what er, sie and es stand for: a sentence alone tells the gender."""
    articles = {"er": "der", "sie": "die", "es": "das"}
    met = set()
    for document in CORPUS:
        for sentence in document:
            if found := re.fullmatch(r"the (\w+) is \w+\.", sentence.source):
                assert sentence.target.split()[0] == articles[PRONOUNS[found[1]]]
                met.add(found[1])
    assert met == PRONOUNS.keys()


def test_what_nothing_decides_has_one_translation_and_the_rest_has_three() -> None:
    translations: dict[str, set[str]] = defaultdict(set)
    decided: dict[str, int] = {}
    for document in CORPUS:
        for sentence in document:
            translations[sentence.source].add(sentence.target)
            assert decided.setdefault(sentence.source, len(sentence.decided)) == len(sentence.decided)
    for source, targets in translations.items():
        assert len(targets) <= 3 ** decided[source]
        if not decided[source]:
            assert len(targets) == 1
    assert len(translations["it waits."]) == 3
    assert len(translations["it waits there."]) == 9


def test_no_one_two_deciding_sentences_at_every_distance() -> None:
    sentences = [sentence for document in CORPUS for sentence in document]
    sizes = Counter(len(sentence.deciding) for sentence in sentences)
    assert sizes.keys() == {0, 1, 2}
    assert min(sizes.values()) > 0.1 * len(sentences)
    for words in (set(PRONOUNS.values()), set(ADVERBS.values())):
        distances = Counter(d for s in sentences for word, d in s.decided if word in words)
        assert distances.keys() == {1, 2, 3, 4, 5, 6}
        assert min(distances.values()) >= 10
    # guessing is right one time in three: no answer is much more common than the others
    answers = Counter(word for sentence in sentences for word, _ in sentence.decided)
    for words in ({"er", "sie", "es"}, {"darin", "darauf", "dort"}):
        total = sum(answers[word] for word in words)
        assert all(answers[word] / total == pytest.approx(1 / 3, abs=0.06) for word in words)


def test_a_corpus_is_a_function_of_its_seed() -> None:
    assert make_corpus(5, seed=1) == make_corpus(5, seed=1) == CORPUS[:5]
    assert make_corpus(5, seed=2) != make_corpus(5, seed=1)
    first, second = make_corpus(2, seed=1)
    assert first != second


def test_as_documents() -> None:
    source, target = as_documents(CORPUS[:3])
    assert [document.id for document in source] == [document.id for document in target] == ["1", "2", "3"]
    for sentences, english, german in zip(CORPUS, source, target):
        assert english.sentences == tuple(sentence.source for sentence in sentences)
        assert german.sentences == tuple(sentence.target for sentence in sentences)


def test_decided_accuracy() -> None:
    corpus = [
        [
            Sentence("the lamp is old.", "die Lampe ist alt."),
            Sentence("it waits.", "sie wartet.", [("sie", 1)]),
            Sentence("anna sees the roof.", "anna sieht Dach."),
            Sentence("it sings there.", "sie singt darauf.", [("sie", 3), ("darauf", 1)]),
        ],
        [
            Sentence("the dog is old.", "der Hund ist alt."),
            Sentence("it falls.", "er fällt.", [("er", 1)]),
        ],
    ]
    translations = [
        # sie: right; sie: wrong, though it stands in the sentence before; darauf: right
        Document("1", ("falsch.", "sie singt.", "sie sie.", "es singt darauf.")),
        Document("2", ("er", "der Hund fällt.")),  # er: wrong, a part of another word is not the word
    ]
    assert decided_accuracy(corpus, translations) == 2 / 4
    assert decided_accuracy(corpus[:1], translations[:1]) == 2 / 3
    assert decided_accuracy(corpus, as_documents(corpus)[1]) == 1.0
    assert decided_accuracy([corpus[0][:1]], [Document("1", ("",))]) == 0.0  # nothing is decided here


def test_the_references_are_right_and_the_sources_are_wrong() -> None:
    source, target = as_documents(CORPUS)
    assert decided_accuracy(CORPUS, target) == 1.0
    assert decided_accuracy(CORPUS, source) == 0.0
