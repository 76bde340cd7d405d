"""The groups in this node's hands: taken up from the image when a term begins, let go of when it ends.

Nothing but what is stored passes from one term to the next, be it on the same node: generation, members and their
assignments. Members keep their place without a rebalance if they are heard within a session, which begins anew; ids
given out to clients that have not joined yet, and rebalances under way, are forgotten, and their clients join again.

A broker that others may believe to be gone holds no groups: it refuses its members' heartbeats, so it must not count
their silence against them.

There may be a hundred thousand groups, so they are taken up and let go of in slices, behind what the image says. Who
asks for a group does not notice: what is not ours is refused, what is ours and not taken up yet is taken up at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator
from typing import Final

from chronik.coordination.custody import GroupHost
from chronik.coordination.proposals import GroupStore
from chronik.coordination.tenure import Tenure
from chronik.groups import events
from chronik.groups.classic.machine import ClassicGroup
from chronik.groups.classic.transitions import GroupState
from chronik.groups.config import GroupConfig
from chronik.groups.requests import ListedGroup
from chronik.metadata.delta import Delta
from chronik.metadata.names import OFFSETS_TOPIC
from chronik.metadata.records import Partition, Topic
from chronik.metadata.slices import in_slices
from chronik.protocol.errors import ErrorCode

LOOK_SECONDS: Final = 0.5
"""How often a node looks whether it is fenced: a fraction of the shortest session that clients may have."""


class Custody:
    def __init__(
        self,
        store: GroupStore,
        host: GroupHost,
        config: GroupConfig,
        owns: Callable[[str], Tenure | None],
        is_fenced: Callable[[], bool],
    ) -> None:
        self._store = store
        self._host = host
        self._config = config
        self._owns = owns
        self._is_fenced = is_fenced
        self._is_open = False
        self._has_left_some = False
        """Groups that are ours, and are to be taken up as soon as may be."""
        self._given_up: dict[ClassicGroup, None] = {}
        """In order. To be let go of though their term may be running: the node was fenced since they were taken up."""
        self._wakeup = asyncio.Event()

    def open(self) -> None:
        self._is_open = True
        self._wakeup.set()

    def close(self) -> None:
        """Nobody is served any more; `let_go_of_all` sends those away who wait."""
        self._is_open = False

    async def run(self) -> None:
        """For ever, the groups in hand follow the terms."""
        while True:
            await self._wakeup.wait()
            self._wakeup.clear()  # what changes from here on is looked at once more
            await in_slices(self._let_go_of_what_is_not_ours())
            await in_slices(self._take_up_what_is_ours())

    # --- one group ---

    def refusal(self, group_id: str) -> ErrorCode | None:
        """Why the group cannot be served now; None when it can. Whatever is left of it from a term that is over is let
        go of first: it may have something on its way to the store."""
        if not self._is_open or self._is_fenced():
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        tenure = self._owns(group_id)
        if tenure is None:
            return ErrorCode.NOT_COORDINATOR
        self._let_go_if_over(group_id, tenure)
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if self._host.is_settling(group_id, tenure.epoch) else None

    def epoch(self, group_id: str) -> int:
        """Of the term in which the group is ours, which `refusal` has found out."""
        tenure = self._owns(group_id)
        assert tenure is not None
        return tenure.epoch

    def get(self, group_id: str) -> ClassicGroup | None:
        """A group that is ours, as `refusal` has found out; None when there is none such. One without members may be in
        the image alone."""
        hosted = None if self.forget_if_gone(group_id) else self._host.get(group_id)
        stored = self._store.image.groups.get(group_id)
        if hosted is None and stored is not None:
            return self._host.add(ClassicGroup.load(stored, self._config, self._host.now_ms(), self.epoch(group_id)))
        return hosted

    def found(self, group_id: str) -> ClassicGroup:
        """A new group, of which nothing is stored yet."""
        return self._host.add(ClassicGroup(group_id, self._config, self.epoch(group_id)))

    def holds(self, group: ClassicGroup) -> bool:
        """Whether the term in which the group was taken up is still running; if not, it must not do anything more."""
        if self._is_fenced():
            self._has_left_some = True
            return False
        tenure = self._owns(group.group_id)
        return self._is_open and tenure is not None and self._is_of(group, tenure)

    def forget_if_gone(self, group_id: str) -> bool:
        """Whether it was deleted or expired after all by a command whose outcome was not known in time: a group that
        nobody is in, or is about to join, is not in memory alone."""
        group = self._host.get(group_id)
        if group is None or not group.is_idle or group_id in self._store.image.groups:
            return False
        self._host.feed(group, events.Expired(self._host.now_ms()))
        return True

    def _is_of(self, group: ClassicGroup, tenure: Tenure) -> bool:
        return group.epoch == tenure.epoch and group not in self._given_up

    def _let_go_if_over(self, group_id: str, tenure: Tenure) -> None:
        group = self._host.get(group_id)
        if group is not None and not self._is_of(group, tenure):
            self._let_go(group)

    # --- all of them ---

    def list_entries(self) -> Iterator[ListedGroup | None]:
        """Groups that nobody has joined or asked for yet are in the image alone. None for one that is not ours."""
        if not self._is_open or self._is_fenced():
            return
        listed = set()
        for group in self._host:
            is_ours = self.holds(group) and not self.forget_if_gone(group.group_id)
            if is_ours:
                listed.add(group.group_id)
            yield group.list_entry() if is_ours else None
        for stored in list(self._store.image.groups.values()):
            is_ours = stored.group_id not in listed and self._owns(stored.group_id) is not None
            yield ListedGroup(stored.group_id, stored.protocol_type, GroupState(stored.state)) if is_ours else None

    def follow(self, delta: Delta) -> None:
        """Terms may have begun or ended."""
        if _changes_coordinators(delta):
            self._wakeup.set()

    def look(self) -> None:
        """Being fenced is no news of the image's, and so has to be looked for."""
        if not self._is_open:
            return
        if self._is_fenced():
            self._given_up.update(dict.fromkeys(self._host))
            self._has_left_some = True
        if self._has_left_some:
            self._wakeup.set()

    def let_go_of_all(self) -> Generator[None, None, None]:
        for group in self._host:
            self._let_go(group)
            yield

    def forget_what_is_gone(self) -> Generator[None, None, None]:
        for group in self._host:
            self.forget_if_gone(group.group_id)
            yield

    def _let_go_of_what_is_not_ours(self) -> Generator[None, None, None]:
        while self._given_up:
            self._let_go(next(iter(self._given_up)))
            yield
        for group in self._host:
            if not self.holds(group):
                self._let_go(group)
            yield

    def _take_up_what_is_ours(self) -> Generator[None, None, None]:
        """Those with members, whose sessions begin when they are taken up; others are when somebody asks for them."""
        self._has_left_some = False
        for group_id in list(self._store.image.groups):
            if not self._is_open or self._is_fenced():
                self._has_left_some = True
                return
            stored = self._store.image.groups.get(group_id)
            if stored is not None and stored.members:
                match self.refusal(group_id):
                    case None:
                        self.get(group_id)
                    case ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                        self._has_left_some = True
            yield

    def _let_go(self, group: ClassicGroup) -> None:
        self._given_up.pop(group, None)
        self._host.feed(group, events.TakenOver(self._host.now_ms()))


def _changes_coordinators(delta: Delta) -> bool:
    """Whether any term began or ended: in-sync replicas come and go more often."""
    return any(
        _terms(change.old) != _terms(change.new)
        for change in delta.topics
        if OFFSETS_TOPIC in (change.old.name if change.old else "", change.new.name if change.new else "")
    )


def _terms(topic: Topic | None) -> list[tuple[int, int]]:
    partitions: tuple[Partition, ...] = topic.partitions if topic is not None else ()
    return [(partition.leader, partition.leader_epoch) for partition in partitions]
