from __future__ import annotations

from chronik.raft.read_queue import ROUNDS_MAX, ForwardedReads, Read, ReadQueue


def test_a_leader_begins_a_round_a_tick_until_so_many_are_under_way() -> None:
    queue = ReadQueue()
    for number in range(ROUNDS_MAX):
        queue.add(Read(1, number))
        queue.tick()
        assert queue.can_begin
        queue.begin(commit=number)
    queue.add(Read(1, ROUNDS_MAX))
    queue.tick()
    assert not queue.can_begin
    assert len(list(queue.confirm(lambda number: number == 1))) == 1
    assert queue.can_begin


def test_a_follower_asks_a_tick_until_so_many_questions_are_under_way() -> None:
    reads = ForwardedReads(0)
    for number in range(ROUNDS_MAX):
        reads.add(number)
        reads.tick()
        assert reads.can_ask
        reads.ask(ticks_max=1000)
    reads.add(ROUNDS_MAX)
    reads.tick()
    assert not reads.can_ask
    assert reads.answered(1) == [0]
    assert reads.can_ask
