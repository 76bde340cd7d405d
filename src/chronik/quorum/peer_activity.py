"""The leader's record of when each peer last responded and when it last had the whole log.

The record is part of the node's status. The controller changes the membership only while a majority is responding.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from chronik.raft.membership import UNBOUND_DIRECTORY, Membership

NEVER: Final = float("-inf")


class PeerActivity(NamedTuple):
    """The times at which the Raft leader last received a message from a peer and last saw the peer caught up."""

    last_contact: float
    last_caught_up: float
    """The time at which the peer's log was last caught up with the leader's log, or NEVER."""
    log_end: int
    """The last index of the leader's log when the peer's last message arrived."""


class PeerActivityTracker:
    """The activity of all peers as recorded by the Raft leader; empty on other nodes."""

    def __init__(self) -> None:
        self.by_peer: dict[int, PeerActivity] = {}
        self._contacted: dict[int, bytes] = {}

    def record_contact(self, peer: int, directory_id: bytes) -> None:
        self._contacted[peer] = directory_id

    def update(self, membership: Membership, matches: Mapping[int, int], end: int, now: float) -> None:
        """Update the activity of peers that have sent messages since the last call. `end` is the leader's last index.

        Messages from a directory that is not in the membership are ignored.
        """
        for peer, directory_id in self._contacted.items():
            member = membership.get(peer)
            if peer in matches and member is not None and member.directory_id in (UNBOUND_DIRECTORY, directory_id):
                self.by_peer[peer] = _update_peer_activity(self.by_peer.get(peer), matches[peer], end, now)
        self._contacted.clear()

    def clear(self) -> None:
        """Forget the activity of all peers, because this node is no longer the Raft leader."""
        self._contacted.clear()
        self.by_peer.clear()


def _update_peer_activity(previous: PeerActivity | None, match: int, end: int, now: float) -> PeerActivity:
    """Return the activity of a peer, updated for a message that it has sent.

    As in Kafka, a peer that now has the log end of its previous contact was caught up at that time.
    """
    if match >= end:
        return PeerActivity(now, now, end)
    if previous is None:
        return PeerActivity(now, NEVER, end)
    return PeerActivity(now, previous.last_contact if match >= previous.log_end else previous.last_caught_up, end)
