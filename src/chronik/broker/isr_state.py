"""The leader's view of its followers: their fetch offsets, the high watermark, and the ISR. Does no I/O.

The high watermark is the smallest durable offset of all ISR members, including the leader. While an ISR change is
pending, it is unknown whether the old or the new ISR applies, so the members of both count. A follower that the cluster
may consider in sync therefore has every acknowledged record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from chronik.metadata.commands.base import NO_EPOCH
from chronik.metadata.commands.partitions import IsrMember
from chronik.metadata.records import Partition

UNKNOWN: Final = -1


class FollowerBroker(Protocol):
    """A registered broker that hosts followers of partitions that this node leads.

    An instance represents one broker epoch (from one registration of the broker to the next).
    """

    @property
    def broker_epoch(self) -> int: ...

    @property
    def fetched_at(self) -> float:
        """The time of the broker's last fetch request for any partition."""


class Follower:
    """A follower's fetch offset, and the last time at which the follower was caught up with the leader.

    Under a steady load a follower never reaches the log end offset. So the leader keeps one mark: its log end offset at
    the time of a fetch. When the follower has passed the mark, it had caught up at the mark's time, and the fetch that
    passed it sets the next mark. The mark stays until then: if each fetch moved it, a follower with a constant backlog
    would never pass it and would leave the ISR.

    Attributes:
        offset: The offset of the last fetch. Everything below it is durable on the follower. `UNKNOWN` until the
            follower fetches in this leader epoch.
    """

    __slots__ = ("_caught_up_at", "_mark_offset", "_mark_time", "broker", "id", "log_start_offset", "offset")

    def __init__(self, broker_id: int, now: float) -> None:
        self.id = broker_id
        self.offset = UNKNOWN
        self.log_start_offset = UNKNOWN
        self.broker: FollowerBroker | None = None
        # A new leader counts every follower as caught up, so each has the full lag time for its first fetch.
        self._caught_up_at = now
        self._mark_offset = UNKNOWN
        self._mark_time = now

    def record_fetch(
        self, offset: int, log_start_offset: int, life: FollowerBroker, leader_end: int, now: float
    ) -> None:
        """Record a follower's fetch from `offset` when the leader's log end offset was `leader_end`."""
        if offset >= leader_end:
            self._caught_up_at = now
            self._record_leader_end_offset(leader_end, now)
        elif offset >= self._mark_offset:
            self._caught_up_at = max(self._caught_up_at, self._mark_time)
            self._record_leader_end_offset(leader_end, now)
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.broker = life

    def _record_leader_end_offset(self, leader_end: int, now: float) -> None:
        self._mark_offset = leader_end
        self._mark_time = now

    def record_leader_append(self) -> None:
        """Update the follower's caught-up time when the leader appends to a fully replicated log.

        The follower had caught up until its last fetch of any partition.
        """
        if self.broker is not None:
            self._caught_up_at = max(self._caught_up_at, self.broker.fetched_at)

    def get_caught_up_time(self, leader_end: int) -> float:
        """Return the last time at which the follower had replicated the leader's complete log.

        A follower that has caught up does not name the partition in later fetches, so any fetch of its broker counts.
        """
        if self.broker is not None and self.offset >= leader_end:
            return max(self._caught_up_at, self.broker.fetched_at)
        return self._caught_up_at


class IsrState:
    """A partition leader's view of its followers, the ISR, and a pending ISR change."""

    def __init__(self, node_id: int, partition: Partition, now: float) -> None:
        self._node_id = node_id
        self.epoch_start_offset = UNKNOWN
        """The log end offset at the start of this leader epoch. Previous leaders wrote the records below it."""
        self.followers: dict[int, Follower] = {}
        self.proposed: tuple[int, ...] | None = None
        """The ISR that this leader has proposed to the controller, or None without a pending proposal."""
        self._apply_partition_state(partition, now)

    def _apply_partition_state(self, partition: Partition, now: float) -> None:
        self.replicas = partition.replicas
        self.isr = partition.isr
        self.leader_epoch = partition.leader_epoch
        self.partition_epoch = partition.partition_epoch
        others = [replica for replica in partition.replicas if replica != self._node_id]
        self.followers = {other: self.followers.get(other) or Follower(other, now) for other in others}
        self._update_high_watermark_followers()

    def _update_high_watermark_followers(self) -> None:
        members = set(self.isr) | set(self.proposed or ())
        self._counted = [follower for follower in self.followers.values() if follower.id in members]

    def update(self, partition: Partition, now: float) -> None:
        """Apply a new partition state of the same leader epoch from the metadata image.

        It also ends a pending ISR change.
        """
        if partition.partition_epoch != self.partition_epoch:
            self.proposed = None
            self._apply_partition_state(partition, now)

    # -- watermarks ---------------------------------------------------------------------------------------------------

    def high_watermark(self, own_end: int) -> int:
        """Return the partition's high watermark, given the durable end offset of the leader's own log."""
        for follower in self._counted:
            if follower.offset < own_end:
                own_end = follower.offset
        return own_end

    def low_watermark(self, own_start: int, is_alive: Callable[[int], bool]) -> int:
        """Return the partition's low watermark: the largest log start offset that all live replicas have reached."""
        starts = [follower.log_start_offset for follower in self.followers.values() if is_alive(follower.id)]
        return min([own_start, *starts])

    # -- ISR ----------------------------------------------------------------------------------------------------------

    def can_join_isr(self, follower: Follower, high_watermark: int) -> bool:
        """Return whether the follower has all acknowledged records, so that it may join the ISR."""
        return (
            follower.id not in self.isr
            and self.epoch_start_offset != UNKNOWN
            and follower.offset >= max(high_watermark, self.epoch_start_offset)
        )

    def has_lost_records(self, follower: Follower, high_watermark: int) -> bool:
        """Return whether an ISR member fetches below the high watermark because its disk has lost records."""
        return follower.id in self.isr and UNKNOWN < follower.offset < high_watermark

    def compute_next_isr(
        self,
        high_watermark: int,
        leader_end: int,
        now: float,
        lag_seconds_max: float,
        is_alive: Callable[[int], bool],
    ) -> tuple[IsrMember, ...] | None:
        """Return the ISR to propose to the controller, or None if it is unchanged or a proposal is pending."""
        if self.proposed is not None:
            return None
        wanted = [
            replica
            for replica in self.replicas
            if self._should_be_in_isr(replica, high_watermark, leader_end, now - lag_seconds_max, is_alive)
        ]
        if len(wanted) == len(self.isr) and all(replica in self.isr for replica in wanted):
            return None
        return tuple(IsrMember(replica, self._get_broker_epoch(replica)) for replica in wanted)

    def _should_be_in_isr(
        self,
        replica: int,
        high_watermark: int,
        leader_end: int,
        caught_up_at_min: float,
        is_alive: Callable[[int], bool],
    ) -> bool:
        """Return whether the replica is caught up and has lost no records, so that it belongs in the ISR.

        A follower that lags for too long does not join either, because it would leave again at the next check. A
        stopped follower of an idle partition has all records, and would otherwise join and leave until it is fenced.
        """
        follower = self.followers.get(replica)
        if follower is None:
            return replica == self._node_id
        if follower.get_caught_up_time(leader_end) < caught_up_at_min:
            return False
        if replica not in self.isr:
            return self.can_join_isr(follower, high_watermark) and is_alive(replica)
        return not self.has_lost_records(follower, high_watermark)

    def _get_broker_epoch(self, replica: int) -> int:
        """Return the broker epoch at the replica's last fetch, or NO_EPOCH if it has not fetched."""
        life = self.followers[replica].broker if replica in self.followers else None
        return NO_EPOCH if life is None else life.broker_epoch

    def set_proposed_isr(self, members: tuple[IsrMember, ...]) -> None:
        """Set the ISR that this leader has proposed to the controller.

        Its members count for the high watermark until the controller has decided.
        """
        self.proposed = tuple(member.broker_id for member in members)
        self._update_high_watermark_followers()

    def drop_proposed_isr(self) -> None:
        """Discard the proposed ISR after the controller has rejected it."""
        self.proposed = None
        self._update_high_watermark_followers()
