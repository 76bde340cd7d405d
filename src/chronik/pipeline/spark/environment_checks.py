"""Checks of the Spark environment: each one reports a problem and its remedy, and changes nothing.

Every check takes the environment that it examines as an argument, so that tests can pass another one.
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
from chronik.client.cluster import ClusterClient
from chronik.client.errors import ClientError
from chronik.errors import ChronikError
from chronik.pipeline.spark.installation import JavaNotFoundError, find_java
from chronik.pipeline.spark.masters import LOCAL_MASTER, is_connect_master, is_local_master, resolve_master
from chronik.protocol.errors import KafkaError
from chronik.wording import format_install_hint, pluralize

PYSPARK_MIN, PYSPARK_MAX_EXCLUSIVE = (4, 2), (4, 4)
PANDAS_MAX_EXCLUSIVE = (3,)
PYARROW_MIN = (18,)
DELTALAKE_MIN, DELTALAKE_MAX_EXCLUSIVE = (1, 6), (2,)

BROKER_SECONDS_MAX = 5.0
PYTHON_SECONDS_MAX = 20.0

Version = tuple[int, ...]
InstalledVersion = Callable[[str], str | None]

INSTALL_COMMAND = format_install_hint("spark")


class CheckStatus(StrEnum):
    """The outcome of an environment check."""

    OK = "good"
    WARNING = "doubtful"
    """The environment may work, but has a problem that the user should know about."""
    ERROR = "wrong"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one environment check, with a message and a remedy."""

    what: str
    state: CheckStatus
    says: str
    do: str = ""


def get_installed_version(package: str) -> str | None:
    """Return the version of an installed package, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def run_checks(
    *,
    master: str | None = None,
    bootstrap: Bootstrap | None = None,
    table_root: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    environment: Mapping[str, str] = os.environ,
    installed: InstalledVersion = get_installed_version,
) -> Iterator[CheckResult]:
    """Run the checks and yield each result; brokers and the table root are checked only if given."""
    master = resolve_master(master, environment) or LOCAL_MASTER
    yield check_pyspark(installed)
    yield check_pandas(installed)
    yield check_package("pyarrow", installed, PYARROW_MIN)
    yield check_package("deltalake", installed, DELTALAKE_MIN, DELTALAKE_MAX_EXCLUSIVE)
    if is_connect_master(master):
        yield check_package("grpcio", installed, (1,))
    else:
        yield check_java(environment)
        yield check_worker_python(master, environment)
        yield check_bash(environment)
    if bootstrap is not None:
        yield check_broker(bootstrap)
    if table_root is not None:
        yield check_table_root(table_root, storage_options)


def check_java(environment: Mapping[str, str]) -> CheckResult:
    try:
        java = find_java(environment)
    except JavaNotFoundError as error:
        says, _, do = str(error).rpartition(": ")
        return CheckResult("java", CheckStatus.ERROR, says, do)
    says = f"Java {java.version} from {java.found_by} ({java.home})"
    if environment.get("JAVA_HOME") and java.found_by != "JAVA_HOME":
        return CheckResult(
            "java", CheckStatus.WARNING, f"{says}; JAVA_HOME is not usable", "correct or unset JAVA_HOME"
        )
    return CheckResult("java", CheckStatus.OK, says)


def check_pyspark(installed: InstalledVersion) -> CheckResult:
    found = installed("pyspark")
    if found is None:
        return CheckResult("pyspark", CheckStatus.ERROR, "pyspark is not installed", INSTALL_COMMAND)
    if _parse_version(found) < PYSPARK_MIN:
        says = f"pyspark {found} is too old: Python data sources require {_text(PYSPARK_MIN)} or newer"
        return CheckResult("pyspark", CheckStatus.ERROR, says, INSTALL_COMMAND)
    if _parse_version(found) >= PYSPARK_MAX_EXCLUSIVE:
        return CheckResult(
            "pyspark", CheckStatus.WARNING, f"pyspark {found} is newer than the tested versions", INSTALL_COMMAND
        )
    return CheckResult("pyspark", CheckStatus.OK, f"pyspark {found}")


def check_pandas(installed: InstalledVersion) -> CheckResult:
    finding = check_package("pandas", installed, (2, 2))
    if finding.state is CheckStatus.OK and _parse_version(installed("pandas") or "") >= PANDAS_MAX_EXCLUSIVE:
        says = f"{finding.says} is not supported by pyspark"
        return CheckResult("pandas", CheckStatus.ERROR, says, "pip install 'pandas<3'")
    return finding


def check_package(
    name: str, installed: InstalledVersion, minimum: Version, below: Version | None = None
) -> CheckResult:
    found = installed(name)
    if found is None:
        return CheckResult(name, CheckStatus.ERROR, f"{name} is not installed", INSTALL_COMMAND)
    if _parse_version(found) < minimum:
        return CheckResult(name, CheckStatus.ERROR, f"{name} {found} is older than {_text(minimum)}", INSTALL_COMMAND)
    if below is not None and _parse_version(found) >= below:
        return CheckResult(
            name, CheckStatus.WARNING, f"{name} {found} is newer than the tested versions", INSTALL_COMMAND
        )
    return CheckResult(name, CheckStatus.OK, f"{name} {found}")


def check_worker_python(master: str, environment: Mapping[str, str]) -> CheckResult:
    """Check that workers run the same Python version as the driver; Spark fails queries otherwise."""
    driver_version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    chosen = environment.get("PYSPARK_PYTHON")
    if is_local_master(master) or not chosen:
        return CheckResult("python", CheckStatus.OK, f"Python {driver_version}, in workers too ({sys.executable})")
    worker_version = _get_python_version(chosen, environment)
    if worker_version is None:
        says = f"PYSPARK_PYTHON={chosen} cannot be run here; each worker of {master} needs it (Python {driver_version})"
        return CheckResult("python", CheckStatus.WARNING, says)
    if worker_version != driver_version:
        says = f"workers would run Python {worker_version} (PYSPARK_PYTHON={chosen}), the driver runs {driver_version}"
        return CheckResult(
            "python", CheckStatus.ERROR, says, f"unset PYSPARK_PYTHON, or set it to a Python {driver_version}"
        )
    return CheckResult("python", CheckStatus.OK, f"Python {driver_version}, in workers {chosen}")


def _get_python_version(program: str, environment: Mapping[str, str]) -> str | None:
    found = shutil.which(program, path=environment.get("PATH", os.defpath))
    if found is None:
        return None
    command = [found, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=PYTHON_SECONDS_MAX, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip()


def check_bash(environment: Mapping[str, str]) -> CheckResult:
    path = os.pathsep.join([environment.get("PATH", ""), os.defpath])
    if shutil.which("bash", path=path) is None:
        return CheckResult(
            "bash", CheckStatus.ERROR, "bash is not installed; Spark's scripts require it", "install bash"
        )
    return CheckResult("bash", CheckStatus.OK, "bash is installed")


def check_broker(bootstrap: Bootstrap) -> CheckResult:
    try:
        with ClusterClient(bootstrap, client_id="chronik-doctor", timeout_s=BROKER_SECONDS_MAX) as cluster:
            brokers = len(cluster.metadata([]).brokers)
    except (ClientError, KafkaError, OSError) as error:
        return CheckResult(
            "broker", CheckStatus.ERROR, str(error), "start a broker (chronik start), or set --bootstrap-server"
        )
    return CheckResult("broker", CheckStatus.OK, f"{pluralize(brokers, 'broker')} reachable through {bootstrap}")


def check_table_root(root: str, storage_options: Mapping[str, str] | None = None) -> CheckResult:
    """Check that the table root, or its nearest existing parent, is writable."""
    if root.startswith(("s3://", "s3a://")):
        return _check_s3_root(root, storage_options)
    if "://" in root and not root.startswith("file://"):
        return CheckResult(
            "table root", CheckStatus.WARNING, f"{root} is remote: only a commit shows whether it is writable"
        )
    directory = Path(root.removeprefix("file://")).absolute()
    existing = next(parent for parent in (directory, *directory.parents) if parent.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        says = f"{existing} is not writable: {error.strerror or error}"
        return CheckResult(
            "table root", CheckStatus.ERROR, says, "choose another --table-root, or change its permissions"
        )
    return CheckResult(
        "table root", CheckStatus.OK, f"{directory} {'is writable' if existing == directory else 'can be created'}"
    )


def _check_s3_root(root: str, storage_options: Mapping[str, str] | None) -> CheckResult:
    """Check that the bucket can be listed and written, and that the store supports conditional writes."""
    try:
        require_packages("deltalake", "pyarrow", "obstore")
        from chronik.pipeline.tables.catalog import list_table_names
        from chronik.pipeline.tables.conditional_writes import require_conditional_writes
        from chronik.pipeline.tables.storage_options import resolve_storage_options

        tables = list_table_names(root, storage_options)
        require_conditional_writes(root, resolve_storage_options(root, storage_options))
    except ChronikError as error:
        says, _, do = str(error).rpartition(": ")
        return CheckResult("table root", CheckStatus.ERROR, says, do)
    says = f"{root} is writable, with conditional writes ({pluralize(len(tables), 'table')})"
    return CheckResult("table root", CheckStatus.OK, says)


class PackagesMissingError(ChronikError):
    """Python packages of the pipeline that are not installed. The message names them and the install command."""


def require_packages(*packages: str) -> None:
    """Raise PackagesMissingError unless the packages are installed; commands call this before they import them."""
    missing = [package for package in packages if get_installed_version(package) is None]
    if missing:
        raise PackagesMissingError(
            f"{', '.join(missing)} not installed: {INSTALL_COMMAND}; chronik pipeline doctor shows details"
        )


def _parse_version(text: str) -> Version:
    return tuple(int(number) for number in re.findall(r"\d+", text)[:3])


def _text(version: Version) -> str:
    return ".".join(map(str, version))
