"""Training the scorer on a table of rewards: which of all subsets of a sentence's candidates earns most.

The translator stays as it is, so its rewards are worked out once, by `dynctx label` with `labels.kind: reward`. What is
raised is the expected reward over all subsets, less the price of each sentence that is read: the estimator `exact` of
the stage reinforce, without a translator to wait for; with dropout, since the same table is learned from many times.
Where some subsets of a sentence have no value, it is the expectation over the others, as if only they could be drawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dynctx.config import Config
from dynctx.corpus import Ints
from dynctx.devices import many_shapes
from dynctx.errors import DynctxError
from dynctx.labels.pseudo_labels import read_about
from dynctx.labels.reward_tables import subset_bits
from dynctx.model_folder import fingerprint
from dynctx.planning import Plan
from dynctx.selection.instances import gather_instances
from dynctx.selection.policy import Policy, policy_of
from dynctx.selection.scorer import judge
from dynctx.selection.strategies import Judged, parse_selector
from dynctx.training.reinforce import mean
from dynctx.training.scorer import JudgedSplit, ScorerStage


class RewardedRecipe(ScorerStage):
    """The expected reward over all subsets, under the law, the price and the strategy of the stage reinforce."""

    def __init__(self, config: Config, device: torch.device) -> None:
        super().__init__(config, device)
        probabilities = judge(self.scorer, self.translator.source_embedding)
        strategy = parse_selector(config.reinforce.strategy, config.seed, probabilities)
        if not isinstance(strategy, Judged):
            raise DynctxError(
                f"reinforce.strategy is {config.reinforce.strategy!r}: expected probability-first or size-first N"
            )
        self.strategy: Judged = strategy
        self.train, self.dev = (JudgedSplit(config, split, device) for split in ("train", "dev"))
        about = read_about(Path(config.labels.folder))  # files tell of a translator that is not here
        if "files" not in about and about.get("weights") != fingerprint(self.translator):
            raise DynctxError(f"{config.labels.folder}: rewards of another translator than {config.training.init} has")
        everyone = np.arange(len(self.train.usable))
        self.train.usable &= self.train.gatherer.candidates(everyone) > 0  # else there is nothing to choose
        if not self.train.usable.any():
            raise DynctxError(f"{config.labels.folder}: no sentence has a candidate; nothing can be learned")
        if not self.dev.usable.any():
            raise DynctxError(f"{config.labels.folder}: no value of dev; there is nothing to be judged by")
        if np.isnan(self.dev.values[self.dev.usable]).any():
            raise DynctxError(f"{config.labels.folder}: of dev the value of every set is needed, and some are missing")
        if config.reinforce.law == "sequential" and np.isnan(self.train.values[self.train.usable]).any():
            raise DynctxError(
                f"{config.labels.folder}: sets without a value need reinforce.law: independent; the sequential law "
                "draws sets of one size, of which a sentence may have no two to choose between"
            )
        self.subsets = torch.from_numpy(subset_bits(config.model.scope)).float().to(device)  # [2 ** scope, scope]
        self.weights = torch.from_numpy(1 << np.arange(config.model.scope)).to(device)

    def describe(self) -> list[str]:
        own = self.config.reinforce
        price = f", a price of {own.price:g} for each sentence" if own.price else ""
        return [f"rewards of {int(self.train.usable.sum()):,} sentences; law {own.law}{price}"]

    def updates(self, epoch: int, index: int) -> Iterator[tuple[int, int, list[Plan]]]:
        return self.batches(self.train, epoch, index)

    def normaliser(self, plans: list[Plan]) -> int:
        return sum(len(plan.sentences) for plan in plans)

    def select(self, split: JudgedSplit, sentences: Ints) -> tuple[Policy, Tensor, Tensor, Tensor]:
        """The policy, the strategy's own selection [n, scope], and rewards and prices of all subsets [n, 2 ** scope]"""
        with many_shapes():
            instances = gather_instances(split.gatherer, sentences)
            scores = self.scorer(instances, self.translator.source_embedding)
        log_probabilities = self.scorer.log_probabilities(scores, instances.present)
        present = instances.present[:, :-1]
        star = self.strategy.choose(log_probabilities.detach().exp(), present)
        policy = policy_of(self.config.reinforce, self.strategy, log_probabilities, star)
        prices = self.config.reinforce.price * (present.float() @ self.subsets.t()).float()  # whole numbers in any type
        return policy, star, split.gatherer.to_device(split.values[sentences]), prices

    def earned(self, star: Tensor, worth: Tensor) -> Tensor:
        """[n] what a selection [n, scope] is worth."""
        return worth.gather(1, (star * self.weights).sum(1, keepdim=True)).squeeze(1)

    def loss(self, plan: Plan) -> tuple[Tensor, dict[str, Tensor]]:
        self.scorer.train()
        policy, star, rewards, prices = self.select(self.train, plan.sentences)
        worth, entropy = rewards - prices, policy.entropy()
        loss = -expected(policy.exact(), worth).sum()
        everyone, earned = torch.ones_like(entropy, dtype=torch.bool), self.earned(star, worth)
        logs = {
            "worth": mean(earned, ~earned.isnan()),
            "non": mean(~star.any(dim=1), everyone),
            "size": mean(star.sum(1), everyone),
            "entropy": mean(entropy.detach(), everyone),
        }
        return loss - self.config.reinforce.entropy_bonus * entropy.sum(), logs

    @torch.inference_mode()
    def validate(self) -> dict[str, float]:
        """Mean rewards on dev: of the strategy's selection, of taking nothing, all, and the best of all subsets.

        `worth` is what is learned and what the best model is chosen by: the reward less the prices.
        """
        self.module.eval()
        total: dict[str, float] = dict.fromkeys(("worth", "reward", "none", "full", "oracle", "non", "size"), 0.0)
        count = 0
        for part in self.parts(self.dev):
            _, star, rewards, prices = self.select(self.dev, part)
            found = {
                "worth": self.earned(star, rewards - prices),
                "reward": self.earned(star, rewards),
                "none": rewards[:, 0],
                "full": rewards[:, -1],
                "oracle": rewards.amax(dim=1),
                "non": ~star.any(dim=1),
                "size": star.sum(1),
            }
            for name, values in found.items():
                total[name] += float(values.double().sum())
            count += len(part)
        means = {name: value / max(1, count) for name, value in total.items()}
        return {"score": means["worth"], **means}


def expected(probability: Tensor, worth: Tensor) -> Tensor:
    """[n] the expectation under probabilities [n, m] of values [n, m], above their mean; over the values that are not
    nan, as if only they could be drawn."""
    known = ~worth.isnan()
    drawn, worth = torch.where(known, probability, 0.0), torch.where(known, worth, 0.0)
    mean_worth = worth.sum(1, keepdim=True) / known.sum(1, keepdim=True)
    above = torch.where(known, worth - mean_worth, 0.0)
    return (drawn * above).sum(1) / drawn.sum(1).clamp(min=1e-20)
