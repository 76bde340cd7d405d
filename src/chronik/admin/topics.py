"""Topics from request to command: defaults, checks and placement first, then one command that holds everything."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from chronik.admin.second_look import BY_THE_IMAGE, look_again
from chronik.clock import Clock
from chronik.configs.checking import check_topic_config
from chronik.configs.resolver import ConfigResolver
from chronik.controller.placement import Place, place_replicas
from chronik.ids import new_id
from chronik.limits import PARTITIONS_PER_REQUEST_MAX, TOPIC_PARTITIONS_MAX
from chronik.metadata.commands import (
    CreatePartitions,
    CreateTopic,
    CreateTopics,
    DeleteTopic,
    PartitionAssignment,
)
from chronik.metadata.names import OFFSETS_TOPIC, SYSTEM_TOPICS, name_fault
from chronik.metadata.records import Topic
from chronik.metadata.slices import in_slices
from chronik.metadata.store import MetadataStore
from chronik.protocol.errors import ErrorCode, KafkaError

OFFSETS_TOPIC_CONFIGS = {"cleanup.policy": "compact", "compression.type": "snappy", "segment.bytes": "104857600"}

PARTITIONS_PER_PROPOSAL = 200
"""Of all topics that one command makes, since each node begins to lead or follow them in one turn of its loop, at some
50 µs each: 1,000 topics at once held it for 80 ms. A topic with more is made whole all the same."""

REPLANS_MAX = 2
"""Plans after the first: brokers do not go away by the dozen while one request is handled."""

DEFAULT = -1
"""What a request says when the broker's default is to be taken."""


@dataclass(frozen=True, slots=True)
class TopicRequest:
    name: str
    partition_count: int = DEFAULT
    replication_factor: int = DEFAULT
    assignments: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Replicas by partition, where the client wants to place them itself."""
    configs: Mapping[str, str | None] = field(default_factory=dict)


class TopicController:
    def __init__(
        self, store: MetadataStore, configs: ConfigResolver, clock: Clock, choose_id: Callable[[], bytes] = new_id
    ) -> None:
        self._store = store
        self._configs = configs
        self._clock = clock
        self._choose_id = choose_id
        self._random = random.Random()

    async def create(
        self, requests: Sequence[TopicRequest], *, validate_only: bool = False
    ) -> list[CreateTopic | KafkaError]:
        """What became of each request, in order; each topic stands or falls alone."""
        outcomes = await self._plan_with_second_look(requests)
        if not validate_only:
            await self._propose(outcomes)
            for _ in range(REPLANS_MAX):
                await self._plan_again(requests, outcomes)
        return outcomes

    async def _plan_with_second_look(self, requests: Sequence[TopicRequest]) -> list[CreateTopic | KafkaError]:
        outcomes = await in_slices(self._plan_all(requests))
        if not any(map(_rests_on_the_image, outcomes)):
            return outcomes
        try:
            await look_again(self._store)
        except KafkaError as error:
            return [error if _rests_on_the_image(outcome) else outcome for outcome in outcomes]
        return await in_slices(self._plan_all(requests))

    async def _plan_again(self, requests: Sequence[TopicRequest], outcomes: list[CreateTopic | KafkaError]) -> None:
        """A broker went away between the plan and its turn: by now the image knows, and a better plan can be made."""
        outdated = [place for place, outcome in enumerate(outcomes) if _is_outdated(outcome)]
        if outdated:
            again = await in_slices(self._plan_all([requests[place] for place in outdated]))
            await self._propose(again)
            for place, outcome in zip(outdated, again, strict=True):
                outcomes[place] = outcome

    def _plan_all(
        self, requests: Sequence[TopicRequest]
    ) -> Generator[None, None, list[CreateTopic | KafkaError]]:
        outcomes: list[CreateTopic | KafkaError] = []
        partitions_left = PARTITIONS_PER_REQUEST_MAX
        for request in requests:
            try:
                command = self._plan(request, partitions_left)
                partitions_left -= len(command.partitions)
                outcomes.append(command)
            except KafkaError as error:
                outcomes.append(error)
            yield
        return outcomes

    async def create_missing(self, names: Iterable[str]) -> dict[str, KafkaError]:
        """Creates topics that a client asked for; one that exists by now is a success. Returns what failed."""
        requests = [self._offsets_topic() if name == OFFSETS_TOPIC else TopicRequest(name) for name in names]
        outcomes = await self.create(requests)
        return {
            request.name: outcome
            for request, outcome in zip(requests, outcomes, strict=True)
            if isinstance(outcome, KafkaError) and outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS
        }

    def _offsets_topic(self) -> TopicRequest:
        factor = self._configs.broker_int("offsets.topic.replication.factor")
        return TopicRequest(
            OFFSETS_TOPIC,
            self._configs.broker_int("offsets.topic.num.partitions"),
            min(factor, len(self._store.image.brokers)),
            configs=OFFSETS_TOPIC_CONFIGS,
        )

    async def delete(self, topic: Topic) -> None:
        await self._store.propose(DeleteTopic(topic.id))

    async def add_partitions(
        self, name: str, total: int, assignments: Sequence[tuple[int, ...]] | None, *, validate_only: bool
    ) -> None:
        topic = self._store.image.topics.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if any(partition.is_reassigning for partition in topic.partitions):
            raise KafkaError(ErrorCode.REASSIGNMENT_IN_PROGRESS, f"Partitions of topic {name} are being reassigned.")
        existing = len(topic.partitions)
        if total <= existing:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"Topic {name} currently has {existing} partitions, {total} would not be an increase.",
            )
        if total > TOPIC_PARTITIONS_MAX or total - existing > PARTITIONS_PER_REQUEST_MAX:
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"A topic has at most {TOPIC_PARTITIONS_MAX} partitions")
        if assignments is None:
            replicas = self._place(total - existing, topic.replication_factor)
        else:
            if len(assignments) != total - existing:
                raise KafkaError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"{total - existing} partitions are added, but {len(assignments)} are assigned",
                )
            replicas = [self._checked(given, topic.replication_factor) for given in assignments]
        if not validate_only:
            await self._add(topic, replicas)

    async def _add(self, topic: Topic, replicas: Sequence[tuple[int, ...]]) -> None:
        for plans_left in range(REPLANS_MAX, -1, -1):
            added = tuple(map(self._assignment, replicas))
            try:
                await self._store.propose(CreatePartitions(topic.id, len(topic.partitions), added))
                return
            except KafkaError as error:
                if not _is_outdated(error) or plans_left == 0:
                    raise

    def _plan(self, request: TopicRequest, partitions_left: int) -> CreateTopic:
        """No partition is placed of a topic that has too many: a request may name a thousand of those."""
        fault = name_fault(request.name)
        if fault is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Invalid topic: {fault}")
        if request.name in self._store.image.topics:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{request.name}' already exists.")
        if request.assignments:
            _check_left(len(request.assignments), partitions_left)
            replicas = self._replicas_as_given(request)
        else:
            replicas = self._replicas_by_placement(request, partitions_left)
        configs = {}
        for name, value in request.configs.items():
            if value is None:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {name}")
            check_topic_config(name, value)
            configs[name] = value
        self._configs.check_together(configs)
        return CreateTopic(
            topic_id=self._choose_id(),
            name=request.name,
            partitions=tuple(map(self._assignment, replicas)),
            configs=configs,
            time_ms=self._clock.now_ms(),
            internal=request.name in SYSTEM_TOPICS,
        )

    def _replicas_by_placement(self, request: TopicRequest, partitions_left: int) -> list[tuple[int, ...]]:
        count = request.partition_count
        if count == DEFAULT:
            count = self._configs.broker_int("num.partitions")
        if not 1 <= count <= TOPIC_PARTITIONS_MAX:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS, f"A topic has 1 to {TOPIC_PARTITIONS_MAX} partitions, not {count}"
            )
        _check_left(count, partitions_left)
        factor = request.replication_factor
        if factor == DEFAULT:
            factor = self._configs.broker_int("default.replication.factor")
        return self._place(count, factor)

    def _replicas_as_given(self, request: TopicRequest) -> list[tuple[int, ...]]:
        if request.partition_count != DEFAULT or request.replication_factor != DEFAULT:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "Replica assignments leave no room for a partition count or a factor"
            )
        if sorted(request.assignments) != list(range(len(request.assignments))):
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Partitions must be assigned from 0 without gaps")
        factor = len(request.assignments[0])
        return [self._checked(request.assignments[index], factor) for index in range(len(request.assignments))]

    def _checked(self, replicas: tuple[int, ...], factor: int) -> tuple[int, ...]:
        if not replicas or len(set(replicas)) != len(replicas):
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Replicas must be given, and each once")
        if len(replicas) != factor:
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "All partitions must have as many replicas")
        unknown = [broker for broker in replicas if broker not in self._store.image.brokers]
        if unknown:
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"No such brokers: {unknown}")
        return replicas

    def _place(self, count: int, factor: int) -> list[tuple[int, ...]]:
        """On brokers that are online; where those are too few, on others too, which get their replicas on return."""
        brokers = self._store.image.brokers.values()
        places = [Place(broker.id, broker.rack) for broker in brokers if broker.online]
        if factor > len(places) > 0:
            places = [Place(broker.id, broker.rack) for broker in brokers]
        if not 1 <= factor <= len(places):
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"A replication factor of {factor} does not fit {len(places)} brokers",
            )
        return place_replicas(count, factor, places, self._random.randrange(len(places)))

    def _assignment(self, replicas: tuple[int, ...]) -> PartitionAssignment:
        """All that are online are in sync: their logs are as empty as the leader's."""
        brokers = self._store.image.brokers
        isr = tuple(broker for broker in replicas if brokers[broker].online) or replicas[:1]
        return PartitionAssignment(replicas, isr, isr[0])

    async def _propose(self, outcomes: list[CreateTopic | KafkaError]) -> None:
        """Replaces what was planned by the error that it met, where it met one."""
        planned = {place: outcome for place, outcome in enumerate(outcomes) if isinstance(outcome, CreateTopic)}
        for places in _in_pieces(planned):
            try:
                result = await self._store.propose(CreateTopics(tuple(planned[place] for place in places)))
            except KafkaError as error:
                for place in places:
                    outcomes[place] = error
                continue
            for failure in result.failures:
                outcomes[places[failure.item]] = KafkaError(failure.code, failure.message)


def _in_pieces(planned: Mapping[int, CreateTopic]) -> Iterator[list[int]]:
    """The places of topics that are made by one command, in order."""
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


def _rests_on_the_image(outcome: CreateTopic | KafkaError) -> bool:
    return isinstance(outcome, KafkaError) and outcome.code in BY_THE_IMAGE


def _check_left(count: int, partitions_left: int) -> None:
    if count > partitions_left:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, f"One request can create at most {PARTITIONS_PER_REQUEST_MAX} partitions"
        )


def _is_outdated(outcome: CreateTopic | KafkaError) -> bool:
    return isinstance(outcome, KafkaError) and outcome.code is ErrorCode.BROKER_NOT_AVAILABLE
