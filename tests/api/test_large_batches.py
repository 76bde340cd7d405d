"""Large batches are decompressed in a thread: order is preserved, and only a current leader appends them."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import pytest

from chronik.api import produce
from chronik.api.shared.context import RequestContext, Services
from chronik.broker.requests.decompression import BatchDecompressor
from chronik.broker.requests.produced_records import validate_produced_records
from chronik.broker.requests.rejected_batches import RejectedBatches
from chronik.limits import INSPECTED_ON_LOOP_RECORDS_MAX
from chronik.metadata.commands.partitions import SetPartitionLeader
from chronik.metadata.commands.topics import DeleteTopic, UpdateTopicConfig
from chronik.protocol.budget import DecompressionBudget
from chronik.protocol.compression import Codec
from chronik.protocol.errors import ErrorCode, RecordsTooLarge
from chronik.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from chronik.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from chronik.protocol.records import Record, encode_batch
from chronik.request_reply import ConnectedClient
from chronik.scheduler import Account, Scheduler, charge_tasks_to_account
from chronik.testing import Broker
from tests.abuse.bomb_records import TIME_MS, batch_of_tiny_records, batch_with_many_headers, magic_1_messages
from tests.api import request_builders
from tests.raw import RawClient
from tests.replication.rig import FOLLOWER, LEADER, OTHER, TOPIC_ID, FakeFollower, Rig

T = TypeVar("T")
COMPACTED = {"cleanup.policy": "compact"}
LARGE = batch_of_tiny_records(INSPECTED_ON_LOOP_RECORDS_MAX + 1, Codec.LZ4)
SMALL = encode_batch([Record(0, TIME_MS, b"k", b"small")])
CONTEXT = RequestContext(13, "client", ConnectedClient("host", 1, 1))


class BlockedDecompressor(BatchDecompressor):
    """A decompressor whose thread waits until the test lets it continue."""

    def __init__(self) -> None:
        super().__init__()
        self.has_started = asyncio.Event()
        self.go = asyncio.Event()

    async def run_in_thread(self, work: Callable[[DecompressionBudget], T], budget: DecompressionBudget) -> T:
        self.has_started.set()
        await self.go.wait()
        return work(budget)


@dataclass
class FakeServices:
    """The services of a node that Produce uses."""

    rig: Rig
    decompressor: BlockedDecompressor = field(default_factory=BlockedDecompressor)
    fenced: bool = False
    authorizer: None = None

    def __post_init__(self) -> None:
        self.replicas, self.store, self.clock = self.rig.replicas, self.rig.store, self.rig.clock
        self.rejected_batches = RejectedBatches(self.clock)

    @property
    def image(self) -> Any:
        return self.store.image

    def is_fenced(self) -> bool:
        return self.fenced


def request_of(*batches: bytes, acks: int = 1) -> ProduceRequest:
    data = [PartitionProduceData(index=0, records=memoryview(bytearray(each))) for each in batches]
    topic = TopicProduceData(topic_id=TOPIC_ID, partition_data=data)
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[topic])


def start_produce(parts: FakeServices, request: ProduceRequest) -> asyncio.Future[ProduceResponse]:
    reply = produce.handle(cast(Services, parts), request, CONTEXT)
    assert reply.coroutine is not None
    return asyncio.ensure_future(cast(Coroutine[Any, Any, ProduceResponse], reply.coroutine))


def outcome_of(event: Callable[[FakeServices], None]) -> tuple[ErrorCode, int]:
    """Return the error code and log end offset if the event happens while a large batch is decompressed."""
    found: list[tuple[ErrorCode, int]] = []

    async def scenario(rig: Rig) -> None:
        parts = FakeServices(rig)
        log = rig.replica().log
        answer = start_produce(parts, request_of(LARGE))
        await parts.decompressor.has_started.wait()
        event(parts)
        parts.decompressor.go.set()
        response = await answer
        code = ErrorCode(response.responses[0].partition_responses[0].error_code)
        found.append((code, log.log_end_offset))

    Rig(configs=COMPACTED).run(scenario)
    return found[0]


def lose_leadership(parts: FakeServices) -> None:
    parts.rig.command(SetPartitionLeader(TOPIC_ID, 0, FOLLOWER))


def lose_and_regain_leadership(parts: FakeServices) -> None:
    lose_leadership(parts)
    parts.rig.command(SetPartitionLeader(TOPIC_ID, 0, LEADER))


def is_fenced(parts: FakeServices) -> None:
    parts.fenced = True


def change_config(parts: FakeServices) -> None:
    parts.rig.command(UpdateTopicConfig(TOPIC_ID, {"cleanup.policy": "compact", "max.message.bytes": "100"}))


def delete_topic(parts: FakeServices) -> None:
    parts.rig.command(DeleteTopic(TOPIC_ID))


def test_large_batch_is_appended_if_nothing_changed_meanwhile() -> None:
    assert outcome_of(lambda parts: None) == (ErrorCode.NONE, INSPECTED_ON_LOOP_RECORDS_MAX + 1)


@pytest.mark.parametrize("event", [lose_leadership, lose_and_regain_leadership, is_fenced, change_config])
def test_large_batch_is_rejected_after_leadership_or_config_change(event: Callable[[FakeServices], None]) -> None:
    assert outcome_of(event) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)


def test_large_batch_is_rejected_after_topic_deletion() -> None:
    assert outcome_of(delete_topic) == (ErrorCode.UNKNOWN_TOPIC_ID, 0)


def test_later_batches_of_the_request_wait_for_a_large_one() -> None:
    async def scenario(rig: Rig) -> None:
        parts = FakeServices(rig)
        answer = start_produce(parts, request_of(SMALL, LARGE, SMALL))
        await parts.decompressor.has_started.wait()
        assert rig.replica().log.log_end_offset == 1
        parts.decompressor.go.set()
        answers = (await answer).responses[0].partition_responses
        assert [each.base_offset for each in answers] == [0, 1, INSPECTED_ON_LOOP_RECORDS_MAX + 2]

    Rig(configs=COMPACTED).run(scenario)


def test_cancelled_request_appends_nothing() -> None:
    async def scenario(rig: Rig) -> None:
        parts = FakeServices(rig)
        answer = start_produce(parts, request_of(LARGE))
        await parts.decompressor.has_started.wait()
        answer.cancel()
        parts.decompressor.go.set()
        with pytest.raises(asyncio.CancelledError):
            await answer
        assert rig.replica().log.log_end_offset == 0

    Rig(configs=COMPACTED).run(scenario)


def test_produce_of_many_partitions_yields_to_other_work() -> None:
    async def scenario(rig: Rig) -> None:
        parts = FakeServices(rig)
        answer = start_produce(parts, request_of(*[SMALL] * (produce.PARTITIONS_PER_ITERATION + 1)))
        await parts.decompressor.has_started.wait()
        assert rig.replica().log.log_end_offset == produce.PARTITIONS_PER_ITERATION
        parts.decompressor.go.set()
        answers = (await answer).responses[0].partition_responses
        assert [each.base_offset for each in answers] == list(range(produce.PARTITIONS_PER_ITERATION + 1))

    Rig(configs=COMPACTED).run(scenario)


def test_large_batches_are_decompressed_one_at_a_time() -> None:
    async def scenario() -> None:
        decompressor, running, most = BatchDecompressor(), 0, 0

        def work(budget: DecompressionBudget) -> int:
            nonlocal running, most
            running += 1
            most = max(most, running)
            sum(range(100_000))  # some milliseconds, in which a concurrent thread would be noticed
            running -= 1
            return budget.records_left

        with charge_tasks_to_account(Scheduler(), Account()):
            found = await asyncio.gather(
                *[decompressor.run_in_thread(work, DecompressionBudget(1, number, 1)) for number in range(20)]
            )
        assert found == list(range(20))
        assert (most, decompressor.offloaded_count) == (1, 20)

    asyncio.run(scenario())


class WeakBuffer(bytearray):
    """A large buffer that supports weak references, to detect whether it is still in memory."""


def test_decompressed_records_are_freed_after_rejection() -> None:
    async def scenario() -> None:
        opened: list[weakref.ref[WeakBuffer]] = []

        def work(budget: DecompressionBudget) -> None:
            content = WeakBuffer()
            opened.append(weakref.ref(content))
            try:
                content[1]
            except IndexError:
                raise RecordsTooLarge("too much") from None

        gc.disable()
        try:
            with pytest.raises(RecordsTooLarge, match="too much"):
                await BatchDecompressor().run_in_thread(work, DecompressionBudget.for_event_loop())
            assert opened[0]() is None
        finally:
            gc.enable()

    asyncio.run(scenario())


@pytest.mark.chronik_topic(configs=COMPACTED)
def test_pipelined_requests_keep_order_behind_large_batch(client: RawClient, chronik_topic: str) -> None:
    """An idempotent producer with five batches in flight, every other one decompressed in a thread."""
    requests, sequence = [], 0
    for size in (INSPECTED_ON_LOOP_RECORDS_MAX + 1, 1, 20_000, 1, 1):
        records = [Record(n, TIME_MS, b"k%d" % n, b"v") for n in range(size)]
        sent = encode_batch(records, codec=Codec.ZSTD, producer_id=77, producer_epoch=0, base_sequence=sequence)
        requests.append(request_builders.produce_request(chronik_topic, sent))
        sequence += size
    for request in requests:
        client.send(request, 9)
    found = [client.receive(request, 9, ProduceResponse).responses[0].partition_responses[0] for request in requests]
    assert [each.error_code for each in found] == [ErrorCode.NONE] * 5
    assert [each.base_offset for each in found] == [0, 5001, 5002, 25_002, 25_003]


@pytest.mark.chronik_topic(configs=COMPACTED)
def test_large_batches_are_validated_like_small_ones(client: RawClient, chronik_topic: str) -> None:
    keyless = request_builders.produce(client, chronik_topic, batch_of_tiny_records(10_000, Codec.GZIP, key=None))
    assert keyless.error_code == ErrorCode.INVALID_RECORD
    assert [each.batch_index for each in keyless.record_errors][:3] == [0, 1, 2]
    too_much = request_builders.produce(client, chronik_topic, batch_with_many_headers(50_000_000, Codec.ZSTD))
    assert too_much.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert (
        request_builders.produce(client, chronik_topic, batch_with_many_headers(5_000_000, Codec.ZSTD)).error_code
        == ErrorCode.NONE
    )


def test_rejected_large_batch_with_acks_0_closes_connection(chronik_broker: Broker) -> None:
    chronik_broker.create_topic("compacted-no-acks", configs=COMPACTED)
    with RawClient(chronik_broker.bootstrap) as client:
        client.send(request_builders.produce_request("compacted-no-acks", LARGE, acks=0), 9)
        assert (
            request_builders.produce(client, "compacted-no-acks", SMALL).base_offset
            == INSPECTED_ON_LOOP_RECORDS_MAX + 1
        )
        client.send(
            request_builders.produce_request(
                "compacted-no-acks", batch_of_tiny_records(10_000, Codec.GZIP, key=None), acks=0
            ),
            9,
        )
        assert client.wait_for_close()


def test_large_message_set_is_converted(client: RawClient, chronik_topic: str) -> None:
    answer = request_builders.produce(client, chronik_topic, magic_1_messages(34 * 20_000, Codec.GZIP), version=2)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
    assert request_builders.list_offset(client, chronik_topic, -1).offset == 20_000


def test_list_offsets_rejects_duplicate_partitions(client: RawClient, chronik_topic: str) -> None:
    """As in Kafka."""
    request_builders.produce(client, chronik_topic, SMALL)
    for version in (1, 7):
        once, twice = ListOffsetsPartition(partition_index=1, timestamp=-1), ListOffsetsPartition(timestamp=TIME_MS)
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=chronik_topic, partitions=[twice, once, twice])])
        answers = client.request(request, version, ListOffsetsResponse).topics[0].partitions
        assert [each.error_code for each in answers] == [
            ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_REQUEST
        ]  # fmt: skip


def test_list_offsets_finds_timestamp_in_large_batch(client: RawClient, chronik_topic: str) -> None:
    """Timestamps are ascending; the last record is the first one at or after the timestamp."""
    records = [Record(n, TIME_MS + n, None, b"v") for n in range(20_000)]
    for codec in Codec:
        before = request_builders.produce(client, chronik_topic, encode_batch(records, codec=codec)).base_offset
        assert request_builders.list_offset(client, chronik_topic, TIME_MS + 19_999).offset == 19_999
        assert before == 20_000 * codec


def two_partitions(acks: int) -> ProduceRequest:
    """Return a request with a small batch, which is appended immediately, and a large one."""
    data = [
        PartitionProduceData(index=index, records=memoryview(bytearray(records)))
        for index, records in enumerate((SMALL, LARGE))
    ]
    topic = TopicProduceData(topic_id=TOPIC_ID, partition_data=data)
    return ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[topic])


def codes_of(response: ProduceResponse) -> list[ErrorCode]:
    return [ErrorCode(each.error_code) for each in response.responses[0].partition_responses]


@pytest.mark.parametrize("acks", [1, -1])
def test_batch_durable_before_a_large_one_is_acknowledged(acks: int) -> None:
    async def scenario(rig: Rig) -> None:
        parts = FakeServices(rig)
        small = rig.replica(0)
        answer = start_produce(parts, two_partitions(acks))
        await parts.decompressor.has_started.wait()
        assert small.log.log_end_offset == 1
        followers = [FakeFollower(rig, number) for number in (FOLLOWER, OTHER)]
        for follower in followers:
            await follower.fetch(rig.at(0))
            await follower.fetch(rig.at(1, last_epoch=small.leader_epoch))
        await eventually(lambda: small.is_committed(1) and small.is_durable(1))
        parts.decompressor.go.set()
        large = rig.replica(1)
        await eventually(lambda: large.log.log_end_offset > 0)
        for follower in followers:
            await follower.fetch(rig.at(0, 1))
            await follower.fetch(rig.at(large.log.log_end_offset, 1, last_epoch=large.leader_epoch))
        assert codes_of(await asyncio.wait_for(answer, 10)) == [ErrorCode.NONE, ErrorCode.NONE]

    Rig(partitions=2, configs=COMPACTED).run(scenario)


@pytest.mark.parametrize("acks", [1, -1])
def test_batch_truncated_before_a_large_one_is_not_acknowledged(acks: int) -> None:
    """By then the node leads again, and another record has the same offset."""

    async def scenario(rig: Rig) -> None:
        parts = FakeServices(rig)
        small = rig.replica(0)
        answer = start_produce(parts, two_partitions(acks))
        await parts.decompressor.has_started.wait()
        rig.command(SetPartitionLeader(TOPIC_ID, 0, FOLLOWER))
        await small.syncer.wait_until_idle()
        small.truncate_to(0)
        rig.command(SetPartitionLeader(TOPIC_ID, 0, LEADER))
        other = encode_batch([Record(0, TIME_MS, b"k", b"another's")])
        small = rig.replica(0)
        small.append(
            validate_produced_records(
                memoryview(bytearray(other)),
                small.produce_rules,
                CONTEXT.version,
                TIME_MS,
                DecompressionBudget.for_event_loop,
            )
        )
        parts.decompressor.go.set()
        large = rig.replica(1)
        await eventually(lambda: large.log.log_end_offset > 0)
        for follower in (FakeFollower(rig, number) for number in (FOLLOWER, OTHER)):
            await follower.fetch(rig.at(0), rig.at(0, 1))
            ends = (rig.at(1, last_epoch=small.leader_epoch), rig.at(large.log.log_end_offset, 1, last_epoch=0))
            await follower.fetch(*ends)
        await eventually(lambda: small.is_committed(1))
        assert codes_of(await asyncio.wait_for(answer, 10)) == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE]

    Rig(partitions=2, configs=COMPACTED).run(scenario)


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)
