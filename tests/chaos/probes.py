"""Probes that request from one node everything that must not go back: end offsets, high watermarks, commits, topics and
leaders. Each kind has its own thread, because a request that needs a quorum may take seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from chronik.client.errors import ClientError
from chronik.client.offsets import LATEST_TIMESTAMP, NO_REPLICA, group_by_topic
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
from tests.chaos.clients import ChaosClient
from tests.chaos.history import (
    CommitSeen,
    EndSeen,
    Journal,
    PartitionLeader,
    Place,
    RecordsSeen,
    TopicSeen,
    WatermarkSeen,
    now,
)
from tests.chaos.raw_clients import NodeConnection, TopicNames
from tests.run_size import IS_LONG_RUN

PROBE_SECONDS = 0.15 if IS_LONG_RUN else 0.3
PROBE_SECONDS_MAX = 5.0
"""Longer than a node waits for a quorum before it responds without one."""

FEW_BYTES, ENOUGH_BYTES = 1, 4096
"""Fetch limits of a partition whose high watermark or whose records are requested."""


class Subjects(NamedTuple):
    """The partitions, groups and topics that the probes request."""

    places: Sequence[Place]
    passing: TopicNames
    groups: Sequence[str]
    group_place: Place
    """The partition whose offsets the groups commit."""


def create_probes(node: int, journal: Journal, address: Address, subjects: Subjects) -> list[Probe]:
    kinds = EndProbe, WatermarkProbe, CommitProbe, TopicProbe
    return [kind(node, journal, address, subjects) for kind in kinds]


class Probe(ChaosClient):
    """A client that sends one kind of request to one node in a loop."""

    def __init__(self, node: int, journal: Journal, address: Address, subjects: Subjects) -> None:
        super().__init__(f"probe-{node}", journal)
        self._node = node
        self._door = NodeConnection(address, self.name, PROBE_SECONDS_MAX)
        self._subjects = subjects
        self._places = [TopicPartition(*place) for place in subjects.places]

    def _run(self) -> None:
        while not self._ending.wait(PROBE_SECONDS):
            with suppress(ClientError, BrokerError):  # currently unavailable
                self._ask()
        self._door.close()

    def _ask(self) -> None:
        """Send one request and record the response. Raises ClientError or KafkaError."""
        raise NotImplementedError


class EndProbe(Probe):
    def _ask(self) -> None:
        topics = [
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(partition_index=index, timestamp=LATEST_TIMESTAMP) for index in indexes
                ],
            )
            for topic, indexes in group_by_topic(self._places).items()
        ]
        asked_at = now()
        answer = self._door.send_request(ListOffsetsRequest(replica_id=NO_REPLICA, topics=topics), ListOffsetsResponse)
        at = now()
        for topic in answer.topics:
            for each in topic.partitions:
                if each.error_code == ErrorCode.NONE:
                    place = Place(topic.name, each.partition_index)
                    self._journal.add(EndSeen(at=at, reader=self.name, place=place, asked_at=asked_at, end=each.offset))


class WatermarkProbe(Probe):
    def _ask(self) -> None:
        passing = self._subjects.passing.latest()
        wanted = dict.fromkeys(self._places, FEW_BYTES)
        wanted |= dict.fromkeys((TopicPartition(topic, 0) for topic in passing), ENOUGH_BYTES)
        asked_at = now()
        answer = self._door.send_request(_fetch(wanted), FetchResponse)
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


class CommitProbe(Probe):
    def _ask(self) -> None:
        topic, partition = self._subjects.group_place
        for group in self._subjects.groups:
            wanted = OffsetFetchRequestTopic(name=topic, partition_indexes=[partition])
            asked_at = now()
            answer = self._door.send_request(OffsetFetchRequest(group_id=group, topics=[wanted]), OffsetFetchResponse)
            if answer.error_code == ErrorCode.NONE and answer.topics:
                each = answer.topics[0].partitions[0]
                if each.error_code == ErrorCode.NONE:
                    offset = each.committed_offset
                    self._journal.add(
                        CommitSeen(at=now(), node=self._node, asked_at=asked_at, group=group, offset=offset)
                    )


class TopicProbe(Probe):
    def _ask(self) -> None:
        names = [*dict.fromkeys(topic for topic, _ in self._places), *self._subjects.passing.latest()]
        wanted = [MetadataRequestTopic(name=name) for name in names]
        asked_at = now()
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        answer = self._door.send_request(request, MetadataResponse)
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
        for topic, indexes in group_by_topic(bytes_max).items()
    ]
    return FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics)


def _led(topic: MetadataResponseTopic) -> tuple[PartitionLeader, ...]:
    partitions = sorted(topic.partitions, key=lambda each: each.partition_index)
    return tuple(PartitionLeader(each.leader_id, each.leader_epoch) for each in partitions)
