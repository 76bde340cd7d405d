"""One look at all that there may be much of: the partitions of this node, and the offsets that groups have committed.

It takes a few microseconds for each, and is made over many turns of the loop. Whoever asks again soon is told the same:
however many scrapers there are, they take a twentieth of the loop at most.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Final, TypeVar

import msgspec

from chronik.broker.replica import Replica
from chronik.broker.replicas import Replicas
from chronik.clock import Clock
from chronik.console.metrics.pace import Pace
from chronik.metadata.commands.topics import NO_LEADER
from chronik.metadata.image import Image
from chronik.metadata.records import CommittedOffset
from chronik.metadata.stores.store import MetadataStore

T = TypeVar("T")

REST: Final = 20
"""The next look comes after so many times what the last one took."""

AGES_MAX: Final = 20_000
"""Offsets for which a log is asked how old their record is. That of others counts from the commit."""

Steps = Generator[None, None, T]
AgeKey = tuple[bytes, int, int]


class TopicSums(msgspec.Struct, gc=False):
    """What this node holds of a topic."""

    log_bytes: int = 0
    partitions: int = 0
    produced_bytes: int = 0


class Lag(msgspec.Struct, gc=False):
    records: int = 0
    seconds: float = 0.0


class Survey(msgspec.Struct):
    topics: dict[str, TopicSums] = msgspec.field(default_factory=dict)
    lags: dict[tuple[str, str], Lag] = msgspec.field(default_factory=dict)
    """By group and topic, of partitions that this node leads."""
    partitions: int = 0
    led: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    offline: int = 0
    replica_lag: int = 0
    damaged: int = 0
    loop_seconds: float = 0.0
    """How long the loop was held for it, all turns together."""


class Surveyor:
    def __init__(self, store: MetadataStore, replicas: Replicas, clock: Clock) -> None:
        self._store = store
        self._replicas = replicas
        self._clock = clock
        self._last: Survey | None = None
        self._rests_until = 0.0
        self._ages: dict[AgeKey, int | None] = {}
        """The times of records at offsets that did not move since the last look."""

    def look(self) -> Steps[Survey]:
        """Yields whenever it is time for others."""
        if self._last is not None and self._clock.monotonic() < self._rests_until:
            return self._last
        survey = Survey()
        pace = Pace()
        yield from pace.over(self._partitions(survey))
        yield from pace.over(self._offline(survey))
        ages: dict[AgeKey, int | None] = {}
        yield from pace.over(self._offsets(survey, ages))
        survey.loop_seconds = pace.spent()
        self._last, self._ages = survey, ages
        self._rests_until = self._clock.monotonic() + REST * survey.loop_seconds
        return survey

    def _partitions(self, survey: Survey) -> Iterator[None]:
        for replica in self._replicas:
            if not replica.abandoned:
                self._count(survey, replica)
            yield

    def _count(self, survey: Survey, replica: Replica) -> None:
        sums = survey.topics.get(replica.topic_name)
        if sums is None:
            sums = survey.topics[replica.topic_name] = TopicSums()
        survey.partitions += 1
        sums.partitions += 1
        sums.produced_bytes += replica.uncommitted.appended
        log, leading = replica.opened_log, replica.leading
        if log is not None:
            sums.log_bytes += log.size
            survey.damaged += log.missing_from is not None
        if leading is not None:
            survey.led += 1
            survey.under_replicated += len(leading.isr) < len(leading.replicas)
            survey.under_min_isr += not replica.has_enough_replicas
        elif log is not None:
            survey.replica_lag = max(survey.replica_lag, replica.lag(0))

    def _offline(self, survey: Survey) -> Iterator[None]:
        for topic in self._store.image.leaderless_topics():
            survey.offline += sum(partition.leader == NO_LEADER for partition in topic.partitions)
            yield

    def _offsets(self, survey: Survey, ages: dict[AgeKey, int | None]) -> Iterator[None]:
        for group, topic, partitions in _committed(self._store.image):
            now_ms = self._clock.now_ms()
            lag: Lag | None = None
            for index, committed in partitions:
                replica = self._replicas.get(topic, index)
                if replica is not None and replica.leads:
                    if lag is None:
                        lag = survey.lags[group, topic] = Lag()
                    records = replica.high_watermark - committed.offset
                    if records > 0:
                        lag.records += records
                        began_ms = self._time_of(replica, committed, ages)
                        lag.seconds = max(lag.seconds, (now_ms - began_ms) / 1000)
                yield

    def _time_of(self, replica: Replica, committed: CommittedOffset, ages: dict[AgeKey, int | None]) -> int:
        """Returns when the first record that is not committed was written, in milliseconds."""
        log = replica.opened_log
        if log is None:  # nobody has written or read since the start, and to open it would take long
            return committed.commit_time_ms
        key = replica.topic_id, replica.index, committed.offset
        found = ages.get(key, -1)
        if found == -1 and len(ages) < AGES_MAX:
            found = ages[key] = self._ages[key] if key in self._ages else log.time_at(committed.offset)
        return committed.commit_time_ms if found is None or found < 0 else found


Partitions = Iterator[tuple[int, CommittedOffset]]


def _committed(image: Image) -> Iterator[tuple[str, str, Partitions]]:
    """Yield the groups' committed offsets by topic. Each group's are those of the moment at which it is reached."""
    for group in list(image.groups_with_offsets()):
        for topic, partitions in image.frozen_offsets(group).by_topic():
            yield group, topic, partitions
