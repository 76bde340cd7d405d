"""The partitions of this node, kept as the metadata image has them: it reacts to deltas and decides nothing itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from chronik.broker.damage import what_is_gone
from chronik.broker.flusher import Flusher
from chronik.broker.recent import RecentRoom
from chronik.broker.removals import Removals
from chronik.broker.replica import Replica
from chronik.broker.requests.incoming import IncomingRules
from chronik.broker.set_aside import TOPICS_FOLDER, SetAside, is_index
from chronik.broker.topic_settings import incoming_rules, log_config
from chronik.broker.uncommitted import NodeUncommitted
from chronik.clock import Clock
from chronik.configs.resolver import ConfigResolver
from chronik.files import FileCache
from chronik.ids import format_id
from chronik.log.files.synced import SyncedOffsets
from chronik.log.partition import PartitionLog
from chronik.log.producers import ProducerLimit
from chronik.metadata.delta import Delta
from chronik.metadata.records import Topic
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger("chronik.broker")

REPLICAS_PER_TURN: Final = 250
"""How many partitions are looked at in one turn of the loop, of which there may be tens of thousands: each takes 1 to
5 µs."""

CHANGES_PER_TURN: Final = 500
"""How many partitions follow a change of the image in one turn: 5 to 10 µs each, and more if a term ends or begins."""


class Replicas:
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
        deletions_of: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`on_fatal` hears of what goes wrong in a turn that nobody waits for: the node cannot go on then.
        `deletions_of` names the cluster that has deleted a topic which is unknown now, if that is certain."""
        self._node_id = node_id
        self._store = store
        self._configs = configs
        self._cache = cache
        self._synced_offsets = synced_offsets
        self._clock = clock
        self._flusher = flusher
        self._flush_each_append = flush_each_append
        self._on_fatal = on_fatal
        self._deletions_of = deletions_of
        self._set_aside = SetAside(cache.files)
        self._unknown: dict[bytes, str] = {}
        self._recent_room = RecentRoom()
        self._uncommitted = NodeUncommitted()
        self._producer_limit = ProducerLimit()
        self._by_id: dict[tuple[bytes, int], Replica] = {}
        self._topic_ids: dict[str, bytes] = {}
        self.removals: Final = Removals(cache, self._set_aside, self._may_be_back)
        self.began: Final = asyncio.Event()
        """Whether this run of the broker is registered. Before that a node of a cluster sees once more what it had
        applied in its last run: roles that are over, and partitions that left and have come back since."""
        self.listeners: list[Callable[[Replica], None]] = []
        """Called with each replica that has come, changed its role, or gone."""
        self.damage_listeners: list[Callable[[Replica], None]] = []
        """Called with each replica whose log, when it is opened, is found to have lost what was once synced."""
        self._behind: dict[bytes, Topic] = {}
        """Topics whose partitions have yet to follow the image, as they were when they last did."""
        self._is_catching_up = False
        self.stopping = False
        """Whether the node stops: nobody waits for records any more."""

    def __iter__(self) -> Iterator[Replica]:
        return iter(list(self._by_id.values()))

    def __len__(self) -> int:
        return len(self._by_id)

    def in_pieces(self) -> Iterator[list[Replica]]:
        """Yields all replicas, as many at a time as may be looked at in one turn of the loop. When the turn of a piece
        comes, some of it may be abandoned."""
        replicas = list(self._by_id.values())
        for first in range(0, len(replicas), REPLICAS_PER_TURN):
            yield replicas[first : first + REPLICAS_PER_TURN]

    # Finding one

    def by_name(self, topic: str, index: int) -> Replica:
        """Returns an open replica that this node leads. Raises UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, and
        KAFKA_STORAGE_ERROR when its log is lost."""
        replica = self.get(topic, index)
        if replica is None or not replica.leads:
            raise self._not_here(self._store.image.topics.get(topic), index)
        replica.open_unless_lost()
        return replica

    def held(self, topic: str, index: int) -> Replica:
        """Returns an open replica, whoever leads it. Raises as `by_name` does."""
        replica = self.get(topic, index)
        if replica is None:
            raise self._not_here(self._store.image.topics.get(topic), index)
        replica.open_unless_lost()
        return replica

    def by_id(self, topic_id: bytes, index: int, *, hidden_too: bool = False) -> Replica:
        """Returns an open replica that this node leads; with `hidden_too` also of a topic that is being imported.
        Raises UNKNOWN_TOPIC_ID or as `by_name` does."""
        if self._behind:
            self._catch_up_at_once(topic_id, index)
        replica = self._by_id.get((topic_id, index))
        if replica is None or not replica.leads or (replica.is_hidden and not hidden_too):
            image = self._store.image
            topic = (image.held_topics if hidden_too else image.topics_by_id).get(topic_id)
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID) if topic is None else self._not_here(topic, index)
        replica.open_unless_lost()
        return replica

    def lost(self, topic: str, index: int) -> Replica | None:
        """Returns a replica that this node leads, if its disk has lost everything of it."""
        replica = self.get(topic, index)
        if replica is None or not replica.leads:
            return None
        replica.open()
        return replica if replica.log.is_lost else None

    def damages(self) -> Iterator[tuple[Replica, str]]:
        """Yields what disks have lost, as far as logs are open, which all are soon after the start."""
        return ((replica, damage) for replica in self._by_id.values() if (damage := replica.damage) is not None)

    def _not_here(self, topic: Topic | None, index: int) -> KafkaError:
        if topic is None or not topic.has_partition(index):
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def led(self, topic_id: bytes, index: int) -> Replica | None:
        """Returns a replica that this node leads, open or not."""
        if self._behind:
            self._catch_up_at_once(topic_id, index)
        replica = self._by_id.get((topic_id, index))
        return replica if replica is not None and replica.leads else None

    def get(self, topic: str, index: int) -> Replica | None:
        topic_id = self._topic_ids.get(topic)
        if topic_id is None:
            return None
        if self._behind:
            self._catch_up_at_once(topic_id, index)
        return self._by_id.get((topic_id, index))

    # Following the image

    def apply(self, delta: Delta) -> None:
        if not self.began.is_set():
            return
        for change in delta.topics:
            if change.new is not None:
                self._will_follow(change.new, change.old)
            elif change.old is not None:
                self._behind.pop(change.old.id, None)
                self._delete(change.old)
        if not self._is_catching_up:
            self._catch_up()
        if any(not change.created for change in delta.brokers):  # nobody waits for one that was never there
            for replica in self._by_id.values():
                replica.brokers_changed()
        if delta.broker_configs:
            for topic in self._store.image.held_topics.values():
                self._reconfigure(topic)

    def _will_follow(self, topic: Topic, old: Topic | None) -> None:
        if not topic.importing:
            self._topic_ids[topic.name] = topic.id
            if old is not None and old.importing:
                self._show(topic)
        if topic.id in self._unknown:
            self._bring_back(topic)
        if old is None:
            old = msgspec.structs.replace(topic, partitions=())
        elif old.configs != topic.configs:
            self._reconfigure(topic)
        self._behind.setdefault(topic.id, old)

    def _show(self, topic: Topic) -> None:
        """Opens the partitions of a topic to clients: its import is finished."""
        for index in range(len(topic.partitions)):
            if (replica := self._by_id.get((topic.id, index))) is not None:
                replica.is_hidden = False

    def _catch_up(self) -> None:
        """Gives some partitions their new role now, and the others in the next turns of the loop, or when a request
        asks for one: a broker that goes or comes changes all its partitions at once, and there may be thousands."""
        left = CHANGES_PER_TURN
        while self._behind and left > 0:
            left -= self._follow(next(iter(self._behind)), left)
        self._is_catching_up = bool(self._behind)
        if self._behind:
            asyncio.get_running_loop().call_soon(self._go_on_catching_up)

    def _go_on_catching_up(self) -> None:
        try:
            self._catch_up()
        except Exception as error:  # the loop would only write it down, and the others would keep their old roles
            self._on_fatal(error)

    def _follow(self, topic_id: bytes, changes_max: int) -> int:
        """Returns how many partitions have changed, at least 1. Those that have not changed are left alone."""
        old = self._behind.pop(topic_id)
        topic = self._store.image.held_topics.get(topic_id)
        if topic is None:
            return 1
        changes = 0
        before, rules, now = old.partitions, incoming_rules(self._configs, topic.configs), self._clock.monotonic()
        for index, partition in enumerate(topic.partitions):
            if index < len(before) and before[index] == partition:
                continue
            if changes == changes_max:
                followed = topic.partitions[:index] + before[index:]
                self._behind[topic_id] = msgspec.structs.replace(topic, partitions=followed)
                break
            changes += 1
            self._take_role(topic, index, rules, now)
        return max(changes, 1)

    def _catch_up_at_once(self, topic_id: bytes, index: int) -> None:
        """Gives a partition that is asked for its role now. When its turn comes, it takes the same role once more."""
        topic = self._store.image.held_topics.get(topic_id)
        if topic_id in self._behind and topic is not None and topic.has_partition(index):
            before = self._behind[topic_id].partitions
            if index >= len(before) or before[index] != topic.partitions[index]:
                self._take_role(topic, index, incoming_rules(self._configs, topic.configs), self._clock.monotonic())

    def begin(self) -> None:
        """Gives the partitions their roles: this run of the broker is in the image."""
        self.began.set()
        self._unknown = self._set_aside.unknown_topics()
        for topic in list(self._store.image.held_topics.values()):
            self._update(topic)
        self._tidy_folders()

    def _update(self, topic: Topic) -> None:
        """Gives all partitions of the topic their roles, now."""
        self._will_follow(topic, None)
        self._behind[topic.id] = msgspec.structs.replace(topic, partitions=())
        self._follow(topic.id, len(topic.partitions))
        self._reconfigure(topic)

    def _take_role(self, topic: Topic, index: int, rules: IncomingRules, now: float) -> None:
        key, partition = (topic.id, index), topic.partitions[index]
        replica = self._by_id.get(key)
        if self._node_id in partition.replicas:
            if key not in self.removals.leaving:
                replica = replica or self._add(topic, index, rules)
                replica.assume(partition, now)
                self._tell(replica)
        elif replica is not None:
            self._remove(topic, [index], index)

    def _tell(self, replica: Replica) -> None:
        for listener in self.listeners:
            listener(replica)

    def _add(self, topic: Topic, index: int, rules: IncomingRules) -> Replica:
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

    def _reconfigure(self, topic: Topic) -> None:
        rules = incoming_rules(self._configs, topic.configs)
        config = log_config(self._configs, topic.configs)
        for index in range(len(topic.partitions)):
            replica = self._by_id.get((topic.id, index))
            if replica is not None:
                replica.rules = rules
                if replica.opened_log is not None:
                    replica.opened_log.config = config

    def _delete(self, topic: Topic) -> None:
        if self._topic_ids.get(topic.name) == topic.id:
            del self._topic_ids[topic.name]
        self._remove(topic, range(len(topic.partitions)), None)

    def _remove(self, topic: Topic, indexes: Iterable[int], partition: int | None) -> None:
        """Removes the partitions of a deleted topic, or one that has moved to other nodes."""
        abandoned = []
        for index in indexes:
            replica = self._by_id.pop((topic.id, index), None)
            if replica is not None:
                replica.abandon()
                self._tell(replica)
                self._synced_offsets.remove(topic.id, index)
                abandoned.append(replica)
        self.removals.add(topic.id, partition, abandoned)

    def _may_be_back(self, topic_id: bytes) -> None:
        """Files of a partition that had moved away are gone: it may have come back meanwhile."""
        topic = self._store.image.held_topics.get(topic_id)
        if topic is not None and not self.stopping:
            self._update(topic)

    # Folders

    def _open_log(self, replica: Replica) -> PartitionLog:
        topic = self._store.image.held_topics[replica.topic_id]
        key = replica.topic_id, replica.index
        log = PartitionLog.open(
            self._cache.files,
            self._cache,
            f"{TOPICS_FOLDER}/{format_id(replica.topic_id)}/{replica.index}",
            log_config(self._configs, topic.configs),
            self._clock,
            self._synced_offsets.get(*key),
            lower_recovery_point=lambda offset: self._synced_offsets.lower(*key, offset),
            producer_limit=self._producer_limit,
        )
        if log.missing_from is not None:
            self._report_damage(replica, log)
        return log

    def _report_damage(self, replica: Replica, log: PartitionLog) -> None:
        partition = self._store.image.held_topics[replica.topic_id].partitions[replica.index]
        logger.error("%s", what_is_gone(replica, log, self._node_id, partition.replicas))
        for listener in self.damage_listeners:
            listener(replica)

    def _tidy_folders(self) -> None:
        """Sets aside, at the start, folders of topics or partitions that do not belong here, and never deletes them;
        removes those of deleted topics."""
        files = self._cache.files
        known = {format_id(topic_id): topic_id for topic_id in self._store.image.held_topics}
        for name in files.list_folder(TOPICS_FOLDER):
            if name not in known:
                self._set_aside.put_unknown(name, self._deletions_of(), self._clock.now_ms())
                continue
            for index in files.list_folder(f"{TOPICS_FOLDER}/{name}"):
                key = (known[name], int(index) if is_index(index) else -1)
                if is_index(index) and key not in self._by_id and key not in self.removals.leaving:
                    self._set_aside.put_unknown(f"{name}/{index}", self._deletions_of(), self._clock.now_ms())
                    self._synced_offsets.remove(*key)  # should it come here again, it comes with nothing
        self.give_up_expired()

    def give_up_expired(self) -> None:
        """Is called from time to time: removes what was set aside as deleted, when its time is over."""
        if (cluster_id := self._deletions_of()) is not None:
            self._set_aside.give_up_expired(cluster_id, self._clock.now_ms())
        self.removals.look_for_deleted()

    def _bring_back(self, topic: Topic) -> None:
        """Brings back, before its logs are opened, a topic that was set aside because of the wrong metadata."""
        own = [index for index, partition in enumerate(topic.partitions) if self._node_id in partition.replicas]
        unopened = [index for index in own if (topic.id, index) not in self._by_id]
        self._set_aside.bring_back(self._unknown.pop(topic.id), unopened)

    def end_waits(self) -> None:
        """Ends all waits at once: this node is fenced."""
        for replica in self:
            if replica.leads:
                replica.end_waits()

    def stop_waiting(self) -> None:
        """Answers fetches that wait with what there is, and from now on those that come, too."""
        self.stopping = True
        for replica in self:
            replica.stop_waiting()

    def close(self) -> None:
        """Closes all logs. No sync may be under way any more."""
        for replica in self._by_id.values():
            replica.close()
        self.removals.close()
