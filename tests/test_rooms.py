"""The rooms of the house: imports go one way, from what people call down to what knows nobody."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import dynctx

SOURCES = Path(dynctx.__file__).parent
# each room knows those below it and its own; what one of them is not to know of the others is said below
FLOORS = [
    {"errors", "files", "languages", "devices", "claims"},
    {"document_formats", "documents", "formats", "subwords", "config", "config_rules", "plain_data"},
    {
        "packing",
        "corpus",
        "planning",
        "batches",
        "linear",
        "side_by_side",
        "layers",
        "losses",
        "replay",
        "prepare",
        "prepared",
        "processes",
    },
    {"translators", "selection"},
    {"beam_search", "decoding", "scoring"},
    {"model_folder", "pipeline"},
    {"evaluation", "labels", "tables"},
    {"training", "synthetic", "table_pages"},
    {"reproduce", "bench", "commands", "commands_evaluation", "commands_info", "commands_translate"},
    {"api", "serve", "cli", "cli_evaluation", "__main__", "__init__"},
]
APART = [("translators", "selection"), ("selection", "translators"), ("evaluation", "labels"), ("serve", "training")]


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


def imports() -> list[tuple[str, str]]:
    """What imports what, wherever in a module, but for types alone."""
    found = []
    for path in sorted(SOURCES.rglob("*.py")):
        name = ".".join(["dynctx", *path.relative_to(SOURCES).with_suffix("").parts])
        tree = ast.parse(path.read_text())
        typing = [n for n in ast.walk(tree) if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.dump(n.test)]
        for_types = {id(inner) for outer in typing for inner in ast.walk(outer)}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and id(node) not in for_types and node.module:
                if node.module == "dynctx":
                    found += [(name, f"dynctx.{alias.name}") for alias in node.names if alias.name != "__version__"]
                elif node.module.startswith("dynctx."):
                    found.append((name, node.module))
    return found


def test_every_module_has_a_floor() -> None:
    rooms = {path.stem for path in SOURCES.glob("*.py")} | {path.parent.name for path in SOURCES.glob("*/__init__.py")}
    assert sorted(room for floor in FLOORS for room in floor) == sorted(rooms)


def test_imports_go_down() -> None:
    floor = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
    pairs = imports()
    assert len(pairs) > 500
    up = [pair for pair in pairs if floor[room_of(pair[1])] > floor[room_of(pair[0])]]
    assert not up, up


@pytest.mark.parametrize(("room", "other"), APART)
def test_rooms_that_do_not_know_each_other(room: str, other: str) -> None:
    assert not [pair for pair in imports() if (room_of(pair[0]), room_of(pair[1])) == (room, other)]
