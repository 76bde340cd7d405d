"""Audit of a real three-node cluster with logs, tables, groups and metadata, healthy and with faults."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from chronik.cli.main import main
from chronik.client.admin import NewTopic, create_topics
from chronik.client.cluster import ClusterClient as Client
from chronik.client.errors import ClientError
from chronik.client.groups import commit_offsets
from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord, TopicPartition
from chronik.ids import format_id
from chronik.pipeline.audit import AuditInputError, AuditReport, FindingKind, audit
from chronik.pipeline.audit.runner import LOCAL_RUN_BYTES_MAX, choose_task_runner
from chronik.pipeline.journal.reports import ProgressReporter
from chronik.pipeline.landing import run
from chronik.pipeline.spark.tasks import run_locally
from chronik.pipeline.tables.storage import table_uri
from chronik.protocol.batch import parse_header
from chronik.protocol.batch_rewrite import filter_batch
from chronik.protocol.errors import KafkaError
from chronik.protocol.records import decode_batch, encode_batch
from chronik.testing import Cluster
from chronik.testing.plugin import BrokerFactory
from tests.pipeline.audit.replica_logs import flip_byte, list_batches
from tests.run_size import SEED, sized

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = 30_000
PARTITIONS = 3
KILLS = sized(4, 30)
WAIT_SECONDS_MAX = 60.0
BROKER = {"log.cleaner.backoff.ms": 100, "offsets.topic.num.partitions": 3}
COMPACTED = {"cleanup.policy": "compact", "internal.segment.bytes": "50000", "min.cleanable.dirty.ratio": "0.01"}


@dataclass
class World:
    """A stopped cluster with its tables."""

    cluster: Cluster
    root: str
    topic_id: str

    @property
    def data_dirs(self) -> list[Path]:
        return [node.data_dir for node in self.cluster.nodes.values()]

    def folder(self, node: int, partition: int) -> Path:
        return self.cluster[node].data_dir / "topics" / self.topic_id / str(partition)

    def place(self, node: int, partition: int, offset: int) -> tuple[Path, int, int, int]:
        """Return file, position, size and base offset of the batch that contains the offset."""
        for path in sorted(self.folder(node, partition).glob("*.log"), reverse=True):
            for position, size, base in reversed(list_batches(path)):
                if base <= offset:
                    return path, position, size, base
        raise AssertionError(offset)

    def audited(self, *, live: bool = False, **more: Any) -> AuditReport:
        bootstrap = self.cluster.bootstrap if live else None
        return audit(self.data_dirs, bootstrap=bootstrap, table_root=self.root, tasks=run_locally, **more)

    def command(self, *words: str) -> int:
        """Run `chronik pipeline audit` on the existing Spark session."""
        directories = [word for directory in self.data_dirs for word in ("--data-dir", str(directory))]
        return main(["pipeline", "audit", *directories, "--table-root", self.root, *words])


@pytest.fixture(scope="module")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A landed topic, a compacted topic that each node compacts itself, and two groups; the cluster is stopped."""
    directory = tmp_path_factory.mktemp("audited")
    root = str(directory / "tables")
    with Cluster(3, directory, broker=BROKER) as cluster, Client(cluster.bootstrap) as client:
        create_topics(client, [NewTopic("orders", PARTITIONS, 3), NewTopic("latest", 1, 3, COMPACTED)])
        producer = Producer(client)
        for first in range(0, RECORDS, 600):
            numbers = range(first, first + 600)
            values = [OutgoingRecord(b'{"number": %d}' % number, b"key %d" % (number % 97)) for number in numbers]
            producer.send("orders", values)
            producer.send("latest", values)
        run(cluster.bootstrap, root, ["orders"], once=True, spark=spark, reporter=ProgressReporter())
        commit_offsets(client, "readers", {TopicPartition("orders", each): 100 for each in range(PARTITIONS)})
        created_world = World(cluster, root, format_id(client.topic("orders").topic_id))
        latest = format_id(client.topic("latest").topic_id)
        cluster.wait_until(lambda: _not_compacted(created_world, latest), "every node has compacted", WAIT_SECONDS_MAX)
        _check_running_cluster(created_world, spark)
        cluster.stop()
        yield created_world


def _not_compacted(world: World, topic_id: str) -> str | None:
    directories = [directory / "topics" / topic_id / "0" for directory in world.data_dirs]
    missing = [str(directory) for directory in directories if not (directory / "compacted").exists()]
    return ", ".join(missing) or None


def _check_running_cluster(world: World, spark: SparkSession) -> None:
    """Audit the running cluster on Spark, including the nodes' in-memory metadata."""
    http = [node.http for node in world.cluster.nodes.values()]
    report = audit(world.data_dirs, bootstrap=world.cluster.bootstrap, table_root=world.root, http=http, spark=spark)
    assert report.is_clean, report.to_text()
    assert (report.nodes, report.tables, report.rows) == ((1, 2, 3), 1, RECORDS)
    assert report.records > 3 * RECORDS
    assert report.groups >= 2
    assert report.metadata_index is not None
    assert report.replicas == 3 * report.partitions


@pytest.fixture
def stopped(world: World) -> Iterator[World]:
    """Restore the log files after the test."""
    directories = [world.folder(node, partition) for node in (1, 2, 3) for partition in range(PARTITIONS)]
    before = {path: path.read_bytes() for directory in directories for path in directory.glob("*.log")}
    yield world
    for path, data in before.items():
        path.write_bytes(data)


def test_audit_command_passes_for_healthy_stopped_cluster(stopped: World, capsys: pytest.CaptureFixture[str]) -> None:
    code = stopped.command("--master", "local[2]")
    output = capsys.readouterr().out
    assert code == 0, output
    assert "ok     replicas are identical up to the high watermark" in output
    assert f"ok     {RECORDS:,} rows of 1 table match their records" in output
    assert "ok     the metadata is the same on all nodes" in output
    assert output.endswith("No problems found.\n")


def test_audit_command_reports_all_faults_as_json(stopped: World, capsys: pytest.CaptureFixture[str]) -> None:
    expected = {
        _flip_byte(stopped),
        _remove_record(stopped),
        _duplicate_batch(stopped),
        _change_record(stopped),
    }
    assert stopped.command("--master", "local[2]", "--json") == 1
    report = json.loads(capsys.readouterr().out)
    assert not report["clean"]
    names = ("kind", "partition", "node", "offset", "file", "position")
    assert {tuple(found[name] for name in names) for found in report["findings"]} == expected
    assert {found["topic"] for found in report["findings"]} == {"orders"}


FindingFields = tuple[str, int, int, int, str, int]


def _flip_byte(world: World) -> FindingFields:
    path, position, size, base = world.place(1, 0, 2000)
    flip_byte(path, position + size // 2)
    return "checksum", 0, 1, base, str(path), position + size // 2


def _remove_record(world: World) -> FindingFields:
    path, position, size, base = world.place(2, 0, 4000)
    data = path.read_bytes()
    rewritten = filter_batch(data, position, lambda offset, *_: offset != base + 5)
    assert rewritten is not None
    path.write_bytes(data[:position] + rewritten + data[position + size :])
    return "missing_records", 0, 2, base + 5, str(path), position


def _duplicate_batch(world: World) -> FindingFields:
    path, position, size, base = world.place(3, 1, 1000)
    data = path.read_bytes()
    path.write_bytes(data[: position + size] + data[position:])
    return "duplicate_batch", 1, 3, base, str(path), position + size


def _change_record(world: World) -> FindingFields:
    path, position, size, base = world.place(2, 2, 3000)
    data = path.read_bytes()
    header = parse_header(data, position)
    records = decode_batch(data, position)
    value = records[7].value
    assert value is not None
    records[7] = records[7]._replace(value=value[:-1] + b"!")
    changed = encode_batch(
        records,
        leader_epoch=header.partition_leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )
    path.write_bytes(data[:position] + changed + data[position + size :])
    return "diverged", 2, 2, base + 7, str(path), position + changed.index(value[:-1] + b"!") + len(value) - 1


def test_lost_table_row_is_reported(stopped: World) -> None:
    table = DeltaTable(table_uri(stopped.root, "orders"))
    version = table.version()
    table.delete("_partition = 1 AND _offset = 1234")
    report = stopped.audited()
    DeltaTable(table_uri(stopped.root, "orders")).restore(version)
    (found,) = report.findings
    assert (found.kind, found.topic, found.partition, found.offset) == (FindingKind.LOST_ROW, "orders", 1, 1234)
    assert report.exit_code == 1
    assert "FAILED" in report.to_text()
    assert stopped.audited().is_clean


def test_group_offset_beyond_partition_end_is_reported(stopped: World) -> None:
    cluster = stopped.cluster
    cluster.start()
    try:
        cluster.wait_until_ready()
        with Client(cluster.bootstrap) as client:
            commit_offsets(client, "dreamers", {TopicPartition("orders", 2): 1_000_000})
            report = stopped.audited(live=True)
            commit_offsets(client, "dreamers", {TopicPartition("orders", 2): 0})
            assert stopped.audited(live=True).is_clean
    finally:
        cluster.stop()
    (found,) = report.findings
    assert (found.kind, found.topic, found.partition, found.offset) == (
        FindingKind.COMMITTED_OFFSET,
        "orders",
        2,
        1_000_000,
    )
    assert "group dreamers" in found.says


def test_node_with_damaged_metadata_is_reported(stopped: World) -> None:
    (path,) = (stopped.cluster[3].data_dir / "__raft").glob("*.wal")
    before = path.read_bytes()
    flip_byte(path, 300)
    report = stopped.audited()
    path.write_bytes(before)
    (found,) = report.findings
    assert (found.kind, found.node) == (FindingKind.STATE, 3)


def test_missing_data_directory_argument_is_reported_as_unchecked(stopped: World) -> None:
    report = audit(stopped.data_dirs[:2], topics=["orders"], tasks=run_locally)
    assert (report.exit_code, report.findings) == (2, []), report.to_text()
    assert "node 3 hosts 3 replicas, but its data directory was not given" in report.unchecked[0]


def test_unreadable_input_returns_exit_code_2(
    stopped: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pipeline", "audit", "--data-dir", str(tmp_path)]) == 2
    assert "is not a node's data directory" in capsys.readouterr().err
    directory = str(stopped.data_dirs[0])
    assert main(["pipeline", "audit", "--data-dir", directory, "--data-dir", directory]) == 2
    assert "both belong to node 1" in capsys.readouterr().err
    assert main(["pipeline", "audit", "--data-dir", directory, "-b", stopped.cluster.bootstrap]) == 2
    assert capsys.readouterr().err.startswith("chronik: ")
    with pytest.raises(AuditInputError, match="unknown topic: nowhere"):
        audit(stopped.data_dirs, topics=["nowhere"], tasks=run_locally)


def test_standalone_node_is_audited(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory()
    broker.create_topic("orders", 2)
    with broker.cluster() as client:
        Producer(client).send("orders", [OutgoingRecord(b"%d" % number, b"%d" % number) for number in range(1000)])
        commit_offsets(client, "readers", {TopicPartition("orders", 0): 5})
    report = audit([broker.data_dir], bootstrap=broker.bootstrap)
    assert report.is_clean, report.to_text()
    assert (report.records, report.groups, report.nodes) == (1000, 1, (1,))
    broker.stop()
    assert audit([broker.data_dir], tasks=run_locally).records == 1000
    path = max(broker.data_dir.glob("topics/*/*/*.log"), key=lambda path: path.stat().st_size)
    flip_byte(path, 200)
    (found,) = audit([broker.data_dir], tasks=run_locally).findings
    assert (found.kind, found.topic, found.file) == (FindingKind.CHECKSUM, "orders", str(path))


def test_small_audit_runs_without_spark(spark: SparkSession) -> None:
    assert choose_task_runner(None, None, LOCAL_RUN_BYTES_MAX - 1) is run_locally
    assert choose_task_runner(None, None, LOCAL_RUN_BYTES_MAX) is not run_locally
    assert choose_task_runner(None, "local[2]", 0) is not run_locally
    assert choose_task_runner(spark, None, 0) is not run_locally


class Load:
    """A producer that writes until it is stopped, even while brokers are down."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self.written = 0

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _write(self) -> None:
        while not self._stop.is_set():
            try:
                with Client(self._bootstrap, timeout_s=10) as client:
                    producer = Producer(client)
                    while not self._stop.is_set():
                        records = [OutgoingRecord(b"%d" % self.written, b"%d" % (each % 20)) for each in range(50)]
                        producer.send("busy", records)
                        producer.send("kept", records)
                        self.written += 1
            except (ClientError, KafkaError):
                continue


@pytest.mark.xdist_group("cluster")
def test_cluster_is_clean_during_and_after_node_kills(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    config: dict[str, Any] = {"metadata_snapshot_entries": 20, "broker": BROKER}
    with Cluster(3, tmp_path, **config) as cluster, Client(cluster.bootstrap) as client:
        small = {"internal.segment.bytes": "200000"}
        create_topics(client, [NewTopic("busy", 3, 3, small), NewTopic("kept", 1, 3, COMPACTED)])
        directories = [node.data_dir for node in cluster.nodes.values()]
        with Load(cluster.bootstrap) as load:
            for _ in range(KILLS):
                goal = load.written + 20
                cluster.wait_until(lambda: _missing_writes(load, goal), "writes continue", WAIT_SECONDS_MAX)  # noqa: B023
                victim = cluster[rng.choice((1, 2, 3))]
                victim.kill()
                report = audit(directories, bootstrap=cluster.bootstrap, tasks=run_locally)
                assert not report.findings, report.to_text()
                victim.start()
                cluster.wait_until_ready()
        report = audit(directories, bootstrap=cluster.bootstrap, tasks=run_locally)
        assert not report.findings, report.to_text()
        assert report.records > 0
        for node in cluster.nodes.values():
            node.kill()
        report = audit(directories, tasks=run_locally)
        assert not report.findings, report.to_text()
        assert report.records > load.written * 50


def _missing_writes(load: Load, goal: int) -> str | None:
    return None if load.written >= goal else f"{load.written} of {goal}"
