"""Queues of ReadIndex requests: at the leader, and at followers that forward them to the leader.

Many reads share one round of heartbeats. All reads collected so far are confirmed by one message per voter, while later
reads are collected for the next round. A round that takes longer than a tick does not delay the next one, so a read
takes a single round trip even on a slow network.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import msgspec

ROUNDS_MAX: Final = 64
"""The maximum number of concurrent read rounds. Above this limit, reads wait for a round to complete."""


class PendingRead(NamedTuple):
    """A read that waits for a majority to confirm the leadership."""

    node_id: int
    """The node that requested the read: the leader, or a follower that has forwarded the read."""
    request: int
    """The identifier of the read: the request context of a local read, or the follower's request number."""


class ReadRound(NamedTuple):
    """A round of heartbeats by which a majority confirms the leadership for a batch of reads."""

    number: int
    commit: int
    """The commit index at the start of the round, which must be applied before the reads are served."""
    reads: list[PendingRead]


class ReadQueue:
    """The leader's queue of reads, its own and those forwarded by followers."""

    def __init__(self) -> None:
        self.round = 0
        self._collected: list[PendingRead] = []
        self._open_rounds: deque[ReadRound] = deque()
        self._is_due = False

    def __len__(self) -> int:
        return len(self._collected) + sum(len(open_request.reads) for open_request in self._open_rounds)

    @property
    def has_open_read_rounds(self) -> bool:
        return bool(self._open_rounds)

    @property
    def can_start_read_round(self) -> bool:
        return bool(self._collected) and (
            not self._open_rounds or (self._is_due and len(self._open_rounds) < ROUNDS_MAX)
        )

    def add(self, read: PendingRead) -> None:
        self._collected.append(read)

    def tick(self) -> None:
        self._is_due = True

    def start_read_round(self, commit: int) -> None:
        self.round += 1
        self._is_due = False
        self._open_rounds.append(ReadRound(self.round, commit, self._collected))
        self._collected = []

    def take_confirmed_rounds(self, is_confirmed: Callable[[int], bool]) -> Iterator[ReadRound]:
        """Remove and yield the rounds that are confirmed, oldest first.

        A response also confirms all earlier rounds.
        """
        while self._open_rounds and is_confirmed(self._open_rounds[0].number):
            yield self._open_rounds.popleft()

    def drain(self) -> list[PendingRead]:
        """Remove and return all pending reads of the leader.

        The round counter continues, so that old responses confirm no new round.
        """
        drained = [read for open_request in self._open_rounds for read in open_request.reads] + self._collected
        self._open_rounds.clear()
        self._collected = []
        return drained


class _SentReadRequest(msgspec.Struct):
    contexts: list[int]
    ticks_left: int


class ForwardedReads:
    """The reads that a follower forwards to the leader, in batches.

    Request numbers start at a random value, so that a late response to a request sent before a restart confirms no
    read.
    """

    def __init__(self, first_request: int) -> None:
        self.request = first_request
        self._collected: list[int] = []
        self._sent_requests: dict[int, _SentReadRequest] = {}
        self._is_due = False

    def __len__(self) -> int:
        return len(self._collected) + sum(len(open_request.contexts) for open_request in self._sent_requests.values())

    @property
    def can_send_read_request(self) -> bool:
        return bool(self._collected) and (
            not self._sent_requests or (self._is_due and len(self._sent_requests) < ROUNDS_MAX)
        )

    def add(self, context: int) -> None:
        self._collected.append(context)

    def start_read_request(self, ticks_max: int) -> int:
        """Create a request to the leader for all queued reads, and return the request's number."""
        self.request += 1
        self._is_due = False
        self._sent_requests[self.request] = _SentReadRequest(self._collected, ticks_max)
        self._collected = []
        return self.request

    def take_request(self, request: int) -> list[int]:
        """Remove a request that was answered, and return the contexts of its reads."""
        sent = self._sent_requests.pop(request, None)
        return sent.contexts if sent is not None else []

    def tick(self) -> list[int]:
        """Advance the clock by one tick, remove expired requests, and return the contexts of their reads."""
        self._is_due = True
        for sent in self._sent_requests.values():
            sent.ticks_left -= 1
        expired = [request for request, sent in self._sent_requests.items() if sent.ticks_left <= 0]
        return [context for request in expired for context in self.take_request(request)]

    def drain(self) -> list[int]:
        drained = [context for sent in self._sent_requests.values() for context in sent.contexts] + self._collected
        self._sent_requests.clear()
        self._collected = []
        return drained
