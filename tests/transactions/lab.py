"""A test bench for one transaction state machine: the test decides when the store applies its changes."""

from __future__ import annotations

from collections.abc import Sequence

from chronik.coordination.machine import Act, Event, Forget, Instruction, Reply, Store, Stored, StoreFailed, TimePassed
from chronik.metadata.commands.transactions import TransactionPartition
from chronik.metadata.records import Transaction
from chronik.protocol.errors import ErrorCode
from chronik.transactions.config import COMPLETED_AFTER_MS
from chronik.transactions.events import AddAsked, Asked, EndAsked, Given, InitAsked, MarkersWritten
from chronik.transactions.machine import TransactionMachine, WriteMarkers
from tests.metadata.world import World, assignment

ID = "pay"
TIMEOUT_MS = 60_000
FRESH = 100


class Lab:
    """A transaction state machine with an image and manual time."""

    def __init__(self) -> None:
        self.world = World(1)
        self.world.create("orders", *[assignment(1)] * 3)
        self.now_ms = 1_000
        self.answers: dict[int, Given] = {}
        self.stores: list[Store] = []
        self.markers: list[Transaction] = []
        self.is_forgotten = False
        self._waiter = 0
        self._fresh = FRESH
        self.machine = self.taken_up()

    @property
    def now(self) -> Transaction | None:
        return self.world.image.transactions.get(ID)

    @property
    def transaction(self) -> Transaction:
        assert self.now is not None
        return self.now

    def taken_up(self) -> TransactionMachine:
        """Load the machine as a new coordinator does."""
        deadline = self.now_ms + TIMEOUT_MS if self.now is not None and self.now.state.name == "ONGOING" else None
        self.machine = TransactionMachine(ID, 3, lambda: self.now, self.now_ms, deadline)
        self.is_forgotten = False
        self.stores = []
        return self.machine

    # --- the host ---

    def feed(self, event: Event) -> None:
        if self.is_forgotten:
            self.taken_up()
        self._execute(self.machine.handle(event))

    def _execute(self, instructions: Sequence[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Reply(waiter, answer):
                    assert waiter not in self.answers
                    assert isinstance(answer, Given)
                    self.answers[waiter] = answer
                case Store():
                    self.stores.append(instruction)
                case Act(what):
                    assert isinstance(what, WriteMarkers)
                    self.markers.append(what.transaction)
                case Forget():
                    self.is_forgotten = True

    def apply(self) -> None:
        """Apply the pending change."""
        (store,), self.stores = self.stores, []
        result = self.world.do(store.what.as_command(-1, self.now_ms))
        if result.code is ErrorCode.NONE:
            self.feed(Stored(self.now_ms, store.ticket))
        else:
            self.feed(StoreFailed(self.now_ms, store.ticket, result.code))

    def fail(self, error: ErrorCode) -> None:
        (store,), self.stores = self.stores, []
        self.feed(StoreFailed(self.now_ms, store.ticket, error))

    def settle(self) -> None:
        """Apply all pending changes, write markers and complete the transaction."""
        while self.stores or self.markers or self._is_completed_soon():
            if self.stores:
                self.apply()
            elif self.markers:
                self.mark()

    def _is_completed_soon(self) -> bool:
        if self.now is not None and self.now.state.is_prepared:
            self.pass_time(COMPLETED_AFTER_MS)
        return bool(self.stores)

    def mark(self) -> None:
        marked = self.markers.pop(0)
        self.feed(MarkersWritten(self.now_ms, marked.index))

    def pass_time(self, milliseconds: int) -> None:
        """Advance the time and wake the machine whenever it requests it."""
        until = self.now_ms + milliseconds
        while not self.is_forgotten and (due := self.machine.wake_at_ms) is not None and due <= until:
            before = (self.now_ms, due, len(self.stores), len(self.markers), len(self.answers))
            self.now_ms = max(self.now_ms, due)
            self.feed(TimePassed(self.now_ms))
            after = (self.now_ms, self.machine.wake_at_ms, len(self.stores), len(self.markers), len(self.answers))
            assert before != after, "the machine requests wake-ups without effect in a loop"
        self.now_ms = until

    # --- client requests ---

    def ask(self, request_type: type[Asked], *about: object, **named: object) -> int:
        self._waiter += 1
        self.feed(request_type(self.now_ms, self._waiter, *about, **named))  # type: ignore[arg-type]
        return self._waiter

    def begin_init(self, producer_id: int = -1, epoch: int = -1, *, fresh: bool = True) -> int:
        self._fresh += 1
        return self.ask(InitAsked, TIMEOUT_MS, producer_id, epoch, self._fresh if fresh else -1)

    def begin_add(self, epoch: int, *indexes: int, producer_id: int | None = None, groups: tuple[str, ...] = ()) -> int:
        return self.ask(AddAsked, self._id(producer_id), epoch, self.parts(*indexes), groups)

    def begin_end(
        self, epoch: int, *, commit: bool = True, bump: bool = False, producer_id: int | None = None, fresh: int = -1
    ) -> int:
        return self.ask(EndAsked, self._id(producer_id), epoch, commit, bump, fresh)

    def init(self, producer_id: int = -1, epoch: int = -1, *, fresh: bool = True) -> Given:
        return self._result_of(self.begin_init(producer_id, epoch, fresh=fresh))

    def add(self, epoch: int, *indexes: int, producer_id: int | None = None, groups: tuple[str, ...] = ()) -> ErrorCode:
        return self._result_of(self.begin_add(epoch, *indexes, producer_id=producer_id, groups=groups)).error

    def end(
        self, epoch: int, *, commit: bool = True, bump: bool = False, producer_id: int | None = None, fresh: int = -1
    ) -> Given:
        return self._result_of(self.begin_end(epoch, commit=commit, bump=bump, producer_id=producer_id, fresh=fresh))

    def _result_of(self, waiter: int) -> Given:
        self.settle()
        return self.answers[waiter]

    def _id(self, producer_id: int | None) -> int:
        return self.transaction.producer_id if producer_id is None else producer_id

    def parts(self, *indexes: int) -> tuple[TransactionPartition, ...]:
        topic_id = self.world.image.topics["orders"].id
        return tuple(TransactionPartition(topic_id, index) for index in indexes)
