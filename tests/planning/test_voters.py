"""The choice of voters: three or five, spread over racks, without losing the majority."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronik.planning import voter_selection
from chronik.planning.views import PlannedNode, PlanRejectedError
from tests.planning.views import nodes as some_nodes_at_random
from tests.planning.views import some_nodes
from tests.run_size import sized


def voting_nodes(*voters: int, count: int, racks: str = "", away: tuple[int, ...] = ()) -> list[PlannedNode]:
    return [
        replace(node, is_voter=node.id in voters, should_vote=node.id in voters, is_online=node.id not in away)
        for node in some_nodes(count, racks)
    ]


@settings(max_examples=sized(50, 2000), deadline=None)
@given(some_nodes_at_random(), st.integers(1, 5))
def test_choose_voters_spreads_voters_over_racks(nodes: list[PlannedNode], count: int) -> None:
    usable = {node.id: node for node in nodes if node.can_receive_replicas}
    chosen = voter_selection.choose_voters(nodes, count)
    assert len(set(chosen)) == len(chosen) == min(count, len(usable))
    assert set(chosen) <= set(usable)
    racks = Counter(usable[node].rack for node in chosen)
    for node in usable.values():
        if node.id not in chosen:
            assert max(racks.values()) <= racks[node.rack] + 1
            # A current voter is preferred over others in the same rack.
            in_its_rack = [usable[each] for each in chosen if usable[each].rack == node.rack]
            assert not node.should_vote or all(each.should_vote for each in in_its_rack)


@pytest.mark.parametrize(
    ("nodes", "leaving", "expected"),
    [
        (voting_nodes(1, 2, 3, count=4), 2, 4),
        (voting_nodes(1, 2, 3, count=3), 2, None),
        (voting_nodes(1, 2, 3, count=6, racks="abcbca"), 1, 6),
        (voting_nodes(1, 2, 3, count=6, racks="abcbca"), 3, 5),
        (voting_nodes(1, 2, 3, count=5, away=(4,)), 1, 5),
        (voting_nodes(1, 2, 3, 4, count=6), 1, None),
        (voting_nodes(1, 2, 3, 4, 5, count=7), 1, 6),
        (voting_nodes(1, 2, 3, 4, 5, 6, count=7), 1, None),
    ],
)
def test_successor_is_observer_in_rack_with_fewest_voters(
    nodes: list[PlannedNode], leaving: int, expected: int | None
) -> None:
    assert voter_selection.find_voter_successor(nodes, leaving) == expected


@settings(max_examples=sized(50, 2000), deadline=None)
@given(some_nodes_at_random(at_least=2), st.data())
def test_demotion_is_rejected_if_majority_would_be_lost(nodes: list[PlannedNode], data: st.DataObject) -> None:
    leaving = data.draw(st.sampled_from(nodes)).id
    voters = [node for node in nodes if node.should_vote and node.id != leaving]
    online = [node for node in voters if node.is_online]
    had = sum(node.should_vote for node in nodes)
    harmless = 2 * len(online) > len(voters) and not (had >= 3 and len(voters) == 2)
    try:
        voter_selection.check_quorum_after_leaving(nodes, leaving)
    except PlanRejectedError:
        assert not harmless
    else:
        assert harmless


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (voting_nodes(1, count=2), "node 1 is the only voter"),
        (
            voting_nodes(1, 2, 3, count=3),
            "without the vote of node 1 there would be two voters, which tolerate no failure:"
            " add a node first, which can take over the vote",
        ),
        (
            voting_nodes(1, 2, 3, 4, count=4, away=(2, 3)),
            "without the vote of node 1 there would be no majority: of the 3 voters left, nodes 2 and 3 are offline",
        ),
    ],
)
def test_quorum_check_explains_rejection(nodes: list[PlannedNode], message: str) -> None:
    with pytest.raises(PlanRejectedError) as error:
        voter_selection.check_quorum_after_leaving(nodes, 1)
    assert str(error.value) == message


def test_superfluous_voter_is_demoted_if_there_are_four() -> None:
    assert voter_selection.find_superfluous_voter(voting_nodes(1, 2, 3, 4, count=4)) == 4
    assert voter_selection.find_superfluous_voter(voting_nodes(1, 2, 3, 4, count=4, racks="abbc")) == 3
    assert voter_selection.find_superfluous_voter(voting_nodes(1, 2, 3, 4, count=4, away=(2,))) == 2
    assert voter_selection.find_superfluous_voter(voting_nodes(1, 2, 3, count=4)) is None
    assert voter_selection.find_superfluous_voter(voting_nodes(1, 2, 3, 4, 5, count=5)) is None


def test_single_voter_gets_two_more_when_there_are_three_nodes() -> None:
    assert voter_selection.find_missing_voters(voting_nodes(1, count=2)) == ()
    assert voter_selection.find_missing_voters(voting_nodes(1, count=3)) == (2, 3)
    assert voter_selection.find_missing_voters(voting_nodes(1, 2, count=4, racks="aaab")) == (4,)
    assert voter_selection.find_missing_voters(voting_nodes(1, 2, 3, count=6)) == ()
