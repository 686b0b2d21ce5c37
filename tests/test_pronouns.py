"""The pronoun set: every exchange and every rule by an example."""

from __future__ import annotations

import pytest

from dynctx.documents import Document
from dynctx.errors import DynctxError
from dynctx.evaluation.contrastive_sets import Item
from dynctx.evaluation.english_subjects import Subject, exchanges, find_subject
from dynctx.evaluation.pronouns import RULES, build, frequent


def subject(sentence: str) -> Subject:
    found = find_subject(sentence)
    assert isinstance(found, Subject), found
    return found


def exchanged(sentence: str) -> dict[str, str]:
    return exchanges(subject(sentence))


# exchanging


def test_to_be_in_all_its_forms() -> None:
    assert exchanged("He is late.") == {
        "I": "I am late.",
        "you": "You are late.",
        "he": "He is late.",
        "she": "She is late.",
        "it": "It is late.",
        "we": "We are late.",
        "they": "They are late.",
    }
    assert exchanged("They were late.")["I"] == "I was late."
    assert exchanged("I am late.")["they"] == "They are late."


def test_what_is_put_in_is_taken_out_again() -> None:
    """From each candidate the others follow."""
    for sentence in ("He is late.", "Did she call?", "I haven't slept.", "We're going home.", "You never saw Tom."):
        every = exchanged(sentence)
        assert len(every) == 7
        for pronoun, text in every.items():
            assert subject(text).pronoun == pronoun
            assert exchanged(text) == every


@pytest.mark.parametrize(
    ("sentence", "pronoun", "expected"),
    [
        ("He has gone.", "they", "They have gone."),
        ("We don't know.", "he", "He doesn't know."),
        ("She was never there.", "we", "We were never there."),
        ("You really have to go.", "she", "She really has to go."),
        ("They just left.", "I", "I just left."),
        ("I'll go.", "it", "It'll go."),
        ("We'd go.", "he", "He'd go."),
        ("I've been there.", "he", "He's been there."),
        ("He's been there.", "I", "I've been there."),
        ("She's coming.", "I", "I'm coming."),
        ("You’re coming.", "it", "It’s coming."),
        ("It isn't here.", "they", "They aren't here."),
        ("Are you coming?", "he", "Is he coming?"),
        ("What did they say?", "I", "What did I say?"),
        ("Where have you been?", "she", "Where has she been?"),
        ("But he wanted more.", "we", "But we wanted more."),
        ("Well, I told Tom.", "they", "Well, they told Tom."),
        ("No, you can't.", "I", "No, I can't."),
        ("Then I ran.", "he", "Then he ran."),
    ],
)
def test_one_exchange(sentence: str, pronoun: str, expected: str) -> None:
    assert exchanged(sentence)[pronoun] == expected


def test_an_unknown_verb_is_left_to_pronouns_that_agree_alike() -> None:
    assert exchanged("He wants more.") == {
        "he": "He wants more.",
        "she": "She wants more.",
        "it": "It wants more.",
    }
    assert list(exchanged("They want more.")) == ["I", "you", "we", "they"]
    assert list(exchanged("He's finished.")) == ["he", "she", "it"]  # is or has: not known
    assert list(exchanged("You need more.")) == ["I", "you", "we", "they"]  # "need" is no past, for all its -ed


def test_a_second_verb_is_not_left_behind() -> None:
    """ "He is tired and wants to go" cannot be "They are tired and wants to go"."""
    assert list(exchanged("He is tired and wants to go.")) == ["he", "she", "it"]
    assert list(exchanged("They were tired and wanted to go.")) == ["you", "we", "they"]  # not "I were"
    assert list(exchanged("I am tired and want to go.")) == ["I"]
    assert list(exchanged("I was tired and want to go.")) == ["I"]  # "he was", but not "he want"


def test_a_single_thing_is_not_many() -> None:
    assert list(exchanged("He is a doctor.")) == ["I", "you", "he", "she", "it"]
    assert list(exchanged("It's a job.")) == ["I", "you", "he", "she", "it"]


def test_a_subject_of_two_is_left_alone() -> None:
    assert exchanged("Tom and I are late.") == {}
    assert exchanged("Tom and I left.")["they"] == "Tom and they left."


def test_no_form_no_candidate() -> None:
    assert "I" not in exchanged("Aren't they coming?")


def test_whoever_is_there_already_is_no_candidate() -> None:
    """ "I told him": with "he" it might be about two people."""
    assert list(exchanged("I told him.")) == ["I", "you", "she", "it", "we", "they"]
    assert list(exchanged("You must give me a hand.")) == ["you", "he", "she", "it", "we", "they"]


@pytest.mark.parametrize(
    ("sentence", "reason"),
    [
        ("Tom is late.", "no subject pronoun in the reference"),
        ("Kill it now.", "no subject pronoun in the reference"),
        ("Thank you so much.", "no subject pronoun in the reference"),
        ("Do it again.", "no subject pronoun in the reference"),
        ("Did you?", "no subject pronoun in the reference"),
        ("I know he is late.", "several subject pronouns in the reference"),
        ("Yes, she said they left.", "several subject pronouns in the reference"),
        ("Tom and I left.", ""),
        ("All that she wanted.", ""),
        ("So did I.", "nothing follows the pronoun"),
        ("I lost my keys.", "the same person again in the reference"),
        ("You'all left.", "an unknown contraction"),
    ],
)
def test_sentences_without_a_subject_to_exchange(sentence: str, reason: str) -> None:
    found = find_subject(sentence)
    assert found == reason if reason else isinstance(found, Subject)


def test_the_one_that_is_not_named_elsewhere() -> None:
    found = find_subject("I know he is late.", {"I"})
    assert isinstance(found, Subject) and found.pronoun == "he"
    assert exchanges(found)["they"] == "I know they are late."
    assert "I" not in exchanges(found)
    assert find_subject("I know he is late.", {"you"}) == "several subject pronouns in the reference"
    assert find_subject("I know he is late.", {"I", "he"}) == "several subject pronouns in the reference"


def test_capitals() -> None:
    """ "I" is one everywhere; another pronoun where a sentence begins."""
    assert exchanged("Oh? I was late.")["he"] == "Oh? He was late."
    assert exchanged("Well, I was late.")["he"] == "Well, he was late."
    assert exchanged("Oh. it was late.")["they"] == "Oh. they were late."  # as it was written
    assert exchanged('"I was late."')["we"] == '"We were late."'


# building

BEFORE = ("玛丽来了。", "Mary came.")


def only(source: str, reference: str, before: tuple[str, str] = BEFORE) -> Item | str:
    """The item of a pair, or the rule that leaves it out."""
    pairs = [before, (source, reference)]
    document = tuple(Document("d", tuple(pair[side] for pair in pairs)) for side in (0, 1))
    found = build([(document[0], document[1])])
    assert found.pairs == 2 and found.left_out["no sentence before it in the document"] == 1
    if found.dev:
        return found.dev[0]
    (rule,) = set(found.left_out) - {"no sentence before it in the document"}
    return rule


def test_an_item() -> None:
    found = only("什么时候走", "When did she leave?")
    assert isinstance(found, Item)
    assert found.source == "什么时候走" and found.source_context == ("玛丽来了。",)
    assert found.candidates == (
        "When did I leave?",
        "When did you leave?",
        "When did he leave?",
        "When did she leave?",
        "When did it leave?",
        "When did we leave?",
        "When did they leave?",
    )
    assert found.true == 3 and found.kind == "she" and found.distance is None
    assert set(found.target_contexts) == {("Mary came.",)} and found.phenomenon == "pronouns_dev"


@pytest.mark.parametrize(
    ("source", "reference", "rule"),
    [
        ("", "She left.", "empty line"),
        ("玛丽走了", "Mary left.", "no subject pronoun in the reference"),
        ("她走了吗", "Did she leave?", "the source names somebody that the rest of the reference does not"),
        ("自己走的", "She left alone.", "the source names somebody that the rest of the reference does not"),
        ("谁走了", "Did she leave again?", "the source names somebody that the rest of the reference does not"),
        ("那坏了吧", "It broke down again.", "it or they, and the source points at something"),
        ("走了以后", "When she left Rome,", "the reference is not a whole sentence"),
        ("走了以后", "and she left Rome.", "the reference is not a whole sentence"),
        ("走", "She left Rome again.", "too short or lengths too different"),
        ("走了", "She can go now because Tom left Rome.", "too short or lengths too different"),
        ("对不起了", "I'm so sorry, Tom.", "a set phrase"),
        ("确定要吗", "Are you sure about that?", "a set phrase"),
        ("没关系的", "It's okay with Tom.", "an it that stands for nothing"),
        ("好像下雨", "It seems Tom left.", "an it that stands for nothing"),
        ("时间不早", "It was late again.", "an it that stands for nothing"),
        ("要下雨吗", "Will it rain tonight?", "an it that stands for nothing"),
    ],
)
def test_rules(source: str, reference: str, rule: str) -> None:
    assert rule in RULES
    assert only(source, reference) == rule


def test_a_source_pronoun_that_is_another_one_of_the_reference() -> None:
    """ "Will tell him": 他 is him, and what was dropped is I."""
    found = only("会告诉他的", "I will tell him.")
    assert isinstance(found, Item) and found.kind == "I" and len(found.candidates) == 6
    assert only("我会告诉他", "I will tell him.") == "the source names somebody that the rest of the reference does not"
    assert (
        only("会告诉他们的", "I will tell him.") == "the source names somebody that the rest of the reference does not"
    )


def test_a_set_phrase_is_the_subjects_own() -> None:
    found = only("我想不会来了", "I think he won't come.")
    assert isinstance(found, Item) and found.kind == "he"
    assert only("想不会来了", "I think Tom won't come.") == "a set phrase"
    assert only("抱歉 不来了", "Sorry, he won't come.") != "a set phrase"


def test_a_clause_that_goes_on_from_the_line_before() -> None:
    rule = only("就走了呢", "Then she left Rome.", ("她看到", "When the train came"))
    assert rule == "the reference before it is not a whole sentence"


def corpus(documents: int) -> list[tuple[Document, Document]]:
    texts = [("开始了。", "Here goes."), ("什么时候走", "When did she leave?"), ("不在家里", "They are not home.")]
    found = []
    for number in range(documents):
        changed = [(zh + "呀" * number, en.replace(".", "!" * (number + 1))) for zh, en in texts]
        sides = [tuple(pair[side] for pair in changed) for side in (0, 1)]
        found.append((Document(str(number), sides[0]), Document(str(number), sides[1])))
    return found


def test_parts_are_whole_documents() -> None:
    found = build(corpus(9))
    assert (len(found.dev), len(found.test)) == (6, 12)
    assert (found.documents, found.pairs, sum(found.left_out.values())) == (9, 27, 9)
    assert {item.phenomenon for item in found.test} == {"pronouns_test"}
    assert found.counts()["test"]["by_pronoun"] == {"she": 6, "they": 6}
    assert build(corpus(9)) == found


def test_the_same_pair_is_taken_once() -> None:
    found = build([corpus(1)[0]] * 3)
    assert (len(found.dev), len(found.test)) == (2, 0)
    assert found.left_out["the same pair stands in the set already"] == 4
    assert found.counts()["test"] == {
        "items": 0,
        "candidates": 0,
        "by_pronoun": {},
        "chance": None,
        "most_frequent": None,
    }


def test_context_is_cut_to_the_scope() -> None:
    (pair,) = corpus(1)
    assert [len(item.source_context) for item in build([pair], scope=1).dev] == [1, 1]
    assert [len(item.source_context) for item in build([pair], scope=6).dev] == [1, 2]
    with pytest.raises(DynctxError, match="scope 0 must be at least 1"):
        build([pair], scope=0)


def test_the_most_frequent_pronoun_by_hand() -> None:
    """she is true twice, they once: of she and they, she; where she is not offered, they; of equals the first."""

    def item(kind: str, number: int) -> Item:
        return Item((), f"x{number}", ((), ()), ("a", "b"), 0, None, "p", kind)

    items = [item("she", 1), item("she", 2), item("they", 3), item("they", 4), item("she", 5)]
    offered = dict(zip(items, [("she", "they")] * 3 + [("I", "they"), ("I", "he")]))
    assert frequent(items, offered) == pytest.approx(3 / 5)  # 1, 2 and 4
    assert frequent([], {}) is None


def test_the_text_has_the_counts() -> None:
    text = build(corpus(9)).to_text()
    assert text.startswith("27 sentence pairs in 9 documents; left out:\n")
    assert "       9  no sentence before it in the document" in text
    assert "test: 12 items, 84 candidates (she 6, they 6)" in text
    assert "chance 14.3 %, always the most frequent pronoun that is offered 50.0 %" in text
