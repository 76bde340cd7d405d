"""Replay of a table's rows into a topic (`chronik pipeline replay`).

Records are written at least once, in offset order within each partition; a retry after a failure may write duplicates.
`tables.values.record_rebuild` describes how records are reconstructed.

The driver works in rounds, each of which ends at known offsets. The error of a failed replay contains the remaining
ranges, as the options for another replay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from chronik.client.access.settings import Bootstrap
from chronik.client.admin import NewTopic, create_topics
from chronik.client.cluster import ClusterClient
from chronik.errors import ChronikError
from chronik.formats.registry_client import RegistrySettings
from chronik.ids import format_id
from chronik.pipeline import CLIENT_ID
from chronik.pipeline.maintenance.replay_tasks import (
    RangeReplayResult,
    ReplayTask,
    TimestampLookupTask,
    find_first_offsets,
    merge_lowest_offsets,
    replay_range,
)
from chronik.pipeline.registry_access import resolve_registry, with_patience
from chronik.pipeline.sink.publisher import PublishSettings
from chronik.pipeline.spark.tasks import TaskFailedError, TaskRunner, run_locally
from chronik.pipeline.tables.catalog import open_table
from chronik.pipeline.tables.layout import DATE
from chronik.pipeline.tables.storage import table_uri
from chronik.pipeline.tables.table_files import TableFiles
from chronik.pipeline.tables.topic_table import TableSpec
from chronik.protocol.compression import Codec
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.metadata import MetadataResponseTopic
from chronik.wording import pluralize

OFFSETS_PER_ROUND = 1_000_000
"""Number of offsets per partition and round. If the driver is killed, only the current round's progress is lost."""

FILES_PER_TASK = 16
"""Maximum number of table files that one Spark task searches for a timestamp."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ReplayRejectedError(ChronikError):
    """A replay that was rejected before any records were written."""


class ReplayFailedError(ChronikError):
    """A replay that wrote only some of the records. The message lists the remaining ranges."""

    def __init__(self, message: str, rest: RemainingRanges) -> None:
        super().__init__(message, rest)
        self.message = message
        self.rest = rest

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True)
class ReplayBound:
    """The start (inclusive) or end (exclusive) of a replay, given by at most one of the fields.

    Without any field, the replay is unbounded in this direction.
    """

    offset: int | None = None
    """Offset in every partition."""
    offsets: Mapping[int, int] | None = None
    """Offset of each partition; other partitions are not replayed."""
    time: datetime | None = None
    """Timestamp, which selects the first record at or after it in each partition."""


UNBOUNDED = ReplayBound()
"""A bound that excludes no records from the replay."""


@dataclass(frozen=True, slots=True)
class RemainingRanges:
    """The offset ranges that a failed replay has not published yet, by partition."""

    ranges: Mapping[int, tuple[int, int]]

    @property
    def offsets(self) -> int:
        return sum(end - start for start, end in self.ranges.values())

    def __str__(self) -> str:
        """Return the ranges as command-line options of `chronik pipeline replay`."""
        starts = ",".join(f"{partition}:{start}" for partition, (start, _) in sorted(self.ranges.items()))
        ends = ",".join(f"{partition}:{end}" for partition, (_, end) in sorted(self.ranges.items()))
        return f"--from-offset {starts} --to-offset {ends}"


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The result of a replay."""

    records: int
    partitions_kept: bool
    """Whether the records were written to their original partitions."""
    names_replaced: int = 0
    """Number of records with a header name that was not valid UTF-8. U+FFFD replaces invalid bytes."""


def replay(
    topic: str,
    to_topic: str,
    *,
    bootstrap: Bootstrap,
    table_root: str,
    start: ReplayBound = UNBOUNDED,
    end: ReplayBound = UNBOUNDED,
    create: bool = False,
    by_key: bool = False,
    codec: Codec = Codec.NONE,
    tasks: TaskRunner = run_locally,
    offsets_per_round: int = OFFSETS_PER_ROUND,
    progress: Callable[[int, RemainingRanges], None] = lambda records, rest: None,
    storage_options: Mapping[str, str] | None = None,
    registry: RegistrySettings | None = None,
) -> ReplayResult:
    """Write the rows of a topic's table to another topic, at least once and in offset order within each partition.

        replay("orders", "orders-again", bootstrap="127.0.0.1:9092", table_root="tables",
               tasks=spark_task_runner(spark), start=ReplayBound(time=datetime(2024, 5, 1, tzinfo=UTC)))

    Records keep their partition if the target has it; otherwise, or with `by_key`, the key determines it. `create`
    creates the target with as many partitions if it does not exist. `progress` is called after each round. Typed values
    are encoded with the schemas in `registry`, or else in that of the brokers.

    Raises:
        ReplayRejectedError: The replay is not possible, and nothing was written.
        ReplayFailedError: Some records were written; the error has the remaining ranges.
        TableMissingError, TableMismatchError, ClientError, KafkaError: The table or the topic cannot be used.
    """
    source = open_table(table_uri(table_root, topic), storage_options)
    next_offsets = source.next_offsets()
    table = source.files()
    with ClusterClient(bootstrap, client_id=CLIENT_ID) as cluster:
        count = _get_or_create_target_partitions(
            cluster, to_topic, source.spec, max(next_offsets, default=0) + 1, create
        )
        if source.spec.format.needs_registry:
            table = replace(table, registry=with_patience(resolve_registry(registry, cluster, table.registry)))
    keep_partition_numbers = not by_key and all(partition < count for partition in next_offsets)
    starts = (
        dict.fromkeys(next_offsets, 0)
        if start == UNBOUNDED
        else _resolve_bound_offsets(start, table, next_offsets, tasks)
    )
    ends = next_offsets if end == UNBOUNDED else _resolve_bound_offsets(end, table, next_offsets, tasks)
    if end.time is not None:
        ends = next_offsets | ends  # without a record at or after the time, all records are before it
    rest = RemainingRanges(plan_replay_ranges(table, next_offsets, starts, ends))
    publish = PublishSettings(bootstrap, to_topic, codec)
    records = names_replaced = 0
    while rest.ranges:
        round_tasks = [
            ReplayTask(
                table.select_overlapping_files(partition, low, high),
                partition,
                low,
                high,
                publish,
                keep_partition_numbers,
            )
            for partition, (low, high) in plan_next_round_ranges(rest, offsets_per_round).items()
        ]
        try:
            done = tasks(replay_range, round_tasks)
        except TaskFailedError as error:
            raise ReplayFailedError(
                _format_failure_message(
                    error, ReplayResult(records, keep_partition_numbers, names_replaced), to_topic, rest
                ),
                rest,
            ) from error
        records += sum(each.records for each in done)
        names_replaced += sum(each.names_replaced for each in done)
        rest = compute_remaining_ranges(rest, done)
        errors = [each.error for each in done if each.error is not None]
        if errors:
            raise ReplayFailedError(
                _format_failure_message(
                    errors[0], ReplayResult(records, keep_partition_numbers, names_replaced), to_topic, rest
                ),
                rest,
            )
        progress(records, rest)
    return ReplayResult(records, keep_partition_numbers, names_replaced)


def _format_failure_message(error: object, done: ReplayResult, to_topic: str, rest: RemainingRanges) -> str:
    warning = f", {format_header_names_warning(done)}" if done.names_replaced else ""
    return f"{error} ({pluralize(done.records, 'record')} written to {to_topic}{warning}; remaining: {rest})"


def format_header_names_warning(done: ReplayResult) -> str:
    return f"{done.names_replaced:,} of them with header names that were not UTF-8 and contain U+FFFD instead"


# Planning


def plan_replay_ranges(
    table: TableFiles, next_offsets: Mapping[int, int], starts: Mapping[int, int], ends: Mapping[int, int]
) -> dict[int, tuple[int, int]]:
    """Return the non-empty offset range to replay of each partition that is in both `starts` and `ends`."""
    ranges = {}
    for partition in starts.keys() & ends.keys():
        landed = next_offsets[partition]
        first = min(
            (file.offsets[0] for file in table.select_overlapping_files(partition, 0, landed).files), default=landed
        )
        start, end = max(first, starts[partition]), min(landed, ends[partition])
        if start < end:
            ranges[partition] = (start, end)
    return dict(sorted(ranges.items()))


def _resolve_bound_offsets(
    bound: ReplayBound, table: TableFiles, next_offsets: Mapping[int, int], tasks: TaskRunner
) -> dict[int, int]:
    """Return the offset of each partition that a replay bound selects; omit partitions without a matching record.

    Raises:
        ReplayRejectedError: The bound names a partition without rows.
    """
    if bound.offset is not None:
        return dict.fromkeys(next_offsets, bound.offset)
    if bound.offsets is not None:
        unknown = sorted(bound.offsets.keys() - next_offsets.keys())
        if unknown:
            raise ReplayRejectedError(f"partition {unknown[0]} has no rows in {table.uri}")
        return dict(bound.offsets)
    assert bound.time is not None
    time_ms = (bound.time - EPOCH) // timedelta(milliseconds=1)
    files = [file for file in table.files if not _is_day_before(table, file.partition_values, bound.time)]
    round_tasks = [files[first : first + FILES_PER_TASK] for first in range(0, len(files), FILES_PER_TASK)]
    return merge_lowest_offsets(
        tasks(find_first_offsets, [TimestampLookupTask(table.with_files(*each), time_ms) for each in round_tasks])
    )


def _is_day_before(table: TableFiles, values: Sequence[object], time: datetime) -> bool:
    day = dict(zip(table.partition_by, values, strict=True)).get(DATE)
    return day is not None and day < time.astimezone(UTC).date()  # type: ignore[operator]


def plan_next_round_ranges(rest: RemainingRanges, offsets_max: int) -> dict[int, tuple[int, int]]:
    return {partition: (start, min(end, start + offsets_max)) for partition, (start, end) in rest.ranges.items()}


def compute_remaining_ranges(rest: RemainingRanges, done: Sequence[RangeReplayResult]) -> RemainingRanges:
    reached = {each.partition: each.next_offset for each in done}
    ranges = {partition: (reached[partition], end) for partition, (_, end) in rest.ranges.items()}
    return RemainingRanges({partition: (start, end) for partition, (start, end) in ranges.items() if start < end})


# Target topic


def _get_or_create_target_partitions(
    cluster: ClusterClient, name: str, source: TableSpec, row_partitions: int, create: bool
) -> int:
    """Return the number of partitions of the target topic.

    Raises:
        ReplayRejectedError: The target does not exist, or is the table's own topic.
    """
    target = _fetch_topic_if_exists(cluster, name)
    if target is None:
        if not create:
            raise ReplayRejectedError(f"topic {name} does not exist: create it, or use --create")
        original = _fetch_topic_if_exists(cluster, source.topic)
        count = row_partitions if original is None else max(row_partitions, len(original.partitions))
        create_topics(cluster, [NewTopic(name, count)])
        return count
    if format_id(target.topic_id) == source.topic_id:
        raise ReplayRejectedError(
            f"{name} is the topic of this table, and already has its records: choose another topic"
        )
    return len(target.partitions)


def _fetch_topic_if_exists(cluster: ClusterClient, name: str) -> MetadataResponseTopic | None:
    try:
        return cluster.retry(lambda: cluster.topic(name))
    except KafkaError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return None
