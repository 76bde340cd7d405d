"""Deltas: the difference between two images, to which all components react."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from chronik.metadata.records import Acl, Broker, Entity, Group, NodeRecord, Topic, Transaction

if TYPE_CHECKING:
    from chronik.metadata.image import Image

T = TypeVar("T")
K = TypeVar("K")

Steps = Generator[None, None, T]

STEP_RECORDS: Final = 100
"""The number of records that an image comparison processes before it yields to the event loop, at 1 to 2 µs each."""


class RecordChange(NamedTuple, Generic[T]):
    """A record of the metadata image before and after a change; None if the record did not exist or was deleted."""

    old: T | None
    new: T | None

    @property
    def created(self) -> bool:
        return self.old is None

    @property
    def deleted(self) -> bool:
        return self.new is None


class Delta(msgspec.Struct, frozen=True):
    """The changes between two versions of the metadata image.

    Topics are identified by id: deleting a topic and creating one with the same name are two changes, the deletion
    first.
    """

    index: int
    topics: tuple[RecordChange[Topic], ...] = ()
    brokers: tuple[RecordChange[Broker], ...] = ()
    nodes: tuple[RecordChange[NodeRecord], ...] = ()
    groups: tuple[RecordChange[Group], ...] = ()
    broker_configs: tuple[int, ...] = ()
    """Ids of brokers (or CLUSTER_DEFAULT) whose dynamic configs changed."""
    group_configs: tuple[str, ...] = ()
    """Ids of groups whose configs changed."""
    offsets: tuple[str, ...] = ()
    """Ids of groups whose committed offsets changed."""
    checkpoints: tuple[str, ...] = ()
    """Names of topics in which only high watermarks and log start offsets changed."""
    features: tuple[str, ...] = ()
    transactions: tuple[RecordChange[Transaction], ...] = ()
    acls: tuple[RecordChange[Acl], ...] = ()
    quotas: tuple[Entity, ...] = ()
    users: tuple[str, ...] = ()
    """Names of users whose credentials changed."""
    subjects: tuple[str, ...] = ()
    """Names of subjects of the schema registry whose versions changed."""
    schema_settings: tuple[str, ...] = ()
    """Names of subjects and contexts whose settings changed, and names of contexts that changed."""

    def __bool__(self) -> bool:
        return bool(
            self.topics
            or self.offsets
            or self.groups
            or self.brokers
            or self.checkpoints
            or self.broker_configs
            or self.group_configs
            or self.features
            or self.nodes
            or self.transactions
            or self.acls
            or self.quotas
            or self.users
            or self.subjects
            or self.schema_settings
        )


def diff_images(old: Image, new: Image) -> Delta:
    """Return the changes between two versions of the metadata image. At startup, `old` is an empty image."""
    steps = diff_images_in_steps(old, new)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            delta: Delta = end.value
            return delta


def diff_images_in_steps(old: Image, new: Image) -> Steps[Delta]:
    """Return the delta between two metadata images, as a generator that yields after every 100 records."""
    topics = yield from _find_changes(old.all_topics_by_id, new.all_topics_by_id)
    brokers = yield from _find_changes(old.brokers, new.brokers)
    nodes = yield from _find_changes(old.nodes, new.nodes)
    groups = yield from _find_changes(old.groups, new.groups)
    transactions = yield from _find_changes(old.transactions, new.transactions)
    return Delta(
        index=new.applied_index,
        topics=sort_topic_changes(topics),
        brokers=tuple(brokers),
        nodes=tuple(nodes),
        groups=tuple(groups),
        broker_configs=(yield from _find_changed_keys(old.broker_configs, new.broker_configs)),
        group_configs=(yield from _find_changed_keys(old.group_configs, new.group_configs)),
        offsets=(yield from _find_groups_with_changed_offsets(old, new)),
        features=(yield from _find_changed_keys(old.features, new.features)),
        transactions=tuple(transactions),
        acls=(yield from _find_changed_acls(old, new)),
        quotas=(yield from _find_changed_keys(old.quotas, new.quotas)),
        users=(yield from _find_changed_keys(old.users.by_name, new.users.by_name)),
        subjects=(yield from _find_changed_keys(old.schemas.subjects, new.schemas.subjects)),
        schema_settings=(yield from _find_changed_schema_settings(old, new)),
    )


def sort_topic_changes(changes: Iterable[RecordChange[Topic]]) -> tuple[RecordChange[Topic], ...]:
    """Sort topic changes by name, deletions first, because a new topic may reuse the name of a deleted one."""
    return tuple(sorted(changes, key=_get_topic_change_sort_key))


def _get_topic_change_sort_key(change: RecordChange[Topic]) -> tuple[bool, str]:
    topic = change.new or change.old
    assert topic is not None
    return (not change.deleted, topic.name)


def _find_changed_keys(old: Mapping[K, object], new: Mapping[K, object]) -> Steps[tuple[K, ...]]:
    changed: list[Any] = []
    for keys in (old, (key for key in new if key not in old)):
        for count, key in enumerate(keys):
            if old.get(key) != new.get(key):
                changed.append(key)
            if count % STEP_RECORDS == 0:
                yield
    return tuple(sorted(changed))


def _find_changes(old: Mapping[K, T], new: Mapping[K, T]) -> Steps[list[RecordChange[T]]]:
    keys = yield from _find_changed_keys(old, new)
    return [RecordChange(old.get(key), new.get(key)) for key in keys]


def _find_changed_acls(old: Image, new: Image) -> Steps[tuple[RecordChange[Acl], ...]]:
    changes = []
    for before, after in ((old.acls, new.acls), (new.acls, old.acls)):
        for count, acl in enumerate(before):
            if acl not in after:
                changes.append(RecordChange(acl, None) if after is new.acls else RecordChange(None, acl))
            if count % STEP_RECORDS == 0:
                yield
    return tuple(changes)


def _find_changed_schema_settings(old: Image, new: Image) -> Steps[tuple[str, ...]]:
    settings = yield from _find_changed_keys(old.schemas.settings, new.schemas.settings)
    contexts = yield from _find_changed_keys(old.schemas.contexts, new.schemas.contexts)
    return tuple(sorted({*settings, *contexts}))


def _find_groups_with_changed_offsets(old: Image, new: Image) -> Steps[tuple[str, ...]]:
    changed = []
    for group_id in sorted({*old.iter_groups_with_offsets(), *new.iter_groups_with_offsets()}):
        before = yield from _hash_committed_offsets(old, group_id)
        after = yield from _hash_committed_offsets(new, group_id)
        if before != after:
            changed.append(group_id)
    return tuple(changed)


def _hash_committed_offsets(image: Image, group_id: str) -> Steps[int]:
    """Return the sum of the hashes of a group's committed offsets, as a generator that yields every 100 offsets."""
    total = 0
    for count, each in enumerate(image.offsets(group_id).record_hashes()):
        total += each
        if count % STEP_RECORDS == 0:
            yield
    return total
