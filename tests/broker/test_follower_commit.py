"""The recorded high watermark applies to the leader's log: a follower's log may have an uncommitted tail."""

from __future__ import annotations

from chronik.metadata.records import Partition
from tests.broker.test_high_watermark import FakeFollowerBroker, leader, produce, sync

ELSEWHERE = Partition((1, 2, 3), (2, 3), leader=2, leader_epoch=1, partition_epoch=1)


def test_uncommitted_tail_of_former_leader_is_not_committed() -> None:
    replica = leader()
    produce(replica)
    sync(replica)
    replica.record_follower_fetch(2, 1, 0, FakeFollowerBroker())
    produce(replica)
    sync(replica)
    assert (replica.high_watermark, replica.log.log_end_offset) == (1, 2)
    replica.assume_role(ELSEWHERE, 1.0)
    replica.high_watermark = 2  # recorded for another batch at offset 1, as in the image after a restart
    assert replica.committed_end_offset == 1
    replica.update_from_leader(1, 0)
    assert replica.committed_end_offset == 1


def test_follower_updates_committed_end_only_from_leader() -> None:
    replica = leader()
    produce(replica)
    sync(replica)
    replica.assume_role(ELSEWHERE, 1.0)
    assert replica.committed_end_offset == 0
    replica.update_from_leader(9, 0)
    assert replica.committed_end_offset == 1  # not beyond its log end offset
