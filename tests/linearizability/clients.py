"""Clients of real nodes that record every request with its time and outcome."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from itertools import count, product

from chronik.client.connection import BrokerConnection
from chronik.client.errors import BrokerUnreachable, ConnectionLost
from chronik.config import Address
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from chronik.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from chronik.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from chronik.protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from chronik.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.linearizability.topics import (
    Action,
    Create,
    Delete,
    Exists,
    Get,
    Output,
    Read,
    Set,
    TopicAnswer,
    TopicOperation,
)

SHORT_TIMEOUT_SECONDS = 1.0
"""A timeout much longer than a response and shorter than any fault: these clients abandon requests."""

LONG_TIMEOUT_SECONDS = 15.0
"""A timeout longer than a node tries: these clients receive the node's error."""

UNREACHABLE_SECONDS = 0.05
"""Delay before the next attempt when a node refuses connections."""

REGISTER = "retention.ms"
"""The topic config that serves as a register. It has no effect in an empty topic."""

TOPIC_RESOURCE = 2
VALUES_PER_CLIENT_MAX = 1_000_000

MEANINGS = {
    ErrorCode.TOPIC_ALREADY_EXISTS: TopicAnswer.ALREADY_EXISTS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: TopicAnswer.MISSING,
    ErrorCode.UNKNOWN_TOPIC_ID: TopicAnswer.MISSING,
}

UNCHANGED_ERRORS = {
    ErrorCode.NOT_CONTROLLER,  # the node knew no leader
    ErrorCode.BROKER_NOT_AVAILABLE,  # the broker chosen for a new topic was lost
    ErrorCode.INVALID_REPLICATION_FACTOR,  # no broker was available
}
"""Error codes which guarantee that nothing was changed."""

READS, WRITES = "reads", "writes"
UNKNOWN_WRITES, UNANSWERED_READS, UNREACHABLE = "unknown writes", "unanswered reads", "unreachable"
"""Outcomes of requests. Requests that definitely changed nothing are counted by their error."""

WEIGHTS = {Get: 30, Exists: 20, Set: 25, Create: 15, Delete: 10}


class TopicClient:
    """A client of one node, on one thread, that appends its operations to a shared history."""

    def __init__(
        self, number: int, node: Address, history: list[TopicOperation], patience_s: float = SHORT_TIMEOUT_SECONDS
    ) -> None:
        self._number = number
        self._node = node
        self._patience_s = patience_s
        self._history = history
        self._connection: BrokerConnection | None = None
        self._values = count(number * VALUES_PER_CLIENT_MAX)
        self.outcomes: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"<client {self._number} of {self._node}: {dict(self.outcomes)}>"

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def new_value(self) -> int:
        """Return a value that no other write has."""
        return next(self._values)

    def perform(self, topic: str, action: Action) -> Output | None:
        """Execute an operation. Return None if its outcome is unknown or it definitely had no effect.

        Raises:
            KafkaError: A node returned an unexpected error.
        """
        called_ns = time.monotonic_ns()
        try:
            output = _exchange(self._connected(), topic, action)
        except BrokerUnreachable:  # the request was not sent
            self.close()
            self.outcomes[UNREACHABLE] += 1
        except ConnectionLost:
            self.close()
            self._unknown(topic, action, called_ns)
        except KafkaError as error:
            if error.code is ErrorCode.REQUEST_TIMED_OUT:
                self._unknown(topic, action, called_ns)
            elif error.code in UNCHANGED_ERRORS:
                self.outcomes[error.code.name] += 1
            else:
                raise
        else:
            returned_ns = time.monotonic_ns()
            self._history.append(TopicOperation(self._number, topic, action, called_ns, returned_ns, output))
            self.outcomes[READS if isinstance(action, Read) else WRITES] += 1
            return output
        return None

    def _connected(self) -> BrokerConnection:
        if self._connection is None:
            self._connection = BrokerConnection(
                self._node, client_id=f"client-{self._number}", timeout_s=self._patience_s
            )
        return self._connection

    def _unknown(self, topic: str, action: Action, called_ns: int) -> None:
        if isinstance(action, Read):  # changed nothing and returned nothing
            self.outcomes[UNANSWERED_READS] += 1
            return
        self.outcomes[UNKNOWN_WRITES] += 1
        self._history.append(TopicOperation(self._number, topic, action, called_ns))


def _exchange(connection: BrokerConnection, topic: str, action: Action) -> Output:
    """Send a request and return its result. Raises ClientError or KafkaError."""
    match action:
        case Create(value):
            register = CreatableTopicConfig(name=REGISTER, value=str(value))
            wanted = CreatableTopic(name=topic, num_partitions=1, replication_factor=1, configs=[register])
            created = connection.request(CreateTopicsRequest(topics=[wanted]), CreateTopicsResponse)
            return _meaning(created.topics[0].error_code, TopicAnswer.DONE)
        case Delete():
            deleted = connection.request(DeleteTopicsRequest(topic_names=[topic]), DeleteTopicsResponse)
            return _meaning(deleted.responses[0].error_code, TopicAnswer.DONE)
        case Set(value):
            change = IncrementalAlterableConfig(name=REGISTER, config_operation=0, value=str(value))
            resource = IncrementalAlterConfigsResource(
                resource_type=TOPIC_RESOURCE, resource_name=topic, configs=[change]
            )
            request = IncrementalAlterConfigsRequest(resources=[resource])
            altered = connection.request(request, IncrementalAlterConfigsResponse)
            return _meaning(altered.responses[0].error_code, TopicAnswer.DONE)
        case Exists():
            looked_for = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
            found = connection.request(looked_for, MetadataResponse)
            return _meaning(found.topics[0].error_code, TopicAnswer.EXISTS)
        case Get():
            described = DescribeConfigsResource(
                resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=[REGISTER]
            )
            answer = connection.request(DescribeConfigsRequest(resources=[described]), DescribeConfigsResponse)
            result = answer.results[0]
            text = result.configs[0].value if result.configs else None
            return _meaning(result.error_code, int(text) if text is not None else TopicAnswer.MISSING)


def _meaning(code: int, done: Output) -> Output:
    if code == ErrorCode.NONE:
        return done
    error = ErrorCode(code)
    if error not in MEANINGS:
        raise KafkaError(error)
    return MEANINGS[error]


class LinearizabilityLoad:
    """Two clients of each node, one with a short and one with a long timeout, that use the same topics until `end`."""

    def __init__(self, nodes: Sequence[Address], seed: int) -> None:
        self.history: list[TopicOperation] = []
        self._topics: Sequence[str] = ()
        self._ending = threading.Event()
        self._failures: list[BaseException] = []
        self.clients = [
            TopicClient(number, node, self.history, patience_s)
            for number, (node, patience_s) in enumerate(
                product(nodes, (SHORT_TIMEOUT_SECONDS, LONG_TIMEOUT_SECONDS)), 1
            )
        ]
        self._threads = [
            threading.Thread(target=self._run, args=(client, random.Random(f"{seed} {number}")))
            for number, client in enumerate(self.clients)
        ]

    def start(self, topics: Sequence[str]) -> None:
        self.work_on(topics)
        for thread in self._threads:
            thread.start()

    def work_on(self, topics: Sequence[str]) -> None:
        """Use these topics from the next request on."""
        self._topics = topics

    def stop(self) -> None:
        """Stop the clients and raise the first error, if any."""
        self._ending.set()
        for thread in self._threads:
            thread.join()
        self.raise_failure()

    def raise_failure(self) -> None:
        if self._failures:
            raise self._failures[0]

    def outcomes(self) -> Counter[str]:
        return sum((client.outcomes for client in self.clients), Counter())

    def unanswered(self) -> int:
        outcomes = self.outcomes()
        return outcomes[UNKNOWN_WRITES] + outcomes[UNANSWERED_READS] + outcomes[UNREACHABLE]

    def _run(self, client: TopicClient, randomness: random.Random) -> None:
        try:
            while not self._ending.is_set():
                unreachable = client.outcomes[UNREACHABLE]
                client.perform(randomness.choice(self._topics), _some_action(client, randomness))
                if client.outcomes[UNREACHABLE] > unreachable:
                    self._ending.wait(UNREACHABLE_SECONDS)
        except Exception as failure:  # raised again by end
            self._failures.append(failure)
        finally:
            client.close()


def _some_action(client: TopicClient, randomness: random.Random) -> Action:
    (kind,) = randomness.choices(list(WEIGHTS), list(WEIGHTS.values()))
    return kind(client.new_value()) if kind is Create or kind is Set else kind()
