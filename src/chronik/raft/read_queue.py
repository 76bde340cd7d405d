"""Reads that wait to be confirmed: at the leader, and at a follower that has asked the leader.

Many reads share one round of heartbeats: a round is begun for all that have gathered, and while it is under way the
next gather. A round is one message per voter, however many reads it confirms. Where an answer takes longer than a tick,
the next round does not wait for it: on a slow line a read takes one round trip, as on a fast one, and not two.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import msgspec

ROUNDS_MAX: Final = 64
"""Rounds under way at once: one a tick, for longer than anybody waits. Beyond it reads gather until one is answered."""


class Read(NamedTuple):
    node_id: int
    """The node that asked: this one, or a follower that forwarded the read."""
    request: int
    """The context of our own read, or the follower's number for its read."""


class Round(NamedTuple):
    number: int
    commit: int
    """The commit index when it began: at least what it was when each of its reads was asked for."""
    reads: list[Read]


class ReadQueue:
    """Reads at the leader: its own, and those that followers have forwarded."""

    def __init__(self) -> None:
        self.round = 0
        self._gathering: list[Read] = []
        self._under_way: deque[Round] = deque()
        self._is_due = False

    def __len__(self) -> int:
        return len(self._gathering) + sum(len(each.reads) for each in self._under_way)

    @property
    def is_under_way(self) -> bool:
        return bool(self._under_way)

    @property
    def can_begin(self) -> bool:
        return bool(self._gathering) and (not self._under_way or (self._is_due and len(self._under_way) < ROUNDS_MAX))

    def add(self, read: Read) -> None:
        self._gathering.append(read)

    def tick(self) -> None:
        self._is_due = True

    def begin(self, commit: int) -> None:
        self.round += 1
        self._is_due = False
        self._under_way.append(Round(self.round, commit, self._gathering))
        self._gathering = []

    def confirm(self, is_confirmed: Callable[[int], bool]) -> Iterator[Round]:
        """Takes out confirmed rounds, oldest first: a peer that has answered a round has answered all before it."""
        while self._under_way and is_confirmed(self._under_way[0].number):
            yield self._under_way.popleft()

    def drain(self) -> list[Read]:
        """Takes out all waiting reads; the round counter goes on, so that an old answer never confirms a new round."""
        drained = [read for each in self._under_way for read in each.reads] + self._gathering
        self._under_way.clear()
        self._gathering = []
        return drained


class _Asked(msgspec.Struct):
    contexts: list[int]
    ticks_left: int


class ForwardedReads:
    """Reads at a follower: a request to the leader is for all reads that had gathered when it was sent.

    Requests are numbered from a random start: an answer to a request of this node's previous life, however late, must
    not confirm a read of this one.
    """

    def __init__(self, first_request: int) -> None:
        self.request = first_request
        self._gathering: list[int] = []
        self._asked: dict[int, _Asked] = {}
        self._is_due = False

    def __len__(self) -> int:
        return len(self._gathering) + sum(len(each.contexts) for each in self._asked.values())

    @property
    def can_ask(self) -> bool:
        return bool(self._gathering) and (not self._asked or (self._is_due and len(self._asked) < ROUNDS_MAX))

    def add(self, context: int) -> None:
        self._gathering.append(context)

    def ask(self, ticks_max: int) -> int:
        """Returns the number of a request for all gathered reads; it is given up after `ticks_max`."""
        self.request += 1
        self._is_due = False
        self._asked[self.request] = _Asked(self._gathering, ticks_max)
        self._gathering = []
        return self.request

    def answered(self, request: int) -> list[int]:
        """Returns the contexts of that request, or none if it is not under way."""
        asked = self._asked.pop(request, None)
        return asked.contexts if asked is not None else []

    def tick(self) -> list[int]:
        """Returns the contexts of requests whose time is up."""
        self._is_due = True
        for asked in self._asked.values():
            asked.ticks_left -= 1
        over = [request for request, asked in self._asked.items() if asked.ticks_left <= 0]
        return [context for request in over for context in self.answered(request)]

    def drain(self) -> list[int]:
        drained = [context for asked in self._asked.values() for context in asked.contexts] + self._gathering
        self._asked.clear()
        self._gathering = []
        return drained
