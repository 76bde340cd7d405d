"""The in-sync state of a leader: high watermark, joining the ISR and leaving it."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from chronik.broker.isr_state import Follower, IsrState
from chronik.metadata.commands.base import NO_EPOCH
from chronik.metadata.commands.partitions import IsrMember
from chronik.metadata.records import Partition

LEADER, FIRST, SECOND = 1, 2, 3
LAG_SECONDS_MAX = 10.0


@dataclass
class Life:
    broker_epoch: int = 7
    fetched_at: float = 0.0


def in_sync(isr: tuple[int, ...] = (LEADER, FIRST, SECOND), *, epoch_start: int = 0) -> IsrState:
    leading = IsrState(LEADER, Partition((LEADER, FIRST, SECOND), isr, LEADER, leader_epoch=4, partition_epoch=9), 0.0)
    leading.epoch_start_offset = epoch_start
    return leading


def fetch(
    leading: IsrState, node: int, offset: int, *, end: int = 100, now: float = 0.0, life: Life | None = None
) -> Follower:
    follower = leading.followers[node]
    life = life or Life()
    life.fetched_at = now
    follower.record_fetch(offset, 0, life, end, now)
    return follower


def change(
    leading: IsrState, *, high_watermark: int = 0, end: int = 100, now: float = 0.0, fenced: tuple[int, ...] = ()
) -> tuple[IsrMember, ...] | None:
    return leading.compute_next_isr(high_watermark, end, now, LAG_SECONDS_MAX, lambda broker: broker not in fenced)


def ids(members: tuple[IsrMember, ...] | None) -> tuple[int, ...]:
    assert members is not None
    return tuple(member.broker_id for member in members)


# -- high watermark ---------------------------------------------------------------------------------------------------


def test_high_watermark_waits_for_first_fetch_of_every_member() -> None:
    leading = in_sync()
    fetch(leading, FIRST, 50)
    assert leading.high_watermark(60) < 0
    fetch(leading, SECOND, 40)
    assert leading.high_watermark(60) == 40


def test_high_watermark_is_limited_by_leaders_synced_offset() -> None:
    leading = in_sync()
    fetch(leading, FIRST, 50)
    fetch(leading, SECOND, 50)
    assert leading.high_watermark(30) == 30


def test_follower_outside_isr_does_not_limit_high_watermark() -> None:
    leading = in_sync((LEADER, FIRST))
    fetch(leading, FIRST, 50)
    fetch(leading, SECOND, 10)
    assert leading.high_watermark(60) == 50


def test_sole_isr_member_commits_alone() -> None:
    assert in_sync((LEADER,)).high_watermark(60) == 60


def test_joining_follower_counts_until_proposal_is_decided() -> None:
    leading = in_sync((LEADER,))
    fetch(leading, FIRST, 50)
    leading.set_proposed_isr((IsrMember(LEADER, NO_EPOCH), IsrMember(FIRST, 7)))
    assert leading.high_watermark(60) == 50
    leading.drop_proposed_isr()
    assert leading.high_watermark(60) == 60


def test_leaving_follower_counts_until_proposal_is_decided() -> None:
    leading = in_sync((LEADER, FIRST))
    fetch(leading, FIRST, 50)
    leading.set_proposed_isr((IsrMember(LEADER, NO_EPOCH),))
    assert leading.high_watermark(60) == 50


def test_partition_change_decides_proposal() -> None:
    leading = in_sync((LEADER,))
    fetch(leading, FIRST, 50)
    leading.set_proposed_isr((IsrMember(LEADER, NO_EPOCH), IsrMember(FIRST, 7)))
    partition = Partition((LEADER, FIRST, SECOND), (LEADER,), LEADER, 4, 10)
    leading.update(partition, 1.0)
    assert leading.proposed is None
    assert leading.high_watermark(60) == 60


def test_unchanged_partition_does_not_decide_proposal() -> None:
    leading = in_sync((LEADER,))
    leading.set_proposed_isr((IsrMember(LEADER, NO_EPOCH), IsrMember(FIRST, 7)))
    leading.update(Partition((LEADER, FIRST, SECOND), (LEADER,), LEADER, 4, 9), 1.0)
    assert leading.proposed == (LEADER, FIRST)


def test_readded_replica_starts_without_progress() -> None:
    leading = in_sync((LEADER,))
    fetch(leading, FIRST, 50)
    partition = Partition((LEADER, SECOND), (LEADER,), LEADER, 4, 10)
    leading.update(partition, 1.0)
    leading.update(replace(partition, replicas=(LEADER, SECOND, FIRST), partition_epoch=11), 1.0)
    assert leading.followers[FIRST].offset < 0
    assert not leading.can_join_isr(leading.followers[FIRST], 0)


# -- joining the ISR --------------------------------------------------------------------------------------------------


def test_follower_with_all_committed_records_joins() -> None:
    leading = in_sync((LEADER,))
    assert not leading.can_join_isr(fetch(leading, FIRST, 59), 60)
    assert leading.can_join_isr(fetch(leading, FIRST, 60), 60)
    assert change(leading, high_watermark=60) == (IsrMember(LEADER, NO_EPOCH), IsrMember(FIRST, 7))


def test_follower_must_reach_start_of_leader_epoch_to_join() -> None:
    leading = in_sync((LEADER,), epoch_start=80)
    assert not leading.can_join_isr(fetch(leading, FIRST, 79), 60)
    assert leading.can_join_isr(fetch(leading, FIRST, 80), 60)


def test_no_follower_joins_before_epoch_start_is_known() -> None:
    leading = in_sync((LEADER,))
    leading.epoch_start_offset = -1
    assert not leading.can_join_isr(fetch(leading, FIRST, 100), 60)


def test_follower_without_fetch_does_not_join_empty_partition() -> None:
    leading = in_sync((LEADER,))
    assert not leading.can_join_isr(leading.followers[FIRST], 0)


def test_isr_member_is_not_proposed_again() -> None:
    leading = in_sync()
    assert not leading.can_join_isr(fetch(leading, FIRST, 100), 60)


def test_fenced_broker_does_not_join() -> None:
    leading = in_sync((LEADER,))
    fetch(leading, FIRST, 100)
    assert change(leading, high_watermark=60, fenced=(FIRST,)) is None


def test_only_one_isr_change_is_pending() -> None:
    leading = in_sync((LEADER,))
    fetch(leading, FIRST, 100)
    proposed = change(leading, high_watermark=60)
    assert proposed is not None
    leading.set_proposed_isr(proposed)
    fetch(leading, SECOND, 100)
    assert change(leading, high_watermark=60) is None
    leading.drop_proposed_isr()
    assert ids(change(leading, high_watermark=60)) == (LEADER, FIRST, SECOND)


# -- leaving the ISR --------------------------------------------------------------------------------------------------


def test_new_leader_grants_all_followers_lag_time() -> None:
    leading = in_sync()
    assert change(leading, now=LAG_SECONDS_MAX) is None
    assert ids(change(leading, now=LAG_SECONDS_MAX + 0.1)) == (LEADER,)


def test_lagging_follower_leaves_after_lag_time() -> None:
    leading = in_sync()
    fetch(leading, FIRST, 100, now=5.0)
    fetch(leading, SECOND, 99, now=5.0)
    leading.followers[FIRST].record_leader_append()
    assert ids(change(leading, end=101, now=12.0)) == (LEADER, FIRST)


def test_caught_up_follower_stays_while_it_fetches() -> None:
    leading = in_sync((LEADER, FIRST))
    life = Life()
    fetch(leading, FIRST, 100, now=0.0, life=life)
    life.fetched_at = 60.0
    assert change(leading, now=65.0) is None
    assert ids(change(leading, now=71.0)) == (LEADER,)


def test_follower_reaching_previous_log_end_counts_as_caught_up() -> None:
    leading = in_sync((LEADER, FIRST))
    for second in range(1, 60):
        fetch(leading, FIRST, 100 * second, end=100 * second + 100, now=float(second))
        assert change(leading, high_watermark=0, end=100 * second + 100, now=second + 0.5) is None


def test_follower_with_constant_backlog_stays_in_isr() -> None:
    leading = in_sync((LEADER, FIRST))
    backlog = 2000  # 100 per fetch: 20 fetches, 2 s
    for tenth in range(1, 600):
        now, offset = tenth / 10, 100 * tenth
        fetch(leading, FIRST, offset, end=offset + backlog, now=now)
        assert change(leading, end=offset + backlog, now=now) is None


def test_follower_with_backlog_older_than_lag_time_leaves_isr() -> None:
    leading = in_sync((LEADER, FIRST))
    for second in range(1, 30):
        fetch(leading, FIRST, 100 * second, end=100 * second + 1200, now=float(second))
    assert ids(change(leading, end=4200, now=30.0)) == (LEADER,)


def test_follower_passing_mark_was_caught_up_when_mark_was_set() -> None:
    leading = in_sync((LEADER, FIRST))
    fetch(leading, FIRST, 0, end=300, now=1.0)
    for now, offset in ((2.0, 100), (3.0, 200), (4.0, 299)):
        assert fetch(leading, FIRST, offset, end=1000, now=now).get_caught_up_time(1000) == 0.0
    assert fetch(leading, FIRST, 300, end=1000, now=5.0).get_caught_up_time(1000) == 1.0
    assert fetch(leading, FIRST, 999, end=2000, now=6.0).get_caught_up_time(2000) == 1.0
    assert fetch(leading, FIRST, 1000, end=2000, now=7.0).get_caught_up_time(2000) == 5.0


def test_follower_with_decreased_offset_must_pass_mark_again() -> None:
    leading = in_sync((LEADER, FIRST))
    fetch(leading, FIRST, 0, end=300, now=1.0)
    fetch(leading, FIRST, 200, end=400, now=2.0)
    assert fetch(leading, FIRST, 50, end=400, now=3.0).get_caught_up_time(400) == 0.0
    assert fetch(leading, FIRST, 300, end=400, now=4.0).get_caught_up_time(400) == 1.0


def test_follower_fetching_at_log_end_is_caught_up_now() -> None:
    leading = in_sync((LEADER, FIRST))
    fetch(leading, FIRST, 0, end=300, now=1.0)
    assert fetch(leading, FIRST, 300, end=300, now=2.0).get_caught_up_time(300) == 2.0
    assert fetch(leading, FIRST, 310, end=400, now=3.0).get_caught_up_time(400) == 2.0


def test_follower_with_increasing_lag_leaves() -> None:
    leading = in_sync((LEADER, FIRST))
    for second in range(1, 15):
        fetch(leading, FIRST, 10 * second, end=100 * second, now=float(second))
    assert ids(change(leading, end=1500, now=15.0)) == (LEADER,)


def test_stopped_follower_does_not_rejoin_before_next_fetch() -> None:
    leading = in_sync((LEADER, FIRST))
    life = Life()
    fetch(leading, FIRST, 100, now=0.0, life=life)
    assert ids(change(leading, high_watermark=100, now=10.1)) == (LEADER,)
    leading.update(Partition((LEADER, FIRST, SECOND), (LEADER,), LEADER, 4, 10), 10.1)
    assert change(leading, high_watermark=100, now=10.2) is None
    life.fetched_at = 12.0  # a fetch of any partition
    assert ids(change(leading, high_watermark=100, now=12.0)) == (LEADER, FIRST)


def test_follower_that_would_leave_immediately_does_not_join() -> None:
    leading = in_sync((LEADER,))
    fetch(leading, FIRST, 0, end=100, now=1.0)
    fetch(leading, FIRST, 90, end=200, now=20.0)
    assert change(leading, high_watermark=80, end=200, now=20.0) is None
    fetch(leading, FIRST, 150, end=210, now=21.0)
    fetch(leading, FIRST, 210, end=300, now=22.0)
    assert ids(change(leading, high_watermark=200, end=300, now=22.0)) == (LEADER, FIRST)


def test_member_fetching_below_high_watermark_has_lost_records() -> None:
    leading = in_sync((LEADER, FIRST))
    fetch(leading, FIRST, 40)
    assert ids(change(leading, high_watermark=60)) == (LEADER,)


# -- low watermark ----------------------------------------------------------------------------------------------------


def test_low_watermark_is_lowest_log_start_of_live_replicas() -> None:
    leading = in_sync()
    leading.followers[FIRST].record_fetch(50, 10, Life(), 100, 0.0)
    leading.followers[SECOND].record_fetch(50, 5, Life(), 100, 0.0)
    assert leading.low_watermark(20, lambda broker: True) == 5
    assert leading.low_watermark(20, lambda broker: broker != SECOND) == 10
