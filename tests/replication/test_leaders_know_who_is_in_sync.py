"""`InSync`, which is pure: what is safe, who may join the ISR, and who has to leave it."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from chronik.broker.in_sync import Follower, InSync
from chronik.metadata.commands.base import NO_EPOCH
from chronik.metadata.commands.partitions import IsrMember
from chronik.metadata.records import Partition

LEADER, FIRST, SECOND = 1, 2, 3
LAG_SECONDS_MAX = 10.0


@dataclass
class Life:
    broker_epoch: int = 7
    fetched_at: float = 0.0


def in_sync(isr: tuple[int, ...] = (LEADER, FIRST, SECOND), *, epoch_start: int = 0) -> InSync:
    leading = InSync(LEADER, Partition((LEADER, FIRST, SECOND), isr, LEADER, leader_epoch=4, partition_epoch=9), 0.0)
    leading.epoch_start_offset = epoch_start
    return leading


def fetch(
    leading: InSync, node: int, offset: int, *, end: int = 100, now: float = 0.0, life: Life | None = None
) -> Follower:
    follower = leading.followers[node]
    life = life or Life()
    life.fetched_at = now
    follower.fetched(offset, 0, life, end, now)
    return follower


def change(
    leading: InSync, *, high_watermark: int = 0, end: int = 100, now: float = 0.0, away: tuple[int, ...] = ()
) -> tuple[IsrMember, ...] | None:
    return leading.change(high_watermark, end, now, LAG_SECONDS_MAX, lambda broker: broker not in away)


def ids(members: tuple[IsrMember, ...] | None) -> tuple[int, ...]:
    assert members is not None
    return tuple(member.broker_id for member in members)


# -- what is safe -----------------------------------------------------------------------------------------------------


def test_nothing_is_safe_before_every_member_has_fetched_in_this_epoch() -> None:
    leading = in_sync()
    fetch(leading, FIRST, 50)
    assert leading.high_watermark(60) < 0
    fetch(leading, SECOND, 40)
    assert leading.high_watermark(60) == 40


def test_the_leaders_own_disk_counts_too() -> None:
    leading = in_sync()
    fetch(leading, FIRST, 50)
    fetch(leading, SECOND, 50)
    assert leading.high_watermark(30) == 30


def test_who_is_not_in_sync_does_not_count() -> None:
    leading = in_sync((LEADER, FIRST))
    fetch(leading, FIRST, 50)
    fetch(leading, SECOND, 10)
    assert leading.high_watermark(60) == 50


def test_a_leader_that_is_in_sync_alone_waits_for_nobody() -> None:
    assert in_sync((LEADER,)).high_watermark(60) == 60


def test_whom_a_proposal_brings_in_counts_until_it_is_decided() -> None:
    leading = in_sync((LEADER,))
    fetch(leading, FIRST, 50)
    leading.propose((IsrMember(LEADER, NO_EPOCH), IsrMember(FIRST, 7)))
    assert leading.high_watermark(60) == 50
    leading.refused()
    assert leading.high_watermark(60) == 60


def test_whom_a_proposal_takes_out_counts_until_it_is_decided() -> None:
    leading = in_sync((LEADER, FIRST))
    fetch(leading, FIRST, 50)
    leading.propose((IsrMember(LEADER, NO_EPOCH),))
    assert leading.high_watermark(60) == 50


def test_a_change_of_the_partition_decides_a_proposal() -> None:
    leading = in_sync((LEADER,))
    fetch(leading, FIRST, 50)
    leading.propose((IsrMember(LEADER, NO_EPOCH), IsrMember(FIRST, 7)))
    partition = Partition((LEADER, FIRST, SECOND), (LEADER,), LEADER, 4, 10)
    leading.update(partition, 1.0)
    assert leading.proposed is None
    assert leading.high_watermark(60) == 60


def test_a_partition_that_has_not_changed_decides_nothing() -> None:
    leading = in_sync((LEADER,))
    leading.propose((IsrMember(LEADER, NO_EPOCH), IsrMember(FIRST, 7)))
    leading.update(Partition((LEADER, FIRST, SECOND), (LEADER,), LEADER, 4, 9), 1.0)
    assert leading.proposed == (LEADER, FIRST)


def test_a_replica_that_left_and_is_back_has_told_nothing_yet() -> None:
    leading = in_sync((LEADER,))
    fetch(leading, FIRST, 50)
    partition = Partition((LEADER, SECOND), (LEADER,), LEADER, 4, 10)
    leading.update(partition, 1.0)
    leading.update(replace(partition, replicas=(LEADER, SECOND, FIRST), partition_epoch=11), 1.0)
    assert leading.followers[FIRST].offset < 0
    assert not leading.may_join(leading.followers[FIRST], 0)


# -- who may join -----------------------------------------------------------------------------------------------------


def test_a_follower_joins_when_it_has_everything_that_is_committed() -> None:
    leading = in_sync((LEADER,))
    assert not leading.may_join(fetch(leading, FIRST, 59), 60)
    assert leading.may_join(fetch(leading, FIRST, 60), 60)
    assert change(leading, high_watermark=60) == (IsrMember(LEADER, NO_EPOCH), IsrMember(FIRST, 7))


def test_a_follower_joins_only_with_all_that_earlier_leaders_wrote() -> None:
    leading = in_sync((LEADER,), epoch_start=80)
    assert not leading.may_join(fetch(leading, FIRST, 79), 60)
    assert leading.may_join(fetch(leading, FIRST, 80), 60)


def test_nobody_joins_before_the_leader_knows_where_its_epoch_began() -> None:
    leading = in_sync((LEADER,))
    leading.epoch_start_offset = -1
    assert not leading.may_join(fetch(leading, FIRST, 100), 60)


def test_a_follower_that_has_not_fetched_in_this_epoch_does_not_join_an_empty_partition() -> None:
    leading = in_sync((LEADER,))
    assert not leading.may_join(leading.followers[FIRST], 0)


def test_a_member_is_not_asked_to_join_again() -> None:
    leading = in_sync()
    assert not leading.may_join(fetch(leading, FIRST, 100), 60)


def test_a_broker_that_is_away_does_not_join() -> None:
    leading = in_sync((LEADER,))
    fetch(leading, FIRST, 100)
    assert change(leading, high_watermark=60, away=(FIRST,)) is None


def test_only_one_change_is_under_way() -> None:
    leading = in_sync((LEADER,))
    fetch(leading, FIRST, 100)
    proposed = change(leading, high_watermark=60)
    assert proposed is not None
    leading.propose(proposed)
    fetch(leading, SECOND, 100)
    assert change(leading, high_watermark=60) is None
    leading.refused()
    assert ids(change(leading, high_watermark=60)) == (LEADER, FIRST, SECOND)


# -- who has to leave -------------------------------------------------------------------------------------------------


def test_a_new_leader_gives_everybody_the_time_to_find_it() -> None:
    leading = in_sync()
    assert change(leading, now=LAG_SECONDS_MAX) is None
    assert ids(change(leading, now=LAG_SECONDS_MAX + 0.1)) == (LEADER,)


def test_a_follower_that_lags_for_too_long_leaves() -> None:
    leading = in_sync()
    fetch(leading, FIRST, 100, now=5.0)
    fetch(leading, SECOND, 99, now=5.0)
    leading.followers[FIRST].falls_behind()
    assert ids(change(leading, end=101, now=12.0)) == (LEADER, FIRST)


def test_a_follower_that_has_everything_stays_as_long_as_it_asks_for_anything() -> None:
    leading = in_sync((LEADER, FIRST))
    life = Life()
    fetch(leading, FIRST, 100, now=0.0, life=life)
    life.fetched_at = 60.0
    assert change(leading, now=65.0) is None
    assert ids(change(leading, now=71.0)) == (LEADER,)


def test_a_follower_under_load_has_what_there_was_when_it_asked_before() -> None:
    leading = in_sync((LEADER, FIRST))
    for second in range(1, 60):
        fetch(leading, FIRST, 100 * second, end=100 * second + 100, now=float(second))
        assert change(leading, high_watermark=0, end=100 * second + 100, now=second + 0.5) is None


def test_follower_with_a_constant_backlog_of_many_fetches_stays_in_the_isr() -> None:
    leading = in_sync((LEADER, FIRST))
    backlog = 2000  # it gets 100 per fetch: 20 fetches, 2 s
    for tenth in range(1, 600):
        now, offset = tenth / 10, 100 * tenth
        fetch(leading, FIRST, offset, end=offset + backlog, now=now)
        assert change(leading, end=offset + backlog, now=now) is None


def test_follower_with_a_backlog_older_than_the_lag_time_leaves_the_isr() -> None:
    leading = in_sync((LEADER, FIRST))
    for second in range(1, 30):
        fetch(leading, FIRST, 100 * second, end=100 * second + 1200, now=float(second))
    assert ids(change(leading, end=4200, now=30.0)) == (LEADER,)


def test_follower_that_passes_its_mark_counts_as_caught_up_when_the_mark_was_set() -> None:
    leading = in_sync((LEADER, FIRST))
    fetch(leading, FIRST, 0, end=300, now=1.0)
    for now, offset in ((2.0, 100), (3.0, 200), (4.0, 299)):
        assert fetch(leading, FIRST, offset, end=1000, now=now).caught_up_at(1000) == 0.0
    assert fetch(leading, FIRST, 300, end=1000, now=5.0).caught_up_at(1000) == 1.0
    assert fetch(leading, FIRST, 999, end=2000, now=6.0).caught_up_at(2000) == 1.0
    assert fetch(leading, FIRST, 1000, end=2000, now=7.0).caught_up_at(2000) == 5.0


def test_follower_whose_offset_goes_back_has_to_pass_its_mark_again() -> None:
    leading = in_sync((LEADER, FIRST))
    fetch(leading, FIRST, 0, end=300, now=1.0)
    fetch(leading, FIRST, 200, end=400, now=2.0)
    assert fetch(leading, FIRST, 50, end=400, now=3.0).caught_up_at(400) == 0.0
    assert fetch(leading, FIRST, 300, end=400, now=4.0).caught_up_at(400) == 1.0


def test_follower_that_fetches_at_the_log_end_counts_as_caught_up_now() -> None:
    leading = in_sync((LEADER, FIRST))
    fetch(leading, FIRST, 0, end=300, now=1.0)
    assert fetch(leading, FIRST, 300, end=300, now=2.0).caught_up_at(300) == 2.0
    assert fetch(leading, FIRST, 310, end=400, now=3.0).caught_up_at(400) == 2.0


def test_a_follower_that_comes_ever_later_leaves() -> None:
    leading = in_sync((LEADER, FIRST))
    for second in range(1, 15):
        fetch(leading, FIRST, 10 * second, end=100 * second, now=float(second))
    assert ids(change(leading, end=1500, now=15.0)) == (LEADER,)


def test_stopped_follower_with_everything_does_not_rejoin_before_it_fetches_again() -> None:
    leading = in_sync((LEADER, FIRST))
    life = Life()
    fetch(leading, FIRST, 100, now=0.0, life=life)
    assert ids(change(leading, high_watermark=100, now=10.1)) == (LEADER,)
    leading.update(Partition((LEADER, FIRST, SECOND), (LEADER,), LEADER, 4, 10), 10.1)
    assert change(leading, high_watermark=100, now=10.2) is None
    life.fetched_at = 12.0  # of any partition
    assert ids(change(leading, high_watermark=100, now=12.0)) == (LEADER, FIRST)


def test_follower_that_would_leave_at_once_does_not_join() -> None:
    leading = in_sync((LEADER,))
    fetch(leading, FIRST, 0, end=100, now=1.0)
    fetch(leading, FIRST, 90, end=200, now=20.0)
    assert change(leading, high_watermark=80, end=200, now=20.0) is None
    fetch(leading, FIRST, 150, end=210, now=21.0)
    fetch(leading, FIRST, 210, end=300, now=22.0)
    assert ids(change(leading, high_watermark=200, end=300, now=22.0)) == (LEADER, FIRST)


def test_a_member_that_asks_for_what_is_committed_has_lost_it() -> None:
    leading = in_sync((LEADER, FIRST))
    fetch(leading, FIRST, 40)
    assert ids(change(leading, high_watermark=60)) == (LEADER,)


# -- the log's start --------------------------------------------------------------------------------------------------


def test_the_low_watermark_is_the_lowest_start_of_a_living_replica() -> None:
    leading = in_sync()
    leading.followers[FIRST].fetched(50, 10, Life(), 100, 0.0)
    leading.followers[SECOND].fetched(50, 5, Life(), 100, 0.0)
    assert leading.low_watermark(20, lambda broker: True) == 5
    assert leading.low_watermark(20, lambda broker: broker != SECOND) == 10
