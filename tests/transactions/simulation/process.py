"""A simulated node with group and transaction coordinators, and the request handlers of transactions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, cast

from chronik.api.shared.context import RequestContext, Services
from chronik.broker.requests.fetch_sessions import FetchSessionCache
from chronik.broker.requests.producer_ids import ProducerIdAllocator
from chronik.configs.resolver import ConfigResolver
from chronik.coordination.host import CoordinatorTerms
from chronik.groups.coordinator import GroupCoordinator
from chronik.metadata.commands.cluster import AllocateProducerIds
from chronik.metadata.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from chronik.protocol.schema import Request, Response
from chronik.request_reply import ConnectedClient, UnsentByteCounter
from chronik.scheduler import Scheduler
from chronik.transactions.config import TransactionConfig
from chronik.transactions.coordinator import (
    TransactionComponents,
    TransactionCoordinator,
    TransactionJoiner,
    build_transaction_components,
)
from chronik.transactions.peer_calls import TransactionPeerCalls
from tests.replication.host import Process, ProduceServices

R = TypeVar("R", bound=Response)


class Handler(Protocol):
    def __call__(self, services: Services, request: Any, context: RequestContext) -> Any: ...


@dataclass
class TransactionServices(ProduceServices):
    """The services of a node that the handlers of these requests need."""

    configs: ConfigResolver
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    transaction_joiner: TransactionJoiner
    coordinators: CoordinatorTerms
    transaction_coordinators: CoordinatorTerms
    producer_ids: ProducerIdAllocator
    fetch_sessions: FetchSessionCache = field(default_factory=lambda: FetchSessionCache(10))
    outbox: UnsentByteCounter = field(default_factory=UnsentByteCounter)
    may_be_replaced: Callable[[], bool] = lambda: False
    scheduler: Scheduler = field(default_factory=Scheduler)


class TransactionalProcess(Process):
    """A simulated node process with coordinators."""

    config = TransactionConfig()
    is_self_fenced = False
    """Whether the node gets no heartbeat responses. Its term continues if it is reconnected in time."""

    @property
    def is_fenced(self) -> bool:
        return self.is_self_fenced or super().is_fenced

    def fence_itself(self, seconds: float) -> None:
        """Fence the node for a while, as `Registration` does, and fail requests that wait for followers."""
        if self.is_booted:
            self.is_self_fenced = True
            self.replicas.fail_waiters()
            self.loop.call_later(seconds, setattr, self, "is_self_fenced", False)

    def boot(self, static: dict[str, str], incarnation: bytes) -> None:
        super().boot(static, incarnation)
        self._producer_ids = ProducerIdAllocator(self._allocate_producer_ids)
        self._transaction_coordinators = CoordinatorTerms(self.store, self.host.id, TRANSACTIONS_TOPIC)
        parts = self._make_transactions()
        self._services = cast(Services, self._parts(parts))
        self.groups = self._services.groups
        for coordinator in (self.groups, parts.coordinator):
            self._supervise(coordinator.start())
            self.store.subscribe(coordinator.on_delta)

    def _make_transactions(self) -> TransactionComponents:
        calls = TransactionPeerCalls(self.calls)
        parts = build_transaction_components(
            self.host.id,
            self.store,
            self.replicas,
            self.host.clock,
            self._transaction_coordinators,
            self.config,
            self._producer_ids.allocate,
            calls,
            is_fenced=lambda: self.is_fenced,
            on_fatal=self.loop.failures.append,
        )
        calls.serve(parts.appender, parts.joiner)
        return parts

    def _parts(self, parts: TransactionComponents) -> TransactionServices:
        coordinators = CoordinatorTerms(self.store, self.host.id, OFFSETS_TOPIC)
        groups = GroupCoordinator(
            self.store,
            self.host.clock,
            on_fatal=self.loop.failures.append,
            owns=coordinators.find_owned_term,
            is_fenced=lambda: self.is_fenced,
        )
        return TransactionServices(
            **vars(self._parts_for_produce()),
            configs=self.configs,
            groups=groups,
            transactions=parts.coordinator,
            transaction_joiner=parts.joiner,
            coordinators=coordinators,
            transaction_coordinators=self._transaction_coordinators,
            producer_ids=self._producer_ids,
        )

    async def _allocate_producer_ids(self, count: int) -> int:
        result = await self.store.propose(AllocateProducerIds(self.host.id, self.epoch, count))
        return result.value

    async def handle_request(self, handler: Handler, request: Request, version: int, kind: type[R]) -> R:
        """Return the response that a client gets for a request."""
        outcome = handler(self._services, request, RequestContext(version, "client", ConnectedClient("host", 1, 1)))
        if isinstance(outcome, Awaitable):
            outcome = await outcome
        assert isinstance(outcome, kind)
        return outcome
