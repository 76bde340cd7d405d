"""Which brokers get a new topic's replicas: round-robin, and no two in one rack while another rack is free."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple


class Place(NamedTuple):
    """A broker as placement sees it."""

    broker_id: int
    rack: str | None


def place_replicas(
    partition_count: int, replication_factor: int, places: Sequence[Place], start: int
) -> list[tuple[int, ...]]:
    """Returns the replicas of each partition, the preferred leader first. `start` (any number) says where the round
    begins, so that many small topics spread too. The caller has checked that there are enough brokers."""
    ring = _racks_in_turn(places)
    return [_replicas(ring, replication_factor, start + number) for number in range(partition_count)]


def _replicas(ring: Sequence[Place], replication_factor: int, turn: int) -> tuple[int, ...]:
    size = len(ring)
    leader = ring[turn % size]
    # Each full round shifts the followers by one more, or the same pairs of brokers would share every partition.
    shift = (turn // size) % max(1, size - 1)
    others = [ring[(turn + 1 + (shift + step) % (size - 1)) % size] for step in range(size - 1)]
    chosen, racks = [leader], {leader.rack}
    for place in others:
        if len(chosen) < replication_factor and place.rack not in racks:
            chosen.append(place)
            racks.add(place.rack)
    for place in others:
        if len(chosen) < replication_factor and place not in chosen:
            chosen.append(place)
    return tuple(place.broker_id for place in chosen)


def _racks_in_turn(places: Sequence[Place]) -> list[Place]:
    """Takes one broker of each rack in turn, so that neighbours on the ring stand in different racks."""
    racks: dict[str, list[Place]] = defaultdict(list)
    for place in sorted(places):
        racks[place.rack or ""].append(place)
    rounds = zip_longest(*(racks[rack] for rack in sorted(racks)))
    return [place for members in rounds for place in members if place is not None]
