"""Proposes from any node: here if this node leads, else by a call to the leader.

One attempt has one typed ending. Whether to try again is for the caller to decide, who alone can make sure that a
command which was proposed twice is applied once.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from enum import IntEnum
from typing import Final

import msgspec

from chronik.peers.call_kinds import CallKind
from chronik.peers.calls import CALLS_UNDER_WAY_MAX, CallRefused, CallTimedOut, PeerUnavailable, TypedCall
from chronik.quorum.driver import RaftDriver
from chronik.quorum.outcomes import (
    Committed,
    DriverStopped,
    NotLeader,
    OutcomeUnknown,
    ProposalLost,
    ProposalRefused,
    Until,
)
from chronik.quorum.settings import TIMEOUT_SECONDS
from chronik.raft.events import Refusal
from chronik.raft.membership import NOBODY

FORWARDS_UNDER_WAY_MAX: Final = CALLS_UNDER_WAY_MAX // 2
"""Proposals under way to one leader; heartbeats need room beside them. More of them wait for their turn: were they
refused and tried again later, thousands of others could overtake them, and their results would not be kept so long."""


class Ending(IntEnum):
    """How a forwarded proposal ended. These numbers must never change: they travel between nodes."""

    COMMITTED = 0
    NOT_LEADER = 1
    REFUSED = 2
    LOST = 3
    UNKNOWN = 4


class ForwardedProposal(msgspec.Struct, frozen=True, array_like=True):
    data: bytes
    timeout_ms: int
    until: Until = Until.APPLIED


class ForwardedAnswer(msgspec.Struct, frozen=True, array_like=True):
    ending: Ending
    index: int = 0
    term: int = 0
    leader: int = NOBODY
    reason: str = ""


FORWARD: Final = TypedCall(CallKind.FORWARD, ForwardedProposal, ForwardedAnswer)


class Forwarder:
    """Must be made before the driver is started."""

    def __init__(self, driver: RaftDriver) -> None:
        self._driver = driver
        self._calls = driver.transport.calls
        self._turns: defaultdict[int, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(FORWARDS_UNDER_WAY_MAX)
        )
        FORWARD.serve(self._calls, self._serve)

    async def propose(self, data: bytes, timeout: float = TIMEOUT_SECONDS, until: Until = Until.APPLIED) -> Committed:
        """Returns when the command is committed, and applied on this node; or, if `until` asks for less, when it is on
        the leader's disk. Raises as `RaftDriver.propose` does."""
        leader = self._driver.leader
        if leader == NOBODY:
            raise NotLeader(NOBODY)
        if leader == self._driver.node_id:
            return await self._driver.propose(data, timeout, until)
        turns = self._turns[leader]
        await _turn_of(turns, timeout)
        try:
            committed = _checked(await self._ask(leader, data, timeout, until))
        finally:
            turns.release()
        if until is Until.APPLIED:
            await self._driver.wait_applied(committed.index, timeout)
        return committed

    async def _ask(self, leader: int, data: bytes, timeout: float, until: Until) -> ForwardedAnswer:
        request = ForwardedProposal(data, int(timeout * 1000), until)
        try:
            return await FORWARD.ask(self._calls, leader, request, timeout)
        except PeerUnavailable as error:
            if error.may_have_arrived:
                raise OutcomeUnknown(str(error)) from error
            raise NotLeader(NOBODY) from error
        except (CallTimedOut, CallRefused) as error:
            raise OutcomeUnknown(str(error)) from error

    async def _serve(self, peer: int, request: ForwardedProposal) -> ForwardedAnswer:
        try:
            committed = await self._driver.propose(request.data, request.timeout_ms / 1000, request.until)
        except NotLeader as error:
            return ForwardedAnswer(Ending.NOT_LEADER, leader=error.leader)
        except ProposalRefused as error:
            return ForwardedAnswer(Ending.REFUSED, reason=error.refusal)
        except ProposalLost as error:
            return ForwardedAnswer(Ending.LOST, reason=str(error))
        except (OutcomeUnknown, DriverStopped) as error:
            return ForwardedAnswer(Ending.UNKNOWN, reason=str(error))
        return ForwardedAnswer(Ending.COMMITTED, committed.index, committed.term)


async def _turn_of(turns: asyncio.Semaphore, timeout: float) -> None:
    """Waits for a turn. Raises ProposalRefused when it does not come in time."""
    if not turns.locked():  # a timer would cost more than all the rest
        await turns.acquire()
        return
    try:
        async with asyncio.timeout(timeout):
            await turns.acquire()
    except TimeoutError:
        raise ProposalRefused(Refusal.OVERLOADED) from None


def _checked(answer: ForwardedAnswer) -> Committed:
    if answer.ending is Ending.COMMITTED:
        return Committed(answer.index, answer.term)
    if answer.ending is Ending.NOT_LEADER:
        raise NotLeader(answer.leader)
    if answer.ending is Ending.REFUSED:
        raise ProposalRefused(Refusal(answer.reason))
    if answer.ending is Ending.LOST:
        raise ProposalLost(answer.reason)
    raise OutcomeUnknown(answer.reason)
