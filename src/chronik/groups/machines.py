"""A group has a protocol, which is a kind of machine, and is chosen here. The classic one is the only one so far.

A coordinator knows groups by the interface that all protocols share (`GroupMachine`). All of them are asked the same
questions (`events`): clients of one protocol may come to a group of another.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sized
from typing import Final, Protocol

from chronik.coordination.machine import Machine
from chronik.coordination.proposals import ImageStore
from chronik.groups.classic.machine import ClassicGroup
from chronik.groups.classic.transitions import GroupState
from chronik.groups.config import GROUPS_MAX, GroupConfig
from chronik.groups.requests import DescribedGroup, JoinRequest, ListedGroup, SyncRequest
from chronik.metadata.image import Image


class GroupMachine(Machine, Protocol):
    @property
    def is_empty(self) -> bool:
        """Whether nobody is in it."""

    @property
    def is_stable(self) -> bool:
        """Whether its members know their assignments."""

    @property
    def is_stored(self) -> bool:
        """Whether it knows that the store has something of it."""

    @property
    def protocol_type(self) -> str | None: ...

    def subscribed_among(self, topics: Iterable[str]) -> frozenset[str]:
        """Returns the topics subscribed to; all, if the subscriptions of a group of consumers cannot be read."""

    def growth_of_join(self, request: JoinRequest) -> int:
        """Returns how many bytes more it would hold."""

    def growth_of_sync(self, request: SyncRequest) -> int: ...

    def describe(self) -> DescribedGroup: ...

    def list_entry(self) -> ListedGroup: ...


class StoredGroups:
    """The groups of the image."""

    name: Final = "group"

    def __init__(self, store: ImageStore, config: GroupConfig) -> None:
        self._store = store
        self._config = config

    @property
    def stored(self) -> Collection[str]:
        return self._store.image.groups

    def load(self, key: str, epoch: int, now_ms: int) -> GroupMachine | None:
        stored = self._store.image.groups.get(key)
        return None if stored is None else ClassicGroup.load(stored, self._config, now_ms, epoch)

    def acts_by_itself(self, key: str) -> bool:
        """Whether it has members: their sessions end, and begin when the group is taken up."""
        stored = self._store.image.groups.get(key)
        return stored is not None and bool(stored.members)

    def list_entry(self, key: str) -> ListedGroup | None:
        """Returns the entry of a group that nobody has joined or asked for yet."""
        stored = self._store.image.groups.get(key)
        return None if stored is None else ListedGroup(key, stored.protocol_type, GroupState(stored.state))


def is_full(in_hand: Sized, image: Image) -> bool:
    """Whether there are too many: new groups may be in memory alone, and those without members in the image alone."""
    return max(len(in_hand), len(image.groups)) >= GROUPS_MAX
