"""Class archives (the JVM's class-data sharing) for JVMs that tests start by the dozen.

Such a JVM spends up to half of its CPU time on loading classes; an archive contains them in the JVM's own format. `make
test` creates the archives once, with `python -m tests.archives`, by running programs that do what the tests do. They
are in .tools/archives, named after the Java version and the jars. Without an archive, tests only take longer. Archives
are created only where they save more than they cost in one run.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from chronik.pipeline.spark.installation import (
    JavaNotFoundError,
    PySparkNotFoundError,
    find_java,
    find_pyspark_directory,
    prepare_private_spark_home,
)

TOOLS: Final = Path(__file__).parents[1] / ".tools"
FOLDER: Final = TOOLS / "archives"
KAFKA_TOOLS: Final = TOOLS / "jars" / "kafka-tools"

SILENT: Final = "-Xlog:disable"
"""Suppresses the JVM's warning on stdout about an archive that does not fit."""

NO_CONF: Final = FOLDER / "no-conf"
"""Empty directory for SPARK_CONF_DIR: a non-empty directory on the class path makes archives impossible."""

SPARK_SECONDS_MAX: Final = 600.0


def archive_path(name: str, jars: Iterable[Path]) -> Path | None:
    """Return the path of the archive for these jars (by size and time) and the current Java; None without Java."""
    try:
        release = (find_java().home / "release").read_bytes()
    except (JavaNotFoundError, OSError):
        return None
    files = "".join(f"{jar.resolve()} {(stat := jar.stat()).st_size} {stat.st_mtime_ns}\n" for jar in sorted(jars))
    return FOLDER / f"{name}-{hashlib.sha256(release + files.encode()).hexdigest()[:12]}.jsa"


def archive_options(archive: Path | None) -> tuple[str, ...]:
    """Return the JVM options that use an archive; none if it does not exist."""
    return (f"-XX:SharedArchiveFile={archive}", SILENT) if archive is not None and archive.exists() else ()


def archive_creation_options(archive: Path) -> tuple[str, ...]:
    """Return the JVM options that create an archive at exit."""
    return (f"-XX:ArchiveClassesAtExit={archive}", SILENT)


def kafka_tools_archive() -> Path | None:
    """Return the path of the archive for Kafka's command-line tools."""
    return archive_path("kafka-tools", KAFKA_TOOLS.glob("*.jar"))


def java_client_archive(library: Path) -> Path | None:
    """Return the path of the archive for one version of Kafka's Java client with the tests' driver."""
    return archive_path(library.parent.name, library.glob("*.jar"))


def spark_archive() -> Path | None:
    """Return the path of the archive for Spark; drivers, masters, workers and executors have the same class path."""
    try:
        return archive_path("spark", (find_pyspark_directory() / "jars").glob("*.jar"))
    except PySparkNotFoundError:
        return None


def spark_logging() -> str:
    """Return the JVM option for logging of Spark if its configuration directory is empty."""
    configuration = prepare_private_spark_home(find_pyspark_directory()) / "conf" / "log4j2.properties"
    return f"-Dlog4j2.configurationFile={configuration}"


def make_kafka_tools(archive: Path, options: tuple[str, ...]) -> None:
    """Create the archive of Kafka's tools by running one of them."""
    from chronik.testing import Broker

    command = [
        "java",
        *options,
        *archive_creation_options(archive),
        "-cp",
        f"{KAFKA_TOOLS}/*",
        "kafka.admin.ConfigCommand",
    ]
    with Broker() as broker:
        asked = ("--bootstrap-server", broker.bootstrap, "--describe", "--entity-type", "users")
        subprocess.run([*command, *asked], capture_output=True, check=True)


def make_java_client(name: str, archive: Path, options: tuple[str, ...]) -> None:
    """Create the archive of a Java client by running its driver through the operations that tests use."""
    from chronik.testing import Broker
    from tests.clients.client_catalog import CLIENTS
    from tests.clients.client_process import ClientProcess, wait_for
    from tests.clients.drivers.wire import Record

    java, *rest = CLIENTS[name].command
    with Broker() as broker:
        broker.create_topic("archived")
        driver = ClientProcess(
            replace(CLIENTS[name], command=(java, *options, *archive_creation_options(archive), *rest)),
            broker.bootstrap,
        )
        driver.produce("archived", [Record(b"key", b"value", partition=0)], idempotent=True)
        member = driver.join("archived", ["archived"])
        wait_for("a record", member.received_offsets)
        member.leave()
        driver.close()  # the JVM exits and writes the archive


def make_spark(archive: Path, options: tuple[str, ...]) -> None:
    """Create the archive of Spark by running a query."""
    os.environ["SPARK_CONF_DIR"] = str(NO_CONF)
    os.environ["SPARK_SUBMIT_OPTS"] = " ".join((*options, spark_logging(), *archive_creation_options(archive)))
    from chronik.pipeline.spark.runtime import session

    spark = session("local[2]")
    rows = spark.range(1000).selectExpr("id % 10 as key", "id as value")
    rows.groupBy("key").count().orderBy("key").mapInArrow(lambda batches: batches, "key long, count long").collect()
    jvm = spark.sparkContext._gateway.proc
    spark.stop()
    jvm.stdin.close()  # the JVM exits and writes the archive
    if code := jvm.wait(SPARK_SECONDS_MAX):
        raise subprocess.CalledProcessError(code, "Spark")


def create_once(archive: Path | None, make: Callable[[Path, tuple[str, ...]], None], options: tuple[str, ...]) -> None:
    """Create an archive unless it exists, and remove older versions of it."""
    if archive is None or archive.exists():
        return
    name = archive.name.rpartition("-")[0]
    for older in archive.parent.glob(f"{name}-*"):
        older.unlink()
    print(f"{name:<12} creating its class archive", flush=True)
    partial, started_at = archive.with_suffix(".partial"), time.monotonic()
    make(partial, options)
    partial.rename(archive)  # after completion: Java 17 crashes with an incomplete archive
    print(f"{name:<12} {archive.stat().st_size >> 20} MiB in {time.monotonic() - started_at:.0f} s")


def main() -> None:
    """Create all archives."""
    from tests.jvm_options import QUICK_TO_START

    NO_CONF.mkdir(parents=True, exist_ok=True)
    if KAFKA_TOOLS.exists():
        create_once(kafka_tools_archive(), make_kafka_tools, QUICK_TO_START)
    for library in sorted((TOOLS / "java").glob("*/lib")):
        create_once(java_client_archive(library), partial(make_java_client, library.parent.name), QUICK_TO_START)
    create_once(spark_archive(), make_spark, QUICK_TO_START)


if __name__ == "__main__":
    main()
