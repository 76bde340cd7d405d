"""Metadata responses: cached encodings of topics equal those of the codec, and are invalidated by changes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from chronik import scheduler
from chronik.api import metadata
from chronik.api.shared.context import RequestContext, Services
from chronik.api.shared.encoded_topic_cache import EncodedTopicCache
from chronik.metadata.commands.brokers import BrokerStatus, Endpoint, RegisterBroker, UpdateBrokerStatus
from chronik.metadata.commands.groups import CommitOffset, OffsetToCommit
from chronik.metadata.commands.partitions import OffsetCheckpoint, SetPartitionLeader, UpdatePartitionOffset
from chronik.metadata.commands.topics import CreatePartitions, DeleteTopic
from chronik.protocol.apis import APIS
from chronik.protocol.codec import encode, encode_element, encode_response
from chronik.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from chronik.request_reply import ConnectedClient, Reply
from tests.metadata.metadata_world import MetadataWorld, build_assignment, build_id

USUAL = (Endpoint("PLAINTEXT", "host1", 9092),)
VERSIONS = range(APIS[3].max_version + 1)


async def response_of(reply: Reply[MetadataResponse]) -> MetadataResponse | None:
    return await reply


class Cluster:
    """An image and the services that Metadata uses; `encoded` counts encoded topics."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = MetadataWorld(1, 2, 3)
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
                is_unreachable=lambda broker_id: broker_id in self.gone,
                encoded_topics=EncodedTopicCache(),
            ),
        )

        def count_encoding(*arguments: Any) -> bytes:
            self.encoded += 1
            return encode_element(*arguments)

        monkeypatch.setattr(metadata, "encode_element", count_encoding)
        monkeypatch.setattr(scheduler, "ITERATION_SECONDS_MAX", 60.0)  # compiling the codec may take long

    def apply(self, command: Any) -> None:
        self.world.accept(command)
        self.services.encoded_topics.apply_delta(self.world.delta, self.world.image)

    def frame(self, version: int, *names: str, operations: bool = False, listener: str = "PLAINTEXT") -> bytes:
        """Return an encoded response after comparing it with the codec's own encoding."""
        topics = [MetadataRequestTopic(name=name) for name in names] or (None if version else [])
        request = MetadataRequest(
            topics=topics, allow_auto_topic_creation=False, include_topic_authorized_operations=operations
        )
        reply = metadata.handle(
            self.services, request, RequestContext(version, "test", ConnectedClient("h", 1, 1, listener))
        )
        answer = asyncio.run(response_of(reply))
        assert isinstance(answer, MetadataResponse)
        frame = b"".join(encode_response(5, version, answer))
        image = self.world.image
        for index, name in enumerate(names or sorted(image.topics)):
            if name in image.topics:
                form = version, operations, listener
                answer.topics[index] = metadata.build_topic(image, image.topics[name], form, self.gone)
        assert frame == b"".join(encode_response(5, version, answer))
        assert frame.endswith(encode(answer, version))
        return frame


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster = Cluster(monkeypatch)
    cluster.world.create(
        "orders", *[build_assignment(1, 2), build_assignment(2, 3), build_assignment(3, 1, isr=(3,))] * 50
    )
    cluster.world.create("empty-handed", build_assignment(2, isr=(2,)))
    return cluster


@pytest.mark.parametrize("version", VERSIONS)
def test_cached_encoding_equals_codec_output(cluster: Cluster, version: int) -> None:
    for operations in (False, True) if version >= 8 else (False,):
        first = cluster.frame(version, "orders", "unknown", "empty-handed", operations=operations)
        everything = cluster.frame(version, operations=operations)
        before = cluster.encoded
        assert cluster.frame(version, "orders", "unknown", "empty-handed", operations=operations) == first
        assert cluster.frame(version, operations=operations) == everything
        assert cluster.encoded == before


def test_changed_topic_is_encoded_again(cluster: Cluster) -> None:
    orders = cluster.world.image.topics["orders"]
    seen = {cluster.frame(12)}
    for command in (
        CreatePartitions(orders.id, len(orders.partitions), (build_assignment(1, 2),)),
        SetPartitionLeader(orders.id, 0, 2),
    ):
        before = cluster.encoded
        cluster.apply(command)
        seen.add(cluster.frame(12))
        assert cluster.encoded == before + 1
    assert len(seen) == 3
    cluster.apply(DeleteTopic(orders.id))
    cluster.world.create("orders", build_assignment(3))
    cluster.services.encoded_topics.apply_delta(cluster.world.delta, cluster.world.image)
    assert cluster.frame(12) not in seen


def test_fenced_broker_invalidates_its_topics(cluster: Cluster) -> None:
    before = cluster.frame(12)
    cluster.apply(UpdateBrokerStatus(3, BrokerStatus.OFFLINE))
    assert cluster.frame(12) != before
    cluster.apply(UpdateBrokerStatus(3, BrokerStatus.ONLINE))
    encoded = cluster.encoded
    cluster.frame(12)
    assert cluster.encoded == encoded + 1


def test_new_broker_does_not_invalidate_topics(cluster: Cluster) -> None:
    before, encoded = cluster.frame(12), cluster.encoded
    cluster.apply(RegisterBroker(4, "host4", 9092, None, build_id(74), build_id(4), True))
    assert cluster.frame(12) != before, "the new broker is listed"
    assert cluster.encoded == encoded


def test_unreachable_leader_is_omitted_without_invalidating_cache(cluster: Cluster) -> None:
    before, encoded = cluster.frame(12), cluster.encoded
    cluster.gone.add(1)
    without = cluster.frame(12)
    assert without != before
    assert cluster.frame(12) == without
    cluster.gone.clear()
    assert cluster.frame(12) == before
    assert cluster.encoded == encoded


def test_topics_are_cached_per_listener(cluster: Cluster) -> None:
    outside = Endpoint("EXTERNAL", "example.org", 443)
    command = RegisterBroker(1, "host1", 9092, None, build_id(77), build_id(1), True, (*USUAL, outside))
    cluster.apply(command)
    inside, encoded = cluster.frame(12), cluster.encoded
    from_outside = cluster.frame(12, listener="EXTERNAL")
    assert from_outside != inside
    assert cluster.frame(12, listener="EXTERNAL") == from_outside
    assert cluster.frame(12) == inside
    assert cluster.encoded == encoded + 2
    cluster.apply(replace(command, incarnation=build_id(78), listeners=()))
    assert cluster.frame(12, listener="EXTERNAL") != from_outside


def test_offsets_and_watermarks_do_not_invalidate_topics(cluster: Cluster) -> None:
    before, encoded = cluster.frame(12), cluster.encoded
    orders = cluster.world.image.topics["orders"]
    cluster.apply(CommitOffset("group", (OffsetToCommit("orders", 0, 5),), 1))
    cluster.apply(UpdatePartitionOffset((OffsetCheckpoint(orders.id, 0, orders.partitions[0].leader_epoch, 9, 1),)))
    assert cluster.world.partition("orders").high_watermark == 9
    assert cluster.frame(12) == before
    assert cluster.encoded == encoded


def test_cache_size_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chronik.api.shared.encoded_topic_cache.CACHED_BYTES_MAX", 100)
    kept = EncodedTopicCache()
    for number in range(20):
        assert kept.get(bytes([number]), (1, False, "PLAINTEXT"), lambda: bytes(30)) == bytes(30)
        assert sum(len(form) for forms in kept._cached.values() for form in forms.values()) == kept._size <= 100
