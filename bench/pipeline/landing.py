"""Topic to table, beside Spark's own connector to Parquet: the same session, broker, topic, codec and count of files,
in turn within each round, after both have run once.

Spark's own is asked for less: neither headers nor checksums nor a commit, and a batch query, which plans less than a
stream does.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow.parquet as pq

from bench.cluster.figures import Figure
from bench.pipeline.plan import PARTITIONS, Plan, Stopwatch, millions
from bench.pipeline.processes import tree_cpu_seconds
from bench.servers import ROOT
from chronik.bench.errors import BenchFailed
from chronik.bench.measures import MEGABYTE, MILLION
from chronik.bench.rounds import in_turn
from chronik.pipeline.landing.running import LOCAL_MASTER, run
from chronik.pipeline.spark.runtime import session
from chronik.pipeline.tables.parquet import CODEC_LEVELS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECTOR: Final = ROOT / ".tools" / "jars" / "spark-kafka"
SETUP: Final = ROOT / "tools" / "clients" / "setup"
CODECS: Final = ("zstd", "snappy")
RATIO_LEAST: Final = 1.5
WARM_UP_RECORDS: Final = 400_000
COLUMNS: Final = ("key", "value", "partition", "offset", "timestamp")

CHRONIK, SPARK = "chronik", "Spark's own"


class Written:
    """The Parquet files under a folder."""

    def __init__(self, folder: Path) -> None:
        files = [path for path in folder.rglob("*.parquet") if "_delta_log" not in path.parts]
        self.files = len(files)
        self.rows = sum(pq.read_metadata(path).num_rows for path in files)
        self.bytes = sum(path.stat().st_size for path in files)


class Measured(NamedTuple):
    rows_per_second: float
    cpu_s_per_million: float
    """Of all processes of Spark's together, which says more than the rate does while others use the machine."""
    written: Written


class Contest:
    """Both ways of one codec."""

    def __init__(self, spark: SparkSession, plan: Plan, codec: str) -> None:
        self._spark = spark
        self._plan = plan
        self._codec = codec
        self._files = PARTITIONS
        """That Spark's own writes: as many as ours has."""
        self.ways: dict[str, Callable[[str, Path], None]] = {CHRONIK: self._chronik, SPARK: self._own}

    def measure(self, way: str, records: int) -> Measured:
        """Raises BenchFailed."""
        topic = self._plan.topic(records)
        folder = self._plan.folder / "tables"
        shutil.rmtree(folder, ignore_errors=True)
        os.sync()  # what the other left in the page cache must not slow this one
        try:
            used_s = tree_cpu_seconds(os.getpid())
            with Stopwatch() as watch:
                self.ways[way](topic, folder)
            used_s = tree_cpu_seconds(os.getpid()) - used_s
            written = Written(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if written.rows != records:
            raise BenchFailed(f"{way} wrote {written.rows:,} rows of {records:,}")
        if way == CHRONIK:
            self._files = written.files
        elif written.files != self._files:
            raise BenchFailed(f"{way} wrote {written.files} files, not {self._files}")
        return Measured(records / watch.seconds, used_s / records * MILLION, written)

    def _chronik(self, topic: str, folder: Path) -> None:
        run(self._plan.bootstrap, str(folder), [topic], once=True, codec=self._codec, spark=self._spark)

    def _own(self, topic: str, folder: Path) -> None:
        options = {"kafka.bootstrap.servers": self._plan.bootstrap, "subscribe": topic}
        frame = self._spark.read.format("kafka").options(**options, minPartitions=str(self._files)).load()
        frame = frame.select(*COLUMNS)
        if self._files < PARTITIONS:
            frame = frame.coalesce(self._files)
        writer = frame.write.option("compression", self._codec)
        if self._codec in CODEC_LEVELS:
            writer = writer.option(f"parquet.compression.codec.{self._codec}.level", CODEC_LEVELS[self._codec])
        writer.parquet(str(folder))


def measure_landing(plan: Plan) -> list[Figure]:
    jars = ",".join(map(str, connector_jars()))
    with session(LOCAL_MASTER, **{"spark.jars": jars}) as spark:
        return [figure for codec in CODECS for figure in _with_codec(Contest(spark, plan, codec), plan, codec)]


def connector_jars() -> list[Path]:
    """Spark's own connector, fetched from Maven Central if need be. Raises BenchFailed."""
    if not CONNECTOR.is_dir():
        subprocess.run([SETUP, "spark-kafka"], stdout=sys.stderr, check=False)
    jars = sorted(CONNECTOR.glob("*.jar"))
    if not jars:
        raise BenchFailed("Spark's own connector cannot be fetched: see .tools/mvn-spark-kafka.log")
    return jars


def _with_codec(contest: Contest, plan: Plan, codec: str) -> list[Figure]:
    for records in (WARM_UP_RECORDS, plan.records):
        for way in contest.ways:
            contest.measure(way, records)  # Java is quick when it has seen much; and ours tells its count of files
    measured: dict[str, list[Measured]] = defaultdict(list)
    for number in range(plan.rounds):
        for way in in_turn(list(contest.ways), number):
            measured[way].append(contest.measure(way, plan.records))
    rates = {way: [each.rows_per_second for each in measured[way]] for way in contest.ways}
    costs = {way: [each.cpu_s_per_million for each in measured[way]] for way in contest.ways}
    sizes = {way: [each.written.bytes / MEGABYTE for each in measured[way]] for way in contest.ways}
    ratios = [ours / own for ours, own in zip(rates[CHRONIK], rates[SPARK], strict=True)]
    what = f"{millions(plan.records)} rows, {measured[CHRONIK][0].written.files} files of {codec}"
    return [
        Figure(f"{what}: {CHRONIK} of {SPARK}, rows/s", ratios, at_least=RATIO_LEAST),
        *(Figure(f"{what}: {way}, rows/s", rates[way]) for way in contest.ways),
        *(Figure(f"{what}: {way}, CPU of Spark's processes, s/M", costs[way]) for way in contest.ways),
        *(Figure(f"{what}: {way}, MB", sizes[way]) for way in contest.ways),
    ]
