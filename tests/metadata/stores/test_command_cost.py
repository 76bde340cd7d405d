"""The cost of a command does not depend on the number of pending commands."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chronik.metadata.commands.envelope import decode_command
from chronik.metadata.commands.topics import DeleteTopic
from chronik.metadata.sessions import RESULTS_KEPT_MAX
from chronik.metadata.stores.raft_store import RaftStore
from chronik.quorum.forwarder import ProposalForwarder
from tests.metadata.metadata_world import encode_verified_snapshot
from tests.metadata.test_sessions import SENDER, Sender

COMMAND = DeleteTopic(b"x" * 16)


class NotIterableDict(dict[int, Any]):
    """A dict that supports lookups but fails on iteration."""

    def __iter__(self) -> Iterator[int]:
        raise AssertionError("all keys were walked through")


class Attempts:
    """Commands of a store that complete when the test says so."""

    def __init__(self) -> None:
        self.answered: list[int] = []
        """The completed sequence that each command reported."""
        self.store = RaftStore(1)
        self.store._forwarder = cast(ProposalForwarder, SimpleNamespace(propose=self._propose))
        self._tasks: dict[int, asyncio.Task[Any]] = {}

    async def _propose(self, data: bytes, *_: Any) -> None:
        self.answered.append(decode_command(data).answered)
        await asyncio.Event().wait()

    async def send(self) -> None:
        self._tasks[len(self._tasks) + 1] = asyncio.create_task(self.store.propose(COMMAND))
        await asyncio.sleep(0)

    async def give_up(self, *sequences: int) -> None:
        tasks = [self._tasks[sequence] for sequence in sequences]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize(
    ("abandoned", "expected"), [((), 0), ((1,), 1), ((2, 3), 0), ((3, 1, 2), 3), ((1, 2, 3, 4, 5), 5), ((5,), 0)]
)
def test_command_reports_up_to_which_sequence_commands_completed(abandoned: tuple[int, ...], expected: int) -> None:
    async def scenario() -> list[int]:
        attempts = Attempts()
        for _ in range(5):
            await attempts.send()
        await attempts.give_up(*abandoned)
        await attempts.send()
        await attempts.give_up(*({1, 2, 3, 4, 5, 6} - set(abandoned)))
        return attempts.answered

    assert asyncio.run(scenario()) == [0, 0, 0, 0, 0, expected]


def test_proposing_does_not_iterate_over_pending_commands() -> None:
    async def scenario() -> list[int]:
        attempts = Attempts()
        attempts.store._pending = NotIterableDict()
        for _ in range(3):
            await attempts.send()
        await attempts.give_up(1, 2, 3)
        return attempts.answered

    assert asyncio.run(scenario()) == [0, 0, 0]


def test_dropping_results_does_not_iterate_over_kept_results() -> None:
    sender = Sender()
    for sequence in range(1, RESULTS_KEPT_MAX // 2):
        sender.send(sequence)
    session = sender.world.image.session(SENDER)
    assert session is not None
    session.results = NotIterableDict(session.results)
    sender.send(RESULTS_KEPT_MAX // 2, answered=2)
    assert session.floor == 2
    assert sorted(session.results.keys())[:2] == [3, 4]


def test_completed_sequence_above_all_results_drops_them() -> None:
    sender = Sender()
    for sequence in (1, 2, 5):
        sender.send(sequence)
    sender.send(2**62, answered=2**62 - 1)
    session = sender.world.image.session(SENDER)
    assert session is not None
    assert (list(session.results), session.floor) == ([2**62], 2**62 - 1)
    encode_verified_snapshot(sender.world.image)
