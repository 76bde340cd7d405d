"""Cluster membership: voters, learners, and the data directories to which they are bound.

A member is a node id and a directory id. Votes and acknowledged entries are stored in the data directory. A node that
returns with an empty disk has lost them; if it counted as the same voter, two majorities could exist whose common
voters have all forgotten their votes. The membership therefore records the directory id, and messages from another
directory do not count.

Members change one at a time, and a membership takes effect as soon as it is appended, committed or not. Majorities of
two memberships that differ by one voter overlap. A chain of uncommitted changes could break this (the bug found in 2015
in the thesis' single-server changes): a leader must therefore have committed an entry of its own term, and the previous
membership, before it appends the next one. See `rules`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from chronik.errors import check_invariant
from chronik.ids import ZERO_ID
from chronik.limits import CLUSTER_MEMBERS_MAX

NO_NODE: Final = -1
"""The node id that stands for "no leader known" and "not voted"."""

UNBOUND_DIRECTORY: Final = ZERO_ID
"""Placeholder directory id of a configured member that has not contacted a leader yet.

`[[peers]]` contains node ids only. The first leader records the directories of the nodes that elected it. The
directories of other nodes are recorded when they send their first message. In a committed membership, an unbound voter
does not count towards a quorum.
"""


class RaftMember(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A member of the Raft cluster: a voter or a learner, bound to a data directory."""

    node_id: int
    directory_id: bytes
    is_voter: bool


class Membership(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The members of the Raft cluster, sorted by node id."""

    members: tuple[RaftMember, ...] = ()

    def get(self, node_id: int) -> RaftMember | None:
        for member in self.members:
            if member.node_id == node_id:
                return member
        return None

    @property
    def voters(self) -> tuple[int, ...]:
        return tuple(member.node_id for member in self.members if member.is_voter)

    def with_member(self, member: RaftMember) -> Membership:
        others = [other for other in self.members if other.node_id != member.node_id]
        return Membership(tuple(sorted([*others, member], key=lambda each: each.node_id)))

    def without_member(self, node_id: int) -> Membership:
        return Membership(tuple(member for member in self.members if member.node_id != node_id))


class AddLearner(msgspec.Struct, frozen=True, tag=1, array_like=True):
    """A membership change that adds a node as a learner, or turns a member with a new disk into a learner."""

    node_id: int
    directory_id: bytes


class PromoteLearner(msgspec.Struct, frozen=True, tag=2, array_like=True):
    """A membership change that makes a learner a voter.

    It is the only way to add a voter: a voter with an empty log would delay every commit.
    """

    node_id: int


class RemoveMember(msgspec.Struct, frozen=True, tag=3, array_like=True):
    """A membership change that removes a member."""

    node_id: int


class BindDirectory(msgspec.Struct, frozen=True, tag=4, array_like=True):
    """A membership change that binds a member to the data directory from which its first message came."""

    node_id: int
    directory_id: bytes


class DemoteVoter(msgspec.Struct, frozen=True, tag=5, array_like=True):
    """A membership change that makes a voter a learner."""

    node_id: int


MembershipChange = AddLearner | PromoteLearner | DemoteVoter | RemoveMember | BindDirectory


def apply_change(membership: Membership, change: MembershipChange) -> Membership | None:
    """Return the membership after the change, or None if the change does not apply to this membership."""
    known = membership.get(change.node_id)
    match change:
        case AddLearner(node_id, directory_id):
            is_same = known is not None and known.directory_id == directory_id
            if (
                is_same
                or directory_id == UNBOUND_DIRECTORY
                or (known is None and len(membership.members) >= CLUSTER_MEMBERS_MAX)
            ):
                return None
            result = membership.with_member(RaftMember(node_id, directory_id, is_voter=False))
        case PromoteLearner(node_id):
            if known is None or known.is_voter:
                return None
            result = membership.with_member(RaftMember(node_id, known.directory_id, is_voter=True))
        case DemoteVoter(node_id):
            if known is None or not known.is_voter:
                return None
            result = membership.with_member(RaftMember(node_id, known.directory_id, is_voter=False))
        case RemoveMember(node_id):
            if known is None:
                return None
            result = membership.without_member(node_id)
        case BindDirectory(node_id, directory_id):
            if known is None or known.directory_id != UNBOUND_DIRECTORY or directory_id == UNBOUND_DIRECTORY:
                return None
            return membership.with_member(RaftMember(node_id, directory_id, known.is_voter))
    return result if _can_form_majority(result) else None


def _can_form_majority(membership: Membership) -> bool:
    """Return whether the bound voters are enough for a majority, without which no entry could be committed."""
    bound_voters = [
        member for member in membership.members if member.is_voter and member.directory_id != UNBOUND_DIRECTORY
    ]
    return 2 * len(bound_voters) > len(membership.voters)


class MembershipHistory:
    """The cluster memberships in the snapshot and in the log, oldest first.

    All of them are kept until the next snapshot: a conflict may remove the newest one, and a snapshot needs the
    membership as of its own, earlier index.
    """

    def __init__(self, index: int, membership: Membership) -> None:
        self._memberships: list[tuple[int, Membership]] = [(index, membership)]

    @property
    def current(self) -> Membership:
        return self._memberships[-1][1]

    @property
    def index(self) -> int:
        """The index of the log entry with the current membership, or 0 for the configured membership."""
        return self._memberships[-1][0]

    @property
    def previous(self) -> Membership:
        """The membership to which the node returns if the log entry with the current membership is truncated."""
        return self._memberships[-2 if len(self._memberships) > 1 else -1][1]

    def at(self, index: int) -> Membership:
        """Return the membership as of log index `index`, for a snapshot."""
        found = [membership for since, membership in self._memberships if since <= index]
        check_invariant(bool(found), f"Raft: membership at index {index} was compacted away")
        return found[-1]

    def append(self, index: int, membership: Membership) -> None:
        check_invariant(index > self.index, f"Raft: membership entry {index} does not follow {self.index}")
        self._memberships.append((index, membership))

    def truncate_from(self, index: int) -> bool:
        """Remove the memberships of truncated log entries. Return whether the current membership has changed."""
        before = len(self._memberships)
        while len(self._memberships) > 1 and self._memberships[-1][0] >= index:
            self._memberships.pop()
        return len(self._memberships) < before

    def compact_through(self, index: int) -> None:
        """Remove the memberships that are not needed after the log is compacted up to `index`."""
        while len(self._memberships) > 1 and self._memberships[1][0] <= index:
            self._memberships.pop(0)

    def replace(self, index: int, membership: Membership) -> None:
        """Replace all memberships with the membership in an installed snapshot."""
        self._memberships = [(index, membership)]


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Membership)


def encode_membership(membership: Membership) -> bytes:
    return _encoder.encode(membership)


def decode_membership(data: bytes) -> Membership:
    """Decode a cluster membership. Raise msgspec.DecodeError if the bytes are invalid."""
    return _decoder.decode(data)
