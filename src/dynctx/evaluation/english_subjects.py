"""Exchanging the subject pronoun of a short English sentence, by rules that know when they do not know.

    He is coming.   -> They are coming.   I am coming.   She is coming. ...
    Did they call?  -> Did he call?
    He wants it.    -> She wants it.                    (an unknown verb: only pronouns that agree in the same way)

The verb is changed with the pronoun where its forms are listed here. Where they are not, the pronoun is exchanged only
for those that take the same form, so that no candidate is given away by its grammar.
"""

from __future__ import annotations

import re
from collections.abc import Collection
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
    """A pronoun that is the subject of a sentence, or of a clause of it."""

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


def find_subject(sentence: str, named: Collection[str] = ()) -> Subject | str:
    """The one pronoun that is a subject and not among the persons `named`, or the reason why there is none."""
    words = tuple(match.span() for match in WORD.finditer(sentence))
    lower = [plain(sentence[a:b]).lower() for a, b in words]
    persons = [PERSON.get(word) or _SUBJECT.get(word.split("'")[0]) for word in lower]
    places = [place for place, word in enumerate(lower) if word not in PERSON and word.split("'")[0] in _SUBJECT]
    # you and it may be objects; the others are always subjects of something
    subjects = [place for place in places if persons[place] not in ("you", "it") or _may_be(sentence, words, place)]
    if not subjects:
        return "no subject pronoun in the reference"
    if len(subjects) > 1:
        subjects = [place for place in subjects if persons[place] not in named]
    if len(subjects) != 1:
        return "several subject pronouns in the reference"
    at = subjects[0]
    pronoun = persons[at] or ""
    others = tuple(person for place, person in enumerate(persons) if person and place != at)
    subject = Subject(pronoun, sentence, words, at, _inverted(sentence, words, at), others)
    if subject.ending not in ("", "'m", "'s", "'re", "'ve", "'ll", "'d"):
        return "an unknown contraction"
    if not _goes_on(sentence, words, at):
        return "nothing follows the pronoun"
    if pronoun in others:
        return "the same person again in the reference"
    return subject


_SUBJECT = {pronoun.lower(): pronoun for pronoun in SUBJECTS}


def _may_be(sentence: str, words: tuple[tuple[int, int], ...], at: int) -> bool:
    """Whether you or it stands where a subject does: at the beginning of a clause or after an auxiliary, and before
    something else."""
    if not _goes_on(sentence, words, at):
        return False
    if at == 0 or "'" in plain(sentence[slice(*words[at])]):
        return True
    before = sentence[words[at - 1][1] : words[at][0]]
    opened = bool(re.search(r"[,.;:!?\-—…\"“]", before)) or sentence[slice(*words[at - 1])].lower() in OPENERS
    return opened or _inverted(sentence, words, at)


def _goes_on(sentence: str, words: tuple[tuple[int, int], ...], at: int) -> bool:
    return at + 1 < len(words) and not re.match(r"\s*[,.;:!?…]", sentence[words[at][1] :])


def _inverted(sentence: str, words: tuple[tuple[int, int], ...], at: int) -> bool:
    """An auxiliary before it, in a question: "do it again" is none."""
    return at > 0 and plain(sentence[slice(*words[at - 1])]).lower() in AUXILIARIES and "?" in sentence[words[at][1] :]


def exchanges(subject: Subject) -> dict[str, str]:
    """The sentence with each pronoun that it can have, its own included: pronoun -> sentence."""
    place, forms = _verb(subject)
    written = subject.ending if place == subject.at else subject.word(place).lower()
    if forms is not None and written != forms[_column(subject.pronoun)]:  # "Tom and I are"
        return {}
    group: tuple[str, ...] = SUBJECTS
    if forms is None or _several_verbs(subject):  # only those that need no other verb
        group = next(group for group in SAME_FORM if subject.pronoun in group)
    found = {}
    for pronoun in group:
        form = None if forms is None else forms[_column(pronoun)]
        own = None if forms is None else forms[_column(subject.pronoun)]
        if pronoun in subject.others or not _number_fits(subject, place, pronoun):  # "he told him" could be about two
            continue
        if forms is not None and (form is None or (len(group) < len(SUBJECTS) and form != own)):
            continue
        found[pronoun] = _replaced(subject, pronoun, place, form)
    return found


def _column(pronoun: str) -> int:
    return 0 if pronoun == "I" else 1 if pronoun in ("he", "she", "it") else 2


Forms = tuple[str | None, str | None, str | None]


def _verb(subject: Subject) -> tuple[int, Forms | None]:
    """The word that agrees with the subject, and its three forms; None where they are not known."""
    ending, after = subject.ending, subject.word(subject.at + 1).lower()
    if ending in ("'ll", "'d"):
        return subject.at, (ending, ending, ending)
    if ending in ("'m", "'re"):
        return subject.at, BE
    if ending == "'ve" or (ending and after in HAS_BEEN):
        return subject.at, HAVE
    if ending:
        return subject.at, BE if after in IS_BEING or after.endswith("ing") else None
    if subject.inverted:
        return subject.at - 1, _forms(subject.word(subject.at - 1).lower())
    place = subject.at + 1
    while place + 1 < len(subject.words) and subject.word(place).lower() in ADVERBS:
        place += 1
    word = subject.word(place).lower()
    regular = word.endswith("ed") and not word.endswith("eed") and len(word) > 4
    return place, _forms(word) if regular or word in PAST or word in AUXILIARIES else None


def _forms(word: str) -> Forms:
    column = next((forms for forms in FORMS if word in forms), None)
    return column if column is not None else (word, word, word)


def _several_verbs(subject: Subject) -> bool:
    """A later verb may agree with the subject too."""
    rest = [subject.word(number).lower() for number in range(subject.at + 1, len(subject.words))]
    return len(subject.words) > 10 or any(word in ("and", "or", "but", "who", "which", "that") for word in rest)


def _number_fits(subject: Subject, place: int, pronoun: str) -> bool:
    """Whether a pronoun goes with what follows the verb: "is a doctor" is of one person."""
    behind = max(place, subject.at) + 1
    one = behind < len(subject.words) and subject.word(behind).lower() in ("a", "an")
    return not one or subject.pronoun not in SINGULAR or pronoun in SINGULAR


def _replaced(subject: Subject, pronoun: str, place: int, form: str | None) -> str:
    """The sentence with another pronoun, and another form (None: the same) of the verb at `place`."""
    contracted = place == subject.at
    changes = {subject.at: pronoun + (form if contracted and form is not None else subject.ending)}
    if not contracted and form is not None:
        changes[place] = form
    text = subject.sentence
    for number in sorted(changes, reverse=True):
        begin, end = subject.words[number]
        old, new = text[begin:end], changes[number]
        # "I" is a capital everywhere; the others are where a sentence begins
        begins = not re.search(r"[^\s\"'“‘\-–]", text[:begin]) or re.search(r"[.?!…][\s\"'“‘\-–]*$", text[:begin])
        if old[0].isupper() and (begins or subject.pronoun != "I" or number != subject.at):
            new = new[0].upper() + new[1:]
        text = text[:begin] + (new.replace("'", "’") if "’" in old else new) + text[end:]
    return text
