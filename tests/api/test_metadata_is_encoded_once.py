"""Topics in Metadata responses are encoded once per version, until they change: byte for byte what the codec writes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from chronik import scheduler
from chronik.api import metadata
from chronik.api.shared.context import Context, Services
from chronik.api.shared.topic_bytes import TopicBytes
from chronik.exchange import Peer, Reply
from chronik.metadata.commands.brokers import BrokerStatus, Endpoint, RegisterBroker, UpdateBrokerStatus
from chronik.metadata.commands.groups import CommitOffset, OffsetToCommit
from chronik.metadata.commands.partitions import OffsetCheckpoint, SetPartitionLeader, UpdatePartitionOffset
from chronik.metadata.commands.topics import CreatePartitions, DeleteTopic
from chronik.protocol.apis import APIS
from chronik.protocol.codec import encode, encode_element, encode_response
from chronik.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.metadata.world import World, assignment, some_id

USUAL = (Endpoint("PLAINTEXT", "host1", 9092),)
VERSIONS = range(APIS[3].max_version + 1)


async def response_of(reply: Reply[MetadataResponse]) -> MetadataResponse | None:
    return await reply


class Cluster:
    """An image with its services, as far as Metadata needs them; `encoded` counts the topics that were encoded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = World(1, 2, 3)
        self.encoded = 0
        self.gone: set[int] = set()
        self.services = cast(
            Services,
            SimpleNamespace(
                authorizer=None,
                image=self.world.image,
                node_id=1,
                controller_id=lambda: 2,
                is_fenced=lambda: False,
                is_gone=lambda broker_id: broker_id in self.gone,
                topic_bytes=TopicBytes(),
            ),
        )

        def counted(*arguments: Any) -> bytes:
            self.encoded += 1
            return encode_element(*arguments)

        monkeypatch.setattr(metadata, "encode_element", counted)
        monkeypatch.setattr(scheduler, "ITERATION_SECONDS_MAX", 60.0)  # also where the codec is compiled on the way

    def do(self, command: Any) -> None:
        self.world.accept(command)
        self.services.topic_bytes.follow(self.world.delta, self.world.image)

    def frame(self, version: int, *names: str, operations: bool = False, listener: str = "PLAINTEXT") -> bytes:
        """An answer; that it is what the codec alone would write is looked at each time."""
        topics = [MetadataRequestTopic(name=name) for name in names] or (None if version else [])
        request = MetadataRequest(
            topics=topics, allow_auto_topic_creation=False, include_topic_authorized_operations=operations
        )
        reply = metadata.handle(self.services, request, Context(version, "test", Peer("h", 1, 1, listener)))
        answer = asyncio.run(response_of(reply))
        assert isinstance(answer, MetadataResponse)
        frame = b"".join(encode_response(5, version, answer))
        image = self.world.image
        for index, name in enumerate(names or sorted(image.topics)):
            if name in image.topics:
                form = version, operations, listener
                answer.topics[index] = metadata.topic_answer(image, image.topics[name], form, self.gone)
        assert frame == b"".join(encode_response(5, version, answer))
        assert frame.endswith(encode(answer, version))
        return frame


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster = Cluster(monkeypatch)
    cluster.world.create("orders", *[assignment(1, 2), assignment(2, 3), assignment(3, 1, isr=(3,))] * 50)
    cluster.world.create("empty-handed", assignment(2, isr=(2,)))
    return cluster


@pytest.mark.parametrize("version", VERSIONS)
def test_the_bytes_are_those_of_the_codec_the_first_time_and_again(cluster: Cluster, version: int) -> None:
    for operations in (False, True) if version >= 8 else (False,):
        first = cluster.frame(version, "orders", "unknown", "empty-handed", operations=operations)
        everything = cluster.frame(version, operations=operations)
        before = cluster.encoded
        assert cluster.frame(version, "orders", "unknown", "empty-handed", operations=operations) == first
        assert cluster.frame(version, operations=operations) == everything
        assert cluster.encoded == before


def test_a_topic_that_changes_is_encoded_again_and_the_others_are_not(cluster: Cluster) -> None:
    orders = cluster.world.image.topics["orders"]
    seen = {cluster.frame(12)}
    for command in (
        CreatePartitions(orders.id, len(orders.partitions), (assignment(1, 2),)),
        SetPartitionLeader(orders.id, 0, 2),
    ):
        before = cluster.encoded
        cluster.do(command)
        seen.add(cluster.frame(12))
        assert cluster.encoded == before + 1
    assert len(seen) == 3
    cluster.do(DeleteTopic(orders.id))
    cluster.world.create("orders", assignment(3))
    cluster.services.topic_bytes.follow(cluster.world.delta, cluster.world.image)
    assert cluster.frame(12) not in seen


def test_a_broker_that_goes_is_told_at_once_by_every_topic_that_it_holds(cluster: Cluster) -> None:
    before = cluster.frame(12)
    cluster.do(UpdateBrokerStatus(3, BrokerStatus.OFFLINE))
    assert cluster.frame(12) != before
    cluster.do(UpdateBrokerStatus(3, BrokerStatus.ONLINE))
    encoded = cluster.encoded
    cluster.frame(12)
    assert cluster.encoded == encoded + 1


def test_a_broker_that_comes_to_the_cluster_is_told_by_no_topic(cluster: Cluster) -> None:
    before, encoded = cluster.frame(12), cluster.encoded
    cluster.do(RegisterBroker(4, "host4", 9092, None, some_id(74), some_id(4), True))
    assert cluster.frame(12) != before, "it is listed"
    assert cluster.encoded == encoded


def test_a_leader_that_is_gone_is_left_out_for_as_long_and_no_longer(cluster: Cluster) -> None:
    before, encoded = cluster.frame(12), cluster.encoded
    cluster.gone.add(1)
    without = cluster.frame(12)
    assert without != before
    assert cluster.frame(12) == without
    cluster.gone.clear()
    assert cluster.frame(12) == before
    assert cluster.encoded == encoded


def test_each_listener_has_bytes_of_its_own_until_brokers_change(cluster: Cluster) -> None:
    outside = Endpoint("EXTERNAL", "example.org", 443)
    command = RegisterBroker(1, "host1", 9092, None, some_id(77), some_id(1), True, (*USUAL, outside))
    cluster.do(command)
    inside, encoded = cluster.frame(12), cluster.encoded
    from_outside = cluster.frame(12, listener="EXTERNAL")
    assert from_outside != inside
    assert cluster.frame(12, listener="EXTERNAL") == from_outside
    assert cluster.frame(12) == inside
    assert cluster.encoded == encoded + 2
    cluster.do(replace(command, incarnation=some_id(78), listeners=()))
    assert cluster.frame(12, listener="EXTERNAL") != from_outside


def test_offsets_and_watermarks_do_not_count(cluster: Cluster) -> None:
    before, encoded = cluster.frame(12), cluster.encoded
    orders = cluster.world.image.topics["orders"]
    cluster.do(CommitOffset("group", (OffsetToCommit("orders", 0, 5),), 1))
    cluster.do(UpdatePartitionOffset((OffsetCheckpoint(orders.id, 0, orders.partitions[0].leader_epoch, 9, 1),)))
    assert cluster.world.partition("orders").high_watermark == 9
    assert cluster.frame(12) == before
    assert cluster.encoded == encoded


def test_no_more_bytes_are_kept_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chronik.api.shared.topic_bytes.KEPT_BYTES_MAX", 100)
    kept = TopicBytes()
    for number in range(20):
        assert kept.get(bytes([number]), (1, False, "PLAINTEXT"), lambda: bytes(30)) == bytes(30)
        assert sum(len(form) for forms in kept._cached.values() for form in forms.values()) == kept._size <= 100
