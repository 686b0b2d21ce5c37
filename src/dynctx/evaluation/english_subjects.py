"""Exchanging the subject pronoun of a short English sentence, by rules that know when they do not know.

    He is coming.   -> They are coming.   I am coming.   She is coming. ...
    Did they call?  -> Did he call?
    He wants it.    -> She wants it.                    (an unknown verb: only pronouns that agree in the same way)

The verb is changed with the pronoun where its forms are listed here. Where they are not, the pronoun is exchanged only
for those that take the same form, so that no candidate is given away by its grammar.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


SUBJECTS = ("I", "you", "he", "she", "it", "we", "they")
# every other form of a personal pronoun
FORMS_OF = {
    "I": "me my mine myself",
    "you": "your yours yourself yourselves ya ye y'all",
    "he": "him his himself",
    "she": "her hers herself",
    "it": "its itself",
    "we": "us our ours ourselves let's",
    "they": "them their theirs themselves em",
}
PERSON = {form: pronoun for pronoun, forms in FORMS_OF.items() for form in forms.split()}
SAME_FORM = (("I", "you", "we", "they"), ("he", "she", "it"))  # of any verb but "be"
SINGULAR = ("I", "you", "he", "she", "it")

# with I; with he, she, it; with you, we, they. None: there is no such form
FORMS: tuple[tuple[str | None, str, str], ...] = (
    ("am", "is", "are"),
    ("was", "was", "were"),
    ("have", "has", "have"),
    ("do", "does", "do"),
    (None, "isn't", "aren't"),
    ("wasn't", "wasn't", "weren't"),
    ("haven't", "hasn't", "haven't"),
    ("don't", "doesn't", "don't"),
)
BE, HAVE = ("'m", "'s", "'re"), ("'ve", "'s", "'ve")
MODALS = words(
    "can could will would shall should may might must did had can't cannot couldn't won't wouldn't shan't shouldn't "
    "mustn't mightn't didn't hadn't needn't"
)
PAST = words(
    "said went got came saw took made knew thought told gave found left felt lost kept heard met ran brought bought "
    "began became broke built caught chose drank drove ate fell fought flew forgot forgave froze grew held hid led "
    "meant paid rode rang rose sang sank sat sent shook shot slept sold spent spoke stole stood stuck swore swam "
    "taught threw understood woke wore won wrote"
)
ADVERBS = words(
    "never just also always really already still only probably even actually not definitely certainly finally "
    "almost simply clearly obviously totally"
)
AUXILIARIES = MODALS | {word for forms in FORMS for word in forms if word}
# what a clause may begin after
OPENERS = words(
    "and but so because if when then well oh yes yeah no now maybe perhaps okay ok hey though although "
    "since while until unless where why how what hope think guess sure"
)
HAS_BEEN = words("been got had")  # after 's: has
IS_BEING = words("a an the not in on at here there so very too gonna still always never all")  # after 's: is

WORD = re.compile(r"[A-Za-z]+(?:['’][A-Za-z]+)*")


@dataclass(frozen=True)
class Subject:
    """The one pronoun of a sentence that is a subject."""

    pronoun: str
    sentence: str
    words: tuple[tuple[int, int], ...]  # where each word of the sentence begins and ends
    at: int  # which word it is
    inverted: bool  # an auxiliary stands before it
    others: tuple[str, ...]  # the persons of the sentence's other pronouns, as subjects: "me" is I

    def word(self, number: int) -> str:
        begin, end = self.words[number]
        return plain(self.sentence[begin:end])

    @property
    def ending(self) -> str:
        """The contracted verb on the pronoun: 'm, 's, 're, 've, 'll, 'd, or nothing."""
        return self.word(self.at)[len(self.pronoun) :].lower()


def plain(text: str) -> str:
    return text.replace("’", "'")


def find_subject(sentence: str) -> Subject | str:
    """The subject of a sentence, where one pronoun alone is a subject, or the reason why there is none to exchange."""
    words = tuple(match.span() for match in WORD.finditer(sentence))
    lower = [plain(sentence[a:b]).lower() for a, b in words]
    persons = [PERSON.get(word) or _SUBJECT.get(word.split("'")[0]) for word in lower]
    places = [place for place, word in enumerate(lower) if word not in PERSON and word.split("'")[0] in _SUBJECT]
    # you and it may be objects; the others are always subjects of something
    subjects = [place for place in places if persons[place] not in ("you", "it") or _may_be(sentence, words, place)]
    if not subjects:
        return "no subject pronoun in the reference"
    if len(subjects) > 1:
        return "several subject pronouns in the reference"
    at = subjects[0]
    pronoun = persons[at] or ""
    others = tuple(person for place, person in enumerate(persons) if person and place != at)
    subject = Subject(pronoun, sentence, words, at, _inverted(sentence, words, at), others)
    if subject.ending not in ("", "'m", "'s", "'re", "'ve", "'ll", "'d"):
        return "an unknown contraction"
    if not _may_be(sentence, words, at):
        return "the pronoun may not be a subject"
    if pronoun in others:
        return "the same person again in the reference"
    return subject


_SUBJECT = {pronoun.lower(): pronoun for pronoun in SUBJECTS}


def _may_be(sentence: str, words: tuple[tuple[int, int], ...], at: int) -> bool:
    """Whether a pronoun stands where a subject does: at the beginning of a clause or after an auxiliary, and before
    something else."""
    if at + 1 == len(words) or re.match(r"\s*[,.;:!?…]", sentence[words[at][1] :]):
        return False
    if at == 0 or "'" in plain(sentence[slice(*words[at])]):
        return True
    before = sentence[words[at - 1][1] : words[at][0]]
    opened = bool(re.search(r"[,.;:!?\-—…\"“]", before)) or sentence[slice(*words[at - 1])].lower() in OPENERS
    return opened or _inverted(sentence, words, at)


def _inverted(sentence: str, words: tuple[tuple[int, int], ...], at: int) -> bool:
    """An auxiliary before it, in a question: "do it again" is none."""
    return at > 0 and plain(sentence[slice(*words[at - 1])]).lower() in AUXILIARIES and "?" in sentence[words[at][1] :]


def exchanges(subject: Subject) -> dict[str, str]:
    """The sentence with each pronoun that it can have, its own included: pronoun -> sentence."""
    verb = _verb(subject)
    if verb is None:  # only those that need no other verb
        group = next(group for group in SAME_FORM if subject.pronoun in group)
        return {pronoun: _replaced(subject, pronoun, {}) for pronoun in group if pronoun not in subject.others}
    place, forms = verb
    found = {}
    for pronoun in _numbers(subject, place):
        form = forms[_column(pronoun)]
        if form is None or pronoun in subject.others:  # "he told him" could be about two
            continue
        if place == subject.at:
            found[pronoun] = _replaced(subject, pronoun, {}, form)
        else:
            found[pronoun] = _replaced(subject, pronoun, {place: form})
    return found


def _column(pronoun: str) -> int:
    return 0 if pronoun == "I" else 1 if pronoun in ("he", "she", "it") else 2


Forms = tuple[str | None, str | None, str | None]


def _verb(subject: Subject) -> tuple[int, Forms] | None:
    """The word that agrees with the subject, and its three forms; None where they are not known."""
    if _several_verbs(subject):
        return None
    ending, after = subject.ending, subject.word(subject.at + 1).lower()
    if ending:
        if ending in ("'ll", "'d"):
            return subject.at, (ending, ending, ending)
        if ending in ("'m", "'re"):
            return subject.at, BE
        if ending == "'ve":
            return subject.at, HAVE
        if after in HAS_BEEN:
            return subject.at, HAVE
        if after in IS_BEING or after.endswith("ing"):
            return subject.at, BE
        return None
    if subject.inverted:
        return subject.at - 1, _forms(subject.word(subject.at - 1).lower())
    place = subject.at + 1
    while place + 1 < len(subject.words) and subject.word(place).lower() in ADVERBS:
        place += 1
    word = subject.word(place).lower()
    regular = word.endswith("ed") and not word.endswith("eed") and len(word) > 4
    if regular or word in PAST or word in AUXILIARIES:
        return place, _forms(word)
    return None


def _forms(word: str) -> Forms:
    column = next((forms for forms in FORMS if word in forms), None)
    return column if column is not None else (word, word, word)


def _several_verbs(subject: Subject) -> bool:
    """A later verb may agree with the subject too."""
    rest = [subject.word(number).lower() for number in range(subject.at + 1, len(subject.words))]
    return len(subject.words) > 10 or any(word in ("and", "or", "but", "who", "which", "that") for word in rest)


def _numbers(subject: Subject, place: int) -> tuple[str, ...]:
    """Pronouns that go with what follows: "is a doctor" is of one person."""
    behind = max(place, subject.at) + 1
    if behind < len(subject.words) and subject.word(behind).lower() in ("a", "an"):
        return SINGULAR if subject.pronoun in SINGULAR else SUBJECTS
    return SUBJECTS


def _replaced(subject: Subject, pronoun: str, verbs: dict[int, str], ending: str | None = None) -> str:
    changes = {subject.at: pronoun + (subject.ending if ending is None else ending), **verbs}
    text = subject.sentence
    for number in sorted(changes, reverse=True):
        begin, end = subject.words[number]
        new = changes[number]
        old = text[begin:end]
        if "’" in old:
            new = new.replace("'", "’")
        if number == 0 and text[begin].isupper():
            new = new[0].upper() + new[1:]
        text = text[:begin] + new + text[end:]
    return text
