"""The interface of group state machines, and how the coordinator loads them.

The group protocol decides which machine a group has; the classic protocol is the only one so far. The coordinator
uses groups through `GroupMachine`. All machines handle the same requests (`events`), because clients of one protocol
may contact a group of another.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sized
from typing import Final, Protocol

from chronik.coordination.machine import CoordinatedStateMachine
from chronik.coordination.proposals import CoordinatorStore
from chronik.groups.classic.machine import ClassicGroup
from chronik.groups.classic.transitions import GroupState
from chronik.groups.config import GROUPS_MAX, GroupConfig
from chronik.groups.requests import DescribedGroup, JoinRequest, ListedGroup, SyncRequest
from chronik.metadata.image import Image


class GroupMachine(CoordinatedStateMachine, Protocol):
    """The interface of a consumer group's state machine, for any group protocol."""

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""

    @property
    def is_stable(self) -> bool:
        """Whether all members have received their assignments."""

    @property
    def is_stored(self) -> bool:
        """Whether the group is stored in the metadata."""

    @property
    def protocol_type(self) -> str | None: ...

    def filter_subscribed(self, topics: Iterable[str]) -> frozenset[str]:
        """Return those of the topics that members subscribe to, or all of them if a subscription cannot be decoded."""

    def compute_join_growth_bytes(self, request: JoinRequest) -> int:
        """Return by how many bytes a join request would change the group's memory usage."""

    def compute_sync_growth_bytes(self, request: SyncRequest) -> int:
        """Return by how many bytes a sync request would change the group's memory usage."""

    def describe(self) -> DescribedGroup: ...

    def to_listing(self) -> ListedGroup: ...


class GroupMachineKind:
    """The kind of state machine that manages consumer groups, with access to the stored groups."""

    name: Final = "group"

    def __init__(self, store: CoordinatorStore, config: GroupConfig) -> None:
        self._store = store
        self._config = config

    @property
    def stored_keys(self) -> Collection[str]:
        """The ids of all groups in the metadata image."""
        return self._store.image.groups

    def load(self, key: str, epoch: int, now_ms: int) -> GroupMachine | None:
        """Load the state machine of a stored consumer group, or return None if the group does not exist."""
        stored = self._store.image.groups.get(key)
        return None if stored is None else ClassicGroup.load(stored, self._config, now_ms, epoch)

    def may_have_timers(self, key: str) -> bool:
        """Return whether the group has members. Their session timeouts start when the group is loaded."""
        stored = self._store.image.groups.get(key)
        return stored is not None and bool(stored.members)

    def to_listing(self, key: str) -> ListedGroup | None:
        """Return the ListGroups entry of a stored group whose state machine is not loaded, or None."""
        stored = self._store.image.groups.get(key)
        return None if stored is None else ListedGroup(key, stored.protocol_type, GroupState(stored.state))


def is_group_limit_reached(loaded_groups: Sized, image: Image) -> bool:
    """Return whether the node has reached its maximum number of consumer groups.

    New groups may exist only in memory, and groups without members only in the image.
    """
    return max(len(loaded_groups), len(image.groups)) >= GROUPS_MAX
