"""The brokers behind a bootstrap address: who leads what, who coordinates whom, and trying again when that changes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from chronik.client.access.settings import Bootstrap, access_of
from chronik.client.connection import Connection
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
from chronik.wording import counted

T = TypeVar("T")

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"

GROUP, TRANSACTION = 0, 1
"""What can be coordinated, as FindCoordinator numbers it."""

BACKOFF_SECONDS_MIN: Final = 0.02
BACKOFF_SECONDS_MAX: Final = 1.0

UNKNOWN_TOPIC_SECONDS_MAX: Final = 1.0
"""A topic that another node has just created is known everywhere by then; longer, and a typo takes too long."""

UNSENT: Final = (BrokerUnreachable,)
UNANSWERED: Final = (BrokerUnreachable, ConnectionLost)


class Cluster:
    """Use it from one thread at a time, as a context manager. Connections are made when they are needed."""

    def __init__(
        self, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, *, client_id: str = "chronik", timeout_s: float = 30.0
    ) -> None:
        """`bootstrap`: HOST:PORT, or several with commas; an Access where brokers want to see more. Raises ClientError
        when it is not."""
        servers, self.security = access_of(bootstrap)
        self._bootstrap = parse_bootstrap(servers)
        self._client_id = client_id
        self.timeout_s = timeout_s
        self._connections: dict[Address, Connection] = {}
        self._brokers: dict[int, Address] = {}
        self._controller_id = -1
        self._topics: dict[str, MetadataResponseTopic] = {}
        self._coordinators: dict[tuple[str, int], tuple[int, Address]] = {}
        self._reached = False

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # Trying again

    def retrying(self, operation: Callable[[], T], *, repeatable: bool = True) -> T:
        """Returns the result of `operation`, which is tried again while what went wrong may pass.

        An operation that is not `repeatable` is not tried again when it may have taken effect already. A bootstrap
        address that never answered is not waited for. Raises the last ClientError or KafkaError.
        """
        began, backoff_s = time.monotonic(), BACKOFF_SECONDS_MIN
        while True:
            try:
                return operation()
            except (ClientError, KafkaError) as error:
                elapsed_s = time.monotonic() - began + backoff_s
                if elapsed_s > self._patience_s(error, repeatable):
                    raise
            self.forget()
            time.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, BACKOFF_SECONDS_MAX)

    def _patience_s(self, error: ClientError | KafkaError, repeatable: bool) -> float:
        if isinstance(error, KafkaError):
            if error.code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.KAFKA_STORAGE_ERROR):
                return min(UNKNOWN_TOPIC_SECONDS_MAX, self.timeout_s)
            return self.timeout_s if error.code.retriable else 0.0
        passing = UNANSWERED if repeatable else UNSENT
        return self.timeout_s if self._reached and isinstance(error, passing) else 0.0

    def forget(self) -> None:
        """Forgets who leads and who coordinates: it is asked again before the next request."""
        self._topics.clear()
        self._coordinators.clear()

    # Brokers

    def any_broker(self) -> Connection:
        """Raises BrokerUnreachable when there is none."""
        for connection in self._connections.values():
            if not connection.closed:
                return connection
        failure = BrokerUnreachable("no bootstrap server was given")
        for address in dict.fromkeys((*self._brokers.values(), *self._bootstrap)):
            try:
                return self._connection(address)
            except BrokerUnreachable as error:
                failure = error
        raise failure

    def broker(self, node_id: int) -> Connection:
        """Returns one that leads something. Raises KafkaError when it is no longer listed: another will lead."""
        address = self._brokers.get(node_id)
        if address is None:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"broker {node_id} is not there at the moment")
        return self._connection(address)

    def brokers(self) -> list[Connection]:
        """Returns all that the cluster lists now. Raises BrokerUnreachable when one of them does not answer."""
        return list(self.brokers_by_id().values())

    def brokers_by_id(self) -> dict[int, Connection]:
        """Raises BrokerUnreachable when one of them does not answer. Where the others are to be told all the same, ask
        each id of `metadata([])` by `broker`, and take UNANSWERED for an answer."""
        self.metadata([])
        return {broker_id: self._connection(address) for broker_id, address in sorted(self._brokers.items())}

    def controller(self) -> Connection:
        """Returns the broker that creates topics; where all brokers forward to it, whichever they name."""
        self.metadata([])
        return self.broker(self._controller_id) if self._controller_id in self._brokers else self.any_broker()

    def coordinator(self, group: str) -> Connection:
        _, address = self._coordinator(group, GROUP)
        return self._connection(address)

    def transaction_coordinator(self, transactional_id: str) -> tuple[int, Connection]:
        """Returns it with its node id."""
        node_id, address = self._coordinator(transactional_id, TRANSACTION)
        return node_id, self._connection(address)

    def _coordinator(self, key: str, key_type: int) -> tuple[int, Address]:
        if (key, key_type) not in self._coordinators:
            request = FindCoordinatorRequest(key=key, key_type=key_type)
            found = self.any_broker().request(request, FindCoordinatorResponse)
            about = "group" if key_type == GROUP else "transactional id"
            raise_for(found.error_code, f"{about} {key}", found.error_message)
            self._coordinators[key, key_type] = found.node_id, Address(found.host, found.port)
        return self._coordinators[key, key_type]

    def _connection(self, address: Address) -> Connection:
        connection = self._connections.get(address)
        if connection is None or connection.closed:
            self._connections.pop(address, None)
            connection = Connection(
                address, client_id=self._client_id, timeout_s=self.timeout_s, security=self.security
            )
            self._connections[address] = connection
            self._reached = True
        return connection

    # Topics

    def metadata(self, topics: list[str] | None, *, create: bool = False) -> MetadataResponse:
        """Returns what a broker answers now: about these topics, or with None about all of them."""
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=create)
        response = self.any_broker().request(request, MetadataResponse)
        raise_for(response.error_code, "metadata")
        self._brokers = {broker.node_id: Address(broker.host, broker.port) for broker in response.brokers}
        self._controller_id = response.controller_id
        return response

    def topic(self, name: str, *, create: bool = False) -> MetadataResponseTopic:
        """Returns a topic as last seen; with `create` a broker may create it, if it ever does. Raises KafkaError."""
        if name not in self._topics:
            (topic,) = self.metadata([name], create=create).topics
            raise_for(topic.error_code, f"topic {name}")
            topic.partitions.sort(key=lambda partition: partition.partition_index)
            self._topics[name] = topic
        return self._topics[name]

    def partitions(self, name: str, *, create: bool = False) -> list[TopicPartition]:
        topic = self.topic(name, create=create)
        return [TopicPartition(name, partition.partition_index) for partition in topic.partitions]

    def leader_id(self, of: TopicPartition) -> int:
        """Raises KafkaError when the partition does not exist or has no leader at the moment."""
        for partition in self.topic(of.topic).partitions:
            if partition.partition_index == of.partition:
                if partition.leader_id < 0:
                    raise_for(partition.error_code or ErrorCode.LEADER_NOT_AVAILABLE, str(of))
                return partition.leader_id
        count = len(self.topic(of.topic).partitions)
        message = f"topic {of.topic} has {counted(count, 'partition')}, and no partition {of.partition}"
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)

    def leader(self, of: TopicPartition) -> Connection:
        return self.broker(self.leader_id(of))


def parse_bootstrap(text: str) -> list[Address]:
    try:
        return [Address.parse(part.strip()) for part in text.split(",")]
    except ValueError as error:
        raise ClientError(f"bootstrap server {text!r}: expected {error}") from None


def raise_for(code: int, about: str, message: str | None = None) -> None:
    """Raises KafkaError unless `code` is 0."""
    if code:
        known = ErrorCode(code)
        raise KafkaError(known, f"{about}: {message or known.message}")


def listed_brokers(connection: Connection) -> list[int]:
    """The ids of the brokers that the Metadata of this very node lists. Raises ClientError."""
    request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
    return sorted(broker.node_id for broker in connection.request(request, MetadataResponse).brokers)
