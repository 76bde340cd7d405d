"""Modules that are kept are loaded from memory, whatever has become of their files."""

from __future__ import annotations

import compileall
import importlib
import sys
from pathlib import Path

import pytest

from chronik import kept_modules
from chronik.kept_modules import KeptModules

ASKED_FOR = """
from house.room.imported import VALUE

def later():
    from house import lazy
    return lazy.VALUE
"""
FILES = {
    "__init__.py": "",
    "asked_for.py": ASKED_FOR,
    "lazy.py": "VALUE = 'old, too'\n",
    "not_asked_for.py": "",
    "broken.py": "raise ValueError('as it is')\n",
    "room/__init__.py": "",
    "room/imported.py": "VALUE = 'old'\n",
}


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KeptModules:
    house = tmp_path / "house"
    for name, text in FILES.items():
        (house / name).parent.mkdir(parents=True, exist_ok=True)
        (house / name).write_text(text)
    monkeypatch.setattr(kept_modules, "PACKAGE", "house")
    monkeypatch.setattr(kept_modules, "FOLDER", house)
    monkeypatch.setattr(sys, "meta_path", sys.meta_path.copy())
    monkeypatch.setattr(sys, "modules", sys.modules.copy())
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("house")
    return KeptModules()


def test_they_are_kept_with_what_they_import_and_nothing_else(kept: KeptModules) -> None:
    found = ["house.asked_for", "house.lazy", "house.room", "house.room.imported"]
    assert sorted(kept.keep(["house.asked_for"])) == found
    assert list(kept.keep(["house.asked_for", "house.room"])) == []


def test_they_are_what_they_were_when_they_were_kept(kept: KeptModules, tmp_path: Path) -> None:
    list(kept.keep(["house.asked_for"]))
    for name in ("asked_for.py", "lazy.py", "room/imported.py"):
        (tmp_path / "house" / name).write_text("VALUE = 'of another version'\n")
    loaded = importlib.import_module("house.asked_for")
    assert (loaded.VALUE, loaded.later()) == ("old", "old, too")
    assert loaded.__file__ == str(tmp_path / "house" / "asked_for.py")
    assert list(sys.modules["house.room"].__path__) == [str(tmp_path / "house" / "room")]


def test_a_module_that_fails_fails_again(kept: KeptModules) -> None:
    list(kept.keep(["house.broken"]))
    for _ in range(2):
        with pytest.raises(ValueError, match="as it is"):
            importlib.import_module("house.broken")


def test_what_is_not_kept_is_found_as_ever(kept: KeptModules) -> None:
    list(kept.keep(["house.lazy"]))
    assert not isinstance(importlib.import_module("house.not_asked_for").__loader__, KeptModules)


def test_installs_without_sources_are_kept_too(kept: KeptModules, tmp_path: Path) -> None:
    house = tmp_path / "house"
    compileall.compile_dir(house, quiet=1, legacy=True)
    for source in house.rglob("*.py"):
        source.unlink()
    importlib.invalidate_caches()
    assert len(list(kept.keep(["house.asked_for"]))) == 4
    for compiled in house.rglob("*.pyc"):
        compiled.unlink()
    assert importlib.import_module("house.asked_for").later() == "old, too"


def test_what_cannot_be_kept_is_told_and_found_as_ever(
    kept: KeptModules, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as in the midst of an installation: a node that runs must not end by it."""
    lazy = tmp_path / "house" / "lazy.py"
    lazy.unlink()
    (tmp_path / "house" / "room" / "imported.py").write_text("VALUE = 'half a li")
    list(kept.keep(["house.asked_for", "house.lazy", "house.not_asked_for"]))
    told = {record.getMessage().partition(" ")[0] for record in caplog.records}
    assert told == {"house.lazy", "house.room.imported"}
    lazy.write_text("VALUE = 'installed'\n")
    assert importlib.import_module("house.lazy").VALUE == "installed"
    assert isinstance(importlib.import_module("house.not_asked_for").__loader__, KeptModules)
