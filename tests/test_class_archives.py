"""Class archives of the tests' JVMs: they are used if they fit, and tests work without them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests import archives, jvm_options


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home directory of the only Java."""
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").touch()
    (home / "release").write_text('JAVA_VERSION="17.0.1"\n')
    monkeypatch.setenv("JAVA_HOME", str(home))
    return home


@pytest.fixture
def jar(tmp_path: Path) -> Path:
    jar = tmp_path / "a.jar"
    jar.write_bytes(b"classes")
    return jar


def test_archive_path_depends_on_java_version_and_jars(java: Path, jar: Path) -> None:
    first = archives.archive_path("some", [jar])
    assert first == archives.archive_path("some", [jar])
    jar.write_bytes(b"more classes")
    second = archives.archive_path("some", [jar])
    (java / "release").write_text('JAVA_VERSION="17.0.2"\n')
    third = archives.archive_path("some", [jar])
    assert None not in {first, second, third}
    assert len({first, second, third}) == 3


def test_missing_archive_adds_no_jvm_options(tmp_path: Path) -> None:
    archive = tmp_path / "some.jsa"
    assert archives.archive_options(None) == archives.archive_options(archive) == ()
    archive.touch()
    assert f"-XX:SharedArchiveFile={archive}" in archives.archive_options(archive)


@pytest.mark.slow
def test_java_does_not_warn_about_unsuitable_archive(tmp_path: Path) -> None:
    options = archives.archive_options(archives.kafka_tools_archive())
    if not options:
        pytest.skip("no class archive; run .venv/bin/python -m tests.archives")
    command = ["java", *options, "-cp", str(tmp_path / "another.jar"), "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert re.match(r"\w+ \d+", done.stdout)
    assert done.stderr == ""


def test_failed_archive_creation_leaves_no_archive_and_older_ones_are_removed(tmp_path: Path) -> None:
    def write(partial: Path, options: tuple[str, ...]) -> None:
        partial.write_text(" ".join(options))

    def fail(partial: Path, options: tuple[str, ...]) -> None:
        write(partial, options)
        raise RuntimeError("no space left")

    older, wanted = tmp_path / "some-1.jsa", tmp_path / "some-2.jsa"
    older.touch()
    with pytest.raises(RuntimeError, match="no space left"):
        archives.create_once(wanted, fail, ())
    assert not wanted.exists()
    archives.create_once(wanted, write, ("-Xmx1g",))
    archives.create_once(wanted, fail, ())
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {"some-2.jsa": "-Xmx1g"}


def test_user_defined_spark_settings_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "spark.jsa"
    archive.touch()
    monkeypatch.setattr(jvm_options, "spark_archive", lambda: archive)
    for name in (jvm_options.SPARK_LAUNCHER, *jvm_options.SPARK_JVMS):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("SPARK_CONF_DIR", "/etc/spark")
    assert jvm_options.spark_options() == jvm_options.SHORT_LIVED
    monkeypatch.delenv("SPARK_CONF_DIR")
    jvm_options.make_spark_short_lived()
    assert set(archives.archive_options(archive)) < set(jvm_options.spark_options())
