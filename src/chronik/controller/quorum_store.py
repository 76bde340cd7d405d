"""The store of a node in a cluster, which can also describe the quorum: it asks the leader, by a call.

Only a leader knows how far the others hold the log, and only one that a majority has just confirmed is sure to lead.
"""

from __future__ import annotations

from typing import Final

import msgspec

from chronik.controller.quorum import OFFSET_UNKNOWN, TIME_UNKNOWN, Quorum, QuorumMember
from chronik.metadata.stores.raft_store import RaftStore
from chronik.peers.call_kinds import CallKind
from chronik.peers.calls import CallRefused, CallTimedOut, PeerUnavailable, TypedCall
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.quorum.driver import RaftDriver
from chronik.quorum.outcomes import DriverStopped, NotLeader, OutcomeUnknown, ProposalRefused, ReadTimedOut
from chronik.quorum.peer_times import NEVER
from chronik.quorum.settings import DriverStatus
from chronik.raft.membership import NOBODY
from chronik.raft.roles import Role

CONFIRM_SECONDS: Final = 1.0
"""Time for the leader to hear from a majority; it does so several times a second."""

ASK_SECONDS: Final = 2.0
"""Time for the leader's answer, which may need all of the time above."""


class QuorumRequest(msgspec.Struct, frozen=True, array_like=True):
    """Has no fields: there is only one quorum."""


QUORUM: Final = TypedCall(CallKind.QUORUM, QuorumRequest, Quorum)


def quorum_of(status: DriverStatus) -> Quorum:
    """Returns the quorum as the leader sees it, whose status this is."""
    known = {node_id: match for node_id, match in status.matches.items() if match} | {status.leader: status.last_index}
    members = tuple(
        QuorumMember(
            member.node_id,
            member.directory_id,
            member.is_voter,
            known[member.node_id] + 1 if member.node_id in known else OFFSET_UNKNOWN,
            *_times_of(member.node_id, status),
        )
        for member in status.membership.members
    )
    return Quorum(status.leader, status.term, status.commit_index + 1, members)


def _times_of(node_id: int, status: DriverStatus) -> tuple[int, int]:
    if node_id == status.leader:
        return 0, 0
    times = status.peer_times.get(node_id)
    if times is None:
        return TIME_UNKNOWN, TIME_UNKNOWN
    return _ms_ago(times.heard, status.now), _ms_ago(times.caught_up, status.now)


def _ms_ago(then: float, now: float) -> int:
    return TIME_UNKNOWN if then == NEVER else max(0, round((now - then) * 1000))


class QuorumStore(RaftStore):
    """See `KnowsItsQuorum`."""

    def attach(self, driver: RaftDriver) -> None:
        super().attach(driver)
        QUORUM.serve(driver.transport.calls, self._serve)

    async def quorum(self) -> Quorum:
        """Raises KafkaError when no leader can be asked."""
        leader = self._driver.leader
        try:
            if leader == NOBODY:
                raise CallRefused("no leader is known")
            if leader == self._driver.node_id:
                return await self._describe_own()
            return await QUORUM.ask(self._driver.transport.calls, leader, QuorumRequest(), ASK_SECONDS)
        except (CallRefused, CallTimedOut, PeerUnavailable) as error:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"The quorum is not known here: {error}") from error

    async def _serve(self, peer: int, request: QuorumRequest) -> Quorum:
        return await self._describe_own()

    async def _describe_own(self) -> Quorum:
        try:
            await self._driver.read_index(CONFIRM_SECONDS)
        except (NotLeader, ReadTimedOut, ProposalRefused, OutcomeUnknown, DriverStopped) as error:
            raise CallRefused(f"no majority follows node {self._driver.node_id}: {error}") from error
        status = self._driver.status
        if status.role is not Role.LEADER:
            raise CallRefused(f"node {self._driver.node_id} does not lead")
        return quorum_of(status)
