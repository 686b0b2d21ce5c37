"""Training a translator on the likelihood of the references."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dynctx.batches import Batch, Gatherer, without_some_words
from dynctx.config import Config
from dynctx.corpus import Ints, TokenStore, reserved
from dynctx.devices import many_shapes
from dynctx.errors import DynctxError
from dynctx.evaluation.bleu import corpus_bleu
from dynctx.evaluation.split import selections
from dynctx.losses import chunk_loss_and_gradient, smoothed_cross_entropy
from dynctx.model_folder import Model, build_scorer, check_reserve, check_subwords, join, load_model, named, save_model
from dynctx.pipeline import translate_documents
from dynctx.planning import Plan, Shape, choose_shape, plan_epoch, plan_pairs, updates
from dynctx.prepared import load_subwords, read_held_out
from dynctx.scoring import score
from dynctx.selection.scorer import Scorer, judge
from dynctx.selection.strategies import BLIND, Previous, Selector, parse_selector
from dynctx.subwords import Subwords
from dynctx.translators import build_translator
from dynctx.translators.sentence import SentNmt

FORESEEN = 2**18  # sentences whose context is drawn at a time


class TranslationRecipe:
    """Cross-entropy on the training pairs; BLEU on dev through the decoder that users get."""

    def __init__(self, config: Config, device: torch.device) -> None:
        self.config = config
        folder = Path(config.data.folder)
        self.source, self.target = load_subwords(folder)
        torch.manual_seed(config.seed)
        translator = build_translator(config.model, len(self.source), len(self.target))
        self.scorer = build_scorer(config)
        self.copied = start_from(translator, self.scorer, config.training.init, self.source, self.target, config)
        self.translator, self.module = translator, join(translator, self.scorer)
        freeze_for_stage(translator, self.scorer, config)
        self.selector = self.choose(config.training.selector)
        self.epoch = 0
        self.gatherer = Gatherer(TokenStore.open(folder / "train"), translator.scope, device, translator.lays_context)
        self.lengths = self.gatherer.lengths()
        self.usable = self.wanted(self.gatherer.store)
        chosen = self.foreseen(0)
        usual = self.lengths if chosen is None else self.gatherer.lengths_of(np.arange(len(self.usable)), chosen)
        most = usual if isinstance(self.selector, Previous) else self.lengths  # another selection may be longer
        self.shape = choose_shape(
            usual, self.usable, config.training.batch_tokens, config.training.row_length, most=most
        )
        self.run_length = config.training.run_length or translator.run_length
        selectors = config.training.validation.selector, config.decoding.selector, config.training.selector
        name = next(filter(None, selectors))
        for used in filter(None, selectors):
            self.choose(used)  # a name that means nothing shows now, and not in the finished model
        model = Model(config, translator, self.source, self.target, {}, self.scorer)
        self.dev = DevSet(config, model, device, self.choose(name))
        self.head = chunk_loss_and_gradient
        if config.runtime.compile:
            self.compile()

    def choose(self, selector: str) -> Selector:
        probabilities = judge(self.scorer, self.translator.source_embedding) if self.scorer else None
        return parse_selector(selector, self.config.seed, probabilities)

    def wanted(self, store: TokenStore) -> NDArray[np.bool_]:
        """[sentences] which are learned from."""
        return np.asarray(store.usable) & ~reserved(store, self.config.training.reserve)

    def compile(self) -> None:
        self.translator.compile_layers()
        self.head = torch.compile(chunk_loss_and_gradient)

    def describe(self) -> list[str]:
        kept, pieces = int(self.usable.sum()), int(self.lengths[1][self.usable].sum())
        reserve = self.config.training.reserve
        return [
            f"{kept:,} sentence pairs of {len(self.usable):,}, {pieces:,} target pieces",
            *([f"documents kept from translators: {reserve:.0%} of the sentences"] if reserve else []),
            *self.contexts(),
            f"a batch: {self.shape}; an update: {self.config.training.update_batches} of them",
        ]

    def contexts(self) -> list[str]:
        if not self.translator.scope:
            return ["context: none, a sentence model reads none"]
        return [
            f"context: {self.selector.name}, scope {self.translator.scope}",
            f"context in validation: {self.dev.selector.name}",
        ]

    def updates(self, epoch: int, index: int) -> Iterator[tuple[int, int, list[Plan]]]:
        for update in updates(self.plans, self.config.training.update_batches, epoch, index):
            self.epoch = update[0]
            yield update

    def plans(self, epoch: int) -> list[Plan]:
        chosen = self.foreseen(epoch)
        lengths = self.lengths if chosen is None else self.gatherer.lengths_of(np.arange(len(self.usable)), chosen)
        documents = self.gatherer.store.documents
        plans = plan_epoch(lengths, self.usable, self.shape, self.config.seed, epoch, self.run_length, documents)
        return plans if chosen is None else [replace(plan, chosen=chosen[plan.sentences]) for plan in plans]

    def foreseen(self, epoch: int) -> NDArray[np.bool_] | None:
        """[sentences, scope] what will be selected in this epoch, if it does not depend on what a model says: then
        only that is laid into the batches. A random selection is drawn anew each epoch."""
        if not self.gatherer.lay_context or not isinstance(self.selector, BLIND):
            return None
        everyone = np.arange(len(self.usable))
        parts = [everyone[i : i + FORESEEN] for i in range(0, len(everyone), FORESEEN)]
        found = [self.selector.select(self.gatherer.bare(part), epoch).cpu().numpy() for part in parts]
        return np.concatenate(found)

    def normaliser(self, plans: list[Plan]) -> int:
        return sum(plan.target_tokens for plan in plans)

    def loss(self, plan: Plan) -> tuple[Tensor, dict[str, Tensor]]:
        shape = self.shape
        # what was compiled for one shape would be compiled anew for every other
        if plan.chosen is None and self.gatherer.lay_context and not self.config.runtime.compile:
            plan, shape = self.chosen_now(plan.sentences)
        batch = self.gatherer.gather(plan, shape)
        if share := self.config.training.word_dropout:
            batch = without_some_words(batch, share)
        if plan.chosen is None:
            selection = self.selector.select(batch, self.epoch)
        else:
            selection = self.gatherer.to_device(plan.chosen)
        with nullcontext() if shape == self.shape else many_shapes():
            memory = self.translator.encode(batch, selection)
            states = self.translator.decode(memory, batch)
        return self.likelihood(states, batch), {}

    def chosen_now(self, sentences: Ints) -> tuple[Plan, Shape]:
        """What a scorer selects is known when it has been asked; then only that is laid into the batch."""
        asked = self.gatherer.bare(sentences)
        chosen = (self.selector.select(asked, self.epoch) & asked.present).cpu().numpy()
        return plan_pairs(self.gatherer, sentences, chosen)[1:]

    def likelihood(self, states: Tensor, batch: Batch) -> Tensor:
        """The smoothed cross-entropy of the references, summed."""
        real = batch.target.sentence >= 0
        smoothing = self.config.training.label_smoothing
        output = self.translator.output.weight
        return smoothed_cross_entropy(states, output, batch.target.ids, real, smoothing, self.head)

    def validate(self) -> dict[str, float]:
        return self.dev.score()

    def save(self, folder: Path, about: dict[str, Any]) -> None:
        save_model(folder, Model(self.config, self.translator, self.source, self.target, about, self.scorer))


# what a model and the one it starts from must have in common, or weights of one shape would mean another thing
SHARED = ("width", "feed_forward", "heads", "encoder_layers", "decoder_layers", "norm", "tie_embeddings")


def start_from(
    translator: SentNmt,
    scorer: Scorer | None,
    folder: str,
    source: Subwords,
    target: Subwords,
    config: Config | None = None,
) -> list[str]:
    """Copy an earlier model's weights; what it does not have starts fresh. Returns what was done, in words."""
    if not folder:
        if translator.needs_sentence_model:
            raise DynctxError(
                f"model.kind {translator.config.kind} learns on top of a sentence model: set training.init to one"
            )
        return ["all parameters start at random"]
    earlier = load_model(folder)
    check_subwords(folder, earlier, source, target)
    if config is not None:
        check_reserve(folder, earlier.config, config)
    kind = earlier.config.model.kind
    if kind not in ("sentence", translator.config.kind):
        raise DynctxError(
            f"{folder}: that model is of kind {kind}, the config's is {translator.config.kind} (model.kind)"
        )
    for name in SHARED:
        here, there = getattr(translator.config, name), getattr(earlier.config.model, name)
        if here != there:
            raise DynctxError(
                f"{folder}: that model has model.{name} {there}, the config {here}; they must be the same"
            )
    left = ""
    if earlier.scorer is not None and scorer is None:  # of no use to a model that does not select
        left = "scorer.enabled is false"
    elif earlier.scorer is not None and scorer is not None and earlier.scorer.config.reader != scorer.config.reader:
        left = f"scorer.reader is {scorer.config.reader}"
    elif earlier.scorer is not None and scorer is not None and scorer.config.fresh:
        left = "scorer.fresh is true"
    if left:
        earlier.scorer = None
    own, old = named(join(translator, scorer)), named(earlier.network)
    for name, parameter in old.items():
        if name not in own or own[name].shape != parameter.shape:
            raise DynctxError(f"{folder}: its {name} {tuple(parameter.shape)} has no place in the configured model")
        with torch.no_grad():
            own[name].copy_(parameter)
    inherited = translator.inherit(own.keys() - old.keys())
    new = sorted({name.split(".")[0] for name in own.keys() - old.keys()} - set(inherited))
    return [
        f"copied from {folder}: {len(old)} tensors" + (f", and into {', '.join(inherited)}" if inherited else ""),
        f"new, starting at random: {', '.join(new) or 'nothing'}",
        *([f"left behind: its context scorer ({left})"] if left else []),
    ]


def freeze(translator: SentNmt, config: Config) -> None:
    """Stop the gradient of what stays as it is: in stage 2, what the model's authors keep."""
    how = config.training.freeze
    if how == "nothing" or (how == "auto" and not config.training.init):
        return
    frozen = translator.frozen_in_stage_two() if how == "auto" else translator.base_parts()
    for name, parameter in translator.named_parameters():
        if name.split(".")[0] in frozen:
            parameter.requires_grad_(False)


def freeze_for_stage(translator: SentNmt, scorer: Scorer | None, config: Config) -> None:
    """Stop the gradient of all that does not learn in the config's stage."""
    stage = config.training.stage
    if stage == "scorer" or (stage == "reinforce" and config.reinforce.scorer_only):
        translator.requires_grad_(False)
    elif stage == "translation" or config.training.freeze == "base" or translator.only_reads_base:
        freeze(translator, config)  # otherwise rewards teach what is frozen in stage 2, too
    if scorer is not None:  # beside a translator that learns from references it is there to choose
        scorer.requires_grad_(stage != "translation")


class DevSet:
    """The dev documents: texts to translate as users will, tokens to score."""

    def __init__(self, config: Config, model: Model, device: torch.device, selector: Selector) -> None:
        folder = Path(config.data.folder)
        if config.data.dev is None:
            raise DynctxError("data.dev is missing: training is validated on it")
        pairs = read_held_out(folder, "dev")
        if config.training.dev_documents:
            pairs = pairs[: config.training.dev_documents]
        self.sources = [source for source, _ in pairs]
        self.references = [sentence for _, target in pairs for sentence in target.sentences]
        self.model, translator = model, model.translator
        self.gatherer = Gatherer(TokenStore.open(folder / "dev"), translator.scope, device, translator.lays_context)
        self.sentences = np.arange(len(self.references))
        self.language = config.data.target_language or "en"
        self.decoding = config.training.validation
        self.selector = selector

    def score(self) -> dict[str, float]:
        found = translate_documents(self.model, self.sources, self.decoding, self.selector)
        texts = [sentence for document in found for sentence in document.sentences]
        bleu = corpus_bleu(texts, [self.references], language=self.language)
        return {"score": bleu.value, "bleu": bleu.value, "loss": self.loss()}

    def loss(self) -> float:
        """Mean negative log-likelihood of a reference token, without smoothing."""
        selection = selections(self.gatherer, self.sentences, self.selector)
        found = score(self.model.translator, self.gatherer, self.sentences, selection)
        return -float(found.log_probability.sum() / found.tokens.sum())
