"""Placement of replicas: balanced over brokers and spread over racks."""

from __future__ import annotations

from collections import Counter

import pytest

from chronik.planning.placement import PlacementCandidate, place_replicas

THREE = [PlacementCandidate(1, None), PlacementCandidate(2, None), PlacementCandidate(3, None)]


@pytest.mark.parametrize("start", range(7))
@pytest.mark.parametrize("factor", [1, 2, 3])
def test_placement_balances_leaders_and_replicas(factor: int, start: int) -> None:
    placed = place_replicas(30, factor, THREE, start)
    assert Counter(replicas[0] for replicas in placed) == {1: 10, 2: 10, 3: 10}
    assert Counter(broker for replicas in placed for broker in replicas) == dict.fromkeys((1, 2, 3), 10 * factor)
    assert all(len(set(replicas)) == factor for replicas in placed)


def test_placement_on_single_broker_assigns_all_partitions_to_it() -> None:
    assert place_replicas(3, 1, [PlacementCandidate(7, "a")], 5) == [(7,), (7,), (7,)]


def test_placement_varies_follower_pairs_between_rounds() -> None:
    brokers = [PlacementCandidate(number, None) for number in range(5)]
    pairs = Counter(tuple(sorted(replicas)) for replicas in place_replicas(100, 2, brokers, 0))
    assert len(pairs) == 10


@pytest.mark.parametrize("start", range(6))
def test_placement_uses_distinct_racks_when_there_are_enough(start: int) -> None:
    brokers = [PlacementCandidate(number, rack) for number, rack in enumerate("aabbcc")]
    racks = dict(brokers)
    for replicas in place_replicas(60, 3, brokers, start):
        assert {racks[broker] for broker in replicas} == {"a", "b", "c"}


def test_placement_uses_every_rack_when_racks_are_fewer_than_replicas() -> None:
    brokers = [PlacementCandidate(1, "a"), PlacementCandidate(2, "a"), PlacementCandidate(3, "b")]
    racks = dict(brokers)
    for replicas in place_replicas(12, 3, brokers, 0):
        assert len(set(replicas)) == 3
    for replicas in place_replicas(12, 2, brokers, 0):
        assert {racks[broker] for broker in replicas} == {"a", "b"}
