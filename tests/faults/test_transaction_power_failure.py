"""Transactions with `flush = "os"`, which acknowledges additions and commits before they are durable.

No record that depends on them is appended before they are durable, so a power failure leaves no transaction open
forever.
"""

from __future__ import annotations

import itertools
import os
import select
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from chronik.files import DiskFileSystem
from chronik.metadata.stores.journal import METADATA_DIRECTORY
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from chronik.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from chronik.protocol.messages.fetch import FetchResponse
from chronik.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from chronik.protocol.messages.produce import ProduceResponse
from chronik.testing import Broker
from chronik.wal.log import SYNCED_FILE_NAME, SyncedPositionFile, build_segment_path
from tests.api import request_builders
from tests.api.test_hanging_transactions import OK, V1, V2, TransactionalProducer
from tests.clients.client_process import wait_for
from tests.faults import slow_metadata_node
from tests.raw import RawClient

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
LATEST = -1
BOTH = (0, 1)

_numbers = itertools.count()


class SlowBroker(Broker):
    """A broker that syncs its metadata only while the test does not hold it."""

    def __init__(self, directory: Path, flush: str) -> None:
        super().__init__(directory, flush=flush)
        self._hold = directory / "hold"
        self._clients = ExitStack()

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-P", slow_metadata_node.__file__, str(self._hold)]

    def __enter__(self) -> SlowBroker:
        self.start()
        return self

    def client(self) -> RawClient:
        """Return a client that is closed with the broker."""
        return self._clients.enter_context(RawClient(self.bootstrap))

    def close(self) -> None:
        self._clients.close()
        self.let()
        super().close()

    def hold(self) -> None:
        self._hold.touch()

    def let(self) -> None:
        self._hold.unlink(missing_ok=True)

    def cut_power(self) -> None:
        """Remove all unsynced metadata and nothing else, the worst case of a power failure."""
        self.kill()
        self.let()
        files = DiskFileSystem(self.data_dir)
        file = files.open(f"{METADATA_DIRECTORY}/{SYNCED_FILE_NAME}")
        first_index, position = SyncedPositionFile(file).read()
        file.close()
        path = self.data_dir / build_segment_path(METADATA_DIRECTORY, first_index)
        assert path.stat().st_size > position, "there was no unsynced metadata"
        os.truncate(path, position)
        self.start()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SlowBroker]:
    with SlowBroker(tmp_path / "os", "os") as broker:
        yield broker


def producer_of(broker: SlowBroker) -> TransactionalProducer:
    topic = f"cut-{next(_numbers)}"
    broker.create_topic(topic, partitions=2)
    return TransactionalProducer(broker.client(), topic)


def writing(broker: SlowBroker) -> TransactionalProducer:
    """Return a producer with a record in each partition, in an open and durable transaction."""
    producer = producer_of(broker)
    assert producer.add(*BOTH) is OK
    assert [producer.write(V1, partition) for partition in BOTH] == [OK, OK]
    return producer


def reconnect(producer: TransactionalProducer, broker: SlowBroker) -> None:
    """Reconnect a producer, which has only noticed that its connection broke."""
    producer.client = broker.client()


def end_offsets(broker: Broker, topic: str, isolation: int) -> list[int]:
    """Return the end offsets of both partitions as a consumer sees them."""
    partitions = [ListOffsetsPartition(partition_index=index, timestamp=LATEST) for index in BOTH]
    named = [ListOffsetsTopic(name=topic, partitions=partitions)]
    request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=named)
    with RawClient(broker.bootstrap) as client:
        (answer,) = client.request(request, 7, ListOffsetsResponse).topics
    return [each.offset for each in sorted(answer.partitions, key=lambda each: each.partition_index)]


def aborted_in(broker: Broker, topic: str, partition: int) -> int:
    """Return the number of aborted transactions that a fetch of the whole partition returns."""
    request = request_builders.fetch_request((topic, partition, 0))
    request.isolation_level = READ_COMMITTED
    with RawClient(broker.bootstrap) as client:
        data = client.request(request, 12, FetchResponse).responses[0].partitions[0]
    return len(data.aborted_transactions or ())


def is_unanswered(client: RawClient, broker: Broker) -> bool:
    """Return whether a request stays unanswered while later requests of other clients are answered."""
    with RawClient(broker.bootstrap) as other:
        for _ in range(50):
            other.request(ApiVersionsRequest(), 0, ApiVersionsResponse)
    return not select.select([client.socket], [], [], 0)[0]


def end_request(producer: TransactionalProducer, *, commit: bool) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=producer.id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=commit,
    )


def test_commit_is_acknowledged_immediately_and_visible_when_durable(broker: SlowBroker) -> None:
    producer = writing(broker)
    broker.hold()
    assert producer.end() is OK
    assert producer.end() is OK, "as before"
    assert end_offsets(broker, producer.topic, READ_COMMITTED) == [0, 0]
    assert end_offsets(broker, producer.topic, READ_UNCOMMITTED) == [1, 1], "no markers were written"
    broker.let()
    wait_for("the markers", lambda: end_offsets(broker, producer.topic, READ_COMMITTED) == [2, 2])


@pytest.mark.parametrize("commit", [True, False])
def test_lost_commit_reopens_whole_transaction(broker: SlowBroker, commit: bool) -> None:
    producer = writing(broker)
    broker.hold()
    assert producer.end() is OK
    broker.cut_power()
    reconnect(producer, broker)
    assert end_offsets(broker, producer.topic, READ_COMMITTED) == [0, 0]
    assert producer.add(1) is OK
    assert producer.write(V1, 1) is OK
    assert producer.end(commit=commit) is OK
    wait_for("the end of both", lambda: end_offsets(broker, producer.topic, READ_COMMITTED) == [2, 3])
    assert [aborted_in(broker, producer.topic, partition) for partition in BOTH] == [0 if commit else 1] * 2


def test_lost_commit_is_aborted_by_next_producer(broker: SlowBroker) -> None:
    producer = writing(broker)
    broker.hold()
    assert producer.end() is OK
    broker.cut_power()
    TransactionalProducer(broker.client(), producer.topic)
    wait_for("the markers", lambda: end_offsets(broker, producer.topic, READ_COMMITTED) == [2, 2])


@pytest.mark.parametrize("version", [V1, V2])
def test_no_record_is_appended_before_its_transaction_is_durable(broker: SlowBroker, version: int) -> None:
    producer = producer_of(broker)
    broker.hold()
    if version == V1:
        assert producer.add(0) is OK
    producer.client.send(producer.record(0, 0, producer.epoch), version)
    assert is_unanswered(producer.client, broker)
    assert end_offsets(broker, producer.topic, READ_UNCOMMITTED) == [0, 0]
    broker.cut_power()
    reconnect(producer, broker)
    assert end_offsets(broker, producer.topic, READ_UNCOMMITTED) == [0, 0]
    if version == V1:
        assert producer.write(V1) is ErrorCode.INVALID_TXN_STATE
        assert producer.add(0) is OK
    assert producer.write(version) is OK
    assert producer.end() is OK
    wait_for("the marker", lambda: end_offsets(broker, producer.topic, READ_COMMITTED) == [2, 0])


def test_delayed_record_is_appended_when_transaction_is_durable(broker: SlowBroker) -> None:
    producer = producer_of(broker)
    broker.hold()
    assert producer.add(0) is OK
    record = producer.record(0, 0, producer.epoch)
    producer.client.send(record, V1)
    assert is_unanswered(producer.client, broker)
    broker.let()
    (answer,) = producer.client.receive(record, V1, ProduceResponse).responses[0].partition_responses
    assert answer.error_code == OK
    assert end_offsets(broker, producer.topic, READ_UNCOMMITTED) == [1, 0]
    assert producer.end() is OK


def test_abort_is_acknowledged_when_durable(broker: SlowBroker) -> None:
    """The producer continues with the same epoch: if the abort were lost, the next commit would commit both."""
    producer = writing(broker)
    broker.hold()
    request = end_request(producer, commit=False)
    producer.client.send(request, 4)
    assert is_unanswered(producer.client, broker)
    broker.let()
    assert producer.client.receive(request, 4, EndTxnResponse).error_code == OK


def test_flush_group_acknowledges_commit_only_when_durable(tmp_path: Path) -> None:
    with SlowBroker(tmp_path / "group", "group") as broker:
        producer = writing(broker)
        broker.hold()
        request = end_request(producer, commit=True)
        producer.client.send(request, 4)
        assert is_unanswered(producer.client, broker)
        broker.let()
        assert producer.client.receive(request, 4, EndTxnResponse).error_code == OK
