"""Services of a node with a scripted transaction coordinator, for handlers that are called directly."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from chronik.api.routing.handlers import HANDLERS
from chronik.api.shared.context import RequestContext, Services
from chronik.clock import ManualClock
from chronik.limits import PRODUCER_IDS_PER_CLIENT_MAX
from chronik.metadata import levels
from chronik.metadata.commands.groups import OffsetToCommit
from chronik.metadata.commands.topics import CreateTopic
from chronik.metadata.commands.transactions import (
    NO_RECORD_INDEX,
    AddToTransaction,
    InitTransaction,
    TransactionPartition,
)
from chronik.metadata.records import Transaction
from chronik.protocol.codec import decode_response, encode_response
from chronik.protocol.errors import ErrorCode
from chronik.protocol.schema import Request, Response
from chronik.request_reply import ConnectedClient
from chronik.security.quotas.token_buckets import ClientRateLimiter
from chronik.transactions.decisions import TransactionResult
from tests.metadata.metadata_world import MetadataWorld, build_assignment, build_id

R = TypeVar("R", bound=Response)


class ScriptedCoordinator:
    """A transaction coordinator that records calls and returns a given error code."""

    def __init__(self, code: ErrorCode = ErrorCode.NONE) -> None:
        self.code = code
        self.given = TransactionResult(code, 7, 3) if code is ErrorCode.NONE else TransactionResult(code)
        self.calls: list[tuple[object, ...]] = []
        self.known: list[Transaction] = []

    async def init_producer(self, *calls: object) -> TransactionResult:
        self.calls.append(("init", *calls))
        return self.given

    async def add_to_transaction(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TransactionPartition] = (),
        groups: Sequence[str] = (),
    ) -> ErrorCode:
        self.calls.append(("add", transactional_id, producer_id, producer_epoch, *partitions, *groups))
        return self.code

    join = add_to_transaction

    async def end_transaction(self, *calls: object, commit: bool, bump_epoch: bool) -> TransactionResult:
        self.calls.append(("end", *calls, commit, bump_epoch))
        return self.given

    def verify_partitions(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Sequence[TransactionPartition]
    ) -> dict[TransactionPartition, ErrorCode]:
        self.calls.append(("verify", transactional_id, producer_id, producer_epoch))
        return {each: self.code if each.index else ErrorCode.NONE for each in partitions}

    def describe_transaction(self, transactional_id: str) -> Transaction | ErrorCode:
        found = (each for each in self.known if each.transactional_id == transactional_id)
        return next(found, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)

    def iterate_transactions(self) -> Iterator[Transaction | None]:
        for each in self.known:
            yield None
            yield each

    async def stage(self, *calls: Any) -> list[ErrorCode]:
        offsets: list[OffsetToCommit] = calls[3]
        self.calls.append(("stage", *calls))
        return [self.code] * len(offsets)


class TransactionNode:
    """Node 1 with the topics `orders` (three partitions) and `__consumer_offsets` (one partition)."""

    def __init__(self, code: ErrorCode = ErrorCode.NONE, *, level: int = levels.TRANSACTIONS_LEVEL) -> None:
        self.world = MetadataWorld(1)
        if level > levels.FIRST_LEVEL:
            self.world.image._features[levels.FEATURE_NAME] = level
        self.world.create("orders", *[build_assignment(1)] * 3)
        self.world.accept(CreateTopic(build_id(9), "__consumer_offsets", (build_assignment(1),), {}, 0, internal=True))
        self.transactions = ScriptedCoordinator(code)
        self.clock = ManualClock()
        self.is_fenced = False
        image = self.world.image
        self.services = SimpleNamespace(
            authorizer=None,
            image=image,
            store=SimpleNamespace(image=image, is_shared=False),
            clock=self.clock,
            transactions=self.transactions,
            transaction_joiner=self.transactions,
            groups=SimpleNamespace(offsets=SimpleNamespace(stage=self.transactions.stage)),
            coordinators=SimpleNamespace(coordinator_of=lambda _: 1, is_standalone=False),
            transaction_coordinators=SimpleNamespace(coordinator_of=lambda _: 1, is_standalone=False),
            is_fenced=lambda: self.is_fenced,
            is_unreachable=lambda _: False,
            producer_ids=SimpleNamespace(allocate=self._next_id),
            producer_id_allowances=ClientRateLimiter(PRODUCER_IDS_PER_CLIENT_MAX, 100.0),
        )

    async def _next_id(self) -> int:
        return 100

    def begin(self, *groups: str) -> Transaction:
        """Open a transaction of transactional id `t` (producer 7, epoch 2) with the groups."""
        self.world.accept(InitTransaction("t", NO_RECORD_INDEX, 7, 2, 60_000, 0))
        seen = self.world.image.transactions["t"].index
        self.world.accept(AddToTransaction("t", seen, (), groups, 0))
        return self.world.image.transactions["t"]

    def partition(self, index: int, topic: str = "orders") -> TransactionPartition:
        return TransactionPartition(self.world.image.topics[topic].id, index)

    def send_request(self, request: Request, version: int, kind: type[R]) -> R:
        """Handle the request, and return its response after encoding and decoding it in that version."""
        key = request.__schema__.api_key
        context = RequestContext(version, "test", ConnectedClient("127.0.0.1", 1, 1))

        async def answered() -> Response:
            response = await HANDLERS[key].handle(cast(Services, self.services), request, context)
            assert isinstance(response, Response)
            return response

        frame = b"".join(encode_response(1, version, asyncio.run(answered())))
        _, response = decode_response(key, version, memoryview(frame)[4:])
        assert isinstance(response, kind)
        return response
