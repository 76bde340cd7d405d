"""The state of tables: size, files, versions, lag, dead-letter records, and the last and the next maintenance.

It comes from the tables' metadata and, for the lag, from the brokers.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from chronik.client.cluster import ClusterClient
from chronik.client.consumer import Consumer
from chronik.client.errors import ClientError
from chronik.client.offsets import list_earliest_offsets
from chronik.client.records import TopicPartition
from chronik.pipeline.landing.settings import fetch_topic_configs
from chronik.pipeline.landing.topic_positions import fetch_topic_ids
from chronik.pipeline.source.offset_resolver import OffsetResolver
from chronik.pipeline.source.options import IsolationLevel
from chronik.pipeline.table_maintenance.policy import (
    MaintenanceSettings,
    compute_next_vacuum_ms,
    find_other_maintainer,
    plan_maintenance,
)
from chronik.pipeline.table_maintenance.settings import DEFAULT_MAINTENANCE
from chronik.pipeline.tables.catalog import list_existing_tables, open_table
from chronik.pipeline.tables.layout import TableKind
from chronik.pipeline.tables.storage import DEAD_LETTERS_SUFFIX, table_uri
from chronik.pipeline.tables.table_statistics import MaintenanceRecord, TableStatistics
from chronik.pipeline.tables.topic_table import TableMissingError, TopicTable
from chronik.protocol.errors import KafkaError

LAG_SECONDS_MAX: Final = 5.0
"""Maximum time in seconds to read the oldest records that have not landed."""


@dataclass(frozen=True, slots=True)
class NextMaintenance:
    """The next maintenance of a table, as far as it is known now."""

    action: str
    """`compaction`, `metadata` or `vacuum`."""
    due_ms: int
    """Time from which it is due, in milliseconds since the epoch; it may be in the past."""


@dataclass(frozen=True, slots=True)
class TableStatus:
    """The state of a table."""

    table: str
    """Name of the table: the topic, or its dead-letter table."""
    topic: str
    format: str
    files: int
    size_bytes: int
    versions: int
    """Number of versions or snapshots that can be listed."""
    rows: int | None
    """Number of rows, or None if a file has no statistics."""
    lag_records: int | None
    """Number of offsets that have not landed, or None if it is unknown or the table is a dead-letter table."""
    lag_seconds: float | None
    """Age of the oldest record that has not landed, in seconds; 0 if all have, or None if it is unknown."""
    dead_letters: int | None
    """Number of rows of the dead-letter table; None for that table itself."""
    last_maintenance: MaintenanceRecord | None
    """The last maintenance that the table's history contains."""
    next_maintenance: NextMaintenance | None
    """None if maintenance is disabled."""
    maintained_by: str | None
    """The process that maintains the table now, or None."""

    @property
    def average_file_bytes(self) -> int | None:
        return self.size_bytes // self.files if self.files else None


@dataclass(frozen=True, slots=True)
class _Lag:
    records: int | None = None
    seconds: float | None = None


def list_tables(
    root: str,
    topics: Sequence[str] | None = None,
    *,
    cluster: ClusterClient | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> list[TableStatus]:
    """Return the state of the tables of these topics with their dead-letter tables, or of all tables under the root.

    Without a cluster, the lag is unknown, and the default settings of maintenance are assumed.

    Raises:
        TableMissingError: There is no table, or none of a topic.
        TableError: A table cannot be read.
        ClientError: No broker responds.
        KafkaError: A broker rejects a request.
    """
    names = list_existing_tables(root, storage_options)
    if topics is not None:
        missing = [topic for topic in topics if topic not in names]
        if missing:
            raise TableMissingError(f"no table of {', '.join(missing)} under {root}")
        names = [name for name in names if name.removesuffix(DEAD_LETTERS_SUFFIX) in topics]
    tables = {name: open_table(table_uri(root, name), storage_options) for name in names}
    statistics = {name: table.statistics() for name, table in tables.items()}
    now_ms = time.time_ns() // 1_000_000
    return [_describe_table(name, table, statistics, cluster, now_ms) for name, table in tables.items()]


def _describe_table(
    name: str,
    table: TopicTable,
    statistics: Mapping[str, TableStatistics],
    cluster: ClusterClient | None,
    now_ms: int,
) -> TableStatus:
    found, spec = statistics[name], table.spec
    is_dead_letters = spec.kind is TableKind.DEAD_LETTERS
    exists = cluster is not None and fetch_topic_ids(cluster, [spec.topic])[spec.topic] == spec.topic_id
    lag, settings = _Lag(), MaintenanceSettings()
    if cluster is not None and exists:
        settings = DEFAULT_MAINTENANCE.resolve(fetch_topic_configs(cluster, spec.topic))
        if not is_dead_letters:
            lag = _measure_lag(cluster, spec.topic, table.next_offsets(), now_ms)
    dead_letters = statistics.get(name + DEAD_LETTERS_SUFFIX)
    return TableStatus(
        table=name,
        topic=spec.topic,
        format=found.format,
        files=len(found.files),
        size_bytes=found.size_bytes,
        versions=found.versions_kept,
        rows=found.rows,
        lag_records=lag.records,
        lag_seconds=lag.seconds,
        dead_letters=None if is_dead_letters else 0 if dead_letters is None else dead_letters.rows,
        last_maintenance=max(found.maintenance_records, key=lambda record: record.at_ms, default=None),
        next_maintenance=_find_next_maintenance(found, settings, now_ms),
        maintained_by=find_other_maintainer(found, "", now_ms),
    )


def _find_next_maintenance(
    statistics: TableStatistics, settings: MaintenanceSettings, now_ms: int
) -> NextMaintenance | None:
    if not settings.is_enabled:
        return None
    maintainer = find_other_maintainer(statistics, "", now_ms) or ""
    for plan in plan_maintenance(statistics, settings, maintainer=maintainer, now_ms=now_ms):
        return NextMaintenance(plan.action.value, plan.due_ms)
    return NextMaintenance("vacuum", compute_next_vacuum_ms(statistics, settings))


# Lag


def _measure_lag(cluster: ClusterClient, topic: str, next_offsets: Mapping[int, int], now_ms: int) -> _Lag:
    partitions = cluster.retry(lambda: cluster.partitions(topic))
    ends = OffsetResolver(cluster, IsolationLevel.READ_COMMITTED).fetch_latest_offsets(partitions)
    starts = list_earliest_offsets(cluster, partitions)
    behind = {
        each: max(next_offsets.get(each.partition, 0), starts[each])
        for each, end in ends.items()
        if next_offsets.get(each.partition, 0) < end and starts[each] < end
    }
    if not behind:
        return _Lag(0, 0.0)
    records = sum(ends[each] - start for each, start in behind.items())
    timestamps_ms = _read_first_timestamps(cluster, behind)
    return _Lag(records, max(0.0, (now_ms - min(timestamps_ms)) / 1000) if timestamps_ms else None)


def _read_first_timestamps(cluster: ClusterClient, starts: Mapping[TopicPartition, int]) -> Iterable[int]:
    """Return the timestamps in milliseconds of the first records at or after these offsets, as far as they arrive."""
    found: dict[TopicPartition, int] = {}
    consumer = Consumer(cluster, starts)
    deadline = time.monotonic() + LAG_SECONDS_MAX
    while (missing := [each for each in starts if each not in found]) and time.monotonic() < deadline:
        try:
            records = consumer.poll(only=missing)
        except (ClientError, KafkaError):
            break  # the number of records is known, and retention may have deleted the first of them
        for record in records:
            found.setdefault(TopicPartition(record.topic, record.partition), record.timestamp)
    return found.values()
