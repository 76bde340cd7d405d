"""Statistics about all partitions of this node and all committed offsets.

Collecting them takes a few microseconds per partition or offset, and is spread over many event-loop iterations. The
result is cached, so that scrapers use at most a twentieth of the event loop's time, however many there are.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator
from typing import Final, TypeVar

import msgspec

from chronik.broker.replica import Replica
from chronik.broker.replica_manager import ReplicaManager
from chronik.clock import Clock
from chronik.metadata.commands.topics import NO_LEADER
from chronik.metadata.image import Image
from chronik.metadata.records import CommittedOffset
from chronik.metadata.stores.store import MetadataStore

SLICE_SECONDS: Final = 0.002
"""Time in seconds after which a long computation pauses, so that it does not block the event loop."""

STEPS_PER_CLOCK_READ: Final = 16
"""Number of steps of a sliced computation between two reads of the clock. A step takes microseconds."""

T = TypeVar("T")

CACHE_FACTOR: Final = 20
"""How long partition statistics are cached, as a multiple of the event-loop time that collecting them takes."""

RECORD_TIMES_MAX: Final = 20_000
"""Maximum number of offsets whose record timestamp is read from the log. For further offsets, the time lag is measured
from the time of the commit."""

CollectionSteps = Generator[None, None, T]
RecordTimeKey = tuple[bytes, int, int]


class ComputationSlicer:
    """A helper that interrupts a long computation after each time slice, so that the event loop can run."""

    def __init__(self) -> None:
        self._previous_seconds = 0.0
        self._slice_started = time.perf_counter()

    def run(self, steps: Iterable[object]) -> Iterator[None]:
        """Run a computation step by step, and yield at the end of each time slice."""
        for number, _ in enumerate(steps):
            if number % STEPS_PER_CLOCK_READ == 0 and time.perf_counter() - self._slice_started > SLICE_SECONDS:
                self._previous_seconds += time.perf_counter() - self._slice_started
                yield
                self._slice_started = time.perf_counter()

    def total_seconds(self) -> float:
        """Return the processing time of the sliced computation in seconds, without its pauses."""
        return self._previous_seconds + time.perf_counter() - self._slice_started


class TopicTotals(msgspec.Struct, gc=False):
    """Sums over a topic's replicas on this node: bytes, partitions and produced bytes."""

    log_bytes: int = 0
    partitions: int = 0
    produced_bytes: int = 0


class GroupTopicLag(msgspec.Struct, gc=False):
    """The lag of one group on one topic."""

    records: int = 0
    seconds: float = 0.0


class PartitionStats(msgspec.Struct):
    """Statistics about the partitions of this node and the lag of consumer groups."""

    topics: dict[str, TopicTotals] = msgspec.field(default_factory=dict)
    lags: dict[tuple[str, str], GroupTopicLag] = msgspec.field(default_factory=dict)
    """Lag by group and topic, for partitions that this node leads."""
    partitions: int = 0
    leader_partitions: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    offline: int = 0
    replica_lag: int = 0
    damaged: int = 0
    loop_seconds: float = 0.0
    """Event-loop time in seconds that collecting the partition statistics took."""


class PartitionStatsCollector:
    """A collector of statistics about partitions and group lags, which caches the latest statistics."""

    def __init__(self, store: MetadataStore, replicas: ReplicaManager, clock: Clock) -> None:
        self._store = store
        self._replicas = replicas
        self._clock = clock
        self._last: PartitionStats | None = None
        self._cached_until = 0.0
        self._record_times: dict[RecordTimeKey, int | None] = {}
        """Cached record timestamps of the committed offsets, reused until an offset changes."""

    def collect(self) -> CollectionSteps[PartitionStats]:
        """Return the partition statistics. Yield at the end of each time slice, so that the event loop can run."""
        if self._last is not None and self._clock.monotonic() < self._cached_until:
            return self._last
        survey = PartitionStats()
        pace = ComputationSlicer()
        yield from pace.run(self._collect_partitions(survey))
        yield from pace.run(self._collect_offline_partitions(survey))
        record_times: dict[RecordTimeKey, int | None] = {}
        yield from pace.run(self._collect_lags(survey, record_times))
        survey.loop_seconds = pace.total_seconds()
        self._last, self._record_times = survey, record_times
        self._cached_until = self._clock.monotonic() + CACHE_FACTOR * survey.loop_seconds
        return survey

    def _collect_partitions(self, survey: PartitionStats) -> Iterator[None]:
        for replica in self._replicas:
            if not replica.is_abandoned:
                self._add_replica_to_totals(survey, replica)
            yield

    def _add_replica_to_totals(self, survey: PartitionStats, replica: Replica) -> None:
        sums = survey.topics.get(replica.topic_name)
        if sums is None:
            sums = survey.topics[replica.topic_name] = TopicTotals()
        survey.partitions += 1
        sums.partitions += 1
        sums.produced_bytes += replica.uncommitted.appended_bytes
        log, leading = replica.log_if_open, replica.isr_state
        if log is not None:
            sums.log_bytes += log.size
            survey.damaged += log.missing_start_offset is not None
        if leading is not None:
            survey.leader_partitions += 1
            survey.under_replicated += len(leading.isr) < len(leading.replicas)
            survey.under_min_isr += not replica.has_enough_replicas
        elif log is not None:
            survey.replica_lag = max(survey.replica_lag, replica.lag(0))

    def _collect_offline_partitions(self, survey: PartitionStats) -> Iterator[None]:
        for topic in self._store.image.leaderless_topics():
            survey.offline += sum(partition.leader == NO_LEADER for partition in topic.partitions)
            yield

    def _collect_lags(self, survey: PartitionStats, record_times: dict[RecordTimeKey, int | None]) -> Iterator[None]:
        for group, topic, partitions in _iter_committed_offsets(self._store.image):
            now_ms = self._clock.now_ms()
            lag: GroupTopicLag | None = None
            for index, committed in partitions:
                replica = self._replicas.find(topic, index)
                if replica is not None and replica.is_leader:
                    if lag is None:
                        lag = survey.lags[group, topic] = GroupTopicLag()
                    records = replica.high_watermark - committed.offset
                    if records > 0:
                        lag.records += records
                        record_time_ms = self._find_record_time_ms(replica, committed, record_times)
                        lag.seconds = max(lag.seconds, (now_ms - record_time_ms) / 1000)
                yield

    def _find_record_time_ms(
        self, replica: Replica, committed: CommittedOffset, record_times: dict[RecordTimeKey, int | None]
    ) -> int:
        """Return the timestamp of the first uncommitted record in milliseconds, or the commit time if unknown."""
        log = replica.log_if_open
        if log is None:  # The log has not been used since the start; opening it would be slow.
            return committed.commit_time_ms
        key = replica.topic_id, replica.index, committed.offset
        found = record_times.get(key, -1)
        if found == -1 and len(record_times) < RECORD_TIMES_MAX:
            found = record_times[key] = (
                self._record_times[key] if key in self._record_times else log.find_timestamp_at(committed.offset)
            )
        return committed.commit_time_ms if found is None or found < 0 else found


Partitions = Iterator[tuple[int, CommittedOffset]]


def _iter_committed_offsets(image: Image) -> Iterator[tuple[str, str, Partitions]]:
    """Yield the group, topic and committed offsets for each topic of each group. Offsets are read lazily."""
    for group in list(image.iter_groups_with_offsets()):
        for topic, partitions in image.frozen_offsets(group).by_topic():
            yield group, topic, partitions
