"""The only code that modifies an image: it keeps tables, indexes and the state hash consistent and records changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from sys import intern
from typing import Final

from msgspec.structs import replace

from chronik.errors import check_invariant
from chronik.metadata import hashing
from chronik.metadata.delta import Delta, RecordChange, sort_topic_changes
from chronik.metadata.hashing import (
    HASH_MASK,
    compute_broker_hash,
    compute_committed_offset_hash,
    compute_node_hash,
    compute_partitions_hash,
    compute_results_hash,
    compute_session_hash,
    compute_topic_hash,
    compute_transaction_hash,
    compute_transaction_partitions_hash,
    record_hash,
)
from chronik.metadata.image import Image
from chronik.metadata.names import format_topic_metric_name
from chronik.metadata.records import (
    NO_CONFIGS,
    Acl,
    ApplyResult,
    Broker,
    CommittedOffset,
    Entity,
    Group,
    ImportState,
    NodeRecord,
    Partition,
    QuotaValues,
    SaltSecret,
    ScramCredential,
    StagedOffset,
    Topic,
    Transaction,
    TransactionPartition,
)
from chronik.metadata.schemas import SchemaContext, SchemaKey, SchemaSettings, StoredSchema, StoredSubject
from chronik.metadata.sessions import INCARNATIONS_REMEMBERED_MAX, RESULTS_KEPT_MAX, CommandSession, SessionRecord

OFFSETS_APPENDED_MIN: Final = 8
"""The number of committed offsets from which on appending them in bulk is faster than storing them one by one."""


class ImageWriter:
    """A writer that applies the changes of one metadata command to an image and records them for the delta."""

    def __init__(self, image: Image) -> None:
        self.image = image
        self._hash_change = 0
        self._old_topics: dict[bytes, Topic | None] = {}
        self._old_brokers: dict[int, Broker | None] = {}
        self._old_nodes: dict[int, NodeRecord | None] = {}
        self._old_groups: dict[str, Group | None] = {}
        self._broker_configs: dict[int, None] = {}
        self._group_configs: dict[str, None] = {}
        self._offset_groups: dict[str, None] = {}
        self._checkpoints: dict[str, None] = {}
        self._features: dict[str, None] = {}
        self._old_transactions: dict[str, Transaction | None] = {}
        self._old_acls: dict[Acl, Acl | None] = {}
        self._quotas: dict[Entity, None] = {}
        self._users: dict[str, None] = {}
        self._subjects: dict[str, None] = {}
        self._schema_settings: dict[str, None] = {}

    # --- cluster and nodes ---

    def set_cluster_id(self, cluster_id: str) -> None:
        check_invariant(not self.image._cluster_id, "the cluster has an id already")
        self.image._cluster_id = cluster_id
        self._hash_change += record_hash(hashing.CLUSTER, cluster_id)

    def set_next_producer_id(self, next_id: int) -> None:
        image = self.image
        if image._next_producer_id:
            self._hash_change -= record_hash(hashing.PRODUCER_IDS, image._next_producer_id)
        if next_id:
            self._hash_change += record_hash(hashing.PRODUCER_IDS, next_id)
        image._next_producer_id = next_id

    def put_node(self, node: NodeRecord) -> None:
        old = self.image._nodes.get(node.id)
        self._old_nodes.setdefault(node.id, old)
        self._hash_change += compute_node_hash(node)
        if old is not None:
            self._hash_change -= compute_node_hash(old)
        self.image._nodes[node.id] = node

    def remove_node(self, node_id: int) -> None:
        old = self.image._nodes.pop(node_id)
        self._old_nodes.setdefault(node_id, old)
        self._hash_change -= compute_node_hash(old)

    def set_feature(self, name: str, level: int) -> None:
        features = self.image._features
        if name in features:
            self._hash_change -= record_hash(hashing.FEATURE, name, features.pop(name))
        if level:
            features[name] = level
            self._hash_change += record_hash(hashing.FEATURE, name, level)
        self._features[name] = None

    # --- brokers ---

    def put_broker(self, broker: Broker) -> None:
        old = self.image._brokers.get(broker.id)
        self._old_brokers.setdefault(broker.id, old)
        self._hash_change += compute_broker_hash(broker)
        if old is not None:
            self._hash_change -= compute_broker_hash(old)
        self.image._brokers[broker.id] = broker

    def remove_broker(self, broker_id: int) -> None:
        old = self.image._brokers.pop(broker_id)
        self._old_brokers.setdefault(broker_id, old)
        self._hash_change -= compute_broker_hash(old)

    def set_broker_configs(self, broker_id: int, configs: dict[str, str]) -> None:
        tables = self.image._broker_configs
        if broker_id in tables:
            self._hash_change -= record_hash(hashing.BROKER_CONFIG, broker_id, tables.pop(broker_id))
        if configs:
            tables[broker_id] = configs
            self._hash_change += record_hash(hashing.BROKER_CONFIG, broker_id, configs)
        self._broker_configs[broker_id] = None

    # --- topics ---

    def add_topic(self, topic: Topic) -> None:
        image = self.image
        is_new = topic.name not in image._topics and topic.id not in image._held_topics
        check_invariant(is_new and topic.name not in image._importing, f"{topic.name} exists")
        self._old_topics.setdefault(topic.id, None)
        if not topic.configs and topic.configs is not NO_CONFIGS:
            topic = replace(topic, configs=NO_CONFIGS)
        image._names_by_metric[format_topic_metric_name(topic.name)] = topic.name
        image._partition_index.add(topic.id, topic.partitions)
        self._store_topic(topic)
        self._hash_change += compute_topic_hash(topic) + compute_partitions_hash(topic.id, 0, topic.partitions)

    def remove_topic(self, topic: Topic) -> None:
        image = self.image
        self._old_topics.setdefault(topic.id, topic)
        if topic.importing:
            self._remove_importing_topic(topic)
        else:
            del image._topics[topic.name]
        del image._held_topics[topic.id], image._names_by_metric[format_topic_metric_name(topic.name)]
        image._topics_by_id.pop(topic.id, None)
        image._partition_index.remove(topic.id, topic.partitions)
        self._hash_change -= compute_topic_hash(topic) + compute_partitions_hash(topic.id, 0, topic.partitions)

    def publish_imported_topic(self, topic: Topic) -> None:
        """Make a topic visible to clients at the end of its import."""
        new = replace(topic, importing=False)
        self._old_topics.setdefault(topic.id, topic)
        self._hash_change += compute_topic_hash(new) - compute_topic_hash(topic)
        self._store_topic(new)
        self._remove_importing_topic(topic)

    def set_import_state(self, imported: ImportState | None) -> None:
        old = self.image._import
        if old is not None:
            self._hash_change -= record_hash(hashing.IMPORT, old)
        if imported is not None:
            self._hash_change += record_hash(hashing.IMPORT, imported)
        self.image._import = imported

    def set_topic_configs(self, topic: Topic, configs: dict[str, str], changed_ms: int) -> None:
        new = replace(topic, configs=configs, changed_ms=changed_ms)
        self._old_topics.setdefault(topic.id, topic)
        self._hash_change += compute_topic_hash(new) - compute_topic_hash(topic)
        self._store_topic(new)

    def add_partitions(self, topic: Topic, partitions: Sequence[Partition], changed_ms: int) -> None:
        new = replace(topic, partitions=(*topic.partitions, *partitions), changed_ms=changed_ms)
        self._old_topics.setdefault(topic.id, topic)
        self._hash_change += compute_partitions_hash(topic.id, len(topic.partitions), partitions)
        self._hash_change += compute_topic_hash(new) - compute_topic_hash(topic)
        self.image._partition_index.add(topic.id, partitions)
        self._store_topic(new)

    def set_partitions(self, topic: Topic, changes: Mapping[int, Partition], *, checkpoint: bool = False) -> None:
        """Replace partitions of a topic. With `checkpoint`, only high watermarks and log start offsets have changed."""
        if checkpoint:
            self._checkpoints[topic.name] = None
        else:
            self._old_topics.setdefault(topic.id, topic)
        partitions = list(topic.partitions)
        for index, partition in changes.items():
            self._hash_change += hashing.compute_partition_hash(topic.id, index, partition)
            self._hash_change -= hashing.compute_partition_hash(topic.id, index, partitions[index])
            self.image._partition_index.update(topic.id, partitions[index], partition)
            partitions[index] = partition
        self._store_topic(replace(topic, partitions=tuple(partitions)))

    def _store_topic(self, topic: Topic) -> None:
        image = self.image
        if topic.importing and image._topics_by_id is image._held_topics:
            image._topics_by_id = dict(image._held_topics)
        image._held_topics[topic.id] = topic
        if topic.importing:
            image._importing[topic.name] = topic
        else:
            image._topics[topic.name] = topic
            image._topics_by_id[topic.id] = topic

    def _remove_importing_topic(self, topic: Topic) -> None:
        image = self.image
        del image._importing[topic.name]
        if not image._importing:
            image._topics_by_id = image._held_topics

    # --- groups and offsets ---

    def set_group_configs(self, group_id: str, configs: dict[str, str]) -> None:
        tables = self.image._group_configs
        if group_id in tables:
            self._hash_change -= record_hash(hashing.GROUP_CONFIG, group_id, tables.pop(group_id))
        if configs:
            tables[group_id] = configs
            self._hash_change += record_hash(hashing.GROUP_CONFIG, group_id, configs)
        self._group_configs[group_id] = None

    def put_group(self, group: Group) -> None:
        group = _intern_group_strings(group)
        old = self.image._groups.get(group.group_id)
        self._old_groups.setdefault(group.group_id, old)
        self._hash_change += record_hash(hashing.GROUP, group)
        if old is not None:
            self._hash_change -= record_hash(hashing.GROUP, old)
        self.image._groups[group.group_id] = group

    def remove_group(self, group_id: str) -> None:
        old = self.image._groups.pop(group_id)
        self._old_groups.setdefault(group_id, old)
        self._hash_change -= record_hash(hashing.GROUP, old)

    def put_offset(self, group_id: str, topic: str, partition: int, committed: CommittedOffset) -> None:
        digest = compute_committed_offset_hash(group_id, topic, partition, committed)
        replaced = self.image._offsets.put(group_id, topic, partition, committed, digest)
        self._hash_change += int.from_bytes(digest, "little")
        if replaced is not None:
            self._hash_change -= int.from_bytes(replaced, "little")
        self._offset_groups[group_id] = None

    def put_offsets(self, group_id: str, topic: str, offsets: Sequence[tuple[int, CommittedOffset]]) -> None:
        """Store the offsets of one topic, sorted by partition as in a snapshot."""
        if len(offsets) >= OFFSETS_APPENDED_MIN:
            digests = [compute_committed_offset_hash(group_id, topic, *each) for each in offsets]
            if self.image._offsets.append(group_id, topic, offsets, digests):
                self._hash_change += sum(int.from_bytes(digest, "little") for digest in digests)
                self._offset_groups[group_id] = None
                return
        for partition, committed in offsets:
            self.put_offset(group_id, topic, partition, committed)

    def remove_offset(self, group_id: str, topic: str, partition: int) -> None:
        self._hash_change -= self.image._offsets.remove(group_id, topic, partition)
        self._offset_groups[group_id] = None

    def remove_offsets_of_topic(self, group_id: str, topic: str) -> None:
        """Remove all offsets that the group has committed for the topic."""
        self._hash_change -= self.image._offsets.remove_topic(group_id, topic)
        self._offset_groups[group_id] = None

    def remove_offsets_of_group(self, group_id: str) -> None:
        """Remove all offsets that the group has committed."""
        if self.image.offsets(group_id):
            self._hash_change -= self.image._offsets.remove_group(group_id)
            self._offset_groups[group_id] = None

    # --- transactions and staged offsets ---

    def put_transaction(self, transaction: Transaction) -> None:
        """Store a transaction record. If partitions were only appended, hash only the appended partitions."""
        key, table = transaction.transactional_id, self.image._transactions
        old = table.by_id.get(key)
        self._old_transactions.setdefault(key, old)
        self._hash_change += compute_transaction_hash(transaction)
        before: tuple[TransactionPartition, ...] = ()
        if old is not None:
            before = old.partitions
            self._hash_change -= compute_transaction_hash(old)
        after = transaction.partitions
        if after[: len(before)] == before:
            self._hash_change += compute_transaction_partitions_hash(key, after[len(before) :])
        else:
            self._hash_change += compute_transaction_partitions_hash(key, after) - compute_transaction_partitions_hash(
                key, before
            )
        table.put(transaction)

    def remove_transaction(self, transactional_id: str) -> None:
        old = self.image._transactions.by_id[transactional_id]
        self._old_transactions.setdefault(transactional_id, old)
        self._hash_change -= compute_transaction_hash(old) + compute_transaction_partitions_hash(
            transactional_id, old.partitions
        )
        self.image._transactions.remove(transactional_id)

    def put_staged_offset(
        self, group_id: str, producer_id: int, topic: str, partition: int, staged: StagedOffset
    ) -> None:
        if self.image._staged.get(group_id, producer_id, topic, partition) is not None:
            self.remove_staged_offset(group_id, producer_id, topic, partition)
        self._hash_change += record_hash(hashing.STAGED_OFFSET, group_id, producer_id, topic, partition, staged)
        self.image._staged.put(group_id, producer_id, topic, partition, staged)

    def remove_staged_offset(self, group_id: str, producer_id: int, topic: str, partition: int) -> None:
        old = self.image._staged.get(group_id, producer_id, topic, partition)
        self._hash_change -= record_hash(hashing.STAGED_OFFSET, group_id, producer_id, topic, partition, old)
        self.image._staged.remove(group_id, producer_id, topic, partition)

    def set_commit_hold_index(self, hold: int) -> None:
        for each, sign in ((self.image._commits_hold, -1), (hold, 1)):
            if each:
                self._hash_change += sign * record_hash(hashing.HOLD, each)
        self.image._commits_hold = hold

    def remove_staged_offsets_before(self, group_id: str, topic: str, partition: int, index: int) -> None:
        """Remove the offsets staged for a partition before `index`: a later commit overrides them."""
        for producer_id, offsets in list(self.image.get_staged_offsets(group_id).items()):
            staged = offsets.get((topic, partition))
            if staged is not None and staged.index < index:
                self.remove_staged_offset(group_id, producer_id, topic, partition)

    def remove_staged_offsets_of_topic(self, topic: str) -> None:
        """Remove the offsets staged for a topic."""
        for group_id in self.image._staged.find_groups_with_topic(topic):
            for producer_id, offsets in list(self.image.get_staged_offsets(group_id).items()):
                for name, partition in [key for key in offsets if key[0] == topic]:
                    self.remove_staged_offset(group_id, producer_id, name, partition)

    # --- users ---

    def put_credential(self, credential: ScramCredential) -> None:
        self._users[credential.name] = None
        old = self.image._users.put(credential)
        self._hash_change += record_hash(hashing.USER, credential)
        if old is not None:
            self._hash_change -= record_hash(hashing.USER, old)

    def remove_credential(self, name: str, mechanism: int) -> None:
        self._users[name] = None
        self._hash_change -= record_hash(hashing.USER, self.image._users.remove(name, mechanism))

    def set_salt_secret(self, secret: bytes) -> None:
        check_invariant(not self.image._salt_secret, "the cluster has a secret already")
        self.image._salt_secret = secret
        self._hash_change += record_hash(hashing.SALT_SECRET, SaltSecret(secret))

    # --- ACLs ---

    def add_acl(self, acl: Acl) -> None:
        self._old_acls.setdefault(acl, None)
        self.image._acls[acl] = None
        self._hash_change += record_hash(hashing.ACL, acl)

    def remove_acl(self, acl: Acl) -> None:
        self._old_acls.setdefault(acl, acl)
        del self.image._acls[acl]
        self._hash_change -= record_hash(hashing.ACL, acl)

    # --- quotas ---

    def set_quotas(self, entity: Entity, values: QuotaValues) -> None:
        """Replace the quotas of an entity. Empty values remove them."""
        for each, sign in ((self.image._quotas.pop(entity, None), -1), (values, 1)):
            if each:
                self._hash_change += sign * record_hash(hashing.QUOTA, entity, each)
        if values:
            self.image._quotas[entity] = values
        self._quotas[entity] = None

    # --- schema registry ---

    def add_schema(self, schema: StoredSchema) -> None:
        """Add a schema. The caller also adds a version of a subject that has it."""
        own_hash = record_hash(hashing.SCHEMA, schema)
        self.image._schemas._add_schema(schema, own_hash)
        self._hash_change += own_hash

    def remove_schema(self, key: SchemaKey) -> None:
        """Remove a schema that no version of a subject has any more."""
        check_invariant(not self.image._schemas.versions_with_schema(key), f"schema {key} is in use")
        self._hash_change -= self.image._schemas._remove_schema(key)

    def put_subject(self, subject: StoredSubject) -> None:
        self._subjects[subject.name] = None
        old = self.image._schemas._put_subject(subject)
        self._hash_change += record_hash(hashing.SUBJECT, subject)
        if old is not None:
            self._hash_change -= record_hash(hashing.SUBJECT, old)

    def remove_subject(self, name: str) -> None:
        self._subjects[name] = None
        self._hash_change -= record_hash(hashing.SUBJECT, self.image._schemas._remove_subject(name))

    def put_schema_settings(self, settings: SchemaSettings) -> None:
        """Replace the config and mode of a subject or context. If both are empty, the record is removed."""
        self._schema_settings[settings.name] = None
        table = self.image._schemas
        if settings.name in table.settings:
            self._hash_change -= record_hash(hashing.SCHEMA_SETTINGS, table._remove_settings(settings.name))
        if settings.config or settings.mode:
            table._put_settings(settings)
            self._hash_change += record_hash(hashing.SCHEMA_SETTINGS, settings)

    def put_schema_context(self, context: SchemaContext) -> None:
        self._schema_settings[context.name] = None
        old = self.image._schemas._put_context(context)
        self._hash_change += record_hash(hashing.SCHEMA_CONTEXT, context)
        if old is not None:
            self._hash_change -= record_hash(hashing.SCHEMA_CONTEXT, old)

    # --- sessions ---

    def store_result(self, node_id: int, incarnation: bytes, sequence: int, answered: int, result: ApplyResult) -> None:
        """Store a command's result in its node's command session, from which a retry of the command gets it."""
        session = self._get_or_create_session(node_id, incarnation)
        session.results[sequence] = result
        self._hash_change += record_hash(hashing.SESSION_RESULT, node_id, sequence, result)
        if len(session.results) > RESULTS_KEPT_MAX:
            answered = max(answered, min(session.results))
        if answered > session.floor:
            self._discard_results_through(session, answered)

    def restore_session(self, record: SessionRecord) -> None:
        session = CommandSession(record.node_id, record.incarnation, record.floor, record.past, dict(record.results))
        self.image._sessions[session.node_id] = session
        self._hash_change += compute_session_hash(session) + compute_results_hash(
            session.node_id, session.results.items()
        )

    def _get_or_create_session(self, node_id: int, incarnation: bytes) -> CommandSession:
        known = self.image._sessions.get(node_id)
        if known is not None and known.incarnation == incarnation:
            return known
        past: tuple[bytes, ...] = ()
        if known is not None:
            self._hash_change -= compute_session_hash(known) + compute_results_hash(node_id, known.results.items())
            past = (known.incarnation, *known.past)[:INCARNATIONS_REMEMBERED_MAX]
        session = CommandSession(node_id, incarnation, past=past)
        self.image._sessions[node_id] = session
        self._hash_change += compute_session_hash(session)
        return session

    def _discard_results_through(self, session: CommandSession, floor: int) -> None:
        """Discard the command results of a session up to the sequence number `floor`."""
        self._hash_change -= compute_session_hash(session)
        for sequence in _find_sequences_to_drop(session, floor):
            result = session.results.pop(sequence)
            self._hash_change -= record_hash(hashing.SESSION_RESULT, session.node_id, sequence, result)
        session.floor = floor
        self._hash_change += compute_session_hash(session)

    # --- completion ---

    @property
    def has_changes(self) -> bool:
        """Return whether the command has changed the image."""
        return self._hash_change != 0

    def finish_load(self, index: int) -> None:
        """Complete an image that was loaded from a snapshot whose last applied command is at `index`."""
        image = self.image
        image._applied_index = index
        image._state_hash = (image._state_hash + self._hash_change) & HASH_MASK
        image._hashes.append((index, image._state_hash))

    def finish_command(self, index: int) -> Delta:
        """Complete the changes of one command: update the state hash and return the delta."""
        self.finish_load(index)
        image = self.image
        return Delta(
            index=index,
            topics=sort_topic_changes(
                RecordChange(old, image._held_topics.get(key)) for key, old in self._old_topics.items()
            ),
            brokers=tuple(RecordChange(old, image._brokers.get(key)) for key, old in sorted(self._old_brokers.items())),
            nodes=tuple(RecordChange(old, image._nodes.get(key)) for key, old in sorted(self._old_nodes.items())),
            groups=tuple(RecordChange(old, image._groups.get(key)) for key, old in self._old_groups.items()),
            broker_configs=tuple(self._broker_configs),
            group_configs=tuple(self._group_configs),
            offsets=tuple(self._offset_groups),
            checkpoints=tuple(self._checkpoints),
            features=tuple(self._features),
            transactions=tuple(
                RecordChange(old, image._transactions.by_id.get(key)) for key, old in self._old_transactions.items()
            ),
            acls=tuple(RecordChange(old, acl if acl in image._acls else None) for acl, old in self._old_acls.items()),
            quotas=tuple(self._quotas),
            users=tuple(self._users),
            subjects=tuple(self._subjects),
            schema_settings=tuple(self._schema_settings),
        )


def _intern_group_strings(group: Group) -> Group:
    """Return the group with interned state and protocol names, so that equal strings share memory."""
    protocol_name = None if group.protocol_name is None else intern(group.protocol_name)
    return replace(
        group, state=intern(group.state), protocol_type=intern(group.protocol_type), protocol_name=protocol_name
    )


def _find_sequences_to_drop(session: CommandSession, floor: int) -> list[int]:
    """Return the sequence numbers of the stored command results that are at most `floor`.

    These are usually one or two out of thousands. Looking up the sequences between the floors is therefore faster than
    scanning all results, unless there are more sequences than results.
    """
    results = session.results
    if floor - session.floor <= len(results):
        return [sequence for sequence in range(session.floor + 1, floor + 1) if sequence in results]
    return [sequence for sequence in results if sequence <= floor]
