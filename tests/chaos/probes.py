"""Asks one node, again and again, all that must not go back: ends, watermarks, commits, topics and who leads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from chronik.client.errors import ClientError
from chronik.client.offsets import LATEST, NO_REPLICA, by_topic
from chronik.client.records import TopicPartition
from chronik.config import Address
from chronik.protocol.errors import ErrorCode
from chronik.protocol.errors import KafkaError as BrokerError
from chronik.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from chronik.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from chronik.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from chronik.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from tests.chaos.clients import Client
from tests.chaos.history import (
    CommitSeen,
    EndSeen,
    Journal,
    Led,
    Place,
    RecordsSeen,
    TopicSeen,
    WatermarkSeen,
    now,
)
from tests.chaos.witnesses import Door, Names

PROBE_SECONDS = 0.15
FEW_BYTES, ENOUGH_BYTES = 1, 4096
"""Of a partition whose watermark alone is asked for, and of one whose records are."""


class Probe(Client):
    def __init__(
        self,
        node: int,
        journal: Journal,
        address: Address,
        places: Sequence[Place],
        passing: Names,
        groups: Sequence[str],
        group_place: Place,
    ) -> None:
        super().__init__(f"probe-{node}", journal)
        self._node = node
        self._door = Door(address, self.name)
        self._places = [TopicPartition(*place) for place in places]
        self._passing = passing
        self._groups = groups
        self._group_place = group_place

    def _run(self) -> None:
        while not self._ending.wait(PROBE_SECONDS):
            for look in (self._ask_ends, self._ask_watermarks, self._ask_commits, self._ask_topics):
                try:
                    look()
                except (ClientError, BrokerError):  # it does not answer at the moment
                    break
        self._door.close()

    def _ask_ends(self) -> None:
        topics = [
            ListOffsetsTopic(
                name=topic,
                partitions=[ListOffsetsPartition(partition_index=index, timestamp=LATEST) for index in indexes],
            )
            for topic, indexes in by_topic(self._places).items()
        ]
        asked_at = now()
        answer = self._door.ask(ListOffsetsRequest(replica_id=NO_REPLICA, topics=topics), ListOffsetsResponse)
        at = now()
        for topic in answer.topics:
            for each in topic.partitions:
                if each.error_code == ErrorCode.NONE:
                    place = Place(topic.name, each.partition_index)
                    self._journal.add(
                        EndSeen(at=at, reader=self.name, place=place, asked_at=asked_at, end=each.offset)
                    )

    def _ask_watermarks(self) -> None:
        passing = self._passing.latest()
        wanted = dict.fromkeys(self._places, FEW_BYTES)
        wanted |= dict.fromkeys((TopicPartition(topic, 0) for topic in passing), ENOUGH_BYTES)
        asked_at = now()
        answer = self._door.ask(_fetch(wanted), FetchResponse)
        at = now()
        for topic in answer.responses:
            for each in topic.partitions:
                if each.error_code != ErrorCode.NONE:
                    continue
                if topic.topic not in passing:
                    place = Place(topic.topic, each.partition_index)
                    self._journal.add(
                        WatermarkSeen(
                            at=at, node=self._node, asked_at=asked_at, place=place, watermark=each.high_watermark
                        )
                    )
                elif each.records:
                    self._journal.add(RecordsSeen(at=at, node=self._node, asked_at=asked_at, topic=topic.topic))

    def _ask_commits(self) -> None:
        topic, partition = self._group_place
        for group in self._groups:
            wanted = OffsetFetchRequestTopic(name=topic, partition_indexes=[partition])
            asked_at = now()
            answer = self._door.ask(OffsetFetchRequest(group_id=group, topics=[wanted]), OffsetFetchResponse)
            if answer.error_code == ErrorCode.NONE and answer.topics:
                each = answer.topics[0].partitions[0]
                if each.error_code == ErrorCode.NONE:
                    offset = each.committed_offset
                    self._journal.add(
                        CommitSeen(at=now(), node=self._node, asked_at=asked_at, group=group, offset=offset)
                    )

    def _ask_topics(self) -> None:
        names = [*dict.fromkeys(topic for topic, _ in self._places), *self._passing.latest()]
        wanted = [MetadataRequestTopic(name=name) for name in names]
        asked_at = now()
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        answer = self._door.ask(request, MetadataResponse)
        at = now()
        for topic in answer.topics:
            is_told = topic.error_code == ErrorCode.NONE
            if is_told or topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                led = _led(topic) if is_told else ()
                self._journal.add(
                    TopicSeen(at=at, node=self._node, asked_at=asked_at, topic=topic.name or "", partitions=led)
                )


def _fetch(bytes_max: Mapping[TopicPartition, int]) -> FetchRequest:
    topics = [
        FetchTopic(
            topic=topic,
            partitions=[
                FetchPartition(
                    partition=index, fetch_offset=0, partition_max_bytes=bytes_max[TopicPartition(topic, index)]
                )
                for index in indexes
            ],
        )
        for topic, indexes in by_topic(bytes_max).items()
    ]
    return FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics)


def _led(topic: MetadataResponseTopic) -> tuple[Led, ...]:
    partitions = sorted(topic.partitions, key=lambda each: each.partition_index)
    return tuple(Led(each.leader_id, each.leader_epoch) for each in partitions)
