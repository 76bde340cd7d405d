"""Tests of the search for a Java installation: supported, outdated, trimmed or missing."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from chronik.pipeline.spark import installation
from chronik.pipeline.spark.installation import (
    JavaInstallation,
    JavaNotFoundError,
    find_java,
    get_java_version,
    prepare_spark_java_home,
)


def create_java(home: Path, version: str, *, release: bool = True) -> Path:
    """Create a fake Java that reports its version, and otherwise prints its arguments, one per line."""
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text(
        f"""#!/bin/sh
if [ "$1" = -version ]; then echo 'openjdk version "{version}"' >&2; else printf '%s\\n' "$@"; fi
"""
    )
    program.chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="Vendor"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.fixture(autouse=True)
def _without_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(installation, "USUAL_DIRECTORIES", (f"{tmp_path}/jvm/*",))
    monkeypatch.setattr(installation, "find_pypi_java_home", lambda: None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "version"), [("17.0.15", 17), ("21", 21), ("25.0.1+9", 25), ("1.8.0_392", 8), ("11.0.2", 11)]
)
@pytest.mark.parametrize("release", [True, False])
def test_java_version_is_read_from_release_file_or_command(
    tmp_path: Path, text: str, version: int, release: bool
) -> None:
    assert get_java_version(create_java(tmp_path / "java", text, release=release)) == version


def test_directory_without_java_has_no_version(tmp_path: Path) -> None:
    assert get_java_version(tmp_path) is None


def test_java_home_has_precedence(tmp_path: Path) -> None:
    chosen = create_java(tmp_path / "chosen", "17.0.1")
    on_path = create_java(tmp_path / "on_path", "21.0.1")
    found = find_java({"JAVA_HOME": str(chosen), "PATH": str(on_path / "bin")})
    assert found == JavaInstallation(chosen, 17, "JAVA_HOME")


def test_outdated_java_is_skipped(tmp_path: Path) -> None:
    old = create_java(tmp_path / "old", "11.0.2")
    usual = create_java(tmp_path / "jvm" / "java-21", "21.0.1")
    found = find_java({"JAVA_HOME": str(old), "PATH": str(old / "bin")})
    assert (found.home, found.version) == (usual, 21)


def test_java_symlink_on_path_is_resolved(tmp_path: Path) -> None:
    home = create_java(tmp_path / "real", "21.0.1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_java({"PATH": str(tmp_path / "bin")}) == JavaInstallation(home, 21, "PATH")


def test_java_from_pypi_is_last_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packaged = create_java(tmp_path / "packaged", "21.0.8")
    monkeypatch.setattr(installation, "find_pypi_java_home", lambda: packaged)
    assert find_java({"PATH": ""}).home == packaged
    usual = create_java(tmp_path / "jvm" / "java-17", "17.0.1")
    assert find_java({"PATH": ""}).home == usual


def test_missing_java_error_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(JavaNotFoundError, match=r"^Spark needs Java 17 or newer: .*pip install '\.\[java\]'"):
        find_java({"PATH": ""})
    old = create_java(tmp_path / "old", "1.8.0_392")
    with pytest.raises(JavaNotFoundError, match=r"^found only Java 8 from JAVA_HOME"):
        find_java({"PATH": "", "JAVA_HOME": str(old)})


@pytest.mark.slow
def test_java_launcher_drops_only_vector_module_argument(tmp_path: Path) -> None:
    found = JavaInstallation(create_java(tmp_path / "it's a java", "21.0.8"), 21, "PATH")
    home = prepare_spark_java_home(found, tmp_path / "cache")
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "$HOME", "it's", '"', "--add-modules=other"]
    printed = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True).stdout
    assert printed.split("\n")[:-1] == [word for word in arguments if word != "--add-modules=jdk.incubator.vector"]


def test_inherited_launcher_java_home_is_reused(tmp_path: Path) -> None:
    home = prepare_spark_java_home(
        JavaInstallation(create_java(tmp_path / "java", "21.0.8"), 21, "PATH"), tmp_path / "cache"
    )
    found_again = find_java({"JAVA_HOME": str(home), "PATH": ""})
    assert (found_again.home, found_again.version) == (home, 21)
    assert prepare_spark_java_home(found_again, tmp_path / "cache") == home


def test_concurrent_processes_create_directory_once(tmp_path: Path) -> None:
    made: list[Path] = []

    def make(directory: Path) -> None:
        made.append(directory)
        (directory / "inside").mkdir()
        (directory / "inside" / "file").write_text("complete")

    with ThreadPoolExecutor(8) as threads:
        folders = set(threads.map(lambda _: installation.create_directory_once(tmp_path / "made", make), range(8)))
    assert folders == {tmp_path / "made"}
    assert made
    assert [each.name for each in tmp_path.iterdir()] == ["made"]
    assert (tmp_path / "made" / "inside" / "file").read_text() == "complete"


def test_cache_directory_honours_xdg_cache_home(tmp_path: Path) -> None:
    assert installation.get_cache_directory({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "chronik"


def test_cache_falls_back_to_temporary_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("not a directory")
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    found = installation.get_cache_directory({"XDG_CACHE_HOME": str(tmp_path / "file")})
    assert found.parent == tmp_path
    assert found.stat().st_mode & 0o077 == 0
