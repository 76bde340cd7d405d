"""A seeded simulation of producers that outpace replication: one leader, two followers, many connections.

The decisions are those of the broker (`InSync`, `Follower`, `Uncommitted`, `can_pipeline_requests`); the log, the disk
and the network are reduced to sizes and delays. Every connection always has another request to send. The leader
appends faster than followers fetch, so the backlog is as long as backpressure allows.
"""

from __future__ import annotations

import heapq
import itertools
import random
from bisect import bisect_right
from collections import deque
from collections.abc import Callable

from chronik.broker.isr_state import IsrState
from chronik.broker.uncommitted import NodeUncommittedBytes, UncommittedBytes, can_pipeline_requests
from chronik.limits import KIB, REPLICA_FETCH_PARTITION_BYTES_MAX, REQUESTS_QUEUED_MAX
from chronik.metadata.commands.partitions import IsrMember
from chronik.metadata.records import Partition

LEADER, FIRST, SECOND = 1, 2, 3
LAG_SECONDS_MAX = 10.0
CHECK_SECONDS = LAG_SECONDS_MAX / 4
PROPOSAL_SECONDS = 0.02
IDLE_FETCH_SECONDS = 0.002
LEADER_BYTES_PER_SECOND = 200e6


class Log:
    """The leader's log, as the end offset and the end in bytes of each batch. A batch has one offset."""

    def __init__(self) -> None:
        self.bytes_by_end = [0]

    @property
    def end(self) -> int:
        return len(self.bytes_by_end) - 1

    def append(self, size: int) -> int:
        self.bytes_by_end.append(self.bytes_by_end[-1] + size)
        return self.end

    def read(self, offset: int, bytes_max: int) -> tuple[int, int]:
        """Return the end offset and the size of as many batches as fit, at least one."""
        start = self.bytes_by_end[offset]
        end = bisect_right(self.bytes_by_end, start + bytes_max) - 1
        end = min(max(end, offset + 1), self.end)
        return end, self.bytes_by_end[end] - start


class Connection:
    """One producer's connection: requests that were dispatched and not answered, by the end offset of each."""

    def __init__(self) -> None:
        self.unanswered: deque[int] = deque()
        self.blocked_until = 0
        """The offset that must be committed before the next request is dispatched."""


class FollowerNode:
    """A follower with its own speed, one fetch at a time."""

    def __init__(self, node_id: int, bytes_per_second: float, sync_seconds: float) -> None:
        self.id = node_id
        self.bytes_per_second = bytes_per_second
        self.sync_seconds = sync_seconds
        self.offset = 0
        self.has_all = False
        self.is_stopped = False
        self.broker_epoch = 1
        self.fetched_at = 0.0


class Backlog:
    """One run of the simulation."""

    def __init__(self, seed: int, connections: int, request_bytes_max: int, follower_speed: float) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.request_bytes_max = request_bytes_max
        self.log = Log()
        self.high_watermark = 0
        self.uncommitted = UncommittedBytes(NodeUncommittedBytes())
        self.uncommitted_bytes_seen_max = 0
        self.has_followers = True
        self._partition = Partition((LEADER, FIRST, SECOND), (LEADER, FIRST, SECOND), LEADER)
        self.leading = IsrState(LEADER, self._partition, 0.0)
        self.leading.epoch_start_offset = 0
        self.isr_changes: list[tuple[float, tuple[int, ...]]] = []
        speeds = (follower_speed, follower_speed * self.random.uniform(2.0, 3.0))
        self.followers = {
            node_id: FollowerNode(node_id, speed, self.random.uniform(0.001, 0.02))
            for node_id, speed in zip((FIRST, SECOND), speeds, strict=True)
        }
        self._connections = [Connection() for _ in range(connections)]
        self._ready = deque(self._connections)
        self._waiting: list[tuple[int, int, Connection]] = []
        self._is_appending = False
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        for follower in self.followers.values():
            self.after(0.0, lambda follower=follower: self._fetch(follower))  # type: ignore[misc]
        self.after(CHECK_SECONDS, self._check_isr)
        self._append_next()

    @property
    def isr(self) -> tuple[int, ...]:
        return self.leading.isr

    @property
    def slowest_bytes_per_second(self) -> float:
        """How much the slowest follower copies when every fetch is full."""
        size = REPLICA_FETCH_PARTITION_BYTES_MAX
        return min(size / (size / each.bytes_per_second + each.sync_seconds) for each in self.followers.values())

    def after(self, seconds: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._numbers), event))

    def run_until(self, seconds: float) -> None:
        while self._events and self._events[0][0] <= seconds:
            self.now, _, event = heapq.heappop(self._events)
            event()
        self.now = seconds

    def run_until_isr(self, size: int, deadline: float) -> float:
        """Return when the ISR has had `size` members. Raises AssertionError at the deadline."""
        while len(self.isr) != size:
            assert self.now < deadline, f"ISR {self.isr} at {self.now:.1f} s, expected {size} members"
            self.run_until(self.now + 0.05)
        return self.now

    # Producers

    def _append_next(self) -> None:
        """Append the next request of a connection that may send one; the loop handles one at a time."""
        if self._is_appending or not self._ready:
            return
        self._is_appending = True
        connection = self._ready.popleft()
        size = self.random.randint(self.request_bytes_max // 2, self.request_bytes_max)
        self.after(size / LEADER_BYTES_PER_SECOND + 20e-6, lambda: self._append(connection, size))

    def _append(self, connection: Connection, size: int) -> None:
        self._is_appending = False
        end = self.log.append(size)
        self.uncommitted.append(end, size)
        self.uncommitted_bytes_seen_max = max(self.uncommitted_bytes_seen_max, self.uncommitted.bytes)
        for follower in self.followers.values():
            if follower.has_all:
                follower.has_all = False
                self.leading.followers[follower.id].record_leader_append()
        connection.unanswered.append(end)
        self._commit()
        if connection.unanswered and not can_pipeline_requests([self]):
            connection.blocked_until = end
        elif len(connection.unanswered) >= REQUESTS_QUEUED_MAX:
            connection.blocked_until = connection.unanswered[0]
        if connection.blocked_until > self.high_watermark:
            heapq.heappush(self._waiting, (connection.blocked_until, next(self._numbers), connection))
        else:
            self._ready.append(connection)
        self._append_next()

    def _commit(self) -> None:
        high_watermark = self.leading.high_watermark(self.log.end)
        if high_watermark <= self.high_watermark:
            return
        self.high_watermark = high_watermark
        self.uncommitted.commit(high_watermark)
        for connection in self._connections:
            while connection.unanswered and connection.unanswered[0] <= high_watermark:
                connection.unanswered.popleft()
        while self._waiting and self._waiting[0][0] <= high_watermark:
            self._ready.append(heapq.heappop(self._waiting)[2])
        self._append_next()

    # Followers

    def _fetch(self, follower: FollowerNode) -> None:
        if follower.is_stopped:
            self.after(0.01, lambda: self._fetch(follower))
            return
        follower.fetched_at = self.now
        self.leading.followers[follower.id].record_fetch(follower.offset, 0, follower, self.log.end, self.now)
        follower.has_all = follower.offset == self.log.end
        self._commit()
        if self.leading.can_join_isr(self.leading.followers[follower.id], self.high_watermark):
            self._propose()
        if follower.has_all:
            self.after(IDLE_FETCH_SECONDS, lambda: self._fetch(follower))
            return
        end, size = self.log.read(follower.offset, REPLICA_FETCH_PARTITION_BYTES_MAX)

        def written() -> None:
            follower.offset = end
            self._fetch(follower)

        seconds = size / follower.bytes_per_second + follower.sync_seconds * self.random.uniform(0.5, 1.5)
        self.after(seconds, written)

    # -- ISR changes

    def _check_isr(self) -> None:
        self._propose()
        self.after(CHECK_SECONDS, self._check_isr)

    def _propose(self) -> None:
        members = self.leading.compute_next_isr(
            self.high_watermark, self.log.end, self.now, LAG_SECONDS_MAX, lambda node: not self._is_stopped(node)
        )
        if members is not None:
            self.leading.set_proposed_isr(members)
            self.after(PROPOSAL_SECONDS, lambda: self._decide(members))

    def _is_stopped(self, node_id: int) -> bool:
        return self.followers[node_id].is_stopped

    def _decide(self, members: tuple[IsrMember, ...]) -> None:
        isr = tuple(member.broker_id for member in members)
        before = self._partition
        self._partition = Partition(before.replicas, isr, LEADER, before.leader_epoch, before.partition_epoch + 1)
        self.leading.update(self._partition, self.now)
        self.isr_changes.append((self.now, isr))
        self._commit()


def request_bytes_max(connections: int) -> int:
    """Return a request size with which the backlog of as many connections stays within seconds of a follower's work."""
    return min(1024 * KIB, 64 * 1024 * KIB // connections)
