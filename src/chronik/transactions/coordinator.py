"""The transaction coordinator of a node: what the handlers of Kafka's transaction APIs call."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Sequence
from typing import Final, Protocol

from chronik.broker.requests.client_allowances import Client, ClientAllowances
from chronik.clock import Clock
from chronik.coordination.coordinator import Coordinator
from chronik.coordination.proposals import ImageStore
from chronik.coordination.tenure import ALONE, Tenure
from chronik.limits import (
    GROUP_ID_CHARACTERS_MAX,
    TRANSACTIONAL_ID_CHARACTERS_MAX,
    TRANSACTIONAL_IDS_PER_CLIENT_MAX,
)
from chronik.metadata.commands.transactions import NO_PRODUCER, ExpireTransaction, ReleaseCommits, TransactionPartition
from chronik.metadata.delta import Delta
from chronik.metadata.names import TRANSACTIONS_TOPIC
from chronik.metadata.records import Transaction, TransactionState
from chronik.news import News
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.transactions.config import PARTITIONS_MAX, TRANSACTIONAL_IDS_MAX, TransactionConfig
from chronik.transactions.events import AddAsked, EndAsked, Given, InitAsked, MarkersWritten, TimeIsUp
from chronik.transactions.machine import TransactionMachine, WriteMarkers

logger = logging.getLogger("chronik.transactions")

CHANGES_AT_ONCE_MAX: Final = 10
"""Transactions that one command changes, at most, but for a topic's deletion: with more, all are looked through."""


COMMITS_HELD_SECONDS_MAX: Final = 10.0
"""A backup holds commits back for as long as it takes to ask all leaders where their logs end: well below a second."""


class SendsMarkers(Protocol):
    async def send(self, transaction: Transaction, coordinator_epoch: int, goes_on: Callable[[], bool]) -> None:
        """Returns when all partitions have their marker, or `goes_on` says no."""


class StoredTransactions:
    """The transactional ids of the image."""

    name: Final = "transaction"

    def __init__(self, store: ImageStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    @property
    def stored(self) -> Collection[str]:
        return self._store.image.transactions

    def load(self, key: str, epoch: int, now_ms: int) -> TransactionMachine | None:
        """An open transaction has the rest of its time: others see when it began."""
        stored = self._store.image.transactions.get(key)
        if stored is None:
            return None
        deadline_ms = None
        if stored.state is TransactionState.ONGOING:
            left_ms = stored.began_ms + stored.timeout_ms - self._clock.now_ms()
            deadline_ms = now_ms + min(max(left_ms, 0), stored.timeout_ms)
        return self.make(key, epoch, now_ms, deadline_ms)

    def make(self, key: str, epoch: int, now_ms: int, deadline_ms: int | None = None) -> TransactionMachine:
        return TransactionMachine(key, epoch, lambda: self._store.image.transactions.get(key), now_ms, deadline_ms)

    def acts_by_itself(self, key: str) -> bool:
        """Whether a transaction is open, which may have to be aborted, or markers have to be written."""
        stored = self._store.image.transactions.get(key)
        return stored is not None and not stored.state.is_at_rest


class TransactionCoordinator(Coordinator[TransactionMachine]):
    def __init__(
        self,
        store: ImageStore,
        clock: Clock,
        new_producer_id: Callable[[], Awaitable[int]],
        markers: SendsMarkers,
        config: TransactionConfig | None = None,
        on_fatal: Callable[[BaseException], None] | None = None,
        owns: Callable[[str], Tenure | None] = lambda key: ALONE,
        is_fenced: Callable[[], bool] = lambda: False,
    ) -> None:
        self._store = store
        self._clock = clock
        self._new_producer_id = new_producer_id
        self._markers = markers
        self._config = config or TransactionConfig()
        self._transactions = StoredTransactions(store, clock)
        self._new_ids = ClientAllowances(TRANSACTIONAL_IDS_PER_CLIENT_MAX, self._config.expiration_ms / 1000)
        self._sending: set[asyncio.Task[None]] = set()
        self._hold_seen = 0, 0.0
        """The hold of commits that was last met here, and when it was first met."""
        self.changes: Final = News()
        """Of all transactions in the image, whoever coordinates them."""
        super().__init__(self._transactions, TRANSACTIONS_TOPIC, store, clock, owns, is_fenced, on_fatal)

    def jobs(self) -> list[Coroutine[None, None, None]]:
        return [*super().jobs(), self._expire_forever()]

    async def close(self) -> None:
        for task in self._sending:
            task.cancel()
        await super().close()

    # --- what producers ask ---

    async def init(
        self,
        transactional_id: str,
        timeout_ms: int,
        producer_id: int = NO_PRODUCER,
        producer_epoch: int = NO_PRODUCER,
        client: Client | None = None,
    ) -> Given:
        """Give the producer of a transactional id its producer id and the next epoch.

        `client` is charged for a new transactional id. Returns INVALID_REQUEST for a new id that is too long, and
        POLICY_VIOLATION if the cluster or the client has too many. Ids that exist are always accepted, however long
        they are: an earlier version may have stored them.
        """
        if not 0 < timeout_ms <= self._config.timeout_ms_max:
            return Given(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        if transactional_id not in self._store.image.transactions:
            refusal = self._refusal_of_new_id(transactional_id, client)
            if refusal is not None:
                return Given(refusal)

        async def ask(fresh: int) -> Given:
            machine = self._find(transactional_id, may_be_new=True)
            if isinstance(machine, ErrorCode):
                return Given(machine)
            return await self._custody.ask(
                machine, Given, InitAsked, timeout_ms, producer_id, producer_epoch, fresh_producer_id=fresh
            )

        return await self._with_producer_id(ask)

    def _refusal_of_new_id(self, transactional_id: str, client: Client | None) -> ErrorCode | None:
        if len(transactional_id) > TRANSACTIONAL_ID_CHARACTERS_MAX:
            return ErrorCode.INVALID_REQUEST
        tenure = self._custody.claim(transactional_id)
        if isinstance(tenure, ErrorCode):
            return tenure
        if len(self._store.image.transactions) >= TRANSACTIONAL_IDS_MAX:
            logger.warning(
                "transactional id %r rejected: the cluster has %d already; lower transactional.id.expiration.ms to "
                "remove unused ones sooner",
                transactional_id,
                TRANSACTIONAL_IDS_MAX,
            )
            return ErrorCode.POLICY_VIOLATION
        if client is not None and not self._new_ids.take(client, self._clock.monotonic()):
            logger.warning(
                "transactional id %r rejected: principal=%s host=%s created %d within transactional.id.expiration.ms",
                transactional_id,
                *client,
                TRANSACTIONAL_IDS_PER_CLIENT_MAX,
            )
            return ErrorCode.POLICY_VIOLATION
        return None

    async def add(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TransactionPartition] = (),
        groups: Sequence[str] = (),
    ) -> ErrorCode:
        machine = self._find(transactional_id)
        if isinstance(machine, ErrorCode):
            return machine
        image = self._store.image
        if any(len(group) > GROUP_ID_CHARACTERS_MAX and group not in image.groups for group in groups):
            return ErrorCode.INVALID_GROUP_ID
        if partitions and self._store.image.transaction_partition_count + len(partitions) > PARTITIONS_MAX:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        given = await self._custody.ask(
            machine, Given, AddAsked, producer_id, producer_epoch, tuple(partitions), tuple(groups)
        )
        return given.error

    async def end(
        self, transactional_id: str, producer_id: int, producer_epoch: int, *, commit: bool, bump: bool
    ) -> Given:
        if commit and self._store.image.commits_hold:
            await self._release_if_forgotten(self._store.image.commits_hold)
            return Given(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)  # producers just ask again

        async def ask(fresh: int) -> Given:
            machine = self._find(transactional_id)
            if isinstance(machine, ErrorCode):
                return Given(machine)
            return await self._custody.ask(
                machine, Given, EndAsked, producer_id, producer_epoch, commit, bump, fresh_producer_id=fresh
            )

        return await self._with_producer_id(ask)

    async def _release_if_forgotten(self, hold: int) -> None:
        """Ends a hold of commits that a backup has left behind, when it is found to be in force for too long."""
        now = self._clock.monotonic()
        if self._hold_seen[0] != hold:
            self._hold_seen = hold, now
        elif now - self._hold_seen[1] > COMMITS_HELD_SECONDS_MAX:
            with contextlib.suppress(KafkaError):
                await self._store.propose(ReleaseCommits(hold))

    async def _with_producer_id(self, ask: Callable[[int], Awaitable[Given]]) -> Given:
        """Gets a producer id that nobody has had when one is needed, which is seldom."""
        given = await ask(NO_PRODUCER)
        if not given.needs_producer_id:
            return given
        try:
            fresh = await self._new_producer_id()
        except KafkaError:
            return Given(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)  # without a quorum: producers just ask again
        return await ask(fresh)

    def _find(self, transactional_id: str, *, may_be_new: bool = False) -> TransactionMachine | ErrorCode:
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        tenure = self._custody.claim(transactional_id)
        if isinstance(tenure, ErrorCode):
            return tenure
        machine = self._custody.get(transactional_id, tenure)
        if machine is None and may_be_new:
            machine = self._transactions.make(transactional_id, tenure.epoch, self._custody.now_ms())
            self._custody.add(machine)
        return machine or ErrorCode.INVALID_PRODUCER_ID_MAPPING

    # --- what others ask ---

    def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Sequence[TransactionPartition]
    ) -> dict[TransactionPartition, ErrorCode]:
        """Says which partitions are part of the producer's open transaction."""
        transaction = self.describe(transactional_id)
        if isinstance(transaction, ErrorCode):
            is_missing = transaction is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            refusal = ErrorCode.INVALID_PRODUCER_ID_MAPPING if is_missing else transaction
            return dict.fromkeys(partitions, refusal)
        if producer_id != transaction.producer_id:
            return dict.fromkeys(partitions, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if producer_epoch != transaction.producer_epoch:
            return dict.fromkeys(partitions, ErrorCode.PRODUCER_FENCED)
        if transaction.state.is_prepared:
            return dict.fromkeys(partitions, ErrorCode.CONCURRENT_TRANSACTIONS)
        open_ones = set(transaction.partitions)
        return {each: ErrorCode.NONE if each in open_ones else ErrorCode.TRANSACTION_ABORTABLE for each in partitions}

    def describe(self, transactional_id: str) -> Transaction | ErrorCode:
        tenure = self._custody.claim(transactional_id)
        if isinstance(tenure, ErrorCode):
            return tenure
        return self._store.image.transactions.get(transactional_id) or ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

    def list_in_steps(self) -> Iterator[Transaction | None]:
        """Yields the transactions that this node coordinates; None for others, so that the caller may pause there."""
        for transactional_id in list(self._store.image.transactions):
            found = self.describe(transactional_id)
            yield None if isinstance(found, ErrorCode) else found

    def time_out(self, transactional_id: str) -> ErrorCode:
        """Ends an open transaction as if it had taken too long."""
        transaction = self.describe(transactional_id)
        if isinstance(transaction, ErrorCode):
            return transaction
        machine = self._find(transactional_id)
        if isinstance(machine, ErrorCode):
            return machine
        if transaction.state is not TransactionState.ONGOING:
            return ErrorCode.INVALID_TXN_STATE
        self._custody.feed(machine, TimeIsUp(self._custody.now_ms()))
        return ErrorCode.NONE

    # --- what the image tells ---

    def follow(self, delta: Delta) -> None:
        """Also sees to transactions that changed by a command whose outcome was not known in time: something in them
        may have become due, and nobody may ever ask for them."""
        super().follow(delta)
        if delta.transactions:
            self.changes.tell()
        if len(delta.transactions) > CHANGES_AT_ONCE_MAX:
            self.look_again()
            return
        for change in delta.transactions:
            if change.new is not None and not change.new.state.is_at_rest:
                self._see_to(change.new.transactional_id)

    def _see_to(self, transactional_id: str) -> None:
        machine = self._custody.in_hand(transactional_id)
        if machine is not None:
            self._custody.wake(machine)
            return
        tenure = self._custody.claim(transactional_id)
        if not isinstance(tenure, ErrorCode):
            self._custody.get(transactional_id, tenure)
        elif tenure is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            self._custody.has_left_some = True

    # --- what machines want done ---

    def act(self, machine: TransactionMachine, what: object) -> None:
        assert isinstance(what, WriteMarkers)
        task = asyncio.get_running_loop().create_task(self._send_markers(machine, what.transaction))
        self._sending.add(task)
        task.add_done_callback(self._sent)

    async def _send_markers(self, machine: TransactionMachine, transaction: Transaction) -> None:
        await self._markers.send(transaction, machine.epoch, lambda: self._custody.holds(machine))
        if self._custody.holds(machine):
            self._custody.feed(machine, MarkersWritten(self._custody.now_ms(), transaction.index))
        else:  # it would wait for them: if this node was only fenced for a moment, the id is taken up anew
            self._custody.let_go(machine)

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        self._task_ended(task)

    # --- expiry ---

    async def _expire_forever(self) -> None:
        while True:
            await asyncio.sleep(self._config.expiration_check_interval_ms / 1000)
            await self.expire()

    async def expire(self) -> None:
        """Goes through all ids once, and forgets those that nobody has used for long."""
        for transactional_id in list(self._store.image.transactions):
            await asyncio.sleep(0)
            tenure = self._custody.claim(transactional_id)
            stored = self._store.image.transactions.get(transactional_id)
            if isinstance(tenure, ErrorCode) or stored is None or not stored.state.is_at_rest:
                continue
            if self._clock.now_ms() - stored.time_ms >= self._config.expiration_ms:
                command = ExpireTransaction(transactional_id, stored.index, tenure.epoch)
                await self._proposals.outcome(transactional_id, command)
