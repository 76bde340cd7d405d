"""Peer activity: messages from another directory than the member's do not count as activity of the member."""

from __future__ import annotations

from chronik.quorum.peer_activity import PeerActivityTracker
from chronik.raft.membership import UNBOUND_DIRECTORY, Membership, RaftMember

OLD, NEW = bytes([1] * 16), bytes([2] * 16)


def is_active(member_directory: bytes, directory_id: bytes) -> bool:
    times = PeerActivityTracker()
    times.record_contact(3, directory_id)
    times.update(Membership((RaftMember(3, member_directory, is_voter=True),)), {3: 7}, 7, 100.0)
    return 3 in times.by_peer


def test_member_is_active_only_on_its_directory() -> None:
    assert is_active(OLD, OLD)
    assert is_active(UNBOUND_DIRECTORY, NEW), "an unbound member may use any directory"
    assert not is_active(OLD, NEW)


def test_non_member_is_not_active() -> None:
    times = PeerActivityTracker()
    times.record_contact(4, OLD)
    times.update(Membership((RaftMember(3, OLD, is_voter=True),)), {3: 7}, 7, 100.0)
    assert times.by_peer == {}
