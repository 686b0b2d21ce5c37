"""Plain data and dataclasses: YAML read, `key=value` overrides laid over it, dataclasses filled from it, and back.

Strict throughout: a key that does not exist or a value of the wrong type is refused with the place, the nearest valid
name and what was expected; nothing is silently ignored.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import reprlib
import types
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from dynctx.documents import TextFile
from dynctx.errors import DynctxError, at

T = TypeVar("T")


def read_yaml(path: str | os.PathLike[str]) -> dict[str, Any]:
    import yaml

    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise DynctxError(f"{at(path)}: cannot read the config: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise DynctxError(f"{at(path)}: the config is not UTF-8 (byte {error.start})") from None
    try:
        _check_unique(yaml.compose(text, yaml.SafeLoader), path)
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark is not None else None
        problem = getattr(error, "problem", None) or str(error)
        raise DynctxError(f"{at(path, line)}: not valid YAML: {problem}") from None
    except ValueError as error:  # a date that does not exist, a number of thousands of digits
        raise DynctxError(f"{at(path)}: not valid YAML: {error}") from None
    except RecursionError:
        raise DynctxError(f"{at(path)}: the config is nested too deeply") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise DynctxError(f"{at(path)}: a config is a mapping of keys to values, found {_kind(content)}")
    return content


def _check_unique(node: Any, path: str | os.PathLike[str]) -> None:
    """YAML lets the last of two equal keys win; here that would silently ignore a value."""
    waiting, met = [node], {id(None)}
    while waiting:
        node = waiting.pop()
        if id(node) in met:  # an alias leads to a node again, perhaps to one that holds it
            continue
        met.add(id(node))
        if node.id == "sequence":
            waiting += node.value
        elif node.id == "mapping":
            keys: set[str] = set()
            for key, value in node.value:
                if str(key.value) in keys:
                    line = key.start_mark.line + 1
                    raise DynctxError(f"{at(path, line)}: key {key.value!r} appears twice; keep one of them")
                keys.add(str(key.value))
                waiting.append(value)


def override(content: dict[str, Any], settings: Sequence[str]) -> None:
    """Lay `section.key=value` settings over what is there, in their order."""
    import yaml

    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key:
            raise DynctxError(f"override {setting!r}: expected key=value, such as training.updates=2000")
        try:
            value = yaml.safe_load(text) if text else ""
        except (yaml.YAMLError, ValueError):
            raise DynctxError(f"override {setting!r}: the value is not valid YAML") from None
        _assign(content, key.split("."), value, setting)


def _assign(content: dict[str, Any], path: list[str], value: Any, setting: str) -> None:
    node: Any = content
    for depth, part in enumerate(path[:-1], 1):
        if part not in node:
            raise DynctxError(f"override {setting!r}: {_unknown(part, node)}")
        node = node[part]
        if not isinstance(node, dict):
            problem = "is not set; give all of it" if node is None else "has no keys of its own"
            raise DynctxError(f"override {setting!r}: {'.'.join(path[:depth])} {problem}")
    node[path[-1]] = value


def build(kind: type[T], content: Any, where: str, path: str) -> T:
    """Fill dataclass `kind` from plain data; `path` is the key so far, for messages."""
    if kind is TextFile and isinstance(content, str):
        content = {"path": content}  # the short form: a path alone
    if not isinstance(content, dict):
        raise DynctxError(f"{where}: {path or 'config'} should be a mapping, found {_kind(content)}")
    hints = typing.get_type_hints(kind)
    fields = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for key, value in content.items():
        full = f"{path}.{key}" if path else str(key)
        if key not in fields:
            inside = f" in {path}" if path else ""
            deeper = [] if path else [name for name in _keys(kind) if name.endswith(f".{key}")]
            if deeper:
                raise DynctxError(f"{where}: unknown key {key!r} (did you mean {' or '.join(deeper)}?)")
            raise DynctxError(f"{where}: {_unknown(str(key), fields)}{inside}")
        values[key] = convert(hints[key], value, where, full)
    for name, f in fields.items():
        required = f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        if required and name not in values:
            raise DynctxError(f"{where}: {path + '.' if path else ''}{name} is missing")
    return kind(**values)


def _keys(kind: Any, path: str = "") -> list[str]:
    """Every key of a dataclass and of those inside it, as in `training.updates`."""
    found = []
    for name, hint in typing.get_type_hints(kind).items():
        found.append(f"{path}{name}")
        if dataclasses.is_dataclass(hint):
            found += _keys(hint, f"{path}{name}.")
    return found


def convert(hint: Any, value: Any, where: str, path: str) -> Any:
    """One value against one type hint, or a message that names both."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        return convert(next(a for a in arguments if a is not type(None)), value, where, path)
    if dataclasses.is_dataclass(hint):
        return build(typing.cast(type, hint), value, where, path)
    if origin is Literal:
        if value not in arguments or isinstance(value, bool):
            choices = ", ".join(str(a) for a in arguments)
            near = difflib.get_close_matches(_shown(value).strip("'"), [str(a) for a in arguments], 1)
            hintline = f"; did you mean {near[0]}?" if near else ""
            raise DynctxError(f"{where}: {path} is {_shown(value)}, expected one of: {choices}{hintline}")
        return value
    if origin is list:
        if not isinstance(value, list):
            raise DynctxError(f"{where}: {path} should be a list, found {_kind(value)}")
        return [convert(arguments[0], item, where, f"{path}[{i}]") for i, item in enumerate(value)]
    if origin is dict:
        if not isinstance(value, dict):
            raise DynctxError(f"{where}: {path} should be a mapping, found {_kind(value)}")
        return {str(k): convert(arguments[1], v, where, f"{path}.{k}") for k, v in value.items()}
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint is float and isinstance(value, str):  # YAML 1.1 reads 1e-4 (no dot) as text
        try:
            return float(value)
        except ValueError:
            pass
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise DynctxError(f"{where}: {path} is {_shown(value)} ({_kind(value)}), expected {_name(hint)}")
    return value


def to_dict(config: Any) -> Any:
    """Plain dicts, lists and scalars: what is stored with a model."""
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        return {f.name: to_dict(getattr(config, f.name)) for f in dataclasses.fields(config)}
    if isinstance(config, dict):
        return {key: to_dict(value) for key, value in config.items()}
    if isinstance(config, list | tuple):
        return [to_dict(value) for value in config]
    return config


def to_yaml(config: Any) -> str:
    import yaml

    return yaml.safe_dump(to_dict(config), sort_keys=False, allow_unicode=True)


def _unknown(key: str, known: Any) -> str:
    near = difflib.get_close_matches(key, list(known), 1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}"
    return f"unknown key {key!r} ({hint})"


def _kind(value: Any) -> str:
    names = {dict: "a mapping", list: "a list", str: "text", bool: "true/false", int: "a whole number"}
    if value is None:
        return "nothing"
    return names.get(type(value), "a number" if isinstance(value, float) else type(value).__name__)


def _shown(value: Any) -> str:
    """A list or a mapping only in part: a few lines of YAML with aliases are one of billions."""
    brief = reprlib.Repr()
    brief.maxlevel = 1
    return brief.repr(value) if isinstance(value, list | dict) else repr(value)


def _name(hint: Any) -> str:
    return {int: "a whole number", float: "a number", str: "text", bool: "true or false"}.get(hint, str(hint))
