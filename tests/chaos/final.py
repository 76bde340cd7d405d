"""After all faults: everything is read once more, by two clients that share no code."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from confluent_kafka import Consumer as LibrdkafkaConsumer
from confluent_kafka import TopicPartition as LibrdkafkaPartition

from chronik.client.cluster import Cluster as ClusterClient
from chronik.client.consumer import Consumer
from chronik.client.offsets import earliest_offsets, latest_offsets
from chronik.client.records import TopicPartition
from tests.chaos.evidence import Range
from tests.chaos.history import NO_EPOCH, Consumed, FinalRead, Journal, Place, decode_value, now

READ_SECONDS_MAX = 120.0
"""Of one reader for all partitions: seconds, unless something hangs, and then the checkers say what is missing."""

CHRONIK, LIBRDKAFKA = "final-chronik", "final-librdkafka"


def ranges_of(bootstrap: str, places: Iterable[Place]) -> dict[Place, Range]:
    """Raises ClientError or KafkaError."""
    with ClusterClient(bootstrap, client_id="chaos-final") as cluster:
        partitions = [TopicPartition(*place) for place in places]
        starts, ends = earliest_offsets(cluster, partitions), latest_offsets(cluster, partitions)
        return {Place(*each): Range(starts[each], ends[each]) for each in partitions}


def read_everything(bootstrap: str, ranges: dict[Place, Range], journal: Journal) -> None:
    """Raises ClientError or KafkaError."""
    for reader, read in ((CHRONIK, _read_by_chronik), (LIBRDKAFKA, _read_by_librdkafka)):
        for place, (start, end) in ranges.items():
            journal.add(FinalRead(at=now(), reader=reader, place=place, start=start, end=end))
        read(bootstrap, ranges, journal)


def _read_by_chronik(bootstrap: str, ranges: dict[Place, Range], journal: Journal) -> None:
    deadline = now() + READ_SECONDS_MAX
    with ClusterClient(bootstrap, client_id=CHRONIK) as cluster:
        consumer = Consumer(cluster, {TopicPartition(*place): start for place, (start, _) in ranges.items()})
        ends = {TopicPartition(*place): end for place, (_, end) in ranges.items()}
        while now() < deadline:
            unfinished = [each for each, offset in consumer.positions.items() if offset < ends[each]]
            if not unfinished:
                return
            for record in consumer.poll(only=unfinished):
                place = Place(record.topic, record.partition)
                _note(journal, CHRONIK, place, record.offset, record.value, record.key, NO_EPOCH)


def _read_by_librdkafka(bootstrap: str, ranges: dict[Place, Range], journal: Journal) -> None:
    deadline = now() + READ_SECONDS_MAX
    unfinished = {place for place, (start, end) in ranges.items() if start < end}
    consumer = LibrdkafkaConsumer(
        {"bootstrap.servers": bootstrap, "group.id": LIBRDKAFKA, "enable.auto.commit": False, "log_level": 0}
    )
    try:
        consumer.assign([LibrdkafkaPartition(*place, ranges[place].start) for place in sorted(unfinished)])
        while unfinished and now() < deadline:
            for message in consumer.consume(500, timeout=0.2):
                if message.error() is None:
                    place = _note_message(journal, message)
                    if message.offset() + 1 >= ranges[place].end:
                        unfinished.discard(place)
    finally:
        consumer.close()


def _note_message(journal: Journal, message: Any) -> Place:
    place, epoch = Place(message.topic(), message.partition()), message.leader_epoch()
    epoch = NO_EPOCH if epoch is None else epoch
    _note(journal, LIBRDKAFKA, place, message.offset(), message.value(), message.key(), epoch)
    return place


def _note(
    journal: Journal, reader: str, place: Place, offset: int, value: bytes | None, key: bytes | None, epoch: int
) -> None:
    record = decode_value(value, key)
    journal.add(
        Consumed(at=now(), reader=reader, group=None, assignment=0, place=place, offset=offset, id=record, epoch=epoch)
    )
