"""A log that is missing on disk is not served as an empty one.

The node returns a storage error until the files are restored or an operator abandons them.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from chronik.config import Address
from chronik.console.http_client import fetch_status
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from chronik.testing import Broker
from chronik.testing.plugin import BrokerFactory
from chronik.testing.ports import ReservedPorts
from tests.api.request_builders import batch, produce
from tests.cli.command_line import run_chronik
from tests.faults.test_damage_recovery import fetch
from tests.raw import RawClient

VALUES = [b"value %d" % number for number in range(5)]


@pytest.fixture
def stopped(chronik_broker_factory: BrokerFactory) -> Broker:
    """Return a cleanly stopped broker with VALUES in partition 0 of `topic` and an empty partition 1."""
    broker = chronik_broker_factory()
    broker.create_topic("topic", partitions=2)
    with RawClient(broker.bootstrap) as client:
        for value in VALUES:
            assert not produce(client, "topic", batch(value)).error_code
    broker.stop()
    return broker


Lost = Callable[[Broker, Path], Path]
"""Moves a part of the data directory elsewhere, and returns its original path."""


def move_topics(broker: Broker, elsewhere: Path) -> Path:
    """Move the topics directory."""
    return move(broker.data_dir / "topics", elsewhere)


def move_partition(broker: Broker, elsewhere: Path) -> Path:
    (directory,) = broker.data_dir.glob("topics/*/0")
    return move(directory, elsewhere)


def move_segments(broker: Broker, elsewhere: Path) -> Path:
    (log,) = broker.data_dir.glob("topics/*/0/*.log")
    return move(log, elsewhere)


def move(path: Path, elsewhere: Path) -> Path:
    path.rename(elsewhere)
    return path


def restore(elsewhere: Path, path: Path) -> None:
    if elsewhere.is_dir():
        shutil.copytree(elsewhere, path, dirs_exist_ok=True)
    else:
        shutil.copy(elsewhere, path)


@pytest.mark.parametrize("lose", [move_topics, move_partition, move_segments])
def test_lost_log_is_a_storage_error_until_files_are_restored(stopped: Broker, tmp_path: Path, lose: Lost) -> None:
    path = lose(stopped, tmp_path / "elsewhere")
    stopped.start()
    with RawClient(stopped.bootstrap) as client:
        assert produce(client, "topic", batch(b"refused")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert produce(client, "topic", batch(b"elsewhere"), partition=1).error_code == ErrorCode.NONE
    assert "topic-0: synced records are missing on disk: offsets 0 to 4" in stopped.log
    consumed = run_chronik("consume", "topic", "--from-beginning", bootstrap=stopped.bootstrap)
    assert consumed.code == 1
    assert "lost the partition" in consumed.err
    shown = run_chronik("topics", "describe", "topic", bootstrap=stopped.bootstrap)
    assert shown.lines[-1].startswith("Partition 0 has lost records ")
    stopped.stop()
    restore(tmp_path / "elsewhere", path)
    stopped.start()
    assert [record.value for record in stopped.records("topic") if record.partition == 0] == VALUES


def test_begin_anew_abandons_lost_log_without_reusing_offsets(stopped: Broker, tmp_path: Path) -> None:
    move_partition(stopped, tmp_path / "elsewhere")
    stopped.start()
    refused = run_chronik("topics", "begin-anew", "topic", "--partition", "1", bootstrap=stopped.bootstrap)
    assert (refused.code, refused.err) == (1, "chronik: topic-1 has not lost records; no partition was changed\n")
    begun = run_chronik("topics", "begin-anew", "topic", "--partition", "0", bootstrap=stopped.bootstrap)
    assert begun.lines == ["topic-0 restarts at offset 5"]
    with RawClient(stopped.bootstrap) as client:
        assert produce(client, "topic", batch(b"after it")).base_offset == 5
    for _ in range(2):
        assert [(record.offset, record.value) for record in stopped.records("topic")] == [(5, b"after it")]
        stopped.restart()


def test_delete_records_with_offset_does_not_abandon_lost_log(stopped: Broker, tmp_path: Path) -> None:
    """Programs delete up to an offset by themselves; only an operator uses -1 for all records."""
    move_partition(stopped, tmp_path / "elsewhere")
    stopped.start()
    partition = DeleteRecordsPartition(partition_index=0, offset=3)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="topic", partitions=[partition])], timeout_ms=1000)
    with RawClient(stopped.bootstrap) as client:
        [answer] = client.request(request, 2, DeleteRecordsResponse).topics[0].partitions
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_log_emptied_by_delete_records_is_not_lost(stopped: Broker) -> None:
    stopped.start()
    partition = DeleteRecordsPartition(partition_index=0, offset=-1)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="topic", partitions=[partition])], timeout_ms=1000)
    with RawClient(stopped.bootstrap) as client:
        assert client.request(request, 2, DeleteRecordsResponse).topics[0].partitions[0].low_watermark == 5
    stopped.restart()
    with RawClient(stopped.bootstrap) as client:
        assert produce(client, "topic", batch(b"goes on")).base_offset == 5
    assert "are missing" not in stopped.log


def test_lost_synced_offsets_file_loses_no_records(stopped: Broker) -> None:
    (stopped.data_dir / "synced-offsets").unlink()
    stopped.start()
    assert "synced-offsets is missing" in stopped.log
    assert [record.value for record in stopped.records("topic")] == VALUES


def test_status_lists_damaged_partitions(chronik_broker_factory: BrokerFactory, tmp_path: Path) -> None:
    ports = ReservedPorts(1)
    broker = chronik_broker_factory(http=f"127.0.0.1:{ports.ports[0]}")
    broker.create_topic("topic")
    with RawClient(broker.bootstrap) as client:
        assert not produce(client, "topic", batch(b"only one")).error_code
    broker.stop()
    move_partition(broker, tmp_path / "elsewhere")
    broker.start()
    broker.create_topic("another")  # returns when all logs are open
    try:
        status = fetch_status(Address("127.0.0.1", ports.ports[0]), 10.0)
    finally:
        ports.release()
    assert status["damaged"] == ["topic-0: offsets 0 to 0 were synced but are missing on this node's disk"]


def test_missing_middle_segment_is_an_error_and_rest_is_served(
    chronik_broker_factory: BrokerFactory, tmp_path: Path
) -> None:
    broker = chronik_broker_factory()
    broker.create_topic("topic", configs={"internal.segment.bytes": "1000"})
    with RawClient(broker.bootstrap) as client:
        for number in range(40):
            assert not produce(client, "topic", batch(b"%d" % number * 50)).error_code
    broker.stop()
    logs = sorted(broker.data_dir.glob("topics/*/0/*.log"))
    first, end = int(logs[1].stem), int(logs[2].stem)
    move(logs[1], tmp_path / "elsewhere")
    broker.start()
    with RawClient(broker.bootstrap) as client:
        for offset in range(40):
            expected = ErrorCode.CORRUPT_MESSAGE if first <= offset < end else ErrorCode.NONE
            assert fetch(client, offset).error_code == expected, offset
    broker.stop()
    restore(tmp_path / "elsewhere", logs[1])
    broker.start()
    assert [record.offset for record in broker.records("topic")] == list(range(40))
