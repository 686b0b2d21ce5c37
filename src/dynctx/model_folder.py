"""What a trained model is on disk: a folder that holds all it takes to use it, and nothing that is unpickled.

config.yaml          the effective configuration: how to build it
model.safetensors    the weights (or model-00001-of-00003.safetensors and so on)
spm.model            the subword model (or spm.source.model and spm.target.model)
about.json           updates of these weights and of the whole run, scores, versions, fingerprints of the weights and of
                     those they began with; and where somebody wrote them down trained_on, results and licence
README.md            the model card, for people
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dynctx.config import Config, parse_config
from dynctx.config_rules import beyond_scope
from dynctx.errors import DynctxError, at
from dynctx.files import atomic_write, share
from dynctx.plain_data import read_yaml, to_yaml
from dynctx.prepared import load_subwords, save_subwords
from dynctx.selection.scorer import Scorer, judge
from dynctx.selection.strategies import Selector, parse_selector
from dynctx.subwords import Subwords
from dynctx.translators import build_translator
from dynctx.translators.sentence import SentNmt

SHIPPED = "tvsub-zh-en"
NAMED = "DYNCTX_MODEL"  # the environment variable


@dataclass
class Model:
    """A model ready for use."""

    config: Config
    translator: SentNmt
    source: Subwords
    target: Subwords
    about: dict[str, Any] = field(default_factory=dict)
    scorer: Scorer | None = None

    @property
    def selector(self) -> Selector:
        """What chooses the context where nothing else is asked for: as in training."""
        return self.choose(self.config.decoding.selector or self.config.training.selector)

    def choose(self, selector: str) -> Selector:
        """A selector by its name; the learned ones ask this model's scorer."""
        check_selector(selector, self.config)
        probabilities = judge(self.scorer, self.translator.source_embedding) if self.scorer else None
        return parse_selector(selector, self.config.seed, probabilities)

    @property
    def network(self) -> nn.Module:
        return join(self.translator, self.scorer)

    @property
    def device(self) -> torch.device:
        return self.translator.target_embedding.weight.device


def check_selector(selector: str, config: Config) -> None:
    """Whether a model that is built so can select so, without loading it."""
    if wrong := beyond_scope(selector, config.model):
        raise DynctxError(wrong)
    parse_selector(selector, config.seed, (lambda batch: batch.present) if config.scorer.enabled else None)


class Network(nn.Module):
    """A translator and its context scorer, as one thing to train and to save."""

    def __init__(self, translator: SentNmt, scorer: Scorer) -> None:
        super().__init__()
        self.translator, self.scorer = translator, scorer


def join(translator: SentNmt, scorer: Scorer | None) -> nn.Module:
    return translator if scorer is None else Network(translator, scorer)


def named(module: nn.Module) -> dict[str, nn.Parameter]:
    """Every parameter once, under its first name, which a translator's has whether or not a scorer stands beside."""
    return {name.removeprefix("translator."): parameter for name, parameter in module.named_parameters()}


def weights_of(module: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach() for name, parameter in named(module).items()}


def fingerprint(module: nn.Module) -> str:
    """Of the weights: what was made with one model must not be taken for that of another of the same name."""
    digest = hashlib.sha256()
    for name, tensor in module.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]


def save_model(folder: str | Path, model: Model, *, dtype: torch.dtype | None = None, shard_bytes: int = 2**31) -> None:
    """Write the folder beside its place and rename it into it: a reader finds the old one or the new one, whole, or for
    the moment between two renames none."""
    from safetensors import SafetensorError

    folder = Path(folder)
    beside, old = folder.with_name(folder.name + ".partial"), former(folder)
    shutil.rmtree(beside, ignore_errors=True)
    try:
        beside.mkdir(parents=True)
        (beside / "config.yaml").write_text(to_yaml(model.config), encoding="utf-8")
        save_subwords(beside, model.source, model.target)
        with atomic_write(beside / "about.json") as file:
            about = {**model.about, "weights": fingerprint(model.network)}
            json.dump(about, file, indent=1, ensure_ascii=False)
        (beside / "README.md").write_text(card(model), encoding="utf-8")
        save_weights(beside, weights_of(model.network), dtype, shard_bytes)
        shutil.rmtree(old, ignore_errors=True)
        if folder.exists():
            folder.rename(old)
        beside.rename(folder)
    except BaseException as error:
        if old.exists() and not folder.exists():
            old.rename(folder)
        shutil.rmtree(beside, ignore_errors=True)
        if isinstance(error, OSError | SafetensorError | DynctxError):
            reason = getattr(error, "strerror", None) or error
            raise DynctxError(f"{at(folder)}: the model could not be saved: {reason}") from None
        raise
    shutil.rmtree(old, ignore_errors=True)


def former(folder: Path) -> Path:
    """Where a model is for the moment in which its successor takes its place."""
    return folder.parent / f"{folder.name}.old"


def save_weights(folder: Path, weights: dict[str, Tensor], dtype: torch.dtype | None, shard_bytes: int) -> None:
    from safetensors.torch import save_file

    shards: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, weight in weights.items():
        tensor = weight.to("cpu", dtype or weight.dtype).contiguous()
        if size and size + tensor.nbytes > shard_bytes:
            shards.append({})
            size = 0
        shards[-1][name] = tensor
        size += tensor.nbytes
    for number, shard in enumerate(shards, 1):
        name = "model" if len(shards) == 1 else f"model-{number:05d}-of-{len(shards):05d}"
        save_file(shard, folder / f"{name}.safetensors")
        share(folder / f"{name}.safetensors")


def load_weights(folder: Path) -> dict[str, Tensor]:
    """All shards together; a missing or damaged one is named."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    files = sorted(folder.glob("model*.safetensors"))
    if not files:
        raise DynctxError(f"{at(folder)}: no model.safetensors here; is this a model folder?")
    count = files[0].stem.rpartition("-of-")[2]  # all of the name where it is the only file
    expected = int(count) if count.isdecimal() else 1
    if len(files) != expected:
        raise DynctxError(f"{at(folder)}: {len(files)} weight files of {expected}; the folder is incomplete")
    weights: dict[str, Tensor] = {}
    for file in files:
        try:
            weights |= load_file(file)
        except (SafetensorError, OSError) as error:
            raise DynctxError(f"{at(file)}: damaged weights ({error})") from None
    return weights


def put_weights(module: nn.Module, weights: dict[str, Tensor], where: Path | str) -> None:
    """Copy weights into a module; every name and shape must fit, and every weight be a number."""
    own = named(module)
    missing, extra = sorted(own.keys() - weights.keys()), sorted(weights.keys() - own.keys())
    if missing or extra:
        names = ", ".join((missing or extra)[:3])
        what = "lack" if missing else "have unknown"
        raise DynctxError(f"{at(where)}: the weights {what} {len(missing or extra)} tensors ({names}, ...)")
    with torch.no_grad():
        for name, parameter in own.items():
            if parameter.shape != weights[name].shape:
                raise DynctxError(
                    f"{at(where)}: {name} has shape {tuple(weights[name].shape)}, expected {tuple(parameter.shape)}"
                )
            if not weights[name].is_floating_point():
                raise DynctxError(
                    f"{at(where)}: {name} is {weights[name].dtype}, and weights are floating-point numbers"
                )
            parameter.copy_(weights[name])
            if not parameter.sum().isfinite():
                raise DynctxError(
                    f"{at(where)}: {name} holds weights that are no numbers: damaged, or its training went astray"
                )


def find_model(folder: str | Path) -> Path:
    """A model folder, or the `model` inside a run's folder."""
    folder = Path(folder)
    places = (folder, folder / "model")
    for place in places:
        if (place / "config.yaml").exists():
            return place
    message = f"{at(folder)}: no model here (a model folder holds config.yaml and model.safetensors)"
    for place in places:
        if not place.exists() and (former(place) / "config.yaml").exists():
            message += f"; {former(place)} is one: if saving its successor was cut off, rename it"
    raise DynctxError(message)


def default_model() -> Path:
    """The model where none is named: what DYNCTX_MODEL says, or the one that comes with dynctx.

    That lies beside the package, in the repository that it is installed from, or in the one that we are in.
    """
    if named := os.environ.get(NAMED):
        try:
            return find_model(named)
        except DynctxError as error:
            raise DynctxError(f"{error}; this is what {NAMED} names") from None
    package, here = Path(__file__).resolve().parent, Path.cwd()
    for folder in (package, package.parents[1], here, *here.parents):
        place = folder / "models" / SHIPPED
        if (place / "config.yaml").exists():
            return place
    raise DynctxError(
        f"no model: the one that comes with dynctx's repository (models/{SHIPPED}) is not in {here}, above it or in "
        f"{package}; name a model folder (on the command line with --model), or set the environment variable {NAMED}"
    )


def check_reserve(folder: str | Path, earlier: Config, now: Config) -> None:
    """What is kept in reserve is kept from the translator from the beginning to the end."""
    then, wanted = earlier.training.reserve, now.training.reserve
    if then != wanted:
        raise DynctxError(
            f"{folder}: that model was trained with training.reserve {then:g}, and the config has {wanted:g}; "
            "all stages need the same, or translators learn from what is to be asked about"
        )


def check_subwords(folder: str | Path, model: Model, source: Subwords, target: Subwords) -> None:
    """A model reads text that is cut into its own pieces."""
    if model.source.model != source.model or model.target.model != target.model:
        raise DynctxError(
            f"{folder}: that model has another subword model than the prepared data; they must be the same"
        )


def read_config(folder: str | Path) -> Config:
    """How a model is built and what its languages are, without its weights."""
    place = find_model(folder) / "config.yaml"
    return parse_config(read_yaml(place), where=at(place))


def load_model(folder: str | Path, device: torch.device | str = "cpu") -> Model:
    place = find_model(folder)
    config = read_config(place)
    source, target = load_subwords(place)
    translator = build_translator(config.model, len(source), len(target))
    scorer = build_scorer(config)
    network = join(translator, scorer)
    put_weights(network, load_weights(place), place)
    network.to(device).eval()
    return Model(config, translator, source, target, read_about(place), scorer)


def read_about(folder: Path) -> dict[str, Any]:
    place = folder / "about.json"
    if not place.exists():
        return {}
    try:
        about = json.loads(place.read_text(encoding="utf-8"))
    except OSError as error:
        raise DynctxError(f"{at(place)}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise DynctxError(f"{at(place)}: damaged (not JSON)") from None
    if not isinstance(about, dict):
        raise DynctxError(f"{at(place)}: damaged (not a JSON object)")
    return about


def write_down(folder: Path, **facts: Any) -> None:
    """Say more of a model that is there already."""
    about = read_about(folder) | facts
    beside = folder / "about.partial"  # always the same name: what a crash leaves is written over
    try:
        beside.write_text(json.dumps(about, indent=1, ensure_ascii=False), encoding="utf-8")
        beside.replace(folder / "about.json")
    except OSError as error:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise DynctxError(f"{at(folder / 'about.json')}: cannot be written: {error.strerror}") from None


def build_scorer(config: Config) -> Scorer | None:
    model = config.model
    if not config.scorer.enabled:
        return None
    return Scorer(config.scorer, model.width, model.feed_forward, model.heads, model.scope)


def card(model: Model) -> str:
    """A first model card; a published model's card is written by hand over it."""
    data, about = model.config.data, model.about
    languages = f"{data.source_language or '?'} to {data.target_language or '?'}"
    lines = [
        f"# {model.config.model.kind} model, {languages}",
        "",
        f"Updates: {about.get('updates', 'unknown')}. Seed: {model.config.seed}.",
        "",
        "Training data:",
        *(f"- {files.source.path} | {files.target.path}" for files in data.train),
        "",
        "Scores:",
        *(f"- {name}: {value}" for name, value in about.get("scores", {}).items()),
    ]
    if origin := about.get("origin"):
        lines += ["", f"Training began with {begun_from(origin)}."]
    return "\n".join(lines) + "\n"


def origin_of(parent: dict[str, Any]) -> dict[str, Any]:
    """What has been said by hand of a model holds for what comes of it, and for what comes of that."""
    return {key: parent[key] for key in ("licence", "trained_on") if key in parent} or parent.get("origin", {})


def begun_from(origin: dict[str, Any]) -> str:
    """What is known of the model that another's training began with: its licence goes with it."""
    said = {"trained on": origin.get("trained_on"), "with the licence": origin.get("licence")}
    return "a model " + ", ".join(f"{what}: {value}" for what, value in said.items() if value)
