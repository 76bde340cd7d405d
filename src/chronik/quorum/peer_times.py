"""When a leader last heard from each peer, and when that peer last held the whole log. It is shown; and
the controller changes the membership only while those who would have to agree are heard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from chronik.raft.membership import UNBOUND, Membership

NEVER: Final = float("-inf")


class PeerTime(NamedTuple):
    heard: float
    caught_up: float
    """The last time at which it held the log up to its end, or NEVER."""
    end: int
    """Where the leader's log ended when the peer was last heard from."""


class PeerTimes:
    def __init__(self) -> None:
        self.known: dict[int, PeerTime] = {}
        self._heard: dict[int, bytes] = {}

    def hear(self, peer: int, directory_id: bytes) -> None:
        self._heard[peer] = directory_id

    def lead(self, membership: Membership, matches: Mapping[int, int], end: int, now: float) -> None:
        """Notes, as the leader, how far each peer that was heard from holds the log, which ends at `end`. Who speaks
        from another disk than the member's is not the member: what that one promised is gone."""
        for peer, directory_id in self._heard.items():
            member = membership.get(peer)
            if peer in matches and member is not None and member.directory_id in (UNBOUND, directory_id):
                self.known[peer] = _heard_again(self.known.get(peer), matches[peer], end, now)
        self._heard.clear()

    def follow(self) -> None:
        """Forgets all: a node that does not lead knows nothing of the others."""
        self._heard.clear()
        self.known.clear()


def _heard_again(before: PeerTime | None, match: int, end: int, now: float) -> PeerTime:
    """Reckons as Kafka does: a peer that now holds what was the end when it was last heard from had caught up then."""
    if match >= end:
        return PeerTime(now, now, end)
    if before is None:
        return PeerTime(now, NEVER, end)
    return PeerTime(now, before.heard if match >= before.end else before.caught_up, end)
