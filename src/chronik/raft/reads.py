"""Linearizable reads without writing to the log (§8, thesis §6.4).

The leader notes its commit index, makes sure by a round of heartbeats that it is still the leader, and only then names
that index: whatever any leader had committed before the read was asked for is included. Clocks play no part in it.
"""

from __future__ import annotations

from collections.abc import Iterable

from chronik.raft import leadership, rules
from chronik.raft.core import RaftCore
from chronik.raft.events import ReadConfirmed, ReadIndex, Refusal
from chronik.raft.membership import NOBODY
from chronik.raft.messages import ReadAck, ReadRequest
from chronik.raft.read_queue import Read
from chronik.raft.roles import Role


def ask(core: RaftCore, event: ReadIndex) -> None:
    if len(core.reads) + len(core.forwarded) >= core.config.reads_pending_max:
        core.refuse(event.context, Refusal.OVERLOADED)
    elif core.role is Role.LEADER:
        core.reads.add(Read(core.node_id, event.context))
    elif core.leader != NOBODY:
        core.forwarded.add(event.context)
    else:
        core.refuse(event.context, Refusal.NOT_LEADER)


def send_pending(core: RaftCore) -> None:
    """Is called once per `handle`: reads that came together share a round."""
    if core.role is Role.LEADER:
        _confirm(core)
        _begin_round(core)
    elif core.forwarded.can_ask and core.leader != NOBODY:
        core.send(ReadRequest, core.leader, request=core.forwarded.ask(core.config.forwarded_read_ticks))


def _begin_round(core: RaftCore) -> None:
    """Reads wait while a round is under way, for a tick at most, and until the leader has committed in its own term:
    before that it does not know how far the log is committed."""
    if core.reads.can_begin and core.has_committed_in_term:
        core.reads.begin(core.commit)
        leadership.ask_voters(core)
        _confirm(core)  # a single voter is its own majority


def _confirm(core: RaftCore) -> None:
    """Counts who has answered after every event, not only after an answer: when the voters that are missing are
    removed, those who have answered are a majority, and no further answer may ever come to say so.

    The majority is one of the membership in force now. It shares a voter with every majority of the membership in which
    the round was begun, or a change in between was committed, which itself shows that nobody else led."""
    if not core.reads.is_under_way:
        return
    for confirmed in core.reads.confirm(lambda number: _is_confirmed(core, number)):
        for read in confirmed.reads:
            if read.node_id == core.node_id:
                core.outcomes.append(ReadConfirmed(read.request, confirmed.commit))
            else:
                core.send(ReadAck, read.node_id, request=read.request, index=confirmed.commit)


def _is_confirmed(core: RaftCore, number: int) -> bool:
    confirming = [
        node_id
        for node_id, peer in core.peers.items()
        if peer.acked_round >= number and core.counts(node_id, peer.directory_id)
    ]
    return rules.is_read_confirmed([core.node_id, *confirming], core.membership.voters)


def tick(core: RaftCore) -> None:
    """Gives up answers that do not come, so that every read ends."""
    if core.role is Role.LEADER:
        core.reads.tick()
    else:
        _give_up(core, core.forwarded.tick())


def on_leader_unreachable(core: RaftCore) -> None:
    """Gives up all reads under way: neither the questions nor the answers will arrive."""
    _give_up(core, core.forwarded.drain())


def _give_up(core: RaftCore, contexts: Iterable[int]) -> None:
    for context in contexts:
        core.refuse(context, Refusal.NOT_LEADER)


def on_read_request(core: RaftCore, message: ReadRequest) -> None:
    if core.role is not Role.LEADER or len(core.reads) >= core.config.reads_pending_max:
        core.reply(message, ReadAck, request=message.request, index=0, is_refused=True)
    else:
        core.reads.add(Read(message.source, message.request))


def on_read_ack(core: RaftCore, message: ReadAck) -> None:
    for context in core.forwarded.answered(message.request):
        if message.is_refused:
            core.refuse(context, Refusal.NOT_LEADER)
        else:
            core.outcomes.append(ReadConfirmed(context, message.index))
