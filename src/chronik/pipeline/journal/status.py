"""How pipelines are doing, as anyone may ask: what their drivers last said, against where the topics end right now.

for topic in status("127.0.0.1:9092"):
    print(topic.topic, topic.state, topic.lag)
pause("127.0.0.1:9092", "chronik-pipeline-tables", ["orders"])
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from chronik.client.access.settings import Bootstrap
from chronik.client.cluster import Cluster
from chronik.client.offsets import earliest_offsets, latest_offsets
from chronik.client.records import TopicPartition
from chronik.errors import ChronikError
from chronik.pipeline.journal.held import Held, Holder, ask_holders
from chronik.pipeline.journal.journal import EVERY_TOPIC, Heard, Journal, Place, read_journal, write_controls
from chronik.protocol.errors import ErrorCode, KafkaError

CLIENT_ID: Final = "chronik-pipeline-status"

SILENT_SECONDS: Final = 30.0
"""Drivers report every ten: one that was not heard for three times that is dead, or cut off."""

STOPPED, SILENT = "stopped", "silent"

Ends = Mapping[TopicPartition, tuple[int, int]]
"""Where partitions start and end now."""


NOTHING_HELD: Final[Held] = {}


class UnknownPipeline(ChronikError):
    """No driver has ever reported for it; the message says which there are."""


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    partition: int
    next_offset: int | None
    """The table holds what is below; None when nothing of the partition has landed."""
    high_watermark: int | None
    """None when the partition cannot be asked."""
    lag: int | None
    held_by: Holder | None = None
    """Whose open transaction must end before records from its first one on can land."""


@dataclass(frozen=True, slots=True)
class TopicStatus:
    pipeline: str
    topic: str
    table: str
    state: str
    """As the driver said: landing, waiting, paused, failing, stopped; or `silent`, when it says nothing any more."""
    pause_asked: bool
    """Somebody wants it to pause; it does so after the round that runs."""
    partitions: tuple[PartitionStatus, ...]
    rows_per_second: float
    """The speed of the last round that landed something."""
    total_rows: int
    total_dead_letters: int
    """Counted since the driver started."""
    last_error: str | None
    last_error_ms: int | None
    host: str
    pid: int
    started_ms: int
    heard_ms: int
    quiet_seconds: float
    """The time since the last news."""

    @property
    def lag(self) -> int | None:
        """None when it is known of no partition."""
        known = [each.lag for each in self.partitions if each.lag is not None]
        return sum(known) if known else None

    @property
    def is_silent(self) -> bool:
        return self.state == SILENT


def statuses(journal: Journal, ends: Ends, now_ms: int, held: Held = NOTHING_HELD) -> list[TopicStatus]:
    """Pure. A topic that is gone and of which no driver speaks any more is history, and left out."""
    found = []
    topics_there = {partition.topic for partition in ends}
    for place, heard in sorted(journal.progress.items()):
        one = _status(place, heard, journal.paused(place), ends, held, now_ms)
        if place.topic in topics_there or one.state not in (SILENT, STOPPED):
            found.append(one)
    return found


def _status(place: Place, heard: Heard, pause_asked: bool, ends: Ends, held: Held, now_ms: int) -> TopicStatus:
    said = heard.progress
    quiet_seconds = max(0.0, (now_ms - heard.at_ms) / 1000)
    silent = quiet_seconds > SILENT_SECONDS and said.state != STOPPED
    numbers = {each.partition for each in ends if each.topic == place.topic}
    return TopicStatus(
        pipeline=place.pipeline,
        topic=place.topic,
        table=said.table,
        state=SILENT if silent else said.state,
        pause_asked=pause_asked,
        partitions=tuple(
            _partition(number, said.next_offsets.get(number), ends.get(each), held.get(each))
            for number in sorted(numbers | said.next_offsets.keys())
            if (each := TopicPartition(place.topic, number))
        ),
        rows_per_second=said.rows_per_second,
        total_rows=said.total_rows,
        total_dead_letters=said.total_dead_letters,
        last_error=said.last_error,
        last_error_ms=said.last_error_ms,
        host=said.host,
        pid=said.pid,
        started_ms=said.started_ms,
        heard_ms=heard.at_ms,
        quiet_seconds=quiet_seconds,
    )


def _partition(
    number: int, next_offset: int | None, ends: tuple[int, int] | None, held_by: Holder | None
) -> PartitionStatus:
    if ends is None:
        return PartitionStatus(number, next_offset, None, None)
    start, end = ends
    # What never landed starts with the first record that there is. (0 is an offset, not "none".)
    lag = max(0, end - (start if next_offset is None else next_offset))
    return PartitionStatus(number, next_offset, end, lag, held_by)


# Asking the brokers


def status(
    bootstrap: Bootstrap, *, pipeline: str | None = None, topics: Collection[str] | None = None, timeout_s: float = 30.0
) -> list[TopicStatus]:
    """Asks for all pipelines, or one, or some topics. Raises ClientError or KafkaError."""
    with Cluster(bootstrap, client_id=CLIENT_ID, timeout_s=timeout_s) as cluster:
        return ask_status(cluster, pipeline=pipeline, topics=topics)


def ask_status(
    cluster: Cluster, *, pipeline: str | None = None, topics: Collection[str] | None = None
) -> list[TopicStatus]:
    """Raises ClientError or KafkaError."""
    journal = read_journal(cluster)
    journal.progress = {
        place: heard
        for place, heard in journal.progress.items()
        if (pipeline is None or place.pipeline == pipeline) and (topics is None or place.topic in topics)
    }
    ends = _ends(cluster, {place.topic for place in journal.progress})
    held = ask_holders(cluster, {each: end for each, (_, end) in ends.items()})
    return statuses(journal, ends, time.time_ns() // 1_000_000, held)


def _ends(cluster: Cluster, topics: Iterable[str]) -> dict[TopicPartition, tuple[int, int]]:
    """Returns those of topics that exist and can be asked: one whose leader is away does not hide the others."""
    found: dict[TopicPartition, tuple[int, int]] = {}
    for topic in sorted(topics):
        try:
            partitions = cluster.retrying(lambda name=topic: cluster.partitions(name))  # type: ignore[misc]
            starts, ends = earliest_offsets(cluster, partitions), latest_offsets(cluster, partitions)
        except KafkaError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not error.code.retriable:
                raise
            continue
        found |= {each: (starts[each], ends[each]) for each in partitions}
    return found


# Telling the drivers


def pause(
    bootstrap: Bootstrap, pipeline: str | None = None, topics: Sequence[str] = (), timeout_s: float = 30.0
) -> list[Place]:
    """Has drivers stop landing these topics, or all of the pipeline, after the rounds that run; also drivers that start
    later. Without `pipeline` it is the one that there is. Returns what was told to pause.

    Raises UnknownPipeline, ClientError, KafkaError.
    """
    return _tell(bootstrap, pipeline, topics, True, timeout_s)


def resume(
    bootstrap: Bootstrap, pipeline: str | None = None, topics: Sequence[str] = (), timeout_s: float = 30.0
) -> list[Place]:
    """Takes `pause` back. Raises UnknownPipeline, ClientError, KafkaError."""
    return _tell(bootstrap, pipeline, topics, False, timeout_s)


def _tell(
    bootstrap: Bootstrap, pipeline: str | None, topics: Sequence[str], paused: bool, timeout_s: float
) -> list[Place]:
    with Cluster(bootstrap, client_id=CLIENT_ID, timeout_s=timeout_s) as cluster:
        if pipeline is None:
            pipeline = only_pipeline(read_journal(cluster), topics)
        places = [Place(pipeline, topic) for topic in topics or (EVERY_TOPIC,)]
        write_controls(cluster, dict.fromkeys(places, paused))
    return places


def reported_pipelines(bootstrap: Bootstrap, timeout_s: float = 30.0) -> list[str]:
    """Returns those that a driver has ever reported for. Raises ClientError or KafkaError."""
    with Cluster(bootstrap, client_id=CLIENT_ID, timeout_s=timeout_s) as cluster:
        return sorted({place.pipeline for place in read_journal(cluster).progress})


def only_pipeline(journal: Journal, topics: Collection[str] = ()) -> str:
    """Returns the one that has reported (of these topics). Raises UnknownPipeline when that is none, or several."""
    names = sorted({place.pipeline for place in journal.progress if not topics or place.topic in topics})
    if len(names) == 1:
        return names[0]
    of = f" of {', '.join(topics)}" if topics else ""
    if not names:
        raise UnknownPipeline(f"no pipeline{of} has reported yet: name it with --pipeline")
    raise UnknownPipeline(f"there are several pipelines{of}: name one with --pipeline ({', '.join(names)})")
