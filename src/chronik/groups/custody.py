"""The groups in this node's hands: taken up from the image when a term begins, let go of when it ends.

Nothing but what is stored passes from one term to the next, be it on the same node: generation, members and their
assignments. Members keep their place without a rebalance if they are heard within a session, which begins anew; ids
given out to clients that have not joined yet, and rebalances under way, are forgotten, and their clients join again.

A broker that others may believe to be gone holds no groups: it refuses its members' heartbeats, so it must not count
their silence against them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from chronik.groups import events
from chronik.groups.config import GroupConfig
from chronik.groups.coordinators import Tenure
from chronik.groups.hosting import GroupHost
from chronik.groups.machine import ClassicGroup
from chronik.groups.proposals import GroupStore
from chronik.groups.requests import ListedGroup
from chronik.groups.transitions import GroupState
from chronik.metadata.delta import Delta
from chronik.metadata.names import OFFSETS_TOPIC
from chronik.metadata.records import Partition, Topic
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

    def open(self) -> None:
        self._is_open = True
        self.take_up_all()

    def close(self) -> None:
        """Everybody who waits is sent away, and nobody is served any more."""
        self._is_open = False
        self._let_go_of_all()

    # --- one group ---

    def refusal(self, group_id: str) -> ErrorCode | None:
        if not self._is_open or self._is_fenced():
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        tenure = self._owns(group_id)
        if tenure is None:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if self._host.is_settling(group_id, tenure.epoch) else None

    def epoch(self, group_id: str) -> int:
        """Of the term in which the group is ours, which `refusal` has found out."""
        tenure = self._owns(group_id)
        assert tenure is not None
        return tenure.epoch

    def get(self, group_id: str) -> ClassicGroup | None:
        """A group that is ours; None when there is none such. One without members may be in the image alone."""
        epoch = self.epoch(group_id)
        hosted = self._host.get(group_id)
        if hosted is not None and hosted.epoch != epoch:
            self._let_go(hosted)
            hosted = None
        stored = self._store.image.groups.get(group_id)
        if hosted is None and stored is not None:
            return self._host.add(ClassicGroup.load(stored, self._config, self._host.now_ms(), epoch))
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
        return self._is_open and tenure is not None and tenure.epoch == group.epoch

    # --- all of them ---

    def list_entries(self) -> Iterator[ListedGroup]:
        """Groups that nobody has joined or asked for yet are in the image alone."""
        if not self._is_open:
            return
        for group in self._host:
            if self.holds(group):
                yield group.list_entry()
        for stored in list(self._store.image.groups.values()):
            if self._host.get(stored.group_id) is None and self._owns(stored.group_id) is not None:
                yield ListedGroup(stored.group_id, stored.protocol_type, GroupState(stored.state))

    def follow(self, delta: Delta) -> None:
        """Terms may have begun or ended."""
        if not self._is_open or not _changes_coordinators(delta):
            return
        for group in self._host:
            if not self.holds(group):
                self._let_go(group)
        self.take_up_all()

    def look(self) -> None:
        """Being fenced is no news of the image's, and so has to be looked for."""
        if self._is_open and self._is_fenced():
            self._let_go_of_all()
            self._has_left_some = True
        elif self._is_open and self._has_left_some:
            self.take_up_all()

    def take_up_all(self) -> None:
        """Those with members, whose sessions begin now; others are taken up when somebody asks for them."""
        if self._is_fenced():
            self._has_left_some = True
            return
        self._has_left_some = False
        for stored in list(self._store.image.groups.values()):
            if not stored.members or (tenure := self._owns(stored.group_id)) is None:
                continue
            if self._host.is_settling(stored.group_id, tenure.epoch):
                self._has_left_some = True
            else:
                self.get(stored.group_id)

    def _let_go_of_all(self) -> None:
        for group in self._host:
            self._let_go(group)

    def _let_go(self, group: ClassicGroup) -> None:
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
