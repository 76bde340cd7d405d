"""What the leader of a partition knows of its followers: how far each has got, and so what is safe. Pure.

The high watermark is the lowest offset that a member of the ISR has made durable, the leader included. While a change
of the ISR is under way nobody knows whether the old or the new one is in force, so the members of both count: a
follower that the cluster may already believe to be in sync has everything that was ever acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from chronik.metadata.commands.base import NO_EPOCH
from chronik.metadata.commands.partitions import IsrMember
from chronik.metadata.records import Partition

UNKNOWN: Final = -1


class FollowerLife(Protocol):
    """One epoch of a following broker, as its fetches show it."""

    @property
    def broker_epoch(self) -> int: ...

    @property
    def fetched_at(self) -> float:
        """When it last fetched anything at all."""


class Follower:
    """A follower's fetch position, and the time at which it last had the leader's whole log.

    Under a steady load a follower never has the whole log. So the leader keeps one mark: its log end at the time of a
    fetch. When the follower has passed the mark, it was caught up as of the mark's time, and the fetch that passed it
    sets the next mark. The mark stays until then, because a backlog may take several fetches: a mark that moves with
    every fetch is never passed, and a follower that keeps pace would leave the ISR.

    Attributes:
        offset: The offset of the last fetch. Everything below it is durable on the follower. `UNKNOWN` until the
            follower fetches in this leader epoch.
    """

    __slots__ = ("_caught_up_at", "_mark_offset", "_mark_time", "id", "life", "log_start_offset", "offset")

    def __init__(self, broker_id: int, now: float) -> None:
        self.id = broker_id
        self.offset = UNKNOWN
        self.log_start_offset = UNKNOWN
        self.life: FollowerLife | None = None
        # A new leader counts every follower as caught up, which gives each the full lag time to find it.
        self._caught_up_at = now
        self._mark_offset = UNKNOWN
        self._mark_time = now

    def fetched(self, offset: int, log_start_offset: int, life: FollowerLife, leader_end: int, now: float) -> None:
        """Record a fetch from `offset` while the leader's log ends at `leader_end`."""
        if offset >= leader_end:
            self._caught_up_at = now
            self._set_mark(leader_end, now)
        elif offset >= self._mark_offset:
            self._caught_up_at = max(self._caught_up_at, self._mark_time)
            self._set_mark(leader_end, now)
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.life = life

    def _set_mark(self, leader_end: int, now: float) -> None:
        self._mark_offset = leader_end
        self._mark_time = now

    def falls_behind(self) -> None:
        """Record that the leader appends to a log of which the follower has everything.

        The follower had everything until its last fetch of any partition.
        """
        if self.life is not None:
            self._caught_up_at = max(self._caught_up_at, self.life.fetched_at)

    def caught_up_at(self, leader_end: int) -> float:
        """Return the last time at which the follower is known to have had the leader's whole log.

        A follower that has everything does not name the partition again: any fetch from its broker is enough.
        """
        if self.life is not None and self.offset >= leader_end:
            return max(self._caught_up_at, self.life.fetched_at)
        return self._caught_up_at


class InSync:
    def __init__(self, node_id: int, partition: Partition, now: float) -> None:
        self._node_id = node_id
        self.epoch_start_offset = UNKNOWN
        """Where the log ended when this term began: what is below it came from earlier leaders."""
        self.followers: dict[int, Follower] = {}
        self.proposed: tuple[int, ...] | None = None
        """The ISR that is being proposed, until its outcome is known."""
        self._take(partition, now)

    def _take(self, partition: Partition, now: float) -> None:
        self.replicas = partition.replicas
        self.isr = partition.isr
        self.leader_epoch = partition.leader_epoch
        self.partition_epoch = partition.partition_epoch
        others = [replica for replica in partition.replicas if replica != self._node_id]
        self.followers = {other: self.followers.get(other) or Follower(other, now) for other in others}
        self._count()

    def _count(self) -> None:
        members = set(self.isr) | set(self.proposed or ())
        self._counted = [follower for follower in self.followers.values() if follower.id in members]

    def update(self, partition: Partition, now: float) -> None:
        """Takes in a changed partition that this node still leads in the same epoch: what was proposed is decided."""
        if partition.partition_epoch != self.partition_epoch:
            self.proposed = None
            self._take(partition, now)

    # -- what is safe -------------------------------------------------------------------------------------------------

    def high_watermark(self, own_end: int) -> int:
        """Returns it, given how far this node's own log is durable."""
        for follower in self._counted:
            if follower.offset < own_end:
                own_end = follower.offset
        return own_end

    def low_watermark(self, own_start: int, is_alive: Callable[[int], bool]) -> int:
        """Returns the offset from which on every living replica still has its records."""
        starts = [follower.log_start_offset for follower in self.followers.values() if is_alive(follower.id)]
        return min([own_start, *starts])

    # -- who is in sync -----------------------------------------------------------------------------------------------

    def may_join(self, follower: Follower, high_watermark: int) -> bool:
        """Whether it has everything that was ever acknowledged, by this leader and by those before it."""
        return (
            follower.id not in self.isr
            and self.epoch_start_offset != UNKNOWN
            and follower.offset >= max(high_watermark, self.epoch_start_offset)
        )

    def has_lost_something(self, follower: Follower, high_watermark: int) -> bool:
        """Whether a follower in the ISR asks for what is committed: its disk has not kept its promise."""
        return follower.id in self.isr and UNKNOWN < follower.offset < high_watermark

    def change(
        self,
        high_watermark: int,
        leader_end: int,
        now: float,
        lag_seconds_max: float,
        is_alive: Callable[[int], bool],
    ) -> tuple[IsrMember, ...] | None:
        """Returns the ISR as it should be; None when it is so, or while another change is under way."""
        if self.proposed is not None:
            return None
        wanted = [
            replica
            for replica in self.replicas
            if self._belongs(replica, high_watermark, leader_end, now - lag_seconds_max, is_alive)
        ]
        if len(wanted) == len(self.isr) and all(replica in self.isr for replica in wanted):
            return None
        return tuple(IsrMember(replica, self._epoch_seen(replica)) for replica in wanted)

    def _belongs(
        self,
        replica: int,
        high_watermark: int,
        leader_end: int,
        caught_up_at_min: float,
        is_alive: Callable[[int], bool],
    ) -> bool:
        """Return whether the replica should be in the ISR.

        A follower that lags for too long does not join either: it would leave again at the next check. A stopped
        follower of an idle partition has everything, and would otherwise join and leave until it is fenced.
        """
        follower = self.followers.get(replica)
        if follower is None:
            return replica == self._node_id
        if follower.caught_up_at(leader_end) < caught_up_at_min:
            return False
        if replica not in self.isr:
            return self.may_join(follower, high_watermark) and is_alive(replica)
        return not self.has_lost_something(follower, high_watermark)

    def _epoch_seen(self, replica: int) -> int:
        """Returns the broker epoch in which the replica caught up."""
        life = self.followers[replica].life if replica in self.followers else None
        return NO_EPOCH if life is None else life.broker_epoch

    def propose(self, members: tuple[IsrMember, ...]) -> None:
        self.proposed = tuple(member.broker_id for member in members)
        self._count()

    def refused(self) -> None:
        """Drops the proposal: it was refused for certain, and will not come into force later."""
        self.proposed = None
        self._count()
