"""Who takes part: voters, learners, and the disks that their promises are written on.

A member is a node id *and* a directory id. What a voter promised (its vote, the entries it acknowledged) is on its
disk; the same node id on an empty disk is a node that has forgotten its promises, and to count it as the old one would
let two majorities exist that share nobody who remembers. So a directory id is part of the identity: it is written into
the membership, and whoever answers from another directory is not counted.

Members are changed one at a time, and a membership is in force as soon as it is *appended*, committed or not. Any two
majorities of memberships that differ by one voter share a voter, so one step at a time cannot elect two leaders.
Chains of uncommitted steps could (the flaw found in 2015 in the thesis' single-server change): therefore a leader must
have committed an entry of its own term, and the membership before, before it appends the next. See `rules`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from chronik.errors import invariant
from chronik.ids import ZERO_ID
from chronik.limits import CLUSTER_MEMBERS_MAX

NOBODY: Final = -1
"""No leader known, or no vote given."""

UNBOUND: Final = ZERO_ID
"""The directory of a member that the cluster was configured with but has never heard from.

`[[peers]]` names node ids only: the first leader writes down the directories of those who elected it, and of the others
when they first speak. In a membership from the log an unbound voter counts in no quorum: it has promised nothing."""


class Member(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    node_id: int
    directory_id: bytes
    is_voter: bool


class Membership(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Members in the order of their ids. Small: it is written whole into the log and into snapshots."""

    members: tuple[Member, ...] = ()

    def get(self, node_id: int) -> Member | None:
        for member in self.members:
            if member.node_id == node_id:
                return member
        return None

    @property
    def voters(self) -> tuple[int, ...]:
        return tuple(member.node_id for member in self.members if member.is_voter)

    def with_member(self, member: Member) -> Membership:
        others = [other for other in self.members if other.node_id != member.node_id]
        return Membership(tuple(sorted([*others, member], key=lambda each: each.node_id)))

    def without(self, node_id: int) -> Membership:
        return Membership(tuple(member for member in self.members if member.node_id != node_id))


class AddLearner(msgspec.Struct, frozen=True, tag=1, array_like=True):
    """Adds a new node, or a known one on a new disk, which loses its vote in the same step."""

    node_id: int
    directory_id: bytes


class PromoteLearner(msgspec.Struct, frozen=True, tag=2, array_like=True):
    """The only way to become a voter: a voter that started with an empty log would hold up every commit."""

    node_id: int


class RemoveNode(msgspec.Struct, frozen=True, tag=3, array_like=True):
    node_id: int


class BindDirectory(msgspec.Struct, frozen=True, tag=4, array_like=True):
    """Made by the core itself: an unbound member has spoken for the first time, and is bound to its directory."""

    node_id: int
    directory_id: bytes


class DemoteVoter(msgspec.Struct, frozen=True, tag=5, array_like=True):
    """Takes a member's vote, and nothing else: it follows as a learner from then on."""

    node_id: int


Change = AddLearner | PromoteLearner | DemoteVoter | RemoveNode | BindDirectory


def changed(membership: Membership, change: Change) -> Membership | None:
    """Returns the membership after the change, or None when the change makes no sense in this one."""
    known = membership.get(change.node_id)
    match change:
        case AddLearner(node_id, directory_id):
            is_same = known is not None and known.directory_id == directory_id
            if is_same or directory_id == UNBOUND or (known is None and len(membership.members) >= CLUSTER_MEMBERS_MAX):
                return None
            result = membership.with_member(Member(node_id, directory_id, is_voter=False))
        case PromoteLearner(node_id):
            if known is None or known.is_voter:
                return None
            result = membership.with_member(Member(node_id, known.directory_id, is_voter=True))
        case DemoteVoter(node_id):
            if known is None or not known.is_voter:
                return None
            result = membership.with_member(Member(node_id, known.directory_id, is_voter=False))
        case RemoveNode(node_id):
            if known is None:
                return None
            result = membership.without(node_id)
        case BindDirectory(node_id, directory_id):
            if known is None or known.directory_id != UNBOUND or directory_id == UNBOUND:
                return None
            return membership.with_member(Member(node_id, directory_id, known.is_voter))
    return result if _can_commit(result) else None


def _can_commit(membership: Membership) -> bool:
    """Whether those who count could be a majority: otherwise this membership could never commit anything, not even
    its own successor."""
    counting = [member for member in membership.members if member.is_voter and member.directory_id != UNBOUND]
    return 2 * len(counting) > len(membership.voters)


class MembershipHistory:
    """The memberships of the log, oldest first: that of the snapshot, then one per membership entry after it.

    All are kept between snapshots (changes are rare), because a conflict may take the newest back, and a snapshot
    taken now is of an earlier index than the newest entry.
    """

    def __init__(self, index: int, membership: Membership) -> None:
        self._known: list[tuple[int, Membership]] = [(index, membership)]

    @property
    def current(self) -> Membership:
        return self._known[-1][1]

    @property
    def index(self) -> int:
        """The index of the entry that brought the current one; 0 for the one that the node was started with."""
        return self._known[-1][0]

    @property
    def previous(self) -> Membership:
        """The one that is in force again if the current one is taken back."""
        return self._known[-2 if len(self._known) > 1 else -1][1]

    def at(self, index: int) -> Membership:
        """The membership after the entry at `index`: it belongs in a snapshot of that index."""
        found = [membership for since, membership in self._known if since <= index]
        invariant(bool(found), f"the membership at {index} is compacted away")
        return found[-1]

    def append(self, index: int, membership: Membership) -> None:
        invariant(index > self.index, f"membership {index} does not follow {self.index}")
        self._known.append((index, membership))

    def truncate_from(self, index: int) -> bool:
        """Takes back what a conflict removes from the log. Returns whether another membership is in force now."""
        before = len(self._known)
        while len(self._known) > 1 and self._known[-1][0] >= index:
            self._known.pop()
        return len(self._known) < before

    def compact_through(self, index: int) -> None:
        """Keeps the one in force at `index` and all after it."""
        while len(self._known) > 1 and self._known[1][0] <= index:
            self._known.pop(0)

    def replace(self, index: int, membership: Membership) -> None:
        """Forgets all others: a snapshot has taken the place of the log."""
        self._known = [(index, membership)]


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Membership)


def encode_membership(membership: Membership) -> bytes:
    return _encoder.encode(membership)


def decode_membership(data: bytes) -> Membership:
    """Raises msgspec.DecodeError on bytes that are no membership."""
    return _decoder.decode(data)
