"""Services of a node with a scripted transaction coordinator, for handlers that are called directly."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from chronik.api.routing.handlers import HANDLERS
from chronik.api.shared.context import Context, Services
from chronik.broker.requests.client_allowances import ClientAllowances
from chronik.clock import ManualClock
from chronik.exchange import Peer
from chronik.limits import PRODUCER_IDS_PER_CLIENT_MAX
from chronik.metadata import levels
from chronik.metadata.commands.groups import OffsetToCommit
from chronik.metadata.commands.topics import CreateTopic
from chronik.metadata.commands.transactions import NOT_SEEN, AddToTransaction, InitTransaction, TransactionPartition
from chronik.metadata.records import Transaction
from chronik.protocol.codec import decode_response, encode_response
from chronik.protocol.errors import ErrorCode
from chronik.protocol.schema import Request, Response
from chronik.transactions.events import Given
from tests.metadata.world import World, assignment, some_id

R = TypeVar("R", bound=Response)


class Coordinator:
    """A transaction coordinator that records calls and returns a given error code."""

    def __init__(self, code: ErrorCode = ErrorCode.NONE) -> None:
        self.code = code
        self.given = Given(code, 7, 3) if code is ErrorCode.NONE else Given(code)
        self.calls: list[tuple[object, ...]] = []
        self.known: list[Transaction] = []

    async def init(self, *calls: object) -> Given:
        self.calls.append(("init", *calls))
        return self.given

    async def add(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TransactionPartition] = (),
        groups: Sequence[str] = (),
    ) -> ErrorCode:
        self.calls.append(("add", transactional_id, producer_id, producer_epoch, *partitions, *groups))
        return self.code

    join = add

    async def end(self, *calls: object, commit: bool, bump: bool) -> Given:
        self.calls.append(("end", *calls, commit, bump))
        return self.given

    def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Sequence[TransactionPartition]
    ) -> dict[TransactionPartition, ErrorCode]:
        self.calls.append(("verify", transactional_id, producer_id, producer_epoch))
        return {each: self.code if each.index else ErrorCode.NONE for each in partitions}

    def describe(self, transactional_id: str) -> Transaction | ErrorCode:
        found = (each for each in self.known if each.transactional_id == transactional_id)
        return next(found, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)

    def list_in_steps(self) -> Iterator[Transaction | None]:
        for each in self.known:
            yield None
            yield each

    async def stage(self, *calls: Any) -> list[ErrorCode]:
        offsets: list[OffsetToCommit] = calls[3]
        self.calls.append(("stage", *calls))
        return [self.code] * len(offsets)


class Node:
    """Node 1 with the topics `orders` (three partitions) and `__consumer_offsets` (one partition)."""

    def __init__(self, code: ErrorCode = ErrorCode.NONE, *, level: int = levels.TRANSACTIONS) -> None:
        self.world = World(1)
        if level > levels.FIRST:
            self.world.image._features[levels.FEATURE] = level
        self.world.create("orders", *[assignment(1)] * 3)
        self.world.accept(CreateTopic(some_id(9), "__consumer_offsets", (assignment(1),), {}, 0, internal=True))
        self.transactions = Coordinator(code)
        self.clock = ManualClock()
        self.is_fenced = False
        image = self.world.image
        self.services = SimpleNamespace(
            authorizer=None,
            image=image,
            store=SimpleNamespace(image=image, is_shared=False),
            clock=self.clock,
            transactions=self.transactions,
            joining=self.transactions,
            groups=SimpleNamespace(offsets=SimpleNamespace(stage=self.transactions.stage)),
            coordinators=SimpleNamespace(node_of=lambda _: 1, stands_alone=False),
            transaction_coordinators=SimpleNamespace(node_of=lambda _: 1, stands_alone=False),
            is_fenced=lambda: self.is_fenced,
            is_gone=lambda _: False,
            producer_ids=SimpleNamespace(next=self._next_id),
            producer_id_allowances=ClientAllowances(PRODUCER_IDS_PER_CLIENT_MAX, 100.0),
        )

    async def _next_id(self) -> int:
        return 100

    def begin(self, *groups: str) -> Transaction:
        """Open a transaction of transactional id `t` (producer 7, epoch 2) with the groups."""
        self.world.accept(InitTransaction("t", NOT_SEEN, 7, 2, 60_000, 0))
        seen = self.world.image.transactions["t"].index
        self.world.accept(AddToTransaction("t", seen, (), groups, 0))
        return self.world.image.transactions["t"]

    def partition(self, index: int, topic: str = "orders") -> TransactionPartition:
        return TransactionPartition(self.world.image.topics[topic].id, index)

    def ask(self, request: Request, version: int, kind: type[R]) -> R:
        """Handle the request, and return its response after encoding and decoding it in that version."""
        key = request.__schema__.api_key
        context = Context(version, "test", Peer("127.0.0.1", 1, 1))

        async def answered() -> Response:
            response = await HANDLERS[key].handle(cast(Services, self.services), request, context)
            assert isinstance(response, Response)
            return response

        frame = b"".join(encode_response(1, version, asyncio.run(answered())))
        _, response = decode_response(key, version, memoryview(frame)[4:])
        assert isinstance(response, kind)
        return response
