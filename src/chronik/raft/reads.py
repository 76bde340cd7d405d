"""Linearizable reads without log writes: Raft's ReadIndex (§8, thesis §6.4).

The leader records its commit index, confirms its leadership by a round of heartbeats, and then returns that index. It
includes everything committed before the read was requested. The algorithm does not depend on clocks.
"""

from __future__ import annotations

from collections.abc import Iterable

from chronik.raft import leadership, rules
from chronik.raft.core import RaftCore
from chronik.raft.events import ReadIndex, ReadIndexConfirmed, RejectionReason
from chronik.raft.membership import NO_NODE
from chronik.raft.messages import ReadAck, ReadRequest
from chronik.raft.read_queue import PendingRead
from chronik.raft.roles import Role


def read_index(core: RaftCore, event: ReadIndex) -> None:
    if len(core.reads) + len(core.forwarded_reads) >= core.config.reads_pending_max:
        core.reject_request(event.context, RejectionReason.OVERLOADED)
    elif core.role is Role.LEADER:
        core.reads.add(PendingRead(core.node_id, event.context))
    elif core.leader != NO_NODE:
        core.forwarded_reads.add(event.context)
    else:
        core.reject_request(event.context, RejectionReason.NOT_LEADER)


def send_pending_reads(core: RaftCore) -> None:
    """Start to confirm the pending reads: as a leader by a round of heartbeats, as a follower by asking the leader.

    Called once per `handle`, so that reads are batched.
    """
    if core.role is Role.LEADER:
        _complete_confirmed_rounds(core)
        _start_read_round(core)
    elif core.forwarded_reads.can_send_read_request and core.leader != NO_NODE:
        core.send(
            ReadRequest, core.leader, request=core.forwarded_reads.start_read_request(core.config.forwarded_read_ticks)
        )


def _start_read_round(core: RaftCore) -> None:
    """Start a round of heartbeats for the pending reads if the leader has committed an entry in its term.

    Before that, it does not know the commit index. Reads wait at most a tick for the previous round.
    """
    if core.reads.can_start_read_round and core.has_committed_in_term:
        core.reads.start_read_round(core.commit)
        leadership.send_heartbeat_to_voters(core)
        _complete_confirmed_rounds(core)  # a single voter is a majority by itself


def _complete_confirmed_rounds(core: RaftCore) -> None:
    """Complete the reads in the rounds that a majority of voters has confirmed.

    Called after every event, not only after responses: the removal of a silent voter can turn the existing responses
    into a majority. The current membership's majority shares a voter with each majority of the membership in which the
    round started, or a committed change in between proves that no other node led.
    """
    if not core.reads.has_open_read_rounds:
        return
    for confirmed in core.reads.take_confirmed_rounds(lambda number: _is_round_confirmed(core, number)):
        for read in confirmed.reads:
            if read.node_id == core.node_id:
                core.outcomes.append(ReadIndexConfirmed(read.request, confirmed.commit))
            else:
                core.send(ReadAck, read.node_id, request=read.request, index=confirmed.commit)


def _is_round_confirmed(core: RaftCore, number: int) -> bool:
    confirming_nodes = [
        node_id
        for node_id, peer in core.peers.items()
        if peer.acked_round >= number and core.counts_towards_quorum(node_id, peer.directory_id)
    ]
    return rules.is_read_confirmed([core.node_id, *confirming_nodes], core.membership.voters)


def tick(core: RaftCore) -> None:
    """Advance the clock by one tick, and reject forwarded reads that have expired."""
    if core.role is Role.LEADER:
        core.reads.tick()
    else:
        _reject_reads(core, core.forwarded_reads.tick())


def on_leader_unreachable(core: RaftCore) -> None:
    """Reject all forwarded reads, because the leader is unreachable."""
    _reject_reads(core, core.forwarded_reads.drain())


def _reject_reads(core: RaftCore, contexts: Iterable[int]) -> None:
    for context in contexts:
        core.reject_request(context, RejectionReason.NOT_LEADER)


def on_read_request(core: RaftCore, message: ReadRequest) -> None:
    if core.role is not Role.LEADER or len(core.reads) >= core.config.reads_pending_max:
        core.reply(message, ReadAck, request=message.request, index=0, is_rejected=True)
    else:
        core.reads.add(PendingRead(message.source, message.request))


def on_read_ack(core: RaftCore, message: ReadAck) -> None:
    for context in core.forwarded_reads.take_request(message.request):
        if message.is_rejected:
            core.reject_request(context, RejectionReason.NOT_LEADER)
        else:
            core.outcomes.append(ReadIndexConfirmed(context, message.index))
