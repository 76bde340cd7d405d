"""Landing compared with Spark's Kafka connector writing Parquet, with the same session, topic, codec and file count.

Both are measured interleaved within each round, after a warm-up. Spark's connector does less: no headers, checksums or
commits, and a batch query, which plans less than a stream.
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
from bench.pipeline.plan import PARTITIONS, PipelineBenchmarkPlan, Stopwatch, format_millions
from bench.pipeline.processes import read_tree_cpu_seconds
from bench.servers import ROOT
from chronik.bench.errors import BenchmarkError
from chronik.bench.report import rotate
from chronik.bench.statistics import MEGABYTE, MILLION
from chronik.pipeline.landing.runner import LOCAL_MASTER, run
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

CHRONIK, SPARK = "Chronik", "Spark's connector"


class ParquetOutput:
    """Totals of the Parquet files in a directory."""

    def __init__(self, folder: Path) -> None:
        files = [path for path in folder.rglob("*.parquet") if "_delta_log" not in path.parts]
        self.files = len(files)
        self.rows = sum(pq.read_metadata(path).num_rows for path in files)
        self.bytes = sum(path.stat().st_size for path in files)


class LandingResult(NamedTuple):
    """Throughput, CPU and output of one run."""

    rows_per_second: float
    cpu_s_per_million: float
    """CPU of all Spark processes, which is less affected by other load than the rate."""
    written: ParquetOutput


class LandingComparison:
    """Chronik and Spark's connector with one codec."""

    def __init__(self, spark: SparkSession, plan: PipelineBenchmarkPlan, codec: str) -> None:
        self._spark = spark
        self._plan = plan
        self._codec = codec
        self._files = PARTITIONS
        """The number of files that Spark's connector writes: as many as Chronik did."""
        self.ways: dict[str, Callable[[str, Path], None]] = {CHRONIK: self._chronik, SPARK: self._spark_connector}

    def measure(self, method: str, records: int) -> LandingResult:
        """Land the topic in one way and check the rows and files. Raises BenchFailed."""
        topic = self._plan.topic(records)
        folder = self._plan.directory / "tables"
        shutil.rmtree(folder, ignore_errors=True)
        os.sync()  # an earlier run's dirty pages must not slow this one
        try:
            cpu_s = read_tree_cpu_seconds(os.getpid())
            with Stopwatch() as watch:
                self.ways[method](topic, folder)
            cpu_s = read_tree_cpu_seconds(os.getpid()) - cpu_s
            written = ParquetOutput(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if written.rows != records:
            raise BenchmarkError(f"{method} wrote {written.rows:,} rows of {records:,}")
        if method == CHRONIK:
            self._files = written.files
        elif written.files != self._files:
            raise BenchmarkError(f"{method} wrote {written.files} files, not {self._files}")
        return LandingResult(records / watch.seconds, cpu_s / records * MILLION, written)

    def _chronik(self, topic: str, folder: Path) -> None:
        run(self._plan.bootstrap, str(folder), [topic], once=True, codec=self._codec, spark=self._spark)

    def _spark_connector(self, topic: str, folder: Path) -> None:
        options = {"kafka.bootstrap.servers": self._plan.bootstrap, "subscribe": topic}
        frame = self._spark.read.format("kafka").options(**options, minPartitions=str(self._files)).load()
        frame = frame.select(*COLUMNS)
        if self._files < PARTITIONS:
            frame = frame.coalesce(self._files)
        writer = frame.write.option("compression", self._codec)
        if self._codec in CODEC_LEVELS:
            writer = writer.option(f"parquet.compression.codec.{self._codec}.level", CODEC_LEVELS[self._codec])
        writer.parquet(str(folder))


def measure_landing(plan: PipelineBenchmarkPlan) -> list[Figure]:
    jars = ",".join(map(str, find_connector_jars()))
    with session(LOCAL_MASTER, **{"spark.jars": jars}) as spark:
        return [
            figure for codec in CODECS for figure in _with_codec(LandingComparison(spark, plan, codec), plan, codec)
        ]


def find_connector_jars() -> list[Path]:
    """Return the jars of Spark's Kafka connector, downloading them if necessary. Raises BenchFailed."""
    if not CONNECTOR.is_dir():
        subprocess.run([SETUP, "spark-kafka"], stdout=sys.stderr, check=False)
    jars = sorted(CONNECTOR.glob("*.jar"))
    if not jars:
        raise BenchmarkError("Spark's Kafka connector could not be downloaded; see .tools/mvn-spark-kafka.log")
    return jars


def _with_codec(contest: LandingComparison, plan: PipelineBenchmarkPlan, codec: str) -> list[Figure]:
    for records in (WARM_UP_RECORDS, plan.records):
        for method in contest.ways:
            contest.measure(method, records)  # warm-up, which also determines Chronik's number of files
    measured: dict[str, list[LandingResult]] = defaultdict(list)
    for number in range(plan.rounds):
        for method in rotate(list(contest.ways), number):
            measured[method].append(contest.measure(method, plan.records))
    rates = {method: [each.rows_per_second for each in measured[method]] for method in contest.ways}
    costs = {method: [each.cpu_s_per_million for each in measured[method]] for method in contest.ways}
    sizes = {method: [each.written.bytes / MEGABYTE for each in measured[method]] for method in contest.ways}
    ratios = [chronik_rate / spark_rate for chronik_rate, spark_rate in zip(rates[CHRONIK], rates[SPARK], strict=True)]
    what = f"{format_millions(plan.records)} rows, {measured[CHRONIK][0].written.files} files of {codec}"
    return [
        Figure(f"{what}: {CHRONIK} / {SPARK}, rows/s", ratios, at_least=RATIO_LEAST),
        *(Figure(f"{what}: {method}, rows/s", rates[method]) for method in contest.ways),
        *(Figure(f"{what}: {method}, Spark's CPU, s per million", costs[method]) for method in contest.ways),
        *(Figure(f"{what}: {method}, MB", sizes[method]) for method in contest.ways),
    ]
