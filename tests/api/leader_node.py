"""A node that leads a partition, on virtual time: tests advance the followers, and clients fetch."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from chronik.api.routing.router import Router
from chronik.api.shared.context import Services
from chronik.broker.requests.decompression import BatchDecompressor
from chronik.broker.requests.fetch_sessions import FetchSessionCache
from chronik.broker.requests.produced_records import ValidatedRecords
from chronik.config import NodeConfig
from chronik.protocol.batch import validate_produced_batches
from chronik.protocol.codec import RequestHeader, decode_response, encode_request
from chronik.protocol.control_records import TransactionMarker
from chronik.protocol.messages.fetch import FetchResponse, PartitionData
from chronik.protocol.records import Record, encode_batch
from chronik.protocol.schema import Request, Response
from chronik.request_reply import ConnectedClient, Reply, UnsentByteCounter
from chronik.scheduler import Scheduler
from tests.api import request_builders
from tests.replication.rig import FOLLOWER, OTHER, FakeFollower, Rig

VERSION = 12
TIMEOUT_SECONDS = 0.5

R = TypeVar("R", bound=Response)


class Leader:
    """A node that leads a partition with uncommitted records; one follower fetch commits them."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self._sequences: dict[int, int] = {}
        self.router = Router(
            cast(
                Services,
                SimpleNamespace(
                    authorizer=None,
                    config=NodeConfig(),
                    clock=rig.clock,
                    store=rig.store,
                    image=rig.store.image,
                    configs=rig.configs,
                    replicas=rig.replicas,
                    fetch_sessions=FetchSessionCache(),
                    is_fenced=lambda: False,
                    may_be_replaced=lambda: False,
                    outbox=UnsentByteCounter(),
                    scheduler=Scheduler(),
                    decompressor=BatchDecompressor(),
                ),
            ),
            rig.loop.failures.append,
        )

    async def write(self, *values: bytes) -> None:
        for value in values:
            self.rig.append(value)
        await self._start_followers(len(values))

    async def _start_followers(self, offset: int) -> None:
        """Let both followers start to fetch, so that nothing is committed yet."""
        replica = self.rig.replica()
        await replica.syncer.wait_until_synced()
        await FakeFollower(self.rig, OTHER).fetch(self.rig.at(offset, last_epoch=0))
        await FakeFollower(self.rig, FOLLOWER).fetch(self.rig.at(0))
        assert replica.high_watermark == 0

    def commit(self, offset: int = 1) -> None:
        """Let a follower fetch from the offset, which commits earlier records in this event-loop iteration."""
        follower = self.rig.server._sessions[FOLLOWER]
        self.rig.replica().record_follower_fetch(FOLLOWER, offset, 0, follower)
        assert self.rig.replica().high_watermark == offset

    async def commit_all(self) -> int:
        """Let both followers fetch everything, and return the high watermark."""
        replica = self.rig.replica()
        if not self.rig.server._sessions:
            await self._start_followers(replica.log.log_end_offset)
        await replica.syncer.wait_until_synced()
        for node in (OTHER, FOLLOWER):
            session = self.rig.server._sessions[node]
            replica.record_follower_fetch(node, replica.log.log_end_offset, 0, session)
        assert replica.high_watermark == replica.log.log_end_offset
        return replica.high_watermark

    def produce(self, producer_id: int, *values: bytes, timestamp: int = 0) -> int:
        """Append records of a transaction, and return their first offset."""
        sequence = self._sequences.get(producer_id, 0)
        self._sequences[producer_id] = sequence + len(values)
        records = [Record(number, timestamp + number, None, value) for number, value in enumerate(values)]
        batch = bytearray(
            encode_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True)
        )
        return self.rig.replica().append(ValidatedRecords(batch, validate_produced_batches(batch))).base_offset

    def end_transaction(self, producer_id: int, *, commit: bool, epoch: int = 0, now_ms: int = 0) -> int:
        """Append the marker that ends a transaction, and return its offset."""
        marker = TransactionMarker(commit, coordinator_epoch=3)
        return self.rig.replica().append_marker(producer_id, epoch, marker, now_ms) - 1

    def fetch(self, min_bytes: int = 1, *, isolation_level: int = 0, offset: int = 0) -> Reply[Any]:
        """Start a fetch that finds too few bytes and waits."""
        request = request_builders.fetch_request(
            ("topic", 0, offset), min_bytes=min_bytes, max_wait_ms=int(TIMEOUT_SECONDS * 1000)
        )
        request.isolation_level = isolation_level
        pending = self._dispatch(request, VERSION)
        assert not pending.is_ready
        return pending

    async def send_request(self, request: Request, version: int, kind: type[R]) -> R:
        pending = self._dispatch(request, version)
        frame = b"".join(await pending.wait_for_frame() or ())
        _, response = decode_response(request.__schema__.api_key, version, memoryview(frame)[4:])
        assert isinstance(response, kind)
        return response

    def _dispatch(self, request: Request, version: int) -> Reply[Any]:
        header = RequestHeader(request.__schema__.api_key, version, 7, "test")
        return self.router.dispatch(bytearray(encode_request(header, request)[4:]), ConnectedClient("test", 0, 1))


async def fetch_response(pending: Reply[Any]) -> FetchResponse:
    frame = b"".join(await pending.wait_for_frame() or ())
    _, response = decode_response(1, VERSION, memoryview(frame)[4:])
    assert isinstance(response, FetchResponse)
    return response


async def partition_response(pending: Reply[Any]) -> PartitionData:
    return (await fetch_response(pending)).responses[0].partitions[0]


def run_scenario(scenario: Callable[[Leader], Coroutine[Any, Any, None]]) -> None:
    Rig().run(lambda rig: scenario(Leader(rig)))
