"""Proposals from any node: proposed locally on the leader, forwarded to the leader otherwise.

Each attempt has one typed outcome. The caller decides about retries, because only the caller can ensure that a command
proposed twice is applied once.
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
"""Maximum number of proposals in flight to a leader, which leaves capacity for heartbeats.

Further proposals wait in order. If they were rejected and retried instead, later proposals could overtake them, and
their deduplication results could expire."""


class Ending(IntEnum):
    """The outcome of a forwarded proposal. The values are sent between nodes and must never change."""

    COMMITTED = 0
    NOT_LEADER = 1
    REFUSED = 2
    LOST = 3
    UNKNOWN = 4


class ForwardedProposal(msgspec.Struct, frozen=True, array_like=True):
    """A request to the leader to propose a command."""

    data: bytes
    timeout_ms: int
    until: Until = Until.APPLIED


class ForwardedAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The leader's response to a forwarded proposal."""

    ending: Ending
    index: int = 0
    term: int = 0
    leader: int = NOBODY
    reason: str = ""


FORWARD: Final = TypedCall(CallKind.FORWARD, ForwardedProposal, ForwardedAnswer)


class Forwarder:
    """A client and server for forwarded proposals. Create it before the driver is started."""

    def __init__(self, driver: RaftDriver) -> None:
        self._driver = driver
        self._calls = driver.transport.calls
        self._turns: defaultdict[int, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(FORWARDS_UNDER_WAY_MAX)
        )
        FORWARD.serve(self._calls, self._serve)

    async def propose(self, data: bytes, timeout: float = TIMEOUT_SECONDS, until: Until = Until.APPLIED) -> Committed:
        """Propose a command through the leader and wait until it is committed and applied on this node.

        With another `until`, return as soon as the command is on the leader's disk. Raises as `RaftDriver.propose`
        does.
        """
        leader = self._driver.leader
        if leader == NOBODY:
            raise NotLeader(NOBODY)
        if leader == self._driver.node_id:
            return await self._driver.propose(data, timeout, until)
        slots = self._turns[leader]
        await _acquire_slot(slots, timeout)
        try:
            committed = _unwrap(await self._forward(leader, data, timeout, until))
        finally:
            slots.release()
        if until is Until.APPLIED:
            await self._driver.wait_applied(committed.index, timeout)
        return committed

    async def _forward(self, leader: int, data: bytes, timeout: float, until: Until) -> ForwardedAnswer:
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


async def _acquire_slot(slots: asyncio.Semaphore, timeout: float) -> None:
    """Acquire a slot of the limit on forwarded proposals. Raise ProposalRejected after the timeout."""
    if not slots.locked():  # avoid the cost of a timer
        await slots.acquire()
        return
    try:
        async with asyncio.timeout(timeout):
            await slots.acquire()
    except TimeoutError:
        raise ProposalRefused(Refusal.OVERLOADED) from None


def _unwrap(response: ForwardedAnswer) -> Committed:
    if response.ending is Ending.COMMITTED:
        return Committed(response.index, response.term)
    if response.ending is Ending.NOT_LEADER:
        raise NotLeader(response.leader)
    if response.ending is Ending.REFUSED:
        raise ProposalRefused(Refusal(response.reason))
    if response.ending is Ending.LOST:
        raise ProposalLost(response.reason)
    raise OutcomeUnknown(response.reason)
