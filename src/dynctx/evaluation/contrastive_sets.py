"""Contrastive test sets from files: our JSON lines, and the forms in which the sets were published.

    *.jsonl           one item a line: src_ctx, src, tgt_ctx, cands, true, dist
    *.json            Voita et al. 2019 (dst, true_ind), Mueller et al. 2018 (ContraPro) or Bawden et al. 2018
    *.src, *.dst      Voita's flat files, sentences joined by " _eos "; groups and truth are those of the .json

Any of them may be packed (.xz, .gz). Which kind a .json is, its content says.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dynctx.errors import DynctxError, at
from dynctx.files import StrPath, read_lines, split_suffixes

BREAK = "_eos"  # Voita's mark between sentences


@dataclass(frozen=True)
class Item:
    """A sentence with its context, and translations of it of which one is right."""

    source_context: tuple[str, ...]  # oldest first
    source: str
    target_contexts: tuple[tuple[str, ...], ...]  # for each candidate, as long as the source's
    candidates: tuple[str, ...]
    true: int
    distance: int | None  # how many sentences back the decisive one is; None: not known
    phenomenon: str
    kind: str = ""  # a finer division, such as the pronoun


def read_sets(paths: list[Path]) -> list[Item]:
    items = [item for path in paths for item in read_set(path)]
    if not items:
        raise DynctxError(f"{', '.join(map(str, paths))}: no contrastive item in it")
    return items


def read_set(path: StrPath) -> list[Item]:
    """The items of one file, in order."""
    suffix, name = split_suffixes(path)[0], stem(path)
    if suffix == ".jsonl":
        return [_ours(_parse(line, path, number), path, number, name) for number, line in _filled(path)]
    if suffix in (".src", ".dst"):
        return _flat(Path(path), name)
    if suffix != ".json":
        raise DynctxError(f"{at(path)}: a contrastive set is a .jsonl, .json, .src or .dst file (or such packed)")
    content = _parse("\n".join(read_lines(path)), path, None)
    if isinstance(content, dict):
        return list(_bawden(content, path, name))
    first = content[0] if isinstance(content, list) and content else None
    if isinstance(first, dict) and "dst" in first:
        return [_voita(record, path, number, name) for number, record in enumerate(content, 1)]
    if isinstance(first, dict) and "errors" in first:
        return _contrapro(content, Path(path), name)
    raise DynctxError(
        f"{at(path)}: not a contrastive set that is known here: a list of items with 'dst' (Voita) or 'errors' "
        "(ContraPro), or numbered blocks (Bawden)"
    )


def stem(path: StrPath) -> str:
    """The name of a set: the file's, without suffixes."""
    name, packing = Path(path).name, split_suffixes(path)[1]
    return Path(name[: -len(packing)] if packing else name).stem


def _filled(path: StrPath) -> Iterator[tuple[int, str]]:
    return ((number, line) for number, line in enumerate(read_lines(path), 1) if line.strip())


def _parse(text: str, path: StrPath, line: int | None) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DynctxError(f"{at(path, line)}: not JSON ({error})") from None


class _Fields:
    """The fields of a record, each checked, with a message that says where the record stands."""

    def __init__(self, record: Any, where: str) -> None:
        self.where = where
        if not isinstance(record, dict):
            raise DynctxError(f"{where}: an item is a JSON object, found {type(record).__name__}")
        self.record = record

    def get(self, name: str) -> Any:
        if name not in self.record:
            raise DynctxError(f"{self.where}: {name!r} is missing")
        return self.record[name]

    def text(self, name: str) -> str:
        value = self.get(name)
        if not isinstance(value, str):
            raise DynctxError(f"{self.where}: {name!r} should be text, found {value!r}")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        value = self.get(name)
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            raise DynctxError(f"{self.where}: {name!r} should be a list of sentences, found {value!r}")
        return tuple(value)

    def number(self, name: str, *, missing: bool = False) -> int | None:
        value = self.record.get(name) if missing else self.get(name)
        if value is None and missing:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise DynctxError(f"{self.where}: {name!r} should be a whole number, found {value!r}")
        return value


def _checked(item: Item, where: str) -> Item:
    """An item that can be scored and decided."""
    if len(item.candidates) < 2:
        raise DynctxError(f"{where}: {len(item.candidates)} candidates; there is nothing to decide with fewer than 2")
    if not 0 <= item.true < len(item.candidates):
        raise DynctxError(f"{where}: the true candidate is number {item.true} of {len(item.candidates)}, from 0")
    if len(item.target_contexts) != len(item.candidates):
        raise DynctxError(f"{where}: {len(item.target_contexts)} target contexts for {len(item.candidates)} candidates")
    for context in item.target_contexts:
        if len(context) != len(item.source_context):
            raise DynctxError(
                f"{where}: {len(item.source_context)} context sentences in the source but {len(context)} in the target"
            )
    if not item.source.strip() or not all(candidate.strip() for candidate in item.candidates):
        raise DynctxError(f"{where}: an empty source or candidate")
    return item


def _ours(record: Any, path: StrPath, line: int, name: str) -> Item:
    where = at(path, line)
    fields = _Fields(record, where)
    candidates, context = fields.texts("cands"), fields.get("tgt_ctx")
    nested = isinstance(context, list) and any(isinstance(entry, list) for entry in context)
    if nested:
        contexts = tuple(_Fields({"tgt_ctx": entry}, where).texts("tgt_ctx") for entry in context)
    else:  # one for all
        contexts = (fields.texts("tgt_ctx"),) * len(candidates)
    item = Item(
        fields.texts("src_ctx"),
        fields.text("src"),
        contexts,
        candidates,
        fields.number("true") or 0,
        fields.number("dist", missing=True),
        str(fields.record.get("set") or name),
        str(fields.record.get("kind") or ""),
    )
    return _checked(item, where)


def as_record(item: Item) -> dict[str, Any]:
    """An item as a line of our own format."""
    same = all(context == item.target_contexts[0] for context in item.target_contexts)
    contexts = item.target_contexts[0] if same else item.target_contexts
    record: dict[str, Any] = {"set": item.phenomenon, "src_ctx": item.source_context, "src": item.source}
    record |= {"tgt_ctx": contexts, "cands": item.candidates, "true": item.true, "dist": item.distance}
    return record | ({"kind": item.kind} if item.kind else {})


def _sentences(text: str) -> tuple[str, ...]:
    """The sentences of a line of Voita's; an empty one keeps its place."""
    words: list[list[str]] = [[]]
    for word in text.split():
        if word == BREAK:
            words.append([])
        else:
            words[-1].append(word)
    return tuple(" ".join(sentence) for sentence in words)


def _voita(record: Any, path: StrPath, number: int, name: str) -> Item:
    where = f"{at(path)}: item {number}"
    fields = _Fields(record, where)
    *context, source = _sentences(fields.text("src"))
    targets = [_sentences(text) for text in fields.texts("dst")]
    item = Item(
        tuple(context),
        source,
        tuple(target[:-1] for target in targets),
        tuple(target[-1] for target in targets),
        fields.number("true_ind") or 0,
        fields.number("ctx_dist", missing=True),
        name,
    )
    return _checked(item, where)


def _flat(path: Path, name: str) -> list[Item]:
    """Voita's scoring files: a line for each candidate of each item, in the order of the .json.

    The .json stands in the same folder or the one above; of it only the grouping, the truth and the distance are used,
    so that the text may have been prepared anew.
    """
    suffix, packing = split_suffixes(path)
    base = path.name[: -len(suffix) - len(packing)]
    sides = [list(read_lines(path.with_name(f"{base}{side}{packing}"))) for side in (".src", ".dst")]
    if len(sides[0]) != len(sides[1]):
        raise DynctxError(f"{at(path)}: {len(sides[0])} lines in .src but {len(sides[1])} in .dst")
    for folder in (path.parent, path.parent.parent):
        about = next((p for p in (folder / f"{base}.json", folder / f"{base}.json.xz") if p.exists()), None)
        if about is not None:
            break
    else:
        raise DynctxError(f"{at(path)}: needs {base}.json here or one folder up: it says which candidate is true")
    items, first = [], 0
    for number, item in enumerate(read_set(about), 1):
        last = first + len(item.candidates)
        sources = [_sentences(line) for line in sides[0][first:last]]
        targets = [_sentences(line) for line in sides[1][first:last]]
        if len(set(sources)) != 1:
            raise DynctxError(
                f"{at(path, first + 1)}: lines {first + 1} to {last} should be item {number} of {about.name} and have "
                "one source; the two files are not of the same set"
            )
        first = last
        changed = replace(
            item,
            source_context=sources[0][:-1],
            source=sources[0][-1],
            target_contexts=tuple(target[:-1] for target in targets),
            candidates=tuple(target[-1] for target in targets),
        )
        items.append(_checked(changed, at(path, last)))
    if first != len(sides[0]):
        raise DynctxError(f"{at(path)}: {len(sides[0])} lines, but the items of {about.name} have {first} candidates")
    return items


def _contrapro(content: list[Any], path: Path, name: str) -> list[Item]:
    """ContraPro: the right translation, and the same with another pronoun. The context is not in the file.

    Its own conversion script writes NAME.text.LANG and NAME.context.LANG, a line for each candidate (of the context:
    n lines for n sentences); where these lie beside, the context is read from them.
    """
    items = []
    for number, record in enumerate(content, 1):
        where = f"{at(path)}: item {number}"
        fields = _Fields(record, where)
        errors = fields.get("errors")
        if not isinstance(errors, list):
            raise DynctxError(f"{where}: 'errors' should be a list, found {errors!r}")
        wrong = [_Fields(error, where).text("contrastive") for error in errors]
        candidates = (fields.text("ref segment"), *wrong)
        kind = ":".join(str(fields.record.get(key, "?")).lower() for key in ("src pronoun", "ref pronoun"))
        distance = fields.number("ante distance", missing=True)
        source = fields.text("src segment")
        items.append(_checked(Item((), source, ((),) * len(candidates), candidates, 0, distance, name, kind), where))
    return _with_context(items, path, name)


def _with_context(items: list[Item], path: Path, name: str) -> list[Item]:
    files = sorted(path.parent.glob(f"{name}.text.*"))
    if len(files) != 2:
        return items
    texts = [list(read_lines(file)) for file in files]
    count = sum(len(item.candidates) for item in items)
    for file, lines in zip(files, texts):
        if len(lines) != count:
            raise DynctxError(f"{at(file)}: {len(lines)} lines, but {path.name} has {count} candidates")
    source = 0 if _same(texts[0][0], items[0].source) else 1  # the one that begins with the source
    if not _same(texts[source][0], items[0].source):
        raise DynctxError(f"{at(files[source], 1)}: not the first sentence of {path.name}; which side is the source?")
    contexts = []
    for file in (files[source], files[1 - source]):
        place = file.with_name(file.name.replace(".text.", ".context."))
        lines = list(read_lines(place))
        if not lines or len(lines) % count:
            raise DynctxError(f"{at(place)}: {len(lines)} lines are not the same number for each of {count} candidates")
        size = len(lines) // count
        contexts.append([tuple(lines[i : i + size]) for i in range(0, len(lines), size)])
    found, first = [], 0
    for item in items:
        last = first + len(item.candidates)
        sources = contexts[0][first]
        missing = next((i for i, line in enumerate(sources) if line.strip()), len(sources))  # a document's beginning
        targets = tuple(context[missing:] for context in contexts[1][first:last])
        found.append(replace(item, source_context=sources[missing:], target_contexts=targets))
        first = last
    return found


def _same(a: str, b: str) -> bool:
    return "".join(a.split()) == "".join(b.split())


def _bawden(content: dict[str, Any], path: StrPath, name: str) -> Iterator[Item]:
    """Blocks of examples, each a right and a wrong translation after one sentence of context."""
    for block, entry in content.items():
        where = f"{at(path)}: block {block}"
        fields = _Fields(entry, where)
        kind = str(fields.record.get("type", ""))
        if "examples" in fields.record:  # lexical choice
            examples = [_Fields(example, where) for example in _list(fields, "examples")]
            pairs = [(example.texts("src"), _Fields(example.get("trg"), where)) for example in examples]
        else:  # anaphora: several translations of one source
            pairs = [(fields.texts("src"), _Fields(target, where)) for target in _list(fields, "trg")]
        for source, target in pairs:
            right = "correct" if "correct" in target.record else "semi-correct"
            sides = [target.texts(right), target.texts("incorrect")]
            if not source or not all(sides):
                raise DynctxError(f"{where}: a source or translation without sentences")
            item = Item(
                source[:-1],
                source[-1],
                tuple(side[:-1] for side in sides),
                tuple(side[-1] for side in sides),
                0,
                1,  # by the sets' design the sentence just before decides
                name,
                kind or right,
            )
            yield _checked(item, where)


def _list(fields: _Fields, name: str) -> list[Any]:
    value = fields.get(name)
    if not isinstance(value, list):
        raise DynctxError(f"{fields.where}: {name!r} should be a list, found {type(value).__name__}")
    return value
