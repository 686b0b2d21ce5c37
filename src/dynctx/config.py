"""Typed configuration: the keys that decide a run, their types and defaults.

`configs/manual.yaml` explains every key. How YAML and `key=value` overrides fill the dataclasses, strictly, is
`dynctx.plain_data`'s part; what values they may have, `dynctx.config_rules`'s.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from dynctx.config_rules import check
from dynctx.documents import TextFile
from dynctx.errors import at
from dynctx.plain_data import build, override, read_yaml, to_dict


@dataclass
class ParallelFiles:
    """Two aligned texts; `documents` keeps only the first so many documents (0: all)."""

    source: TextFile
    target: TextFile
    documents: int = 0

    @property
    def paths(self) -> list[str]:
        """All that is read."""
        return [path for side in (self.source, self.target) for path in (side.path, side.docids) if path is not None]


@dataclass
class DataConfig:
    """What `dynctx prepare` reads and where it writes."""

    folder: str = "data"
    source_language: str = ""
    target_language: str = ""
    train: list[ParallelFiles] = field(default_factory=list)
    dev: ParallelFiles | None = None
    test: dict[str, ParallelFiles] = field(default_factory=dict)
    vocabulary: int = 16000
    joint: bool = True
    subwords: Literal["bpe", "unigram"] = "bpe"
    character_coverage: float = 0.9999
    byte_fallback: bool = True
    normalization: Literal["nmt_nfkc", "nfkc", "identity"] = "nmt_nfkc"
    subword_sample: int = 1_000_000
    subwords_from: str = ""
    max_length: int = 128
    max_ratio: float = 8.0


@dataclass
class TdnmtConfig:
    """Zhang et al. 2018: a context encoder, and gated attention to it in every layer."""

    context_encoder: Literal["self_attention", "embedding", "bilstm"] = "self_attention"
    context_layers: int = 1
    gate: bool = True
    empty_context: Literal["eos", "bypass"] = "eos"


@dataclass
class HanConfig:
    """Miculicich et al. 2018: hierarchical attention on top of the encoder, of the decoder, or of both."""

    encoder: bool = True
    decoder: bool = True


@dataclass
class SanConfig:
    """Maruf et al. 2019: sparse attention to sentences, and to the words inside them, on top of the encoder."""

    context_states: Literal["frozen_copy", "live_detached"] = "frozen_copy"


@dataclass
class CadecConfig:
    """Voita et al. 2019: a second decoder over drafts. Here: what drafts it is trained on."""

    reference_drafts: float = 0.5
    reference_noise: float = 0.2
    sample_noise: float = 0.1
    temperature: float = 0.5


@dataclass
class ModelConfig:
    """The network. Sizes default to Transformer base."""

    kind: Literal["sentence", "concat", "tdnmt", "han", "san", "cadec"] = "sentence"
    scope: int = 6
    width: int = 512
    feed_forward: int = 2048
    heads: int = 8
    encoder_layers: int = 6
    decoder_layers: int = 6
    norm: Literal["post", "pre"] = "post"
    dropout: float = 0.1
    attention_dropout: float = 0.0
    relu_dropout: float = 0.0
    tie_embeddings: Literal["all", "target", "none"] = "all"
    tdnmt: TdnmtConfig = field(default_factory=TdnmtConfig)
    han: HanConfig = field(default_factory=HanConfig)
    san: SanConfig = field(default_factory=SanConfig)
    cadec: CadecConfig = field(default_factory=CadecConfig)


@dataclass
class ScorerConfig:
    """The context scorer: L1 layers over each pair of sentences, L2 over the candidates of one sentence."""

    enabled: bool = False
    reader: Literal["pairs", "bags"] = "pairs"
    fresh: bool = False
    pair_layers: int = 2
    set_layers: int = 2
    dropout: float = 0.1
    distance_positions: bool = True
    squash: bool = True
    temperature: float = 1.0


@dataclass
class LabelsConfig:
    """Pseudo labels: which single candidates help a translator, from which the scorer first learns."""

    model: str = ""
    train: str = ""
    dev: str = ""
    folder: str = "labels"
    kind: Literal["likelihood", "bleu", "reward"] = "likelihood"
    margin: float = 0.0
    together: bool = False
    between: bool = False
    sentences: int = 0
    dev_sentences: int = 0
    subsets: int = 0
    batch_tokens: int = 32768


@dataclass
class ReinforceConfig:
    """Self-critical training of the scorer, and of the translator with it."""

    strategy: str = "probability-first"
    estimator: Literal["self-critical", "rloo", "exact"] = "self-critical"
    law: Literal["sequential", "independent"] = "sequential"
    sampling: Literal["include_non", "match_size"] = "include_non"
    samples: int = 4
    alpha: float = 0.75
    scorer_only: bool = False
    generation: Literal["sample", "greedy"] = "sample"
    tried: float = 0.0
    generated: float = 0.03125
    temperature: float = 1.0
    entropy_bonus: float = 0.0
    price: float = 0.0
    reward_tokens: int = 65536


@dataclass
class ScheduleConfig:
    """Learning rate: `inverse_sqrt` rises linearly to `peak` over `warmup` updates, then falls as 1/sqrt."""

    kind: Literal["inverse_sqrt", "constant"] = "inverse_sqrt"
    peak: float = 7e-4
    warmup: int = 4000


@dataclass
class DecodingConfig:
    """How translations are searched for, in validation and in use."""

    beam: int = 4
    length_penalty: float = 0.6
    max_extra: int = 50
    batch_sentences: int = 64
    selector: str = ""
    sampling: bool = False
    temperature: float = 1.0


@dataclass
class TrainingConfig:
    """One run of the training loop."""

    stage: Literal["translation", "scorer", "reinforce"] = "translation"
    output: str = "runs/model"
    init: str = ""
    freeze: Literal["auto", "nothing", "base"] = "auto"
    selector: str = "none"
    reserve: float = 0.0
    updates: int = 20000
    batch_tokens: int = 8192
    update_batches: int = 1
    row_length: int = 0
    run_length: int = 0
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    beta2: float = 0.98
    weight_decay: float = 0.0
    clip: float = 0.0
    label_smoothing: float = 0.1
    word_dropout: float = 0.0
    validate_every: int = 1000
    validation: DecodingConfig = field(default_factory=lambda: DecodingConfig(batch_sentences=256))
    dev_documents: int = 0
    patience: int = 0
    average: int = 5
    checkpoint_every: int = 500
    log_every: int = 50
    minutes: float = 0.0


@dataclass
class RuntimeConfig:
    """The machine: nothing here changes what is learned, only how fast and in which precision."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    threads: int = 0
    compile: bool = False


@dataclass
class Config:
    """Everything that decides a run."""

    seed: int = 1
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    scorer: ScorerConfig = field(default_factory=ScorerConfig)
    labels: LabelsConfig = field(default_factory=LabelsConfig)
    reinforce: ReinforceConfig = field(default_factory=ReinforceConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    decoding: DecodingConfig = field(default_factory=DecodingConfig)
    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)


def load_config(path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> Config:
    """Read a YAML file, lay `key=value` overrides over it and check the result."""
    config = parse_config(read_yaml(path), where=at(path))
    return apply_overrides(config, overrides)


def parse_config(content: dict[str, Any], where: str = "config") -> Config:
    config = build(Config, content, where, "")
    check(config, where)
    return config


def apply_overrides(config: Config, overrides: Sequence[str]) -> Config:
    """`training.updates=10`: the value is read as YAML, so lists and mappings can be given too."""
    content = to_dict(config)
    override(content, overrides)
    return parse_config(content, where="overrides")
