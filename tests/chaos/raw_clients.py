"""Clients that send raw requests one at a time and record each response with the time of its request.

Stock clients retry at the node that they consider the leader. These clients request every node, to observe each node by
itself, how soon a partition acknowledges again, and the outcome of commits and topic changes.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TypeVar

from chronik.client.admin import NewTopic, create_topics, delete_topics
from chronik.client.cluster import ClusterClient as ClusterClient
from chronik.client.connection import BrokerConnection
from chronik.client.errors import ClientError
from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord
from chronik.config import Address
from chronik.protocol.errors import ErrorCode
from chronik.protocol.errors import KafkaError as BrokerError
from chronik.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from chronik.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from chronik.protocol.records import Record, encode_batch
from chronik.protocol.schema import Request, Response
from tests.chaos.clients import AckProgress, ChaosClient
from tests.chaos.history import (
    Acknowledged,
    CommitAcknowledged,
    DeletionSent,
    Failed,
    Journal,
    Place,
    RecordId,
    Sent,
    TopicCreated,
    TopicDeleted,
    Unknown,
    encode_value,
    now,
)
from tests.run_size import IS_LONG_RUN

R = TypeVar("R", bound=Response)

ASK_SECONDS_MAX = 1.0
"""Shorter than a fault, so that several requests fall into each."""

PULSE_SECONDS = 0.1 if IS_LONG_RUN else 0.2
PRODUCE_SECONDS_MAX = 4.0
"""As for the other clients here: a leader with a delay of one second to its followers needs three."""

COMMIT_SECONDS = 0.05 if IS_LONG_RUN else 0.15
TOPIC_SECONDS = 1.0
CHANGE_SECONDS_MAX = 5.0
ALL_IN_SYNC = -1


class NodeConnection:
    """A connection to one node that is reopened after a failure."""

    def __init__(self, address: Address, name: str, timeout_s: float = ASK_SECONDS_MAX) -> None:
        self._address = address
        self._name = name
        self._timeout_s = timeout_s
        self._connection: BrokerConnection | None = None

    def send_request(self, request: Request, answer: type[R]) -> R:
        """Send a request and return its response. Raises ClientError."""
        if self._connection is None or self._connection.is_closed:
            self._connection = BrokerConnection(self._address, client_id=self._name, timeout_s=self._timeout_s)
        return self._connection.request(request, answer)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


class PulseProducer(ChaosClient):
    """Writes one record after the other to one partition, each once at the node that accepts it.

    It has no client retries that would hide when the cluster is available.
    """

    def __init__(
        self, name: str, journal: Journal, progress: AckProgress, nodes: Mapping[int, Address], place: Place
    ) -> None:
        super().__init__(name, journal)
        self._progress = progress
        self._place = place
        self._connections = deque(NodeConnection(address, name, PRODUCE_SECONDS_MAX) for address in nodes.values())
        self._number = 0

    def _run(self) -> None:
        while not self._ending.wait(PULSE_SECONDS):
            if not self._is_acknowledged():
                self._connections.rotate(-1)
        for listener in self._connections:
            listener.close()

    def _is_acknowledged(self) -> bool:
        record, sent_at = RecordId(self.name, self._number), now()
        self._number += 1
        self._journal.add(Sent(at=sent_at, id=record, topic=self._place.topic))
        error, offset = self._send(record)
        if error is None:
            self._journal.add(Acknowledged(at=now(), id=record, place=self._place, offset=offset))
            self._progress.record_ack(self._place, sent_at)
        elif error == ErrorCode.NOT_ENOUGH_REPLICAS.name:
            self._journal.add(Failed(at=now(), id=record, error=error))
        else:
            self._journal.add(Unknown(at=now(), id=record, error=error))
        return error is None

    def _send(self, record: RecordId) -> tuple[str | None, int]:
        batch = encode_batch([Record(0, 0, value=encode_value(record, None))])
        data = PartitionProduceData(index=self._place.partition, records=batch)
        topic = TopicProduceData(name=self._place.topic, partition_data=[data])
        timeout_ms = int(PRODUCE_SECONDS_MAX * 1000)
        request = ProduceRequest(acks=ALL_IN_SYNC, timeout_ms=timeout_ms, topic_data=[topic])
        try:
            answer = self._connections[0].send_request(request, ProduceResponse).responses[0].partition_responses[0]
        except (ClientError, BrokerError) as failure:
            return type(failure).__name__, -1
        code = ErrorCode(answer.error_code)
        return (None, answer.base_offset) if code is ErrorCode.NONE else (code.name, -1)


class CommitWriter(ChaosClient):
    """Commits growing offsets for several groups in turn. Each commit is sent once.

    Whether and when an unacknowledged commit takes effect is unknown.
    """

    def __init__(
        self, name: str, journal: Journal, nodes: Mapping[int, Address], groups: Sequence[str], place: Place
    ) -> None:
        super().__init__(name, journal)
        self._connections = {node: NodeConnection(address, name) for node, address in nodes.items()}
        self._turns = {group: deque(nodes) for group in groups}
        self._place = place

    def _run(self) -> None:
        offset = 0
        while not self._ending.wait(COMMIT_SECONDS):
            offset += 1
            for group, nodes in self._turns.items():
                if self._is_committed(nodes[0], group, offset):
                    self._journal.add(CommitAcknowledged(at=now(), group=group, offset=offset))
                else:
                    nodes.rotate(-1)
        for listener in self._connections.values():
            listener.close()

    def _is_committed(self, node: int, group: str, offset: int) -> bool:
        partition = OffsetCommitRequestPartition(
            partition_index=self._place.partition, committed_offset=offset, committed_metadata=""
        )
        topic = OffsetCommitRequestTopic(name=self._place.topic, partitions=[partition])
        request = OffsetCommitRequest(group_id=group, topics=[topic])
        try:
            answer = self._connections[node].send_request(request, OffsetCommitResponse)
        except (ClientError, BrokerError):
            return False
        return answer.topics[0].partitions[0].error_code == ErrorCode.NONE


class TopicNames:
    """The names of recently created topics. Thread-safe."""

    def __init__(self, kept: int = 8) -> None:
        self._lock = threading.Lock()
        self._names: deque[str] = deque(maxlen=kept)

    def add(self, name: str) -> None:
        with self._lock:
            self._names.append(name)

    def latest(self) -> list[str]:
        with self._lock:
            return list(self._names)


class TopicCreator(ChaosClient):
    """Creates topics, writes a record to each, and deletes them. Topic names are never reused."""

    def __init__(self, name: str, journal: Journal, bootstrap: str, names: TopicNames) -> None:
        super().__init__(name, journal)
        self._bootstrap = bootstrap
        self._names = names

    def _run(self) -> None:
        number, alive = 0, deque[str]()
        while not self._ending.wait(TOPIC_SECONDS):
            number += 1
            with ClusterClient(self._bootstrap, client_id=self.name, timeout_s=CHANGE_SECONDS_MAX) as cluster:
                topic = f"passing-{number}"
                self._names.add(topic)
                if self._is_created(cluster, topic):
                    alive.append(topic)
                if len(alive) > 2:
                    self._delete(cluster, alive.popleft())

    def _is_created(self, cluster: ClusterClient, topic: str) -> bool:
        try:
            create_topics(cluster, [NewTopic(topic, partitions=1)])
            self._journal.add(TopicCreated(at=now(), topic=topic))
            Producer(cluster).send(topic, [OutgoingRecord(value=b"here")])
        except (ClientError, BrokerError):
            return False
        return True

    def _delete(self, cluster: ClusterClient, topic: str) -> None:
        self._journal.add(DeletionSent(at=now(), topic=topic))
        try:
            delete_topics(cluster, [topic])
        except (ClientError, BrokerError):
            return
        self._journal.add(TopicDeleted(at=now(), topic=topic))
