"""The translation models. One file each; all offer `encode`, `decode`, `begin` and `step` (see `sentence`)."""

from __future__ import annotations

from dynctx.config import ModelConfig
from dynctx.translators.sentence import SentNmt


def build_translator(config: ModelConfig, source_vocabulary: int, target_vocabulary: int) -> SentNmt:
    return SentNmt(config, source_vocabulary, target_vocabulary)
