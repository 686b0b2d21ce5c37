"""The reader that compares mean word vectors: by hand, and that it sees just what it should."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from stage_runs import SHORT
from tiny_runs import changed, train_here

from dynctx.batches import Gatherer
from dynctx.config import ScorerConfig
from dynctx.corpus import TokenStore
from dynctx.layers import Embedding
from dynctx.model_folder import load_model
from dynctx.selection.bags import Bags, mean_vectors
from dynctx.selection.instances import Instances, gather_instances
from dynctx.selection.scorer import Scorer
from dynctx.subwords import NON
from dynctx.training.scorer import ScorerRecipe

pytest_plugins = ("tiny_fixtures", "stage_fixtures")

SCOPE = 2
# one document of three sentences, and one of a single long one
STORE = TokenStore.from_ids([[([10, 11], [8]), ([12], [8]), ([10, 13, 12], [8])], [([14] * 40, [8])]])


def instances_of(*sentences: int) -> Instances:
    return gather_instances(Gatherer(STORE, SCOPE), np.array(sentences))


def embedding() -> Embedding:
    torch.manual_seed(1)
    return Embedding(20, 8, 0.0).double()


def expected(words: Embedding, *ids: int) -> torch.Tensor:
    return (words.weight[list(ids)] * 8**0.5).mean(0)


def test_means_by_hand() -> None:
    """Of each pair the words of the sentence and of the candidate, without <DCS>, <SEP> and padding."""
    words, instances = embedding(), instances_of(2, 3)
    means, lengths = mean_vectors(instances, words)
    place = instances.head
    assert lengths[place[0]].tolist() == [[3, 1], [3, 2], [3, 1]] and lengths[place[1, SCOPE]].tolist() == [40, 1]
    sentence, candidates = (10, 13, 12), [(12,), (10, 11), (NON,)]
    for column, candidate in enumerate(candidates):
        a, b = means[place[0, column]]
        assert torch.allclose(a, expected(words, *sentence)) and torch.allclose(b, expected(words, *candidate))
    a, b = means[place[1, SCOPE]]  # the first of its document: NON alone
    assert torch.allclose(a, expected(words, 14)) and torch.allclose(b, expected(words, NON))


def test_the_state_of_a_pair_by_hand() -> None:
    words, instances = embedding(), instances_of(2)
    torch.manual_seed(2)
    bags = Bags(8, 0.5).double().eval()
    found = bags(instances, words)
    sides = []
    for ids in ((10, 13, 12), (12,)):
        mean = expected(words, *ids)
        normal = (mean - mean.mean()) / (mean.var(unbiased=False) + 1e-5).sqrt()
        sides.append(bags.project.weight @ normal + bags.project.bias)
    a, b = sides
    lengths = torch.tensor([math.log(3), 0.0], dtype=torch.float64)
    state = torch.relu(bags.compare.weight @ torch.cat([a, b, a * b, (a - b).abs(), lengths]) + bags.compare.bias)
    assert found.shape == (1, SCOPE + 1, 8) and torch.allclose(found[0, 0], state)


@pytest.mark.parametrize("independent", [False, True])
def test_a_sentence_alone_is_scored_as_among_others(independent: bool) -> None:
    torch.manual_seed(3)
    scorer = Scorer(ScorerConfig(reader="bags", dropout=0.0), 8, 16, 2, SCOPE).double().eval()
    words = embedding()
    alone, among = (scorer(instances_of(*s), words, independent) for s in ((2,), (3, 1, 2, 0)))
    assert torch.allclose(alone[0], among[2], atol=1e-12) and not torch.allclose(among[1], among[2])
    assert len(scorer.pair_layers) == 0


def test_candidates_and_their_words_matter() -> None:
    torch.manual_seed(3)
    scorer = Scorer(ScorerConfig(reader="bags", dropout=0.0), 8, 16, 2, SCOPE).double().eval()
    words = embedding()
    before = scorer(instances_of(2), words, independent=True)
    with torch.no_grad():
        words.weight[11, 0] += 1.0  # in the candidate at distance 2 alone
    after = scorer(instances_of(2), words, independent=True)
    assert after[0, 1] != before[0, 1] and torch.equal(after[0, [0, 2]], before[0, [0, 2]])


def test_a_scorer_of_the_other_reader_is_left_behind(tiny_config: Path, stages: Path, tmp_path: Path) -> None:
    """A run that reads otherwise starts from the same translator with a scorer of its own, and learns."""
    settings = [*SHORT, f"labels.folder={stages / 'labels'}", f"training.init={stages / 'scorer'}"]
    config = changed(tiny_config, tmp_path, *settings, "scorer.enabled=true", "scorer.reader=bags")
    recipe = ScorerRecipe(config, torch.device("cpu"))
    assert recipe.copied[-1] == "left behind: its context scorer (scorer.reader is bags)"
    train_here(tiny_config, tmp_path / "run", *settings, "training.stage=scorer", "scorer.reader=bags")
    model = load_model(tmp_path / "run")
    assert model.scorer is not None and model.scorer.bags is not None
    before = load_model(stages / "scorer").translator.state_dict()
    assert all(torch.equal(weight, before[name]) for name, weight in model.translator.state_dict().items())


def test_a_scorer_may_be_left_behind_to_begin_anew(tiny_config: Path, stages: Path, tmp_path: Path) -> None:
    settings = [
        *SHORT,
        f"labels.folder={stages / 'labels'}",
        f"training.init={stages / 'scorer'}",
        "scorer.enabled=true",
    ]
    kept, fresh = (
        ScorerRecipe(changed(tiny_config, tmp_path, *settings, f"scorer.fresh={said}"), torch.device("cpu"))
        for said in ("false", "true")
    )
    assert fresh.copied[-1] == "left behind: its context scorer (scorer.fresh is true)"
    before = load_model(stages / "scorer")
    assert before.scorer is not None
    for recipe, same in ((kept, True), (fresh, False)):
        assert torch.equal(recipe.scorer.hidden.weight, before.scorer.hidden.weight) is same
        assert torch.equal(recipe.translator.output.weight, before.translator.output.weight)
