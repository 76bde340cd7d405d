"""What a command changed: all that reacts to the state of the cluster reacts to a delta."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import msgspec

from chronik.metadata.records import Broker, Group, Node, Topic

if TYPE_CHECKING:
    from chronik.metadata.image import Image

T = TypeVar("T")
K = TypeVar("K")


class Change(NamedTuple, Generic[T]):
    """One thing before and after: without `old` it is new, without `new` it is gone."""

    old: T | None
    new: T | None

    @property
    def created(self) -> bool:
        return self.old is None

    @property
    def deleted(self) -> bool:
        return self.new is None


class Delta(msgspec.Struct, frozen=True):
    """Topics are told apart by id: one deleted and made again under its name is two changes, the deletion first."""

    index: int
    topics: tuple[Change[Topic], ...] = ()
    brokers: tuple[Change[Broker], ...] = ()
    nodes: tuple[Change[Node], ...] = ()
    groups: tuple[Change[Group], ...] = ()
    broker_configs: tuple[int, ...] = ()
    """Ids of brokers (or CLUSTER_DEFAULT) whose dynamic configs changed."""
    offsets: tuple[str, ...] = ()
    """Groups whose committed offsets changed."""
    checkpoints: tuple[str, ...] = ()
    """Names of topics in which nothing but high watermarks and log starts changed."""
    features: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(
            self.topics
            or self.offsets
            or self.groups
            or self.brokers
            or self.checkpoints
            or self.broker_configs
            or self.features
            or self.nodes
        )


def difference(old: Image, new: Image) -> Delta:
    """One delta that leads from `old` to `new`; at start-up `old` is an empty image."""
    return Delta(
        index=new.applied_index,
        topics=in_order(_changes(old.topics_by_id, new.topics_by_id)),
        brokers=tuple(_changes(old.brokers, new.brokers)),
        nodes=tuple(_changes(old.nodes, new.nodes)),
        groups=tuple(_changes(old.groups, new.groups)),
        broker_configs=_changed_keys(old.broker_configs, new.broker_configs),
        offsets=tuple(
            group_id
            for group_id in sorted({*old.groups_with_offsets(), *new.groups_with_offsets()})
            if old.offsets(group_id) != new.offsets(group_id)
        ),
        features=_changed_keys(old.features, new.features),
    )


def in_order(changes: Iterable[Change[Topic]]) -> tuple[Change[Topic], ...]:
    """Deletions first, so that a name is free before a new topic takes it; then by name."""
    return tuple(sorted(changes, key=_deletions_then_names))


def _deletions_then_names(change: Change[Topic]) -> tuple[bool, str]:
    topic = change.new or change.old
    assert topic is not None
    return (not change.deleted, topic.name)


def _changed_keys(old: Mapping[K, object], new: Mapping[K, object]) -> tuple[K, ...]:
    keys: list[Any] = [*old, *(key for key in new if key not in old)]
    return tuple(key for key in sorted(keys) if old.get(key) != new.get(key))


def _changes(old: Mapping[K, T], new: Mapping[K, T]) -> list[Change[T]]:
    return [Change(old.get(key), new.get(key)) for key in _changed_keys(old, new)]
