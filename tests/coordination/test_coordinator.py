"""The coordinator works with any kind of state machine, here a counter on another topic, independently of groups."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import pytest

from chronik.clock import SystemClock
from chronik.coordination.coordinator import StateMachineCoordinator
from chronik.coordination.host import CoordinatorTerms
from chronik.coordination.machine import (
    CoordinatorChanged,
    DeadlineCheckDue,
    Instruction,
    StateDeleted,
    StateMachineEvent,
    StateMachineReply,
    StateMachineRequest,
    StateStored,
    StateStoreFailed,
    StoreState,
    Unload,
)
from chronik.metadata.commands.cluster import SetFeatureLevel
from chronik.metadata.commands.partitions import SetPartitionLeader
from chronik.metadata.commands.topics import CreateTopic, PartitionAssignment
from chronik.metadata.image import Image
from chronik.metadata.names import TRANSACTIONS_TOPIC
from chronik.protocol.errors import ErrorCode
from tests.groups.coordinator_helpers import join_and_sync, list_groups, run_scenario, until
from tests.groups.shared_image import NODES, NodeStore, SharedImage, running_nodes

TOPIC_ID = b"*" * 16
RESET_AFTER_MS = 3_600_000
"""Longer than any test except the one that waits for it."""


class AddRequest(StateMachineRequest, frozen=True):
    number: int


@dataclass(frozen=True)
class Level:
    key: str
    level: int

    def to_command(self, epoch: int, time_ms: int) -> SetFeatureLevel:
        return SetFeatureLevel(self.key, self.level)


class Counter:
    """A machine that counts up on request and resets after a while. It is stored as a feature level."""

    memory_bytes: Final = 1

    def __init__(self, key: str, level: int, epoch: int, now_ms: int) -> None:
        self.key = key
        self.level = level
        self.epoch = epoch
        self.wake_at_ms: int | None = now_ms + RESET_AFTER_MS if level else None
        self._waiters: dict[int, int] = {}
        self._last_ticket = 0

    @property
    def is_idle(self) -> bool:
        return not (self.level or self._waiters)

    def handle(self, event: StateMachineEvent) -> list[Instruction]:
        match event:
            case AddRequest():
                self.level += event.number
                self.wake_at_ms = event.now_ms + RESET_AFTER_MS
                self._last_ticket += 1
                self._waiters[self._last_ticket] = event.waiter
                return [StoreState(self._last_ticket, Level(self.key, self.level))]
            case DeadlineCheckDue():
                self.level, self.wake_at_ms = 0, None
                self._last_ticket += 1
                return [StoreState(self._last_ticket, Level(self.key, 0))]
            case StateStored() | StateStoreFailed():
                waiter = self._waiters.pop(event.ticket, None)
                answer = self.level if isinstance(event, StateStored) else event.error
                return [] if waiter is None else [StateMachineReply(waiter, answer)]
            case CoordinatorChanged() | StateDeleted():
                waiting, self._waiters, self.wake_at_ms = self._waiters, {}, None
                return [
                    *(StateMachineReply(waiter, ErrorCode.NOT_COORDINATOR) for waiter in waiting.values()),
                    Unload(),
                ]
        raise TypeError(event)


class Counters:
    name: Final = "counter"

    def __init__(self, image: Image) -> None:
        self._image = image

    @property
    def stored_keys(self) -> Collection[str]:
        return self._image.features

    def load(self, key: str, epoch: int, now_ms: int) -> Counter | None:
        level = self._image.features.get(key)
        return None if level is None else Counter(key, level, epoch, now_ms)

    def may_have_timers(self, key: str) -> bool:
        return True


class CounterCoordinator(StateMachineCoordinator[Counter]):
    def __init__(self, shared: SharedImage, node_id: int) -> None:
        self.store = NodeStore(shared, node_id)
        self.fatal: list[BaseException] = []
        owns = CoordinatorTerms(self.store, node_id, TRANSACTIONS_TOPIC).find_owned_term
        super().__init__(
            Counters(shared.image),
            TRANSACTIONS_TOPIC,
            self.store,
            SystemClock(),
            owns,
            lambda: False,
            self.fatal.append,
        )

    async def add(self, key: str, number: int) -> int | ErrorCode:
        tenure = self._host.check_ownership(key)
        if isinstance(tenure, ErrorCode):
            return tenure
        counter = self._host.get(key, tenure)
        if counter is None:
            counter = Counter(key, 0, tenure.epoch, 0)
            self._host.add(counter)
        return await self._host.request(counter, int, AddRequest, number)

    @property
    def in_hand(self) -> list[str]:
        return [counter.key for counter in self._host]


def with_transactions() -> SharedImage:
    shared = SharedImage()
    partitions = (PartitionAssignment(NODES, NODES, 2),)
    shared.apply(CreateTopic(TOPIC_ID, TRANSACTIONS_TOPIC, partitions, {}, 0, internal=True))
    return shared


def elect(shared: SharedImage, node_id: int) -> None:
    shared.apply(SetPartitionLeader(TOPIC_ID, 0, node_id))


@asynccontextmanager
async def counter_coordinators(shared: SharedImage) -> AsyncIterator[dict[int, CounterCoordinator]]:
    running = {node_id: CounterCoordinator(shared, node_id) for node_id in NODES}
    for node in running.values():
        await node.start()
        node.store.subscribe(node.on_delta)
    try:
        yield running
    finally:
        for node in running.values():
            node.store.drop_held()
            await node.close()
    assert all(node.fatal == [] for node in running.values())


def test_machine_is_served_by_leader_of_its_topic() -> None:
    async def scenario() -> None:
        shared = with_transactions()
        async with counter_coordinators(shared) as counters, running_nodes(shared) as node:
            assert await counters[1].add("a", 1) is ErrorCode.NOT_COORDINATOR
            assert [await counters[2].add("a", number) for number in (1, 2)] == [1, 3]
            await join_and_sync(node[1].groups, "a")
            assert shared.image.features["a"] == 3
            assert (counters[2].in_hand, [group.group_id for group in list_groups(node[1].groups)]) == (["a"], ["a"])

    run_scenario(scenario)


def test_terms_of_other_topics_are_ignored() -> None:
    async def scenario() -> None:
        shared = with_transactions()
        async with counter_coordinators(shared) as counters, running_nodes(shared) as node:
            await join_and_sync(node[1].groups, "a")
            assert await counters[2].add("a", 5) == 5
            elect(shared, 3)
            await until(lambda: (counters[2].in_hand, counters[3].in_hand) == ([], ["a"]))
            assert await counters[3].add("a", 1) == 6
            assert node[1].groups.describe("a").members != ()
            shared.elect(2)
            await until(lambda: len(node[1].groups._host) == 0)
            assert await counters[3].add("a", 1) == 7

    run_scenario(scenario)


def test_end_of_term_rejects_waiters_without_losing_state() -> None:
    async def scenario() -> None:
        shared = with_transactions()
        async with counter_coordinators(shared) as counters:
            counters[2].store.hold()
            adding = asyncio.create_task(counters[2].add("a", 5))
            await until(lambda: counters[2].store.held_count == 1)
            elect(shared, 3)
            assert await adding is ErrorCode.NOT_COORDINATOR
            counters[2].store.release()
            await until(lambda: shared.image.features.get("a") == 5)
            assert await counters[3].add("a", 1) == 6

    run_scenario(scenario)


def test_timer_fires_on_current_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "RESET_AFTER_MS", 500)

    async def scenario() -> None:
        shared = with_transactions()
        async with counter_coordinators(shared) as counters:
            assert await counters[2].add("a", 5) == 5
            elect(shared, 1)
            await until(lambda: "a" not in shared.image.features)
            assert counters[2].in_hand == []
            assert await counters[1].add("a", 1) == 1

    run_scenario(scenario)
