"""CADec's drafts: what training, scoring and use see, and that the sentence model behind them stays as it is."""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np
import pytest
import torch
from context_models import (
    SCOPE,
    SMALL,
    STORE,
    V,
    batch_of,
    packed,
    small_model,
)
from plain import Plain, greedy
from torch import Tensor

from dynctx.batches import Gatherer, retargeted
from dynctx.beam_search import BeamSearch
from dynctx.config import CadecConfig, Config, DecodingConfig, TrainingConfig
from dynctx.corpus import TokenStore
from dynctx.losses import token_losses
from dynctx.scoring import score
from dynctx.subwords import BOS, EOS, SPECIAL
from dynctx.training.translation import freeze_for_stage
from dynctx.translators import build_translator
from dynctx.translators.cadec import drafts_of, noisy
from dynctx.translators.sentence import SentNmt


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


def test_a_draft_out_of_the_bank_is_that_of_the_sentence_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bank has encoded what is sampled; nothing is encoded for it a second time."""
    settings = CadecConfig(reference_drafts=0.0, sample_noise=0.0, temperature=1e-4)
    model, batch = small_model("cadec", cadec=settings).train(), packed()
    limits = np.ceil(1.25 * batch.plan.lengths[1]).astype(np.int64) + 1
    expected, _, _ = drafts_of(model.sentence_model(), batch, limits, 1e-4)
    encoded: list[int] = []
    encode = SentNmt.encode
    monkeypatch.setattr(
        SentNmt, "encode", lambda self, b, *rest: (encoded.append(len(b.numbers)), encode(self, b, *rest))[1]
    )
    draft = model.bank(batch).draft.target
    assert len(encoded) == 2  # the bank, without dropout, and this sentence's own states, with it
    longest = int(limits.argmax())
    for n in range(len(batch)):
        ids = draft.ids[draft.sentence == n]
        assert n == longest or torch.equal(ids, expected[n, : len(ids)])


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
