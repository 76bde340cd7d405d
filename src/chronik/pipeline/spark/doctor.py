"""What is wrong with a set-up, in plain words, and what to do about it. Looks, and changes nothing.

Each check stands alone and takes what it looks at, so that it can be shown a machine that is not this one.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from chronik.client.access.settings import Bootstrap
from chronik.client.cluster import Cluster
from chronik.client.errors import ClientError
from chronik.errors import ChronikError
from chronik.pipeline.spark.java import JavaMissing, find_java
from chronik.pipeline.spark.masters import LOCAL_MASTER, chosen_master, is_connect, is_local
from chronik.protocol.errors import KafkaError
from chronik.wording import counted, install_hint

PYSPARK_MIN, PYSPARK_BELOW = (4, 2), (4, 4)
PANDAS_BELOW = (3,)
PYARROW_MIN = (18,)
DELTALAKE_MIN, DELTALAKE_BELOW = (1, 6), (2,)

BROKER_SECONDS_MAX = 5.0
PYTHON_SECONDS_MAX = 20.0

Version = tuple[int, ...]
InstalledVersion = Callable[[str], str | None]

INSTALL = install_hint("spark")


class State(StrEnum):
    GOOD = "good"
    DOUBTFUL = "doubtful"
    """It may work; whoever uses it should know."""
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    what: str
    state: State
    says: str
    do: str = ""


def installed_version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def examine(
    *,
    master: str | None = None,
    bootstrap: Bootstrap | None = None,
    table_root: str | None = None,
    environment: Mapping[str, str] = os.environ,
    installed: InstalledVersion = installed_version,
) -> Iterator[Finding]:
    """Yields one finding after the other, as they are made; of broker and table root only when they are given."""
    master = chosen_master(master, environment) or LOCAL_MASTER
    yield check_pyspark(installed)
    yield check_pandas(installed)
    yield check_package("pyarrow", installed, PYARROW_MIN)
    yield check_package("deltalake", installed, DELTALAKE_MIN, DELTALAKE_BELOW)
    if is_connect(master):
        yield check_package("grpcio", installed, (1,))
    else:
        yield check_java(environment)
        yield check_worker_python(master, environment)
        yield check_bash(environment)
    if bootstrap is not None:
        yield check_broker(bootstrap)
    if table_root is not None:
        yield check_table_root(table_root)


def check_java(environment: Mapping[str, str]) -> Finding:
    try:
        java = find_java(environment)
    except JavaMissing as error:
        says, _, do = str(error).rpartition(": ")
        return Finding("java", State.WRONG, says, do)
    says = f"Java {java.version} by {java.found_by} ({java.home})"
    if environment.get("JAVA_HOME") and java.found_by != "JAVA_HOME":
        return Finding("java", State.DOUBTFUL, f"{says}; JAVA_HOME is not one to use", "mend or unset JAVA_HOME")
    return Finding("java", State.GOOD, says)


def check_pyspark(installed: InstalledVersion) -> Finding:
    found = installed("pyspark")
    if found is None:
        return Finding("pyspark", State.WRONG, "pyspark is not installed", INSTALL)
    if _version(found) < PYSPARK_MIN:
        says = f"pyspark {found} is too old: data sources in Python are whole from {_text(PYSPARK_MIN)} on"
        return Finding("pyspark", State.WRONG, says, INSTALL)
    if _version(found) >= PYSPARK_BELOW:
        return Finding("pyspark", State.DOUBTFUL, f"pyspark {found} is newer than those tried", INSTALL)
    return Finding("pyspark", State.GOOD, f"pyspark {found}")


def check_pandas(installed: InstalledVersion) -> Finding:
    finding = check_package("pandas", installed, (2, 2))
    if finding.state is State.GOOD and _version(installed("pandas") or "") >= PANDAS_BELOW:
        says = f"{finding.says} is one that pyspark does not work with"
        return Finding("pandas", State.WRONG, says, "pip install 'pandas<3'")
    return finding


def check_package(name: str, installed: InstalledVersion, least: Version, below: Version | None = None) -> Finding:
    found = installed(name)
    if found is None:
        return Finding(name, State.WRONG, f"{name} is not installed", INSTALL)
    if _version(found) < least:
        return Finding(name, State.WRONG, f"{name} {found} is older than {_text(least)}", INSTALL)
    if below is not None and _version(found) >= below:
        return Finding(name, State.DOUBTFUL, f"{name} {found} is newer than those tried", INSTALL)
    return Finding(name, State.GOOD, f"{name} {found}")


def check_worker_python(master: str, environment: Mapping[str, str]) -> Finding:
    """Spark ends a query when its workers run another Python than the driver."""
    ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
    chosen = environment.get("PYSPARK_PYTHON")
    if is_local(master) or not chosen:
        return Finding("python", State.GOOD, f"Python {ours}, in workers too ({sys.executable})")
    theirs = _python_version(chosen, environment)
    if theirs is None:
        says = f"PYSPARK_PYTHON={chosen} does not run here; every machine of {master} must have it, as Python {ours}"
        return Finding("python", State.DOUBTFUL, says)
    if theirs != ours:
        says = f"workers would run Python {theirs} (PYSPARK_PYTHON={chosen}), this is Python {ours}"
        return Finding("python", State.WRONG, says, f"unset PYSPARK_PYTHON, or set it to a Python {ours}")
    return Finding("python", State.GOOD, f"Python {ours}, in workers {chosen}")


def _python_version(program: str, environment: Mapping[str, str]) -> str | None:
    found = shutil.which(program, path=environment.get("PATH", os.defpath))
    if found is None:
        return None
    command = [found, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=PYTHON_SECONDS_MAX, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return said.stdout.strip()


def check_bash(environment: Mapping[str, str]) -> Finding:
    path = os.pathsep.join([environment.get("PATH", ""), os.defpath])
    if shutil.which("bash", path=path) is None:
        return Finding("bash", State.WRONG, "there is no bash, which Spark starts with", "install bash")
    return Finding("bash", State.GOOD, "bash is there")


def check_broker(bootstrap: Bootstrap) -> Finding:
    try:
        with Cluster(bootstrap, client_id="chronik-doctor", timeout_s=BROKER_SECONDS_MAX) as cluster:
            brokers = len(cluster.metadata([]).brokers)
    except (ClientError, KafkaError, OSError) as error:
        return Finding("broker", State.WRONG, str(error), "start one (chronik start), or give its --bootstrap-server")
    return Finding("broker", State.GOOD, f"{counted(brokers, 'broker')} behind {bootstrap}")


def check_table_root(root: str) -> Finding:
    """A folder must be writable, or its nearest parent that is there; of an object store only a commit can tell."""
    if "://" in root and not root.startswith("file://"):
        return Finding("table root", State.DOUBTFUL, f"{root} is not on this machine: only a commit can tell")
    folder = Path(root.removeprefix("file://")).absolute()
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        says = f"{there} cannot be written to: {error.strerror or error}"
        return Finding("table root", State.WRONG, says, "choose another --table-root, or have its permissions changed")
    return Finding("table root", State.GOOD, f"{folder} can be {'written to' if there == folder else 'made'}")


class NotInstalled(ChronikError):
    """What the pipeline is made of is missing; the message says what to install."""


def require(*packages: str) -> None:
    """To be called by commands before they import what may not be there. Raises NotInstalled."""
    missing = [package for package in packages if installed_version(package) is None]
    if missing:
        raise NotInstalled(f"{', '.join(missing)} not installed: {INSTALL} (chronik pipeline doctor says more)")


def _version(text: str) -> Version:
    return tuple(int(number) for number in re.findall(r"\d+", text)[:3])


def _text(version: Version) -> str:
    return ".".join(map(str, version))
