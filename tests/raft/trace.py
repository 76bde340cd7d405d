"""Human-readable traces of a lab cluster: the output of the scenario scripts."""

from __future__ import annotations

from collections.abc import Iterable

from chronik.raft.entries import EntryKind, RaftEntry
from chronik.raft.events import Persist, ReadConfirmed, Ready, RequestAccepted, RequestRejected
from chronik.raft.membership import UNBOUND_DIRECTORY, Membership, RaftMember, decode_membership
from chronik.raft.messages import (
    AnyRaftMessage,
    Append,
    AppendAck,
    Heartbeat,
    HeartbeatAck,
    ReadAck,
    ReadRequest,
    SnapshotAck,
    SnapshotChunk,
    TimeoutNow,
    VoteAck,
    VoteRequest,
)
from tests.raft.lab import Lab, LabHost, directory


def format_entries(entries: Iterable[RaftEntry]) -> str:
    return " ".join(format_entry(entry) for entry in entries)


def format_entry(entry: RaftEntry) -> str:
    match entry.kind:
        case EntryKind.NOOP:
            content = "noop"
        case EntryKind.COMMAND:
            content = entry.data.decode()
        case EntryKind.MEMBERSHIP:
            content = format_membership(decode_membership(entry.data))
    return f"{entry.index}/{entry.term}:{content}"


def format_membership(membership: Membership) -> str:
    return "{" + ",".join(_tell_member(member) for member in membership.members) + "}"


def _tell_member(member: RaftMember) -> str:
    label = f"{member.node_id}" if member.is_voter else f"({member.node_id})"
    if member.directory_id == UNBOUND_DIRECTORY:
        return label + "?"
    return label if member.directory_id == directory(member.node_id) else label + "'"


def format_message(message: AnyRaftMessage) -> str:
    return f"{message.source}->{message.target} {type(message).__name__} term {message.term}{_details(message)}"


def _details(message: AnyRaftMessage) -> str:
    match message:
        case VoteRequest():
            kind = (
                " pre-vote"
                if message.is_pre_vote
                else " for a leadership transfer"
                if message.is_leadership_transfer
                else ""
            )
            return f"{kind}, log ends {message.last_index}/{message.last_term}"
        case VoteAck():
            return f"{' pre-vote' if message.is_pre_vote else ''}: {'granted' if message.is_granted else 'denied'}"
        case Append():
            entries = f", {format_entries(message.entries)}" if message.entries else ""
            return f" after {message.previous_index}/{message.previous_term}{entries}, commit {message.commit}"
        case AppendAck(is_rejected=True):
            return f": rejected at {message.rejected_index}, hint {message.hint_index}/{message.hint_term}"
        case AppendAck():
            return f": match {message.match_index}"
        case Heartbeat():
            return f", commit {message.commit}, round {message.round}"
        case HeartbeatAck():
            return f", round {message.round}"
        case SnapshotChunk():
            end = message.offset + len(message.data)
            return f", snapshot {message.snapshot.index}/{message.snapshot.term}, bytes {message.offset} to {end}"
        case SnapshotAck():
            return f", snapshot {message.index}: next byte {message.next_offset}"
        case TimeoutNow():
            return ""
        case ReadRequest():
            return ""
        case ReadAck():
            return ": rejected" if message.is_rejected else f": index {message.index}"


def format_persist(persist: Persist) -> str:
    parts = [f"bytes {chunk.offset} to {chunk.offset + len(chunk.data)} of a snapshot" for chunk in persist.chunks]
    if persist.install is not None:
        parts.append(f"snapshot {persist.install.index}/{persist.install.term} replacing the log")
    if persist.entries:
        parts.append(format_entries(persist.entries))
    if persist.hard_state is not None:
        state = persist.hard_state
        vote = f" vote {state.vote}" if state.vote >= 0 else ""
        parts.append(f"term {state.term}{vote} commit {state.commit}")
    if persist.compact_through:
        parts.append(f"compaction through {persist.compact_through}")
    return "; ".join(parts)


def format_outcome(outcome: RequestAccepted | RequestRejected | ReadConfirmed) -> str:
    match outcome:
        case RequestAccepted():
            return f"accepts at {outcome.first_index}/{outcome.term}"
        case RequestRejected():
            leader = f", leader is {outcome.leader}" if outcome.leader >= 0 else ""
            return f"rejects: {outcome.reason.message}{leader}"
        case ReadConfirmed():
            return f"confirms read at {outcome.index}"


class TracingLab(Lab):
    """A lab that records a trace of all events."""

    lines: list[str]

    def observe(self, host: LabHost, ready: Ready) -> None:
        if not hasattr(self, "lines"):
            self.lines = []
        node_id = host.node_id
        self.lines += [
            f"{node_id} changes role from {s.source} to {s.target}: {s.reason}" for s in ready.role_transitions
        ]
        self.lines += [f"{node_id} {format_outcome(outcome)}" for outcome in ready.outcomes]
        if ready.persist is not None:
            self.lines.append(f"{node_id} writes {format_persist(ready.persist)}")
        self.lines += [f"  {format_message(message)}" for message in ready.messages]
        if ready.restore is not None:
            self.lines.append(f"{node_id} restores snapshot {ready.restore.index}/{ready.restore.term}")
        if ready.committed:
            self.lines.append(f"{node_id} applies {format_entries(ready.committed)}")
