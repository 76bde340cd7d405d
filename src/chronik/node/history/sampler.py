"""Samples this node's metrics for its history.

Counters are read every ten seconds. Topics and groups take a few microseconds per partition and committed offset, so
that they are sampled in slices of the event loop's time and, if there are many, less often. No record is touched.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from chronik.api.routing.metrics import ApiMeter
from chronik.api.shared.context import Services
from chronik.console.metrics.partition_stats import ComputationSlicer
from chronik.console.status_source import NodeStats
from chronik.files.platform import get_disk_space
from chronik.histogram import quantile
from chronik.history.metrics import LATENCY_KINDS, Scope, list_scope_metrics
from chronik.history.series import CONTINUITY_FACTOR, STEP_S, Reading, Subject
from chronik.history.snapshot import take_snapshot
from chronik.history.store import HistoryQuery
from chronik.node.history.file import HistoryFile
from chronik.protocol.apis import FETCH_KEY, METADATA_KEY, OFFSET_COMMIT_KEY, PRODUCE_KEY
from chronik.quorum.watchdog import EventLoopWatchdog
from chronik.scheduler import yield_loop

COST_FACTOR: Final = 1000
"""Minimum interval between two samples of topics and groups, as a multiple of the event-loop time that one takes: a
tenth of a percent."""

INTERVAL_MAX_S: Final = 300
"""Maximum interval between two samples of topics and groups: the lowest resolution of the history."""

SAVE_INTERVAL_S: Final = 300
"""Interval at which the history is stored. A node that is killed loses the history since then."""

GROUP_TOPICS_MAX: Final = 10_000
"""Maximum number of pairs of a group and a topic that are compared to find the ones with the largest lag."""

_LATENCY_KEYS: Final = {
    "produce": PRODUCE_KEY,
    "fetch": FETCH_KEY,
    "offset_commit": OFFSET_COMMIT_KEY,
    "metadata": METADATA_KEY,
}
_NODE: Final[Subject] = ()


class _TopicTotals(msgspec.Struct, gc=False):
    """Sums over the replicas of a topic on this node."""

    epoch: int = 0
    """A hash of the leaderships of this node, whose counters are summed."""
    appended_bytes: int = 0
    records: int = 0
    log_bytes: int = 0


class HistorySampler:
    """The history of this node, and the task that samples it."""

    def __init__(
        self,
        services: Services,
        meters: Mapping[int, ApiMeter],
        node_stats: Callable[[], NodeStats],
        watchdog: EventLoopWatchdog,
        file: HistoryFile,
    ) -> None:
        """Create the sampler with the stored history; reading it blocks."""
        self.store: Final = file.load()
        self._file = file
        self._saved_s = services.clock.monotonic()
        self._services = services
        self._meters = meters
        self._node_stats = node_stats
        self._watchdog = watchdog
        self._counts: dict[str, Sequence[int]] = {}
        self._sampled_s = -math.inf
        self._survey_started_s = -math.inf
        self._survey_interval_s: float = STEP_S
        self._topics: Mapping[Subject, Reading] = {}
        self._appended_records = 0

    async def run(self) -> None:
        """Sample at the end of every slot of the history, until cancelled."""
        while True:
            now_s = self._services.clock.now_ms() / 1000
            await asyncio.sleep(STEP_S - now_s % STEP_S)
            await self.sample()
            if self._services.clock.monotonic() - self._saved_s >= SAVE_INTERVAL_S:
                await self.save()

    async def save(self) -> None:
        """Store the history in the data directory."""
        self._saved_s = self._services.clock.monotonic()
        await asyncio.to_thread(self._file.save, take_snapshot(self.store))

    async def sample(self) -> None:
        """Sample the counters of the node and, if due, its topics and groups."""
        clock = self._services.clock
        at_s, monotonic_s = clock.now_ms() / 1000, clock.monotonic()
        values = dict(self._read_node(is_continuous=monotonic_s - self._sampled_s <= CONTINUITY_FACTOR * STEP_S))
        self._sampled_s = monotonic_s
        reading = Reading(tuple(values.get(metric.name) for metric in list_scope_metrics(Scope.NODE)))
        for _ in self.store.tables[Scope.NODE].record(at_s, monotonic_s, STEP_S, {_NODE: reading}):
            pass
        if monotonic_s - self._survey_started_s >= self._survey_interval_s - STEP_S / 2:
            self._survey_started_s = monotonic_s
            await self._sample_replicas(at_s, monotonic_s)

    def answer_encoded(self, query: bytes) -> bytes:
        """Return the encoded answer to the encoded query of another node.

        Raises:
            DecodeError: The query cannot be decoded.
            InvalidHistoryQuery: The query is invalid.
        """
        return msgspec.msgpack.encode(self.store.answer(msgspec.msgpack.decode(query, type=HistoryQuery)))

    # Counters of the node

    def _read_node(self, *, is_continuous: bool) -> Iterator[tuple[str, float | None]]:
        stats = self._node_stats()
        yield "in_bytes", stats.in_bytes
        yield "out_bytes", stats.out_bytes
        yield "requests", stats.requests
        yield "errors", stats.errors
        yield "connections", stats.connections
        yield "cpu", stats.cpu_seconds
        yield "memory", stats.memory_bytes
        for kind in LATENCY_KINDS:
            meter = self._meters[_LATENCY_KEYS[kind]]
            # Fetch requests that wait for records are as slow as the producers.
            histograms = [meter.immediate] if kind == "fetch" else [meter.immediate, meter.deferred]
            counts = [sum(each) for each in zip(*(each.counts for each in histograms), strict=True)]
            since = self._take_difference(kind, counts, is_continuous=is_continuous)
            yield f"{kind}_p50_ms", _to_milliseconds(quantile(since, 0.5))
            yield f"{kind}_p99_ms", _to_milliseconds(quantile(since, 0.99))
        delays = self._take_difference("loop", list(self._watchdog.timer_delays.counts), is_continuous=is_continuous)
        yield "loop_delay_p99_ms", _to_milliseconds(quantile(delays, 0.99))
        try:
            disk = get_disk_space(str(self._services.config.data_dir.absolute()))
        except OSError:
            return
        yield "disk_used", disk.total_bytes - disk.free_bytes
        yield "disk_total", disk.total_bytes

    def _take_difference(self, name: str, counts: Sequence[int], *, is_continuous: bool) -> Sequence[int]:
        """Return the counts of a histogram since the previous sample; empty if there is none."""
        before, self._counts[name] = self._counts.get(name), counts
        if before is None or not is_continuous:
            return ()
        return [now - earlier for now, earlier in zip(counts, before, strict=True)]

    # Topics and groups

    async def _sample_replicas(self, at_s: float, monotonic_s: float) -> None:
        pace = ComputationSlicer()

        async def run(steps: Iterable[object]) -> None:
            for _ in pace.run(steps):
                await yield_loop()

        totals: dict[Subject, _TopicTotals] = {}
        await run(self._sum_topics(totals))
        topics: dict[Subject, Reading] = {}
        await run(self._read_topics(totals, topics))
        groups: dict[Subject, int] = {}
        pairs: dict[Subject, Reading] = {}
        await run(self._sum_lags(groups, pairs))
        log_bytes = sum(each.log_bytes for each in totals.values())
        samples: dict[Scope, Mapping[Subject, Reading]] = {
            Scope.REPLICAS: {_NODE: Reading((self._appended_records, log_bytes))},
            Scope.TOPIC: topics,
            Scope.GROUP: {subject: Reading((lag,)) for subject, lag in groups.items()},
            Scope.GROUP_TOPIC: pairs,
        }
        self._remove_deleted_subjects()
        for scope, readings in samples.items():
            await run(self.store.tables[scope].record(at_s, monotonic_s, self._survey_interval_s, readings))
        steps = math.ceil(COST_FACTOR * pace.total_seconds() / STEP_S)
        self._survey_interval_s = min(max(steps, 1) * STEP_S, INTERVAL_MAX_S)

    def _sum_topics(self, totals: dict[Subject, _TopicTotals]) -> Iterator[None]:
        for replica in self._services.replicas:
            log = replica.log_if_open
            if not replica.is_abandoned:
                subject = (replica.topic_name,)
                topic = totals.get(subject)
                if topic is None:
                    topic = totals[subject] = _TopicTotals()
                topic.appended_bytes += replica.uncommitted.appended_bytes
                if log is not None:
                    topic.log_bytes += log.size
                    if replica.is_leader:
                        topic.records += replica.high_watermark
                        topic.epoch ^= hash((replica.topic_id, replica.index, replica.leader_epoch))
            yield

    def _read_topics(self, totals: Mapping[Subject, _TopicTotals], topics: dict[Subject, Reading]) -> Iterator[None]:
        for subject, topic in totals.items():
            previous = self._topics.get(subject)
            if previous is not None and previous.epoch == topic.epoch:
                self._appended_records += max(0, topic.records - int(previous.values[1] or 0))
            topics[subject] = Reading((topic.appended_bytes, topic.records, topic.log_bytes), topic.epoch)
            yield
        self._topics = topics

    def _sum_lags(self, groups: dict[Subject, int], pairs: dict[Subject, Reading]) -> Iterator[None]:
        image, replicas = self._services.image, self._services.replicas
        known = self.store.tables[Scope.GROUP_TOPIC]
        for group in list(image.iter_groups_with_offsets()):
            for topic, partitions in image.frozen_offsets(group).by_topic():
                lag: int | None = None
                for index, committed in partitions:
                    replica = replicas.find(topic, index)
                    if replica is not None and replica.is_leader:
                        lag = (lag or 0) + max(0, replica.high_watermark - committed.offset)
                    yield
                if lag is not None:
                    groups[(group,)] = groups.get((group,), 0) + lag
                    if len(pairs) < GROUP_TOPICS_MAX or (group, topic) in known:
                        pairs[group, topic] = Reading((lag,))

    def _remove_deleted_subjects(self) -> None:
        """Remove the history of deleted topics and groups: others may create new ones with the same names."""
        image = self._services.image
        groups = set(image.iter_groups_with_offsets())
        tables = self.store.tables
        for subject in tables[Scope.TOPIC].scores:
            if subject[0] not in image.topics:
                tables[Scope.TOPIC].remove(subject)
        for subject in tables[Scope.GROUP].scores:
            if subject[0] not in groups:
                tables[Scope.GROUP].remove(subject)
        for subject in tables[Scope.GROUP_TOPIC].scores:
            if subject[0] not in groups or subject[1] not in image.topics:
                tables[Scope.GROUP_TOPIC].remove(subject)


def _to_milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds
