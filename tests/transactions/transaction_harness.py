"""A test bench for one transaction state machine: the test decides when the store applies its changes."""

from __future__ import annotations

from collections.abc import Sequence

from chronik.coordination.machine import (
    DeadlineCheckDue,
    ExecuteAction,
    Instruction,
    StateMachineEvent,
    StateMachineReply,
    StateStored,
    StateStoreFailed,
    StoreState,
    Unload,
)
from chronik.metadata.commands.transactions import TransactionPartition
from chronik.metadata.records import Transaction
from chronik.protocol.errors import ErrorCode
from chronik.transactions.config import COMPLETION_DELAY_MS
from chronik.transactions.decisions import (
    AddToTransactionRequested,
    EndTransactionRequested,
    InitProducerRequested,
    MarkersWritten,
    TransactionRequested,
    TransactionResult,
)
from chronik.transactions.machine import TransactionMachine, WriteMarkersAction
from tests.metadata.metadata_world import MetadataWorld, build_assignment

ID = "pay"
TIMEOUT_MS = 60_000
FRESH = 100


class TransactionHarness:
    """A transaction state machine with an image and manual time."""

    def __init__(self) -> None:
        self.world = MetadataWorld(1)
        self.world.create("orders", *[build_assignment(1)] * 3)
        self.now_ms = 1_000
        self.answers: dict[int, TransactionResult] = {}
        self.stores: list[StoreState] = []
        self.markers: list[Transaction] = []
        self.is_unloaded = False
        self._waiter = 0
        self._fresh = FRESH
        self.machine = self.load_machine()

    @property
    def current_transaction(self) -> Transaction | None:
        return self.world.image.transactions.get(ID)

    @property
    def transaction(self) -> Transaction:
        assert self.current_transaction is not None
        return self.current_transaction

    def load_machine(self) -> TransactionMachine:
        """Load the machine as a new coordinator does."""
        deadline = (
            self.now_ms + TIMEOUT_MS
            if self.current_transaction is not None and self.current_transaction.state.name == "ONGOING"
            else None
        )
        self.machine = TransactionMachine(ID, 3, lambda: self.current_transaction, self.now_ms, deadline)
        self.is_unloaded = False
        self.stores = []
        return self.machine

    # --- the host ---

    def handle_event(self, event: StateMachineEvent) -> None:
        if self.is_unloaded:
            self.load_machine()
        self._execute(self.machine.handle(event))

    def _execute(self, instructions: Sequence[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case StateMachineReply(waiter, answer):
                    assert waiter not in self.answers
                    assert isinstance(answer, TransactionResult)
                    self.answers[waiter] = answer
                case StoreState():
                    self.stores.append(instruction)
                case ExecuteAction(what):
                    assert isinstance(what, WriteMarkersAction)
                    self.markers.append(what.transaction)
                case Unload():
                    self.is_unloaded = True

    def apply(self) -> None:
        """Apply the pending change."""
        (store,), self.stores = self.stores, []
        result = self.world.apply(store.change.to_command(-1, self.now_ms))
        if result.code is ErrorCode.NONE:
            self.handle_event(StateStored(self.now_ms, store.ticket))
        else:
            self.handle_event(StateStoreFailed(self.now_ms, store.ticket, result.code))

    def fail(self, error: ErrorCode) -> None:
        (store,), self.stores = self.stores, []
        self.handle_event(StateStoreFailed(self.now_ms, store.ticket, error))

    def complete_all(self) -> None:
        """Apply all pending changes, write markers and complete the transaction."""
        while self.stores or self.markers or self._is_completed_soon():
            if self.stores:
                self.apply()
            elif self.markers:
                self.write_markers()

    def _is_completed_soon(self) -> bool:
        if self.current_transaction is not None and self.current_transaction.state.is_prepared:
            self.advance_time(COMPLETION_DELAY_MS)
        return bool(self.stores)

    def write_markers(self) -> None:
        marked = self.markers.pop(0)
        self.handle_event(MarkersWritten(self.now_ms, marked.index))

    def advance_time(self, milliseconds: int) -> None:
        """Advance the time and wake the machine whenever it requests it."""
        until = self.now_ms + milliseconds
        while not self.is_unloaded and (due := self.machine.wake_at_ms) is not None and due <= until:
            before = (self.now_ms, due, len(self.stores), len(self.markers), len(self.answers))
            self.now_ms = max(self.now_ms, due)
            self.handle_event(DeadlineCheckDue(self.now_ms))
            after = (self.now_ms, self.machine.wake_at_ms, len(self.stores), len(self.markers), len(self.answers))
            assert before != after, "the machine requests wake-ups without effect in a loop"
        self.now_ms = until

    # --- client requests ---

    def request(self, request_type: type[TransactionRequested], *about: object, **named: object) -> int:
        self._waiter += 1
        self.handle_event(request_type(self.now_ms, self._waiter, *about, **named))  # type: ignore[arg-type]
        return self._waiter

    def begin_init(self, producer_id: int = -1, epoch: int = -1, *, fresh: bool = True) -> int:
        self._fresh += 1
        return self.request(InitProducerRequested, TIMEOUT_MS, producer_id, epoch, self._fresh if fresh else -1)

    def begin_add(self, epoch: int, *indexes: int, producer_id: int | None = None, groups: tuple[str, ...] = ()) -> int:
        return self.request(AddToTransactionRequested, self._id(producer_id), epoch, self.partitions(*indexes), groups)

    def begin_end(
        self, epoch: int, *, commit: bool = True, bump: bool = False, producer_id: int | None = None, fresh: int = -1
    ) -> int:
        return self.request(EndTransactionRequested, self._id(producer_id), epoch, commit, bump, fresh)

    def init(self, producer_id: int = -1, epoch: int = -1, *, fresh: bool = True) -> TransactionResult:
        return self._result_of(self.begin_init(producer_id, epoch, fresh=fresh))

    def add(self, epoch: int, *indexes: int, producer_id: int | None = None, groups: tuple[str, ...] = ()) -> ErrorCode:
        return self._result_of(self.begin_add(epoch, *indexes, producer_id=producer_id, groups=groups)).error

    def end(
        self, epoch: int, *, commit: bool = True, bump: bool = False, producer_id: int | None = None, fresh: int = -1
    ) -> TransactionResult:
        return self._result_of(self.begin_end(epoch, commit=commit, bump=bump, producer_id=producer_id, fresh=fresh))

    def _result_of(self, waiter: int) -> TransactionResult:
        self.complete_all()
        return self.answers[waiter]

    def _id(self, producer_id: int | None) -> int:
        return self.transaction.producer_id if producer_id is None else producer_id

    def partitions(self, *indexes: int) -> tuple[TransactionPartition, ...]:
        topic_id = self.world.image.topics["orders"].id
        return tuple(TransactionPartition(topic_id, index) for index in indexes)
