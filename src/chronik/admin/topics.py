"""Topics are created, enlarged and deleted: planned by the local image, on any node, and made by commands."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from chronik.admin.second_look import BY_THE_IMAGE, look_again, with_second_look
from chronik.admin.topic_plans import Replicas, TopicPlanner, TopicRequest
from chronik.configs.resolver import ConfigResolver
from chronik.metadata.commands.topics import CreatePartitions, CreateTopic, CreateTopics, DeleteTopic
from chronik.metadata.names import OFFSETS_TOPIC, SYSTEM_TOPICS
from chronik.metadata.records import Topic
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.scheduler import run_in_slices

logger = logging.getLogger("chronik.api")

PARTITIONS_PER_PROPOSAL: Final = 200
"""Partitions that one command makes, since each node begins to lead or follow them in one turn of its loop, at some
50 µs each: 1,000 topics at once held it for 80 ms. A topic with more is made whole all the same."""

REPLANS_MAX: Final = 2
"""Plans after the first: brokers do not go away by the dozen while one request is handled."""

Created = CreateTopic | KafkaError
TopicKey = str | bytes
"""A topic's name or its id."""


class Enlargement(NamedTuple):
    name: str
    total: int
    """How many partitions it is to have in the end."""
    assignments: Sequence[Replicas] | None = None
    """Replicas of those that are added, where the client wants to place them itself."""


class TopicAdmin:
    """Works on every node. Of many topics each stands or falls alone."""

    def __init__(self, store: MetadataStore, configs: ConfigResolver, planner: TopicPlanner) -> None:
        self._store = store
        self._configs = configs
        self._planner = planner

    @property
    def planner(self) -> TopicPlanner:
        return self._planner

    # New ones

    async def create(self, requests: Sequence[TopicRequest], *, validate_only: bool = False) -> list[Created]:
        """Returns what became of each request, in order."""
        outcomes = await self._plan_with_second_look(requests)
        if not validate_only:
            await self._propose(outcomes)
            for _ in range(REPLANS_MAX):
                await self._plan_again(requests, outcomes)
        return outcomes

    async def create_missing(self, names: Iterable[str]) -> dict[str, KafkaError]:
        """Creates topics that a client asked for; one that exists by now is a success. Returns what failed."""
        requests = [self._planner.offsets_topic() if name == OFFSETS_TOPIC else TopicRequest(name) for name in names]
        outcomes = await self.create(requests)
        return {
            request.name: outcome
            for request, outcome in zip(requests, outcomes, strict=True)
            if isinstance(outcome, KafkaError) and outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS
        }

    async def _plan(self, requests: Sequence[TopicRequest]) -> list[Created]:
        return await run_in_slices(self._planner.plan_all(requests))

    async def _plan_with_second_look(self, requests: Sequence[TopicRequest]) -> list[Created]:
        outcomes = await self._plan(requests)
        if not any(map(_rests_on_the_image, outcomes)):
            return outcomes
        try:
            await look_again(self._store)
        except KafkaError as error:
            refusal = error.without_frames()
            return [refusal if _rests_on_the_image(outcome) else outcome for outcome in outcomes]
        return await self._plan(requests)

    async def _plan_again(self, requests: Sequence[TopicRequest], outcomes: list[Created]) -> None:
        """A broker went away between the plan and its turn: by now the image knows, and a better plan can be made."""
        outdated = [place for place, outcome in enumerate(outcomes) if _is_outdated(outcome)]
        if outdated:
            again = await self._plan([requests[place] for place in outdated])
            await self._propose(again)
            for place, outcome in zip(outdated, again, strict=True):
                outcomes[place] = outcome

    async def _propose(self, outcomes: list[Created]) -> None:
        """Replaces what was planned by the error that it met, where it met one."""
        planned = {place: outcome for place, outcome in enumerate(outcomes) if isinstance(outcome, CreateTopic)}
        for places in _by_proposal(planned):
            try:
                result = await self._store.propose(CreateTopics(tuple(planned[place] for place in places)))
            except KafkaError as error:
                for place in places:
                    outcomes[place] = error.without_frames()
                continue
            for failure in result.failures:
                outcomes[places[failure.item]] = KafkaError(failure.code, failure.message)
            for place in places:
                created = outcomes[place]
                if isinstance(created, CreateTopic) and created.internal:
                    told = "system topic %s created: partitions=%d index=%d"
                    logger.info(told, created.name, len(created.partitions), result.index)

    # More partitions

    async def enlarge(self, wanted: Enlargement, *, validate_only: bool = False) -> None:
        """Raises KafkaError."""
        await with_second_look(self._store, partial(self._enlarge, wanted, validate_only))

    async def _enlarge(self, wanted: Enlargement, validate_only: bool) -> None:
        self._refuse_system_topic(wanted.name)
        topic = self._find(wanted.name)
        replicas = self._planner.more_partitions(topic, wanted.total, wanted.assignments)
        if not validate_only:
            await self._add(topic, replicas)

    async def _add(self, topic: Topic, replicas: Sequence[Replicas]) -> None:
        for plans_left in range(REPLANS_MAX, -1, -1):
            added = tuple(map(self._planner.assignment, replicas))
            try:
                time_ms = self._planner.time_of_change()
                await self._store.propose(CreatePartitions(topic.id, len(topic.partitions), added, time_ms))
                return
            except KafkaError as error:
                if not _is_outdated(error) or plans_left == 0:
                    raise

    # Deletion

    @property
    def may_be_deleted(self) -> bool:
        return self._configs.broker_flag("delete.topic.enable")

    async def delete(self, key: TopicKey, check: Callable[[Topic], None] = lambda _: None) -> Topic:
        """Returns the topic, which is deleted. Raises KafkaError, also what `check` raises for the topic that is found:
        an id may become known only at a second look."""
        return await with_second_look(self._store, partial(self._delete, key, check))

    async def _delete(self, key: TopicKey, check: Callable[[Topic], None]) -> Topic:
        topic = self._find(key)
        check(topic)
        self._refuse_system_topic(topic.name)
        await self._store.propose(DeleteTopic(topic.id))
        return topic

    def _find(self, key: TopicKey) -> Topic:
        image = self._store.image
        if isinstance(key, str):
            topic, missing = image.topics.get(key), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            topic, missing = image.topics_by_id.get(key), ErrorCode.UNKNOWN_TOPIC_ID
        if topic is None:
            raise KafkaError(missing)
        return topic

    def _refuse_system_topic(self, name: str) -> None:
        """Raises KafkaError for a topic that a cluster goes by. The epoch of a group's partition tells the commands of
        its coordinators apart: were groups to fall into other partitions, or epochs to begin anew with a new topic,
        those of a coordinator that was replaced could be taken for its successor's."""
        if name in SYSTEM_TOPICS and self._store.is_shared:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is the cluster's own, and stays as it is")


def _by_proposal(planned: Mapping[int, CreateTopic]) -> Iterator[list[int]]:
    """Yields the places of topics that are made by one command, in order."""
    piece: list[int] = []
    partitions = 0
    for place, topic in planned.items():
        if piece and partitions + len(topic.partitions) > PARTITIONS_PER_PROPOSAL:
            yield piece
            piece, partitions = [], 0
        piece.append(place)
        partitions += len(topic.partitions)
    if piece:
        yield piece


def _rests_on_the_image(outcome: Created) -> bool:
    return isinstance(outcome, KafkaError) and outcome.code in BY_THE_IMAGE


def _is_outdated(outcome: Created) -> bool:
    return isinstance(outcome, KafkaError) and outcome.code is ErrorCode.BROKER_NOT_AVAILABLE
