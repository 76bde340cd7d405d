"""`FetchPlan`, which is pure: what a follower asks its leader for, and which answers it may believe."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast

from chronik.broker.replica import Replica
from chronik.replication.fetch_plan import RETRY_SECONDS_FIRST, RETRY_SECONDS_MAX, WAIT_SECONDS_MAX, FetchPlan
from chronik.replication.messages import NO_SESSION, FollowerFetch, Key, LeaderAnswer

BROKER_EPOCH = 5


@dataclass(eq=False)
class PlayedReplica:
    index: int
    leader_epoch: int = 1
    durable_end: int = 10
    last_epoch: int = 0
    is_all_durable: bool = True
    topic_id: bytes = b"t" * 16
    log: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(log_start_offset=0, missing_from=None))
    opened_log: object | None = "open"

    @property
    def key(self) -> Key:
        return (self.topic_id, self.index)


def follow(plan: FetchPlan, replica: PlayedReplica) -> bool:
    return plan.follow(cast(Replica, replica))


def plan_of(*replicas: PlayedReplica) -> FetchPlan:
    plan = FetchPlan()
    for replica in replicas:
        assert follow(plan, replica)
    return plan


def request(plan: FetchPlan, now: float = 0.0) -> FollowerFetch:
    return plan.request(BROKER_EPOCH, now)


def asked_for(fetch: FollowerFetch) -> list[int]:
    return [position.partition for position in fetch.positions]


def in_session(*replicas: PlayedReplica) -> FetchPlan:
    plan = plan_of(*replicas)
    request(plan)
    assert plan.answered(LeaderAnswer(33))
    return plan


def test_the_first_fetch_names_every_partition_and_no_session() -> None:
    first, second = PlayedReplica(0), PlayedReplica(1, durable_end=20, last_epoch=3)
    fetch = request(plan_of(first, second))
    assert (fetch.broker_epoch, fetch.session_id, fetch.turn) == (BROKER_EPOCH, NO_SESSION, 0)
    assert asked_for(fetch) == [0, 1]
    assert (fetch.positions[1].offset, fetch.positions[1].last_epoch, fetch.positions[1].leader_epoch) == (20, 3, 1)


def test_within_a_session_only_what_has_changed_is_named_and_turns_are_counted() -> None:
    first, second = PlayedReplica(0), PlayedReplica(1)
    plan = in_session(first, second)
    fetch = request(plan)
    assert (asked_for(fetch), fetch.session_id, fetch.turn) == ([], 33, 1)
    plan.answered(LeaderAnswer(33))
    plan.changed(second.key)
    fetch = request(plan)
    assert (asked_for(fetch), fetch.turn) == ([1], 2)


def test_a_session_that_the_leader_does_not_know_begins_anew_with_everything() -> None:
    plan = in_session(PlayedReplica(0), PlayedReplica(1))
    request(plan)
    assert not plan.answered(LeaderAnswer(NO_SESSION))
    fetch = request(plan)
    assert (asked_for(fetch), fetch.session_id, fetch.turn) == ([0, 1], NO_SESSION, 0)


def test_after_a_lost_answer_everything_is_said_again() -> None:
    plan = in_session(PlayedReplica(0), PlayedReplica(1))
    request(plan)
    plan.lost()
    assert asked_for(request(plan)) == [0, 1]


def test_what_is_not_durable_is_not_told_and_not_waited_for() -> None:
    replica = PlayedReplica(0, is_all_durable=False)
    plan = plan_of(replica)
    assert plan.undurable() == [cast(Replica, replica)]
    fetch = request(plan)
    assert (asked_for(fetch), fetch.max_wait_ms) == ([], 0)
    replica.is_all_durable = True
    assert asked_for(request(plan)) == [0]


def test_a_log_that_is_not_open_is_opened_before_it_is_asked_for() -> None:
    replica = PlayedReplica(0, opened_log=None)
    plan = plan_of(replica)
    assert plan.unopened() == [cast(Replica, replica)]
    assert asked_for(request(plan)) == []
    replica.opened_log = "open"
    assert asked_for(request(plan)) == [0]


def test_nothing_is_believed_of_a_partition_that_was_not_asked_for() -> None:
    replica = PlayedReplica(0)
    plan = plan_of(replica)
    assert plan.answerable(replica.key) is None
    request(plan)
    assert plan.answerable(replica.key) is not None
    assert plan.answerable((replica.topic_id, 7)) is None


def test_an_answer_that_was_meant_for_an_earlier_epoch_is_not_believed() -> None:
    replica = PlayedReplica(0)
    plan = in_session(replica)
    before = plan.answerable(replica.key)
    assert before is not None
    replica.leader_epoch = 2
    assert follow(plan, replica)
    assert plan.answerable(replica.key) is None
    assert not plan.is_current(replica.key, before)
    assert request(plan).positions[0].leader_epoch == 2
    assert plan.answerable(replica.key) is not None


def test_an_answer_that_was_meant_for_a_log_that_is_gone_is_not_believed() -> None:
    plan = in_session(PlayedReplica(0))
    again = PlayedReplica(0)
    assert follow(plan, again)
    assert plan.answerable(again.key) is None


def test_following_what_is_followed_already_changes_nothing() -> None:
    replica = PlayedReplica(0)
    plan = in_session(replica)
    assert not follow(plan, replica)
    assert asked_for(request(plan)) == []


def test_a_forgotten_partition_is_told_once_and_only_within_a_session() -> None:
    first, second = PlayedReplica(0), PlayedReplica(1)
    plan = in_session(first, second)
    plan.forget(second.key)
    assert request(plan).forgotten == (second.key,)
    plan.answered(LeaderAnswer(33))
    assert request(plan).forgotten == ()
    plan.forget(first.key)
    plan.lost()
    assert request(plan).forgotten == ()


def test_a_partition_that_is_followed_again_is_not_forgotten() -> None:
    replica = PlayedReplica(0)
    plan = in_session(replica)
    plan.forget(replica.key)
    follow(plan, replica)
    fetch = request(plan)
    assert (fetch.forgotten, asked_for(fetch)) == ((), [0])


def test_a_partition_that_went_wrong_rests_ever_longer_and_does_not_hold_up_others() -> None:
    bad, good = PlayedReplica(0), PlayedReplica(1)
    plan = in_session(bad, good)
    rests = [plan.failed(bad.key, 0.0) for _ in range(10)]
    assert rests[0] == RETRY_SECONDS_FIRST
    assert rests == sorted(rests)
    assert rests[-1] == RETRY_SECONDS_MAX
    plan.changed(good.key)
    assert asked_for(request(plan, now=0.5)) == [1]
    assert asked_for(request(plan, now=RETRY_SECONDS_MAX)) == [0]


def test_what_went_well_again_is_forgiven() -> None:
    replica = PlayedReplica(0)
    plan = in_session(replica)
    plan.failed(replica.key, 0.0)
    plan.failed(replica.key, 0.0)
    plan.changed(replica.key)
    assert asked_for(request(plan)) == [0]
    assert plan.failed(replica.key, 0.0) == RETRY_SECONDS_FIRST


def test_a_fetch_waits_no_longer_than_until_the_next_partition_has_rested() -> None:
    replica = PlayedReplica(0)
    plan = in_session(replica)
    assert request(plan).max_wait_ms == int(WAIT_SECONDS_MAX * 1000)
    plan.rest(replica.key, 0.2)
    assert request(plan).max_wait_ms == 200


def test_a_session_that_is_lost_wakes_nobody_who_rests() -> None:
    resting, other = PlayedReplica(0), PlayedReplica(1)
    plan = in_session(resting, other)
    plan.rest(resting.key, 5.0)
    plan.lost()
    assert asked_for(request(plan, now=1.0)) == [1]
    assert sorted(asked_for(request(plan, now=5.0))) == [0, 1]


def test_a_log_that_is_cut_again_and_again_rests_in_between() -> None:
    replica = PlayedReplica(0)
    plan = in_session(replica)
    plan.cut(replica.key, 100, 0.0)
    assert asked_for(request(plan)) == [0]
    plan.cut(replica.key, 90, 0.0)
    assert asked_for(request(plan)) == []
    assert asked_for(request(plan, now=RETRY_SECONDS_MAX)) == [0]
