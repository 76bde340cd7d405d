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
from bench.pipeline.plan import (
    ORDER_SCHEMA,
    ORDERS,
    PARTITIONS,
    WITHOUT_MAINTENANCE,
    PipelineBenchmarkPlan,
    Stopwatch,
    format_millions,
)
from bench.pipeline.processes import read_cpu_seconds_by_process, subtract_cpu_seconds
from bench.servers import ROOT
from chronik.bench.errors import BenchmarkError
from chronik.bench.report import rotate_servers
from chronik.bench.statistics import MEGABYTE, MILLION
from chronik.pipeline.landing.runner import run
from chronik.pipeline.spark.masters import RETRYING_LOCAL_MASTER
from chronik.pipeline.spark.runtime import session
from chronik.pipeline.tables.parquet import CODEC_LEVELS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CONNECTOR: Final = ROOT / ".tools" / "jars" / "spark-kafka"
SETUP: Final = ROOT / "tools" / "clients" / "setup"
CODECS: Final = ("zstd", "snappy")
RATIO_LEAST: Final = 2.5
JSON_RATIO_LEAST, JSON_CPU_RATIO_MOST = 1.3, 1.0
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

    use = "events"
    """The use of the topics that are landed."""

    def measure(self, method: str, records: int) -> LandingResult:
        """Land the topic in one way and check the rows and files. Raises BenchFailed."""
        topic = self._find_topic(records)
        folder = self._plan.directory / "tables"
        shutil.rmtree(folder, ignore_errors=True)
        os.sync()  # an earlier run's dirty pages must not slow this one
        try:
            before = read_cpu_seconds_by_process(os.getpid())
            with Stopwatch() as watch:
                self.ways[method](topic, folder)
            cpu_s = subtract_cpu_seconds(read_cpu_seconds_by_process(os.getpid()), before)
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

    def _find_topic(self, records: int) -> str:
        return self._plan.topic(records, self.use)

    def _chronik(self, topic: str, folder: Path) -> None:
        settings = {"once": True, "codec": self._codec, "spark": self._spark, "maintenance": WITHOUT_MAINTENANCE}
        run(self._plan.bootstrap, str(folder), [topic], **settings)

    def _read_topic(self, topic: str) -> DataFrame:
        options = {"kafka.bootstrap.servers": self._plan.bootstrap, "subscribe": topic}
        return self._spark.read.format("kafka").options(**options, minPartitions=str(self._files)).load()

    def _spark_connector(self, topic: str, folder: Path) -> None:
        self._write(self._read_topic(topic).select(*COLUMNS), folder)

    def _write(self, frame: DataFrame, folder: Path) -> None:
        if self._files < PARTITIONS:
            frame = frame.coalesce(self._files)
        writer = frame.write.option("compression", self._codec)
        if self._codec in CODEC_LEVELS:
            writer = writer.option(f"parquet.compression.codec.{self._codec}.level", CODEC_LEVELS[self._codec])
        writer.parquet(str(folder))


class JsonLandingComparison(LandingComparison):
    """JSON values as columns: Chronik with a declared schema, and Spark with `from_json` and the same schema."""

    use = ORDERS

    def _chronik(self, topic: str, folder: Path) -> None:
        settings = {"once": True, "codec": self._codec, "spark": self._spark, "maintenance": WITHOUT_MAINTENANCE}
        run(self._plan.bootstrap, str(folder), [topic], schema=ORDER_SCHEMA, **settings)

    def _spark_connector(self, topic: str, folder: Path) -> None:
        from pyspark.sql.functions import col, from_json

        values = from_json(col("value").cast("string"), ORDER_SCHEMA).alias("values")
        frame = self._read_topic(topic).select(values, "key", "partition", "offset", "timestamp")
        self._write(frame.select("values.*", "key", "partition", "offset", "timestamp"), folder)


def measure_json(plan: PipelineBenchmarkPlan) -> list[Figure]:
    jars = ",".join(map(str, find_connector_jars()))
    with session(RETRYING_LOCAL_MASTER, **{"spark.jars": jars}) as spark:
        return [
            figure
            for codec in CODECS
            for figure in _with_codec(
                JsonLandingComparison(spark, plan, codec), plan, codec, JSON_RATIO_LEAST, JSON_CPU_RATIO_MOST
            )
        ]


def measure_landing(plan: PipelineBenchmarkPlan) -> list[Figure]:
    jars = ",".join(map(str, find_connector_jars()))
    with session(RETRYING_LOCAL_MASTER, **{"spark.jars": jars}) as spark:
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


def measure_methods(contest: LandingComparison, plan: PipelineBenchmarkPlan) -> dict[str, list[LandingResult]]:
    """Measure all ways, interleaved within each round. Raises BenchFailed."""
    for records in (WARM_UP_RECORDS, plan.records):
        for method in contest.ways:
            contest.measure(method, records)  # warm-up, which also determines Chronik's number of files
    measured: dict[str, list[LandingResult]] = defaultdict(list)
    for number in range(plan.rounds):
        for method in rotate_servers(list(contest.ways), number):
            measured[method].append(contest.measure(method, plan.records))
    return measured


def _with_codec(
    contest: LandingComparison,
    plan: PipelineBenchmarkPlan,
    codec: str,
    ratio_least: float = RATIO_LEAST,
    cpu_ratio_most: float | None = None,
) -> list[Figure]:
    measured = measure_methods(contest, plan)
    rates = {method: [each.rows_per_second for each in measured[method]] for method in contest.ways}
    costs = {method: [each.cpu_s_per_million for each in measured[method]] for method in contest.ways}
    sizes = {method: [each.written.bytes / MEGABYTE for each in measured[method]] for method in contest.ways}
    ratios = [chronik_rate / spark_rate for chronik_rate, spark_rate in zip(rates[CHRONIK], rates[SPARK], strict=True)]
    cpu_ratios = [mine / other for mine, other in zip(costs[CHRONIK], costs[SPARK], strict=True)]
    what = f"{format_millions(plan.records)} rows, {measured[CHRONIK][0].written.files} files of {codec}"
    return [
        Figure(f"{what}: {CHRONIK} / {SPARK}, rows/s", ratios, at_least=ratio_least),
        Figure(f"{what}: {CHRONIK} / {SPARK}, CPU per row", cpu_ratios, below=cpu_ratio_most),
        *(Figure(f"{what}: {method}, rows/s", rates[method]) for method in contest.ways),
        *(Figure(f"{what}: {method}, Spark's CPU, s per million", costs[method]) for method in contest.ways),
        *(Figure(f"{what}: {method}, MB", sizes[method]) for method in contest.ways),
    ]
