"""Parameters of the pipeline benchmarks, and the topics that all sections share."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from chronik.bench.errors import BenchmarkError
from chronik.bench.librdkafka_config import ensure_topic
from chronik.bench.statistics import MILLION
from chronik.client.cluster import ClusterClient
from chronik.client.offsets import list_latest_offsets
from chronik.pipeline.sink.publisher import Publisher, PublishSettings
from chronik.pipeline.table_maintenance.settings import MaintenanceOptions

PARTITIONS: Final = 4
ROWS_PER_CALL: Final = 50_000
"""Rows per call; each call writes to the next partition."""

TEMPLATE: Final = (
    b'{"id":"###############","user":"########","amount":1###.##,"at":17###########,"page":"/orders/####"}'
)
"""A JSON event with random digits: neither constant, which Parquet would store once, nor pure noise."""

ORDER_TEMPLATE: Final = (
    b'{"id":1###########,"customer":"customer-########","session":"################","total":1####.##,'
    b'"at":"2026-11-18T1#:1#:1#.1##Z","quantity":1##,"is_new":true,"page":"/products/########/details"}'
)
ORDER_SCHEMA: Final = (
    "id bigint, customer string, session string, total double, at timestamp, quantity bigint, is_new boolean,"
    " page string"
)
"""A JSON order with eight fields, and its schema, for the comparison of decoded landing."""

WITHOUT_MAINTENANCE: Final = MaintenanceOptions(is_enabled=False)
"""The maintenance options of benchmarks that measure landing alone."""

ORDERS: Final = "orders"
"""The use of topics with orders."""


@dataclass(slots=True)
class PipelineBenchmarkPlan:
    """Parameters of a run."""

    directory: Path
    """Directory for data and results."""
    bootstrap: str
    rounds: int
    records: int
    """Records of the comparison."""
    sizes: tuple[int, ...]
    """Topic sizes of the growth comparison."""
    growth_rounds: int = 1
    """Rounds of the growth comparison, which takes longest."""
    scale: float = 1.0
    """Fraction of the full sizes in the comparison of landing rounds."""
    _filled: set[str] = field(default_factory=set)

    def topic(self, records: int, use: str = "events") -> str:
        """Return the name of a topic with that many records, filling it on first use. Raises BenchFailed."""
        name = f"{use}-{records}"
        if name not in self._filled:
            fill_topic(self.bootstrap, name, records, ORDER_TEMPLATE if use == ORDERS else TEMPLATE)
            self._filled.add(name)
        return name

    def filled_topic(self, records: int, use: str, template: bytes, digits: npt.NDArray[np.intp]) -> str:
        """Return the name of a topic with values that vary in some bytes of a template. Raises BenchFailed."""
        name = f"{use}-{records}"
        if name not in self._filled:
            fill_topic(self.bootstrap, name, records, template, digits)
            self._filled.add(name)
        return name


def fill_topic(
    bootstrap: str,
    topic: str,
    records: int,
    template: bytes = TEMPLATE,
    digits: npt.NDArray[np.intp] | None = None,
) -> None:
    """Add records, distributed evenly over the partitions. Raises BenchFailed."""
    random = np.random.default_rng(1)
    with ClusterClient(bootstrap) as cluster:
        ensure_topic(cluster, topic, PARTITIONS)
        before = _count_records(cluster, topic)
        publisher = Publisher(cluster, PublishSettings(bootstrap, topic))
        for first in range(0, records, ROWS_PER_CALL):
            publisher.publish(generate_events(min(ROWS_PER_CALL, records - first), random, template, digits))
        written = _count_records(cluster, topic) - before
    if written != records:
        raise BenchmarkError(f"topic {topic} received {written:,} records instead of {records:,}")


def _count_records(cluster: ClusterClient, topic: str) -> int:
    return sum(list_latest_offsets(cluster, cluster.partitions(topic)).values())


def generate_events(
    count: int,
    random: np.random.Generator,
    template: bytes = TEMPLATE,
    digits: npt.NDArray[np.intp] | None = None,
) -> pa.RecordBatch:
    """Return records whose values are the template with random digits, by default in place of `#`."""
    characters: npt.NDArray[np.uint8] = np.frombuffer(template, np.uint8)
    values = np.tile(characters, (count, 1))
    if digits is None:
        digits = np.flatnonzero(characters == ord("#"))
    values[:, digits] = random.integers(ord("0"), ord("9") + 1, (count, len(digits)), np.uint8)
    ends = np.arange(0, (count + 1) * len(template), len(template), dtype=np.int32)
    column = pa.BinaryArray.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(values)])
    return pa.record_batch({"value": column})


def format_millions(records: int) -> str:
    return f"{records / MILLION:g} M"


class Stopwatch:
    """A context manager that measures elapsed time: `with Stopwatch() as watch: …`, then `watch.seconds`."""

    def __enter__(self) -> Stopwatch:
        self.seconds = 0.0
        self._started = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._started
