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

from chronik.peers.calls import PENDING_CALLS_MAX, CallKind, CallRejected, CallTimedOut, PeerUnavailable, TypedCall
from chronik.quorum.driver import RaftDriver
from chronik.quorum.outcomes import (
    CommittedPosition,
    CompletionPoint,
    DriverStopped,
    NotLeader,
    OutcomeUnknown,
    ProposalLost,
    ProposalRejected,
)
from chronik.quorum.settings import DEFAULT_TIMEOUT_SECONDS
from chronik.raft.events import RejectionReason
from chronik.raft.membership import NO_NODE

PENDING_FORWARDS_MAX: Final = PENDING_CALLS_MAX // 2
"""The maximum number of proposals that a node forwards to the Raft leader concurrently.

Further proposals wait in order. Rejecting and retrying them could reorder them, and their deduplication results could
expire.
"""


class ForwardOutcome(IntEnum):
    """The outcome of a forwarded proposal. The numbers are part of the peer protocol and must never change."""

    COMMITTED = 0
    NOT_LEADER = 1
    REJECTED = 2
    LOST = 3
    UNKNOWN = 4


class ForwardedProposal(msgspec.Struct, frozen=True, array_like=True):
    """The request to the Raft leader to propose a command for another node."""

    data: bytes
    timeout_ms: int
    until: CompletionPoint = CompletionPoint.APPLIED


class ForwardedResponse(msgspec.Struct, frozen=True, array_like=True):
    """The Raft leader's response to a forwarded proposal."""

    outcome: ForwardOutcome
    index: int = 0
    term: int = 0
    leader: int = NO_NODE
    reason: str = ""


FORWARD: Final = TypedCall(CallKind.FORWARD, ForwardedProposal, ForwardedResponse)


class ProposalForwarder:
    """The component that forwards this node's proposals to the Raft leader, and serves those of other nodes.

    Create it before the driver is started.
    """

    def __init__(self, driver: RaftDriver) -> None:
        self._driver = driver
        self._calls = driver.transport.calls
        self._slots: defaultdict[int, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(PENDING_FORWARDS_MAX))
        FORWARD.serve(self._calls, self._serve_proposal)

    async def propose(
        self, data: bytes, timeout: float = DEFAULT_TIMEOUT_SECONDS, until: CompletionPoint = CompletionPoint.APPLIED
    ) -> CommittedPosition:
        """Propose a command through the Raft leader, and wait until it is committed and applied on this node.

        With another `until`, return as soon as the command is on the leader's disk. Raises as `RaftDriver.propose`
        does.
        """
        leader = self._driver.leader
        if leader == NO_NODE:
            raise NotLeader(NO_NODE)
        if leader == self._driver.node_id:
            return await self._driver.propose(data, timeout, until)
        slots = self._slots[leader]
        await _acquire_slot(slots, timeout)
        try:
            committed = _unwrap_response(await self._forward_proposal(leader, data, timeout, until))
        finally:
            slots.release()
        if until is CompletionPoint.APPLIED:
            await self._driver.wait_applied(committed.index, timeout)
        return committed

    async def _forward_proposal(
        self, leader: int, data: bytes, timeout: float, until: CompletionPoint
    ) -> ForwardedResponse:
        request = ForwardedProposal(data, int(timeout * 1000), until)
        try:
            return await FORWARD.call(self._calls, leader, request, timeout)
        except PeerUnavailable as error:
            if error.may_have_arrived:
                raise OutcomeUnknown(str(error)) from error
            raise NotLeader(NO_NODE) from error
        except (CallTimedOut, CallRejected) as error:
            raise OutcomeUnknown(str(error)) from error

    async def _serve_proposal(self, peer: int, request: ForwardedProposal) -> ForwardedResponse:
        try:
            committed = await self._driver.propose(request.data, request.timeout_ms / 1000, request.until)
        except NotLeader as error:
            return ForwardedResponse(ForwardOutcome.NOT_LEADER, leader=error.leader)
        except ProposalRejected as error:
            return ForwardedResponse(ForwardOutcome.REJECTED, reason=error.reason)
        except ProposalLost as error:
            return ForwardedResponse(ForwardOutcome.LOST, reason=str(error))
        except (OutcomeUnknown, DriverStopped) as error:
            return ForwardedResponse(ForwardOutcome.UNKNOWN, reason=str(error))
        return ForwardedResponse(ForwardOutcome.COMMITTED, committed.index, committed.term)


async def _acquire_slot(slots: asyncio.Semaphore, timeout: float) -> None:
    """Wait for a slot within the limit on concurrent forwards. Raise ProposalRejected after the timeout."""
    if not slots.locked():  # avoid the cost of a timer
        await slots.acquire()
        return
    try:
        async with asyncio.timeout(timeout):
            await slots.acquire()
    except TimeoutError:
        raise ProposalRejected(RejectionReason.OVERLOADED) from None


def _unwrap_response(response: ForwardedResponse) -> CommittedPosition:
    if response.outcome is ForwardOutcome.COMMITTED:
        return CommittedPosition(response.index, response.term)
    if response.outcome is ForwardOutcome.NOT_LEADER:
        raise NotLeader(response.leader)
    if response.outcome is ForwardOutcome.REJECTED:
        raise ProposalRejected(RejectionReason(response.reason))
    if response.outcome is ForwardOutcome.LOST:
        raise ProposalLost(response.reason)
    raise OutcomeUnknown(response.reason)
