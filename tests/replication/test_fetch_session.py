"""The follower's fetch session: the contents of requests, and which responses are accepted."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast

from chronik.broker.replica import Replica
from chronik.replication.fetch_session import (
    FETCH_WAIT_SECONDS_MAX,
    RETRY_SECONDS_FIRST,
    RETRY_SECONDS_MAX,
    LeaderFetchSession,
)
from chronik.replication.messages import NO_SESSION, FollowerFetchRequest, FollowerFetchResponse, PartitionId

BROKER_EPOCH = 5


@dataclass(eq=False)
class FakeReplica:
    index: int
    leader_epoch: int = 1
    durable_end_offset: int = 10
    latest_epoch: int = 0
    is_fully_durable: bool = True
    topic_id: bytes = b"t" * 16
    log: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(log_start_offset=0, missing_start_offset=None))
    log_if_open: object | None = "open"

    @property
    def key(self) -> PartitionId:
        return (self.topic_id, self.index)


def follow(plan: LeaderFetchSession, replica: FakeReplica) -> bool:
    return plan.follow(cast(Replica, replica))


def make_plan(*replicas: FakeReplica) -> LeaderFetchSession:
    plan = LeaderFetchSession()
    for replica in replicas:
        assert follow(plan, replica)
    return plan


def request(plan: LeaderFetchSession, now: float = 0.0) -> FollowerFetchRequest:
    return plan.build_request(BROKER_EPOCH, now)


def requested_partitions(fetch: FollowerFetchRequest) -> list[int]:
    return [position.partition for position in fetch.positions]


def make_plan_in_session(*replicas: FakeReplica) -> LeaderFetchSession:
    plan = make_plan(*replicas)
    request(plan)
    assert plan.on_response(FollowerFetchResponse(33))
    return plan


def test_first_fetch_contains_all_partitions_and_no_session() -> None:
    first, second = FakeReplica(0), FakeReplica(1, durable_end_offset=20, latest_epoch=3)
    fetch = request(make_plan(first, second))
    assert (fetch.broker_epoch, fetch.session_id, fetch.session_epoch) == (BROKER_EPOCH, NO_SESSION, 0)
    assert requested_partitions(fetch) == [0, 1]
    assert (fetch.positions[1].offset, fetch.positions[1].last_epoch, fetch.positions[1].leader_epoch) == (20, 3, 1)


def test_later_fetches_contain_only_changed_partitions() -> None:
    first, second = FakeReplica(0), FakeReplica(1)
    plan = make_plan_in_session(first, second)
    fetch = request(plan)
    assert (requested_partitions(fetch), fetch.session_id, fetch.session_epoch) == ([], 33, 1)
    plan.on_response(FollowerFetchResponse(33))
    plan.mark_position_changed(second.key)
    fetch = request(plan)
    assert (requested_partitions(fetch), fetch.session_epoch) == ([1], 2)


def test_unknown_session_is_restarted_with_all_partitions() -> None:
    plan = make_plan_in_session(FakeReplica(0), FakeReplica(1))
    request(plan)
    assert not plan.on_response(FollowerFetchResponse(NO_SESSION))
    fetch = request(plan)
    assert (requested_partitions(fetch), fetch.session_id, fetch.session_epoch) == ([0, 1], NO_SESSION, 0)


def test_lost_response_restarts_session_with_all_partitions() -> None:
    plan = make_plan_in_session(FakeReplica(0), FakeReplica(1))
    request(plan)
    plan.reset()
    assert requested_partitions(request(plan)) == [0, 1]


def test_unsynced_partition_is_omitted_without_delaying_fetch() -> None:
    replica = FakeReplica(0, is_fully_durable=False)
    plan = make_plan(replica)
    assert plan.list_replicas_to_sync() == [cast(Replica, replica)]
    fetch = request(plan)
    assert (requested_partitions(fetch), fetch.max_wait_ms) == ([], 0)
    replica.is_fully_durable = True
    assert requested_partitions(request(plan)) == [0]


def test_unlog_if_open_is_omitted_until_opened() -> None:
    replica = FakeReplica(0, log_if_open=None)
    plan = make_plan(replica)
    assert plan.list_replicas_to_open() == [cast(Replica, replica)]
    assert requested_partitions(request(plan)) == []
    replica.log_if_open = "open"
    assert requested_partitions(request(plan)) == [0]


def test_response_for_unrequested_partition_is_ignored() -> None:
    replica = FakeReplica(0)
    plan = make_plan(replica)
    assert plan.get_requested_partition(replica.key) is None
    request(plan)
    assert plan.get_requested_partition(replica.key) is not None
    assert plan.get_requested_partition((replica.topic_id, 7)) is None


def test_response_for_earlier_epoch_is_ignored() -> None:
    replica = FakeReplica(0)
    plan = make_plan_in_session(replica)
    before = plan.get_requested_partition(replica.key)
    assert before is not None
    replica.leader_epoch = 2
    assert follow(plan, replica)
    assert plan.get_requested_partition(replica.key) is None
    assert not plan.is_current(replica.key, before)
    assert request(plan).positions[0].leader_epoch == 2
    assert plan.get_requested_partition(replica.key) is not None


def test_response_for_replaced_log_is_ignored() -> None:
    plan = make_plan_in_session(FakeReplica(0))
    again = FakeReplica(0)
    assert follow(plan, again)
    assert plan.get_requested_partition(again.key) is None


def test_following_same_partition_twice_changes_nothing() -> None:
    replica = FakeReplica(0)
    plan = make_plan_in_session(replica)
    assert not follow(plan, replica)
    assert requested_partitions(request(plan)) == []


def test_unfollowed_partition_is_reported_once_within_session() -> None:
    first, second = FakeReplica(0), FakeReplica(1)
    plan = make_plan_in_session(first, second)
    plan.unfollow(second.key)
    assert request(plan).forgotten == (second.key,)
    plan.on_response(FollowerFetchResponse(33))
    assert request(plan).forgotten == ()
    plan.unfollow(first.key)
    plan.reset()
    assert request(plan).forgotten == ()


def test_refollowed_partition_is_not_reported_as_forgotten() -> None:
    replica = FakeReplica(0)
    plan = make_plan_in_session(replica)
    plan.unfollow(replica.key)
    follow(plan, replica)
    fetch = request(plan)
    assert (fetch.forgotten, requested_partitions(fetch)) == ((), [0])


def test_failed_partition_backs_off_without_delaying_others() -> None:
    bad, good = FakeReplica(0), FakeReplica(1)
    plan = make_plan_in_session(bad, good)
    rests = [plan.delay_failed_partition(bad.key, 0.0) for _ in range(10)]
    assert rests[0] == RETRY_SECONDS_FIRST
    assert rests == sorted(rests)
    assert rests[-1] == RETRY_SECONDS_MAX
    plan.mark_position_changed(good.key)
    assert requested_partitions(request(plan, now=0.5)) == [1]
    assert requested_partitions(request(plan, now=RETRY_SECONDS_MAX)) == [0]


def test_success_resets_backoff() -> None:
    replica = FakeReplica(0)
    plan = make_plan_in_session(replica)
    plan.delay_failed_partition(replica.key, 0.0)
    plan.delay_failed_partition(replica.key, 0.0)
    plan.mark_position_changed(replica.key)
    assert requested_partitions(request(plan)) == [0]
    assert plan.delay_failed_partition(replica.key, 0.0) == RETRY_SECONDS_FIRST


def test_fetch_wait_ends_when_next_paused_partition_is_due() -> None:
    replica = FakeReplica(0)
    plan = make_plan_in_session(replica)
    assert request(plan).max_wait_ms == int(FETCH_WAIT_SECONDS_MAX * 1000)
    plan.pause(replica.key, 0.2)
    assert request(plan).max_wait_ms == 200


def test_lost_session_does_not_resume_paused_partitions() -> None:
    resting, other = FakeReplica(0), FakeReplica(1)
    plan = make_plan_in_session(resting, other)
    plan.pause(resting.key, 5.0)
    plan.reset()
    assert requested_partitions(request(plan, now=1.0)) == [1]
    assert sorted(requested_partitions(request(plan, now=5.0))) == [0, 1]


def test_repeatedly_truncated_partition_backs_off() -> None:
    replica = FakeReplica(0)
    plan = make_plan_in_session(replica)
    plan.record_truncation(replica.key, 100, 0.0)
    assert requested_partitions(request(plan)) == [0]
    plan.record_truncation(replica.key, 90, 0.0)
    assert requested_partitions(request(plan)) == []
    assert requested_partitions(request(plan, now=RETRY_SECONDS_MAX)) == [0]
