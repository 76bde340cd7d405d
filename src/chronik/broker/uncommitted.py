"""Backpressure on producers by the number of uncommitted bytes of each partition and of the node.

Uncommitted bytes are between a leader's high watermark and its log end offset. Followers still have to fetch them, so
they are the followers' backlog. A connection may send produce requests ahead of their responses only while the backlog
is short. Otherwise a client with many requests in flight could push followers that keep pace out of the ISR.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Protocol

from chronik.limits import PARTITION_UNCOMMITTED_BYTES_MAX, UNCOMMITTED_BYTES_MAX


class NodeUncommittedBytes:
    """The number of bytes above the high watermark in all partitions that a node leads."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0


class UncommittedBytes:
    """The number of bytes above the high watermark that this node has appended to a partition as its leader.

    Appends and moves of the high watermark cost O(1) per batch. Bytes that an earlier leader appended are not counted:
    no producer of this node waits for them, and that leader has limited them.
    """

    __slots__ = ("_committed", "_ends", "_node", "appended_bytes")

    def __init__(self, node: NodeUncommittedBytes) -> None:
        self._node = node
        # (end offset, bytes appended by then) of uncommitted batches. Most partitions never have any, and a deque takes
        # more memory than the rest of an idle replica.
        self._ends: deque[tuple[int, int]] | None = None
        self._committed = 0
        self.appended_bytes = 0
        """Bytes that this node has appended as leader since it started."""

    @property
    def bytes(self) -> int:
        return self.appended_bytes - self._committed

    @property
    def node_bytes(self) -> int:
        return self._node.bytes

    def append(self, end_offset: int, size: int) -> None:
        """Count appended bytes as uncommitted until the high watermark reaches `end_offset`."""
        self.appended_bytes += size
        self._node.bytes += size
        if self._ends is None:
            self._ends = deque()
        self._ends.append((end_offset, self.appended_bytes))

    def commit(self, high_watermark: int) -> int:
        """Stop counting bytes below the new high watermark, and return their number."""
        ends, committed = self._ends, self._committed
        while ends and ends[0][0] <= high_watermark:
            committed = ends.popleft()[1]
        size = committed - self._committed
        self._committed = committed
        self._node.bytes -= size
        return size

    def clear(self) -> None:
        """Reset the count of uncommitted bytes when this node's leader epoch starts or ends.

        The next leader may truncate them, and their producers have been notified.
        """
        self._ends = None
        self._node.bytes -= self.bytes
        self._committed = self.appended_bytes


class LeaderPartition(Protocol):
    """A partition whose leader is this node."""

    @property
    def uncommitted(self) -> UncommittedBytes: ...

    @property
    def has_followers(self) -> bool: ...


def can_pipeline_requests(partitions: Iterable[LeaderPartition]) -> bool:
    """Return whether a connection may process further requests while its produce request to `partitions` is pending.

    False makes the connection wait, as every produce request does in Kafka, until the backlog is short again or the
    request is answered. A partition without followers has no backlog of its own and counts only towards the node's
    limit.
    """
    for partition in partitions:
        uncommitted = partition.uncommitted
        if uncommitted.node_bytes > UNCOMMITTED_BYTES_MAX:
            return False
        if uncommitted.bytes > PARTITION_UNCOMMITTED_BYTES_MAX and partition.has_followers:
            return False
    return True
