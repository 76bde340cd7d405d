"""Bootstrap of a cluster: nodes with empty disks do it together, unless one of them knows an existing cluster."""

from __future__ import annotations

from chronik.ids import generate_id
from chronik.node.membership_job import BOOTSTRAP_WAIT_SECONDS, BootstrapGate, ClusterBootstrap, is_bootstrap_vote
from chronik.raft.membership import UNBOUND_DIRECTORY
from chronik.raft.messages import AnyRaftMessage, Heartbeat, VoteAck, VoteRequest

STARTED_AT = 100.0
LATE = STARTED_AT + BOOTSTRAP_WAIT_SECONDS


def bootstrap(nodes: int = 3, voters: int | None = None) -> ClusterBootstrap:
    return ClusterBootstrap(1, range(1, nodes + 1), range(1, (voters or nodes) + 1), STARTED_AT)


def vote_request(target_directory: bytes) -> VoteRequest:
    return VoteRequest(
        source=1,
        source_directory=generate_id(),
        target=2,
        target_directory=target_directory,
        term=1,
        last_index=0,
        last_term=0,
        membership_index=0,
        is_pre_vote=True,
        is_leadership_transfer=False,
    )


def test_bootstrap_is_immediate_when_all_peers_respond() -> None:
    rule = bootstrap()
    assert not rule.may_bootstrap(STARTED_AT)
    rule.record_response(2, knows_cluster=False)
    assert not rule.may_bootstrap(STARTED_AT)
    rule.record_response(3, knows_cluster=False)
    assert rule.may_bootstrap(STARTED_AT)
    assert rule.missing_nodes == []


def test_majority_bootstraps_after_waiting_for_missing_peers() -> None:
    rule = bootstrap()
    rule.record_response(2, knows_cluster=False)
    assert not rule.may_bootstrap(LATE - 0.01)
    assert rule.may_bootstrap(LATE)
    assert rule.missing_nodes == [3]


def test_minority_never_bootstraps() -> None:
    assert not bootstrap().may_bootstrap(LATE + 3600)
    rule = bootstrap(nodes=4)
    rule.record_response(2, knows_cluster=False)
    assert not rule.may_bootstrap(LATE + 3600)


def test_bootstrap_requires_majority_of_voters() -> None:
    rule = bootstrap(nodes=5, voters=3)
    rule.record_response(4, knows_cluster=False)
    rule.record_response(5, knows_cluster=False)
    assert not rule.may_bootstrap(LATE), "learners elect no leader"
    rule.record_response(2, knows_cluster=False)
    assert not rule.may_bootstrap(STARTED_AT)
    assert rule.may_bootstrap(LATE)
    rule.record_response(5, knows_cluster=True)
    assert not rule.may_bootstrap(LATE), "a learner that knows a cluster counts like a voter"


def test_known_cluster_forbids_bootstrap_permanently() -> None:
    rule = bootstrap()
    rule.record_response(2, knows_cluster=False)
    rule.record_response(3, knows_cluster=False)
    assert rule.may_bootstrap(STARTED_AT)
    rule.record_response(3, knows_cluster=True)
    assert not rule.may_bootstrap(LATE)
    rule.record_response(3, knows_cluster=False)
    assert not rule.may_bootstrap(LATE)


def test_only_vote_requests_to_unknown_disks_are_bootstrap_votes() -> None:
    known = generate_id()
    common = {"source": 1, "source_directory": known, "target": 2, "term": 1}
    assert is_bootstrap_vote(vote_request(UNBOUND_DIRECTORY))
    assert not is_bootstrap_vote(vote_request(known))
    answer = VoteAck(target_directory=UNBOUND_DIRECTORY, is_pre_vote=False, is_granted=True, **common)  # type: ignore[arg-type]
    heartbeat = Heartbeat(target_directory=UNBOUND_DIRECTORY, commit=0, round=0, **common)  # type: ignore[arg-type]
    assert not is_bootstrap_vote(answer)
    assert not is_bootstrap_vote(heartbeat)


def test_closed_gate_drops_only_bootstrap_votes() -> None:
    gate = BootstrapGate()
    bootstrap_vote, vote = vote_request(UNBOUND_DIRECTORY), vote_request(generate_id())
    messages: list[AnyRaftMessage] = [bootstrap_vote, vote]
    assert list(filter(gate.allows_message, messages)) == [vote]
    gate.is_open = True
    assert list(filter(gate.allows_message, messages)) == messages
