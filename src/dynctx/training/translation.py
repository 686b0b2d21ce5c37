"""Training a translator on the likelihood of the references."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dynctx.batches import Gatherer, Plan, choose_shape, updates
from dynctx.config import Config
from dynctx.corpus import TokenStore
from dynctx.decoding import translate
from dynctx.errors import DynctxError
from dynctx.evaluation.bleu import corpus_bleu
from dynctx.losses import chunk_loss_and_gradient, smoothed_cross_entropy, token_losses
from dynctx.model_folder import Model, load_model, put_weights, save_model, weights_of
from dynctx.prepare import load_subwords, read_held_out
from dynctx.translators import build_translator
from dynctx.translators.sentence import SentNmt


class TranslationRecipe:
    """Cross-entropy on the training pairs; BLEU on dev through the decoder that users get."""

    def __init__(self, config: Config, device: torch.device) -> None:
        self.config = config
        folder = Path(config.data.folder)
        self.source, self.target = load_subwords(folder)
        torch.manual_seed(config.seed)
        translator = build_translator(config.model, len(self.source), len(self.target))
        if config.training.init:
            earlier = load_model(config.training.init)
            put_weights(translator, weights_of(earlier.translator), config.training.init)
        self.module: SentNmt = translator
        self.gatherer = Gatherer(TokenStore.open(folder / "train"), translator.scope, device)
        self.lengths = self.gatherer.lengths()
        self.usable = np.asarray(self.gatherer.store.usable)
        self.shape = choose_shape(self.lengths, self.usable, config.training.batch_tokens, config.training.row_length)
        self.dev = DevSet(config, translator.scope, device)
        self.head = chunk_loss_and_gradient
        if config.runtime.compile:
            self.compile()

    def compile(self) -> None:
        """Layer by layer: all layers of a kind share the compiled code, so it takes seconds, not minutes."""
        for layer in [*self.module.encoder, *self.module.decoder]:
            layer.compile()
        self.head = torch.compile(chunk_loss_and_gradient)

    def describe(self) -> list[str]:
        kept, pieces = int(self.usable.sum()), int(self.lengths[1][self.usable].sum())
        return [
            f"{kept:,} sentence pairs of {len(self.usable):,}, {pieces:,} target pieces",
            f"a batch: {self.shape}; an update: {self.config.training.update_batches} of them",
        ]

    def updates(self, epoch: int, index: int) -> Iterator[tuple[int, int, list[Plan]]]:
        group = self.config.training.update_batches
        return updates(self.lengths, self.usable, self.shape, self.config.seed, group, epoch, index)

    def normaliser(self, plans: list[Plan]) -> int:
        return sum(plan.target_tokens for plan in plans)

    def loss(self, plan: Plan) -> tuple[Tensor, dict[str, Tensor]]:
        batch = self.gatherer.gather(plan, self.shape)
        states = self.module.decode(self.module.encode(batch), batch)
        real = batch.target.sentence >= 0
        smoothing = self.config.training.label_smoothing
        loss = smoothed_cross_entropy(states, self.module.output.weight, batch.target.ids, real, smoothing, self.head)
        return loss, {}

    def validate(self) -> dict[str, float]:
        return self.dev.score(self.module, self.target)

    def save(self, folder: Path, about: dict[str, Any]) -> None:
        save_model(folder, Model(self.config, self.module, self.source, self.target, about))


class DevSet:
    """The dev documents: tokens for the model, texts for the score."""

    def __init__(self, config: Config, scope: int, device: torch.device) -> None:
        folder = Path(config.data.folder)
        if config.data.dev is None:
            raise DynctxError("data.dev is missing: training is validated on it")
        pairs = read_held_out(folder, "dev")
        if config.training.dev_documents:
            pairs = pairs[: config.training.dev_documents]
        self.references = [sentence for _, target in pairs for sentence in target.sentences]
        self.gatherer = Gatherer(TokenStore.open(folder / "dev"), scope, device)
        self.sentences = np.arange(len(self.references))
        self.language = config.data.target_language or "en"
        self.decoding = config.training.validation

    def score(self, translator: SentNmt, target: Any) -> dict[str, float]:
        translator.eval()
        hypotheses = translate(translator, self.gatherer, self.sentences, self.decoding)
        texts = target.decode([hypothesis.ids for hypothesis in hypotheses])
        bleu = corpus_bleu(texts, [self.references], language=self.language)
        loss = self.loss(translator)
        return {"score": bleu.value, "bleu": bleu.value, "loss": loss}

    @torch.inference_mode()
    def loss(self, translator: SentNmt) -> float:
        """Mean negative log-likelihood of a reference token, without smoothing."""
        total, tokens = 0.0, 0
        for first in range(0, len(self.sentences), 512):
            batch = self.gatherer.one_per_row(self.sentences[first : first + 512])
            logits = translator.output(translator.decode(translator.encode(batch), batch))
            losses = token_losses(logits, batch.target.ids)
            total += float((losses * (batch.target.sentence >= 0)).sum())
            tokens += batch.target_tokens
        return total / tokens
