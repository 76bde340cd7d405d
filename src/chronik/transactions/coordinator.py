"""The transaction coordinator of a node, called by the handlers of Kafka's transaction APIs and by other nodes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from chronik.broker.replica_manager import ReplicaManager
from chronik.clock import Clock
from chronik.coordination.coordinator import StateMachineCoordinator
from chronik.coordination.host import STANDALONE_TERM, CoordinatorTerm, CoordinatorTerms
from chronik.coordination.proposals import CoordinatorStore
from chronik.limits import (
    GROUP_ID_CHARACTERS_MAX,
    TRANSACTIONAL_ID_CHARACTERS_MAX,
    TRANSACTIONAL_IDS_PER_CLIENT_MAX,
)
from chronik.metadata.commands.topics import NO_LEADER
from chronik.metadata.commands.transactions import (
    NO_PRODUCER_ID,
    ExpireTransaction,
    ReleaseCommits,
    TransactionPartition,
)
from chronik.metadata.delta import Delta
from chronik.metadata.names import TRANSACTIONS_TOPIC
from chronik.metadata.records import Transaction, TransactionState
from chronik.metadata.stores.store import MetadataStore, StoreClosedError
from chronik.notifier import Notifier
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.security.quotas.token_buckets import ClientKey, ClientRateLimiter
from chronik.transactions.config import TRANSACTION_PARTITIONS_MAX, TRANSACTIONAL_IDS_MAX, TransactionConfig
from chronik.transactions.decisions import (
    AddToTransactionRequested,
    EndTransactionRequested,
    InitProducerRequested,
    MarkersWritten,
    TimeoutRequested,
    TransactionResult,
)
from chronik.transactions.machine import TransactionMachine, WriteMarkersAction
from chronik.transactions.markers import MarkerAppender, MarkerSender
from chronik.transactions.peer_messages import (
    JoinTransactionRequest,
    JoinTransactionResponse,
    TransactionPeers,
    TransactionPeerUnreachable,
)

logger = logging.getLogger("chronik.transactions")

DELTA_TRANSACTIONS_MAX: Final = 10
"""Maximum number of changed transactions in a delta that are handled individually. Above it, all transactions are
checked."""


COMMIT_HOLD_SECONDS_MAX: Final = 10.0
"""Maximum time in seconds for which a backup may block transaction commits. It reads log end offsets in well under a
second."""

JOIN_TIMEOUT_SECONDS: Final = 6.0
"""Timeout in seconds for adding partitions to a transaction, longer than a coordinator waits for pending markers."""


class MarkerTransport(Protocol):
    """A component that writes transaction markers to partitions."""

    async def send(self, transaction: Transaction, coordinator_epoch: int, should_continue: Callable[[], bool]) -> None:
        """Write a marker to every partition. Stop early if `should_continue` returns False."""


class TransactionMachineKind:
    """The loader of transaction state machines, which creates them from the metadata image."""

    name: Final = "transaction"

    def __init__(self, store: CoordinatorStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    @property
    def stored_keys(self) -> Collection[str]:
        """All transactional ids in the metadata image."""
        return self._store.image.transactions

    def load(self, key: str, epoch: int, now_ms: int) -> TransactionMachine | None:
        """Create the state machine of a stored transactional id. An open transaction keeps its remaining timeout."""
        stored = self._store.image.transactions.get(key)
        if stored is None:
            return None
        deadline_ms = None
        if stored.state is TransactionState.ONGOING:
            remaining_ms = stored.began_ms + stored.timeout_ms - self._clock.now_ms()
            deadline_ms = now_ms + min(max(remaining_ms, 0), stored.timeout_ms)
        return self.create_machine(key, epoch, now_ms, deadline_ms)

    def create_machine(self, key: str, epoch: int, now_ms: int, deadline_ms: int | None = None) -> TransactionMachine:
        """Create the state machine of a transactional id."""
        return TransactionMachine(key, epoch, lambda: self._store.image.transactions.get(key), now_ms, deadline_ms)

    def may_have_timers(self, key: str) -> bool:
        """Return whether the transaction is open and may time out, or has transaction markers to be written."""
        stored = self._store.image.transactions.get(key)
        return stored is not None and not stored.state.is_idle


class TransactionCoordinator(StateMachineCoordinator[TransactionMachine]):
    """The transaction coordinator of a node."""

    def __init__(
        self,
        store: CoordinatorStore,
        clock: Clock,
        new_producer_id: Callable[[], Awaitable[int]],
        markers: MarkerTransport,
        config: TransactionConfig | None = None,
        on_fatal: Callable[[BaseException], None] | None = None,
        owns: Callable[[str], CoordinatorTerm | None] = lambda key: STANDALONE_TERM,
        is_fenced: Callable[[], bool] = lambda: False,
    ) -> None:
        self._store = store
        self._clock = clock
        self._new_producer_id = new_producer_id
        self._markers = markers
        self._config = config or TransactionConfig()
        self._transactions = TransactionMachineKind(store, clock)
        self._new_id_quota = ClientRateLimiter(TRANSACTIONAL_IDS_PER_CLIENT_MAX, self._config.expiration_ms / 1000)
        self._marker_tasks: set[asyncio.Task[None]] = set()
        self._observed_hold = 0, 0.0
        """Log index of the latest hold on transaction commits, and the time at which this node first observed it."""
        self.changes: Final = Notifier()
        """Notifier for changes of all transactions in the metadata image, including those of other coordinators."""
        super().__init__(self._transactions, TRANSACTIONS_TOPIC, store, clock, owns, is_fenced, on_fatal)

    def jobs(self) -> list[Coroutine[None, None, None]]:
        return [*super().jobs(), self._expire_ids_periodically()]

    async def close(self) -> None:
        for task in self._marker_tasks:
            task.cancel()
        await super().close()

    # --- requests of producers ---

    async def init_producer(
        self,
        transactional_id: str,
        timeout_ms: int,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_ID,
        client: ClientKey | None = None,
    ) -> TransactionResult:
        """Return the producer id and the next epoch for a transactional id (InitProducerId).

        `client` is charged for a new transactional id. Returns INVALID_REQUEST for a new id that is too long, and
        POLICY_VIOLATION if the cluster or the client has too many. Existing ids of any length are accepted, because an
        earlier version may have stored them.
        """
        if not 0 < timeout_ms <= self._config.timeout_ms_max:
            return TransactionResult(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        if transactional_id not in self._store.image.transactions:
            error_code = self._check_new_transactional_id(transactional_id, client)
            if error_code is not None:
                return TransactionResult(error_code)

        async def ask(fresh: int) -> TransactionResult:
            machine = self._find(transactional_id, may_be_new=True)
            if isinstance(machine, ErrorCode):
                return TransactionResult(machine)
            return await self._host.request(
                machine,
                TransactionResult,
                InitProducerRequested,
                timeout_ms,
                producer_id,
                producer_epoch,
                fresh_producer_id=fresh,
            )

        return await self._run_with_producer_id(ask)

    def _check_new_transactional_id(self, transactional_id: str, client: ClientKey | None) -> ErrorCode | None:
        if len(transactional_id) > TRANSACTIONAL_ID_CHARACTERS_MAX:
            return ErrorCode.INVALID_REQUEST
        term = self._host.check_ownership(transactional_id)
        if isinstance(term, ErrorCode):
            return term
        if len(self._store.image.transactions) >= TRANSACTIONAL_IDS_MAX:
            logger.warning(
                "transactional id %r rejected: the cluster has the maximum of %d ids; lower "
                "transactional.id.expiration.ms to remove unused ids sooner",
                transactional_id,
                TRANSACTIONAL_IDS_MAX,
            )
            return ErrorCode.POLICY_VIOLATION
        if client is not None and not self._new_id_quota.try_acquire(client, self._clock.monotonic()):
            logger.warning(
                "transactional id %r rejected: client quota exceeded principal=%s host=%s; the client has created "
                "%d ids within transactional.id.expiration.ms",
                transactional_id,
                *client,
                TRANSACTIONAL_IDS_PER_CLIENT_MAX,
            )
            return ErrorCode.POLICY_VIOLATION
        return None

    async def add_to_transaction(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TransactionPartition] = (),
        groups: Sequence[str] = (),
    ) -> ErrorCode:
        """Add partitions and groups to the producer's transaction (AddPartitionsToTxn, AddOffsetsToTxn)."""
        machine = self._find(transactional_id)
        if isinstance(machine, ErrorCode):
            return machine
        image = self._store.image
        if any(len(group) > GROUP_ID_CHARACTERS_MAX and group not in image.groups for group in groups):
            return ErrorCode.INVALID_GROUP_ID
        if partitions and self._store.image.transaction_partition_count + len(partitions) > TRANSACTION_PARTITIONS_MAX:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        given = await self._host.request(
            machine,
            TransactionResult,
            AddToTransactionRequested,
            producer_id,
            producer_epoch,
            tuple(partitions),
            tuple(groups),
        )
        return given.error

    async def end_transaction(
        self, transactional_id: str, producer_id: int, producer_epoch: int, *, commit: bool, bump_epoch: bool
    ) -> TransactionResult:
        """Commit or abort the producer's transaction (EndTxn)."""
        if commit and self._store.image.commit_hold_index:
            await self._release_expired_hold(self._store.image.commit_hold_index)
            return TransactionResult(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)  # producers retry on this error

        async def ask(fresh: int) -> TransactionResult:
            machine = self._find(transactional_id)
            if isinstance(machine, ErrorCode):
                return TransactionResult(machine)
            return await self._host.request(
                machine,
                TransactionResult,
                EndTransactionRequested,
                producer_id,
                producer_epoch,
                commit,
                bump_epoch,
                fresh_producer_id=fresh,
            )

        return await self._run_with_producer_id(ask)

    async def _release_expired_hold(self, hold: int) -> None:
        """Release a commit hold that exceeds the maximum duration, because its backup was interrupted."""
        now = self._clock.monotonic()
        if self._observed_hold[0] != hold:
            self._observed_hold = hold, now
        elif now - self._observed_hold[1] > COMMIT_HOLD_SECONDS_MAX:
            with contextlib.suppress(KafkaError):
                await self._store.propose(ReleaseCommits(hold))

    async def _run_with_producer_id(self, ask: Callable[[int], Awaitable[TransactionResult]]) -> TransactionResult:
        """Run a producer's request. If it needs a new producer id, allocate one and run the request again."""
        given = await ask(NO_PRODUCER_ID)
        if not given.needs_producer_id:
            return given
        try:
            fresh = await self._new_producer_id()
        except KafkaError:
            return TransactionResult(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)  # no quorum: producers retry on this error
        return await ask(fresh)

    def _find(self, transactional_id: str, *, may_be_new: bool = False) -> TransactionMachine | ErrorCode:
        """Return the state machine of a transactional id, or an error if this node is not its coordinator."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        term = self._host.check_ownership(transactional_id)
        if isinstance(term, ErrorCode):
            return term
        machine = self._host.get(transactional_id, term)
        if machine is None and may_be_new:
            machine = self._transactions.create_machine(transactional_id, term.epoch, self._host.now_ms())
            self._host.add(machine)
        return machine or ErrorCode.INVALID_PRODUCER_ID_MAPPING

    # --- requests of brokers and administrators ---

    def verify_partitions(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Sequence[TransactionPartition]
    ) -> dict[TransactionPartition, ErrorCode]:
        """Check for each partition whether it is part of the producer's open transaction."""
        transaction = self.describe_transaction(transactional_id)
        if isinstance(transaction, ErrorCode):
            is_missing = transaction is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            error_code = ErrorCode.INVALID_PRODUCER_ID_MAPPING if is_missing else transaction
            return dict.fromkeys(partitions, error_code)
        if producer_id != transaction.producer_id:
            return dict.fromkeys(partitions, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if producer_epoch != transaction.producer_epoch:
            return dict.fromkeys(partitions, ErrorCode.PRODUCER_FENCED)
        if transaction.state.is_prepared:
            return dict.fromkeys(partitions, ErrorCode.CONCURRENT_TRANSACTIONS)
        open_partitions = set(transaction.partitions)
        return {
            each: ErrorCode.NONE if each in open_partitions else ErrorCode.TRANSACTION_ABORTABLE for each in partitions
        }

    def describe_transaction(self, transactional_id: str) -> Transaction | ErrorCode:
        """Return the transaction of a transactional id that this node coordinates, or an error."""
        term = self._host.check_ownership(transactional_id)
        if isinstance(term, ErrorCode):
            return term
        return self._store.image.transactions.get(transactional_id) or ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

    def iterate_transactions(self) -> Iterator[Transaction | None]:
        """Yield the transactions coordinated by this node, and None for each other one so that the caller can pause."""
        for transactional_id in list(self._store.image.transactions):
            found = self.describe_transaction(transactional_id)
            yield None if isinstance(found, ErrorCode) else found

    def time_out_transaction(self, transactional_id: str) -> ErrorCode:
        """Abort an open transaction as if its timeout had expired."""
        transaction = self.describe_transaction(transactional_id)
        if isinstance(transaction, ErrorCode):
            return transaction
        machine = self._find(transactional_id)
        if isinstance(machine, ErrorCode):
            return machine
        if transaction.state is not TransactionState.ONGOING:
            return ErrorCode.INVALID_TXN_STATE
        self._host.handle_event(machine, TimeoutRequested(self._host.now_ms()))
        return ErrorCode.NONE

    # --- changes of the image ---

    def on_delta(self, delta: Delta) -> None:
        """Process transactions changed by a metadata delta, even by a command whose outcome was unknown.

        Such a transaction may need a timeout or markers, and its producer may never send another request.
        """
        super().on_delta(delta)
        if delta.transactions:
            self.changes.notify()
        if len(delta.transactions) > DELTA_TRANSACTIONS_MAX:
            self.schedule_check()
            return
        for change in delta.transactions:
            if change.new is not None and not change.new.state.is_idle:
                self._wake_or_load_machine(change.new.transactional_id)

    def _wake_or_load_machine(self, transactional_id: str) -> None:
        """Wake the transaction's state machine; if there is none and this node is the coordinator, load it."""
        machine = self._host.get_hosted_machine(transactional_id)
        if machine is not None:
            self._host.wake(machine)
            return
        term = self._host.check_ownership(transactional_id)
        if not isinstance(term, ErrorCode):
            self._host.get(transactional_id, term)
        elif term is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            self._host.has_machines_to_load = True

    # --- actions of state machines ---

    def execute_instruction(self, machine: TransactionMachine, what: object) -> None:
        assert isinstance(what, WriteMarkersAction)
        task = asyncio.get_running_loop().create_task(self._send_markers(machine, what.transaction))
        self._marker_tasks.add(task)
        task.add_done_callback(self._on_markers_sent)

    async def _send_markers(self, machine: TransactionMachine, transaction: Transaction) -> None:
        await self._markers.send(transaction, machine.epoch, lambda: self._host.is_term_running(machine))
        if self._host.is_term_running(machine):
            self._host.handle_event(machine, MarkersWritten(self._host.now_ms(), transaction.index))
        else:  # unload the machine, which waits for the markers: if this node was fenced briefly, it is loaded again
            self._host.unload(machine)

    def _on_markers_sent(self, task: asyncio.Task[None]) -> None:
        self._marker_tasks.discard(task)
        self._on_task_done(task)

    # --- expiry ---

    async def _expire_ids_periodically(self) -> None:
        while True:
            await asyncio.sleep(self._config.expiration_check_interval_ms / 1000)
            await self.expire_transactional_ids()

    async def expire_transactional_ids(self) -> None:
        """Delete the transactional ids that have not been used for `transactional.id.expiration.ms`."""
        for transactional_id in list(self._store.image.transactions):
            await asyncio.sleep(0)
            term = self._host.check_ownership(transactional_id)
            stored = self._store.image.transactions.get(transactional_id)
            if isinstance(term, ErrorCode) or stored is None or not stored.state.is_idle:
                continue
            if self._clock.now_ms() - stored.time_ms >= self._config.expiration_ms:
                command = ExpireTransaction(transactional_id, stored.index, term.epoch)
                await self._proposals.propose(transactional_id, command)


class TransactionJoiner:
    """A client of the transaction coordinators that adds this node's partitions and groups to transactions.

    A partition leader or group coordinator asks the transaction coordinator to add it to the transaction, on behalf of
    the producer, and continues when its own image shows the addition.
    """

    def __init__(
        self,
        node_id: int,
        store: MetadataStore,
        coordinators: CoordinatorTerms,
        local_coordinator: TransactionCoordinator,
        peers: TransactionPeers,
    ) -> None:
        self._node_id = node_id
        self._store = store
        self._coordinators = coordinators
        self._local_coordinator = local_coordinator
        self._peers = peers

    async def join(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TransactionPartition] = (),
        groups: Sequence[str] = (),
    ) -> ErrorCode:
        """Add partitions and groups to a transaction. Return NONE when the local image durably contains them."""
        request = JoinTransactionRequest(
            transactional_id, producer_id, producer_epoch, tuple(partitions), tuple(groups)
        )
        try:
            joined = await self._ask(request)
            if joined.error == ErrorCode.NONE:
                await self._store.wait_durable(joined.applied_index, JOIN_TIMEOUT_SECONDS)
        except (TransactionPeerUnreachable, KafkaError, StoreClosedError):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode(joined.error)

    async def _ask(self, request: JoinTransactionRequest) -> JoinTransactionResponse:
        node_id = self._coordinators.coordinator_of(request.transactional_id)
        if node_id == self._node_id:
            return await self.serve(node_id, request)
        if node_id == NO_LEADER:
            return JoinTransactionResponse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return await self._peers.join(node_id, request, JOIN_TIMEOUT_SECONDS)

    async def serve(self, peer: int, request: JoinTransactionRequest) -> JoinTransactionResponse:
        """Handle another node's request to add partitions or groups to a transaction that this node coordinates."""
        error = await self._local_coordinator.add_to_transaction(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            request.partitions,
            request.groups,
        )
        return JoinTransactionResponse(error, self._store.image.applied_index)


class TransactionComponents(NamedTuple):
    """The components of a node that take part in transactions."""

    coordinator: TransactionCoordinator
    appender: MarkerAppender
    joiner: TransactionJoiner


def build_transaction_components(
    node_id: int,
    store: MetadataStore,
    replicas: ReplicaManager,
    clock: Clock,
    coordinators: CoordinatorTerms,
    config: TransactionConfig,
    new_producer_id: Callable[[], Awaitable[int]],
    peers: TransactionPeers,
    is_fenced: Callable[[], bool],
    on_fatal: Callable[[BaseException], None],
) -> TransactionComponents:
    """Create the transaction components of a node."""
    appender = MarkerAppender(store, replicas, clock, is_fenced)
    coordinator = TransactionCoordinator(
        store,
        clock,
        new_producer_id,
        MarkerSender(node_id, store, appender, peers),
        config,
        on_fatal,
        coordinators.find_owned_term,
        is_fenced,
    )
    return TransactionComponents(
        coordinator, appender, TransactionJoiner(node_id, store, coordinators, coordinator, peers)
    )
