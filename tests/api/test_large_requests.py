"""Large requests: size limits, and scheduler slots, because decoding a request multiplies its size."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any

import pytest

from chronik import api
from chronik.api.routing import router
from chronik.api.routing.router import READS_IN_STEPS
from chronik.limits import DECODED_BEFORE_SLOT_BYTES_MAX, NON_PRODUCE_REQUEST_BYTES_MAX, PRODUCE_NAMES_BYTES_MAX
from chronik.protocol.apis import APIS
from chronik.protocol.codec import RequestHeader, decode_request_body, encode_request
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.describe_groups import DescribeGroupsRequest
from chronik.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from chronik.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from chronik.protocol.schema import Request
from chronik.request_reply import ConnectedClient
from chronik.scheduler import SUSPENDED_PER_ACCOUNT_MAX, Account, Scheduler
from tests.api.authorizing_node import AuthorizingNode
from tests.raw import RawClient

LIST_OFFSETS, VERSION = 2, 7
PARTITIONS = 2_000
CONNECTIONS = 20

NAME_CHARACTERS = 32_000


def list_offsets_request(partitions: int) -> ListOffsetsRequest:
    wanted = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(partitions)]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="unknown", partitions=wanted)])


def grant_slots(scheduler: Scheduler, account: Account) -> None:
    scheduler._awaiting_slot[account] = None
    scheduler._grant_slots()


def test_reads_in_steps_contains_every_api_that_runs_in_steps() -> None:
    folder = Path(str(api.__file__)).parent
    modules = {path.stem for path in folder.glob("*.py") if "Reply.from_steps(" in path.read_text(encoding="utf-8")}
    assert {each.module for each in APIS.values() if each.key in READS_IN_STEPS} == modules


def test_large_request_is_decoded_only_when_it_has_a_slot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[RequestHeader] = []

    def decode_and_count(header: RequestHeader, frame: memoryview, position: int) -> Request:
        decoded.append(header)
        return decode_request_body(header, frame, position)

    monkeypatch.setattr(router, "decode_request_body", decode_and_count)
    node = AuthorizingNode(tmp_path, **{"super.users": "User:ANONYMOUS"})
    try:
        request = list_offsets_request(PARTITIONS)
        assert len(encode_request(RequestHeader(LIST_OFFSETS, VERSION, 1, "raw"), request)) > (
            DECODED_BEFORE_SLOT_BYTES_MAX
        )
        scheduler = node.services.scheduler
        account = scheduler.open_account("127.0.0.1")
        account.suspended_count += SUSPENDED_PER_ACCOUNT_MAX  # as if other requests held all slots of the account
        clients = [RawClient(node.bootstrap) for _ in range(CONNECTIONS)]
        for client in clients:
            client.send(request, VERSION)
        other = RawClient(node.bootstrap)
        response = other.request(list_offsets_request(1), VERSION, ListOffsetsResponse)
        assert len(response.topics[0].partitions) == 1
        node.wait_until(lambda: len(account.suspended) == CONNECTIONS)
        assert len(decoded) == 1, "only the small request is decoded"
        account.suspended_count -= SUSPENDED_PER_ACCOUNT_MAX
        node._loop.call_soon_threadsafe(grant_slots, scheduler, account)
        for client in clients:
            found = client.receive(request, VERSION, ListOffsetsResponse)
            assert len(found.topics[0].partitions) == PARTITIONS
        assert len(decoded) == 1 + CONNECTIONS
        for client in (*clients, other):
            client.close()
    finally:
        node.close()


def test_large_request_whose_client_leaves_immediately_logs_no_error(tmp_path: Path) -> None:
    """The connection ends in the event-loop iteration in which its request arrives."""
    errors: list[dict[str, Any]] = []
    frame = encode_request(RequestHeader(LIST_OFFSETS, VERSION, 1, "raw"), list_offsets_request(PARTITIONS))

    async def dispatch_and_leave(node: AuthorizingNode) -> None:
        assert node._node.router is not None
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: errors.append(context))
        node._node.router.dispatch(bytearray(frame[4:]), ConnectedClient("127.0.0.1", 1, 1)).cancel()
        await asyncio.sleep(0.01)
        gc.collect()

    node = AuthorizingNode(tmp_path, **{"super.users": "User:ANONYMOUS"})
    try:
        node._wait(dispatch_and_leave(node))
    finally:
        node.close()
    assert errors == []


@pytest.mark.parametrize("extra", [0, 1])
def test_request_size_without_records_is_limited(client: RawClient, extra: int) -> None:
    names = [
        f"{number}-".ljust(NAME_CHARACTERS, "x")
        for number in range(NON_PRODUCE_REQUEST_BYTES_MAX // NAME_CHARACTERS - 1)
    ]
    header = RequestHeader(15, 4, 1, "raw")
    size = len(encode_request(header, DescribeGroupsRequest(groups=[*names, "", ""]))) - 4
    rest = NON_PRODUCE_REQUEST_BYTES_MAX - size + extra
    request = DescribeGroupsRequest(groups=[*names, "y" * (rest // 2), "z" * (rest - rest // 2)])
    assert len(encode_request(header, request)) - 4 == NON_PRODUCE_REQUEST_BYTES_MAX + extra
    client.send(request, 4)
    assert (client.read_frame() is None) is bool(extra)


@pytest.mark.parametrize("extra", [0, 1])
def test_produce_topic_names_size_is_limited(client: RawClient, extra: int) -> None:
    full, rest = divmod(PRODUCE_NAMES_BYTES_MAX + extra, NAME_CHARACTERS)
    names = ["x" * NAME_CHARACTERS] * full + ["y" * rest]
    partition = PartitionProduceData(index=0, records=b"")
    topics = [TopicProduceData(name=name, partition_data=[partition]) for name in names]
    request = ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=topics)
    if extra:
        client.send(request, 9)
        assert client.wait_for_close()
        return
    response = client.request(request, 9, ProduceResponse)
    codes = {topic.partition_responses[0].error_code for topic in response.responses}
    assert codes == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
