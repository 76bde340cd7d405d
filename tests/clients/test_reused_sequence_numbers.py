"""librdkafka's transactions whose batches were appended but not acknowledged before the abort.

librdkafka removes these batches from its queue and assigns their sequence numbers again in the next transaction.
"""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from chronik.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from chronik.testing.broker import Broker
from chronik.testing.ports import HOST
from tests.chaos.clients import wait_for
from tests.raw import RawClient

READ_BYTES = 1 << 16
API_KEY = slice(4, 6)
PRODUCE = b"\0\0"
SECONDS_MAX = 60.0


class ResponseLosingProxy:
    """A TCP proxy in front of a broker that can drop all responses from the next Produce request on."""

    def __init__(self) -> None:
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self.target_port = 0
        self.awaits_produce_request = False
        self.loses_responses = False
        self.rejects_connections = False
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._clients: set[socket.socket] = set()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._is_closing = True
        self._thread.join()
        for client in list(self._clients):
            self._disconnect(client)
        self._listener.close()
        self._selector.close()

    def _run(self) -> None:
        while not self._is_closing:
            for key, _ in self._selector.select(0.05):
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    assert isinstance(key.fileobj, socket.socket)
                    self._forward(key.fileobj)
            if self.rejects_connections:
                for client in list(self._clients):
                    self._disconnect(client)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        if self.rejects_connections:
            client.close()
            return
        try:
            server = socket.create_connection((HOST, self.target_port))
        except OSError:  # the broker has stopped
            client.close()
            return
        self._pairs |= {client: server, server: client}
        self._clients.add(client)
        for each in (client, server):
            self._selector.register(each, selectors.EVENT_READ)

    def _forward(self, source: socket.socket) -> None:
        if source not in self._pairs:
            return
        try:
            data = source.recv(READ_BYTES)
            if self.awaits_produce_request and source in self._clients and data[API_KEY] == PRODUCE:
                self.awaits_produce_request, self.loses_responses = False, True
            if data and (source in self._clients or not self.loses_responses):
                self._pairs[source].sendall(data)
        except OSError:
            data = b""
        if not data:
            self._disconnect(source)

    def _disconnect(self, end: socket.socket) -> None:
        for each in (end, self._pairs[end]):
            del self._pairs[each]
            self._clients.discard(each)
            self._selector.unregister(each)
            each.close()


@pytest.fixture
def proxy() -> Iterator[ResponseLosingProxy]:
    proxy = ResponseLosingProxy()
    yield proxy
    proxy.close()


@pytest.mark.parametrize("repeats", [1, 2])
def test_records_after_abort_are_stored_or_rejected(proxy: ResponseLosingProxy, repeats: int) -> None:
    """`repeats`: how many records the next transaction sends for each record of the aborted one."""
    with Broker(advertised=f"{HOST}:{proxy.port}") as broker:
        proxy.target_port = broker.port
        topic = "reused"
        broker.create_topic(topic, 1)
        disconnects: list[KafkaError] = []
        producer = Producer(
            {
                "error_cb": disconnects.append,
                "bootstrap.servers": f"{HOST}:{proxy.port}",
                "transactional.id": "reused",
                "retry.backoff.ms": 100,
                "reconnect.backoff.max.ms": 200,
            }
        )
        producer.init_transactions(SECONDS_MAX)
        commit(producer, topic, ["before"])

        failed: list[KafkaError] = []
        assert wait_for(lambda: end_offset(broker, topic) == 2, SECONDS_MAX), "a record and its marker"
        proxy.awaits_produce_request = True
        producer.begin_transaction()
        producer.produce(topic, "aborted", on_delivery=lambda error, _: failed.append(error))
        assert wait_for(lambda: end_offset(broker, topic) == 3, SECONDS_MAX)
        proxy.rejects_connections = True
        assert wait_for(lambda: producer.poll(0) >= 0 and bool(disconnects), SECONDS_MAX)
        aborting = threading.Thread(target=producer.abort_transaction, args=(SECONDS_MAX,))
        aborting.start()
        assert wait_for(lambda: producer.poll(0) >= 0 and bool(failed), SECONDS_MAX)
        proxy.loses_responses = proxy.rejects_connections = False
        aborting.join()
        assert [each.code() for each in failed] == [KafkaError._PURGE_QUEUE]

        values = ["after"] * repeats
        with pytest.raises(KafkaException) as caught:
            commit(producer, topic, values)
        assert caught.value.args[0].txn_requires_abort()
        producer.abort_transaction(SECONDS_MAX)
        commit(producer, topic, values)
        assert read_committed(broker, topic) == ["before", *values]


def end_offset(broker: Broker, topic: str) -> int:
    """Return the log end offset, requested directly from the broker."""
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[partition])])
    with RawClient(broker.bootstrap) as client:
        return client.request(request, 7, ListOffsetsResponse).topics[0].partitions[0].offset


def commit(producer: Producer, topic: str, values: list[str]) -> None:
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value)
    producer.commit_transaction(SECONDS_MAX)


def read_committed(broker: Broker, topic: str) -> list[str]:
    config = {"bootstrap.servers": broker.bootstrap, "group.id": "reader", "auto.offset.reset": "earliest"}
    consumer = Consumer({**config, "enable.partition.eof": True})
    consumer.subscribe([topic])
    values: list[str] = []
    while True:
        message: Message | None = consumer.poll(SECONDS_MAX)
        assert message is not None
        if message.error():
            assert message.error().code() == KafkaError._PARTITION_EOF
            consumer.close()
            return values
        values.append(message.value().decode())
