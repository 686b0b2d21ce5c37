"""`dynctx info`: what a model is, for those who use it, and then in detail."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from dynctx.config import ModelConfig, load_config
from dynctx.errors import DynctxError
from dynctx.languages import name_of
from dynctx.model_folder import begun_from, build_scorer, default_model, find_model, join, load_model
from dynctx.plain_data import to_dict
from dynctx.prepared import load_subwords
from dynctx.training.reporting import count_parameters
from dynctx.training.translation import freeze_for_stage
from dynctx.translators import build_translator


def describe(place: Path) -> dict[str, Any]:
    """Parameters, sizes, data and scores of a model folder, or of what a config would build."""
    about: dict[str, Any] = {}
    folder = find_model(place).resolve() if place.is_dir() else None
    if folder is not None:
        model = load_model(folder)
        config, translator, network, about = model.config, model.translator, model.network, model.about
        size = sum(file.stat().st_size for file in folder.glob("*") if file.is_file())
        vocabulary = (len(model.source), len(model.target))
    else:
        config = load_config(place)
        size = 0
        try:
            source, target = load_subwords(config.data.folder)
            vocabulary = (len(source), len(target))
        except DynctxError:  # not prepared yet: the size that was asked for
            vocabulary = (config.data.vocabulary, config.data.vocabulary)
        with torch.device("meta"):
            if config.training.stage != "translation":  # as in training: these stages are about the scorer
                config.scorer.enabled = True
            translator, scorer = build_translator(config.model, *vocabulary), build_scorer(config)
            network = join(translator, scorer)
        freeze_for_stage(translator, scorer, config)
    return {
        "kind": config.model.kind,
        "languages": [config.data.source_language, config.data.target_language],
        "vocabulary": {"source": vocabulary[0], "target": vocabulary[1], "joint": config.data.joint},
        "parameters": {
            name: {"trainable": trainable, "frozen": frozen}
            for name, (trainable, frozen) in count_parameters(network).items()
        },
        "new_parameters": beyond_sentence_model(config.model, vocabulary),
        "bytes_on_disk": size,
        "model": to_dict(config.model),
        "data": [{"source": f.source.path, "target": f.target.path} for f in config.data.train],
        "updates": about.get("updates"),
        "scores": about.get("scores", {}),
        "name": (folder.parent if folder.name == "model" else folder).name if folder else place.name,
        "folder": str(folder) if folder else None,
        "scope": translator.scope,
        "selector": config.decoding.selector or config.training.selector,
        "scorer": config.scorer.enabled,
        "trained_on": about.get("trained_on"),
        "results": about.get("results", {}),
        "licence": about.get("licence"),
        "origin": about.get("origin"),
    }


def beyond_sentence_model(config: ModelConfig, vocabulary: tuple[int, int]) -> int:
    """Parameters of a translator that the sentence model of its size lacks; SAN's copy of that is nothing new."""
    with torch.device("meta"):
        models = [build_translator(kind, *vocabulary) for kind in (config, replace(config, kind="sentence"))]
    own, base = (count_parameters(model)["total"][0] for model in models)
    return own - base


def show_info(place: Path | None, as_json: bool) -> None:
    place = place or default_model()
    if not place.exists():
        raise DynctxError(f"{place}: no such model folder or config")
    info = describe(place)
    if as_json:
        print(json.dumps(info, indent=1, ensure_ascii=False))
    else:
        print("\n".join([*for_users(info), "", *in_detail(info)]))


def for_users(info: dict[str, Any]) -> list[str]:
    """What one wants to know before translating with it."""
    facts = {
        "kind": f"{info['kind']}, {context_of(info)}",
        "trained on": info["trained_on"] or ", ".join(files["source"] for files in info["data"]) or "not said",
        "scores": ", ".join(f"{name} {value}" for name, value in (info["results"] or info["scores"]).items()),
        "licence": info["licence"] or "not said",
        "begun from": begun_from(info["origin"]) if info["origin"] else "",
        "size": f"{sum(info['parameters']['total'].values()) / 1e6:,.1f} million parameters",
        "folder": info["folder"],
    }
    if info["bytes_on_disk"]:
        facts["size"] += f", {info['bytes_on_disk'] / 2**20:,.1f} MiB on disk"
    if info["folder"] and (Path(info["folder"]) / "README.md").exists():
        facts["more"] = str(Path(info["folder"]) / "README.md")
    languages = " to ".join(name_of(code) if code else "?" for code in info["languages"])
    return [f"{info['name']}: {languages}", *(f"  {name:<12}{text}" for name, text in facts.items() if text)]


def context_of(info: dict[str, Any]) -> str:
    if not info["scope"]:
        return "translates each sentence by itself"
    reach = "the previous sentence" if info["scope"] == 1 else f"the {info['scope']} previous sentences"
    if info["selector"].startswith(("probability-first", "size-first")):
        return f"chooses among {reach} for each sentence ({info['selector']})"
    return f"reads of {reach} what the selector says ({info['selector']})"


def in_detail(info: dict[str, Any]) -> list[str]:
    vocabulary = info["vocabulary"]
    lines = [
        f"{info['kind']} model, {' to '.join(name or '?' for name in info['languages'])}",
        f"vocabulary: {vocabulary['source']:,} source, {vocabulary['target']:,} target"
        + (" (joint)" if vocabulary["joint"] else ""),
        "parameters:",
    ]
    for name, part in info["parameters"].items():
        lines.append(f"  {name:<24} {part['trainable']:>13,} trainable {part['frozen']:>13,} frozen")
    if info["new_parameters"]:
        lines.append(f"  new beside the sentence model: {info['new_parameters']:,}")
    lines += [f"data: {files['source']} | {files['target']}" for files in info["data"]]
    lines += [f"updates: {info['updates']:,}"] if info["updates"] is not None else []
    return lines + [f"  {name}: {value}" for name, value in info["scores"].items()]
