"""Nodes with one rule of replication broken each. The simulation must notice every one of them: a rule that can be
broken unnoticed is either not needed or not tested."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pytest
from msgspec.structs import replace

from chronik.broker.in_sync import UNKNOWN, Follower, FollowerLife, InSync
from chronik.broker.replica import Replica
from chronik.broker.replicas import Replicas
from chronik.broker.requests.refusals import RefusedBatches
from chronik.files import Buffer
from chronik.log import producers
from chronik.log.partition import PartitionLog
from chronik.log.producers import ProducerStates
from chronik.metadata import elections
from chronik.metadata.commands.base import NO_EPOCH
from chronik.metadata.commands.partitions import IsrChange
from chronik.metadata.commands.topics import NO_LEADER
from chronik.metadata.handlers import partitions, reassignments
from chronik.metadata.records import Partition
from chronik.metadata.writer import ImageWriter
from chronik.protocol.errors import ErrorCode
from chronik.replication import isr_keeper
from chronik.replication.fetch_plan import FetchPlan, Followed
from chronik.replication.following import LeaderFetcher
from chronik.replication.messages import Key

Patch = Callable[[pytest.MonkeyPatch], None]


class Mutant(NamedTuple):
    name: str
    apply: Patch


def instead(owner: Any, name: str, broken: Any) -> Patch:
    assert hasattr(owner, name)
    return lambda patch: patch.setattr(owner, name, broken)


def _count_the_isr_alone(leading: InSync) -> None:
    leading._counted = [follower for follower in leading.followers.values() if follower.id in leading.isr]


def _anybody_joins(leading: InSync, follower: Follower, high_watermark: int) -> bool:
    return follower.id not in leading.isr and follower.offset != UNKNOWN


def _moves_the_mark_at_every_fetch(patch: pytest.MonkeyPatch) -> None:
    original = Follower.fetched

    def fetched(
        follower: Follower, offset: int, log_start_offset: int, life: FollowerLife, leader_end: int, now: float
    ) -> None:
        original(follower, offset, log_start_offset, life, leader_end, now)
        follower._set_mark(leader_end, now)

    patch.setattr(Follower, "fetched", fetched)


def _joins_at_the_watermark(leading: InSync, follower: Follower, high_watermark: int) -> bool:
    return follower.id not in leading.isr and follower.offset >= high_watermark


def _durable_when_written(replica: Replica, log: PartitionLog) -> int:
    return log.log_end_offset


def _durable_if_led(replica: Replica, log: PartitionLog) -> int:
    return log.synced_offset if replica.leading is None else log.log_end_offset


def _claims_what_is_written(patch: pytest.MonkeyPatch) -> None:
    original = Replica.append_from_leader

    def append(replica: Replica, records: Buffer) -> bool:
        has_written = original(replica, records)
        replica.durable_end = replica.log.log_end_offset
        return has_written

    patch.setattr(Replica, "append_from_leader", append)


def _takes_any_answer(plan: FetchPlan, key: Key) -> Followed | None:
    return plan.followed.get(key)


def _says_that_all_is_well(patch: pytest.MonkeyPatch) -> None:
    original = Replica._end_term
    patch.setattr(Replica, "_end_term", lambda replica, *_: original(replica, ErrorCode.NONE))


def _takes_roles_of_earlier_lives(patch: pytest.MonkeyPatch) -> None:
    original = Replicas.__init__

    def init(replicas: Replicas, *args: Any, **kwargs: Any) -> None:
        original(replicas, *args, **kwargs)
        replicas.began.set()

    patch.setattr(Replicas, "__init__", init)


def _keeps_the_epoch(partition: Partition, isr: tuple[int, ...], leader: int) -> Partition:
    return replace(partition, isr=isr, leader=leader, partition_epoch=partition.partition_epoch + 1)


def _elects_anybody(partition: Partition, isr: tuple[int, ...], brokers: elections.Brokers) -> int:
    online = [replica for replica in partition.replicas if replica in brokers and brokers[replica].online]
    return online[0] if online else NO_LEADER


def _compares_no_partition_epoch(patch: pytest.MonkeyPatch) -> None:
    original = partitions._with_changed_isr

    def changed(writer: ImageWriter, partition: Partition, broker_id: int, change: IsrChange) -> Partition:
        change = replace(change, partition_epoch=partition.partition_epoch)
        return original(writer, partition, broker_id, change)

    patch.setattr(partitions, "_with_changed_isr", changed)


def _compares_no_broker_epoch(patch: pytest.MonkeyPatch) -> None:
    original = partitions._refuse_member
    patch.setattr(partitions, "_refuse_member", lambda writer, broker, _epoch: original(writer, broker, NO_EPOCH))


def _keeps_the_term_when_replicas_leave(before: Partition, after: Partition, brokers: elections.Brokers) -> Partition:
    if after.leader == NO_LEADER or after.leader in after.isr:
        return after
    return replace(after, leader=elections.elect(after, after.isr, brokers), leader_epoch=after.leader_epoch + 1)


def _reads_to_the_end(replica: Replica, offset: int, max_bytes: int, *, min_one_batch: bool) -> memoryview:
    return replica.log.read(offset, max_bytes, replica.log.log_end_offset, min_one_batch=min_one_batch)


async def _mends_nothing(fetcher: LeaderFetcher, key: Key, *_: Any) -> None:
    fetcher._plan.failed(key, fetcher._clock.monotonic())


MUTANTS: Final = (
    Mutant("ignores the ISR that it proposes", instead(InSync, "_count", _count_the_isr_alone)),
    Mutant("lets a follower join below the high watermark", instead(InSync, "may_join", _anybody_joins)),
    Mutant("lets a follower join below the epoch's start", instead(InSync, "may_join", _joins_at_the_watermark)),
    Mutant("moves a follower's mark at every fetch", _moves_the_mark_at_every_fetch),
    Mutant("commits what it alone has", instead(InSync, "high_watermark", lambda leading, own_end: own_end)),
    Mutant("counts progress although the logs differ", instead(Replica, "divergence", lambda *_: None)),
    Mutant("counts what is not durable", instead(Replica, "_durable_end_of", _durable_when_written)),
    Mutant("commits what the leader has not synced", instead(Replica, "_durable_end_of", _durable_if_led)),
    Mutant("claims what a follower has not synced", _claims_what_is_written),
    Mutant("gives up an ISR change whose outcome is unknown", instead(isr_keeper, "DECIDED", tuple(ErrorCode))),
    Mutant("takes answers to questions of an earlier epoch", instead(FetchPlan, "answerable", _takes_any_answer)),
    Mutant("serves followers of any epoch", instead(Replica, "check_epoch", lambda *_: None)),
    Mutant("keeps epochs in which nothing was written", instead(PartitionLog, "forget_unused_epochs", lambda _: None)),
    Mutant("never cuts its log", instead(LeaderFetcher, "_mend", _mends_nothing)),
    Mutant("tells waiting producers that all is well when its term ends", _says_that_all_is_well),
    Mutant("takes up the roles of its earlier lives", _takes_roles_of_earlier_lives),
    Mutant("takes a broker that is away for in sync", instead(partitions, "_refuse_member", lambda *_: None)),
    Mutant("takes a broker of any life for in sync", _compares_no_broker_epoch),
    Mutant("changes ISRs whatever the partition epoch is", _compares_no_partition_epoch),
    Mutant("leaves a restarted broker in sync", instead(elections, "after_disk_loss", lambda partition, *_: partition)),
    Mutant("keeps the epoch when the leader changes", instead(elections, "with_leader", _keeps_the_epoch)),
    Mutant("elects who is not in sync", instead(elections, "elect", _elects_anybody)),
    Mutant("keeps the term when replicas leave", instead(reassignments, "_led", _keeps_the_term_when_replicas_leave)),
    Mutant("shows consumers what is not committed", instead(Replica, "read", _reads_to_the_end)),
    Mutant("forgets what it has refused", instead(RefusedBatches, "check", lambda *_: None)),
    Mutant("remembers of a producer no more than five batches", instead(producers, "_long_stored", lambda *_: None)),
    Mutant("stores what is sent again once more", instead(ProducerStates, "check", lambda *_: None)),
)
