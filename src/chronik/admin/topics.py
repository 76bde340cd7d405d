"""Creation, enlargement and deletion of topics, on any node: planned with the local image, executed by commands."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from chronik.admin.fresh_image_retry import IMAGE_DEPENDENT_ERRORS, refresh_image, retry_on_fresh_image
from chronik.admin.topic_planner import NewTopicRequest, ReplicaIds, TopicPlanner
from chronik.configs.resolver import ConfigResolver
from chronik.metadata.commands.topics import CreatePartitions, CreateTopic, CreateTopics, DeleteTopic
from chronik.metadata.names import OFFSETS_TOPIC, SYSTEM_TOPICS
from chronik.metadata.records import Topic
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.scheduler import run_in_slices

logger = logging.getLogger("chronik.api")

PARTITIONS_PER_PROPOSAL: Final = 200
"""Maximum number of partitions that one metadata command creates, unless a single topic has more.

Every node starts to lead or follow them in one event-loop iteration, which takes about 50 µs per partition.
"""

REPLANS_MAX: Final = 2
"""Maximum number of retries when a broker is fenced while a topic or new partitions are created."""

CreateTopicOutcome = CreateTopic | KafkaError
TopicNameOrId = str | bytes
"""A topic's name or id."""


class NewPartitions(NamedTuple):
    """A request to increase a topic's number of partitions (CreatePartitions)."""

    name: str
    total: int
    """The topic's number of partitions after the addition."""
    assignments: Sequence[ReplicaIds] | None = None
    """Replicas of the new partitions, if the client specifies them."""


class TopicAdmin:
    """The administrative operations on topics. The topics of one request succeed or fail independently."""

    def __init__(self, store: MetadataStore, configs: ConfigResolver, planner: TopicPlanner) -> None:
        self._store = store
        self._configs = configs
        self._planner = planner

    @property
    def planner(self) -> TopicPlanner:
        return self._planner

    # --- creation ---

    async def create(
        self, requests: Sequence[NewTopicRequest], *, validate_only: bool = False
    ) -> list[CreateTopicOutcome]:
        """Create topics, and return for each request the metadata command or an error."""
        outcomes = await self._plan_topics_with_retry(requests)
        if not validate_only:
            await self._propose_topics(outcomes)
            for _ in range(REPLANS_MAX):
                await self._replan_outdated_topics(requests, outcomes)
        return outcomes

    async def create_missing_topics(self, names: Iterable[str]) -> dict[str, KafkaError]:
        """Create the topics that do not exist yet, and return the errors by topic name."""
        requests = [
            self._planner.offsets_topic_request() if name == OFFSETS_TOPIC else NewTopicRequest(name) for name in names
        ]
        outcomes = await self.create(requests)
        return {
            request.name: outcome
            for request, outcome in zip(requests, outcomes, strict=True)
            if isinstance(outcome, KafkaError) and outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS
        }

    async def _plan(self, requests: Sequence[NewTopicRequest]) -> list[CreateTopicOutcome]:
        return await run_in_slices(self._planner.plan_topics(requests))

    async def _plan_topics_with_retry(self, requests: Sequence[NewTopicRequest]) -> list[CreateTopicOutcome]:
        outcomes = await self._plan(requests)
        if not any(map(_may_be_caused_by_stale_image, outcomes)):
            return outcomes
        try:
            await refresh_image(self._store)
        except KafkaError as error:
            refusal = error.without_traceback()
            return [refusal if _may_be_caused_by_stale_image(outcome) else outcome for outcome in outcomes]
        return await self._plan(requests)

    async def _replan_outdated_topics(
        self, requests: Sequence[NewTopicRequest], outcomes: list[CreateTopicOutcome]
    ) -> None:
        """Assign new replicas to topics whose creation failed because a broker was fenced after the planning."""
        outdated = [position for position, outcome in enumerate(outcomes) if _is_plan_outdated(outcome)]
        if outdated:
            new_outcomes = await self._plan([requests[position] for position in outdated])
            await self._propose_topics(new_outcomes)
            for position, outcome in zip(outdated, new_outcomes, strict=True):
                outcomes[position] = outcome

    async def _propose_topics(self, outcomes: list[CreateTopicOutcome]) -> None:
        """Propose the commands that create topics, and replace the commands that fail with their errors."""
        planned = {position: outcome for position, outcome in enumerate(outcomes) if isinstance(outcome, CreateTopic)}
        for positions in _split_into_proposals(planned):
            try:
                result = await self._store.propose(CreateTopics(tuple(planned[position] for position in positions)))
            except KafkaError as error:
                for position in positions:
                    outcomes[position] = error.without_traceback()
                continue
            for failure in result.failures:
                outcomes[positions[failure.item]] = KafkaError(failure.code, failure.message)
            for position in positions:
                created = outcomes[position]
                if isinstance(created, CreateTopic) and created.internal:
                    line = "system topic %s created: partitions=%d index=%d"
                    logger.info(line, created.name, len(created.partitions), result.index)

    # --- partitions ---

    async def create_partitions(self, wanted: NewPartitions, *, validate_only: bool = False) -> None:
        """Add partitions to a topic.

        Raises:
            KafkaError: The topic does not exist or cannot be enlarged.
        """
        await retry_on_fresh_image(self._store, partial(self._add_partitions, wanted, validate_only))

    async def _add_partitions(self, wanted: NewPartitions, validate_only: bool) -> None:
        self._check_not_system_topic(wanted.name)
        topic = self._find(wanted.name)
        replicas = self._planner.plan_partitions(topic, wanted.total, wanted.assignments)
        if not validate_only:
            await self._add(topic, replicas)

    async def _add(self, topic: Topic, replicas: Sequence[ReplicaIds]) -> None:
        for plans_left in range(REPLANS_MAX, -1, -1):
            added = tuple(map(self._planner.build_assignment, replicas))
            try:
                time_ms = self._planner.get_command_timestamp()
                await self._store.propose(CreatePartitions(topic.id, len(topic.partitions), added, time_ms))
                return
            except KafkaError as error:
                if not _is_plan_outdated(error) or plans_left == 0:
                    raise

    # --- deletion ---

    @property
    def is_deletion_enabled(self) -> bool:
        """Return whether `delete.topic.enable` allows topics to be deleted."""
        return self._configs.broker_flag("delete.topic.enable")

    async def delete(self, key: TopicNameOrId, check: Callable[[Topic], None] = lambda _: None) -> Topic:
        """Delete a topic from the cluster's metadata, and return the deleted topic.

        `check` is called with the topic before it is deleted, because resolving a topic id may require a fresh image.

        Raises:
            KafkaError: The topic does not exist or cannot be deleted, or `check` raised it.
        """
        return await retry_on_fresh_image(self._store, partial(self._delete_topic, key, check))

    async def _delete_topic(self, key: TopicNameOrId, check: Callable[[Topic], None]) -> Topic:
        topic = self._find(key)
        check(topic)
        self._check_not_system_topic(topic.name)
        await self._store.propose(DeleteTopic(topic.id))
        return topic

    def _find(self, key: TopicNameOrId) -> Topic:
        image = self._store.image
        if isinstance(key, str):
            topic, missing = image.topics.get(key), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            topic, missing = image.topics_by_id.get(key), ErrorCode.UNKNOWN_TOPIC_ID
        if topic is None:
            raise KafkaError(missing)
        return topic

    def _check_not_system_topic(self, name: str) -> None:
        """Raise KafkaError if the topic is a system topic, such as `__consumer_offsets`, of a cluster.

        Commands of group coordinators are fenced by the leader epoch of the group's partition. If the partition count
        changed, or a recreated topic restarted the epochs, commands of a replaced coordinator could be accepted.
        """
        if name in SYSTEM_TOPICS and self._store.is_shared:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is a system topic of the cluster and cannot be changed"
            )


def _split_into_proposals(planned: Mapping[int, CreateTopic]) -> Iterator[list[int]]:
    """Split topics into chunks that one command creates, and yield the positions of each chunk's topics."""
    chunk: list[int] = []
    partitions = 0
    for position, topic in planned.items():
        if chunk and partitions + len(topic.partitions) > PARTITIONS_PER_PROPOSAL:
            yield chunk
            chunk, partitions = [], 0
        chunk.append(position)
        partitions += len(topic.partitions)
    if chunk:
        yield chunk


def _may_be_caused_by_stale_image(outcome: CreateTopicOutcome) -> bool:
    return isinstance(outcome, KafkaError) and outcome.code in IMAGE_DEPENDENT_ERRORS


def _is_plan_outdated(outcome: CreateTopicOutcome) -> bool:
    return isinstance(outcome, KafkaError) and outcome.code is ErrorCode.BROKER_NOT_AVAILABLE
