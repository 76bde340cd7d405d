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
from sample.inner.imported import VALUE

def later():
    from sample import lazy
    return lazy.VALUE
"""
FILES = {
    "__init__.py": "",
    "asked_for.py": ASKED_FOR,
    "lazy.py": "VALUE = 'old, too'\n",
    "not_asked_for.py": "",
    "broken.py": "raise ValueError('as it is')\n",
    "inner/__init__.py": "",
    "inner/imported.py": "VALUE = 'old'\n",
}


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KeptModules:
    sample = tmp_path / "sample"
    for name, text in FILES.items():
        (sample / name).parent.mkdir(parents=True, exist_ok=True)
        (sample / name).write_text(text)
    monkeypatch.setattr(kept_modules, "PACKAGE", "sample")
    monkeypatch.setattr(kept_modules, "FOLDER", sample)
    monkeypatch.setattr(sys, "meta_path", sys.meta_path.copy())
    monkeypatch.setattr(sys, "modules", sys.modules.copy())
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("sample")
    return KeptModules()


def test_they_are_kept_with_what_they_import_and_nothing_else(kept: KeptModules) -> None:
    found = ["sample.asked_for", "sample.inner", "sample.inner.imported", "sample.lazy"]
    assert sorted(kept.keep(["sample.asked_for"])) == found
    assert list(kept.keep(["sample.asked_for", "sample.inner"])) == []


def test_they_are_what_they_were_when_they_were_kept(kept: KeptModules, tmp_path: Path) -> None:
    list(kept.keep(["sample.asked_for"]))
    for name in ("asked_for.py", "lazy.py", "inner/imported.py"):
        (tmp_path / "sample" / name).write_text("VALUE = 'of another version'\n")
    loaded = importlib.import_module("sample.asked_for")
    assert (loaded.VALUE, loaded.later()) == ("old", "old, too")
    assert loaded.__file__ == str(tmp_path / "sample" / "asked_for.py")
    assert list(sys.modules["sample.inner"].__path__) == [str(tmp_path / "sample" / "inner")]


def test_a_module_that_fails_fails_again(kept: KeptModules) -> None:
    list(kept.keep(["sample.broken"]))
    for _ in range(2):
        with pytest.raises(ValueError, match="as it is"):
            importlib.import_module("sample.broken")


def test_what_is_not_kept_is_found_as_ever(kept: KeptModules) -> None:
    list(kept.keep(["sample.lazy"]))
    assert not isinstance(importlib.import_module("sample.not_asked_for").__loader__, KeptModules)


def test_installs_without_sources_are_kept_too(kept: KeptModules, tmp_path: Path) -> None:
    sample = tmp_path / "sample"
    compileall.compile_dir(sample, quiet=1, legacy=True)
    for source in sample.rglob("*.py"):
        source.unlink()
    importlib.invalidate_caches()
    assert len(list(kept.keep(["sample.asked_for"]))) == 4
    for compiled in sample.rglob("*.pyc"):
        compiled.unlink()
    assert importlib.import_module("sample.asked_for").later() == "old, too"


def test_what_cannot_be_kept_is_told_and_found_as_ever(
    kept: KeptModules, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as in the midst of an installation: a node that runs must not end by it."""
    lazy = tmp_path / "sample" / "lazy.py"
    lazy.unlink()
    (tmp_path / "sample" / "inner" / "imported.py").write_text("VALUE = 'half a li")
    list(kept.keep(["sample.asked_for", "sample.lazy", "sample.not_asked_for"]))
    told = {record.getMessage().partition(" ")[0] for record in caplog.records}
    assert told == {"sample.lazy", "sample.inner.imported"}
    lazy.write_text("VALUE = 'installed'\n")
    assert importlib.import_module("sample.lazy").VALUE == "installed"
    assert isinstance(importlib.import_module("sample.not_asked_for").__loader__, KeptModules)
