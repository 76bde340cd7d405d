from __future__ import annotations

from chronik.raft.read_queue import ROUNDS_MAX, ForwardedReads, PendingRead, ReadQueue


def test_leader_starts_one_round_per_tick_up_to_maximum() -> None:
    queue = ReadQueue()
    for number in range(ROUNDS_MAX):
        queue.add(PendingRead(1, number))
        queue.tick()
        assert queue.can_start_round
        queue.start_round(commit=number)
    queue.add(PendingRead(1, ROUNDS_MAX))
    queue.tick()
    assert not queue.can_start_round
    assert len(list(queue.take_confirmed(lambda number: number == 1))) == 1
    assert queue.can_start_round


def test_follower_sends_one_request_per_tick_up_to_maximum() -> None:
    reads = ForwardedReads(0)
    for number in range(ROUNDS_MAX):
        reads.add(number)
        reads.tick()
        assert reads.can_send_request
        reads.start_request(ticks_max=1000)
    reads.add(ROUNDS_MAX)
    reads.tick()
    assert not reads.can_send_request
    assert reads.take_request(1) == [0]
    assert reads.can_send_request
