"""Placement of a new topic's replicas: round-robin over brokers and racks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple


class PlacementCandidate(NamedTuple):
    """A broker that may host replicas of a new topic, with its rack."""

    broker_id: int
    rack: str | None


def place_replicas(
    partition_count: int, replication_factor: int, places: Sequence[PlacementCandidate], start: int
) -> list[tuple[int, ...]]:
    """Choose the brokers of new partitions' replicas. Return each partition's broker ids, the preferred leader first.

    `start` selects the first broker, so that many small topics are spread as well. The caller checks that there are
    enough brokers.
    """
    ring = _order_brokers_by_alternating_racks(places)
    return [_choose_replicas(ring, replication_factor, start + number) for number in range(partition_count)]


def _choose_replicas(ring: Sequence[PlacementCandidate], replication_factor: int, position: int) -> tuple[int, ...]:
    size = len(ring)
    leader = ring[position % size]
    # Each round shifts the followers by one more. Otherwise the same pairs of brokers would share all partitions.
    shift = (position // size) % max(1, size - 1)
    others = [ring[(position + 1 + (shift + step) % (size - 1)) % size] for step in range(size - 1)]
    chosen, racks = [leader], {leader.rack}
    for place in others:
        if len(chosen) < replication_factor and place.rack not in racks:
            chosen.append(place)
            racks.add(place.rack)
    for place in others:
        if len(chosen) < replication_factor and place not in chosen:
            chosen.append(place)
    return tuple(place.broker_id for place in chosen)


def _order_brokers_by_alternating_racks(places: Sequence[PlacementCandidate]) -> list[PlacementCandidate]:
    """Return the brokers in an order in which consecutive brokers are in different racks where possible."""
    racks: dict[str, list[PlacementCandidate]] = defaultdict(list)
    for place in sorted(places):
        racks[place.rack or ""].append(place)
    rounds = zip_longest(*(racks[rack] for rack in sorted(racks)))
    return [place for members in rounds for place in members if place is not None]
