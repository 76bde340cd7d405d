"""Evens out how many replicas nodes hold, and how many partitions prefer them as leaders, with few moves.

It goes by chains. If node 1 has too many and node 4 too few, a replica goes from 1 to 4; if racks do not allow that
for any, one goes from 1 to 2 and another from 2 to 4. The shortest chain is the fewest moves. Where no chain is left
between two nodes of which one has at least two more than the other, it is as even as it can be.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heappop, heapreplace
from typing import Final

from chronik.planning.layout import Layout

UNEVEN: Final = 2
"""With one more than another a node is even with it: moving that one would only turn the tables."""

Link = tuple[int, int]
"""From one node to another."""


class Evening(ABC):
    """Brings the loads of nodes nearer to each other, chain by chain, until there is no chain left."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    @property
    @abstractmethod
    def _load(self) -> Mapping[int, set[int]]:
        """What is to be even: partitions by node."""

    @abstractmethod
    def _find(self, source: int, target: int) -> int | None:
        """Returns a partition that can go from one node to the other."""

    @abstractmethod
    def _replicas_after(self, place: int, source: int, target: int) -> tuple[int, ...]: ...

    def run(self) -> None:
        while self._sweep():
            pass

    def _sweep(self) -> bool:
        """Relieves the nodes with the most, again and again. Those that nobody can relieve are left for the next sweep:
        what others do meanwhile hardly ever changes that. Returns whether anything was done."""
        has_changed = False
        left = set(self._layout.takers)
        while left:
            most = max(len(self._load[node]) for node in left)
            sources = sorted(node for node in left if len(self._load[node]) == most)
            chain = self._chain(sources, most)
            if chain is not None and self._follow(chain):
                has_changed = True
            else:
                left -= set(sources)
        return has_changed

    def _chain(self, sources: list[int], most: int) -> list[Link] | None:
        """Returns a shortest chain to a node that has at least two less, its last link first."""
        load = self._load
        by_load = sorted(self._layout.takers, key=lambda node: (len(load[node]), node))
        goals = {node for node in by_load if len(load[node]) + UNEVEN <= most}
        came_from = {source: source for source in sources}
        left = deque(sources if goals else [])
        while left:
            giver = left.popleft()
            for taker in by_load:
                if taker in came_from or self._find(giver, taker) is None:
                    continue
                came_from[taker] = giver
                if taker in goals:
                    return _links(came_from, taker)
                left.append(taker)
        return None

    def _follow(self, chain: list[Link]) -> bool:
        """Takes every step, or none: a step may have been the only chance of another."""
        before: list[tuple[int, tuple[int, ...]]] = []
        for source, target in chain:
            place = self._find(source, target)
            if place is None:
                for changed, replicas in reversed(before):
                    self._layout.change(changed, replicas)
                return False
            before.append((place, self._layout.replicas[place]))
            self._layout.change(place, self._replicas_after(place, source, target))
        return True


class EveningOfReplicas(Evening):
    """Moves replicas for which `may_move(place, node)` says so, and never into a rack that has one already."""

    def __init__(self, layout: Layout, may_move: Callable[[int, int], bool]) -> None:
        super().__init__(layout)
        self._may_move = may_move
        self._candidates: dict[Link, _Candidates] = {}

    @property
    def _load(self) -> Mapping[int, set[int]]:
        return self._layout.held

    def _find(self, source: int, target: int) -> int | None:
        candidates = self._candidates.get((source, target))
        place = candidates.best(self._layout) if candidates is not None else None
        if place is None:  # what could not go before may be able to now
            held = sorted(self._layout.held[source], reverse=True)
            places = [each for each in held if self._can_go(each, source, target)]
            candidates = _Candidates(self._layout, source, target, places, self._can_go)
            self._candidates[source, target] = candidates
            place = candidates.best(self._layout)
        return place

    def _can_go(self, place: int, source: int, target: int) -> bool:
        replicas = self._layout.replicas[place]
        if source not in replicas or target in replicas or not self._may_move(place, source):
            return False
        return self._layout.keeps_racks(place, source, target)

    def _replicas_after(self, place: int, source: int, target: int) -> tuple[int, ...]:
        return self._layout.exchanged(place, source, target)


class _Candidates:
    """Partitions that could go from one node to another. One look at all of them serves many moves, so what is taken
    from here is looked at again."""

    def __init__(
        self,
        layout: Layout,
        source: int,
        target: int,
        places: Iterable[int],
        can_go: Callable[[int, int, int], bool],
    ) -> None:
        self._source, self._target, self._can_go = source, target, can_go
        self._led: dict[str, list[int]] = defaultdict(list)
        self._followed: dict[str, list[int]] = defaultdict(list)
        for place in places:
            by_topic = self._led if layout.replicas[place][0] == source else self._followed
            by_topic[layout.partitions[place].topic].append(place)
        topics = {*self._led, *self._followed}
        self._topics = [(-self._crowd(layout, topic), topic) for topic in topics]
        heapify(self._topics)

    def best(self, layout: Layout) -> int | None:
        """Returns one of the topic of which the source has most, beside the target; and one that prefers the source as
        its leader, if more do so than prefer the target."""
        leads_more = len(layout.preferring[self._source]) > len(layout.preferring[self._target])
        kinds = (self._led, self._followed) if leads_more else (self._followed, self._led)
        while self._topics:
            crowd, topic = self._topics[0]
            now = -self._crowd(layout, topic)
            if now > crowd:
                heapreplace(self._topics, (now, topic))
                continue
            for places in (by_topic[topic] for by_topic in kinds):
                while places and not self._can_go(places[-1], self._source, self._target):
                    places.pop()
                if places:
                    return places[-1]
            heappop(self._topics)
        return None

    def _crowd(self, layout: Layout, topic: str) -> int:
        return layout.of_topic[topic, self._source] - layout.of_topic[topic, self._target]


class EveningOfLeaders(Evening):
    """Changes the order of replicas, for which nothing has to be copied, where `may_change(place)` says so."""

    def __init__(self, layout: Layout, may_change: Callable[[int], bool]) -> None:
        super().__init__(layout)
        self._may_change = may_change

    @property
    def _load(self) -> Mapping[int, set[int]]:
        return self._layout.preferring

    def _find(self, source: int, target: int) -> int | None:
        """Prefers a topic that the source leads more of than the target."""
        layout = self._layout
        places = filter(self._may_change, layout.preferring[source] & layout.held[target])

        def cost(place: int) -> tuple[int, int]:
            topic = layout.partitions[place].topic
            return layout.led_of_topic[topic, target] - layout.led_of_topic[topic, source], place

        return min(places, key=cost, default=None)

    def _replicas_after(self, place: int, source: int, target: int) -> tuple[int, ...]:
        return target, *(replica for replica in self._layout.replicas[place] if replica != target)


def _links(came_from: Mapping[int, int], end: int) -> list[Link]:
    links = []
    while came_from[end] != end:
        links.append((came_from[end], end))
        end = came_from[end]
    return links
