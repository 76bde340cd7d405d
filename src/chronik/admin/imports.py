"""Topics of another store come into the cluster: made, filled by the leaders of their partitions, and shown at the end.

What a tool does step by step is idempotent here: it may be stopped at any time, and begin again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from chronik.admin.topic_plans import TopicPlanner, TopicRequest
from chronik.admin.topics import PARTITIONS_PER_PROPOSAL, REPLANS_MAX
from chronik.broker.replica import Replica
from chronik.broker.replicas import Replicas
from chronik.files import Buffer
from chronik.ids import format_id
from chronik.metadata.commands.imports import ImportTopics
from chronik.metadata.commands.topics import CreateTopic
from chronik.metadata.slices import Pace
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.errors import ErrorCode, KafkaError


class TopicToImport(NamedTuple):
    topic_id: bytes
    name: str
    created_ms: int
    replication_factor: int
    leader_epochs: tuple[int, ...]
    configs: Mapping[str, str]

    def as_request(self) -> TopicRequest:
        return TopicRequest(self.name, len(self.leader_epochs), self.replication_factor, configs=self.configs)


class Ends(NamedTuple):
    """Where the log of an imported partition begins, how far it is committed, and where all of it is decided."""

    log_start_offset: int
    high_watermark: int
    last_stable_offset: int


async def import_topics(
    store: MetadataStore, planner: TopicPlanner, import_id: bytes, topics: Sequence[TopicToImport]
) -> int:
    """Makes the topics that are not there yet. Returns the index of the last command. Raises KafkaError, which names
    the first topic that could not be made."""
    index, pace = store.image.applied_index, Pace()
    for piece in _in_proposals(topics):
        for plans_left in range(REPLANS_MAX, -1, -1):
            planned: list[tuple[CreateTopic, tuple[int, ...]]] = []
            for topic in piece:
                known = store.image.importing.get(topic.name)
                if known is None or known.id != topic.topic_id:
                    plan = planner.plan_import(topic.as_request(), topic.topic_id, topic.created_ms)
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


def _in_proposals(topics: Sequence[TopicToImport]) -> list[list[TopicToImport]]:
    pieces: list[list[TopicToImport]] = []
    partitions = 0
    for topic in topics:
        if not pieces or partitions + len(topic.leader_epochs) > PARTITIONS_PER_PROPOSAL:
            pieces.append([])
            partitions = 0
        pieces[-1].append(topic)
        partitions += len(topic.leader_epochs)
    return pieces


class ImportedLogs:
    """The logs of imported partitions that this node leads."""

    def __init__(self, store: MetadataStore, replicas: Replicas, import_id: bytes) -> None:
        self._store = store
        self._replicas = replicas
        self._import_id = import_id

    async def append(
        self, topic_id: bytes, index: int, expected_end: int, log_start_offset: int, records: Buffer | None
    ) -> Ends:
        """Appends batches to a log that ends at `expected_end`; returns when they are committed. One that ends
        elsewhere is left as it is, and its ends tell so. Without records it waits until all replicas begin at the
        start. Raises KafkaError."""
        replica = self.replica(topic_id, index)
        if replica.log.log_end_offset < expected_end <= log_start_offset:
            replica = await self._begin(replica, expected_end)
        if records and replica.log.log_end_offset == expected_end:
            if not replica.has_enough_replicas:
                raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
            replica.append_imported(records, replica.leader_epoch)
            _tell_followers(replica)
        await self._committed(replica, replica.log.log_end_offset)
        if replica.log.log_start_offset < log_start_offset <= replica.high_watermark:
            await replica.delete_records_before(log_start_offset)
        if not records:
            await replica.low_watermark_reaches(replica.log.log_start_offset, self._is_alive)
        return ends_of(replica)

    def replica(self, topic_id: bytes, index: int) -> Replica:
        """Returns one that this node leads, of the import under way. Raises KafkaError."""
        imported = self._store.image.imported
        if imported is None or imported.id != self._import_id or imported.is_finished:
            told = f"There is no import {format_id(self._import_id)} under way."
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, told)
        replica = self._replicas.by_id(topic_id, index, hidden_too=True)
        if not replica.is_hidden:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{replica} is not being imported.")
        return replica

    async def _begin(self, replica: Replica, offset: int) -> Replica:
        """Has an empty log begin where the source's first batch does."""
        await replica.syncs.settled()
        replica = self.replica(replica.topic_id, replica.index)
        log = replica.log
        if log.log_start_offset == log.log_end_offset < offset:
            replica.begin_at(offset)
            _tell_followers(replica)
        return replica

    async def _committed(self, replica: Replica, end_offset: int) -> None:
        if replica.is_committed(end_offset):
            return
        safe: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        replica.commits.add(end_offset, lambda code: None if safe.done() else safe.set_result(code))
        code = await safe
        if code is not ErrorCode.NONE:
            raise KafkaError(code)

    def _is_alive(self, broker_id: int) -> bool:
        broker = self._store.image.brokers.get(broker_id)
        return broker is not None and not broker.fenced


def _tell_followers(replica: Replica) -> None:
    for reader in replica.readers:
        reader.appended()


def ends_of(replica: Replica) -> Ends:
    return Ends(replica.log.log_start_offset, replica.high_watermark, replica.last_stable_offset)
