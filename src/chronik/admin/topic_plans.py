"""Topics from request to command: defaults, checks and placement, by the image as it is. Nothing is changed here."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence

import msgspec

from chronik.clock import Clock
from chronik.configs.checking import check_sizes, check_topic_config
from chronik.configs.resolver import ConfigResolver
from chronik.limits import PARTITIONS_PER_REQUEST_MAX, TOPIC_PARTITIONS_MAX
from chronik.metadata import levels
from chronik.metadata.commands.brokers import BrokerStatus
from chronik.metadata.commands.topics import CreateTopic, PartitionAssignment
from chronik.metadata.names import OFFSETS_TOPIC, SYSTEM_TOPICS, name_fault
from chronik.metadata.records import Topic
from chronik.metadata.stores.store import MetadataStore
from chronik.planning.placement import Place, place_replicas
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.wording import counted

OFFSETS_TOPIC_CONFIGS = {"cleanup.policy": "compact", "compression.type": "snappy", "segment.bytes": "104857600"}

DEFAULT = -1
"""What a request says when the broker's default is to be taken."""

Replicas = tuple[int, ...]


class TopicRequest(msgspec.Struct, frozen=True):
    name: str
    partition_count: int = DEFAULT
    replication_factor: int = DEFAULT
    assignments: Mapping[int, Replicas] = msgspec.field(default_factory=dict)
    """Replicas by partition, where the client wants to place them itself."""
    configs: Mapping[str, str | None] = msgspec.field(default_factory=dict)


class TopicPlanner:
    """Chooses what no command may leave open, since every node has to apply the same. Chance comes from outside:
    `choose_id` gives a topic its id, and `choose_below` says at which of so many brokers the placement begins."""

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

    def plan_all(self, requests: Sequence[TopicRequest]) -> Generator[None, None, list[CreateTopic | KafkaError]]:
        """Plans one after the other, in order. It may be interrupted in between."""
        outcomes: list[CreateTopic | KafkaError] = []
        partitions_left = PARTITIONS_PER_REQUEST_MAX
        for request in requests:
            try:
                command = self._plan(request, partitions_left)
                partitions_left -= len(command.partitions)
                outcomes.append(command)
            except KafkaError as error:
                outcomes.append(error.without_frames())
            yield
        return outcomes

    def plan_import(self, request: TopicRequest, topic_id: bytes, created_ms: int) -> CreateTopic:
        """Plans a topic that keeps its id. Raises KafkaError."""
        planned = self._plan(request, TOPIC_PARTITIONS_MAX)
        return msgspec.structs.replace(planned, topic_id=topic_id, time_ms=created_ms)

    def offsets_topic(self) -> TopicRequest:
        factor = self._configs.broker_int("offsets.topic.replication.factor")
        return TopicRequest(
            OFFSETS_TOPIC,
            self._configs.broker_int("offsets.topic.num.partitions"),
            min(factor, len(self._store.image.brokers)),
            configs=OFFSETS_TOPIC_CONFIGS,
        )

    def more_partitions(self, topic: Topic, total: int, given: Sequence[Replicas] | None) -> Sequence[Replicas]:
        """Returns the replicas of the partitions that the topic lacks. Raises KafkaError."""
        if any(partition.is_reassigning for partition in topic.partitions):
            told = f"Partitions of topic {topic.name} are being reassigned."
            raise KafkaError(ErrorCode.REASSIGNMENT_IN_PROGRESS, told)
        existing = len(topic.partitions)
        if total <= existing:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"Topic {topic.name} currently has {counted(existing, 'partition')}, {total} would not be an increase.",
            )
        if total > TOPIC_PARTITIONS_MAX or total - existing > PARTITIONS_PER_REQUEST_MAX:
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"A topic has at most {TOPIC_PARTITIONS_MAX} partitions")
        if given is None:
            return self._place(total - existing, topic.replication_factor)
        if len(given) != total - existing:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{counted(total - existing, 'partition')} to add, but {len(given)} assigned",
            )
        return [self._checked(each, topic.replication_factor) for each in given]

    def assignment(self, replicas: Replicas) -> PartitionAssignment:
        """All replicas that are online are in sync: their logs are as empty as the leader's."""
        brokers = self._store.image.brokers
        isr = tuple(broker for broker in replicas if brokers[broker].online) or replicas[:1]
        return PartitionAssignment(replicas, isr, isr[0])

    def time_of_change(self) -> int:
        return levels.time_if_kept(self._store.image.features, self._clock.now_ms())

    def _plan(self, request: TopicRequest, partitions_left: int) -> CreateTopic:
        """Places no partition of a topic that has too many: a request may name a thousand of those."""
        fault = name_fault(request.name)
        if fault is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Invalid topic: {fault}")
        if request.name in self._store.image.topics:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{request.name}' already exists.")
        if request.name in self._store.image.importing:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{request.name}' is being imported.")
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
        check_sizes(configs, configs)
        return CreateTopic(
            topic_id=self._choose_id(),
            name=request.name,
            partitions=tuple(map(self.assignment, replicas)),
            configs=configs,
            time_ms=self._clock.now_ms(),
            internal=request.name in SYSTEM_TOPICS,
        )

    def _replicas_by_placement(self, request: TopicRequest, partitions_left: int) -> list[Replicas]:
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

    def _replicas_as_given(self, request: TopicRequest) -> list[Replicas]:
        if request.partition_count != DEFAULT or request.replication_factor != DEFAULT:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "Replica assignments leave no room for a partition count or a factor"
            )
        if sorted(request.assignments) != list(range(len(request.assignments))):
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Partitions must be assigned from 0 without gaps")
        factor = len(request.assignments[0])
        return [self._checked(request.assignments[index], factor) for index in range(len(request.assignments))]

    def _checked(self, replicas: Replicas, factor: int) -> Replicas:
        if not replicas or len(set(replicas)) != len(replicas):
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Replicas must be given, and each once")
        if len(replicas) != factor:
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "All partitions must have equally many replicas")
        unknown = [broker for broker in replicas if broker not in self._store.image.brokers]
        if unknown:
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"No such brokers: {unknown}")
        return replicas

    def _place(self, count: int, factor: int) -> list[Replicas]:
        """Places replicas on brokers that are online; if these are too few, on others too, which get them on return;
        and only if all of those are too few on drained ones, which are about to go."""
        brokers = self._store.image.brokers.values()
        places = [Place(broker.id, broker.rack) for broker in brokers if broker.online]
        for status in (BrokerStatus.OFFLINE, BrokerStatus.MAINTENANCE):
            if factor > len(places) > 0:
                places += [Place(broker.id, broker.rack) for broker in brokers if broker.status is status]
        if not 1 <= factor <= len(places):
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"A replication factor of {factor} does not fit {counted(len(places), 'broker')}",
            )
        return place_replicas(count, factor, places, self._choose_below(len(places)))


def _check_left(count: int, partitions_left: int) -> None:
    if count > partitions_left:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, f"One request can create at most {PARTITIONS_PER_REQUEST_MAX} partitions"
        )
