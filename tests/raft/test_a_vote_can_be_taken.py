"""A voter that is demoted follows as a learner: it counts for nothing as soon as the membership is appended."""

from __future__ import annotations

from chronik.raft.events import Accepted, Refusal, Refused
from chronik.raft.membership import UNBOUND, DemoteVoter, Member, Membership, PromoteLearner, changed
from chronik.raft.messages import VoteRequest
from chronik.raft.roles import Role

from .lab import Lab, directory


def seats(voters: str, learners: str = "") -> Membership:
    members = [Member(int(each), directory(int(each)), each in voters) for each in sorted(voters + learners)]
    return Membership(tuple(members))


def test_it_keeps_its_seat_and_its_disk() -> None:
    assert changed(seats("123"), DemoteVoter(2)) == seats("13", "2")
    assert changed(seats("13", "2"), PromoteLearner(2)) == seats("123")


def test_there_must_be_a_vote_to_take_and_one_must_be_left() -> None:
    for membership, node_id in ((seats("12", "3"), 3), (seats("12"), 4), (seats("1"), 1)):
        assert changed(membership, DemoteVoter(node_id)) is None


def test_those_who_are_left_must_be_able_to_agree() -> None:
    unbound = Membership((Member(1, directory(1), True), Member(2, directory(2), True), Member(3, UNBOUND, True)))
    assert changed(unbound, DemoteVoter(1)) is None, "the seat that nobody took could not make a majority"
    assert changed(unbound, DemoteVoter(3)) is not None


def test_a_demoted_voter_receives_everything_and_counts_for_nothing() -> None:
    lab = Lab()
    lab.elect(1)
    assert isinstance(lab.change(1, DemoteVoter(3)), Accepted)
    lab.settle()
    assert lab[3].membership.voters == (1, 2)
    lab.cut(1, 2)
    lab.propose(1, b"a")
    lab.settle()
    assert lab[1].matches()[3] == lab[1].last_index
    assert lab.commands(1) == []
    lab.heal()
    lab.tick(1, 2)
    lab.settle()
    lab.tick(1, 2)
    lab.settle()
    assert lab.commands(3) == [b"a"]


def test_it_never_stands_again_until_it_is_promoted() -> None:
    lab = Lab()
    lab.elect(1)
    lab.change(1, DemoteVoter(3))
    lab.settle()
    lab.isolate(3)
    lab.tick(3, 100)
    assert lab.role(3) is Role.FOLLOWER
    assert lab.sent_by(3, VoteRequest) == []
    lab.heal()
    lab.tick(1, 2)
    lab.settle()
    lab.change(1, PromoteLearner(3))
    lab.settle()
    lab.elect(3)


def test_a_leader_that_is_demoted_leads_until_that_is_committed_without_counting_itself() -> None:
    lab = Lab()
    lab.elect(1)
    lab.cut(1, 3)
    assert isinstance(lab.change(1, DemoteVoter(1)), Accepted)
    lab.settle()
    assert lab.role(1) is Role.LEADER
    assert lab[1].commit < lab[1].membership_index
    lab.heal()
    lab.tick(1, 2)
    lab.settle()
    assert lab.role(1) is Role.FOLLOWER
    assert lab[2].membership.voters == (2, 3)
    lab.elect(2)
    lab.propose(2, b"a")
    lab.settle()
    lab.tick(2, 2)
    lab.settle()
    assert lab.commands(1) == [b"a"], "it follows"


def test_a_demotion_waits_for_the_change_before_it() -> None:
    lab = Lab((1, 2, 3, 4))
    lab.elect(1)
    lab.change(1, DemoteVoter(4))
    refused = lab.change(1, DemoteVoter(3))
    assert isinstance(refused, Refused)
    assert refused.refusal is Refusal.CHANGE_PENDING
    lab.settle()
    assert isinstance(lab.change(1, DemoteVoter(3)), Accepted)
