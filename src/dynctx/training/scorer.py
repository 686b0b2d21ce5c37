"""Training the context scorer on pseudo labels: what a candidate is worth by itself (section 3.3.1 of the paper)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from dynctx.batches import Gatherer
from dynctx.config import Config
from dynctx.corpus import Ints, TokenStore
from dynctx.devices import many_shapes
from dynctx.errors import DynctxError
from dynctx.labels.pseudo_labels import Labels, check_text, load_values
from dynctx.model_folder import Model, build_scorer, join, save_model
from dynctx.planning import Plan, Shape, plan_epoch, updates
from dynctx.prepared import load_subwords
from dynctx.selection.instances import gather_instances, instance_tokens
from dynctx.selection.scorer import Scorer, probability_first
from dynctx.training.translation import start_from
from dynctx.translators import build_translator


class JudgedSplit:
    """A split of which something was written down beforehand for each sentence."""

    def __init__(self, config: Config, split: str, device: torch.device) -> None:
        scope, labels = config.model.scope, config.labels
        self.gatherer = Gatherer(TokenStore.open(Path(config.data.folder) / split), scope, device)
        check_text(labels.folder, {split: self.gatherer.store.fingerprint})
        self.values = load_values(
            labels.folder, split, labels.kind, len(self.gatherer.store), scope, config.training.reserve
        )
        self.usable = np.asarray(~np.isnan(self.values).all(axis=1))  # [sentences]
        self.tokens: Ints = instance_tokens(self.gatherer, np.arange(len(self.gatherer.store)))  # [sentences]


class LabelledSentences(JudgedSplit):
    """A split with its labels, and the scorer's answers to it."""

    def __init__(self, config: Config, split: str, device: torch.device) -> None:
        super().__init__(config, split, device)
        self.together = config.labels.together  # else candidates are seen one by one
        self.labels = Labels.of(self.values, config.labels.margin, config.labels.between)
        self.usable = np.asarray(self.labels.counts.any(axis=1))

    def score(self, scorer: Scorer, embedding: Any, sentences: Ints) -> tuple[Tensor, Tensor, Tensor]:
        """Scores, labels and which of these count, each [n, scope + 1]."""
        with many_shapes():
            scores = scorer(gather_instances(self.gatherer, sentences), embedding, independent=not self.together)
        value = self.gatherer.to_device(self.labels.value[sentences])
        return scores, value, self.gatherer.to_device(self.labels.counts[sentences])


class ScorerStage:
    """A scorer that learns beside a translator, whose embedding it reads with and which stays as it is."""

    def __init__(self, config: Config, device: torch.device) -> None:
        self.config, self.device = config, device
        if not config.training.selector.startswith(("probability-first", "size-first")):
            config.training.selector = config.reinforce.strategy  # what a scorer is for
        self.source, self.target = load_subwords(Path(config.data.folder))
        torch.manual_seed(config.seed)
        self.translator = build_translator(config.model, len(self.source), len(self.target))
        scorer = build_scorer(config)
        assert scorer is not None
        self.scorer = scorer
        if not config.training.init:
            raise DynctxError("training.init is missing: the translator whose embedding the scorer shares")
        self.copied = start_from(self.translator, scorer, config.training.init, self.source, self.target, config)
        self.module = join(self.translator, scorer)
        self.translator.requires_grad_(False)

    def batches(self, split: JudgedSplit, epoch: int, index: int) -> Iterator[tuple[int, int, list[Plan]]]:
        """A batch is as many sentences as their pairs of source and candidate fill."""
        training, tokens = self.config.training, split.tokens
        lengths = np.stack([tokens, np.zeros_like(tokens), np.zeros_like(tokens)])
        shape = Shape(1, max(training.batch_tokens, int(tokens[split.usable].max())), 0)
        usable, seed = split.usable, self.config.seed
        return updates(lambda e: plan_epoch(lengths, usable, shape, seed, e), training.update_batches, epoch, index)

    def parts(self, split: JudgedSplit) -> list[Ints]:
        """All that was judged, as much at a time as a batch holds."""
        wanted = np.flatnonzero(split.usable)
        ends = np.cumsum(split.tokens[wanted]) // self.config.training.batch_tokens
        return np.split(wanted, np.flatnonzero(np.diff(ends)) + 1)

    def save(self, folder: Path, about: dict[str, Any]) -> None:
        save_model(folder, Model(self.config, self.translator, self.source, self.target, about, self.scorer))


class ScorerRecipe(ScorerStage):
    """Binary cross-entropy on the labels."""

    def __init__(self, config: Config, device: torch.device) -> None:
        super().__init__(config, device)
        self.train, self.dev = (LabelledSentences(config, split, device) for split in ("train", "dev"))
        if not self.train.usable.any():
            raise DynctxError(f"{config.labels.folder}: no sentence was judged; there is nothing to learn from")
        if not self.dev.usable.any():
            raise DynctxError(f"{config.labels.folder}: no label of dev; there is nothing to be judged by")

    def describe(self) -> list[str]:
        counts, value = self.train.labels.counts, self.train.labels.value
        share = value[counts].mean()
        return [f"{int(counts.sum()):,} labels, {share:.1%} of them 1"]

    def updates(self, epoch: int, index: int) -> Iterator[tuple[int, int, list[Plan]]]:
        return self.batches(self.train, epoch, index)

    def normaliser(self, plans: list[Plan]) -> int:
        return sum(int(self.train.labels.counts[plan.sentences].sum()) for plan in plans)

    def loss(self, plan: Plan) -> tuple[Tensor, dict[str, Tensor]]:
        scores, value, counts = self.train.score(self.scorer, self.translator.source_embedding, plan.sentences)
        with torch.autocast(scores.device.type, enabled=False):
            squashed = self.config.scorer.squash
            measure = F.binary_cross_entropy if squashed else F.binary_cross_entropy_with_logits
            losses = measure(scores, value, reduction="none") * counts
        sides = counts & (value != 0.5)  # a half has no right side
        right = ((scores > self.scorer.undecided) == (value > 0.5)) & sides
        return losses.sum(), {"accuracy": torch.stack([right.sum(), sides.sum()])}

    @torch.inference_mode()
    def validate(self) -> dict[str, float]:
        """Accuracy and AUC of single candidates, and what probability-first makes of all of them together."""
        self.module.eval()
        of_labels: list[list[Tensor]] = [[], [], [], []]  # scores, values, whether it is NON's, whether it has a side
        non = sizes = sentences = right_ones = judged_ones = helpful = 0
        for part in self.parts(self.dev):
            score, value, counts = self.dev.score(self.scorer, self.translator.source_embedding, part)
            is_non = torch.zeros_like(counts).index_fill(
                1, torch.tensor([score.shape[1] - 1], device=score.device), True
            )
            for store, found in zip(of_labels, (score, value > 0.5, is_non, value != 0.5)):
                store.append(found[counts])
            instances = gather_instances(self.dev.gatherer, part)
            together = self.scorer(instances, self.translator.source_embedding)
            chosen = probability_first(self.scorer.probabilities(together, instances.present))
            several = instances.present[:, 0]
            sentences += int(several.sum())
            non += int((several & ~chosen.any(1)).sum())
            sizes += int(chosen.sum())
            helps, known = value[:, :-1] > 0.5, counts[:, :-1]
            right_ones += int((chosen & helps & known).sum())
            judged_ones += int((chosen & known).sum())
            helpful += int((helps & known).sum())
        score, value, kind, sides = (torch.cat(found) for found in of_labels)
        area = auc(score[~kind], value[~kind])
        right = ((score > self.scorer.undecided) == value)[sides].double().mean()
        return {
            "score": area,
            "auc": area,
            "auc_non": auc(score[kind], value[kind]),
            "accuracy": float(right),
            "majority": float(max(value[sides].double().mean(), 1 - value[sides].double().mean())),
            "non": non / max(1, sentences),
            "size": sizes / max(1, sentences),
            "precision": right_ones / max(1, judged_ones),
            "recall": right_ones / max(1, helpful),
        }


def auc(scores: Tensor, labels: Tensor) -> float:
    """The share of (1, 0) pairs that the scores put in the right order, ties counting half."""
    ones, zeros = scores[labels].double(), scores[~labels].double().sort().values
    if not len(ones) or not len(zeros):
        return 0.5
    below = torch.searchsorted(zeros, ones, right=False)
    upto = torch.searchsorted(zeros, ones, right=True)
    return float((below + upto).double().mean() / (2 * len(zeros)))
