"""Tests for Ongaro's thesis: leadership transfer, membership changes, reads, pre-vote and flow control, by section."""

from __future__ import annotations

import pytest

from chronik.errors import InvariantError
from chronik.raft.config import RaftConfig
from chronik.raft.events import PeerUnreachable, ReadIndexConfirmed, RejectionReason, RequestAccepted, RequestRejected
from chronik.raft.membership import UNBOUND_DIRECTORY, AddLearner, PromoteLearner, RemoveMember
from chronik.raft.messages import Append, AppendAck, Heartbeat, HeartbeatAck, ReadAck, TimeoutNow, VoteAck, VoteRequest
from chronik.raft.roles import Role
from tests.raft.lab import Lab, directory


def refusal(outcome: RequestAccepted | RequestRejected) -> RejectionReason | None:
    return outcome.reason if isinstance(outcome, RequestRejected) else None


# ------------------------------------------------------------------------------------------------------------ §3.10


def test_3_10_leadership_is_transferred_to_up_to_date_node() -> None:
    lab = Lab()
    lab.elect(1)
    assert isinstance(lab.transfer(1, 3), RequestAccepted)
    lab.settle()
    assert (lab.leader(), lab[3].status.term) == (3, 2)
    assert not [request for request in lab.sent_by(3, VoteRequest) if request.is_pre_vote]


def test_3_10_transfer_waits_for_lagging_target_and_pauses_proposals() -> None:
    lab = Lab()
    lab.elect(1)
    lab.cut_link(1, 3)
    lab.propose(1, b"a")
    lab.settle()
    lab.transfer(1, 3)
    assert lab.sent_by(1, TimeoutNow) == []
    assert refusal(lab.propose(1, b"b")) is RejectionReason.TRANSFER_IN_PROGRESS
    lab.heal()
    lab.tick(1, 2)
    lab.settle()
    assert lab.leader() == 3
    assert lab.commands(3) == [b"a"]


def test_3_10_transfer_is_abandoned_after_election_timeout() -> None:
    lab = Lab()
    lab.elect(1)
    lab.cut_link(1, 3)
    lab.transfer(1, 3)
    for _ in range(lab.config.election_ticks):
        lab.tick(1)
        lab.settle()
    assert isinstance(lab.propose(1, b"a"), RequestAccepted)


def test_3_10_transfer_to_non_voter_or_self_is_rejected() -> None:
    lab = Lab(learners=[4])
    lab.elect(1)
    assert [refusal(lab.transfer(1, target)) for target in (1, 4, 9)] == [RejectionReason.INVALID_CHANGE] * 3


# -------------------------------------------------------------------------------------------------------------- §4


def test_4_1_membership_takes_effect_when_appended() -> None:
    lab = Lab(outsiders=[4])
    lab.elect(1)
    for node_id in (2, 3):
        lab.cut_link(1, node_id)
    assert isinstance(lab.change(1, AddLearner(4, directory(4))), RequestAccepted)
    assert lab[1].membership.get(4) is not None
    assert lab[1].commit < lab[1].membership_index


def test_4_1_truncated_membership_is_reverted() -> None:
    lab = Lab(outsiders=[4])
    lab.elect(1)
    lab.isolate(1)
    lab.change(1, AddLearner(4, directory(4)))
    lab.settle()
    lab.elect(2)
    lab.heal()
    lab.tick(2, 2)
    lab.settle()
    assert lab.log(1) == lab.log(2)
    assert lab[1].membership.get(4) is None


def test_4_1_second_pending_membership_change_is_rejected() -> None:
    lab = Lab(outsiders=[4, 5])
    lab.elect(1)
    lab.isolate(1)
    assert isinstance(lab.change(1, AddLearner(4, directory(4))), RequestAccepted)
    assert refusal(lab.change(1, AddLearner(5, directory(5)))) is RejectionReason.CHANGE_PENDING
    lab.heal()
    lab.tick(1, 2)
    lab.settle()
    assert isinstance(lab.change(1, AddLearner(5, directory(5))), RequestAccepted)


def test_4_1_membership_change_requires_commit_in_current_term() -> None:
    """The bug found in 2015: two leaders in turn change an uncommitted membership, and majorities are disjoint."""
    lab = Lab(outsiders=[4])
    lab.elect(1)
    lab.elect(2)
    for node_id in (1, 3):
        lab._expire_lease(lab.hosts[node_id])
    lab.campaign(3)
    while lab.role(3) is not Role.LEADER:
        lab.deliver_one()
    assert refusal(lab.change(3, AddLearner(4, directory(4)))) is RejectionReason.CHANGE_PENDING
    lab.settle()
    assert isinstance(lab.change(3, AddLearner(4, directory(4))), RequestAccepted)


def test_4_2_1_learner_replicates_log_without_counting_towards_quorum() -> None:
    lab = Lab((1, 2), learners=[3, 4])
    lab.elect(1)
    lab.cut_link(1, 2)
    lab.propose(1, b"a")
    lab.settle()
    assert lab[1].match_indexes()[3] == lab[1].match_indexes()[4] == lab[1].last_index
    assert lab.commands(1) == []
    lab.heal()
    lab.tick(1, 2)
    lab.settle()
    assert lab.commands(4) == [b"a"]


def test_4_2_1_learner_never_campaigns() -> None:
    lab = Lab(learners=[4])
    lab.tick(4, 100)
    lab.campaign(4)
    assert lab.role(4) is Role.FOLLOWER
    assert lab.sent_by(4, VoteRequest) == []


def test_4_2_1_learner_without_leader_answers_candidates() -> None:
    """The learner may be a voter in a newer membership, and its vote may complete a majority."""
    lab = Lab(learners=[4], config=RaftConfig(election_spread_ticks=1))
    lab.elect(1)
    for ticks in (lab.config.election_ticks, 1, 1, lab.config.election_ticks):
        lab.tick(4, ticks)
        request = lab.message(
            VoteRequest,
            2,
            4,
            term=1,
            last_index=9,
            last_term=1,
            membership_index=0,
            is_pre_vote=True,
            is_leadership_transfer=False,
        )
        assert len(lab.receive(request)) == 1


def test_4_2_1_learner_is_promoted_only_when_caught_up() -> None:
    lab = Lab(outsiders=[4], config=RaftConfig(promotion_lag_max_entries=5))
    lab.elect(1)
    for number in range(20):
        lab.propose(1, b"%d" % number)
        lab.settle()
    lab.isolate(4)
    lab.change(1, AddLearner(4, directory(4)))
    lab.settle()
    assert refusal(lab.change(1, PromoteLearner(4))) is RejectionReason.NOT_CAUGHT_UP
    lab.heal()
    lab.tick(1, 2)
    lab.settle()
    assert isinstance(lab.change(1, PromoteLearner(4)), RequestAccepted)
    lab.settle()
    assert lab[4].membership.voters == (1, 2, 3, 4)


def test_4_2_2_removed_leader_leads_until_removal_is_committed() -> None:
    lab = Lab()
    lab.elect(1)
    assert isinstance(lab.change(1, RemoveMember(1)), RequestAccepted)
    assert lab.role(1) is Role.LEADER
    lab.settle()
    assert lab.role(1) is Role.FOLLOWER
    assert lab[2].membership.voters == (2, 3)
    assert lab[2].commit == lab[2].membership_index, "the other nodes know the commit index"
    lab.tick(1, 100)
    lab.settle()
    assert lab.role(1) is Role.FOLLOWER
    lab.elect(2)


def test_4_2_2_removed_leader_does_not_count_itself() -> None:
    lab = Lab()
    lab.elect(1)
    lab.cut_link(1, 3)
    lab.change(1, RemoveMember(1))
    lab.settle()
    assert lab[1].match_indexes() == {2: lab[1].last_index, 3: lab[1].last_index - 1}
    assert lab[1].commit < lab[1].membership_index


def test_4_2_2_node_with_uncommitted_removal_still_campaigns() -> None:
    """It alone has the entry that removes it, and the other node cannot be elected without its vote."""
    lab = Lab((1, 2))
    lab.elect(1)
    lab.isolate(1)
    lab.change(1, RemoveMember(1))
    lab.settle()
    lab.crash(1)
    lab.restart(1)
    lab.heal()
    for _ in range(30):
        for node_id in (1, 2):
            lab.tick(node_id)
        lab.settle()
    assert lab.leader() == 2
    assert lab[2].membership.voters == (2,)


def test_4_2_3_removed_node_does_not_disrupt_cluster() -> None:
    lab = Lab()
    lab.elect(1)
    lab.cut_link(1, 3)
    lab.change(1, RemoveMember(3))
    lab.settle()
    lab.heal()
    for _ in range(100):
        for node_id in (1, 2, 3):
            lab.tick(node_id)
        lab.settle()
    assert lab.leader() == 1
    assert {lab[node_id].status.term for node_id in (1, 2, 3)} == {1}
    assert len(lab.sent_by(3, VoteRequest)) > 3, "the removed node has campaigned"


def test_4_3_single_node_cluster_elects_itself_and_adds_members() -> None:
    lab = Lab([1], outsiders=[2])
    lab.elect(1)
    lab.change(1, AddLearner(2, directory(2)))
    lab.settle()
    lab.change(1, PromoteLearner(2))
    lab.settle()
    lab.propose(1, b"a")
    lab.settle()
    assert lab.commands(2) == [b"a"]
    assert lab[2].membership.voters == (1, 2)


# --------------------------------------------------------------------------------------------- data directory identity


def test_first_leader_binds_its_voters_to_their_directories() -> None:
    lab = Lab(is_bound=False)
    lab.isolate(3)
    lab.elect(1)
    assert [member.directory_id for member in lab[2].membership.members] == [
        directory(1),
        directory(2),
        UNBOUND_DIRECTORY,
    ]
    lab.heal()
    for _ in range(3):
        lab.tick(1, 2)
        lab.settle()
    assert [member.directory_id for member in lab[3].membership.members] == [directory(1), directory(2), directory(3)]


def test_unbound_voter_counts_towards_no_quorum() -> None:
    lab = Lab(is_bound=False, outsiders=[4])
    lab.isolate(3)
    lab.elect(1)
    lab.isolate(2)
    lab.change(1, AddLearner(4, directory(4)))  # while this change is pending, no directory can be bound
    ack = lab.message(AppendAck, 3, 1, term=1, match_index=lab[1].last_index)
    lab.receive(ack)
    assert lab[1].match_indexes()[3] == lab[1].last_index
    assert lab[1].commit == lab[1].last_index - 1
    context = lab.read(1)
    lab.receive(lab.message(HeartbeatAck, 3, 1, term=1, round=1))
    assert lab.outcome(1, context) is None


def test_messages_from_other_directory_count_towards_no_quorum() -> None:
    lab = Lab()
    lab.elect(1)
    lab.isolate(1)
    lab.propose(1, b"a")
    context = lab.read(1)
    other_disk = {"term": 1, "source_directory": directory(2, 1)}
    lab.receive(lab.message(AppendAck, 2, 1, match_index=lab[1].last_index, **other_disk))
    lab.receive(lab.message(HeartbeatAck, 2, 1, round=1, **other_disk))
    assert lab[1].commit == lab[1].last_index - 1
    assert lab.outcome(1, context) is None


def test_vote_from_other_directory_does_not_count() -> None:
    lab = Lab()
    lab.campaign(1)
    lab.receive(lab.message(VoteAck, 2, 1, term=0, is_pre_vote=True, is_granted=True))
    assert lab.role(1) is Role.CANDIDATE
    vote = {"term": 1, "is_pre_vote": False, "is_granted": True}
    lab.receive(lab.message(VoteAck, 2, 1, source_directory=directory(2, 1), **vote))
    assert lab.role(1) is Role.CANDIDATE
    lab.receive(lab.message(VoteAck, 2, 1, **vote))
    assert lab.role(1) is Role.LEADER


def test_node_with_empty_disk_neither_votes_nor_leads() -> None:
    lab = Lab(is_bound=False)
    lab.elect(1)
    lab.tick(1, 2)
    lab.settle()
    lab.isolate(2)
    lab.propose(1, b"kept by 1 and 3")
    lab.settle()
    lab.wipe(3)
    lab.crash(1)
    lab.heal()
    for _ in range(100):
        for node_id in (2, 3):
            lab.tick(node_id)
        lab.settle()
    assert lab.leader() is None
    lab.restart(1)
    for _ in range(40):
        for node_id in (1, 2, 3):
            lab.tick(node_id)
        lab.settle()
    assert lab.leader() == 1
    assert lab.commands(2) == [b"kept by 1 and 3"]
    assert lab.commands(3) == []


def test_node_with_empty_disk_returns_as_learner() -> None:
    lab = Lab(is_bound=False)
    lab.elect(1)
    for _ in range(2):
        lab.tick(1, 2)
        lab.settle()
    lab.propose(1, b"a")
    lab.settle()
    lab.wipe(3)
    lab.tick(1, 2)
    lab.settle()
    assert lab.commands(3) == []
    assert isinstance(lab.change(1, AddLearner(3, directory(3, 1))), RequestAccepted)
    lab.settle()
    assert lab[1].membership.voters == (1, 2)
    assert lab.commands(3) == [b"a"]
    assert isinstance(lab.change(1, PromoteLearner(3)), RequestAccepted)
    lab.settle()
    lab.transfer(1, 3)
    lab.settle()
    assert lab.leader() == 3


def test_candidate_on_other_directory_needs_newer_membership() -> None:
    for membership_index, is_granted in ((0, False), (7, True)):
        lab = Lab()
        fields = {"last_index": 9, "last_term": 1, "is_pre_vote": False, "is_leadership_transfer": False}
        request = lab.message(
            VoteRequest,
            3,
            1,
            term=2,
            source_directory=directory(3, 1),
            membership_index=membership_index,
            **fields,
        )
        (answer,) = lab.receive(request)
        assert answer.is_granted is is_granted  # type: ignore[union-attr]


def test_voter_without_newest_membership_still_votes_for_replaced_node() -> None:
    lab = Lab()
    lab.elect(1)
    lab.isolate(2)
    lab.wipe(3)
    lab.heal()
    lab.isolate(3)
    lab.change(1, AddLearner(3, directory(3, 1)))
    lab.settle()
    lab.heal()
    lab.tick(1, 2)
    lab.settle()
    lab.isolate(2)
    lab.change(1, PromoteLearner(3))
    lab.settle()
    lab.crash(1)
    lab.heal()
    lab.elect(3)
    assert lab[2].membership.voters == (1, 2, 3)


# ------------------------------------------------------------------------------------------------------ §6.2 to §6.4


def test_6_2_leader_without_active_majority_steps_down() -> None:
    lab = Lab()
    lab.elect(1)
    lab.isolate(1)
    lab.tick(1, 2 * lab.config.election_ticks)
    assert (lab.role(1), lab[1].status.term, lab[1].status.leader) == (Role.FOLLOWER, 1, -1)


def test_6_2_learners_do_not_count_for_check_quorum() -> None:
    lab = Lab((1, 2, 3), learners=[4, 5])
    lab.elect(1)
    for node_id in (2, 3):
        lab.cut_link(1, node_id)
    for _ in range(2 * lab.config.election_ticks):
        lab.tick(1)
        lab.settle()
    assert lab.role(1) is Role.FOLLOWER


def test_6_4_read_is_confirmed_by_heartbeats_without_log_write() -> None:
    lab = Lab()
    lab.elect(1)
    last = lab[1].last_index
    context = lab.read(1)
    assert lab.outcome(1, context) is None
    lab.settle()
    assert lab.outcome(1, context) == ReadIndexConfirmed(context, last)
    assert lab[1].last_index == last


def test_6_4_concurrent_reads_share_round() -> None:
    lab = Lab()
    lab.elect(1)
    before = len(lab.sent_by(1, Heartbeat))
    contexts = [lab.read(1) for _ in range(50)]
    lab.settle()
    assert all(isinstance(lab.outcome(1, context), ReadIndexConfirmed) for context in contexts)
    assert len(lab.sent_by(1, Heartbeat)) - before == 2 * 2, "one round for the first read, one for all others"


def test_6_4_response_to_earlier_heartbeat_confirms_nothing() -> None:
    lab = Lab()
    lab.elect(1)
    lab.tick(1, 2)
    early = lab.messages_in_flight.copy()
    lab.messages_in_flight.clear()
    lab.isolate(1)
    context = lab.read(1)
    lab.settle()
    for heartbeat in early:
        for answer in lab.receive(heartbeat):
            lab.receive(answer)
    assert lab.outcome(1, context) is None


def test_6_4_read_completes_when_silent_voter_is_removed() -> None:
    """The leader alone is a majority after the removal, although no further response arrives."""
    lab = Lab([1, 2])
    lab.elect(1)
    lab.crash(2)
    waiting, gathering = lab.read(1), lab.read(1)
    assert lab.outcome(1, waiting) is None
    assert isinstance(lab.change(1, RemoveMember(2)), RequestAccepted)
    assert isinstance(lab.outcome(1, waiting), ReadIndexConfirmed)
    assert isinstance(lab.outcome(1, gathering), ReadIndexConfirmed)


def test_6_4_reads_queued_behind_unanswered_request_time_out() -> None:
    lab = Lab()
    lab.elect(1)
    lab.cut_links.add((3, 1))  # the follower receives heartbeats, but its messages are lost
    asked, gathering = lab.read(3), lab.read(3)
    for _ in range(lab.config.forwarded_read_ticks + 1):
        assert lab.outcome(3, gathering) is None
        lab.tick(1)
        lab.tick(3)
        lab.settle()
    assert lab[3].status.leader == 1
    assert isinstance(lab.outcome(3, asked), RequestRejected)
    assert isinstance(lab.outcome(3, gathering), RequestRejected)


def test_6_4_follower_forwards_read_to_leader() -> None:
    lab = Lab()
    lab.elect(1)
    lab.propose(1, b"a")
    lab.settle()
    context = lab.read(3)
    lab.settle()
    assert lab.outcome(3, context) == ReadIndexConfirmed(context, lab[1].commit)


def test_6_4_forwarded_read_without_response_times_out() -> None:
    lab = Lab()
    lab.elect(1)
    lab.isolate(3)
    context = lab.read(3)
    lab.settle()
    lab.tick(3, lab.config.forwarded_read_ticks)
    assert isinstance(lab.outcome(3, context), RequestRejected)


def test_6_4_read_does_not_wait_for_previous_slow_round() -> None:
    """With high latency, each read takes one round trip, because the next round starts with the next tick."""
    lab = Lab()
    lab.elect(1)
    first = lab.read(1)
    slow = lab.messages_in_flight.copy()
    lab.messages_in_flight.clear()
    second = lab.read(1)
    assert not lab.messages_in_flight, "reads within a tick share the next round"
    lab.tick(1)
    rounds = {message.round for message in lab.messages_in_flight if isinstance(message, Heartbeat)}
    assert max(rounds) == max(message.round for message in slow if isinstance(message, Heartbeat)) + 1
    lab.settle()
    assert isinstance(lab.outcome(1, second), ReadIndexConfirmed)
    assert isinstance(lab.outcome(1, first), ReadIndexConfirmed), "a later round confirms all earlier ones"


def test_6_4_forwarded_read_does_not_wait_for_previous_request() -> None:
    lab = Lab()
    lab.elect(1)
    first = lab.read(3)
    slow = lab.messages_in_flight.copy()
    lab.messages_in_flight.clear()
    second = lab.read(3)
    lab.tick(3)
    lab.settle()
    assert isinstance(lab.outcome(3, second), ReadIndexConfirmed)
    assert lab.outcome(3, first) is None, "each request has its own number"
    lab.messages_in_flight.extend(slow)
    lab.settle()
    assert isinstance(lab.outcome(3, first), ReadIndexConfirmed)


def test_6_4_forwarded_reads_fail_when_leader_is_unreachable() -> None:
    lab = Lab()
    lab.elect(1)
    lab.isolate(3)
    context = lab.read(3)
    lab.handle(3, PeerUnreachable(1))
    assert isinstance(lab.outcome(3, context), RequestRejected)


def test_6_4_response_from_before_restart_confirms_no_read() -> None:
    lab = Lab()
    lab.elect(1)
    lab.read(3)
    lab.settle()
    (late,) = lab.sent_by(1, ReadAck)
    lab.crash(3)
    lab.restart(3)
    lab.tick(1, 2)
    lab.settle()
    lab.hosts[3].node._core.random.seed(99)
    lab.hosts[3].node._core.forwarded_reads.request += 1_000_003  # the lab uses the same seed for every restart
    lab.isolate(3)
    context = lab.read(3)
    lab.settle()
    lab.receive(late)
    assert lab.outcome(3, context) is None


# ------------------------------------------------------------------------------------------------------------- §9.6


def test_9_6_partitioned_node_does_not_increment_term() -> None:
    lab = Lab()
    lab.elect(1)
    lab.isolate(3)
    for _ in range(20):
        lab.tick(3, 20)
        lab.settle()
    assert lab[3].status.term == 1
    lab.heal()
    lab.tick(1, 2)
    lab.settle()
    assert (lab.leader(), lab[1].status.term) == (1, 1)


def test_9_6_pre_vote_does_not_change_voter_state() -> None:
    lab = Lab()
    fields = {
        "last_index": 0,
        "last_term": 0,
        "membership_index": 0,
        "is_pre_vote": True,
        "is_leadership_transfer": False,
    }
    for candidate in (2, 3):
        (answer,) = lab.receive(lab.message(VoteRequest, candidate, 1, term=0, **fields))
        assert answer.is_granted  # type: ignore[union-attr]
    assert (lab[1].vote, lab[1].status.term) == (-1, 0)


# ------------------------------------------------------------------------------------------------- §10.2 and limits


def test_10_2_appends_are_pipelined_within_window() -> None:
    lab = Lab(config=RaftConfig(inflight_messages_max=3))
    lab.elect(1)
    lab.messages_in_flight.clear()
    before = len(lab.sent_by(1, Append))
    for number in range(10):
        lab.propose(1, b"%d" % number)
    assert len(lab.sent_by(1, Append)) - before == 3 * 2
    lab.settle()
    assert lab.commands(3) == [b"%d" % number for number in range(10)]


def test_10_2_bytes_sent_to_silent_peer_are_limited() -> None:
    lab = Lab(config=RaftConfig(inflight_bytes_max=1000, append_bytes_max=100))
    lab.elect(1)
    lab.messages_in_flight.clear()
    before = len(lab.sent_by(1, Append))
    for _ in range(100):
        lab.propose(1, bytes(100))
    assert len(lab.sent_by(1, Append)) - before <= 2 * 9


def test_lost_append_is_resent_after_heartbeat() -> None:
    lab = Lab()
    lab.elect(1)
    lab.propose(1, b"a")
    lab.messages_in_flight.clear()
    lab.tick(1, 2)
    lab.settle()
    assert [lab.commands(node_id) for node_id in (1, 2, 3)] == [[b"a"]] * 3


def test_proposals_beyond_uncommitted_limit_are_rejected() -> None:
    lab = Lab(config=RaftConfig(uncommitted_bytes_max=2000, entry_bytes_max=1500))
    lab.elect(1)
    lab.isolate(1)
    outcomes = [refusal(lab.propose(1, bytes(500))) for _ in range(6)]
    assert outcomes == [
        None,
        None,
        None,
        RejectionReason.OVERLOADED,
        RejectionReason.OVERLOADED,
        RejectionReason.OVERLOADED,
    ]
    lab.heal()
    for _ in range(3):
        lab.tick(1, 2)
        lab.settle()
    assert refusal(lab.propose(1, bytes(500))) is None


def test_proposals_are_rejected_while_leaders_disk_is_slow() -> None:
    lab = Lab(config=RaftConfig(uncommitted_bytes_max=2000, entry_bytes_max=1500))
    lab.elect(1)
    lab.hold_disk(1)
    for _ in range(3):
        assert refusal(lab.propose(1, bytes(500))) is None
        lab.settle()
    assert lab[1].commit == lab[1].last_index
    assert refusal(lab.propose(1, bytes(500))) is RejectionReason.OVERLOADED
    lab.release_disk(1)
    assert refusal(lab.propose(1, bytes(500))) is None


def test_entry_larger_than_maximum_is_rejected() -> None:
    lab = Lab(config=RaftConfig(entry_bytes_max=1500))
    lab.elect(1)
    assert refusal(lab.propose(1, bytes(1500))) is None
    assert refusal(lab.propose(1, bytes(1501))) is RejectionReason.TOO_LARGE


def test_follower_rejects_proposal_with_leader_hint() -> None:
    lab = Lab()
    lab.elect(2)
    outcome = lab.propose(1, b"a")
    assert isinstance(outcome, RequestRejected)
    assert (outcome.reason, outcome.leader) == (RejectionReason.NOT_LEADER, 2)


def test_follower_with_slow_disk_still_answers_heartbeats() -> None:
    lab = Lab()
    lab.elect(1)
    lab.hold_disk(2)
    lab.crash(3)
    lab.propose(1, b"a")
    for _ in range(5 * lab.config.election_ticks):
        lab.tick(1)
        lab.settle()
    assert lab.leader() == 1
    lab.release_disk(2)
    lab.settle()
    assert lab.commands(1) == [b"a"]


def test_entries_during_outstanding_write_are_batched() -> None:
    lab = Lab()
    lab.elect(1)
    lab.hold_disk(1)
    for number in range(10):
        lab.propose(1, b"%d" % number)
    first = lab.hosts[1].writing
    assert first is not None
    assert len(first.entries) == 1
    lab.sync(1)
    second = lab.hosts[1].writing
    assert second is not None
    assert len(second.entries) == 9


def test_ack_beyond_log_raises_invariant_error() -> None:
    lab = Lab()
    lab.elect(1)
    with pytest.raises(InvariantError, match="never sent"):
        lab.receive(lab.message(AppendAck, 2, 1, term=1, match_index=99))
