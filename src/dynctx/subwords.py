"""Subword units: SentencePiece with the symbols that context selection needs.

The ids of the special symbols are the same in every vocabulary of the project, so that no module has to ask.
`<DCS>`, `<SEP>` and `<NON>` are control symbols: text that happens to contain "<SEP>" never yields them.
"""

from __future__ import annotations

import io
import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from dynctx.errors import DynctxError, at
from dynctx.files import atomic_write

PAD, UNK, BOS, EOS, DCS, SEP, NON = range(7)
SPECIAL = ("<pad>", "<unk>", "<s>", "</s>", "<DCS>", "<SEP>", "<NON>")


class Subwords:
    """One trained SentencePiece model."""

    def __init__(self, model: bytes, name: str = "subword model") -> None:
        import sentencepiece

        self.model = model
        self.processor: Any = sentencepiece.SentencePieceProcessor()
        try:
            self.processor.LoadFromSerializedProto(model)
        except RuntimeError:
            raise DynctxError(f"{name}: not a SentencePiece model, or a damaged one") from None
        for number, symbol in enumerate(SPECIAL):
            if len(self) <= number or self.processor.IdToPiece(number) != symbol:
                raise DynctxError(
                    f"{name}: symbol {number} should be {symbol}; only models made by 'dynctx prepare' can be used"
                )

    @classmethod
    def load(cls, path: str | Path) -> Subwords:
        try:
            return cls(Path(path).read_bytes(), at(path))
        except UnicodeDecodeError:
            raise DynctxError(f"{at(path)}: not a SentencePiece model, or a damaged one") from None
        except OSError as error:
            raise DynctxError(f"{at(path)}: cannot read the subword model: {error.strerror}") from None

    def save(self, path: str | Path) -> None:
        with atomic_write(path, "wb") as file:
            file.write(self.model)

    def __len__(self) -> int:
        return int(self.processor.GetPieceSize())

    def encode(self, sentences: Sequence[str], threads: int = 1) -> list[list[int]]:
        """Ids without the end-of-sentence symbol; an empty sentence gives an empty list."""
        return self.processor.Encode(list(sentences), out_type=int, num_threads=threads)

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Text of ids; special symbols are left out."""
        plain = [[i for i in sentence if i >= len(SPECIAL)] for sentence in ids]
        return [text.strip() for text in self.processor.Decode(plain)]


def train_subwords(
    sentences: Iterable[str],
    vocabulary: int,
    *,
    kind: str = "unigram",
    character_coverage: float = 0.9999,
    byte_fallback: bool = True,
    normalization: str = "nmt_nfkc",
    sample: int = 1_000_000,
    seed: int = 1,
    threads: int = 2,
) -> Subwords:
    """Train on at most `sample` sentences (0: all), drawn evenly from all of them."""
    import sentencepiece

    sentencepiece.set_min_log_level(2)
    written = io.BytesIO()
    raised: list[BaseException] = []
    try:
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=_lines(_sample(sentences, sample, seed), raised),
            model_writer=written,
            model_type=kind,
            vocab_size=vocabulary,
            character_coverage=character_coverage,
            byte_fallback=byte_fallback,
            normalization_rule_name=normalization,
            num_threads=threads,
            pad_id=PAD,
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
            pad_piece=SPECIAL[PAD],
            control_symbols=list(SPECIAL[DCS:]),
            hard_vocab_limit=False,  # a small corpus gives a smaller vocabulary, not an error
        )
    except (RuntimeError, OSError) as error:
        if raised:  # the text could not be read: its own message says why
            raise raised[0] from None
        raise DynctxError(
            f"the subword model could not be trained with vocabulary {vocabulary}: {error}. "
            "A larger data.vocabulary (or data.byte_fallback: false) may help"
        ) from None
    return Subwords(written.getvalue())


def _sample(sentences: Iterable[str], size: int, seed: int) -> Iterator[str]:
    """At most `size` of the sentences, each with the same chance; SentencePiece's own draw cannot be seeded."""
    if not size:
        yield from sentences
        return
    rng = random.Random(seed)
    kept: list[str] = []
    for number, sentence in enumerate(sentences):
        if number < size:
            kept.append(sentence)
        elif (place := rng.randrange(number + 1)) < size:
            kept[place] = sentence
    yield from kept


def _lines(sentences: Iterable[str], raised: list[BaseException]) -> Iterator[str]:
    """SentencePiece stops at an empty line and drops those over 4,192 bytes: spare it both.

    It also turns any exception into text, traceback and all, so the exception itself is kept in `raised`.
    """
    try:
        for sentence in sentences:
            if sentence:
                yield sentence[:1000]
    except (Exception, KeyboardInterrupt) as error:
        raised.append(error)
        raise
