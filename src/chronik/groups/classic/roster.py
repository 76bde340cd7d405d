"""The members of a group, their votes, its leader, the ids given out, and which members still owe a sync."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

import msgspec

from chronik.errors import invariant
from chronik.groups.requests import Protocols
from chronik.protocol.errors import ErrorCode

PROTOCOL_OVERHEAD_BYTES: Final = 16
"""A protocol without name and metadata costs something too, and a client may send 250,000 of them."""

MEMBER_OVERHEAD_BYTES: Final = 500
"""What a member that brings nothing, or an id that was given out, takes in a few tables."""


class Member(msgspec.Struct):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    join_waiter: int | None = None
    sync_waiter: int | None = None
    is_new: bool = False
    """Whether it has yet to be told that it is a member: its parked join may be that of a client long gone."""

    @property
    def satisfies_heartbeat(self) -> bool:
        """Whether it counts as heard: a member whose answer we hold back cannot be blamed for its silence."""
        return not self.is_new and (self.join_waiter is not None or self.sync_waiter is not None)

    def metadata(self, protocol_name: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol_name), b"")

    def first_choice(self, candidates: set[str]) -> str:
        return next(name for name, _ in self.protocols if name in candidates)


def size_of(protocols: Protocols) -> int:
    """Returns the rough size in bytes: names count by characters."""
    return sum(PROTOCOL_OVERHEAD_BYTES + len(name) + len(metadata) for name, metadata in protocols)


def size_of_names(client_id: str, group_instance_id: str | None) -> int:
    """Returns the size of one member's names, with what the member takes itself."""
    return MEMBER_OVERHEAD_BYTES + len(client_id) + len(group_instance_id or "")


class Roster:
    """Keeps running counts: a join of one member among thousands must not count them all."""

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}
        self._member_id_by_instance: dict[str, str] = {}
        self._supporters: Counter[str] = Counter()
        self._waiting_to_join = 0
        self._protocols_bytes = 0
        self._names_bytes = 0
        self.pending: set[str] = set()
        """Ids given out by MEMBER_ID_REQUIRED that have not joined yet."""
        self.unsynced: set[str] = set()
        """Members of this generation that have not asked for their assignment yet."""
        self.leader: str | None = None

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    def __getitem__(self, member_id: str) -> Member:
        return self._members[member_id]

    def get(self, member_id: str) -> Member | None:
        return self._members.get(member_id)

    @property
    def waiting_to_join(self) -> int:
        return self._waiting_to_join

    @property
    def protocols_bytes(self) -> int:
        return self._protocols_bytes

    @property
    def memory_bytes(self) -> int:
        """Roughly what members and ids given out take, without assignments."""
        return self._protocols_bytes + self._names_bytes + len(self.pending) * MEMBER_OVERHEAD_BYTES

    @property
    def all_joined(self) -> bool:
        return self._waiting_to_join == len(self._members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """The slowest member decides how long the others wait."""
        return max((member.rebalance_timeout_ms for member in self), default=0)

    def member_id_of_instance(self, group_instance_id: str | None) -> str | None:
        return None if group_instance_id is None else self._member_id_by_instance.get(group_instance_id)

    def refusal(self, member_id: str, group_instance_id: str | None) -> ErrorCode | None:
        """Returns why a request under this identity is not a member's; None if it is."""
        if group_instance_id is not None:
            owner = self._member_id_by_instance.get(group_instance_id)
            if owner is not None and owner != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
            if owner is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        return None if member_id in self._members else ErrorCode.UNKNOWN_MEMBER_ID

    def add(self, member: Member) -> None:
        invariant(member.member_id not in self._members, f"member {member.member_id!r} is added twice")
        if member.group_instance_id is not None:
            invariant(member.group_instance_id not in self._member_id_by_instance, "a static member is added twice")
            self._member_id_by_instance[member.group_instance_id] = member.member_id
        self.pending.discard(member.member_id)
        self._members[member.member_id] = member
        self._count_protocols(member.protocols)
        self._names_bytes += size_of_names(member.client_id, member.group_instance_id)
        self._waiting_to_join += member.join_waiter is not None
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member_id: str) -> None:
        """Removes the member; when the leader goes, the first of the others leads."""
        member = self._members.pop(member_id)
        self._discount_protocols(member.protocols)
        self._names_bytes -= size_of_names(member.client_id, member.group_instance_id)
        self._waiting_to_join -= member.join_waiter is not None
        if member.group_instance_id is not None:
            del self._member_id_by_instance[member.group_instance_id]
        self.unsynced.discard(member_id)
        if self.leader == member_id:
            self.leader = next(iter(self._members), None)

    def replace_id(self, member: Member, member_id: str) -> None:
        """Gives a static member that comes back a new id; it keeps its place, assignment and leadership."""
        invariant(member.group_instance_id is not None, "only static members change their id")
        del self._members[member.member_id]
        if self.leader == member.member_id:
            self.leader = member_id
        if member.member_id in self.unsynced:
            self.unsynced.remove(member.member_id)
            self.unsynced.add(member_id)
        member.member_id = member_id
        self._members[member_id] = member
        self._member_id_by_instance[str(member.group_instance_id)] = member_id

    def change_protocols(self, member: Member, protocols: Protocols) -> None:
        self._discount_protocols(member.protocols)
        member.protocols = protocols
        self._count_protocols(protocols)

    def rename(self, member: Member, client_id: str) -> None:
        self._names_bytes += len(client_id) - len(member.client_id)
        member.client_id = client_id

    def _count_protocols(self, protocols: Protocols) -> None:
        self._supporters.update(_names(protocols))
        self._protocols_bytes += size_of(protocols)

    def _discount_protocols(self, protocols: Protocols) -> None:
        for name in _names(protocols):
            self._supporters[name] -= 1
            if not self._supporters[name]:
                del self._supporters[name]  # clients make up names: those that nobody has must not stay
        self._protocols_bytes -= size_of(protocols)

    def set_join_waiter(self, member: Member, waiter: int | None) -> int | None:
        """Returns the waiter it had before, which has to be answered too."""
        before = member.join_waiter
        member.join_waiter = waiter
        self._waiting_to_join += (waiter is not None) - (before is not None)
        return before

    def supports_any(self, protocols: Protocols) -> bool:
        return any(self._supporters[name] == len(self._members) for name in _names(protocols))

    def select_protocol(self) -> str:
        """Every member votes for its first choice among what all support; ties go to the earliest voter's choice."""
        candidates = {name for name, count in self._supporters.items() if count == len(self._members)}
        votes = Counter(member.first_choice(candidates) for member in self)
        return votes.most_common(1)[0][0]

    def elect_joined_leader(self) -> bool:
        """Makes sure that the leader is one that joined this round; returns False when nobody did."""
        if self.leader is not None and self._members[self.leader].join_waiter is not None:
            return True
        self.leader = next((member.member_id for member in self if member.join_waiter is not None), self.leader)
        return self.leader is not None and self._members[self.leader].join_waiter is not None

    def check(self) -> None:
        """Checks the counts against what they count, by a walk over all members: for tests and simulations."""
        invariant(self._waiting_to_join == sum(m.join_waiter is not None for m in self), "count of waiting joins")
        supporters = Counter(name for member in self for name in _names(member.protocols))
        invariant(dict(self._supporters) == dict(supporters), "count of supporters")
        invariant(self._protocols_bytes == sum(size_of(member.protocols) for member in self), "size of the protocols")
        names_bytes = sum(size_of_names(member.client_id, member.group_instance_id) for member in self)
        invariant(self._names_bytes == names_bytes, "size of the names")
        instances = {m.group_instance_id: m.member_id for m in self if m.group_instance_id is not None}
        invariant(self._member_id_by_instance == instances, "index of static members")
        invariant((self.leader is None) == (not self._members), "a group has a leader exactly when it has members")
        invariant(self.leader is None or self.leader in self._members, "the leader is a member")
        invariant(self.unsynced <= self._members.keys(), "only members owe a sync")
        invariant(self.pending.isdisjoint(self._members), "a member is not pending")


def _names(protocols: Protocols) -> tuple[str, ...]:
    """Returns each name once, in order: a client may repeat one, and its vote still counts once."""
    return tuple(dict.fromkeys(name for name, _ in protocols))
