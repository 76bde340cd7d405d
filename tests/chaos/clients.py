"""Clients that record everything they do: producers and group members (librdkafka), and a watcher of end offsets.

They run on threads of this process. Their rates are limited so that two cores have time for the nodes.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from chronik.client.cluster import ClusterClient as ClusterClient
from chronik.client.errors import ClientError
from chronik.client.offsets import list_latest_offsets
from chronik.client.records import TopicPartition
from chronik.protocol.errors import KafkaError as BrokerError
from tests.chaos.history import (
    NO_EPOCH,
    Acknowledged,
    ClientBroken,
    Committed,
    Consumed,
    EndSeen,
    Failed,
    Journal,
    Place,
    RecordId,
    Sent,
    Unknown,
    decode_value,
    encode_value,
    now,
)
from tests.run_size import IS_LONG_RUN

REQUEST_TIMEOUT_MS = 4_000
SOCKET_TIMEOUT_MS = 5_000
METADATA_MS = 2_000
"""Timeouts and metadata age of all clients. A paused or isolated node closes no connections: stock clients would wait
30 to 60 s for it and refresh their metadata every five minutes, which is longer than the faults here."""

TICK_SECONDS = 0.02 if IS_LONG_RUN else 0.05
"""Poll interval of all clients. `make chaos` polls more often than the short run in the tests."""

OUTSTANDING_MAX = 2_000
"""Unsettled records of one producer, after which it waits instead of queueing more."""

PADDING_BYTES = 100
WATCH_SECONDS = 0.25 if IS_LONG_RUN else 0.5
WATCH_TIMEOUT_SECONDS = 2.0
POLL_SECONDS = 0.1

DEFINITE_ERRORS = frozenset({"_QUEUE_FULL", "MSG_SIZE_TOO_LARGE", "INVALID_RECORD", "INVALID_REQUIRED_ACKS"})
"""Errors of the client itself, which mean that the record was never written."""

DEFINITE_ERRORS_OF_ONE_ATTEMPT = DEFINITE_ERRORS | {"NOT_ENOUGH_REPLICAS"}
"""Errors that a broker returns before it writes. After a retry, an earlier attempt may have been written. (librdkafka
does not count retries after NOT_LEADER errors, so these do not affect the single attempt.)"""

Settings = Mapping[str, Any]


class AckProgress:
    """The send time up to which records are acknowledged, by partition: shows whether a partition makes progress."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sent_at: dict[Place, float] = {}
        self._acknowledged_at: dict[Place, float] = {}
        self.acknowledged = 0

    def record_ack(self, place: Place, sent_at: float) -> None:
        with self._lock:
            self.acknowledged += 1
            self._sent_at[place] = max(sent_at, self._sent_at.get(place, 0.0))
            self._acknowledged_at[place] = now()

    def partitions_without_progress(self, places: Sequence[Place], since: float) -> list[Place]:
        """Return the partitions that have not acknowledged a record sent after `since`."""
        with self._lock:
            return [place for place in places if self._sent_at.get(place, 0.0) <= since]

    def silent_partitions(self, places: Sequence[Place], since: float) -> list[Place]:
        """Return the partitions that have acknowledged no record since then, however old."""
        with self._lock:
            return [place for place in places if self._acknowledged_at.get(place, 0.0) <= since]


class ChaosClient:
    """A thread that works until `end` is called. `join` raises its exception, if any."""

    def __init__(self, name: str, journal: Journal) -> None:
        self.name = name
        self._journal = journal
        self._ending = threading.Event()
        self._failure: BaseException | None = None
        self._is_broken = False
        self._thread = threading.Thread(target=self._run_and_catch, name=name)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ending.set()

    def join(self) -> None:
        if self._thread.ident is not None:
            self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run_and_catch(self) -> None:
        try:
            self._run()
        except BaseException as failure:  # raised again by join
            self._failure = failure

    def _run(self) -> None:
        raise NotImplementedError

    def _common_settings(self, bootstrap: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": bootstrap,
            "client.id": self.name,
            "socket.timeout.ms": SOCKET_TIMEOUT_MS,
            "topic.metadata.refresh.interval.ms": METADATA_MS,
            "log_level": 0,
            "error_cb": self._on_error,
        }

    def _on_error(self, error: KafkaError) -> None:
        """Record fatal errors of the client. Unreachable nodes are expected."""
        if error.fatal() and not self._is_broken:
            self._is_broken = True
            self._journal.add(ClientBroken(at=now(), client=self.name, error=error.str()))


class _Unsettled(NamedTuple):
    sent_at: float
    key: str | None


class ChaosProducer(ChaosClient):
    """Sends `rate` records/s, fewer when too many are unsettled; with keys, one record of each key at a time."""

    def __init__(
        self,
        name: str,
        journal: Journal,
        progress: AckProgress,
        bootstrap: str,
        topic: str,
        rate: float,
        *,
        timeout_s: float,
        keys: int = 0,
        settings: Settings | None = None,
    ) -> None:
        super().__init__(name, journal)
        self._progress = progress
        self._topic = topic
        self._rate = rate
        self._has_keys = keys > 0
        self._timeout_s = timeout_s
        settings = settings or {}
        self._definite = DEFINITE_ERRORS_OF_ONE_ATTEMPT if settings.get("retries") == 0 else DEFINITE_ERRORS
        self._producer = Producer(
            self._common_settings(bootstrap)
            | {"request.timeout.ms": REQUEST_TIMEOUT_MS, "message.timeout.ms": int(timeout_s * 1000)}
            | dict(settings)
        )
        self._unsettled: dict[int, _Unsettled] = {}
        self._free_keys = deque(f"{name}/{key}" for key in range(keys))

    def _run(self) -> None:
        try:
            self._send_until_end()
            self._producer.flush(2 * self._timeout_s)
        except KafkaException as failure:  # raised by poll and flush after a fatal error
            self._on_error(failure.args[0])
        for number in list(self._unsettled):
            self._journal.add(Unknown(at=now(), id=RecordId(self.name, number), error="never settled"))

    def _send_until_end(self) -> None:
        due_at, number = now(), 0
        while not self._ending.wait(TICK_SECONDS):
            self._producer.poll(0)
            while due_at <= now():
                due_at += 1 / self._rate  # also when no record is sent: missed records are not made up for
                if len(self._unsettled) < OUTSTANDING_MAX and (self._free_keys or not self._has_keys):
                    self._send(number, self._free_keys.popleft() if self._has_keys else None)
                    number += 1

    def _send(self, number: int, key: str | None) -> None:
        record, sent_at = RecordId(self.name, number), now()
        self._journal.add(Sent(at=sent_at, id=record, topic=self._topic, key=key))
        self._unsettled[number] = _Unsettled(sent_at, key)
        try:
            self._producer.produce(
                self._topic,
                value=encode_value(record, key, PADDING_BYTES),
                key=key,
                on_delivery=lambda error, message: self._on_delivery(number, error, message),
            )
        except (BufferError, KafkaException) as refusal:
            self._remove_unsettled(number)
            self._journal.add(Failed(at=now(), id=record, error=str(refusal)))

    def _on_delivery(self, number: int, error: KafkaError | None, message: Any) -> None:
        at, sent_at, record = now(), self._remove_unsettled(number).sent_at, RecordId(self.name, number)
        if error is None:
            place, offset = Place(message.topic(), message.partition()), message.offset()
            known = offset if offset is not None and offset >= 0 else None
            self._journal.add(Acknowledged(at=at, id=record, place=place, offset=known))
            self._progress.record_ack(place, sent_at)
        elif error.name() in self._definite:
            self._journal.add(Failed(at=at, id=record, error=error.name()))
        else:
            self._journal.add(Unknown(at=at, id=record, error=error.name()))

    def _remove_unsettled(self, number: int) -> _Unsettled:
        """Remove a settled record, so that the next record of its key may be sent."""
        unsettled = self._unsettled.pop(number)
        if unsettled.key is not None:
            self._free_keys.append(unsettled.key)
        return unsettled


class ChaosConsumer(ChaosClient):
    """A member of a consumer group with Kafka's defaults and automatic commits."""

    def __init__(self, name: str, journal: Journal, bootstrap: str, topic: str, group: str) -> None:
        super().__init__(name, journal)
        self._group = group
        self._assignment = 0
        self.positions: dict[Place, int] = {}
        """The offset after the last record that the member received of each partition, or the end that it reached."""
        self._consumer = Consumer(
            self._common_settings(bootstrap)
            | {"group.id": group, "auto.offset.reset": "earliest", "enable.partition.eof": True}
        )
        self._consumer.subscribe([topic], on_assign=self._on_assign)

    def _on_assign(self, consumer: Any, partitions: Any) -> None:
        self._assignment += 1

    def _run(self) -> None:
        try:
            while not self._ending.is_set():
                message = self._consumer.poll(POLL_SECONDS)
                if message is not None and message.error() is None:
                    self._record_message(message)
                elif message is not None and message.error().code() == KafkaError._PARTITION_EOF:
                    self._record_end(Place(message.topic(), message.partition()), message.offset())
                elif message is not None and message.error().fatal():
                    self._on_error(message.error())
            self._commit()
        finally:
            self._consumer.close()

    def _record_message(self, message: Any) -> None:
        place, offset = Place(message.topic(), message.partition()), message.offset()
        epoch = message.leader_epoch()
        self._journal.add(
            Consumed(
                at=now(),
                reader=self.name,
                group=self._group,
                assignment=self._assignment,
                place=place,
                offset=offset,
                id=decode_value(message.value(), message.key()),
                epoch=NO_EPOCH if epoch is None else epoch,
            )
        )
        self.positions[place] = offset + 1

    def _record_end(self, place: Place, end: int) -> None:
        """Advance the position to the end of the partition. Its last offset may be a transaction marker."""
        self.positions[place] = max(end, self.positions.get(place, 0))

    def _commit(self) -> None:
        try:
            committed = self._consumer.commit(asynchronous=False) or []
        except KafkaException:  # nothing to commit, or another member owns the partition
            return
        for each in committed:
            if each.error is None and each.offset >= 0:
                place = Place(each.topic, each.partition)
                self._journal.add(Committed(at=now(), group=self._group, place=place, offset=each.offset))


class EndOffsetWatcher(ChaosClient):
    """Requests the end offset of each partition in a loop."""

    def __init__(self, name: str, journal: Journal, bootstrap: str, places: Sequence[Place]) -> None:
        super().__init__(name, journal)
        self._places = places
        self._bootstrap = bootstrap

    def _run(self) -> None:
        with ClusterClient(self._bootstrap, client_id=self.name, timeout_s=WATCH_TIMEOUT_SECONDS) as cluster:
            while not self._ending.wait(WATCH_SECONDS):
                for place in self._places:
                    self._ask(cluster, place)

    def _ask(self, cluster: ClusterClient, place: Place) -> None:
        asked_at, partition = now(), TopicPartition(*place)
        try:
            end = list_latest_offsets(cluster, [partition])[partition]
        except (ClientError, BrokerError):  # currently unavailable
            cluster.invalidate_metadata()
            return
        self._journal.add(EndSeen(at=now(), reader=self.name, place=place, asked_at=asked_at, end=end))


@contextmanager
def running_clients(clients: Sequence[ChaosClient]) -> Iterator[None]:
    """Run the clients during the block and stop them at its end."""
    for client in clients:
        client.start()
    try:
        yield
    finally:
        for client in clients:
            client.stop()
        for client in clients:
            client.join()


def wait_for(condition: Callable[[], bool], seconds: float, poll_s: float = 0.02) -> bool:
    """Wait for a condition and return whether it became true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(poll_s)
    return True
