"""Mutants: clusters with one broken replication rule each. The simulation must detect every one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pytest
from msgspec.structs import replace

from chronik.broker.isr_state import UNKNOWN, Follower, FollowerBroker, IsrState
from chronik.broker.replica import Replica
from chronik.broker.replica_manager import ReplicaManager
from chronik.files import Buffer
from chronik.log.partition_log import PartitionLog
from chronik.metadata import elections
from chronik.metadata.commands.base import NO_EPOCH
from chronik.metadata.commands.partitions import IsrChange
from chronik.metadata.commands.topics import NO_LEADER
from chronik.metadata.handlers import partitions
from chronik.metadata.records import Partition
from chronik.metadata.writer import ImageWriter
from chronik.protocol.errors import ErrorCode
from chronik.replication.fetch_session import FollowedPartition, LeaderFetchSession
from chronik.replication.fetcher import LeaderFetcher
from chronik.replication.messages import PartitionId

Patch = Callable[[pytest.MonkeyPatch], None]


class Mutant(NamedTuple):
    """A named patch that breaks one rule."""

    name: str
    apply: Patch


def replaced(target: str, broken: Any) -> Patch:
    """Return a patch that replaces the attribute with the dotted name `target`."""
    return lambda patch: patch.setattr(target, broken)


def replace_attribute(owner: Any, name: str, broken: Any) -> Patch:
    """Return a patch that replaces an attribute of `owner`."""
    assert hasattr(owner, name)
    return lambda patch: patch.setattr(owner, name, broken)


def _count_isr_only(leading: IsrState) -> None:
    leading._counted = [follower for follower in leading.followers.values() if follower.id in leading.isr]


def _join_always(leading: IsrState, follower: Follower, high_watermark: int) -> bool:
    return follower.id not in leading.isr and follower.offset != UNKNOWN


def _move_mark_at_every_fetch(patch: pytest.MonkeyPatch) -> None:
    original = Follower.record_fetch

    def fetched(
        follower: Follower, offset: int, log_start_offset: int, life: FollowerBroker, leader_end: int, now: float
    ) -> None:
        original(follower, offset, log_start_offset, life, leader_end, now)
        follower._record_leader_end_offset(leader_end, now)

    patch.setattr("chronik.broker.isr_state.Follower.record_fetch", fetched)


def _join_at_high_watermark(leading: IsrState, follower: Follower, high_watermark: int) -> bool:
    return follower.id not in leading.isr and follower.offset >= high_watermark


def _durable_when_written(replica: Replica, log: PartitionLog) -> int:
    return log.log_end_offset


def _durable_if_led(replica: Replica, log: PartitionLog) -> int:
    return log.synced_offset if replica.isr_state is None else log.log_end_offset


def _claim_unsynced(patch: pytest.MonkeyPatch) -> None:
    original = Replica.append_from_leader

    def append(replica: Replica, records: Buffer) -> bool:
        has_written = original(replica, records)
        replica.durable_end_offset = replica.log.log_end_offset
        return has_written

    patch.setattr("chronik.broker.replica.Replica.append_from_leader", append)


def _accept_any_response(plan: LeaderFetchSession, key: PartitionId) -> FollowedPartition | None:
    return plan.followed.get(key)


def _acknowledge_at_end_of_term(patch: pytest.MonkeyPatch) -> None:
    original = Replica._end_leader_epoch
    patch.setattr(
        "chronik.broker.replica.Replica._end_leader_epoch", lambda replica, *_: original(replica, ErrorCode.NONE)
    )


def _accept_roles_of_earlier_runs(patch: pytest.MonkeyPatch) -> None:
    original = ReplicaManager.__init__

    def init(replicas: ReplicaManager, *args: Any, **kwargs: Any) -> None:
        original(replicas, *args, **kwargs)
        replicas.registered.set()

    patch.setattr(ReplicaManager, "__init__", init)


def _keep_epoch(partition: Partition, isr: tuple[int, ...], leader: int) -> Partition:
    return replace(partition, isr=isr, leader=leader, partition_epoch=partition.partition_epoch + 1)


def _elect_any_replica(partition: Partition, isr: tuple[int, ...], brokers: elections.Brokers) -> int:
    online = [replica for replica in partition.replicas if replica in brokers and brokers[replica].is_online]
    return online[0] if online else NO_LEADER


def _ignore_partition_epoch(patch: pytest.MonkeyPatch) -> None:
    original = partitions._apply_isr_change

    def changed(writer: ImageWriter, partition: Partition, broker_id: int, change: IsrChange) -> Partition:
        change = replace(change, partition_epoch=partition.partition_epoch)
        return original(writer, partition, broker_id, change)

    patch.setattr("chronik.metadata.handlers.partitions._apply_isr_change", changed)


def _ignore_broker_epoch(patch: pytest.MonkeyPatch) -> None:
    original = partitions._check_isr_member
    patch.setattr(
        "chronik.metadata.handlers.partitions._check_isr_member",
        lambda writer, broker, _epoch: original(writer, broker, NO_EPOCH),
    )


def _keep_term_when_replicas_leave(before: Partition, after: Partition, brokers: elections.Brokers) -> Partition:
    if after.leader == NO_LEADER or after.leader in after.isr:
        return after
    return replace(after, leader=elections.elect(after, after.isr, brokers), leader_epoch=after.leader_epoch + 1)


def _read_to_log_end(replica: Replica, offset: int, max_bytes: int, *, min_one_batch: bool) -> memoryview:
    return replica.log.read(offset, max_bytes, replica.log.log_end_offset, min_one_batch=min_one_batch)


async def _never_truncate(fetcher: LeaderFetcher, key: PartitionId, *_: Any) -> None:
    fetcher._plan.delay_failed_partition(key, fetcher._clock.monotonic())


MUTANTS: Final = (
    Mutant(
        "ignores the ISR that it proposes",
        replaced("chronik.broker.isr_state.IsrState._update_high_watermark_followers", _count_isr_only),
    ),
    Mutant(
        "lets a follower join below the high watermark",
        replaced("chronik.broker.isr_state.IsrState.can_join_isr", _join_always),
    ),
    Mutant(
        "lets a follower join below the epoch's start",
        replaced("chronik.broker.isr_state.IsrState.can_join_isr", _join_at_high_watermark),
    ),
    Mutant("moves a follower's catch-up mark at every fetch", _move_mark_at_every_fetch),
    Mutant(
        "commits records that only the leader has",
        replaced("chronik.broker.isr_state.IsrState.high_watermark", lambda leading, own_end: own_end),
    ),
    Mutant(
        "counts progress of diverging logs",
        replaced("chronik.broker.replica.Replica.find_log_divergence", lambda *_: None),
    ),
    Mutant(
        "counts unsynced records",
        replaced("chronik.broker.replica.Replica._get_durable_end_offset", _durable_when_written),
    ),
    Mutant(
        "commits records that the leader has not synced",
        replaced("chronik.broker.replica.Replica._get_durable_end_offset", _durable_if_led),
    ),
    Mutant("acknowledges records that the follower has not synced", _claim_unsynced),
    Mutant(
        "abandons an ISR change with an unknown outcome",
        replaced("chronik.replication.isr_manager.FINAL_ERRORS", tuple(ErrorCode)),
    ),
    Mutant(
        "accepts responses of an earlier epoch",
        replaced("chronik.replication.fetch_session.LeaderFetchSession.get_requested_partition", _accept_any_response),
    ),
    Mutant(
        "serves followers of any epoch", replaced("chronik.broker.replica.Replica.check_leader_epoch", lambda *_: None)
    ),
    Mutant(
        "keeps empty leader epochs",
        replaced("chronik.log.partition_log.PartitionLog.remove_empty_epochs", lambda _: None),
    ),
    Mutant(
        "never truncates its log",
        replaced("chronik.replication.fetcher.LeaderFetcher._resolve_divergence", _never_truncate),
    ),
    Mutant("acknowledges pending produce requests at the end of its term", _acknowledge_at_end_of_term),
    Mutant("takes roles of an earlier broker epoch", _accept_roles_of_earlier_runs),
    Mutant(
        "lets a fenced broker join the ISR",
        replaced("chronik.metadata.handlers.partitions._check_isr_member", lambda *_: None),
    ),
    Mutant("ignores the broker epoch of ISR members", _ignore_broker_epoch),
    Mutant("ignores the partition epoch of ISR changes", _ignore_partition_epoch),
    Mutant(
        "keeps a broker with a replaced disk in the ISR",
        replaced("chronik.metadata.elections.after_disk_loss", lambda partition, *_: partition),
    ),
    Mutant(
        "keeps the leader epoch when the leader changes",
        replaced("chronik.metadata.elections.with_leader", _keep_epoch),
    ),
    Mutant("elects a replica outside the ISR", replaced("chronik.metadata.elections.elect", _elect_any_replica)),
    Mutant(
        "keeps the leader epoch when replicas leave",
        replaced("chronik.metadata.handlers.partitions._led", _keep_term_when_replicas_leave),
    ),
    Mutant(
        "returns uncommitted records to consumers", replaced("chronik.broker.replica.Replica.read", _read_to_log_end)
    ),
    Mutant(
        "forgets rejected batches",
        replaced("chronik.broker.requests.rejected_batches.RejectedBatches.check", lambda *_: None),
    ),
    Mutant(
        "remembers only five batches per producer",
        replaced("chronik.log.producer_state._find_older_stored_batch", lambda *_: None),
    ),
    Mutant(
        "stores duplicate batches",
        replaced("chronik.log.producer_state.ProducerStateManager.check_batches", lambda *_: None),
    ),
)
