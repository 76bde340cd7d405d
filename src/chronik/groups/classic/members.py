"""The members of a classic group: protocol votes, leader, pending member ids and outstanding SyncGroup requests."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from chronik.errors import check_invariant
from chronik.groups.requests import MemberProtocols
from chronik.protocol.errors import ErrorCode

PROTOCOL_OVERHEAD_BYTES: Final = 16
"""Estimated memory of one assignor (protocol) of a member in bytes, without its name and metadata."""

MEMBER_OVERHEAD_BYTES: Final = 500
"""Estimated memory of a member without its protocols and names, or of a pending member id, in bytes."""

CONSUMER_PROTOCOL_TYPE: Final = "consumer"


class ClassicMember(msgspec.Struct):
    """A member of a classic group and its waiting requests."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: MemberProtocols
    assignment: bytes = b""
    join_waiter: int | None = None
    sync_waiter: int | None = None
    is_new: bool = False
    """Whether the member waits for its first JoinGroup response. Its client may already have disconnected."""

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """Whether the member counts as alive without heartbeats, because one of its requests waits for a response."""
        return not self.is_new and (self.join_waiter is not None or self.sync_waiter is not None)

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return the subscription that the member sent for a protocol, or empty bytes if it does not support the
        protocol.
        """
        return next((metadata for name, metadata in self.protocols if name == protocol_name), b"")

    def preferred_protocol(self, candidates: set[str]) -> str:
        """Return the protocol among the candidates that the member prefers."""
        return next(name for name, _ in self.protocols if name in candidates)


def estimate_protocols_size(protocols: MemberProtocols) -> int:
    """Return the approximate size of a member's protocols in bytes. Names count one byte per character."""
    return sum(PROTOCOL_OVERHEAD_BYTES + len(name) + len(metadata) for name, metadata in protocols)


def estimate_member_names_size(client_id: str, group_instance_id: str | None) -> int:
    """Return the size of a member's client id and instance id, plus the fixed overhead of a member."""
    return MEMBER_OVERHEAD_BYTES + len(client_id) + len(group_instance_id or "")


class GroupMembers:
    """The members of a consumer group, with counters that make the cost of a join independent of the group's size."""

    def __init__(self) -> None:
        self._members: dict[str, ClassicMember] = {}
        self._member_id_by_instance: dict[str, str] = {}
        self._supporter_counts: Counter[str] = Counter()
        self._awaiting_join_count = 0
        self._protocols_bytes = 0
        self._names_bytes = 0
        self.pending_member_ids: set[str] = set()
        """Member ids returned with MEMBER_ID_REQUIRED, whose clients have not joined with them yet."""
        self.pending_sync_ids: set[str] = set()
        """Ids of the members that have not sent SyncGroup for the current generation."""
        self.leader: str | None = None

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[ClassicMember]:
        return iter(self._members.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    def __getitem__(self, member_id: str) -> ClassicMember:
        return self._members[member_id]

    def get(self, member_id: str) -> ClassicMember | None:
        return self._members.get(member_id)

    @property
    def awaiting_join_count(self) -> int:
        """Number of members whose JoinGroup request waits for the rebalance to complete."""
        return self._awaiting_join_count

    @property
    def protocols_bytes(self) -> int:
        return self._protocols_bytes

    @property
    def memory_bytes(self) -> int:
        """Approximate memory of all members and pending member ids, without assignments."""
        return self._protocols_bytes + self._names_bytes + len(self.pending_member_ids) * MEMBER_OVERHEAD_BYTES

    @property
    def have_all_joined(self) -> bool:
        """Whether every member has sent JoinGroup for the current rebalance, and no member id is pending."""
        return self._awaiting_join_count == len(self._members) and not self.pending_member_ids

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of all members."""
        return max((member.rebalance_timeout_ms for member in self), default=0)

    def find_static_member_id(self, group_instance_id: str | None) -> str | None:
        """Return the member id of a static member, or None if there is no such member."""
        return None if group_instance_id is None else self._member_id_by_instance.get(group_instance_id)

    def find_member_error(self, member_id: str, group_instance_id: str | None) -> ErrorCode | None:
        """Return the error of a request whose member id or group instance id matches no current member, or None."""
        if group_instance_id is not None:
            owner = self._member_id_by_instance.get(group_instance_id)
            if owner is not None and owner != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
            if owner is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        return None if member_id in self._members else ErrorCode.UNKNOWN_MEMBER_ID

    def add(self, member: ClassicMember) -> None:
        """Add a member to the group. The first member becomes the leader."""
        check_invariant(member.member_id not in self._members, f"member {member.member_id!r} is added twice")
        if member.group_instance_id is not None:
            check_invariant(
                member.group_instance_id not in self._member_id_by_instance, "a static member is added twice"
            )
            self._member_id_by_instance[member.group_instance_id] = member.member_id
        self.pending_member_ids.discard(member.member_id)
        self._members[member.member_id] = member
        self._add_protocol_counts(member.protocols)
        self._names_bytes += estimate_member_names_size(member.client_id, member.group_instance_id)
        self._awaiting_join_count += member.join_waiter is not None
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member_id: str) -> None:
        """Remove a member from the group. If it was the leader, the oldest remaining member becomes the leader."""
        member = self._members.pop(member_id)
        self._remove_protocol_counts(member.protocols)
        self._names_bytes -= estimate_member_names_size(member.client_id, member.group_instance_id)
        self._awaiting_join_count -= member.join_waiter is not None
        if member.group_instance_id is not None:
            del self._member_id_by_instance[member.group_instance_id]
        self.pending_sync_ids.discard(member_id)
        if self.leader == member_id:
            self.leader = next(iter(self._members), None)

    def replace_static_member_id(self, member: ClassicMember, member_id: str) -> None:
        """Assign a new member id to a restarted static member, preserving its position, assignment and leadership."""
        check_invariant(member.group_instance_id is not None, "only static members change their id")
        del self._members[member.member_id]
        if self.leader == member.member_id:
            self.leader = member_id
        if member.member_id in self.pending_sync_ids:
            self.pending_sync_ids.remove(member.member_id)
            self.pending_sync_ids.add(member_id)
        member.member_id = member_id
        self._members[member_id] = member
        self._member_id_by_instance[str(member.group_instance_id)] = member_id

    def update_protocols(self, member: ClassicMember, protocols: MemberProtocols) -> None:
        self._remove_protocol_counts(member.protocols)
        member.protocols = protocols
        self._add_protocol_counts(protocols)

    def update_client_id(self, member: ClassicMember, client_id: str) -> None:
        self._names_bytes += len(client_id) - len(member.client_id)
        member.client_id = client_id

    def _add_protocol_counts(self, protocols: MemberProtocols) -> None:
        self._supporter_counts.update(_list_distinct_names(protocols))
        self._protocols_bytes += estimate_protocols_size(protocols)

    def _remove_protocol_counts(self, protocols: MemberProtocols) -> None:
        for name in _list_distinct_names(protocols):
            self._supporter_counts[name] -= 1
            if not self._supporter_counts[name]:
                del self._supporter_counts[name]  # clients invent protocol names: unused ones must not accumulate
        self._protocols_bytes -= estimate_protocols_size(protocols)

    def set_join_waiter(self, member: ClassicMember, waiter: int | None) -> int | None:
        """Set the request that waits for a JoinGroup response. Return the replaced one, which also needs a response."""
        previous = member.join_waiter
        member.join_waiter = waiter
        self._awaiting_join_count += (waiter is not None) - (previous is not None)
        return previous

    def supports_any_protocol(self, protocols: MemberProtocols) -> bool:
        """Return whether all members support at least one of these protocols."""
        return any(self._supporter_counts[name] == len(self._members) for name in _list_distinct_names(protocols))

    def select_protocol(self) -> str:
        """Return the protocol that most members prefer among those that all members support."""
        candidates = {name for name, count in self._supporter_counts.items() if count == len(self._members)}
        votes = Counter(member.preferred_protocol(candidates) for member in self)
        return votes.most_common(1)[0][0]

    def elect_joined_leader(self) -> bool:
        """Keep the leader if it has joined the rebalance, otherwise elect a member that has. Return False if none."""
        if self.leader is not None and self._members[self.leader].join_waiter is not None:
            return True
        self.leader = next((member.member_id for member in self if member.join_waiter is not None), self.leader)
        return self.leader is not None and self._members[self.leader].join_waiter is not None

    def check_invariants(self) -> None:
        """Verify the counters by iterating over all members. Used by tests and simulations."""
        check_invariant(
            self._awaiting_join_count == sum(m.join_waiter is not None for m in self), "count of waiting joins"
        )
        supporters = Counter(name for member in self for name in _list_distinct_names(member.protocols))
        check_invariant(dict(self._supporter_counts) == dict(supporters), "count of supporters")
        check_invariant(
            self._protocols_bytes == sum(estimate_protocols_size(member.protocols) for member in self),
            "size of the protocols",
        )
        names_bytes = sum(estimate_member_names_size(member.client_id, member.group_instance_id) for member in self)
        check_invariant(self._names_bytes == names_bytes, "size of the names")
        instances = {m.group_instance_id: m.member_id for m in self if m.group_instance_id is not None}
        check_invariant(self._member_id_by_instance == instances, "index of static members")
        check_invariant(
            (self.leader is None) == (not self._members), "a group has a leader exactly when it has members"
        )
        check_invariant(self.leader is None or self.leader in self._members, "the leader is a member")
        check_invariant(self.pending_sync_ids <= self._members.keys(), "only members owe a sync")
        check_invariant(self.pending_member_ids.isdisjoint(self._members), "a member is not pending")


def _list_distinct_names(protocols: MemberProtocols) -> tuple[str, ...]:
    """Return the distinct protocol names in order of preference, so that a repeated name counts as one vote."""
    return tuple(dict.fromkeys(name for name, _ in protocols))


def decode_subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Return the topics of all consumer subscriptions, or None if one of them cannot be decoded.

    Topics are the only part of member metadata that the coordinator decodes. Every version of the consumer protocol
    starts with a version (int16) and an array of topic names.
    """
    topics: set[str] = set()
    try:
        for subscription in subscriptions:
            topics.update(_decode_topics(subscription))
    except (struct.error, ValueError):
        return None
    return frozenset(topics)


def _decode_topics(subscription: bytes) -> Iterable[str]:
    """Yield the topic names of an encoded subscription."""
    (count,) = struct.unpack_from(">i", subscription, 2)
    position = 6
    for _ in range(count):  # if the count is too large, the first missing name raises struct.error
        (length,) = struct.unpack_from(">h", subscription, position)
        end = position + 2 + length
        if length < 0 or end > len(subscription):
            raise ValueError("topic name extends beyond the end of the subscription")
        yield subscription[position + 2 : end].decode()
        position = end
