"""A table back into a topic: `chronik pipeline replay`.

Records are written at least once, in the order of their offsets within each partition: what is retried after a failure
may be there twice. Values, keys, headers and timestamps come back as `tables.values.rebuilding` says.

The driver goes by rounds, each of which ends at known offsets. A replay that fails says what is left to do, in the
words that a second one takes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from chronik.client.access.settings import Bootstrap
from chronik.client.admin import NewTopic, create_topics
from chronik.client.cluster import Cluster
from chronik.errors import ChronikError
from chronik.ids import format_id
from chronik.pipeline import CLIENT_ID
from chronik.pipeline.spark.tasks import TaskFailed, Tasks, in_this_process
from chronik.pipeline.tables.files import TableFiles
from chronik.pipeline.tables.layout import DATE
from chronik.pipeline.tables.opening import open_table
from chronik.pipeline.tables.storage import table_uri
from chronik.pipeline.tables.topic_table import TableSpec
from chronik.pipeline.upkeep.replay_tasks import (
    RangeReplayed,
    ReplayTask,
    TimeTask,
    first_offsets,
    lowest,
    replay_range,
)
from chronik.pipeline.writing.publishing import PublishSettings
from chronik.protocol.compression import Codec
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.metadata import MetadataResponseTopic
from chronik.wording import counted

OFFSETS_PER_ROUND = 1_000_000
"""Offsets of each partition. A driver that is killed cannot say anything about its last round."""

FILES_PER_TASK = 16
"""Files that one task searches for a moment."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ReplayRefused(ChronikError):
    """What is asked for cannot be replayed, and nothing was."""


class ReplayFailed(ChronikError):
    """Some of it is in the topic; the message says what is not."""

    def __init__(self, message: str, rest: Rest) -> None:
        super().__init__(message, rest)
        self.message = message
        self.rest = rest

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True)
class Bound:
    """Where a replay begins, or ends (that offset itself is left out). At most one of these; none: all there is."""

    offset: int | None = None
    """The same in every partition."""
    offsets: Mapping[int, int] | None = None
    """Offsets by partition: others are not replayed."""
    time: datetime | None = None
    """The first record of each partition that is not older, as consumers rewind to a moment."""


EVERYTHING = Bound()


@dataclass(frozen=True, slots=True)
class Rest:
    """What is still to be written: [start, end) by partition."""

    ranges: Mapping[int, tuple[int, int]]

    @property
    def offsets(self) -> int:
        return sum(end - start for start, end in self.ranges.values())

    def __str__(self) -> str:
        """Shows it as the command's options."""
        starts = ",".join(f"{partition}:{start}" for partition, (start, _) in sorted(self.ranges.items()))
        ends = ",".join(f"{partition}:{end}" for partition, (_, end) in sorted(self.ranges.items()))
        return f"--from-offset {starts} --to-offset {ends}"


@dataclass(frozen=True, slots=True)
class Replayed:
    records: int
    partitions_kept: bool
    """Each record is in the partition that it was in."""
    names_replaced: int = 0
    """Records with a header whose name was not UTF-8: it has U+FFFD in the place of what was not."""


def replay(
    topic: str,
    to_topic: str,
    *,
    bootstrap: Bootstrap,
    table_root: str,
    start: Bound = EVERYTHING,
    end: Bound = EVERYTHING,
    create: bool = False,
    by_key: bool = False,
    codec: Codec = Codec.NONE,
    tasks: Tasks = in_this_process,
    offsets_per_round: int = OFFSETS_PER_ROUND,
    progress: Callable[[int, Rest], None] = lambda records, rest: None,
    storage_options: Mapping[str, str] | None = None,
) -> Replayed:
    """Writes what the table of a topic holds to another one.

        replay("orders", "orders-again", bootstrap="127.0.0.1:9092", table_root="tables", tasks=on_spark(spark),
               start=Bound(time=datetime(2024, 5, 1, tzinfo=UTC)))

    Records go to the partition that they were in, if the target has it; otherwise, or with `by_key`, where the keys
    say. `create`: makes the target if it is not there, with as many partitions. `progress` is called after each round.

    Raises ReplayRefused, ReplayFailed, TableMissing, TableDiffers, ClientError, KafkaError.
    """
    source = open_table(table_uri(table_root, topic), storage_options)
    next_offsets = source.next_offsets()
    table = source.files()
    with Cluster(bootstrap, client_id=CLIENT_ID) as cluster:
        count = _target_partitions(cluster, to_topic, source.spec, max(next_offsets, default=0) + 1, create)
    keep = not by_key and all(partition < count for partition in next_offsets)
    starts = dict.fromkeys(next_offsets, 0) if start == EVERYTHING else _offsets_at(start, table, next_offsets, tasks)
    ends = next_offsets if end == EVERYTHING else _offsets_at(end, table, next_offsets, tasks)
    if end.time is not None:
        ends = next_offsets | ends  # where no record is that young, all are older
    rest = Rest(plan_ranges(table, next_offsets, starts, ends))
    publish = PublishSettings(bootstrap, to_topic, codec)
    records = names_replaced = 0
    while rest.ranges:
        some = [
            ReplayTask(table.that_may_hold(partition, low, high), partition, low, high, publish, keep)
            for partition, (low, high) in first_round(rest, offsets_per_round).items()
        ]
        try:
            done = tasks(replay_range, some)
        except TaskFailed as error:
            raise ReplayFailed(_said(error, Replayed(records, keep, names_replaced), to_topic, rest), rest) from error
        records += sum(each.records for each in done)
        names_replaced += sum(each.names_replaced for each in done)
        rest = after_round(rest, done)
        errors = [each.error for each in done if each.error is not None]
        if errors:
            raise ReplayFailed(_said(errors[0], Replayed(records, keep, names_replaced), to_topic, rest), rest)
        progress(records, rest)
    return Replayed(records, keep, names_replaced)


def _said(error: object, done: Replayed, to_topic: str, rest: Rest) -> str:
    warning = f", {names_warning(done)}" if done.names_replaced else ""
    return f"{error} ({counted(done.records, 'record')} are in {to_topic}{warning}; what is left: {rest})"


def names_warning(done: Replayed) -> str:
    return f"{done.names_replaced:,} of them with headers whose names were not UTF-8, and are not as they were"


# What is replayed


def plan_ranges(
    table: TableFiles, next_offsets: Mapping[int, int], starts: Mapping[int, int], ends: Mapping[int, int]
) -> dict[int, tuple[int, int]]:
    """Returns ranges by partition; those that are not in both, and those without anything to replay, are left out."""
    ranges = {}
    for partition in starts.keys() & ends.keys():
        landed = next_offsets[partition]
        first = min((file.offsets[0] for file in table.that_may_hold(partition, 0, landed).files), default=landed)
        start, end = max(first, starts[partition]), min(landed, ends[partition])
        if start < end:
            ranges[partition] = (start, end)
    return dict(sorted(ranges.items()))


def _offsets_at(bound: Bound, table: TableFiles, next_offsets: Mapping[int, int], tasks: Tasks) -> dict[int, int]:
    """Returns offsets by partition, without those not asked for, or with nothing that young. Raises ReplayRefused."""
    if bound.offset is not None:
        return dict.fromkeys(next_offsets, bound.offset)
    if bound.offsets is not None:
        unknown = sorted(bound.offsets.keys() - next_offsets.keys())
        if unknown:
            raise ReplayRefused(f"of partition {unknown[0]} nothing ever landed in {table.uri}")
        return dict(bound.offsets)
    assert bound.time is not None
    time_ms = (bound.time - EPOCH) // timedelta(milliseconds=1)
    files = [file for file in table.files if not _is_older(table, file.values, bound.time)]
    some = [files[first : first + FILES_PER_TASK] for first in range(0, len(files), FILES_PER_TASK)]
    return lowest(tasks(first_offsets, [TimeTask(table.with_files(*each), time_ms) for each in some]))


def _is_older(table: TableFiles, values: Sequence[object], time: datetime) -> bool:
    day = dict(zip(table.partition_by, values, strict=True)).get(DATE)
    return day is not None and day < time.astimezone(UTC).date()  # type: ignore[operator]


def first_round(rest: Rest, offsets_max: int) -> dict[int, tuple[int, int]]:
    return {partition: (start, min(end, start + offsets_max)) for partition, (start, end) in rest.ranges.items()}


def after_round(rest: Rest, done: Sequence[RangeReplayed]) -> Rest:
    reached = {each.partition: each.next_offset for each in done}
    ranges = {partition: (reached[partition], end) for partition, (_, end) in rest.ranges.items()}
    return Rest({partition: (start, end) for partition, (start, end) in ranges.items() if start < end})


# Where it goes


def _target_partitions(cluster: Cluster, name: str, source: TableSpec, landed_count: int, create: bool) -> int:
    """Returns how many partitions the target has. Raises ReplayRefused."""
    target = _topic(cluster, name)
    if target is None:
        if not create:
            raise ReplayRefused(f"there is no topic {name}: create it, or say --create")
        original = _topic(cluster, source.topic)
        count = landed_count if original is None else max(landed_count, len(original.partitions))
        create_topics(cluster, [NewTopic(name, count)])
        return count
    if format_id(target.topic_id) == source.topic_id:
        raise ReplayRefused(f"{name} is the very topic that this table holds: its records are there")
    return len(target.partitions)


def _topic(cluster: Cluster, name: str) -> MetadataResponseTopic | None:
    try:
        return cluster.retrying(lambda: cluster.topic(name))
    except KafkaError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return None
