"""CADec: the banks, the drafts, the whole network against one written out here, and what stage 2 copies and trains."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from context_models import (
    SCOPE,
    SELECTIONS,
    SMALL,
    STORE,
    V,
    all_selections,
    batch_of,
    logits,
    new_parameters,
    packed,
    small_model,
)
from plain import Plain
from torch import Tensor

from dynctx.batches import Gatherer, retargeted, with_targets
from dynctx.beam_search import BeamSearch
from dynctx.config import CadecConfig, Config, DataConfig, DecodingConfig, ModelConfig, TrainingConfig
from dynctx.corpus import TokenStore
from dynctx.errors import DynctxError
from dynctx.layers import LayerSizes, Residual
from dynctx.linear import Linear
from dynctx.losses import token_losses
from dynctx.model_folder import Model, load_model, save_model
from dynctx.prepare import load_subwords
from dynctx.selection.scoring import score
from dynctx.subwords import BOS, EOS, SPECIAL
from dynctx.training.translation import freeze, freeze_for_stage, start_from
from dynctx.translators import build_translator
from dynctx.translators.cadec import BankAttention, SecondLayer, drafts_of, noisy
from dynctx.translators.sentence import BASE, SentNmt

# size


def test_new_parameters_at_base_size() -> None:
    attention = 4 * (512 * 512 + 512)
    source = 2 * (512 * 512 + 512) + 516 * 1024 + 1024  # keys and values from 512 + 4
    target = 2 * (512 * 512 + 512) + 1028 * 1024 + 1024  # from 2 * 512 + 4
    layer = attention + source + target + (2 * 512 * 2048 + 2048 + 512) + 4 * 1024
    assert layer == 5_788_160
    decoder, output = 6 * layer, 16_000 * 512
    assert decoder + 1024 == 34_729_984
    total, parts = new_parameters(kind="cadec", scope=3)
    assert total == 34_729_984 + output
    assert parts == {"second_decoder": (decoder, 0), "second_norm": (1024, 0), "output": (output, 0)}
    assert new_parameters(kind="cadec", scope=6)[0] == total + 6 * 2 * 3 * 1024  # three more distances
    # where the sentence model has an output layer of its own, that is one matrix more, too
    untied = [ModelConfig(tie_embeddings="none"), ModelConfig(kind="cadec", scope=3, tie_embeddings="none")]
    with torch.device("meta"):
        sizes = [sum(p.numel() for p in build_translator(c, 16000, 16000).parameters()) for c in untied]
    assert sizes[1] - sizes[0] == total


# the banks


def test_the_banks_by_hand() -> None:
    """Sentence 3 with the sentences at distance 1 and 3: its own first, then the others, oldest first."""
    model, batch = small_model("cadec"), batch_of(3)
    draft = [20, 9]
    bank = model.bank(batch, [draft])
    memory = model.encode(batch, torch.tensor([[True, False, True]]), bank)
    plain = Plain(model, 4, 2, "post")
    embedding = plain.weights["target_embedding.weight"]
    source, target = [], []
    for distance, said in ((0, [*draft, EOS]), (3, [20, EOS]), (1, STORE.target_ids(2))):
        ids = STORE.source_ids(3 - distance)
        mark = torch.eye(SCOPE + 1, dtype=torch.float64)[distance]
        states = plain.encode(ids)
        source += [torch.cat([state, mark]) for state in states]
        decoded = plain.decode(states, [BOS, *said[:-1]])
        target += [torch.cat([embedding[word], state, mark]) for word, state in zip(said, decoded)]
    for found, sentence, expected in (
        (memory.states, memory.sentence, torch.stack(source)),
        (memory.target, memory.target_sentence, torch.stack(target)),
    ):
        assert torch.allclose(found[0][sentence[0] == 0], expected, atol=1e-10, rtol=0)
        assert not found.requires_grad


def test_a_bank_may_have_columns_of_zeros() -> None:
    """As it has on a GPU; the keys and values are the same."""
    torch.manual_seed(1)
    attention, bank = BankAttention(8, 2, keys_from=13).double(), torch.randn(2, 5, 13, dtype=torch.float64)
    exact, wide = (attention.project(states) for states in (bank, torch.nn.functional.pad(bank, (0, 3))))
    for name in ("key", "value"):
        assert torch.allclose(getattr(exact, name), getattr(wide, name), atol=1e-12, rtol=0)


def test_a_layer_of_the_second_decoder_by_hand() -> None:
    """Width 2, one head, distances 0 and 1, every norm the identity, x = (1, 2).

    Self-attention sees itself and turns x round: + (2, 1) = (3, 3). The source bank has this sentence's (4, 0) and
    (0, 8) of the sentence before, whose distance earns it a score of ln 3: 1/4 (4, 0) + 3/4 (0, 8) = (1, 6), and
    x = (4, 9). The target bank has the draft's word (1, 0) with the state (0, 5); the value takes the word's first and
    the state's second number: + (1, 5) = (5, 14). Feed-forward: + (0, 2 relu(x_1)) = (5, 24).
    Without the sentence before: (3, 3) + (4, 0) + (1, 5) = (8, 8), and (8, 24).
    """
    layer = SecondLayer(LayerSizes(2, 1, 1, "pre", 0.0), distances=2).double().eval()
    for part in layer.modules():
        if isinstance(part, Residual):
            part.norm = torch.nn.Identity()  # type: ignore[assignment]
    turn, keep = [[0.0, 1], [1, 0]], [[1.0, 0], [0, 1]]
    score = math.sqrt(2) * math.log(3)
    weights: list[tuple[Linear, list[list[float]], list[float]]] = [
        (layer.self_attention.query_key_value, [[0, 0], [0, 0], [0, 0], [0, 0], *keep], [0.0] * 6),
        (layer.self_attention.output, turn, [0, 0]),
        (layer.memory_attention.query, [[0, 0], [0, 0]], [1, 0]),
        (layer.memory_attention.key_value, [[0, 0, 0, score], [0] * 4, [1, 0, 0, 0], [0, 1, 0, 0]], [0] * 4),
        (layer.memory_attention.output, keep, [0, 0]),
        (layer.target_attention.query, keep, [0, 0]),
        (layer.target_attention.key_value, [[1] * 6, [1] * 6, [1, 0, 0, 0, 0, 0], [0, 0, 0, 1, 0, 0]], [0] * 4),
        (layer.target_attention.output, keep, [0, 0]),
        (layer.feed_forward.inner, [[1, 0]], [0]),
        (layer.feed_forward.outer, [[0], [2]], [0, 0]),
    ]
    with torch.no_grad():
        for linear, weight, bias in weights:
            linear.weight.copy_(torch.tensor(weight, dtype=torch.float64))
            linear.bias.copy_(torch.tensor(bias, dtype=torch.float64))
    source = layer.memory_attention.project(torch.tensor([[[4.0, 0, 1, 0], [0, 8, 0, 1]]], dtype=torch.float64))
    target = layer.target_attention.project(torch.tensor([[[1.0, 0, 0, 5, 1, 0]]], dtype=torch.float64))
    seen = torch.ones(1, 1, 1, 1, dtype=torch.bool)
    for mask, expected in (([True, True], [5.0, 24.0]), ([True, False], [8.0, 24.0])):
        x = torch.tensor([[[1.0, 2.0]]], dtype=torch.float64)
        found = layer(x, seen, source, torch.tensor(mask)[None, None, None], target, seen)
        assert found.flatten().tolist() == pytest.approx(expected, abs=1e-12)


# drafts


def test_references_are_scored_with_the_drafts_that_are_used() -> None:
    """Beam search of the sentence model, once for each sentence however often it is scored."""
    model = small_model("cadec")
    gatherer = Gatherer(STORE, SCOPE, lay_context=False)
    sentences = np.array([4, 3, 4, 6])
    chosen = np.array([[1, 0, 1], [0, 1, 0], [0, 0, 0], [1, 0, 0]], np.bool_)
    found = score(model, gatherer, sentences, chosen).log_probability
    base, settings = model.sentence_model(), DecodingConfig()
    greedily = []
    for number, selection, value in zip(sentences.tolist(), chosen, found):
        batch = batch_of(number)
        limits = torch.from_numpy(batch.plan.lengths[0] - 1 + settings.max_extra)
        with torch.no_grad():
            search = BeamSearch(base, base.begin(base.encode(batch), 4), limits, settings.length_penalty)
            banks = model.bank(batch, [search.run()[0].ids]), model.bank(batch)
            expected, greedy = (
                -float(
                    token_losses(
                        model.output(model.decode(model.encode(batch, torch.from_numpy(selection)[None], bank), batch)),
                        batch.target.ids,
                    )[batch.target.sentence >= 0].sum()
                )
                for bank in banks
            )
        assert value == pytest.approx(expected, abs=1e-9)
        greedily.append(greedy)
    assert not np.allclose(found, greedily, atol=1e-3)  # which a greedy draft would not show


def test_rewards_do_not_teach_the_sentence_model_that_drafts() -> None:
    """No gradient comes to it but through the embedding that the second decoder shares, and that would spoil it."""
    config = Config(
        model=dataclasses.replace(SMALL, kind="cadec"), training=TrainingConfig(stage="reinforce", init="x")
    )
    model = build_translator(config.model, V, V)
    freeze_for_stage(model, None, config)
    learning = {name.split(".")[0] for name, p in model.named_parameters() if p.requires_grad}
    assert learning == {"second_decoder", "second_norm", "output"}
    config = Config(
        model=dataclasses.replace(SMALL, kind="tdnmt"), training=TrainingConfig(stage="reinforce", init="x")
    )
    tdnmt = build_translator(config.model, V, V)
    freeze_for_stage(tdnmt, None, config)
    assert all(p.requires_grad for p in tdnmt.parameters())


def test_noise_spares_the_first_word_and_the_end() -> None:
    words = [10, 11, 12, 13, 14]
    batch = batch_of(*[0] * 400, store=TokenStore.from_ids([[([7], words)]]))
    torch.manual_seed(1)
    target = noisy(batch, 0.2, V).target.ids[:, :6]
    assert (target[:, 0] == 10).all() and (target[:, 5] == EOS).all()
    changed = (target[:, 1:5] != batch.target.ids[:, 1:5]).double().mean()
    assert float(changed) == pytest.approx(0.2 * (1 - 1 / 22), abs=0.03)  # one draw in 22 is the word itself
    drawn = Counter(target[:, 1:5].flatten().tolist())
    assert set(drawn) == set(range(len(SPECIAL), V))
    assert torch.equal(noisy(batch, 0.0, V).target.ids, batch.target.ids)


def test_noise_reaches_what_the_decoder_reads() -> None:
    torch.manual_seed(1)
    batch = noisy(packed(), 1.0, V)
    for n, sentence in enumerate(batch.sentences.tolist()):
        mine = batch.target.sentence == n
        ids = batch.target.ids[mine].tolist()
        assert batch.prefix[mine].tolist() == [BOS, *ids[:-1]]
        assert ids[-1] == EOS and ids[0] == STORE.target_ids(sentence)[0]


def greedy(plain: Plain, ids: list[int], limit: int) -> list[int]:
    states, said = plain.encode(ids), [BOS]
    while said[-1] != EOS:
        scores = plain.linear("base_output", plain.decode(states, said)[-1])
        scores[[symbol for symbol in range(len(SPECIAL)) if symbol != EOS]] = -torch.inf
        said.append(int(scores.argmax()) if len(said) <= limit else EOS)
    return said[1:]


@pytest.mark.parametrize("layout", ["packed", "rows"])
def test_drafts_by_greedy_search(layout: str) -> None:
    """Each in its sentence's row, ended by EOS, at its limit at the latest, and read by the decoder one token later."""
    model = small_model("cadec", "pre")
    batch = packed() if layout == "packed" else batch_of(3, 0, 6, 2)
    limits = np.arange(len(batch))
    said, _, _ = drafts_of(model.sentence_model(), batch, limits)
    with torch.no_grad():  # end where the last sentence says its second word
        model.base_output.weight[EOS] = 1.1 * model.base_output.weight[said[-1, 1]]
    plain = Plain(model, 4, 2, "pre")
    draft = retargeted(batch, np.arange(len(batch)), *drafts_of(model.sentence_model(), batch, limits))
    ended = 0
    for n, sentence in enumerate(batch.sentences.tolist()):
        expected = greedy(plain, STORE.source_ids(sentence), int(limits[n]))
        mine = draft.target.sentence == n
        assert draft.target.ids[mine].tolist() == expected, n
        assert draft.prefix[mine].tolist() == [BOS, *expected[:-1]]
        assert draft.target.position[mine].tolist() == list(range(len(expected)))
        assert (mine.any(1) == (batch.source.sentence == n).any(1)).all()
        ended += len(expected) <= limits[n]
    assert 0 < ended < len(batch)


def test_samples_come_as_often_as_the_model_says() -> None:
    model = small_model("cadec")
    batch = batch_of(*[3] * 4000)
    base = model.sentence_model()
    torch.manual_seed(3)
    drawn = drafts_of(base, batch, np.full(4000, 1), temperature=0.5)[0][:, 0]
    scores = Plain(model, 4, 2, "post")
    logit = scores.linear("base_output", scores.decode(scores.encode(STORE.source_ids(3)), [BOS])[0])
    logit[[symbol for symbol in range(len(SPECIAL)) if symbol != EOS]] = -torch.inf
    expected = (logit / 0.5).softmax(-1)
    share = torch.bincount(drawn, minlength=V) / 4000
    assert (share - expected).abs().max() < 0.03 and expected.max() > 0.1


def test_what_drafts_training_sees() -> None:
    """References with noise, or samples; which, is drawn once a batch, and all follows torch's seed."""
    model, batch = small_model("cadec", cadec=CadecConfig(reference_noise=0.0, sample_noise=0.0)).train(), packed()
    kinds = []
    for seed in range(40):
        torch.manual_seed(seed)
        draft = model.bank(batch).draft
        torch.manual_seed(seed)
        again = model.bank(batch)
        assert torch.equal(draft.target.ids, again.draft.target.ids)
        kinds.append(draft.target is batch.target or torch.equal(draft.target.ids, batch.target.ids))
    assert 10 < sum(kinds) < 30


def drawn(seed: int, **own: float) -> Tensor:
    """The draft that training sees of a batch, with the seed."""
    model = small_model("cadec", cadec=CadecConfig(**own)).train()
    torch.manual_seed(seed)
    return model.bank(packed()).draft.target.ids


def test_each_kind_of_draft_has_its_own_noise() -> None:
    references = packed().target.ids
    assert torch.equal(drawn(1, reference_drafts=1, reference_noise=0, sample_noise=1), references)
    assert not torch.equal(drawn(1, reference_drafts=1, reference_noise=1, sample_noise=0), references)
    plain = drawn(1, reference_drafts=0, reference_noise=0, sample_noise=0)
    assert torch.equal(drawn(1, reference_drafts=0, reference_noise=1, sample_noise=0), plain)
    assert not torch.equal(drawn(1, reference_drafts=0, reference_noise=0, sample_noise=1), plain)


def test_the_temperature_of_drafts() -> None:
    """Near 0 every seed draws the same, the likeliest; at 1 it does not."""
    sampled = {"reference_drafts": 0.0, "sample_noise": 0.0}
    assert torch.equal(drawn(1, temperature=1e-4, **sampled), drawn(2, temperature=1e-4, **sampled))
    assert not torch.equal(drawn(1, temperature=1.0, **sampled), drawn(2, temperature=1.0, **sampled))


def test_the_longest_sentences_keep_their_references() -> None:
    """Of 60 sentences the 2 % longest, which is one here; all others are sampled, up to 1.25 times their length + 2."""
    model = small_model("cadec", cadec=CadecConfig(reference_drafts=0.0, sample_noise=0.0)).train()
    words = [20] * 30  # which a random model hardly says
    pairs = [([7, 8], words[:30] if n == 17 else words[: 3 + n % 2]) for n in range(60)]
    batch = batch_of(*range(60), store=TokenStore.from_ids([pairs]))
    torch.manual_seed(1)
    draft = model.bank(batch).draft.target
    sizes = []
    for n in range(60):
        ids = draft.ids[draft.sentence == n].tolist()
        assert (ids == [*words, EOS]) == (n == 17)
        sizes.append(len(ids))
    assert max(sizes[:17] + sizes[18:]) == 9  # ceil(1.25 * 5) + 2, with EOS
    assert EOS not in [ids for n in range(60) for ids in draft.ids[draft.sentence == n].tolist()[:-1]]


def test_dropout_in_training_is_on_for_this_sentence_and_off_for_its_context() -> None:
    model, batch = small_model("cadec", cadec=CadecConfig(reference_drafts=1.0, reference_noise=0.0)).train(), packed()
    first, second = model.bank(batch), model.bank(batch)
    assert first.target is not None and second.target is not None
    assert torch.equal(first.source.states, second.source.states)
    assert torch.equal(first.target.states, second.target.states)
    assert not torch.equal(first.memory.states, second.memory.states)
    assert not torch.equal(first.draft_states, second.draft_states)


# the whole network


class Reference(Plain):
    """CADec for one sentence, from the weights alone; the second decoder is pre-norm whatever the first is."""

    def second(self, source: Tensor, target: Tensor, prefix: list[int]) -> Tensor:
        x = self.embed("target", prefix)
        for n in range(self.layers):
            name = f"second_decoder.{n}"
            steps = [
                ("self", lambda y, a=f"{name}.self_attention": self.self_attention(a, y, True)),
                ("memory", lambda y, a=f"{name}.memory_attention": self.cross_attention(a, y, source)),
                ("target", lambda y, a=f"{name}.target_attention": self.cross_attention(a, y, target)),
                ("feed_forward", lambda y, a=f"{name}.feed_forward": self.feed_forward(a, y)),
            ]
            for step, sublayer in steps:
                x = self.add(f"{name}.{step}_residual", x, sublayer, pre=True)
        return self.norm("second_norm", x)

    def logits(self, sentence: int, distances: set[int]) -> Tensor:
        source, target = [], []
        embedding = self.weights["target_embedding.weight"]
        for distance in (0, *distances):
            ids = STORE.source_ids(sentence - distance)
            states = self.encode(ids)
            said = STORE.target_ids(sentence - distance) if distance else greedy(self, ids, 2 * len(ids) + 10)
            mark = torch.eye(SCOPE + 1, dtype=torch.float64)[distance]
            source.append(torch.cat([states, mark.expand(len(states), -1)], 1))
            decoded = self.decode(states, [BOS, *said[:-1]])
            target.append(torch.cat([embedding[said], decoded, mark.expand(len(said), -1)], 1))
        prefix = [BOS, *STORE.target_ids(sentence)[:-1]]
        return self.linear("output", self.second(torch.cat(source), torch.cat(target), prefix))


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_the_whole_network(norm: str) -> None:
    model = small_model("cadec", norm)
    batch, selection = all_selections()
    found = logits(model, batch, selection)
    for row, (sentence, distances) in enumerate(SELECTIONS):
        expected = Reference(model, 4, 2, norm).logits(sentence, distances)
        assert torch.allclose(found[row, : len(expected)], expected, atol=1e-10, rtol=0), (sentence, distances)


def test_given_drafts_are_used() -> None:
    model, batch = small_model("cadec"), batch_of(3, 4)
    base = model.sentence_model()
    own, _, lengths = drafts_of(base, batch, 2 * batch.plan.lengths[0] + 10)
    given = [ids[: n - 1] for ids, n in zip(own.tolist(), lengths.tolist())]
    found = [logits_with(model, batch, drafts) for drafts in (None, given, [[20], [21]])]
    real = batch.target.sentence >= 0
    assert torch.allclose(found[0][real], found[1][real], atol=1e-10, rtol=0)
    assert not torch.allclose(found[0][real], found[2][real], atol=1e-3, rtol=0)
    assert with_targets(batch, [[20], [21]]).target.ids[:, :2].tolist() == [[20, EOS], [21, EOS]]


@torch.no_grad()
def logits_with(model: SentNmt, batch: object, drafts: list[list[int]] | None) -> Tensor:
    bank = model.bank(batch, drafts)  # type: ignore[arg-type]
    return model.output(model.decode(model.encode(batch, batch.present, bank), batch))  # type: ignore[attr-defined]


# stage 2


@pytest.mark.parametrize("tie", ["all", "none"])
def test_stage_two_trains_the_second_decoder_only(tie: str) -> None:
    model = small_model("cadec", "pre", tie_embeddings=tie).train()
    freeze(model, Config(training=TrainingConfig(init="a sentence model")))
    batch, selection = all_selections()
    states = model.decode(model.encode(batch, selection), batch)
    model.output(states)[batch.target.sentence >= 0].log_softmax(-1)[:, 20].sum().backward()
    learning = {name for name, p in model.named_parameters() if p.grad is not None and p.grad.abs().max() > 1e-12}
    new = {n for n, _ in model.named_parameters() if n.split(".")[0] in ("second_decoder", "second_norm", "output")}
    assert learning == new
    assert {name.split(".")[0] for name, p in model.named_parameters() if not p.requires_grad} <= {*BASE, "base_output"}


@pytest.mark.parametrize("tie", ["all", "target", "none"])
def test_the_output_layer_starts_as_the_sentence_model_s(tmp_path: Path, prepared: DataConfig, tie: str) -> None:
    source, target = load_subwords(prepared.folder)
    sizes: ModelConfig = dataclasses.replace(SMALL, tie_embeddings=tie)  # type: ignore[arg-type]
    earlier = build_translator(sizes, len(source), len(target))
    save_model(tmp_path / "sentence", Model(Config(model=sizes), earlier, source, target))
    config = Config(model=dataclasses.replace(sizes, kind="cadec"))
    model = build_translator(config.model, len(source), len(target))
    said = start_from(model, None, str(tmp_path / "sentence"), source, target)
    assert said[1] == "new, starting at random: second_decoder, second_norm"
    base = model.sentence_model()
    assert torch.equal(model.output.weight, earlier.output.weight)
    assert model.output.weight is not base.output.weight
    old = dict(earlier.named_parameters(remove_duplicate=False))
    for name, mine in base.named_parameters(remove_duplicate=False):
        assert torch.equal(mine, old.pop(name)), name
    assert not old
    # the base stays what it was, in a saved model and in one that starts from it
    with torch.no_grad():
        model.output.weight.add_(1.0)
    save_model(tmp_path / "cadec", Model(config, model, source, target))
    third = build_translator(config.model, len(source), len(target))
    assert start_from(third, None, str(tmp_path / "cadec"), source, target)[1] == "new, starting at random: nothing"
    for other in (load_model(tmp_path / "cadec").translator, third):
        assert torch.equal(other.output.weight, earlier.output.weight + 1.0)
        assert torch.equal(other.sentence_model().output.weight, earlier.output.weight)


def test_without_a_sentence_model_there_is_nothing_to_correct(prepared: DataConfig) -> None:
    source, target = load_subwords(prepared.folder)
    model = build_translator(dataclasses.replace(SMALL, kind="cadec"), len(source), len(target))
    with pytest.raises(DynctxError, match=r"model\.kind cadec learns on top of a sentence model"):
        start_from(model, None, "", source, target)
