"""A client of a cluster: metadata, leaders, coordinators, connections and retries."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from chronik.client.access.settings import Bootstrap, to_bootstrap_access
from chronik.client.connection import BrokerConnection
from chronik.client.errors import BrokerUnreachable, ClientError, ConnectionLost
from chronik.client.records import TopicPartition
from chronik.config import Address
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from chronik.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from chronik.wording import pluralize

T = TypeVar("T")

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"

GROUP_KEY_TYPE, TRANSACTION_KEY_TYPE = 0, 1
"""Coordinator key types of FindCoordinator."""

BACKOFF_SECONDS_MIN: Final = 0.02
BACKOFF_SECONDS_MAX: Final = 1.0

UNKNOWN_TOPIC_SECONDS_MAX: Final = 1.0
"""Maximum time in seconds for which requests for an unknown topic are retried. New topics are visible on all nodes
sooner, and misspelled names fail quickly."""

NOT_SENT_ERRORS: Final = (BrokerUnreachable,)
NO_RESPONSE_ERRORS: Final = (BrokerUnreachable, ConnectionLost)


class ClusterClient:
    """A client with connections to the brokers of a cluster and cached metadata.

    Not thread-safe. Use it as a context manager.

    Connections are opened on demand.
    """

    def __init__(
        self, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, *, client_id: str = "chronik", timeout_s: float = 30.0
    ) -> None:
        """Parse the bootstrap servers: a HOST:PORT address, a comma-separated list of addresses, or a BootstrapAccess.

        Raises:
            ClientError: If an address is invalid.
        """
        servers, self.security = to_bootstrap_access(bootstrap)
        self._bootstrap = parse_bootstrap(servers)
        self._client_id = client_id
        self.timeout_s = timeout_s
        self._connections: dict[Address, BrokerConnection] = {}
        self._brokers: dict[int, Address] = {}
        self._controller_id = -1
        self._topics: dict[str, MetadataResponseTopic] = {}
        self._coordinators: dict[tuple[str, int], tuple[int, Address]] = {}
        self._was_reached = False

    def __enter__(self) -> ClusterClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # Retries

    def retry(self, operation: Callable[[], T], *, repeatable: bool = True) -> T:
        """Run `operation`, retry it after retriable errors until the timeout expires, and return its result.

        An operation that is not `repeatable` is not retried once it may have taken effect. A bootstrap server that has
        never answered is not retried. Raises the last ClientError or KafkaError.
        """
        started, backoff_s = time.monotonic(), BACKOFF_SECONDS_MIN
        while True:
            try:
                return operation()
            except (ClientError, KafkaError) as error:
                elapsed_s = time.monotonic() - started + backoff_s
                if elapsed_s > self._compute_retry_seconds(error, repeatable):
                    raise
            self.invalidate_metadata()
            time.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, BACKOFF_SECONDS_MAX)

    def _compute_retry_seconds(self, error: ClientError | KafkaError, repeatable: bool) -> float:
        if isinstance(error, KafkaError):
            if error.code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.KAFKA_STORAGE_ERROR):
                return min(UNKNOWN_TOPIC_SECONDS_MAX, self.timeout_s)
            return self.timeout_s if error.code.retriable else 0.0
        retriable_errors = NO_RESPONSE_ERRORS if repeatable else NOT_SENT_ERRORS
        return self.timeout_s if self._was_reached and isinstance(error, retriable_errors) else 0.0

    def invalidate_metadata(self) -> None:
        """Clear the cached leaders and coordinators, so that the next request refreshes them."""
        self._topics.clear()
        self._coordinators.clear()

    # Brokers

    def any_broker(self) -> BrokerConnection:
        """Return a connection to any broker. Raise BrokerUnreachable if no broker can be reached."""
        for connection in self._connections.values():
            if not connection.is_closed:
                return connection
        failure = BrokerUnreachable("no bootstrap server was given")
        for address in dict.fromkeys((*self._brokers.values(), *self._bootstrap)):
            try:
                return self._get_connection(address)
            except BrokerUnreachable as error:
                failure = error
        raise failure

    def broker(self, node_id: int) -> BrokerConnection:
        """Return a connection to the broker. Raise a retriable KafkaError if the metadata no longer lists it."""
        address = self._brokers.get(node_id)
        if address is None:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"broker {node_id} is not available at the moment")
        return self._get_connection(address)

    def brokers(self) -> list[BrokerConnection]:
        """Return connections to all brokers of the cluster. Raise BrokerUnreachable if one cannot be reached."""
        return list(self.brokers_by_id().values())

    def brokers_by_id(self) -> dict[int, BrokerConnection]:
        """Return connections to all brokers of the cluster by node id.

        Raise BrokerUnreachable if one cannot be reached.

        To skip unreachable brokers, call `broker` for each id in `metadata([])` and catch ClientError.
        """
        self.metadata([])
        return {broker_id: self._get_connection(address) for broker_id, address in sorted(self._brokers.items())}

    def controller(self) -> BrokerConnection:
        """Return a connection to the controller, or to any broker if the metadata lists no controller."""
        self.metadata([])
        return self.broker(self._controller_id) if self._controller_id in self._brokers else self.any_broker()

    def coordinator(self, group: str) -> BrokerConnection:
        """Return a connection to the coordinator of a consumer group."""
        _, address = self._find_coordinator(group, GROUP_KEY_TYPE)
        return self._get_connection(address)

    def transaction_coordinator(self, transactional_id: str) -> tuple[int, BrokerConnection]:
        """Return the node id of the transaction coordinator and a connection to it."""
        node_id, address = self._find_coordinator(transactional_id, TRANSACTION_KEY_TYPE)
        return node_id, self._get_connection(address)

    def _find_coordinator(self, key: str, key_type: int) -> tuple[int, Address]:
        if (key, key_type) not in self._coordinators:
            request = FindCoordinatorRequest(key=key, key_type=key_type)
            found = self.any_broker().request(request, FindCoordinatorResponse)
            about = "group" if key_type == GROUP_KEY_TYPE else "transactional id"
            raise_for_code(found.error_code, f"{about} {key}", found.error_message)
            self._coordinators[key, key_type] = found.node_id, Address(found.host, found.port)
        return self._coordinators[key, key_type]

    def _get_connection(self, address: Address) -> BrokerConnection:
        connection = self._connections.get(address)
        if connection is None or connection.is_closed:
            self._connections.pop(address, None)
            connection = BrokerConnection(
                address, client_id=self._client_id, timeout_s=self.timeout_s, security=self.security
            )
            self._connections[address] = connection
            self._was_reached = True
        return connection

    # Topics

    def metadata(self, topics: list[str] | None, *, create: bool = False) -> MetadataResponse:
        """Request metadata of the given topics, or of all topics if `topics` is None."""
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=create)
        response = self.any_broker().request(request, MetadataResponse)
        raise_for_code(response.error_code, "metadata")
        self._brokers = {broker.node_id: Address(broker.host, broker.port) for broker in response.brokers}
        self._controller_id = response.controller_id
        return response

    def topic(self, name: str, *, create: bool = False) -> MetadataResponseTopic:
        """Return a topic's cached metadata.

        `create` allows auto-creation on the broker. Raise KafkaError if the topic is unavailable.
        """
        if name not in self._topics:
            (topic,) = self.metadata([name], create=create).topics
            raise_for_code(topic.error_code, f"topic {name}")
            topic.partitions.sort(key=lambda partition: partition.partition_index)
            self._topics[name] = topic
        return self._topics[name]

    def refresh_topics(self, names: Sequence[str]) -> dict[str, KafkaError]:
        """Refresh the cached metadata of topics with one request, and return the errors of unavailable topics.

        Raises:
            ClientError: No broker responds.
            KafkaError: The broker rejects the request.
        """
        errors: dict[str, KafkaError] = {}
        for topic in self.metadata(list(names)).topics:
            name = topic.name or ""
            self._topics.pop(name, None)
            if topic.error_code:
                code = ErrorCode(topic.error_code)
                errors[name] = KafkaError(code, f"topic {name}: {code.message}")
            else:
                topic.partitions.sort(key=lambda partition: partition.partition_index)
                self._topics[name] = topic
        return errors

    @property
    def cached_topics(self) -> Mapping[str, MetadataResponseTopic]:
        """The topics with cached metadata, by name."""
        return self._topics

    def partitions(self, name: str, *, create: bool = False) -> list[TopicPartition]:
        """Return the partitions of a topic from its cached metadata."""
        topic = self.topic(name, create=create)
        return [TopicPartition(name, partition.partition_index) for partition in topic.partitions]

    def leader_id(self, of: TopicPartition) -> int:
        """Return the node id of the partition's leader.

        Raise KafkaError if the partition or its leader does not exist.
        """
        for partition in self.topic(of.topic).partitions:
            if partition.partition_index == of.partition:
                if partition.leader_id < 0:
                    raise_for_code(partition.error_code or ErrorCode.LEADER_NOT_AVAILABLE, str(of))
                return partition.leader_id
        count = len(self.topic(of.topic).partitions)
        message = f"topic {of.topic} has {pluralize(count, 'partition')}, but no partition {of.partition}"
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)

    def leader(self, of: TopicPartition) -> BrokerConnection:
        """Return a connection to the partition's leader."""
        return self.broker(self.leader_id(of))


def parse_bootstrap(text: str) -> list[Address]:
    try:
        return [Address.parse(part.strip()) for part in text.split(",")]
    except ValueError as error:
        raise ClientError(f"bootstrap server {text!r}: expected {error}") from None


def raise_for_code(code: int, about: str, message: str | None = None) -> None:
    """Raise a KafkaError with the error code and the affected resource, unless `code` is 0."""
    if code:
        known = ErrorCode(code)
        raise KafkaError(known, f"{about}: {message or known.message}")


def list_broker_ids(connection: BrokerConnection) -> list[int]:
    """Return the ids of the brokers in this node's Metadata response. Raise ClientError if the request fails."""
    request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
    return sorted(broker.node_id for broker in connection.request(request, MetadataResponse).brokers)
