"""Tests for the statements of the Raft paper (extended version), named after its sections."""

from __future__ import annotations

from typing import Any

import pytest

from chronik.errors import InvariantError
from chronik.raft.config import RaftConfig
from chronik.raft.entries import EntryKind, RaftEntry
from chronik.raft.events import ReadIndexConfirmed, RejectionReason, RequestAccepted, RequestRejected
from chronik.raft.messages import (
    Append,
    AppendAck,
    Heartbeat,
    HeartbeatAck,
    SnapshotChunk,
    TimeoutNow,
    VoteAck,
    VoteRequest,
)
from chronik.raft.roles import Role
from tests.raft.lab import Lab

NOOP = EntryKind.NOOP
COMMAND = EntryKind.COMMAND


def vote_request(lab: Lab, source: int, target: int, term: int, **fields: Any) -> VoteRequest:
    defaults = {
        "last_index": 0,
        "last_term": 0,
        "membership_index": 0,
        "is_pre_vote": False,
        "is_leadership_transfer": False,
    }
    return lab.message(VoteRequest, source, target, term=term, **{**defaults, **fields})


def append(lab: Lab, source: int, target: int, term: int, *entries: RaftEntry, **fields: Any) -> Append:
    defaults = {"previous_index": 0, "previous_term": 0, "commit": 0}
    return lab.message(Append, source, target, term=term, entries=entries, **{**defaults, **fields})


def entry(index: int, term: int, data: bytes = b"x") -> RaftEntry:
    return RaftEntry(index, term, COMMAND, data)


# ------------------------------------------------------------------------------------------------------------- §5.1


@pytest.mark.parametrize("role", [Role.FOLLOWER, Role.CANDIDATE, Role.LEADER])
def test_5_1_node_becomes_follower_on_higher_term(role: Role) -> None:
    lab = Lab()
    if role is Role.LEADER:
        lab.elect(1)
    elif role is Role.CANDIDATE:
        lab.campaign(1)
        lab.receive(lab.message(VoteAck, 2, 1, term=0, is_pre_vote=True, is_granted=True))
    assert lab.role(1) is role
    lab.receive(lab.message(AppendAck, 2, 1, term=9, match_index=0))
    assert (lab.role(1), lab[1].status.term) == (Role.FOLLOWER, 9)
    assert lab.hosts[1].disk.hard_state.term == 9


def test_5_1_append_of_older_term_is_answered_with_current_term() -> None:
    lab = Lab()
    lab.elect(1)
    lab.elect(2)
    before = (lab[1].status, lab[1].last_index)
    answers = lab.receive(append(lab, 3, 1, 1, entry(1, 1, b"old")))
    assert (lab[1].status, lab[1].last_index) == before
    assert [(type(answer), answer.term) for answer in answers] == [(HeartbeatAck, 2)]


def test_5_1_candidate_of_older_term_is_denied_with_current_term() -> None:
    lab = Lab()
    lab.seed_log(1, [], term=5)
    (answer,) = lab.receive(vote_request(lab, 2, 1, 3))
    assert isinstance(answer, VoteAck)
    assert (answer.is_granted, answer.term) == (False, 5)


# ------------------------------------------------------------------------------------------------------------- §5.2


def test_5_2_nodes_remain_followers_while_leader_is_active() -> None:
    lab = Lab()
    assert {lab.role(node_id) for node_id in (1, 2, 3)} == {Role.FOLLOWER}
    lab.elect(1)
    for _ in range(50):
        for node_id in (1, 2, 3):
            lab.tick(node_id)
        lab.settle()
    assert (lab.leader(), lab[1].status.term) == (1, 1)


def test_5_2_follower_campaigns_after_election_timeout() -> None:
    lab = Lab()
    longest = lab.config.election_ticks + lab.config.election_spread_ticks
    lab.tick(2, lab.config.election_ticks - 1)
    assert lab.role(2) is Role.FOLLOWER
    lab.tick(2, longest - lab.config.election_ticks + 1)
    assert lab.role(2) is Role.PRE_CANDIDATE


def test_5_2_leader_sends_heartbeats_at_interval() -> None:
    lab = Lab()
    lab.elect(1)
    before = len(lab.sent_by(1, Heartbeat))
    lab.tick(1, lab.config.heartbeat_ticks * 3)
    assert len(lab.sent_by(1, Heartbeat)) - before == 3 * 2


@pytest.mark.parametrize(
    ("voters", "granting", "is_elected"),
    [(1, 0, True), (3, 0, False), (3, 1, True), (5, 1, False), (5, 2, True), (7, 2, False), (7, 3, True)],
)
def test_5_2_candidate_with_majority_of_votes_becomes_leader(voters: int, granting: int, is_elected: bool) -> None:
    lab = Lab(range(1, voters + 1))
    for node_id in range(2 + granting, voters + 1):
        lab.cut_link(1, node_id)
    lab.campaign(1)
    lab.settle()
    assert (lab.role(1) is Role.LEADER) is is_elected


def test_5_2_node_votes_once_per_term() -> None:
    lab = Lab()
    (first,) = lab.receive(vote_request(lab, 2, 1, 1))
    (second,) = lab.receive(vote_request(lab, 3, 1, 1))
    (again,) = lab.receive(vote_request(lab, 2, 1, 1))
    assert [answer.is_granted for answer in (first, second, again) if isinstance(answer, VoteAck)] == [
        True,
        False,
        True,
    ]


def test_5_2_vote_survives_crash() -> None:
    lab = Lab()
    lab.receive(vote_request(lab, 2, 1, 1))
    lab.crash(1)
    lab.restart(1)
    (answer,) = lab.receive(vote_request(lab, 3, 1, 1))
    assert isinstance(answer, VoteAck)
    assert not answer.is_granted


def test_5_2_vote_in_already_known_term_survives_crash() -> None:
    lab = Lab()
    lab.seed_log(1, [], term=1)
    lab.receive(vote_request(lab, 2, 1, 1))
    assert lab.hosts[1].disk.hard_state.vote == 2
    lab.crash(1)
    lab.restart(1)
    (answer,) = lab.receive(vote_request(lab, 3, 1, 1))
    assert isinstance(answer, VoteAck)
    assert not answer.is_granted


def test_5_2_candidate_counts_own_vote_only_when_durable() -> None:
    lab = Lab([1], learners=[2])
    lab.elect(1)
    lab.propose(1, b"a")
    lab.crash(1)
    lab.restart(1)
    lab.hold_disk(1)
    lab.take_snapshot(1)
    lab.campaign(1)
    lab.sync(1)  # completes the compaction
    assert lab.role(1) is Role.CANDIDATE
    lab.sync(1)
    assert lab.role(1) is Role.LEADER
    assert lab.hosts[1].disk.hard_state.vote == 1


def test_5_2_vote_is_sent_only_when_durable() -> None:
    lab = Lab()
    lab.hold_disk(1)
    assert lab.receive(vote_request(lab, 2, 1, 1)) == []
    lab.release_disk(1)
    assert [message.is_granted for message in lab.sent_by(1, VoteAck)] == [True]


def test_5_2_candidate_follows_leader_of_same_term() -> None:
    lab = Lab()
    lab.campaign(1)
    lab.receive(lab.message(VoteAck, 2, 1, term=0, is_pre_vote=True, is_granted=True))
    assert (lab.role(1), lab[1].status.term) == (Role.CANDIDATE, 1)
    lab.receive(append(lab, 3, 1, 1))
    assert (lab.role(1), lab[1].status.leader) == (Role.FOLLOWER, 3)


def test_5_2_two_leaders_in_same_term_raise_invariant_error() -> None:
    lab = Lab()
    lab.elect(1)
    with pytest.raises(InvariantError, match="both lead term"):
        lab.receive(append(lab, 2, 1, 1))


def test_5_2_split_vote_is_resolved_by_randomized_timeouts() -> None:
    lab = Lab()
    timeouts = set()
    for _ in range(20):
        timeouts.add(lab[1]._core.election_timeout_ticks)
        lab[1]._core.restart_election_timer()
    first = lab.config.election_ticks
    assert timeouts == set(range(first, first + lab.config.election_spread_ticks))


# ------------------------------------------------------------------------------------------------------------- §5.3


def test_5_3_entry_on_majority_is_committed_and_applied_by_all_nodes() -> None:
    lab = Lab()
    lab.elect(1)
    accepted = lab.propose(1, b"a")
    assert isinstance(accepted, RequestAccepted)
    assert lab[1].commit == accepted.first_index - 1
    lab.settle()
    assert [lab.commands(node_id) for node_id in (1, 2, 3)] == [[b"a"]] * 3


def test_5_3_leader_without_majority_commits_nothing() -> None:
    lab = Lab(range(1, 6))
    lab.elect(1)
    for node_id in (3, 4, 5):
        lab.cut_link(1, node_id)
    commit = lab[1].commit
    lab.propose(1, b"a")
    lab.settle()
    assert lab[1].match_indexes()[2] == lab[1].last_index
    assert lab[1].commit == commit


def test_5_3_leader_counts_itself_only_for_durable_entries() -> None:
    lab = Lab()
    lab.elect(1)
    lab.isolate(3)
    lab.hold_disk(1)
    lab.propose(1, b"a")
    lab.settle()
    assert lab[1].match_indexes()[2] == lab[1].last_index, "entries are sent while the leader's own disk writes them"
    assert lab[1].commit == lab[1].last_index - 1
    lab.release_disk(1)
    assert lab[1].commit == lab[1].last_index


def test_5_3_majority_without_leaders_disk_commits() -> None:
    lab = Lab()
    lab.elect(1)
    lab.hold_disk(1)
    lab.propose(1, b"a")
    lab.settle()
    assert lab[1].commit == lab[1].last_index
    assert lab.commands(1) == [], "the leader applies only entries that are on its own disk"
    lab.release_disk(1)
    assert lab.commands(1) == [b"a"]


def test_5_3_append_ack_is_sent_only_when_entries_are_durable() -> None:
    lab = Lab()
    lab.hold_disk(2)
    assert lab.receive(append(lab, 1, 2, 1, entry(1, 1))) == []
    lab.release_disk(2)
    assert [ack.match_index for ack in lab.sent_by(2, AppendAck)] == [1]
    assert lab.log(2) == [(1, 1)]
    lab.hold_disk(2)
    assert lab.receive(append(lab, 1, 2, 1, entry(2, 1), previous_index=1, previous_term=1)) == []
    lab.release_disk(2)
    assert [ack.match_index for ack in lab.sent_by(2, AppendAck)] == [1, 2]


def test_5_3_held_back_append_ack_is_dropped_on_term_change() -> None:
    lab = Lab()
    lab.hold_disk(2)
    lab.receive(append(lab, 1, 2, 1, entry(1, 1, b"a")))
    lab.receive(append(lab, 1, 2, 1, entry(2, 1, b"b"), previous_index=1, previous_term=1))
    lab.receive(append(lab, 3, 2, 2, entry(1, 2, b"c")))
    lab.release_disk(2)
    acks = [(ack.target, ack.term, ack.match_index) for ack in lab.sent_by(2, AppendAck)]
    assert acks == [(3, 2, 1)], "node 1 must not count entries that were replaced before they were written"
    assert lab.log(2) == [(1, 2)]


def test_5_3_entries_after_unknown_previous_entry_are_rejected() -> None:
    lab = Lab()
    lab.seed_log(1, [1, 2])
    (answer,) = lab.receive(append(lab, 2, 1, 3, entry(4, 3), previous_index=3, previous_term=3))
    assert isinstance(answer, AppendAck)
    assert (answer.is_rejected, answer.hint_index, answer.hint_term) == (True, 2, 2)
    assert lab.log(1) == [(1, 1), (2, 2)]


@pytest.mark.parametrize(
    ("terms", "previous", "sent", "expected"),
    [
        ([1], (1, 1), [2], [1, 2]),
        ([1, 1, 1], (1, 1), [2], [1, 2]),
        ([1, 1, 1], (0, 0), [1, 2, 2], [1, 2, 2]),
        ([1, 2, 3], (0, 0), [1], [1, 2, 3]),
        ([1, 2, 3], (1, 1), [2, 3, 4], [1, 2, 3, 4]),
        ([1, 2, 3], (3, 3), [], [1, 2, 3]),
    ],
)
def test_5_3_conflicting_entries_are_replaced_and_matching_ones_kept(
    terms: list[int], previous: tuple[int, int], sent: list[int], expected: list[int]
) -> None:
    lab = Lab()
    lab.seed_log(1, terms)
    entries = [entry(previous[0] + 1 + number, term) for number, term in enumerate(sent)]
    lab.receive(append(lab, 2, 1, 4, *entries, previous_index=previous[0], previous_term=previous[1]))
    assert [term for _, term in lab.log(1)] == expected


def test_5_3_delayed_duplicate_append_does_not_truncate_log() -> None:
    lab = Lab()
    late = append(lab, 1, 2, 1, entry(1, 1))
    lab.receive(late)
    lab.receive(append(lab, 1, 2, 1, entry(2, 1), previous_index=1, previous_term=1))
    lab.receive(late)
    assert lab.log(2) == [(1, 1), (2, 1)]


def test_5_3_follower_commits_only_entries_matched_with_leader() -> None:
    lab = Lab()
    lab.seed_log(1, [1, 1, 1])
    lab.receive(append(lab, 2, 1, 2, commit=3, previous_index=1, previous_term=1))
    assert lab[1].commit == 1


def test_5_3_leader_makes_all_logs_match_its_own() -> None:
    """Figure 7: missing entries, extraneous entries, and both."""
    leader = [1, 1, 1, 4, 4, 5, 5, 6, 6, 6]
    followers = [
        leader[:9],
        leader[:4],
        [*leader, 6],
        [*leader, 7, 7],
        [1, 1, 1, 4, 4, 4, 4],
        [1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3],
    ]
    for terms in followers:
        lab = Lab()
        lab.seed_log(1, leader, term=8)
        lab.seed_log(2, terms, term=7)
        lab.seed_log(3, leader[:4], term=6)
        lab.elect(1)
        assert lab.log(2) == lab.log(1)
        assert [term for _, term in lab.log(1)] == [*leader, 9]


def test_5_3_log_matching_skips_conflicts_by_term() -> None:
    lab = Lab((1, 2, 3))
    lab.seed_log(1, [1] + [3] * 50, term=3)
    lab.seed_log(2, [1] + [2] * 50, term=2)
    lab.seed_log(3, [1] + [3] * 50, term=3)
    lab.elect(1)
    assert lab.log(2) == lab.log(1)
    assert len([ack for ack in lab.sent_by(2, AppendAck) if ack.is_rejected]) <= 2


def test_5_3_leader_never_truncates_its_own_entries() -> None:
    lab = Lab()
    lab.isolate(1)
    lab.seed_log(1, [1, 1], term=1)
    lab.heal()
    lab.elect(1)
    assert lab.log(1)[:2] == [(1, 1), (2, 1)]


# ------------------------------------------------------------------------------------------------------------- §5.4


@pytest.mark.parametrize(
    ("own", "candidate", "is_granted"),
    [
        ([1], (1, 1), True),
        ([1], (1, 2), True),
        ([1, 1], (1, 1), False),
        ([1], (2, 1), True),
        ([1, 1], (2, 1), True),
        ([2], (1, 5), False),
    ],
)
def test_5_4_1_candidate_with_outdated_log_gets_no_vote(
    own: list[int], candidate: tuple[int, int], is_granted: bool
) -> None:
    lab = Lab()
    lab.seed_log(1, own, term=3)
    (answer,) = lab.receive(vote_request(lab, 2, 1, 4, last_term=candidate[0], last_index=candidate[1]))
    assert isinstance(answer, VoteAck)
    assert answer.is_granted is is_granted


def test_5_4_1_longer_log_of_older_term_is_outdated() -> None:
    lab = Lab()
    lab.seed_log(1, [2], term=3)
    (answer,) = lab.receive(vote_request(lab, 2, 1, 4, last_term=1, last_index=5))
    assert isinstance(answer, VoteAck)
    assert not answer.is_granted


def test_5_4_2_entries_of_earlier_terms_need_commit_of_current_term() -> None:
    """Figure 8: entry 2 of term 2 is on a majority in term 4 and may still be replaced."""
    lab = Lab(range(1, 6))
    lab.seed_log(1, [1, 2], term=3)
    lab.seed_log(2, [1, 2], term=3)
    for node_id in (3, 4):
        lab.seed_log(node_id, [1], term=3)
    lab.seed_log(5, [1, 3], term=3)
    lab.isolate(5)
    lab.campaign(1)
    while lab.role(1) is not Role.LEADER:
        lab.deliver_one()
    lab.messages_in_flight.clear()  # the leader's first entry is lost
    for node_id in (2, 3):
        lab.receive(lab.message(AppendAck, node_id, 1, term=4, match_index=2))
    assert lab[1].match_indexes() == {2: 2, 3: 2, 4: 0, 5: 0}
    assert lab[1].commit == 0
    for node_id in (2, 3):
        lab.receive(lab.message(AppendAck, node_id, 1, term=4, match_index=3))
    assert lab[1].commit == 3


def test_5_4_3_new_leader_has_all_committed_entries() -> None:
    lab = Lab(range(1, 6))
    lab.elect(1)
    for node_id in (4, 5):
        lab.isolate(node_id)
    lab.propose(1, b"a")
    lab.settle()
    lab.crash(1)
    lab.heal()
    lab.campaign(5)
    for node_id in (2, 3, 4):
        lab._expire_lease(lab.hosts[node_id])
    lab.settle()
    assert lab.role(5) is not Role.LEADER
    lab.elect(3)
    assert b"a" in lab.commands(3)


# ---------------------------------------------------------------------------------------------------- §5.5, §5.6, §8


def test_5_5_restarted_follower_catches_up() -> None:
    lab = Lab()
    lab.elect(1)
    lab.crash(3)
    for number in range(30):
        lab.propose(1, b"%d" % number)
        lab.settle()
    lab.restart(3)
    lab.tick(1, 2)
    lab.settle()
    lab.tick(1, 2)
    lab.settle()
    assert lab.commands(3) == lab.commands(1)
    assert len(lab.commands(3)) == 30


def test_5_6_duplicate_message_counts_once() -> None:
    lab = Lab(range(1, 6))
    lab.elect(1)
    for node_id in (3, 4, 5):
        lab.cut_link(1, node_id)
    lab.propose(1, b"a")
    lab.settle()
    ack = lab.message(AppendAck, 2, 1, term=1, match_index=lab[1].last_index)
    for _ in range(3):
        lab.receive(ack)
    assert lab[1].commit == lab[1].last_index - 1


def test_8_new_leader_commits_noop_entry() -> None:
    lab = Lab()
    lab.seed_log(1, [1, 1], term=1)
    lab.elect(1)
    assert [(e.index, e.term, e.kind) for e in lab.hosts[1].disk.log][-1] == (3, 2, NOOP)
    assert lab[1].commit == 3


def test_8_read_waits_for_first_commit_of_term() -> None:
    lab = Lab()
    lab.seed_log(1, [1, 1], term=1)
    lab.isolate(3)
    lab.campaign(1)
    while lab.role(1) is not Role.LEADER:
        lab.deliver_one()
    context = lab.read(1)
    assert lab.outcome(1, context) is None
    lab.settle()
    assert lab.outcome(1, context) == ReadIndexConfirmed(context, 3)


def test_8_deposed_leader_confirms_no_read() -> None:
    lab = Lab()
    lab.elect(1)
    lab.isolate(1)
    lab.elect(2)
    lab.propose(2, b"new")
    lab.settle()
    context = lab.read(1)
    lab.settle()
    assert lab.role(1) is Role.LEADER
    assert lab.outcome(1, context) is None
    lab.heal()
    lab.tick(1, 2)
    lab.settle()
    assert lab.outcome(1, context) == RequestRejected(context, RejectionReason.NOT_LEADER, leader=-1)


# --------------------------------------------------------------------------------------------------------------- §6


def test_6_node_with_valid_lease_ignores_candidates() -> None:
    lab = Lab()
    lab.elect(1)
    for is_pre_vote in (True, False):
        request = vote_request(lab, 3, 2, 50, last_index=99, last_term=9, is_pre_vote=is_pre_vote)
        assert lab.receive(request) == []
    assert lab[2].status.term == 1
    lab.tick(2, lab.config.election_ticks)
    assert len(lab.receive(vote_request(lab, 3, 2, 50, last_index=99, last_term=9))) == 1


# --------------------------------------------------------------------------------------------------------------- §7


def test_7_follower_behind_compacted_log_receives_snapshot_in_chunks() -> None:
    lab = Lab(config=RaftConfig(snapshot_chunk_bytes=50))
    lab.elect(1)
    lab.crash(3)
    for number in range(30):
        lab.propose(1, b"%d" % number)
        lab.settle()
    lab.take_snapshot(1)
    assert lab[1].first_index > 30
    lab.restart(3)
    lab.tick(1, 2)
    lab.settle()
    assert lab.commands(3) == lab.commands(1)
    assert lab[3].snapshot == lab[1].snapshot
    assert lab.hosts[3].disk.compacted[0] == lab[1].snapshot.index
    assert len(lab.sent_by(1, SnapshotChunk)) > 2
    lab.propose(1, b"next")
    lab.settle()
    assert lab.commands(3)[-1] == b"next"


def test_7_snapshot_of_committed_entries_is_ignored() -> None:
    lab = Lab()
    lab.elect(1)
    for number in range(5):
        lab.propose(1, b"%d" % number)
    lab.settle()
    lab.take_snapshot(1)
    data = lab.hosts[1].disk.snapshot_data
    lab.propose(1, b"more")
    lab.settle()
    before = (lab.log(2), lab.commands(2))
    chunk = lab.message(SnapshotChunk, 1, 2, term=1, snapshot=lab[1].snapshot, offset=0, data=data)
    (answer,) = lab.receive(chunk)
    assert isinstance(answer, AppendAck)
    assert answer.match_index == lab[2].commit
    assert (lab.log(2), lab.commands(2)) == before


def test_7_damaged_snapshot_is_requested_again() -> None:
    lab = Lab()
    lab.elect(1)
    lab.crash(3)
    lab.propose(1, b"a")
    lab.settle()
    lab.take_snapshot(1)
    data = bytearray(lab.hosts[1].disk.snapshot_data)
    data[3] ^= 1
    lab.restart(3)
    chunk = lab.message(SnapshotChunk, 1, 3, term=1, snapshot=lab[1].snapshot, offset=0, data=bytes(data))
    (answer,) = lab.receive(chunk)
    assert (answer.next_offset, lab[3].commit) == (0, 0)  # type: ignore[union-attr]
    lab.tick(1, 2)
    lab.settle()
    assert lab.commands(3) == [b"a"]


def test_7_chunks_of_other_snapshot_wait_for_pending_install() -> None:
    lab = Lab()
    lab.elect(1)
    lab.crash(3)
    lab.propose(1, b"a")
    lab.settle()
    lab.take_snapshot(1)
    first, first_data = lab[1].snapshot, lab.hosts[1].disk.snapshot_data
    lab.propose(1, b"b")
    lab.settle()
    lab.take_snapshot(1)
    lab.restart(3)
    lab.hold_disk(3)
    lab.receive(lab.message(Heartbeat, 1, 3, term=1, commit=0, round=0))
    lab.receive(append(lab, 1, 3, 1, previous_index=9, previous_term=1))
    lab.tick(3, 30)  # a write is outstanding when the snapshots arrive
    lab.receive(vote_request(lab, 2, 3, 5, last_index=9, last_term=1))
    lab.receive(lab.message(SnapshotChunk, 1, 3, term=5, snapshot=first, offset=0, data=first_data))
    second = lab.message(
        SnapshotChunk, 1, 3, term=5, snapshot=lab[1].snapshot, offset=0, data=lab.hosts[1].disk.snapshot_data
    )
    lab.receive(second)
    lab.release_disk(3)
    assert lab.commands(3) == [b"a"]
    lab.receive(second)
    assert lab.commands(3) == [b"a", b"b"]


def test_7_unreachable_peer_does_not_delay_compaction() -> None:
    lab = Lab()
    lab.elect(1)
    lab.crash(3)
    for number in range(200):
        lab.propose(1, b"%d" % number)
        lab.settle()
        if number % 20 == 0:
            lab.take_snapshot(1)
    peer = lab[1]._core.peers[3]
    assert peer.is_paused or peer.next_index <= lab[1].first_index
    assert len(peer._window) <= lab.config.inflight_messages_max
    assert lab[1].last_index - lab[1].first_index < 25


def test_timeout_now_is_accepted_only_from_current_leader() -> None:
    lab = Lab()
    lab.elect(1)
    lab.receive(lab.message(TimeoutNow, 3, 2, term=1))
    assert lab.role(2) is Role.FOLLOWER
    lab.receive(lab.message(TimeoutNow, 1, 2, term=1))
    assert lab.role(2) is Role.CANDIDATE
