"""Nodes on empty disks found a cluster together, unless one of them has heard that there is one."""

from __future__ import annotations

from chronik.ids import new_id
from chronik.node.founding import FOUNDING_PATIENCE_SECONDS, Founding, Gate, is_founding_word
from chronik.raft.membership import UNBOUND
from chronik.raft.messages import AnyMessage, Heartbeat, VoteAck, VoteRequest

BEGAN = 100.0
LATE = BEGAN + FOUNDING_PATIENCE_SECONDS


def founding(nodes: int = 3, voters: int | None = None) -> Founding:
    return Founding(1, range(1, nodes + 1), range(1, (voters or nodes) + 1), BEGAN)


def vote_request(target_directory: bytes) -> VoteRequest:
    return VoteRequest(
        source=1,
        source_directory=new_id(),
        target=2,
        target_directory=target_directory,
        term=1,
        last_index=0,
        last_term=0,
        membership_index=0,
        is_pre_vote=True,
        is_hand_over=False,
    )


def test_with_everybodys_word_nobody_waits() -> None:
    rule = founding()
    assert not rule.is_allowed(BEGAN)
    rule.answered(2, knows_cluster=False)
    assert not rule.is_allowed(BEGAN)
    rule.answered(3, knows_cluster=False)
    assert rule.is_allowed(BEGAN)
    assert rule.silent == []


def test_a_majority_goes_ahead_when_the_others_had_their_time() -> None:
    rule = founding()
    rule.answered(2, knows_cluster=False)
    assert not rule.is_allowed(LATE - 0.01)
    assert rule.is_allowed(LATE)
    assert rule.silent == [3]


def test_a_minority_never_does() -> None:
    assert not founding().is_allowed(LATE + 3600)
    rule = founding(nodes=4)
    rule.answered(2, knows_cluster=False)
    assert not rule.is_allowed(LATE + 3600)


def test_it_takes_a_majority_of_those_who_vote_and_the_word_of_all_or_the_time_of_all() -> None:
    rule = founding(nodes=5, voters=3)
    rule.answered(4, knows_cluster=False)
    rule.answered(5, knows_cluster=False)
    assert not rule.is_allowed(LATE), "observers elect nobody"
    rule.answered(2, knows_cluster=False)
    assert not rule.is_allowed(BEGAN)
    assert rule.is_allowed(LATE)
    rule.answered(5, knows_cluster=True)
    assert not rule.is_allowed(LATE), "one who follows knows as well as one who votes"


def test_who_has_heard_of_a_cluster_founds_none_whatever_others_say_later() -> None:
    rule = founding()
    rule.answered(2, knows_cluster=False)
    rule.answered(3, knows_cluster=False)
    assert rule.is_allowed(BEGAN)
    rule.answered(3, knows_cluster=True)
    assert not rule.is_allowed(LATE)
    rule.answered(3, knows_cluster=False)
    assert not rule.is_allowed(LATE)


def test_only_votes_asked_of_unknown_disks_are_founding_words() -> None:
    known = new_id()
    common = {"source": 1, "source_directory": known, "target": 2, "term": 1}
    assert is_founding_word(vote_request(UNBOUND))
    assert not is_founding_word(vote_request(known))
    answer = VoteAck(target_directory=UNBOUND, is_pre_vote=False, is_granted=True, **common)  # type: ignore[arg-type]
    heartbeat = Heartbeat(target_directory=UNBOUND, commit=0, round=0, **common)  # type: ignore[arg-type]
    assert not is_founding_word(answer)
    assert not is_founding_word(heartbeat)


def test_founding_words_pass_only_an_open_gate_and_everything_else_passes_always() -> None:
    gate = Gate()
    founding_word, vote = vote_request(UNBOUND), vote_request(new_id())
    messages: list[AnyMessage] = [founding_word, vote]
    assert list(filter(gate.passes, messages)) == [vote]
    gate.may_found = True
    assert list(filter(gate.passes, messages)) == messages
