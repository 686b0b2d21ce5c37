"""BLEU and its relatives, each with a signature that says exactly how the number was made.

sacreBLEU does the counting; this module decides what is counted. Two habits of the field differ enough that
both are offered: `corpus_bleu` scores detokenised text (the comparable figure), `tokenised_bleu` scores text
cut up by the Moses tokeniser, as multi-bleu.perl was used in papers up to about 2020.

Every `Score` keeps the counts of its sentences (or documents), so that it can be resampled without scoring
the text again (see `significance`).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import chain, islice
from typing import Any

import numpy as np

from dynctx.errors import DynctxError

# One list of lines for each reference translation, as sacreBLEU wants them.
References = Sequence[Sequence[str]]

MAX_ORDER = 4

# Written without spaces between words: the Moses tokeniser has nothing to say about these.
UNSPACED_LANGUAGES = ("zh", "ja")


class MissingTokenizer(DynctxError):
    """A score that cannot be made here, since the tokeniser it is defined by is not installed."""


@dataclass(frozen=True)
class Score:
    """A figure, its name and how it was made.

    `counts` has a row for each sentence or document, `from_counts` makes the figure from a sum of such rows.
    """

    name: str
    value: float
    signature: str
    counts: np.ndarray = field(repr=False, compare=False)
    from_counts: Callable[[np.ndarray], float] = field(repr=False, compare=False)


def base_language(language: str) -> str:
    """`zh` of `zh`, `zh-CN` or `zh_Hans`: the tokenisers know languages only, not where they are spoken."""
    match = re.fullmatch(r"([a-zA-Z]{2,3})([-_]\w+)*", language)
    if match is None:
        raise DynctxError(f"target language {language!r} is not a language code: give one such as de, zh or pt-BR")
    return match[1].lower()


def corpus_bleu(hypotheses: Sequence[str], references: References, *, language: str = "en") -> Score:
    """sacreBLEU's BLEU over detokenised sentences."""
    from sacrebleu.metrics import BLEU

    return _score("BLEU", BLEU(tokenize=bleu_tokenizer(language)), hypotheses, references)


def corpus_chrf(hypotheses: Sequence[str], references: References) -> Score:
    """chrF2 over detokenised sentences."""
    from sacrebleu.metrics import CHRF

    return _score("chrF", CHRF(), hypotheses, references)


def corpus_ter(hypotheses: Sequence[str], references: References, *, language: str = "en") -> Score:
    """Translation edit rate; lower is better."""
    from sacrebleu.metrics import TER

    # Without this a Chinese sentence is one word to TER, and any difference in it costs the whole sentence.
    unspaced = base_language(language) in UNSPACED_LANGUAGES
    return _score("TER", TER(normalized=unspaced, asian_support=unspaced), hypotheses, references)


def document_bleu(
    hypotheses: Sequence[Sequence[str]],
    references: Sequence[Sequence[Sequence[str]]],
    *,
    language: str = "en",
) -> Score:
    """BLEU with each document as one segment, so that a word may be matched anywhere in its document.

    `hypotheses` holds the sentences of each document, `references` the same for each reference translation.
    """
    from sacrebleu.metrics import BLEU

    return _score(
        "document BLEU",
        BLEU(tokenize=bleu_tokenizer(language)),
        [" ".join(document) for document in hypotheses],
        [[" ".join(document) for document in reference] for reference in references],
        signature={"unit": "document"},
    )


def in_documents(lines: Sequence[str], sizes: Sequence[int]) -> list[list[str]]:
    """Lines as documents: the next `sizes[0]` of them, the next `sizes[1]`, ..."""
    line = iter(lines)
    return [list(islice(line, size)) for size in sizes]


def main_scores(
    hypotheses: Sequence[str], references: References, sizes: Sequence[int], *, language: str = "en"
) -> tuple[Score, Score, Score]:
    """BLEU, chrF and document BLEU: what systems are compared by. `sizes` of the documents, in lines."""
    return (
        corpus_bleu(hypotheses, references, language=language),
        corpus_chrf(hypotheses, references),
        document_bleu(
            in_documents(hypotheses, sizes), [in_documents(lines, sizes) for lines in references], language=language
        ),
    )


def tokenised_bleu(hypotheses: Sequence[str], references: References, *, language: str = "en") -> Score:
    """Cased BLEU as multi-bleu.perl counts it: Moses tokens, and 0 if any n-gram order has no match at all.

    The text is tokenised as `tokenizer.perl -l LANGUAGE` does, without punctuation normalisation and without
    splitting hyphenated words. Special characters are not escaped (`'` and not `&apos;`): that renames tokens
    on both sides alike and cannot change the count. Chinese and Japanese are cut into characters.
    """
    from sacrebleu.metrics import BLEU

    tokenize = _moses_tokenizer(base_language(language))
    return _score(
        "tokenised BLEU",
        BLEU(tokenize="none", smooth_method="none", force=True),
        [tokenize.line(line) for line in hypotheses],
        [[tokenize.line(line) for line in reference] for reference in references],
        signature={"tok": tokenize.signature},
    )


@cache
def bleu_tokenizer(language: str) -> str:
    """The name of the sacreBLEU tokeniser for text in `language`."""
    from sacrebleu.metrics import BLEU

    language = base_language(language)
    if language == "zh":
        return "zh"
    if language == "ja":
        try:
            BLEU(tokenize="ja-mecab")
        except RuntimeError:  # MeCab is an optional extra of sacreBLEU
            return "char"
        return "ja-mecab"
    return "13a"


def _score(
    name: str,
    metric: Any,
    hypotheses: Sequence[str],
    references: References,
    signature: dict[str, str] | None = None,
) -> Score:
    """Count with a sacreBLEU metric, keeping the counts of each segment.

    sacreBLEU shows the counts only to its own significance tests, hence the underscores; `test_bleu`
    holds the result against its public `corpus_score`.
    """
    if not hypotheses:
        raise DynctxError(f"{name}: there is nothing to score, the translation has no lines")
    if not references:
        raise DynctxError(f"{name}: at least one reference translation is needed")
    for number, reference in enumerate(references, start=1):
        if len(reference) != len(hypotheses):
            raise DynctxError(
                f"{name}: {len(hypotheses)} translations but {len(reference)} lines in reference {number}: "
                f"give files that are aligned line by line"
            )
    counts = np.array(metric._extract_corpus_statistics(hypotheses, references), dtype=np.float64)

    def from_counts(row: np.ndarray) -> float:
        return float(metric._compute_score_from_stats(list(row)).score)

    made = metric.get_signature()
    for key, value in (signature or {}).items():
        made.update(key, value)
    return Score(name, from_counts(counts.sum(axis=0)), str(made), counts, from_counts)


@dataclass(frozen=True)
class _Tokenizer:
    line: Callable[[str], str]
    signature: str


@cache
def _moses_tokenizer(language: str) -> _Tokenizer:
    if language in UNSPACED_LANGUAGES:
        return _Tokenizer(lambda line: " ".join("".join(line.split())), "characters")
    try:
        import sacremoses
    except ModuleNotFoundError:
        raise MissingTokenizer("needs sacremoses, which is not installed: pip install sacremoses") from None
    moses = sacremoses.MosesTokenizer(lang=language)

    @lru_cache(maxsize=2**16)  # the references come again when a second system is scored
    def tokenize(line: str) -> str:
        return str(moses.tokenize(line, aggressive_dash_splits=False, escape=False, return_str=True))

    return _Tokenizer(tokenize, f"moses-{language}-sacremoses-{sacremoses.__version__}")


def sentence_bleu(hypothesis: str, reference: str, *, language: str = "en") -> float:
    """BLEU of one sentence: exponential smoothing, effective order."""
    return sentence_bleus([hypothesis], [reference], language=language)[0]


def sentence_bleus(
    hypotheses: Sequence[str], references: Sequence[str], *, language: str = "en", processes: int = 1
) -> list[float]:
    """`sentence_bleu` of many pairs: the values of sacreBLEU's `sentence_score`, several times as fast.

    The gain is largest where the pairs with the same reference follow one another.
    """
    if len(hypotheses) != len(references):
        raise DynctxError(
            f"sentence BLEU: {len(hypotheses)} translations but {len(references)} references; give one each"
        )
    if processes <= 1:
        return _sentence_bleus(hypotheses, references, language)

    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    # Parts small enough to share the work evenly. Not forked: the caller may hold threads or a GPU.
    size = max(1, min(50_000, math.ceil(len(hypotheses) / processes)))
    starts = range(0, len(hypotheses), size)
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        parts = pool.map(
            _sentence_bleus,
            [hypotheses[start : start + size] for start in starts],
            [references[start : start + size] for start in starts],
            [language] * len(starts),
        )
        return [value for part in parts for value in part]


def _sentence_bleus(hypotheses: Sequence[str], references: Sequence[str], language: str) -> list[float]:
    tokenize = _sentence_tokenizer(bleu_tokenizer(language))
    values: list[float] = []
    reference: str | None = None
    known: dict[str, float] = {}
    for hypothesis, next_reference in zip(hypotheses, references):
        if next_reference != reference:
            reference = next_reference
            reference_tokens = tokenize(reference)
            reference_ngrams = [Counter(_ngrams(reference_tokens, order)) for order in range(1, MAX_ORDER + 1)]
            known = {}  # translations of one sentence under different contexts are often the same
        if (value := known.get(hypothesis)) is None:
            value = _smoothed_bleu(tokenize(hypothesis), reference_ngrams, len(reference_tokens))
            known[hypothesis] = value
        values.append(value)
    return values


@cache
def _sentence_tokenizer(name: str) -> Callable[[str], list[str]]:
    from sacrebleu.metrics import BLEU

    tokenizer = BLEU(tokenize=name).tokenizer
    if name != "13a":
        return lambda line: tokenizer(line.rstrip()).split()

    # 13a puts spaces around the line and then looks no further than the neighbours of a punctuation mark, so
    # what stands between two spaces is cut up the same in any line: each word form need be seen but once.
    @lru_cache(maxsize=2**18)
    def word_tokens(word: str) -> list[str]:
        return tokenizer(word).split()

    return lambda line: list(chain.from_iterable(map(word_tokens, line.rstrip().split(" "))))


def _ngrams(tokens: list[str], order: int) -> Iterator[tuple[str, ...]]:
    return zip(*[tokens[start:] for start in range(order)])


def _smoothed_bleu(tokens: list[str], reference_ngrams: list[Counter[Any]], reference_length: int) -> float:
    """sacreBLEU's `compute_bleu` for one segment, step by step the same so that the floats are the same."""
    length = len(tokens)
    log_precisions = []
    smoothing = 1.0
    correct = -1
    for order in range(1, min(MAX_ORDER, length) + 1):
        total = length - order + 1
        if correct != 0:  # an n-gram can only match where its parts did
            in_reference = reference_ngrams[order - 1]
            matches = list(filter(in_reference.__contains__, _ngrams(tokens, order)))
            correct = len(matches)
            if correct != len(set(matches)):  # repeated: count no n-gram more often than the reference has it
                correct = sum(min(count, in_reference[ngram]) for ngram, count in Counter(matches).items())
        if correct == 0:
            if order == 1:
                break
            smoothing *= 2
            log_precisions.append(math.log(100.0 / (smoothing * total)))
        else:
            log_precisions.append(math.log(100.0 * correct / total))
    if not log_precisions:
        return 0.0
    brevity_penalty = 1.0 if length >= reference_length else math.exp(1 - reference_length / length)
    return brevity_penalty * math.exp(sum(log_precisions) / len(log_precisions))
