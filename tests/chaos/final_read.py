"""The final read of all partitions after all faults, by two independent clients."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

from confluent_kafka import Consumer as LibrdkafkaConsumer
from confluent_kafka import KafkaError
from confluent_kafka import TopicPartition as LibrdkafkaPartition

from chronik.client.cluster import ClusterClient as ClusterClient
from chronik.client.consumer import Consumer
from chronik.client.offsets import LATEST_TIMESTAMP, list_earliest_offsets, list_latest_offsets, list_offsets
from chronik.client.records import TopicPartition
from tests.chaos.evidence import Range
from tests.chaos.history import NO_EPOCH, Consumed, FinalRead, Journal, Place, decode_value, now

READ_SECONDS_MAX = 120.0
"""Time limit of one reader. It takes seconds unless something hangs; then the checkers report the missing records."""

READ_COMMITTED = 1
CHRONIK, LIBRDKAFKA = "final-chronik", "final-librdkafka"


def read_offset_ranges(bootstrap: str, places: Iterable[Place]) -> dict[Place, Range]:
    """Return the offset ranges of the partitions. Raises ClientError or KafkaError."""
    with ClusterClient(bootstrap, client_id="chaos-final") as cluster:
        partitions = [TopicPartition(*place) for place in places]
        starts, ends = list_earliest_offsets(cluster, partitions), list_latest_offsets(cluster, partitions)
        return {Place(*each): Range(starts[each], ends[each]) for each in partitions}


def stable_ends(bootstrap: str, places: Iterable[Place]) -> dict[Place, int]:
    """Return the last stable offsets of the partitions. Raises ClientError or KafkaError."""
    with ClusterClient(bootstrap, client_id="chaos-final") as cluster:
        wanted = {TopicPartition(*place): LATEST_TIMESTAMP for place in places}
        found = list_offsets(cluster, wanted, READ_COMMITTED)
        return {Place(*each): end for each, end in found.items()}


def read_everything(
    bootstrap: str, ranges: dict[Place, Range], journal: Journal, copies: Container[Place] = ()
) -> None:
    """Read all committed records with two clients. Topics with `copies` are read by librdkafka only.

    Chronik's own client returns uncommitted records, too.

    Raises:
        ClientError, KafkaError: A read failed.
    """
    plain = {place: each for place, each in ranges.items() if place not in copies}
    for reader, read, chosen in ((CHRONIK, _read_by_chronik, plain), (LIBRDKAFKA, _read_by_librdkafka, ranges)):
        for place, (start, end) in chosen.items():
            journal.add(FinalRead(at=now(), reader=reader, place=place, start=start, end=end))
        read(bootstrap, chosen, journal)


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
                _record_read(journal, CHRONIK, place, record.offset, record.value, record.key, NO_EPOCH)


def _read_by_librdkafka(bootstrap: str, ranges: dict[Place, Range], journal: Journal) -> None:
    deadline = now() + READ_SECONDS_MAX
    unfinished = {place for place, (start, end) in ranges.items() if start < end}
    consumer = LibrdkafkaConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": LIBRDKAFKA,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    try:
        consumer.assign([LibrdkafkaPartition(*place, ranges[place].start) for place in sorted(unfinished)])
        while unfinished and now() < deadline:
            for message in consumer.consume(500, timeout=0.2):
                if message.error() is None:
                    _record_message(journal, message)
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    unfinished.discard(Place(message.topic(), message.partition()))
    finally:
        consumer.close()


def _record_message(journal: Journal, message: Any) -> None:
    place, epoch = Place(message.topic(), message.partition()), message.leader_epoch()
    epoch = NO_EPOCH if epoch is None else epoch
    _record_read(journal, LIBRDKAFKA, place, message.offset(), message.value(), message.key(), epoch)


def _record_read(
    journal: Journal, reader: str, place: Place, offset: int, value: bytes | None, key: bytes | None, epoch: int
) -> None:
    record = decode_value(value, key)
    journal.add(
        Consumed(at=now(), reader=reader, group=None, assignment=0, place=place, offset=offset, id=record, epoch=epoch)
    )
