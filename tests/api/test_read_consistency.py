"""Confirmed reads: a majority must confirm that a node's image is current before the node answers from it.

Without confirmation, a node returns nothing that may be outdated.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest

from chronik.api.metadata import DISCONNECT_GRACE_SECONDS, REFERRAL_SECONDS
from chronik.api.routing.router import Router
from chronik.api.shared.context import Services
from chronik.api.shared.encoded_topic_cache import EncodedTopicCache
from chronik.api.shared.read_consistency import BROKERS_POLL_SECONDS, CONFIRM_TIMEOUT_SECONDS
from chronik.clock import ManualClock
from chronik.metadata.commands.brokers import BrokerStatus, UpdateBrokerStatus
from chronik.metadata.commands.topics import DeleteTopic
from chronik.metadata.image import Image
from chronik.metadata.stores.raft_store import LEADERLESS_SECONDS_MAX, RaftStore
from chronik.protocol.apis import APIS, Api, ApiTarget
from chronik.protocol.codec import REQUESTS, RequestHeader, decode_response, encode_request
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsTopic,
)
from chronik.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
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
from chronik.protocol.schema import Request, Response
from chronik.quorum.driver import RaftDriver
from chronik.quorum.outcomes import NotLeader, ReadTimedOut
from chronik.raft.membership import NO_NODE
from chronik.request_reply import ConnectedClient, Disconnect, UnsentByteCounter
from chronik.scheduler import Scheduler
from tests.metadata.metadata_world import MetadataWorld, build_assignment
from tests.replication.virtual_loop import VirtualLoop

APIS_BY_NAME = {api.name: api for api in APIS.values()}
ResponseT = TypeVar("ResponseT", bound=Response)


class Barrier:
    """A substitute for a store's read barrier, during which changes of other nodes become known."""

    def __init__(self, then: Callable[[], object] = lambda: None, failure: Exception | None = None) -> None:
        self.then, self.failure, self.passed = then, failure, 0

    async def __call__(self, seconds: float) -> None:
        assert seconds == CONFIRM_TIMEOUT_SECONDS
        self.passed += 1
        await asyncio.sleep(0)
        self.then()
        if self.failure is not None:
            raise self.failure


def unconfirmed() -> Barrier:
    return Barrier(failure=KafkaError(ErrorCode.REQUEST_TIMED_OUT))


class FakeNode:
    """Node 1 of three, which leads partition 0 of `orders` until it learns that it was replaced."""

    def __init__(self, barrier: Barrier, *, is_fenced: bool = False) -> None:
        self.world = MetadataWorld(1, 2, 3)
        for broker in list(self.world.image.brokers.values()):
            self.world.accept(UpdateBrokerStatus(broker.id, BrokerStatus.ONLINE, broker.epoch))
        self.world.create("orders", build_assignment(1, 2, 3), build_assignment(2, 3, 1), build_assignment(3, 1, 2))
        self.barrier = barrier
        self.is_fenced = is_fenced
        self.lease_expired_seconds = 60.0
        self.leads = True
        self.unreachable: list[int] = []
        self.clock = ManualClock()
        store = SimpleNamespace(read_barrier=barrier, is_shared=True, image=self.world.image)
        node_services = SimpleNamespace(
            authorizer=None,
            store=store,
            image=self.world.image,
            config=SimpleNamespace(read_quorum=False, node_id=1),
            node_id=1,
            is_fenced=lambda: self.is_fenced,
            lease_expired_seconds=lambda: self.lease_expired_seconds,
            is_unreachable=lambda broker_id: broker_id in self.unreachable,
            controller_id=lambda: 2,
            replicas=SimpleNamespace(get_leader=self._replica),
            encoded_topics=EncodedTopicCache(),
            outbox=UnsentByteCounter(),
            scheduler=Scheduler(),
            clock=self.clock,
            coordinators=SimpleNamespace(coordinator_of=lambda _: 1, is_standalone=False),
            configs=SimpleNamespace(broker_flag=lambda _: False),
        )
        self.services: Any = cast(Services, node_services)

    def _replica(self, topic: str, index: int) -> Any:
        if not self.leads:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return SimpleNamespace(
            check_leader_epoch=lambda _: None,
            log=None,
            is_high_watermark_known=True,
            readable_end_offset=lambda committed_only: 202,
            high_watermark=202,
            leader_epoch=5,
        )

    def ask(
        self, name: str, version: int, request: Request, kind: type[ResponseT], peer: ConnectedClient | None = None
    ) -> ResponseT:
        return asyncio.run(self.answer(name, version, request, kind, peer))

    async def answer(
        self, name: str, version: int, request: Request, kind: type[ResponseT], peer: ConnectedClient | None = None
    ) -> ResponseT:
        key = APIS_BY_NAME[name].key
        router = Router(self.services, on_fatal=lambda _: None)
        frame = encode_request(RequestHeader(key, version, 7, "raw"), request)
        frames = await router.dispatch(
            bytearray(frame[4:]), peer or ConnectedClient("127.0.0.1", 1, 1)
        ).wait_for_frame()
        assert frames is not None
        _, response = decode_response(key, version, memoryview(b"".join(frames))[4:])
        assert isinstance(response, kind)
        return response

    def metadata(self, *names: str, version: int = 12, peer: ConnectedClient | None = None) -> MetadataResponse:
        """Request the topics, or all topics if no names are given."""
        topics = [MetadataRequestTopic(name=name) for name in names] or (None if version else [])
        return self.ask("Metadata", version, MetadataRequest(topics=topics), MetadataResponse, peer)

    def offsets(self) -> tuple[ErrorCode, int]:
        wanted = ListOffsetsTopic(name="orders", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
        response = self.ask("ListOffsets", 7, ListOffsetsRequest(topics=[wanted]), ListOffsetsResponse)
        (answer,) = response.topics[0].partitions
        return ErrorCode(answer.error_code), answer.offset


def test_replaced_leader_returns_not_leader_for_list_offsets() -> None:
    """Its lease is valid, and it does not know its successor, which has acknowledged more records."""
    node = FakeNode(Barrier())
    node.barrier.then = lambda: setattr(node, "leads", False)
    assert node.offsets() == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert node.barrier.passed == 1


def test_confirmed_leader_answers_list_offsets() -> None:
    assert FakeNode(Barrier()).offsets() == (ErrorCode.NONE, 202)


def test_unconfirmed_leader_returns_not_leader_for_list_offsets() -> None:
    assert FakeNode(unconfirmed()).offsets() == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


def test_fenced_leader_rejects_list_offsets_without_read_barrier() -> None:
    node = FakeNode(Barrier(), is_fenced=True)
    assert node.offsets() == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert node.barrier.passed == 0


def test_leader_fenced_during_read_barrier_returns_not_leader() -> None:
    node = FakeNode(Barrier())
    node.barrier.then = lambda: setattr(node, "is_fenced", True)
    assert node.offsets() == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


def test_find_coordinator_requires_confirmed_image() -> None:
    request = FindCoordinatorRequest(key="g")
    assert FakeNode(Barrier()).ask("FindCoordinator", 3, request, FindCoordinatorResponse).node_id == 1
    refused = FakeNode(unconfirmed()).ask("FindCoordinator", 3, request, FindCoordinatorResponse)
    assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_fenced_node_refers_clients_to_another_node_without_read_barrier() -> None:
    node = FakeNode(unconfirmed(), is_fenced=True)
    for group in ("g", "h", "i", "j"):
        found = node.ask("FindCoordinator", 3, FindCoordinatorRequest(key=group), FindCoordinatorResponse)
        assert (found.error_code, found.node_id in (2, 3)) == (ErrorCode.NONE, True)
    assert node.barrier.passed == 0


LEADER_READS = [
    api
    for api in APIS.values()
    if api.target in (ApiTarget.LEADER, ApiTarget.COORDINATOR_STATE, ApiTarget.COORDINATOR_LOOKUP)
]


@pytest.mark.parametrize("api", LEADER_READS, ids=lambda api: api.name)
def test_every_leader_and_coordinator_read_is_confirmed(api: Api) -> None:
    node = FakeNode(unconfirmed())
    node.ask(api.name, api.max_version, REQUESTS[api.key](), Response)
    assert node.barrier.passed == 1


def test_metadata_omits_topic_deleted_before_the_request() -> None:
    node = FakeNode(Barrier())
    topic = node.world.image.topics["orders"]
    node.barrier.then = lambda: node.world.accept(DeleteTopic(topic.id))
    (answer,) = node.metadata("orders").topics
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", [0, 1, 9, 12])
def test_stale_metadata_contains_partitions_without_leaders(version: int) -> None:
    node = FakeNode(unconfirmed())
    stale = node.metadata("orders", "unknown", version=version)
    without_leaders = [(index, -1, ErrorCode.LEADER_NOT_AVAILABLE) for index in range(3)]
    assert [(each.name, each.error_code, partitions_of(each)) for each in stale.topics] == [
        ("orders", ErrorCode.NONE, without_leaders),
        ("unknown", ErrorCode.LEADER_NOT_AVAILABLE, []),
    ]
    assert [broker.node_id for broker in stale.brokers] == [1, 2, 3], "clients can ask another broker"
    everything = FakeNode(unconfirmed()).metadata(version=version)
    assert [(each.name, each.error_code, partitions_of(each)) for each in everything.topics] == [
        ("orders", ErrorCode.NONE, without_leaders)
    ]


def test_stale_metadata_omits_leader_epochs_before_first_lease() -> None:
    node = FakeNode(unconfirmed())
    assert [each.leader_epoch for each in node.metadata("orders").topics[0].partitions] == [0, 0, 0]
    node.lease_expired_seconds = math.inf
    assert [each.leader_epoch for each in node.metadata("orders").topics[0].partitions] == [-1, -1, -1]


def test_metadata_waits_for_first_broker() -> None:
    node = FakeNode(Barrier())
    image, node.services.store.image = node.services.image, Image()
    node.services.image = node.services.store.image

    async def scenario() -> MetadataResponse:
        def learn() -> None:
            node.services.image = node.services.store.image = image

        asyncio.get_running_loop().call_later(2 * BROKERS_POLL_SECONDS, learn)
        return await node.answer("Metadata", 12, MetadataRequest(topics=None), MetadataResponse)

    assert [broker.node_id for broker in asyncio.run(scenario()).brokers] == [1, 2, 3]


def test_metadata_without_brokers_disconnects_client() -> None:
    node = FakeNode(unconfirmed())
    node.services.image = node.services.store.image = Image()
    with pytest.raises(Disconnect):
        node.metadata()
    assert node.barrier.passed == 0


def partitions_of(topic: MetadataResponseTopic) -> list[tuple[int, int, int]]:
    return [(each.partition_index, each.leader_id, each.error_code) for each in topic.partitions]


def test_fenced_node_disconnects_client_that_requests_unknown_topic() -> None:
    """The topic may be new: librdkafka would drop it from a subscription after any error."""
    node, peer = FakeNode(Barrier()), ConnectedClient("127.0.0.1", 1, 1, connected_at=0.0)
    assert node.metadata("orders", peer=peer).topics[0].error_code == ErrorCode.NONE
    node.is_fenced, node.barrier.failure = True, KafkaError(ErrorCode.REQUEST_TIMED_OUT)
    with pytest.raises(Disconnect):
        node.metadata("new", peer=peer)


def test_stale_metadata_lists_offline_brokers_if_all_are_offline() -> None:
    node = FakeNode(unconfirmed())
    for broker in list(node.world.image.brokers.values()):
        node.world.accept(UpdateBrokerStatus(broker.id, BrokerStatus.OFFLINE, broker.epoch))
    assert [broker.node_id for broker in node.metadata("orders").brokers] == [1, 2, 3]


def test_stale_describe_topic_partitions_returns_leader_not_available() -> None:
    for topics in ([], [DescribeTopicPartitionsTopic(name="orders")]):
        response = FakeNode(unconfirmed()).ask(
            "DescribeTopicPartitions",
            0,
            DescribeTopicPartitionsRequest(topics=topics),
            DescribeTopicPartitionsResponse,
        )
        assert [(each.name, each.error_code, each.partitions) for each in response.topics] == [
            ("orders", ErrorCode.LEADER_NOT_AVAILABLE, [])
        ]


def test_fenced_node_omits_itself_as_leader() -> None:
    (before,) = FakeNode(Barrier()).metadata("orders").topics
    assert [each.leader_id for each in before.partitions] == [1, 2, 3]
    (answer,) = FakeNode(Barrier(), is_fenced=True).metadata("orders").topics
    assert [(each.leader_id, each.error_code) for each in answer.partitions] == [
        (-1, ErrorCode.LEADER_NOT_AVAILABLE),
        (2, ErrorCode.NONE),
        (3, ErrorCode.NONE),
    ]


def test_metadata_omits_unreachable_leader() -> None:
    node = FakeNode(Barrier())
    node.unreachable = [2]
    (answer,) = node.metadata("orders").topics
    assert [(each.leader_id, each.error_code) for each in answer.partitions] == [
        (1, ErrorCode.NONE),
        (-1, ErrorCode.LEADER_NOT_AVAILABLE),
        (3, ErrorCode.NONE),
    ]


def test_fenced_node_disconnects_client_on_second_metadata_request() -> None:
    """Librdkafka asks no other node as long as its only connection works."""
    node, peer = FakeNode(unconfirmed(), is_fenced=True), ConnectedClient("127.0.0.1", 1, 1, connected_at=0.0)
    node.clock.advance(60.0)
    assert node.metadata("orders", peer=peer).topics[0].partitions[1].leader_id == NO_NODE
    with pytest.raises(Disconnect):
        node.metadata("orders", peer=peer)


def test_node_fenced_after_first_answer_disconnects_new_clients() -> None:
    node, peer = FakeNode(Barrier()), ConnectedClient("127.0.0.1", 1, 1, connected_at=0.0)
    for _ in range(2):  # also when it happens again
        node.is_fenced, node.barrier.failure = False, None
        assert node.metadata("orders", peer=peer).topics[0].partitions[1].leader_id == 2
        node.is_fenced, node.barrier.failure = True, KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        assert node.metadata("orders", peer=peer).topics[0].partitions[1].leader_id == NO_NODE
        with pytest.raises(Disconnect):
            node.metadata("orders", peer=peer)


def test_fenced_node_keeps_new_connections_for_a_grace_period() -> None:
    """Other nodes may be no better, and clients that are disconnected repeatedly back off for long."""
    node, peer = FakeNode(unconfirmed(), is_fenced=True), ConnectedClient("127.0.0.1", 1, 1, connected_at=0.0)
    node.clock.advance(DISCONNECT_GRACE_SECONDS)
    for _ in range(3):
        assert node.metadata("orders", peer=peer).brokers
    node.clock.advance(0.1)
    with pytest.raises(Disconnect):
        node.metadata("orders", peer=peer)


def test_fenced_node_disconnects_client_that_connected_before_fencing_on_second_metadata_request() -> None:
    """The connection may have served only produce requests so far: librdkafka requests metadata elsewhere."""
    node, peer = FakeNode(unconfirmed(), is_fenced=True), ConnectedClient("127.0.0.1", 1, 1, connected_at=0.0)
    node.clock.advance(10.0)
    node.lease_expired_seconds = 9.0
    assert node.metadata("orders", peer=peer).brokers
    with pytest.raises(Disconnect):
        node.metadata("orders", peer=peer)


@pytest.mark.parametrize(("expired_seconds", "is_disconnected"), [(REFERRAL_SECONDS, True), (3.1, False)])
def test_recently_fenced_node_disconnects_new_clients(expired_seconds: float, is_disconnected: bool) -> None:
    """A client that reconnects to the fenced node and to another one may keep asking the fenced node."""
    node, peer = FakeNode(unconfirmed(), is_fenced=True), ConnectedClient("127.0.0.1", 1, 1, connected_at=0.0)
    node.clock.advance(0.1)
    node.lease_expired_seconds = expired_seconds
    assert node.metadata("orders", peer=peer).brokers
    with pytest.raises(Disconnect) if is_disconnected else nullcontext():
        node.metadata("orders", peer=peer)


def test_stale_node_does_not_disconnect_clients() -> None:
    node, peer = FakeNode(unconfirmed()), ConnectedClient("127.0.0.1", 1, 1)
    for _ in range(3):
        assert node.metadata("orders", peer=peer).brokers


# The read barrier


class Quorum:
    """A Raft driver whose leader the test changes."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop, self.leader = loop, NO_NODE
        self.is_silent = False

    async def read_index(self, timeout: float) -> int:
        if self.leader == NO_NODE:
            raise NotLeader(NO_NODE)
        if self.is_silent:
            await asyncio.sleep(timeout)
            raise ReadTimedOut("no answer")
        return 7

    async def wait_applied(self, index: int, timeout: float) -> None:
        await asyncio.sleep(0.01)

    async def start(self) -> None:
        return


def time_read_barrier(events: dict[float, int], *, at: float = 0.0, is_silent: bool = False) -> tuple[bool, float]:
    """Return whether the read was confirmed and how long it took; `events` maps times to leaders."""
    loop, outcome = VirtualLoop(), []

    async def scenario() -> None:
        quorum, store = Quorum(loop), RaftStore(1)
        quorum.is_silent = is_silent
        store._driver = cast(RaftDriver, quorum)
        await store.start()

        def lead(leader: int) -> None:
            quorum.leader = leader
            store.notify_leader_change()

        for when, leader in events.items():
            loop.call_later(when, lead, leader)
        await asyncio.sleep(at)
        began = loop.time()
        try:
            await store.read_barrier(CONFIRM_TIMEOUT_SECONDS)
            outcome.append((True, loop.time() - began))
        except KafkaError:
            outcome.append((False, loop.time() - began))

    loop.run(scenario(), [])
    return outcome[0]


def test_read_barrier_waits_for_election_and_applied_index() -> None:
    assert time_read_barrier({0.0: 2, 1.0: NO_NODE, 1.7: 3}, at=1.2) == pytest.approx((True, 0.51))


def test_read_barrier_of_starting_node_waits_until_caught_up() -> None:
    assert time_read_barrier({0.4: 2}) == pytest.approx((True, 0.41))


def test_read_barrier_without_quorum_fails_after_timeout() -> None:
    is_confirmed, seconds = time_read_barrier({})
    assert not is_confirmed
    assert seconds == pytest.approx(LEADERLESS_SECONDS_MAX, abs=0.11)


def test_read_barrier_fails_immediately_after_long_leaderless_time() -> None:
    assert time_read_barrier({0.0: 2, 1.0: NO_NODE}, at=5.0) == (False, 0.0)


def test_read_barrier_times_out_if_leader_is_silent() -> None:
    assert time_read_barrier({0.0: 2}, at=1.0, is_silent=True) == pytest.approx((False, CONFIRM_TIMEOUT_SECONDS))
