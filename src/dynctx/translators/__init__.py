"""The translation models. One file each; all offer `encode`, `decode`, `begin` and `step` (see `sentence`)."""

from __future__ import annotations

from dynctx.config import ModelConfig
from dynctx.translators.cadec import Cadec
from dynctx.translators.concat import Concat
from dynctx.translators.han import Han
from dynctx.translators.san import San
from dynctx.translators.sentence import SentNmt
from dynctx.translators.tdnmt import Tdnmt

KINDS: dict[str, type[SentNmt]] = {
    "sentence": SentNmt,
    "concat": Concat,
    "tdnmt": Tdnmt,
    "han": Han,
    "san": San,
    "cadec": Cadec,
}


def build_translator(config: ModelConfig, source_vocabulary: int, target_vocabulary: int) -> SentNmt:
    return KINDS[config.kind](config, source_vocabulary, target_vocabulary)
