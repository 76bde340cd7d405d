"""Scenario scripts: blocks of commands, a line of dashes, and the expected trace. See `scenarios/`.

cluster 1 2 3 learners 4 outsiders 5 [unbound]      campaign N      elect N      tick N COUNT
propose N WORD...      read N      transfer N TARGET      add N ID      promote N ID      remove N ID
deliver [COUNT]        settle      drop        cut A B     isolate N     heal
hold N (its disk)      sync N      release N   crash N     restart N     wipe N     snapshot N
state                  log N       seed N TERM...          quietly COMMAND...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from chronik.raft.config import RaftConfig
from chronik.raft.entries import EntryKind, RaftEntry
from chronik.raft.events import Persist, ReadIndexConfirmed, Ready, RequestAccepted, RequestRejected
from chronik.raft.membership import (
    UNBOUND_DIRECTORY,
    AddLearner,
    Membership,
    PromoteLearner,
    RaftMember,
    RemoveMember,
    decode_membership,
)
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

DASHES: Final = "----"
CONFIG: Final = RaftConfig(election_ticks=10, heartbeat_ticks=2, snapshot_chunk_bytes=64, inflight_messages_max=3)


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


def format_outcome(outcome: RequestAccepted | RequestRejected | ReadIndexConfirmed) -> str:
    match outcome:
        case RequestAccepted():
            return f"accepts at {outcome.first_index}/{outcome.term}"
        case RequestRejected():
            leader = f", leader is {outcome.leader}" if outcome.leader >= 0 else ""
            return f"rejects: {outcome.reason.message}{leader}"
        case ReadIndexConfirmed():
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


class ScenarioScript:
    """A scenario script."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lab = TracingLab(config=CONFIG)

    def run(self) -> str:
        """Run the script and return its text with the actual traces."""
        blocks = self._path.read_text(encoding="utf-8").rstrip("\n").split("\n\n")
        return "\n\n".join(self._play_block(block) for block in blocks) + "\n"

    def _play_block(self, block: str) -> str:
        if DASHES not in block.splitlines():
            return block  # a comment
        commands = block.splitlines()[: block.splitlines().index(DASHES)]
        lines: list[str] = []
        for command in commands:
            if not command.startswith("#"):
                lines += self._run(command.split())
        return "\n".join([*commands, DASHES, *(lines or ["nothing"])])

    def _run(self, words: list[str]) -> list[str]:
        if words[0] == "cluster":
            self._create_cluster(words[1:])
            return [f"members {format_membership(self._lab.bootstrap)}"]
        is_quiet = words[0] == "quietly"
        name, *arguments = words[1:] if is_quiet else words
        self._lab.lines = []
        told = COMMANDS[name](self._lab, arguments) or []
        return [] if is_quiet else [*self._lab.lines, *told]

    def _create_cluster(self, words: list[str]) -> None:
        groups: dict[str, list[int]] = {"voters": []}
        group, is_bound = "voters", True
        for word in words:
            if word == "unbound":
                is_bound = False
            elif word.isdigit():
                groups[group].append(int(word))
            else:
                group = word
                groups[group] = []
        self._lab = TracingLab(config=CONFIG, is_bound=is_bound, **groups)


def _state(lab: TracingLab, arguments: list[str]) -> list[str]:
    lines = []
    for host in lab.hosts.values():
        node, status = host.node, host.node.status
        if host.is_down:
            lines.append(f"{host.node_id} is down")
            continue
        leader = f" of {status.leader}" if status.leader not in (-1, host.node_id) else ""
        indexes = f"commit {node.commit} of {node.last_index}, applied {node.applied}"
        lines.append(
            f"{host.node_id} {status.role}{leader} term {status.term}, {indexes}, {format_membership(node.membership)}"
        )
    return lines


def _log(lab: TracingLab, arguments: list[str]) -> list[str]:
    disk = lab.hosts[int(arguments[0])].disk
    before = f"snapshot {disk.compacted[0]}/{disk.compacted[1]} " if disk.compacted[0] else ""
    return [f"{arguments[0]} has {before}{format_entries(disk.log) or 'no entries'}"]


def _deliver(lab: TracingLab, arguments: list[str]) -> None:
    for _ in range(int(arguments[0]) if arguments else len(lab.messages_in_flight)):
        lab.deliver_one()


def _add(lab: TracingLab, arguments: list[str]) -> None:
    node_id = int(arguments[1])
    lab.change(int(arguments[0]), AddLearner(node_id, lab.hosts[node_id].directory_id))


def _propose(lab: TracingLab, arguments: list[str]) -> None:
    lab.propose(int(arguments[0]), *(word.encode() for word in arguments[1:]))


def _tick(lab: TracingLab, arguments: list[str]) -> None:
    lab.tick(int(arguments[0]), int(arguments[1]) if len(arguments) > 1 else 1)


def _with_node(action: Callable[[TracingLab, int], object]) -> Callable[[TracingLab, list[str]], None]:
    def run(lab: TracingLab, arguments: list[str]) -> None:
        action(lab, int(arguments[0]))

    return run


def _with_two(action: Callable[[TracingLab, int, int], object]) -> Callable[[TracingLab, list[str]], None]:
    def run(lab: TracingLab, arguments: list[str]) -> None:
        action(lab, int(arguments[0]), int(arguments[1]))

    return run


COMMANDS: Final[dict[str, Callable[[TracingLab, list[str]], list[str] | None]]] = {
    "state": _state,
    "log": _log,
    "deliver": _deliver,
    "settle": lambda lab, _: lab.settle(),
    "drop": lambda lab, _: lab.messages_in_flight.clear(),
    "heal": lambda lab, _: lab.heal(),
    "cut": _with_two(lambda lab, one, other: lab.cut_link(one, other)),
    "propose": _propose,
    "tick": _tick,
    "add": _add,
    "promote": _with_two(lambda lab, node_id, other: lab.change(node_id, PromoteLearner(other))),
    "remove": _with_two(lambda lab, node_id, other: lab.change(node_id, RemoveMember(other))),
    "transfer": _with_two(lambda lab, node_id, other: lab.transfer(node_id, other)),
    "seed": lambda lab, words: lab.seed_log(int(words[0]), [int(word) for word in words[1:]]),
    "campaign": _with_node(lambda lab, node_id: lab.campaign(node_id)),
    "elect": _with_node(lambda lab, node_id: lab.elect(node_id)),
    "read": _with_node(lambda lab, node_id: lab.read(node_id)),
    "isolate": _with_node(lambda lab, node_id: lab.isolate(node_id)),
    "hold": _with_node(lambda lab, node_id: lab.hold_disk(node_id)),
    "sync": _with_node(lambda lab, node_id: lab.sync(node_id)),
    "release": _with_node(lambda lab, node_id: lab.release_disk(node_id)),
    "crash": _with_node(lambda lab, node_id: lab.crash(node_id)),
    "restart": _with_node(lambda lab, node_id: lab.restart(node_id)),
    "wipe": _with_node(lambda lab, node_id: lab.wipe(node_id)),
    "snapshot": _with_node(lambda lab, node_id: lab.take_snapshot(node_id)),
}
