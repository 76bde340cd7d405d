"""Linearizable reads: the read queue, and rounds that send one message per voter."""

from __future__ import annotations

from chronik.raft.events import ReadIndexConfirmed, RequestAccepted
from chronik.raft.membership import PromoteLearner
from chronik.raft.messages import Heartbeat
from chronik.raft.read_queue import ROUNDS_MAX, ForwardedReads, PendingRead, ReadQueue
from tests.raft.lab import Lab

LEARNERS = (4, 5, 6, 7)


def heartbeats(lab: Lab, *targets: int) -> int:
    return sum(sent.target in targets for sent in lab.sent_by(1, Heartbeat))


def test_read_round_sends_heartbeats_to_voters_only() -> None:
    lab = Lab(learners=LEARNERS)
    lab.elect(1)
    to_voters, to_learners = heartbeats(lab, 2, 3), heartbeats(lab, *LEARNERS)
    for asker in (1, 2, 4, 7):
        context = lab.read(asker)
        lab.settle()
        assert isinstance(lab.outcome(asker, context), ReadIndexConfirmed)
    assert heartbeats(lab, 2, 3) - to_voters == 4 * 2
    assert heartbeats(lab, *LEARNERS) == to_learners


def test_learners_receive_regular_heartbeats_during_many_reads() -> None:
    lab = Lab(learners=LEARNERS)
    lab.elect(1)
    before = heartbeats(lab, *LEARNERS)
    for _ in range(3 * lab.config.heartbeat_ticks):
        lab.read(1)
        lab.settle()
        lab.tick(1)
        lab.settle()
    assert heartbeats(lab, *LEARNERS) - before == 3 * len(LEARNERS)


def test_learner_promoted_during_round_confirms_it_with_next_heartbeat() -> None:
    lab = Lab([1, 2], learners=[3])
    lab.elect(1)
    lab.propose(1, b"a")
    lab.settle()
    lab.cut_links.add((1, 2))
    context = lab.read(1)
    lab.settle()
    assert isinstance(lab.change(1, PromoteLearner(3)), RequestAccepted)
    lab.settle()
    assert lab.outcome(1, context) is None, "the new voter has not received the round yet"
    lab.tick(1, lab.config.heartbeat_ticks)
    lab.settle()
    assert isinstance(lab.outcome(1, context), ReadIndexConfirmed)


def test_leader_starts_one_round_per_tick_up_to_maximum() -> None:
    queue = ReadQueue()
    for number in range(ROUNDS_MAX):
        queue.add(PendingRead(1, number))
        queue.tick()
        assert queue.can_start_read_round
        queue.start_read_round(commit=number)
    queue.add(PendingRead(1, ROUNDS_MAX))
    queue.tick()
    assert not queue.can_start_read_round
    assert len(list(queue.take_confirmed_rounds(lambda number: number == 1))) == 1
    assert queue.can_start_read_round


def test_follower_sends_one_request_per_tick_up_to_maximum() -> None:
    reads = ForwardedReads(0)
    for number in range(ROUNDS_MAX):
        reads.add(number)
        reads.tick()
        assert reads.can_send_read_request
        reads.start_read_request(ticks_max=1000)
    reads.add(ROUNDS_MAX)
    reads.tick()
    assert not reads.can_send_read_request
    assert reads.take_request(1) == [0]
    assert reads.can_send_read_request
