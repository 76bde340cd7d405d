"""What a voter promised is on its disk: its node, back on another one, is not the member that the leader counts on."""

from __future__ import annotations

from chronik.quorum.peer_times import PeerTimes
from chronik.raft.membership import UNBOUND, Member, Membership

OLD, NEW = bytes([1] * 16), bytes([2] * 16)


def heard(seat: bytes, directory_id: bytes) -> bool:
    times = PeerTimes()
    times.hear(3, directory_id)
    times.lead(Membership((Member(3, seat, is_voter=True),)), {3: 7}, 7, 100.0)
    return 3 in times.known


def test_it_is_heard_on_its_disk_alone() -> None:
    assert heard(OLD, OLD)
    assert heard(UNBOUND, NEW), "it was never heard before"
    assert not heard(OLD, NEW)


def test_who_is_no_member_is_not_heard() -> None:
    times = PeerTimes()
    times.hear(4, OLD)
    times.lead(Membership((Member(3, OLD, is_voter=True),)), {3: 7}, 7, 100.0)
    assert times.known == {}
