"""The replicas of this node, which follow the metadata image: they react to deltas and decide nothing themselves."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec

from chronik.broker.flusher import Flusher
from chronik.broker.quarantine import DELETED_DIRECTORY, TOPICS_DIRECTORY, Quarantine, is_partition_index
from chronik.broker.recent_batches import RecentBatchBudget
from chronik.broker.replica import Replica
from chronik.broker.requests.produced_records import ProduceRules
from chronik.broker.topic_configs import resolve_log_config, resolve_produce_rules
from chronik.broker.uncommitted import NodeUncommittedBytes
from chronik.clock import Clock
from chronik.configs.resolver import ConfigResolver
from chronik.files import FileCache
from chronik.ids import format_id
from chronik.log.files.synced_offsets import SyncedOffsets
from chronik.log.partition_log import PartitionLog
from chronik.log.producer_state import ProducerLimit
from chronik.metadata.delta import Delta
from chronik.metadata.records import Topic
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger("chronik.broker")

T = TypeVar("T")

REPLICAS_PER_ITERATION: Final = 250
"""Number of replicas that are examined in one event-loop iteration.

Each takes 1 to 5 µs, and there may be tens of thousands.
"""

CHANGES_PER_ITERATION: Final = 500
"""Number of replicas to which one event-loop iteration applies a metadata change.

Each takes 5 to 10 µs, or longer if its leader epoch changes.
"""


class _DirectoryRemoval(NamedTuple):
    """A pending removal of the data directory of a topic or partition."""

    topic_id: bytes
    partition: int | None
    abandoned: list[Replica]


class PartitionRemovals:
    """A queue of the data directories of deleted topics and moved partitions, which are to be removed.

    A directory is removed when no sync uses it.
    """

    def __init__(self, cache: FileCache, set_aside: Quarantine, on_left: Callable[[bytes], None]) -> None:
        """Create an empty queue of removals.

        `on_left` is called with the topic id after a partition was removed from `pending_partitions`.
        """
        self._cache = cache
        self._set_aside = set_aside
        self._on_left = on_left
        self._pending: deque[_DirectoryRemoval] = deque()
        self._due = asyncio.Event()
        self.pending_partitions: set[tuple[bytes, int]] = set()
        """Partitions that cannot be created again until the files of the removed partition are closed.

        This includes partitions of deleted topics: an aborted import that is restarted uses the same topic ids.
        """

    def add(self, topic_id: bytes, partition: int | None, abandoned: list[Replica]) -> None:
        """Schedule the removal of a topic's or a partition's directory."""
        if partition is not None:
            self.pending_partitions.add((topic_id, partition))
        self.pending_partitions.update((topic_id, replica.index) for replica in abandoned)
        self._pending.append(_DirectoryRemoval(topic_id, partition, abandoned))
        self._due.set()

    def schedule_deletions(self) -> None:
        """Schedule the deletion of directories that were moved to the `deleted` directory."""
        if self._cache.files.list_directory(DELETED_DIRECTORY):
            self._due.set()

    async def run(self) -> None:
        """Delete the directories of removed partitions when no sync uses their files.

        They are first moved to the `deleted` directory.
        """
        while True:
            await self._due.wait()
            self._due.clear()
            while self._pending:
                for replica in self._pending[0].abandoned:
                    await replica.release()
                self._move_to_deleted(self._pending.popleft())
            await run_in_thread(self._set_aside.delete_removed_directories)

    def close(self) -> None:
        """Move the remaining directories to the `deleted` directory, so that the next start deletes them.

        No sync may be in progress.
        """
        while self._pending:
            self._move_to_deleted(self._pending.popleft())

    def _move_to_deleted(self, removal: _DirectoryRemoval) -> None:
        topic_id, partition, abandoned = removal
        directory = format_id(topic_id) if partition is None else f"{format_id(topic_id)}/{partition}"
        self._cache.close_directory(f"{TOPICS_DIRECTORY}/{directory}")
        self._set_aside.move_directory(directory, DELETED_DIRECTORY)
        self.pending_partitions.difference_update((topic_id, replica.index) for replica in abandoned)
        if partition is not None:
            self.pending_partitions.discard((topic_id, partition))
        self._on_left(topic_id)


class ReplicaManager:
    """The manager of all partition replicas that this node hosts (Kafka's `ReplicaManager`)."""

    def __init__(
        self,
        node_id: int,
        store: MetadataStore,
        configs: ConfigResolver,
        cache: FileCache,
        synced_offsets: SyncedOffsets,
        clock: Clock,
        flusher: Flusher,
        *,
        flush_each_append: bool,
        on_fatal: Callable[[BaseException], None],
        find_deleting_cluster: Callable[[], str | None] = lambda: None,
    ) -> None:
        """Create an empty set of replicas; `start` adds them.

        Args:
            on_fatal: Called with errors of callbacks that no caller awaits; the node must stop.
            find_deleting_cluster: Returns the id of the cluster that has deleted an unknown topic, if that is certain.
        """
        self._node_id = node_id
        self._store = store
        self._configs = configs
        self._cache = cache
        self._synced_offsets = synced_offsets
        self._clock = clock
        self._flusher = flusher
        self._flush_each_append = flush_each_append
        self._on_fatal = on_fatal
        self._find_deleting_cluster = find_deleting_cluster
        self._set_aside = Quarantine(cache.files)
        self._unknown: dict[bytes, str] = {}
        self._recent_room = RecentBatchBudget()
        self._uncommitted = NodeUncommittedBytes()
        self._producer_limit = ProducerLimit()
        self._by_id: dict[tuple[bytes, int], Replica] = {}
        self._topic_ids: dict[str, bytes] = {}
        self.removals: Final = PartitionRemovals(cache, self._set_aside, self._restore_returned_partitions)
        self.registered: Final = asyncio.Event()
        """Event that is set when this incarnation of the broker is registered with the controller.

        Until then, the node replays old changes, such as roles that have ended and partitions that were removed and
        added again.
        """
        self.listeners: list[Callable[[Replica], None]] = []
        """Callbacks that receive each replica that was added, was removed or has changed its role."""
        self.damage_listeners: list[Callable[[Replica], None]] = []
        """Callbacks that receive each replica whose log is found to have lost synced records when it is opened."""
        self._outdated: dict[bytes, Topic] = {}
        """The last applied version of each topic whose replicas lag behind the metadata image."""
        self._is_catching_up = False
        self.is_stopping = False
        """Whether the node is stopping, so that fetches no longer wait for records."""

    def __iter__(self) -> Iterator[Replica]:
        return iter(list(self._by_id.values()))

    def __len__(self) -> int:
        return len(self._by_id)

    def iter_chunks(self) -> Iterator[list[Replica]]:
        """Yield all replicas in chunks of a size suitable for one event-loop iteration.

        Some of them may be abandoned by then.
        """
        replicas = list(self._by_id.values())
        for first in range(0, len(replicas), REPLICAS_PER_ITERATION):
            yield replicas[first : first + REPLICAS_PER_ITERATION]

    # Lookup

    def get_leader(self, topic: str, index: int) -> Replica:
        """Return an open replica that this node leads.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, or KAFKA_STORAGE_ERROR if its log is lost.
        """
        replica = self.find(topic, index)
        if replica is None or not replica.is_leader:
            raise self._build_not_hosted_error(self._store.image.topics.get(topic), index)
        replica.require_open_log()
        return replica

    def get_hosted_replica(self, topic: str, index: int) -> Replica:
        """Return an open replica that this node hosts in any role.

        Raises:
            KafkaError: As `get_leader`.
        """
        replica = self.find(topic, index)
        if replica is None:
            raise self._build_not_hosted_error(self._store.image.topics.get(topic), index)
        replica.require_open_log()
        return replica

    def get_leader_by_id(self, topic_id: bytes, index: int, *, include_hidden: bool = False) -> Replica:
        """Return an open replica that this node leads; with `include_hidden` also one of a topic being imported.

        Raises:
            KafkaError: UNKNOWN_TOPIC_ID, or as `get_leader`.
        """
        if self._outdated:
            self._apply_pending_partition_update(topic_id, index)
        replica = self._by_id.get((topic_id, index))
        if replica is None or not replica.is_leader or (replica.is_hidden and not include_hidden):
            image = self._store.image
            topic = (image.all_topics_by_id if include_hidden else image.topics_by_id).get(topic_id)
            raise (
                KafkaError(ErrorCode.UNKNOWN_TOPIC_ID) if topic is None else self._build_not_hosted_error(topic, index)
            )
        replica.require_open_log()
        return replica

    def find_lost_replica(self, topic: str, index: int) -> Replica | None:
        """Return the replica if this node leads it and its disk has lost all records, otherwise None."""
        replica = self.find(topic, index)
        if replica is None or not replica.is_leader:
            return None
        replica.open()
        return replica if replica.log.has_lost_all_records else None

    def iter_damaged_replicas(self) -> Iterator[tuple[Replica, str]]:
        """Yield the open replicas whose disks have lost records."""
        return (
            (replica, damage) for replica in self._by_id.values() if (damage := replica.damage_description) is not None
        )

    def _build_not_hosted_error(self, topic: Topic | None, index: int) -> KafkaError:
        if topic is None or not topic.has_partition(index):
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def find_led_replica(self, topic_id: bytes, index: int) -> Replica | None:
        """Return a replica that this node leads. Its log need not be open."""
        if self._outdated:
            self._apply_pending_partition_update(topic_id, index)
        replica = self._by_id.get((topic_id, index))
        return replica if replica is not None and replica.is_leader else None

    def find(self, topic: str, index: int) -> Replica | None:
        """Return a replica of this node by topic name, or None."""
        topic_id = self._topic_ids.get(topic)
        if topic_id is None:
            return None
        if self._outdated:
            self._apply_pending_partition_update(topic_id, index)
        return self._by_id.get((topic_id, index))

    # Metadata changes

    def apply_delta(self, delta: Delta) -> None:
        """Apply topic, broker and config changes of a metadata delta to the replicas."""
        if not self.registered.is_set():
            return
        for change in delta.topics:
            if change.new is not None:
                self._schedule_topic_update(change.new, change.old)
            elif change.old is not None:
                self._outdated.pop(change.old.id, None)
                self._delete_topic(change.old)
        if not self._is_catching_up:
            self._apply_pending_updates()
        if any(not change.created for change in delta.brokers):  # no request waits for a new broker
            for replica in self._by_id.values():
                replica.on_brokers_changed()
        if delta.broker_configs:
            for topic in self._store.image.all_topics_by_id.values():
                self._reconfigure_topic(topic)

    def _schedule_topic_update(self, topic: Topic, old: Topic | None) -> None:
        if not topic.importing:
            self._topic_ids[topic.name] = topic.id
            if old is not None and old.importing:
                self._make_topic_visible(topic)
        if topic.id in self._unknown:
            self._restore_quarantined_topic(topic)
        if old is None:
            old = msgspec.structs.replace(topic, partitions=())
        elif old.configs != topic.configs:
            self._reconfigure_topic(topic)
        self._outdated.setdefault(topic.id, old)

    def _make_topic_visible(self, topic: Topic) -> None:
        """Make the partitions of a topic visible to clients after its import has finished."""
        for index in range(len(topic.partitions)):
            if (replica := self._by_id.get((topic.id, index))) is not None:
                replica.is_hidden = False

    def _apply_pending_updates(self) -> None:
        """Apply the metadata image to a limited number of replicas in each event-loop iteration.

        When a broker starts or stops, all its partitions change, and there may be thousands.
        """
        left = CHANGES_PER_ITERATION
        while self._outdated and left > 0:
            left -= self._apply_image_to_topic(next(iter(self._outdated)), left)
        self._is_catching_up = bool(self._outdated)
        if self._outdated:
            asyncio.get_running_loop().call_soon(self._continue_pending_updates)

    def _continue_pending_updates(self) -> None:
        try:
            self._apply_pending_updates()
        except Exception as error:  # the event loop would only log it, and later replicas would keep their old roles
            self._on_fatal(error)

    def _apply_image_to_topic(self, topic_id: bytes, changes_max: int) -> int:
        """Apply the metadata image to at most `changes_max` partitions of a topic, and return their number."""
        old = self._outdated.pop(topic_id)
        topic = self._store.image.all_topics_by_id.get(topic_id)
        if topic is None:
            return 1
        changes = 0
        before, rules, now = (
            old.partitions,
            resolve_produce_rules(self._configs, topic.configs),
            self._clock.monotonic(),
        )
        for index, partition in enumerate(topic.partitions):
            if index < len(before) and before[index] == partition:
                continue
            if changes == changes_max:
                followed = topic.partitions[:index] + before[index:]
                self._outdated[topic_id] = msgspec.structs.replace(topic, partitions=followed)
                break
            changes += 1
            self._apply_replica_role(topic, index, rules, now)
        return max(changes, 1)

    def _apply_pending_partition_update(self, topic_id: bytes, index: int) -> None:
        """Apply the metadata image to one partition immediately, because a client has requested the partition."""
        topic = self._store.image.all_topics_by_id.get(topic_id)
        if topic_id in self._outdated and topic is not None and topic.has_partition(index):
            before = self._outdated[topic_id].partitions
            if index >= len(before) or before[index] != topic.partitions[index]:
                self._apply_replica_role(
                    topic, index, resolve_produce_rules(self._configs, topic.configs), self._clock.monotonic()
                )

    def start(self) -> None:
        """Become leader or follower of all assigned partitions, after the broker's registration."""
        self.registered.set()
        self._unknown = self._set_aside.list_topics()
        for topic in list(self._store.image.all_topics_by_id.values()):
            self._update_all_partitions(topic)
        self._quarantine_unknown_directories()

    def _update_all_partitions(self, topic: Topic) -> None:
        """Apply the metadata image to all partitions of a topic immediately."""
        self._schedule_topic_update(topic, None)
        self._outdated[topic.id] = msgspec.structs.replace(topic, partitions=())
        self._apply_image_to_topic(topic.id, len(topic.partitions))
        self._reconfigure_topic(topic)

    def _apply_replica_role(self, topic: Topic, index: int, rules: ProduceRules, now: float) -> None:
        key, partition = (topic.id, index), topic.partitions[index]
        replica = self._by_id.get(key)
        if self._node_id in partition.replicas:
            if key not in self.removals.pending_partitions:
                replica = replica or self._add(topic, index, rules)
                replica.assume_role(partition, now)
                self._notify_listeners(replica)
        elif replica is not None:
            self._remove_partitions(topic, [index], index)

    def _notify_listeners(self, replica: Replica) -> None:
        for listener in self.listeners:
            listener(replica)

    def _add(self, topic: Topic, index: int, rules: ProduceRules) -> Replica:
        replica = self._by_id[topic.id, index] = Replica(
            self._node_id,
            topic,
            index,
            rules,
            self._open_log,
            self._synced_offsets,
            self._flusher,
            self._recent_room,
            self._uncommitted,
            flush_each_append=self._flush_each_append,
        )
        return replica

    def _reconfigure_topic(self, topic: Topic) -> None:
        rules = resolve_produce_rules(self._configs, topic.configs)
        config = resolve_log_config(self._configs, topic.configs)
        for index in range(len(topic.partitions)):
            replica = self._by_id.get((topic.id, index))
            if replica is not None:
                replica.produce_rules = rules
                if replica.log_if_open is not None:
                    replica.log_if_open.config = config

    def _delete_topic(self, topic: Topic) -> None:
        if self._topic_ids.get(topic.name) == topic.id:
            del self._topic_ids[topic.name]
        self._remove_partitions(topic, range(len(topic.partitions)), None)

    def _remove_partitions(self, topic: Topic, indexes: Iterable[int], partition: int | None) -> None:
        """Remove the partitions of a deleted topic, or one partition that moved to other nodes."""
        abandoned = []
        for index in indexes:
            replica = self._by_id.pop((topic.id, index), None)
            if replica is not None:
                replica.abandon()
                self._notify_listeners(replica)
                self._synced_offsets.remove(topic.id, index)
                abandoned.append(replica)
        self.removals.add(topic.id, partition, abandoned)

    def _restore_returned_partitions(self, topic_id: bytes) -> None:
        """Add replicas of partitions that were assigned to this node again before their files were removed."""
        topic = self._store.image.all_topics_by_id.get(topic_id)
        if topic is not None and not self.is_stopping:
            self._update_all_partitions(topic)

    # Directories

    def _open_log(self, replica: Replica) -> PartitionLog:
        topic = self._store.image.all_topics_by_id[replica.topic_id]
        key = replica.topic_id, replica.index
        log = PartitionLog.open(
            self._cache.files,
            self._cache,
            f"{TOPICS_DIRECTORY}/{format_id(replica.topic_id)}/{replica.index}",
            resolve_log_config(self._configs, topic.configs),
            self._clock,
            self._synced_offsets.get(*key),
            lower_recovery_point=lambda offset: self._synced_offsets.lower(*key, offset),
            producer_limit=self._producer_limit,
        )
        if log.missing_start_offset is not None:
            self._report_damage(replica, log)
        return log

    def _report_damage(self, replica: Replica, log: PartitionLog) -> None:
        partition = self._store.image.all_topics_by_id[replica.topic_id].partitions[replica.index]
        logger.error("data loss detected: %s", format_missing_records(replica, log, self._node_id, partition.replicas))
        for listener in self.damage_listeners:
            listener(replica)

    def _quarantine_unknown_directories(self) -> None:
        """Quarantine the data of topics and partitions that the metadata does not contain.

        Expired directories are deleted.
        """
        files = self._cache.files
        known = {format_id(topic_id): topic_id for topic_id in self._store.image.all_topics_by_id}
        for name in files.list_directory(TOPICS_DIRECTORY):
            if name not in known:
                self._set_aside.quarantine_directory(name, self._find_deleting_cluster(), self._clock.now_ms())
                continue
            for index in files.list_directory(f"{TOPICS_DIRECTORY}/{name}"):
                key = (known[name], int(index) if is_partition_index(index) else -1)
                if is_partition_index(index) and key not in self._by_id and key not in self.removals.pending_partitions:
                    cluster_id = self._find_deleting_cluster()
                    self._set_aside.quarantine_directory(f"{name}/{index}", cluster_id, self._clock.now_ms())
                    self._synced_offsets.remove(*key)  # if the partition returns, it starts empty
        self.delete_expired_directories()

    def delete_expired_directories(self) -> None:
        """Delete quarantined directories of deleted topics after their retention time. Called periodically."""
        if (cluster_id := self._find_deleting_cluster()) is not None:
            self._set_aside.delete_expired_directories(cluster_id, self._clock.now_ms())
        self.removals.schedule_deletions()

    def _restore_quarantined_topic(self, topic: Topic) -> None:
        """Restore a quarantined topic that exists in the cluster again, before its logs are opened."""
        own = [index for index, partition in enumerate(topic.partitions) if self._node_id in partition.replicas]
        unopened = [index for index in own if (topic.id, index) not in self._by_id]
        self._set_aside.restore(self._unknown.pop(topic.id), unopened)

    def fail_waiters(self) -> None:
        """Fail the requests that wait for followers in partitions that this node leads, because it is fenced."""
        for replica in self:
            if replica.is_leader:
                replica.fail_waiters()

    def wake_fetches(self) -> None:
        """Complete all waiting fetches, and let later fetches return immediately, because the node is stopping."""
        self.is_stopping = True
        for replica in self:
            replica.wake_fetches()

    def close(self) -> None:
        """Close all logs. No sync may be in progress."""
        for replica in self._by_id.values():
            replica.close()
        self.removals.close()


async def run_in_thread(work: Callable[[], T]) -> T:
    """Run a blocking function in a thread; if cancelled, wait until the thread is done.

    Otherwise a stopping node would close the files that the thread uses.
    """
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise


def format_missing_records(replica: Replica, log: PartitionLog, node_id: int, replicas: Sequence[int]) -> str:
    """Return the log message about records that are missing on the replica's disk."""
    missing = (
        f"{replica!r}: synced records are missing on disk: offsets {log.missing_start_offset} to "
        f"{log.missing_end_offset - 1}"
        f" directory={log.directory}"
    )
    if not log.has_lost_all_records:
        return missing
    return (
        f"{missing}; the replica serves no reads and writes until other replicas refill it. Restore the files"
        " and restart the node, or abandon the records with `chronik topics begin-anew`"
    ) + _format_reelection_steps(replica, node_id, replicas)


def _format_reelection_steps(replica: Replica, node_id: int, replicas: Sequence[int]) -> str:
    """Return instructions for re-electing this node, or an empty string if it hosts the only replica.

    An unclean election elects the first replica that is online, and other replicas have fewer records than the last
    in-sync replica.
    """
    if len(replicas) == 1:
        return ""
    order = ",".join(map(str, sorted(replicas, key=lambda each: each != node_id)))
    name, index = replica.topic_name, replica.index
    return (
        ". If the partition has no leader after that, and this node was the last in-sync replica:"
        f" `chronik topics reassign {name} {index}:{order}` makes it the first of the replicas, and"
        f" `chronik topics elect-leaders --topic {name} --partition {index} --unclean` elects it"
    )
