"""Import of topics: limits, creation, and replication of their records by the partition leaders.

All steps are idempotent, so a tool can be interrupted at any time and start again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from chronik.admin.topic_planner import NewTopicRequest, TopicPlanner
from chronik.admin.topics import PARTITIONS_PER_PROPOSAL, REPLANS_MAX
from chronik.broker.replica import Replica
from chronik.broker.replica_manager import ReplicaManager
from chronik.configs.validation import validate_config_sizes
from chronik.files import Buffer
from chronik.groups.config import GROUPS_MAX
from chronik.ids import format_id
from chronik.limits import (
    GROUP_ID_CHARACTERS_MAX,
    GROUP_PROTOCOL_CHARACTERS_MAX,
    IMPORT_SOURCE_CHARACTERS_MAX,
    TOPIC_NAME_CHARACTERS_MAX,
)
from chronik.metadata.chunking import YieldTimer
from chronik.metadata.commands.imports import ImportedGroup, ImportTopics
from chronik.metadata.commands.topics import CreateTopic
from chronik.metadata.handlers.groups import GROUPS_WITH_CONFIGS_MAX
from chronik.metadata.image import Image
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.errors import ErrorCode, KafkaError


class TopicToImport(NamedTuple):
    """A topic of a backup or data directory that an import creates in this cluster."""

    topic_id: bytes
    name: str
    created_ms: int
    replication_factor: int
    leader_epochs: tuple[int, ...]
    configs: Mapping[str, str]

    def to_topic_request(self) -> NewTopicRequest:
        """Return the request to create the topic, as input for the topic planner."""
        return NewTopicRequest(self.name, len(self.leader_epochs), self.replication_factor, configs=self.configs)


class LogOffsets(NamedTuple):
    """The log start offset, high watermark and last stable offset of an imported partition's log."""

    log_start_offset: int
    high_watermark: int
    last_stable_offset: int


async def import_topics(
    store: MetadataStore, planner: TopicPlanner, import_id: bytes, topics: Sequence[TopicToImport]
) -> int:
    """Create the topics of an import that do not exist yet, and return the metadata index of the last command.

    Raises:
        KafkaError: A topic could not be created. The message names the topic.
    """
    index, pace = store.image.applied_index, YieldTimer()
    for chunk in _split_into_proposals(topics):
        for plans_left in range(REPLANS_MAX, -1, -1):
            planned: list[tuple[CreateTopic, tuple[int, ...]]] = []
            for topic in chunk:
                known = store.image.importing_topics.get(topic.name)
                if known is None or known.id != topic.topic_id:
                    plan = planner.plan_import(topic.to_topic_request(), topic.topic_id, topic.created_ms)
                    planned.append((plan, topic.leader_epochs))
                await pace.yield_if_due()
            plans = tuple(plan for plan, _ in planned)
            result = await store.propose(ImportTopics(import_id, plans, tuple(epochs for _, epochs in planned)))
            index = result.index
            if not result.failures:
                break
            failure = result.failures[0]
            if failure.code is not ErrorCode.BROKER_NOT_AVAILABLE or plans_left == 0:
                raise KafkaError(failure.code, f"topic {plans[failure.item].name}: {failure.message}")
    return index


def _split_into_proposals(topics: Sequence[TopicToImport]) -> list[list[TopicToImport]]:
    chunks: list[list[TopicToImport]] = []
    partitions = 0
    for topic in topics:
        if not chunks or partitions + len(topic.leader_epochs) > PARTITIONS_PER_PROPOSAL:
            chunks.append([])
            partitions = 0
        chunks[-1].append(topic)
        partitions += len(topic.leader_epochs)
    return chunks


class ImportLogWriter:
    """A writer that appends imported records to the logs of partitions that this node leads."""

    def __init__(self, store: MetadataStore, replicas: ReplicaManager, import_id: bytes) -> None:
        self._store = store
        self._replicas = replicas
        self._import_id = import_id

    async def append(
        self, topic_id: bytes, index: int, expected_end: int, log_start_offset: int, records: Buffer | None
    ) -> LogOffsets:
        """Append record batches to an imported log that ends at `expected_end`, and wait until they are committed.

        A log with another end offset is not changed; the returned offsets contain its actual end. Without records, the
        method waits until all replicas have the log start offset.

        Raises:
            KafkaError: The partition is not led here or not being imported, or too few replicas are in sync.
        """
        replica = self.find_imported_replica(topic_id, index)
        if replica.log.log_end_offset < expected_end <= log_start_offset:
            replica = await self._set_start_offset(replica, expected_end)
        if records and replica.log.log_end_offset == expected_end:
            if not replica.has_enough_replicas:
                raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
            replica.append_imported(records, replica.leader_epoch)
            _notify_followers(replica)
        await self._wait_until_committed(replica, replica.log.log_end_offset)
        if replica.log.log_start_offset < log_start_offset <= replica.high_watermark:
            await replica.delete_records_before(log_start_offset)
        if not records:
            await replica.wait_for_low_watermark(replica.log.log_start_offset, self._is_alive)
        return read_log_offsets(replica)

    def find_imported_replica(self, topic_id: bytes, index: int) -> Replica:
        """Return this node's replica of a partition that is being imported and that this node leads.

        Raises:
            KafkaError: The import is not in progress, or this node does not lead the partition.
        """
        imported = self._store.image.latest_import
        if imported is None or imported.id != self._import_id or imported.is_finished:
            message = f"No import {format_id(self._import_id)} is in progress."
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, message)
        replica = self._replicas.get_leader_by_id(topic_id, index, include_hidden=True)
        if not replica.is_hidden:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{replica} is not being imported.")
        return replica

    async def _set_start_offset(self, replica: Replica, offset: int) -> Replica:
        """Set the start offset of an empty imported log to the first offset in the import source."""
        await replica.syncer.wait_until_idle()
        replica = self.find_imported_replica(replica.topic_id, replica.index)
        log = replica.log
        if log.log_start_offset == log.log_end_offset < offset:
            replica.restart_log_as_leader_at(offset)
            _notify_followers(replica)
        return replica

    async def _wait_until_committed(self, replica: Replica, end_offset: int) -> None:
        if replica.is_committed(end_offset):
            return
        safe: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        replica.commit_waiters.add(end_offset, lambda code: None if safe.done() else safe.set_result(code))
        code = await safe
        if code is not ErrorCode.NONE:
            raise KafkaError(code)

    def _is_alive(self, broker_id: int) -> bool:
        broker = self._store.image.brokers.get(broker_id)
        return broker is not None and not broker.is_fenced


def _notify_followers(replica: Replica) -> None:
    for reader in replica.follower_listeners:
        reader.on_append()


def read_log_offsets(replica: Replica) -> LogOffsets:
    """Return the log start offset, high watermark and last stable offset of a replica."""
    return LogOffsets(replica.log.log_start_offset, replica.high_watermark, replica.last_stable_offset)


def check_import_source(source: str) -> None:
    """Raise INVALID_REQUEST if the text that describes the import's source is too long."""
    if len(source) > IMPORT_SOURCE_CHARACTERS_MAX:
        message = f"The source of the import has {len(source)} characters; the limit is {IMPORT_SOURCE_CHARACTERS_MAX}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def check_imported_groups(image: Image, groups: Sequence[ImportedGroup], metadata_characters_max: int) -> None:
    """Raise KafkaError if an imported consumer group exceeds a limit that also applies to clients' groups."""
    new = {group.group_id for group in groups} - image.groups.keys()
    if len(image.groups) + len(new) > GROUPS_MAX:
        message = (
            f"importing {len(new)} groups into a cluster with {len(image.groups)} exceeds the limit of {GROUPS_MAX}"
        )
        raise KafkaError(ErrorCode.POLICY_VIOLATION, message)
    for group in groups:
        _check_group_id(group.group_id)
        if len(group.protocol_type) > GROUP_PROTOCOL_CHARACTERS_MAX:
            message = (
                f"group {group.group_id}: the protocol type has more than {GROUP_PROTOCOL_CHARACTERS_MAX} characters"
            )
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        for offset in group.offsets:
            if len(offset.topic) > TOPIC_NAME_CHARACTERS_MAX:
                message = f"group {group.group_id}: a topic name has more than {TOPIC_NAME_CHARACTERS_MAX} characters"
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)
            if len(offset.metadata or "") > metadata_characters_max:
                message = (
                    f"group {group.group_id}: the metadata of {offset.topic}-{offset.partition} has "
                    f"{len(offset.metadata or '')} characters; offset.metadata.max.bytes is {metadata_characters_max}"
                )
                raise KafkaError(ErrorCode.OFFSET_METADATA_TOO_LARGE, message)


def check_imported_configs(
    image: Image, of_groups: Mapping[str, Mapping[str, str]], of_cluster: Mapping[str, str]
) -> None:
    """Raise KafkaError if the imported configs of groups and the cluster are too many or too large."""
    if len(image.group_configs) + len(of_groups.keys() - image.group_configs.keys()) > GROUPS_WITH_CONFIGS_MAX:
        message = f"at most {GROUPS_WITH_CONFIGS_MAX} groups may have configs"
        raise KafkaError(ErrorCode.POLICY_VIOLATION, message)
    for group_id, configs in of_groups.items():
        _check_group_id(group_id)
        validate_config_sizes(configs, configs)
    validate_config_sizes(of_cluster, of_cluster)


def _check_group_id(group_id: str) -> None:
    if len(group_id) > GROUP_ID_CHARACTERS_MAX:
        message = (
            f"group {group_id[:20]}… has an id of {len(group_id)} characters; the limit is {GROUP_ID_CHARACTERS_MAX}"
        )
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, message)
