"""Fetch and Produce on new, fenced and possibly replaced leaders.

High watermarks never decrease, waiting clients are redirected, and only a confirmed leader returns OFFSET_OUT_OF_RANGE.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chronik.api.routing.router import Router
from chronik.api.shared.context import Services
from chronik.broker.requests.fetch_sessions import FetchSessionCache
from chronik.broker.requests.rejected_batches import RejectedBatches
from chronik.config import NodeConfig
from chronik.metadata.commands.partitions import SetPartitionLeader
from chronik.metadata.commands.topics import DeleteTopic
from chronik.protocol.codec import RequestHeader, decode_response, encode_request
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData
from chronik.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from chronik.protocol.records import Record, encode_batch
from chronik.protocol.schema import Request
from chronik.request_reply import ConnectedClient, Reply, UnsentByteCounter
from chronik.scheduler import Scheduler
from tests.api import request_builders
from tests.replication.rig import FOLLOWER, LEADER, OTHER, TOPIC_ID, FakeFollower, Rig

FETCH, PRODUCE = 1, 0
PATIENCE_SECONDS = 0.5
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


class LeaderNode:
    """Node 1, which leads the partition until it is fenced or replaced."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.is_fenced = False
        self.may_be_replaced = False
        self.barriers = 0
        self.barrier: Callable[[], None] = lambda: None
        store = SimpleNamespace(image=rig.store.image, is_shared=True, read_barrier=self._read_barrier)
        services = SimpleNamespace(
            authorizer=None,
            config=NodeConfig(),
            clock=rig.clock,
            store=store,
            image=rig.store.image,
            configs=rig.configs,
            replicas=rig.replicas,
            fetch_sessions=FetchSessionCache(),
            is_fenced=lambda: self.is_fenced,
            may_be_replaced=lambda: self.may_be_replaced,
            outbox=UnsentByteCounter(),
            scheduler=Scheduler(),
            rejected_batches=RejectedBatches(rig.clock),
        )
        self.router = Router(cast(Services, services), rig.loop.failures.append)

    async def _read_barrier(self, seconds: float) -> None:
        self.barriers += 1
        await asyncio.sleep(0.01)
        self.barrier()

    def fence(self) -> None:
        """Fence the node, as an expired lease does."""
        self.is_fenced = True
        self.rig.replicas.fail_waiters()

    def send(self, key: int, version: int, request: Request) -> Reply[Any]:
        frame = bytearray(encode_request(RequestHeader(key, version, 7, "test"), request)[4:])
        return self.router.dispatch(frame, ConnectedClient("test", 0, 1))

    def fetch(self, offset: int = 0, version: int = 12, **more: int) -> Reply[Any]:
        topic = "topic" if version < 13 else TOPIC_ID
        request: FetchRequest = request_builders.fetch_request(
            (topic, 0, offset), min_bytes=1, max_wait_ms=int(PATIENCE_SECONDS * 1000)
        )
        for name, value in more.items():
            setattr(request, name, value)
        return self.send(FETCH, version, request)

    def produce(self, sequence: int) -> Reply[Any]:
        batch = encode_batch([Record(0, 0, None, b"v")], producer_id=7, producer_epoch=0, base_sequence=sequence)
        return self.send(PRODUCE, 9, request_builders.produce_request("topic", batch))

    async def followers_have(self, offset: int) -> None:
        for follower in (FOLLOWER, OTHER):
            at = self.rig.at(offset, last_epoch=self.rig.replica().latest_epoch)
            await FakeFollower(self.rig, follower).fetch(at)

    def hand_to(self, leader: int) -> None:
        self.rig.command(SetPartitionLeader(TOPIC_ID, 0, leader, self.rig.partition().leader_epoch))

    def lead_again(self) -> None:
        """Become leader again in a new epoch, without knowledge of the followers."""
        self.hand_to(FOLLOWER)
        self.hand_to(LEADER)


async def fetched(answer: Reply[Any], version: int = 12) -> FetchResponse:
    frames = await answer.wait_for_frame()
    _, response = decode_response(FETCH, version, memoryview(b"".join(frames or ()))[4:])
    assert isinstance(response, FetchResponse)
    return response


async def partition_of(answer: Reply[Any], version: int = 12) -> PartitionData:
    return (await fetched(answer, version)).responses[0].partitions[0]


async def produced(answer: Reply[Any]) -> PartitionProduceResponse:
    frames = await answer.wait_for_frame()
    _, response = decode_response(PRODUCE, 9, memoryview(b"".join(frames or ()))[4:])
    assert isinstance(response, ProduceResponse)
    return response.responses[0].partition_responses[0]


def run_scenario(scenario: Callable[[LeaderNode], Coroutine[Any, Any, None]]) -> None:
    Rig().run(lambda rig: scenario(LeaderNode(rig)))


async def three_records(node: LeaderNode) -> None:
    for _ in range(3):
        node.rig.append()
    await node.rig.replica().syncer.wait_until_synced()
    await node.followers_have(3)
    assert (await partition_of(node.fetch())).high_watermark == 3


# The high watermark


def test_new_leader_delays_fetch_until_high_watermark_is_known() -> None:
    async def scenario(node: LeaderNode) -> None:
        await three_records(node)
        node.rig.append()
        await node.rig.replica().syncer.wait_until_synced()
        node.lead_again()
        assert not node.rig.replica().is_high_watermark_known
        began = node.rig.loop.time()
        waiting = node.fetch()
        assert not waiting.is_ready
        await asyncio.sleep(0.1)
        assert not waiting.is_ready
        await node.followers_have(4)
        answer = await partition_of(waiting)
        assert (answer.error_code, answer.high_watermark) == (ErrorCode.NONE, 4)
        assert node.rig.loop.time() == pytest.approx(began + 0.1, abs=0.01)

    run_scenario(scenario)


@pytest.mark.parametrize(("version", "code"), [(9, NOT_LEADER), (11, ErrorCode.OFFSET_NOT_AVAILABLE)])
def test_new_leader_without_high_watermark_returns_error_after_timeout(version: int, code: ErrorCode) -> None:
    async def scenario(node: LeaderNode) -> None:
        await three_records(node)
        node.rig.append()
        await node.rig.replica().syncer.wait_until_synced()
        node.lead_again()
        answer = await partition_of(node.fetch(version=version), version)
        assert (answer.error_code, answer.high_watermark, answer.records) == (code, -1, b"")

    run_scenario(scenario)


# Fenced leaders


def test_waiting_fetch_fails_immediately_when_leader_is_fenced() -> None:
    async def scenario(node: LeaderNode) -> None:
        await three_records(node)
        waiting = node.fetch(offset=3)
        await asyncio.sleep(0.1)
        began = node.rig.loop.time()
        node.fence()
        answer = await partition_of(waiting)
        assert (answer.error_code, node.rig.loop.time()) == (NOT_LEADER, began)

    run_scenario(scenario)


@pytest.mark.parametrize("version", [4, 12, 16])
def test_fenced_leader_returns_not_leader_for_each_partition(version: int) -> None:
    """After an error for the whole request, Java and Python consumers only log it and retry."""

    async def scenario(node: LeaderNode) -> None:
        await three_records(node)
        node.fence()
        response = await fetched(node.fetch(version=version), version)
        assert response.error_code == ErrorCode.NONE
        (partition,) = response.responses[0].partitions
        assert partition.error_code == NOT_LEADER
        assert partition.current_leader.leader_id == -1, "a fenced node would name itself"

    run_scenario(scenario)


def test_fenced_leader_returns_not_leader_in_fetch_session() -> None:
    async def scenario(node: LeaderNode) -> None:
        await three_records(node)
        begun = await fetched(node.fetch(offset=3, session_epoch=0, max_wait_ms=0))
        node.fence()
        request = FetchRequest(session_id=begun.session_id, session_epoch=1, max_wait_ms=500, min_bytes=1)
        response = await fetched(node.send(FETCH, 12, request))
        assert [each.error_code for topic in response.responses for each in topic.partitions] == [NOT_LEADER]

    run_scenario(scenario)


def test_waiting_produce_fails_immediately_when_leader_is_fenced() -> None:
    async def scenario(node: LeaderNode) -> None:
        waiting = node.produce(0)
        await asyncio.sleep(0.1)
        began = node.rig.loop.time()
        node.fence()
        answer = await produced(waiting)
        assert (answer.error_code, node.rig.loop.time()) == (NOT_LEADER, began)

    run_scenario(scenario)


def test_waiting_produce_names_the_latest_of_two_new_leaders() -> None:
    async def scenario(node: LeaderNode) -> None:
        waiting = node.send(
            PRODUCE, 10, request_builders.produce_request("topic", encode_batch([Record(0, 0, None, b"v")]))
        )
        assert not waiting.is_ready
        node.hand_to(FOLLOWER)
        node.hand_to(OTHER)
        frames = await waiting.wait_for_frame()
        _, response = decode_response(PRODUCE, 10, memoryview(b"".join(frames or ()))[4:])
        assert isinstance(response, ProduceResponse)
        answer = response.responses[0].partition_responses[0]
        assert (answer.error_code, answer.current_leader.leader_id) == (NOT_LEADER, OTHER)

    run_scenario(scenario)


# Batches after an appended batch that was rejected later


def test_batch_after_truncated_batch_is_rejected_without_sequence_gap() -> None:
    """Librdkafka reacts to a sequence gap with a new epoch, and sends all batches again."""

    async def scenario(node: LeaderNode) -> None:
        first, replica = node.produce(0), node.rig.replica()
        node.hand_to(FOLLOWER)
        assert (await produced(first)).error_code == NOT_LEADER
        await replica.syncer.wait_until_idle()
        replica.truncate_to(0)
        node.hand_to(LEADER)
        assert (await produced(node.produce(1))).error_code == NOT_LEADER
        again = node.produce(0)
        behind = node.produce(1)
        await node.rig.replica().syncer.wait_until_synced()
        await node.followers_have(2)
        assert [(await produced(each)).error_code for each in (again, behind)] == [ErrorCode.NONE] * 2

    run_scenario(scenario)


def test_batch_after_rejected_but_kept_batch_is_accepted() -> None:
    async def scenario(node: LeaderNode) -> None:
        first = node.produce(0)
        node.lead_again()
        assert (await produced(first)).error_code == NOT_LEADER
        behind, again = node.produce(1), node.produce(0)
        await node.rig.replica().syncer.wait_until_synced()
        await node.followers_have(2)
        assert (await produced(behind)).base_offset == 1
        assert (await produced(again)).base_offset == 0

    run_scenario(scenario)


# Offsets out of range


def test_confirmed_leader_returns_offset_out_of_range() -> None:
    async def scenario(node: LeaderNode) -> None:
        await three_records(node)
        answer = await partition_of(node.fetch(offset=9))
        assert (answer.error_code, node.barriers) == (ErrorCode.OFFSET_OUT_OF_RANGE, 1)

    run_scenario(scenario)


def test_replaced_leader_returns_not_leader_for_unknown_offset() -> None:
    async def scenario(node: LeaderNode) -> None:
        await three_records(node)
        node.barrier = lambda: node.hand_to(FOLLOWER)
        assert (await partition_of(node.fetch(offset=9))).error_code == NOT_LEADER

    run_scenario(scenario)


def test_unconfirmed_leader_returns_not_leader_for_unknown_offset() -> None:
    async def scenario(node: LeaderNode) -> None:
        await three_records(node)

        def refuse() -> None:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)

        node.barrier = refuse
        assert (await partition_of(node.fetch(offset=9))).error_code == NOT_LEADER

    run_scenario(scenario)


# Leaders that may have been replaced


def test_healthy_leader_serves_fetch_without_confirmation() -> None:
    async def scenario(node: LeaderNode) -> None:
        await three_records(node)
        assert (await partition_of(node.fetch())).high_watermark == 3
        assert node.barriers == 0

    run_scenario(scenario)


def test_possibly_replaced_leader_confirms_before_serving_fetch() -> None:
    async def scenario(node: LeaderNode) -> None:
        await three_records(node)
        node.may_be_replaced = True
        answer = await partition_of(node.fetch())
        assert (answer.error_code, answer.high_watermark, node.barriers) == (ErrorCode.NONE, 3, 1)
        waiting = node.fetch(offset=3)
        await asyncio.sleep(0.1)
        node.rig.append()
        await node.rig.replica().syncer.wait_until_synced()
        await node.followers_have(4)
        answer = await partition_of(waiting)
        assert (answer.error_code, answer.high_watermark) == (ErrorCode.NONE, 4)
        node.barrier = lambda: node.hand_to(FOLLOWER)
        assert (await partition_of(node.fetch())).error_code == NOT_LEADER

    run_scenario(scenario)


def test_possibly_replaced_leader_without_confirmation_returns_not_leader() -> None:
    async def scenario(node: LeaderNode) -> None:
        await three_records(node)
        node.may_be_replaced = True

        def refuse() -> None:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)

        node.barrier = refuse
        answer = await partition_of(node.fetch())
        assert (answer.error_code, answer.high_watermark) == (NOT_LEADER, -1)

    run_scenario(scenario)


def test_possibly_replaced_leader_serves_no_records_of_deleted_topic() -> None:
    async def scenario(node: LeaderNode) -> None:
        await three_records(node)
        node.may_be_replaced = True
        node.barrier = lambda: node.rig.command(DeleteTopic(TOPIC_ID))
        answer = await partition_of(node.fetch())
        assert (answer.error_code, answer.records) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, b"")

    run_scenario(scenario)
