"""Which model is used where none is named."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from format_helpers import put

from dynctx import cli, commands_translate, model_folder
from dynctx.errors import DynctxError
from dynctx.model_folder import default_model

pytest_plugins = ("tiny_fixtures",)


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder with an installation in it and nothing else; it is the current one."""
    monkeypatch.delenv("DYNCTX_MODEL", raising=False)
    monkeypatch.setattr(
        model_folder, "__file__", str(tmp_path / "lib" / "site-packages" / "dynctx" / "model_folder.py")
    )
    (tmp_path / "work" / "deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work" / "deep")
    return tmp_path


def test_without_a_model(elsewhere: Path) -> None:
    said = (
        "no model: the one that comes with dynctx's repository (models/tvsub-zh-en) is not in "
        f"{elsewhere / 'work' / 'deep'}, above it or in {elsewhere / 'lib' / 'site-packages' / 'dynctx'}; "
        "name a model folder (on the command line with --model), or set the environment variable DYNCTX_MODEL"
    )
    with pytest.raises(DynctxError) as caught:
        default_model()
    assert str(caught.value) == said


@pytest.mark.parametrize(
    "place",
    ["lib/models", "lib/site-packages/dynctx/models", "work/models", "work/deep/models", "models"],
)
def test_where_the_model_that_ships_is_found(elsewhere: Path, place: str) -> None:
    """Beside the package, in the repository of an editable install (two folders above), here or above."""
    put(elsewhere, {f"{place}/tvsub-zh-en/config.yaml": ""})
    assert default_model() == elsewhere / place / "tvsub-zh-en"


def test_the_model_of_the_environment(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(elsewhere, {"models/tvsub-zh-en/config.yaml": "", "mine/model/config.yaml": ""})
    monkeypatch.setenv("DYNCTX_MODEL", str(elsewhere / "mine"))
    assert default_model() == elsewhere / "mine" / "model"  # the folder of a run will do
    monkeypatch.setenv("DYNCTX_MODEL", str(elsewhere / "gone"))
    with pytest.raises(DynctxError, match=r"gone: no model here \(.*\); this is what DYNCTX_MODEL names"):
        default_model()


def test_the_default_model_is_used(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], trained: Path, tmp_path: Path
) -> None:
    monkeypatch.setattr(commands_translate, "default_model", lambda: trained)
    put(tmp_path, {"a.md": "# the cat\n"})
    monkeypatch.setattr(sys, "argv", ["dynctx", "translate", str(tmp_path / "a.md")])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert not end.value.code and capfd.readouterr().out.startswith("# ")
