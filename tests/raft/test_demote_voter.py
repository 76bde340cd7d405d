"""Demotion of voters: a demoted voter becomes a learner as soon as the membership is appended."""

from __future__ import annotations

from chronik.raft.events import RejectionReason, RequestAccepted, RequestRejected
from chronik.raft.membership import UNBOUND_DIRECTORY, DemoteVoter, Membership, PromoteLearner, RaftMember, apply_change
from chronik.raft.messages import VoteRequest
from chronik.raft.roles import Role
from tests.raft.lab import Lab, directory


def membership_of(voters: str, learners: str = "") -> Membership:
    members = [RaftMember(int(each), directory(int(each)), each in voters) for each in sorted(voters + learners)]
    return Membership(tuple(members))


def test_demoted_voter_remains_member_with_same_directory() -> None:
    assert apply_change(membership_of("123"), DemoteVoter(2)) == membership_of("13", "2")
    assert apply_change(membership_of("13", "2"), PromoteLearner(2)) == membership_of("123")


def test_demotion_of_learner_or_last_voter_is_invalid() -> None:
    for membership, node_id in ((membership_of("12", "3"), 3), (membership_of("12"), 4), (membership_of("1"), 1)):
        assert apply_change(membership, DemoteVoter(node_id)) is None


def test_demotion_is_invalid_if_bound_voters_lose_majority() -> None:
    unbound = Membership(
        (RaftMember(1, directory(1), True), RaftMember(2, directory(2), True), RaftMember(3, UNBOUND_DIRECTORY, True))
    )
    assert apply_change(unbound, DemoteVoter(1)) is None, "the unbound voter cannot form a majority"
    assert apply_change(unbound, DemoteVoter(3)) is not None


def test_demoted_voter_replicates_log_without_counting_towards_quorum() -> None:
    lab = Lab()
    lab.elect(1)
    assert isinstance(lab.change(1, DemoteVoter(3)), RequestAccepted)
    lab.settle()
    assert lab[3].membership.voters == (1, 2)
    lab.cut_link(1, 2)
    lab.propose(1, b"a")
    lab.settle()
    assert lab[1].match_indexes()[3] == lab[1].last_index
    assert lab.commands(1) == []
    lab.heal()
    lab.tick(1, 2)
    lab.settle()
    lab.tick(1, 2)
    lab.settle()
    assert lab.commands(3) == [b"a"]


def test_demoted_voter_does_not_campaign_until_promoted() -> None:
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


def test_demoted_leader_leads_until_demotion_is_committed() -> None:
    lab = Lab()
    lab.elect(1)
    lab.cut_link(1, 3)
    assert isinstance(lab.change(1, DemoteVoter(1)), RequestAccepted)
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
    assert lab.commands(1) == [b"a"], "the demoted node still follows"


def test_demotion_is_rejected_while_another_change_is_pending() -> None:
    lab = Lab((1, 2, 3, 4))
    lab.elect(1)
    lab.change(1, DemoteVoter(4))
    refused = lab.change(1, DemoteVoter(3))
    assert isinstance(refused, RequestRejected)
    assert refused.reason is RejectionReason.CHANGE_PENDING
    lab.settle()
    assert isinstance(lab.change(1, DemoteVoter(3)), RequestAccepted)
