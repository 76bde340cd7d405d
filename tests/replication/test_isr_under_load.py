"""The ISR while producers outpace replication, simulated: see `backlog`."""

from __future__ import annotations

import pytest

from chronik.broker.isr_state import Follower, FollowerBroker
from chronik.limits import PARTITION_UNCOMMITTED_BYTES_MAX
from tests.replication import backlog
from tests.replication.backlog import LAG_SECONDS_MAX, SECOND, Backlog, request_bytes_max
from tests.run_size import SEED, sized

SEEDS = range((SEED - 1) * 1000 + 1, (SEED - 1) * 1000 + 1 + sized(2, 50))
CONNECTIONS = (1, 64, 1000)
LOAD_SECONDS = 4 * LAG_SECONDS_MAX
SLOW_FOLLOWER, FAST_FOLLOWER = 25e6, 60e6


def simulation(seed: int, connections: int) -> Backlog:
    size = request_bytes_max(connections)
    return Backlog(seed, connections, size, SLOW_FOLLOWER if seed % 2 else FAST_FOLLOWER)


def uncommitted_bytes_max(run: Backlog, connections: int) -> int:
    """Return the bound: the limit, one request that passes it, and one request for each blocked connection."""
    return PARTITION_UNCOMMITTED_BYTES_MAX + (connections + 1) * run.request_bytes_max


def check_isr_stays_complete(seed: int, connections: int) -> None:
    run = simulation(seed, connections)
    while run.now < LOAD_SECONDS:
        run.run_until(run.now + 1.0)
        assert run.isr_changes == []
        assert run.uncommitted_bytes_seen_max <= uncommitted_bytes_max(run, connections)
    committed = run.log.bytes_by_end[run.high_watermark]
    assert committed > LOAD_SECONDS * run.slowest_bytes_per_second / 2, "backpressure wastes the followers' capacity"


@pytest.mark.parametrize("connections", CONNECTIONS)
@pytest.mark.parametrize("seed", SEEDS)
def test_isr_stays_complete_while_followers_keep_pace(seed: int, connections: int) -> None:
    check_isr_stays_complete(seed, connections)


@pytest.mark.parametrize("connections", CONNECTIONS)
@pytest.mark.parametrize("seed", SEEDS)
def test_stopped_follower_leaves_isr_after_lag_time_and_returns(seed: int, connections: int) -> None:
    run = simulation(seed, connections)
    run.run_until(5.0)
    run.followers[SECOND].is_stopped = True
    left_at = run.run_until_isr(2, deadline=30.0)
    assert LAG_SECONDS_MAX - 2.0 <= left_at - 5.0 <= 1.5 * LAG_SECONDS_MAX
    assert SECOND not in run.isr
    run.run_until(left_at + 1.0)
    run.followers[SECOND].is_stopped = False
    run.run_until_isr(3, deadline=left_at + 30.0)
    assert [len(isr) for _, isr in run.isr_changes] == [2, 3]
    assert run.uncommitted_bytes_seen_max <= uncommitted_bytes_max(run, connections)


# Broken rules: each must fail the simulation.


@pytest.mark.parametrize("connections", CONNECTIONS[1:])  # a single blocked connection has no backlog
def test_simulation_detects_mark_moved_at_every_fetch(connections: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched = Follower.record_fetch

    def fetched_and_moved(
        self: Follower, offset: int, log_start_offset: int, life: FollowerBroker, leader_end: int, now: float
    ) -> None:
        fetched(self, offset, log_start_offset, life, leader_end, now)
        self._record_leader_end_offset(leader_end, now)

    monkeypatch.setattr("chronik.broker.isr_state.Follower.record_fetch", fetched_and_moved)
    with pytest.raises(AssertionError):
        check_isr_stays_complete(SEEDS[0], connections)


@pytest.mark.parametrize("connections", CONNECTIONS)
def test_simulation_detects_unlimited_pipelining(connections: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "can_pipeline_requests", lambda partitions: True)
    with pytest.raises(AssertionError):
        check_isr_stays_complete(SEEDS[0], connections)
