"""Planning of topics: turns requests into commands with defaults, validation and replica placement."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence

import msgspec

from chronik.clock import Clock
from chronik.configs.resolver import ConfigResolver
from chronik.configs.validation import validate_config_sizes, validate_topic_config
from chronik.limits import PARTITIONS_PER_REQUEST_MAX, TOPIC_PARTITIONS_MAX
from chronik.metadata import levels
from chronik.metadata.commands.brokers import BrokerStatus
from chronik.metadata.commands.topics import CreateTopic, PartitionAssignment
from chronik.metadata.names import OFFSETS_TOPIC, SYSTEM_TOPICS, find_topic_name_error
from chronik.metadata.records import Topic
from chronik.metadata.stores.store import MetadataStore
from chronik.planning.placement import PlacementCandidate, place_replicas
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.wording import pluralize

OFFSETS_TOPIC_CONFIGS = {"cleanup.policy": "compact", "compression.type": "snappy", "segment.bytes": "104857600"}

BROKER_DEFAULT = -1
"""Partition count or replication factor (-1) with which a request selects the broker's default."""

ReplicaIds = tuple[int, ...]


class NewTopicRequest(msgspec.Struct, frozen=True):
    """A request to create a topic."""

    name: str
    partition_count: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    assignments: Mapping[int, ReplicaIds] = msgspec.field(default_factory=dict)
    """Replicas of each partition, if the client specifies them."""
    configs: Mapping[str, str | None] = msgspec.field(default_factory=dict)


class TopicPlanner:
    """A planner that validates topic requests and assigns replicas to the new partitions.

    It returns deterministic commands, which have the same effect on every node.

    `choose_id` returns the id of a new topic. `choose_below(n)` returns the random position at which placement starts.
    """

    def __init__(
        self,
        store: MetadataStore,
        configs: ConfigResolver,
        clock: Clock,
        choose_id: Callable[[], bytes],
        choose_below: Callable[[int], int],
    ) -> None:
        self._store = store
        self._configs = configs
        self._clock = clock
        self._choose_id = choose_id
        self._choose_below = choose_below

    def plan_topics(self, requests: Sequence[NewTopicRequest]) -> Generator[None, None, list[CreateTopic | KafkaError]]:
        """Plan the creation of topics in the order of the requests, and return commands or errors.

        The generator yields after each request.
        """
        outcomes: list[CreateTopic | KafkaError] = []
        partitions_left = PARTITIONS_PER_REQUEST_MAX
        for request in requests:
            try:
                command = self._plan(request, partitions_left)
                partitions_left -= len(command.partitions)
                outcomes.append(command)
            except KafkaError as error:
                outcomes.append(error.without_traceback())
            yield
        return outcomes

    def plan_import(self, request: NewTopicRequest, topic_id: bytes, created_ms: int) -> CreateTopic:
        """Return the command that creates an imported topic, which keeps its id and creation time.

        Raises:
            KafkaError: The topic cannot be created.
        """
        planned = self._plan(request, TOPIC_PARTITIONS_MAX)
        return msgspec.structs.replace(planned, topic_id=topic_id, time_ms=created_ms)

    def offsets_topic_request(self) -> NewTopicRequest:
        """Return the request that creates the topic `__consumer_offsets`."""
        factor = self._configs.broker_int("offsets.topic.replication.factor")
        return NewTopicRequest(
            OFFSETS_TOPIC,
            self._configs.broker_int("offsets.topic.num.partitions"),
            min(factor, len(self._store.image.brokers)),
            configs=OFFSETS_TOPIC_CONFIGS,
        )

    def plan_partitions(self, topic: Topic, total: int, given: Sequence[ReplicaIds] | None) -> Sequence[ReplicaIds]:
        """Return the replica assignment of the partitions to add to a topic.

        Raises:
            KafkaError: The partitions cannot be added.
        """
        if any(partition.is_reassigning for partition in topic.partitions):
            message = f"Partitions of topic {topic.name} are being reassigned."
            raise KafkaError(ErrorCode.REASSIGNMENT_IN_PROGRESS, message)
        existing = len(topic.partitions)
        if total <= existing:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"Topic {topic.name} currently has {pluralize(existing, 'partition')}, {total} would not be an "
                "increase.",
            )
        if total > TOPIC_PARTITIONS_MAX or total - existing > PARTITIONS_PER_REQUEST_MAX:
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"A topic has at most {TOPIC_PARTITIONS_MAX} partitions")
        if given is None:
            return self._place_replicas(total - existing, topic.replication_factor)
        if len(given) != total - existing:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{pluralize(total - existing, 'partition')} to add, but {len(given)} assignments",
            )
        return [self._check_replicas(each, topic.replication_factor) for each in given]

    def build_assignment(self, replicas: ReplicaIds) -> PartitionAssignment:
        """Return the initial state of a new partition, with all online replicas in the ISR.

        They are in sync, because the log is empty.
        """
        brokers = self._store.image.brokers
        isr = tuple(broker for broker in replicas if brokers[broker].is_online) or replicas[:1]
        return PartitionAssignment(replicas, isr, isr[0])

    def get_command_timestamp(self) -> int:
        """Return the current time in milliseconds, or -1 below feature level 3, whose commands have no timestamps."""
        return levels.get_timestamp_if_supported(self._store.image.features, self._clock.now_ms())

    def _plan(self, request: NewTopicRequest, partitions_left: int) -> CreateTopic:
        """Validate a request to create a topic, and return the metadata command that creates the topic.

        The partition count is checked before placement, because a request may have many large topics.
        """
        fault = find_topic_name_error(request.name)
        if fault is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Invalid topic: {fault}")
        if request.name in self._store.image.topics:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{request.name}' already exists.")
        if request.name in self._store.image.importing_topics:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{request.name}' is being imported.")
        if request.assignments:
            _check_partition_budget(len(request.assignments), partitions_left)
            replicas = self._validate_assigned_replicas(request)
        else:
            replicas = self._place_requested_replicas(request, partitions_left)
        configs = {}
        for name, value in request.configs.items():
            if value is None:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {name}")
            validate_topic_config(name, value)
            configs[name] = value
        self._configs.check_topic_consistency(configs)
        validate_config_sizes(configs, configs)
        return CreateTopic(
            topic_id=self._choose_id(),
            name=request.name,
            partitions=tuple(map(self.build_assignment, replicas)),
            configs=configs,
            time_ms=self._clock.now_ms(),
            internal=request.name in SYSTEM_TOPICS,
        )

    def _place_requested_replicas(self, request: NewTopicRequest, partitions_left: int) -> list[ReplicaIds]:
        count = request.partition_count
        if count == BROKER_DEFAULT:
            count = self._configs.broker_int("num.partitions")
        if not 1 <= count <= TOPIC_PARTITIONS_MAX:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS, f"A topic has 1 to {TOPIC_PARTITIONS_MAX} partitions, not {count}"
            )
        _check_partition_budget(count, partitions_left)
        factor = request.replication_factor
        if factor == BROKER_DEFAULT:
            factor = self._configs.broker_int("default.replication.factor")
        return self._place_replicas(count, factor)

    def _validate_assigned_replicas(self, request: NewTopicRequest) -> list[ReplicaIds]:
        if request.partition_count != BROKER_DEFAULT or request.replication_factor != BROKER_DEFAULT:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "A request with replica assignments must not have a partition count or a replication factor",
            )
        if sorted(request.assignments) != list(range(len(request.assignments))):
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Partitions must be assigned from 0 without gaps")
        factor = len(request.assignments[0])
        return [self._check_replicas(request.assignments[index], factor) for index in range(len(request.assignments))]

    def _check_replicas(self, replicas: ReplicaIds, factor: int) -> ReplicaIds:
        if not replicas or len(set(replicas)) != len(replicas):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, "A replica assignment must not be empty or contain duplicates"
            )
        if len(replicas) != factor:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, "All partitions must have the same number of replicas"
            )
        unknown = [broker for broker in replicas if broker not in self._store.image.brokers]
        if unknown:
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"No such brokers: {unknown}")
        return replicas

    def _place_replicas(self, count: int, factor: int) -> list[ReplicaIds]:
        """Assign replicas to online brokers or, if there are too few, also to offline and drained brokers."""
        brokers = self._store.image.brokers.values()
        candidates = [PlacementCandidate(broker.id, broker.rack) for broker in brokers if broker.is_online]
        for status in (BrokerStatus.OFFLINE, BrokerStatus.MAINTENANCE):
            if factor > len(candidates) > 0:
                candidates += [
                    PlacementCandidate(broker.id, broker.rack) for broker in brokers if broker.status is status
                ]
        if not 1 <= factor <= len(candidates):
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"A replication factor of {factor} is not possible with {pluralize(len(candidates), 'broker')}",
            )
        return place_replicas(count, factor, candidates, self._choose_below(len(candidates)))


def _check_partition_budget(count: int, partitions_left: int) -> None:
    if count > partitions_left:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, f"One request can create at most {PARTITIONS_PER_REQUEST_MAX} partitions"
        )
