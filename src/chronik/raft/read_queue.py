"""Reads that wait to be confirmed: at the leader, and at a follower that has asked the leader.

Many reads share one round of heartbeats: a round is begun for all that have gathered, and while it is under way the
next gather. A round is one message per peer, however many reads it confirms.
"""

from __future__ import annotations

from typing import NamedTuple


class Read(NamedTuple):
    node_id: int
    """Who asked: this node, or a follower that forwarded it."""
    request: int
    """Its context here, or the follower's number for it."""


class ReadQueue:
    """The leader's side. One round at a time."""

    def __init__(self) -> None:
        self.round = 0
        self.index = 0
        """The commit index when the round began: at least what it was when each of its reads was asked for."""
        self._gathering: list[Read] = []
        self._under_way: list[Read] = []

    def __len__(self) -> int:
        return len(self._gathering) + len(self._under_way)

    @property
    def is_under_way(self) -> bool:
        return bool(self._under_way)

    @property
    def can_begin(self) -> bool:
        return bool(self._gathering) and not self._under_way

    def add(self, read: Read) -> None:
        self._gathering.append(read)

    def begin(self, commit: int) -> None:
        self.round += 1
        self.index = commit
        self._under_way, self._gathering = self._gathering, []

    def confirm(self) -> list[Read]:
        confirmed, self._under_way = self._under_way, []
        return confirmed

    def drain(self) -> list[Read]:
        """All that wait; the round counter goes on, so that an old answer never confirms a new round."""
        drained = self._under_way + self._gathering
        self._under_way, self._gathering = [], []
        return drained


class ForwardedReads:
    """A follower's side: one request to the leader at a time, for all reads that had gathered when it was sent.

    Requests are numbered from a random start: an answer to a request of this node's previous life, however late, must
    not confirm a read of this one.
    """

    def __init__(self, first_request: int) -> None:
        self.request = first_request
        self.waiting_ticks = 0
        self._gathering: list[int] = []
        self._asked: list[int] = []

    def __len__(self) -> int:
        return len(self._gathering) + len(self._asked)

    @property
    def is_asked(self) -> bool:
        return bool(self._asked)

    @property
    def can_ask(self) -> bool:
        return bool(self._gathering) and not self._asked

    def add(self, context: int) -> None:
        self._gathering.append(context)

    def ask(self) -> int:
        self.request += 1
        self.waiting_ticks = 0
        self._asked, self._gathering = self._gathering, []
        return self.request

    def answered(self, request: int) -> list[int]:
        """The contexts of that request; none if it is not the one under way."""
        if request != self.request:
            return []
        answered, self._asked = self._asked, []
        return answered

    def drain(self) -> list[int]:
        drained = self._asked + self._gathering
        self._asked, self._gathering = [], []
        return drained
