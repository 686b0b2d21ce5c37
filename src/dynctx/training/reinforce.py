"""Self-critical training (section 3.3.3 of the paper): the scorer learns which selections earn more than its own.

For each sentence the strategy's selection Z* stands against selections drawn from the scorer's probabilities, and
their rewards decide. Three estimators of the same gradient: `self-critical` draws one and takes r(Z*) as the baseline,
`rloo` draws several and judges each by the others, `exact` takes the expectation over all subsets. The translator
learns along: from the reference with the drawn context, and from its own translation weighed by the advantage.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dynctx.batches import retargeted
from dynctx.config import Config
from dynctx.corpus import Ints, TokenStore, reserved
from dynctx.devices import many_shapes
from dynctx.errors import DynctxError
from dynctx.layers import Embedding
from dynctx.losses import smoothed_cross_entropy
from dynctx.packing import evenly
from dynctx.planning import Plan, plan_pairs
from dynctx.scoring import sums
from dynctx.selection.instances import gather_instances
from dynctx.selection.policy import Policy, policy_of, subsets
from dynctx.selection.scorer import Scorer
from dynctx.selection.strategies import Judged
from dynctx.subwords import EOS
from dynctx.training.translation import TranslationRecipe
from dynctx.translators.bank import quiet
from dynctx.translators.sampling import draw

Chosen = NDArray[np.bool_]  # [n, scope]
Estimate = tuple[Tensor, Tensor, Tensor]
MANY = 512  # sentences that make a large batch
LONG_ONES = 10  # of a large batch, one in so many is drawn apart from the others for its length
MORE = 10  # tokens that a translation may have more than the reference
WATCHED = 64  # sentences of a batch whose selection is compared with the initial scorer's


@dataclass(frozen=True)
class Outcome:
    """What one batch taught the scorer, and what the translator is to learn from."""

    loss: Tensor  # of the scorer, summed over sentences
    drawn: Chosen  # [n, scope] Z^
    advantage: Tensor  # [n] r(Z^) - r(Z*) without prices, 0 where they are the same
    logs: dict[str, Tensor]


class ReinforceRecipe(TranslationRecipe):
    """Scorer and translator together. Validation translates dev with the strategy's selection."""

    def __init__(self, config: Config, device: torch.device) -> None:
        if not config.training.init:
            raise DynctxError("training.init is missing: a model whose scorer has learned from labels")
        config.training.selector = config.reinforce.strategy
        super().__init__(config, device)
        assert self.scorer is not None
        if not isinstance(self.selector, Judged):
            raise DynctxError(
                f"reinforce.strategy is {config.reinforce.strategy!r}: expected probability-first or size-first N"
            )
        self.strategy: Judged = self.selector
        # as they were: the embedding too, which changes with the translator
        self.initial = copy.deepcopy(self.scorer).requires_grad_(False).to(device)
        self.initial_embedding = copy.deepcopy(self.translator.source_embedding).requires_grad_(False).to(device)

    def wanted(self, store: TokenStore) -> NDArray[np.bool_]:
        """The documents that the translator has not learned from, where there are such."""
        share, usable = self.config.training.reserve, np.asarray(store.usable)
        return usable & reserved(store, share) if share else usable

    def describe(self) -> list[str]:
        own = self.config.reinforce
        what = "the scorer alone" if own.scorer_only else f"scorer and translator, alpha {own.alpha:g}"
        return [*super().describe(), f"reinforced: {what}; estimator {own.estimator}, law {own.law}"]

    def loss(self, plan: Plan) -> tuple[Tensor, dict[str, Tensor]]:
        with many_shapes():
            outcome = self.select(plan.sentences)
            if self.config.reinforce.scorer_only:
                return outcome.loss, outcome.logs
            loss, logs = self.translate(plan.sentences, outcome)
            return outcome.loss + loss, outcome.logs | logs

    # the scorer

    def probabilities(
        self, scorer: Scorer, sentences: Ints, embedding: Embedding | None = None
    ) -> tuple[Tensor, Tensor]:
        """log P_select [n, scope + 1] and which candidates exist [n, scope]; dropout off, as in use."""
        instances = gather_instances(self.gatherer, sentences)
        scores = scorer.eval()(instances, embedding or self.translator.source_embedding)
        return scorer.log_probabilities(scores, instances.present), instances.present[:, :-1]

    def select(self, sentences: Ints) -> Outcome:
        """Try selections for some of the sentences; the others get one too, for the translator to learn with."""
        count, tried = len(sentences), self.tried(len(sentences))
        if tried.all():
            return self.attempt(sentences)
        some, rest = np.flatnonzero(tried), np.flatnonzero(~tried)
        with torch.no_grad():
            policy, _, _ = self.policy(sentences[rest])
            others = policy.sample()[0].cpu().numpy()
        found = self.attempt(sentences[some])
        drawn = np.zeros((count, self.gatherer.scope), np.bool_)
        drawn[some], drawn[rest] = found.drawn, others
        # those that are tried stand for all: the expected gradient is that of trying all of them
        advantage = found.advantage.new_zeros(count)
        advantage[self.gatherer.to_device(some)] = found.advantage * (count / len(some))
        return Outcome(found.loss * (count / len(some)), drawn, advantage, found.logs)

    def tried(self, count: int) -> NDArray[np.bool_]:
        """[n] for which sentences of a batch rewards are asked for; without a translator to train, all of them."""
        own = self.config.reinforce
        share = own.tried or (0.5 if count >= MANY else 1.0)
        if own.scorer_only or share >= 1:
            return np.ones(count, np.bool_)
        some = torch.randperm(count)[: max(1, round(share * count))]  # on the host, as nothing waits for it there
        return np.isin(np.arange(count), some.numpy())

    def policy(self, sentences: Ints) -> tuple[Policy, Tensor, Tensor]:
        """What selections are drawn from, the strategy's own, and which candidates exist, both [n, scope]."""
        assert self.scorer is not None
        log_probabilities, present = self.probabilities(self.scorer, sentences)
        star = self.strategy.choose(log_probabilities.detach().exp(), present)
        return policy_of(self.config.reinforce, self.strategy, log_probabilities, star), star, present

    def attempt(self, sentences: Ints) -> Outcome:
        own = self.config.reinforce
        policy, star, present = self.policy(sentences)
        drawn, log_probability = policy.sample()
        chosen = drawn.cpu().numpy()  # before rewards are asked for: later it would wait for them
        estimate = getattr(self, own.estimator.replace("-", "_"))
        loss, reward_star, reward_drawn = estimate(sentences, policy, star, drawn, log_probability)
        entropy = policy.entropy()
        loss = loss - own.entropy_bonus * entropy.sum()
        differ = (drawn != star).any(dim=1)
        advantage = torch.where(differ, reward_drawn - reward_star, 0.0)
        logs = self.logs(sentences, star, present, differ, advantage, entropy.detach())
        logs |= {"reward_star": mean(reward_star, differ), "reward_drawn": mean(reward_drawn, differ)}
        unpriced = advantage + own.price * (drawn.sum(1) - star.sum(1))  # the price of reading is the scorer's business
        return Outcome(loss, chosen, unpriced, logs)

    def rewards(self, sentences: Ints, *selections: Tensor) -> list[Tensor]:
        """The rewards [n] of several selections [n, scope]; what is asked for twice is worked out once."""
        scope = self.gatherer.scope
        weights = 1 << np.arange(scope)
        codes = np.stack([selection.cpu().numpy() @ weights for selection in selections])  # [k, n]
        pairs = codes + (np.arange(len(sentences)) << scope)
        unique, where = np.unique(pairs, return_inverse=True)
        chosen = (unique[:, None] >> np.arange(scope) & 1).astype(np.bool_)
        numbers = sentences[unique >> scope]
        _, cost = sums(
            self.translator, self.gatherer, numbers, chosen, True, self.config.reinforce.reward_tokens
        )  # not waited for: the host plans the next pass meanwhile
        tokens = self.gatherer.to_device(self.gatherer.lengths_of(numbers)[1])
        price = self.gatherer.to_device(self.config.reinforce.price * chosen.sum(1))
        found = (torch.exp(-cost / tokens) - price).float()
        return list(found[self.gatherer.to_device(where.reshape(pairs.shape))])

    # the estimators: loss of the scorer, and the rewards [n] of Z* and of Z^

    def self_critical(
        self, sentences: Ints, _: Policy, star: Tensor, drawn: Tensor, log_probability: Tensor
    ) -> Estimate:
        """-(r(Z^) - r(Z*)) log P(Z^): eq. 7 with its sign put right. Rows where the two are the same cost nothing."""
        differ = (drawn != star).any(dim=1)
        reward_star, reward_drawn = torch.zeros_like(log_probability), torch.zeros_like(log_probability)
        rows = torch.nonzero(differ).squeeze(1)
        if len(rows):
            numbers = sentences[rows.cpu().numpy()]
            found = self.rewards(numbers, star[rows], drawn[rows])
            reward_star, reward_drawn = (
                reward_star.index_copy(0, rows, found[0]),
                reward_drawn.index_copy(0, rows, found[1]),
            )
        loss = -((reward_drawn - reward_star).detach() * log_probability).sum()
        return loss, reward_star, reward_drawn

    def rloo(self, sentences: Ints, policy: Policy, star: Tensor, drawn: Tensor, log_probability: Tensor) -> Estimate:
        """Several draws, each against the mean of the others; the translator learns with the first."""
        count = self.config.reinforce.samples
        draws = [(drawn, log_probability), *(policy.sample() for _ in range(count - 1))]
        reward_star, *rewards = self.rewards(sentences, star, *[drawn for drawn, _ in draws])
        total = torch.stack(rewards).sum(0)
        loss = torch.zeros_like(total)
        for reward, (_, log_probability) in zip(rewards, draws):
            loss = loss - (reward - (total - reward) / (count - 1)) * log_probability / count
        return loss.sum(), reward_star, rewards[0]

    def exact(self, sentences: Ints, policy: Policy, star: Tensor, drawn: Tensor, _: Tensor) -> Estimate:
        """Minus the expected reward over all subsets of the candidates; the draw is for the translator only."""
        present = policy.log_probabilities[:, :-1] > -torch.inf
        every = torch.tensor(subsets(self.gatherer.scope), device=star.device)  # [2 ** scope, scope]
        found = self.rewards(sentences, *[present & subset for subset in every])
        table = torch.stack(found, dim=1)  # [n, 2 ** scope]
        loss = -(policy.exact() * (table - table.mean(1, keepdim=True))).sum()
        weights = 1 << torch.arange(self.gatherer.scope, device=star.device)
        reward_star, reward_drawn = (
            table.gather(1, (z * weights).sum(1, keepdim=True)).squeeze(1) for z in (star, drawn)
        )
        return loss, reward_star, reward_drawn

    # the translator

    def translate(self, sentences: Ints, outcome: Outcome) -> tuple[Tensor, dict[str, Tensor]]:
        """alpha * MLE(Y | X, Z^) + (1 - alpha) * (-A log P(Y^ | X, Z^)); what is encoded serves both.

        The second part is worked out in a share of the batches only, and weighs as much more in these.
        """
        alpha, output = self.config.reinforce.alpha, self.translator.output.weight
        share = self.config.reinforce.generated if alpha < 1 else 0.0
        # one draw for the batch, on the host: to generate at all costs more than to generate for every row
        generates = float(torch.rand(())) < share
        order, plan, shape = plan_pairs(self.gatherer, sentences, outcome.drawn)
        sentences, drawn = sentences[order], outcome.drawn[order]
        advantage = outcome.advantage[self.gatherer.to_device(order)]
        rows = np.flatnonzero(advantage.cpu().numpy()) if generates else np.zeros(0, np.int64)
        if len(rows):
            generated = self.generate(sentences[rows], drawn[rows])
        batch = self.gatherer.gather(plan, shape)
        self.translator.train()
        memory = self.translator.encode(batch, self.gatherer.to_device(drawn))
        loss = alpha * self.likelihood(self.translator.decode(memory, batch), batch)
        if len(rows):
            own = retargeted(batch, rows, *generated)
            states, owner = self.translator.decode(memory, own), own.target.sentence
            weight = torch.where(owner >= 0, advantage[owner.clamp(min=0)] / share, 0.0)
            loss = loss + (1 - alpha) * smoothed_cross_entropy(states, output, own.target.ids, weight, 0.0, self.head)
        counts = torch.tensor([float(len(rows)), float(len(sentences))], device=loss.device)
        return loss, {"generated": counts}

    def generate(self, sentences: Ints, chosen: Chosen) -> tuple[Tensor, Ints]:
        """Y^ of each sentence [m, L], and their lengths: a draw with this context, or the best guess.

        No longer than the reference by much, since the rest is noise: what is cut off there has not ended by itself,
        and the EOS behind it is not the model's.
        """
        own = self.config.reinforce
        limits = self.gatherer.lengths_of(sentences)[1] - 1 + MORE
        temperature = own.temperature if own.generation == "sample" else 0.0
        # a step takes nearly as long for a few as for many: those that take the most steps are drawn by themselves
        order = np.argsort(limits, kind="stable")
        few = len(order) // LONG_ONES if len(order) >= MANY else 0
        tokens = torch.full((len(sentences), int(limits.max()) + 1), EOS, device=self.gatherer.device)
        with quiet(self.translator), torch.compiler.set_stance("force_eager"):
            for part in np.split(order, [len(order) - few]):
                if not len(part):
                    continue
                together = self.translator.contexts_together
                part = part[evenly(self.gatherer.lengths_of(sentences[part], chosen[part])[2], together)]
                batch = self.gatherer.one_per_row(sentences[part], chosen[part], together)
                memory = self.translator.encode(batch, self.gatherer.to_device(chosen[part]))
                limit, longest = self.gatherer.to_device(limits[part]), int(limits[part].max())
                cache = self.translator.begin(memory, 1)
                found = draw(self.translator, cache, limit, temperature, longest=longest, scored=False)
                tokens[self.gatherer.to_device(part), : found.tokens.shape[1]] = found.tokens
        return tokens, np.minimum(((tokens != EOS).sum(dim=1) + 1).cpu().numpy(), limits)

    # what is told

    def logs(
        self, sentences: Ints, star: Tensor, present: Tensor, differ: Tensor, advantage: Tensor, entropy: Tensor
    ) -> dict[str, Tensor]:
        some = present[:, 0]  # sentences that have a candidate
        distance = torch.arange(1, star.shape[1] + 1, device=star.device).expand_as(star)
        watched = sentences[:WATCHED]
        with torch.no_grad():
            log_probabilities, there = self.probabilities(self.initial, watched, self.initial_embedding)
            before = self.strategy.choose(log_probabilities.exp(), there)
        same = (before == star[: len(watched)]).all(dim=1)
        return {
            "advantage": mean(advantage, differ),
            "spread": mean(advantage.abs(), differ),
            "differ": mean(differ, some),
            "non": mean(~star.any(dim=1), some),
            "size": mean(star.sum(1), some),
            "distance": mean(distance, star),
            "as_initial": mean(same, there[:, 0]),
            "entropy": mean(entropy, some),
        }


def mean(values: Tensor, where: Tensor) -> Tensor:
    """Sum and number of the values where it holds: what the log divides."""
    kept = torch.where(where, values.float(), 0.0)
    return torch.stack([kept.sum(), where.float().sum()])
