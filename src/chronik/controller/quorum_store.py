"""The metadata store of a cluster node, which can describe the quorum by a call to the leader.

Only the leader knows the other nodes' progress, and only after a majority has confirmed its leadership.
"""

from __future__ import annotations

from typing import Final

import msgspec

from chronik.controller.quorum import OFFSET_UNKNOWN, TIME_UNKNOWN, Quorum, QuorumMember
from chronik.metadata.stores.raft_store import RaftStore
from chronik.peers.calls import CallKind, CallRejected, CallTimedOut, PeerUnavailable, TypedCall
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.quorum.driver import RaftDriver
from chronik.quorum.outcomes import DriverStopped, NotLeader, OutcomeUnknown, ProposalRejected, ReadTimedOut
from chronik.quorum.peer_activity import NEVER
from chronik.quorum.settings import DriverStatus
from chronik.raft.membership import NO_NODE
from chronik.raft.roles import Role

CONFIRMATION_TIMEOUT_SECONDS: Final = 1.0
"""Timeout in seconds for the Raft leader to be confirmed by a majority."""

CALL_TIMEOUT_SECONDS: Final = 2.0
"""Timeout in seconds of a call to the Raft leader, including the confirmation of its leadership."""


class QuorumRequest(msgspec.Struct, frozen=True, array_like=True):
    """A request to the Raft leader to describe the metadata quorum."""


QUORUM: Final = TypedCall(CallKind.QUORUM, QuorumRequest, Quorum)


def build_quorum(status: DriverStatus) -> Quorum:
    """Build the description of the metadata quorum from the leader's driver status."""
    last_indexes = {node_id: match for node_id, match in status.match_indexes.items() if match} | {
        status.leader: status.last_index
    }
    members = tuple(
        QuorumMember(
            member.node_id,
            member.directory_id,
            member.is_voter,
            last_indexes[member.node_id] + 1 if member.node_id in last_indexes else OFFSET_UNKNOWN,
            *_compute_contact_times(member.node_id, status),
        )
        for member in status.membership.members
    )
    return Quorum(status.leader, status.term, status.commit_index + 1, members)


def _compute_contact_times(node_id: int, status: DriverStatus) -> tuple[int, int]:
    if node_id == status.leader:
        return 0, 0
    times = status.peer_activity.get(node_id)
    if times is None:
        return TIME_UNKNOWN, TIME_UNKNOWN
    return _compute_age_ms(times.last_contact, status.now), _compute_age_ms(times.last_caught_up, status.now)


def _compute_age_ms(past: float, now: float) -> int:
    return TIME_UNKNOWN if past == NEVER else max(0, round((now - past) * 1000))


class QuorumStore(RaftStore):
    """A replicated metadata store that can describe its quorum (see `ReplicatedStore`)."""

    def attach(self, driver: RaftDriver) -> None:
        super().attach(driver)
        QUORUM.serve(driver.transport.calls, self._handle_quorum_request)

    async def quorum(self) -> Quorum:
        """Return the leader's view of the quorum. Raise KafkaError if no leader is reachable."""
        leader = self._driver.leader
        try:
            if leader == NO_NODE:
                raise CallRejected("no leader is known")
            if leader == self._driver.node_id:
                return await self._describe_own_quorum()
            return await QUORUM.call(self._driver.transport.calls, leader, QuorumRequest(), CALL_TIMEOUT_SECONDS)
        except (CallRejected, CallTimedOut, PeerUnavailable) as error:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"The quorum cannot be described: {error}") from error

    async def _handle_quorum_request(self, peer: int, request: QuorumRequest) -> Quorum:
        return await self._describe_own_quorum()

    async def _describe_own_quorum(self) -> Quorum:
        try:
            await self._driver.read_index(CONFIRMATION_TIMEOUT_SECONDS)
        except (NotLeader, ReadTimedOut, ProposalRejected, OutcomeUnknown, DriverStopped) as error:
            raise CallRejected(f"leadership of node {self._driver.node_id} was not confirmed: {error}") from error
        status = self._driver.status
        if status.role is not Role.LEADER:
            raise CallRejected(f"node {self._driver.node_id} is not the leader")
        return build_quorum(status)
