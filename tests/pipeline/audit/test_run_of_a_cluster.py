"""Three real nodes, their logs, tables, groups and metadata: clean when they are, and each planted fault is named."""

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
from chronik.client.cluster import Cluster as Client
from chronik.client.errors import ClientError
from chronik.client.groups import commit_offsets
from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord, TopicPartition
from chronik.ids import format_id
from chronik.pipeline.audit import CannotLook, Kind, Report, audit
from chronik.pipeline.audit.run import WITHOUT_SPARK_BYTES_MAX, tasks_for
from chronik.pipeline.journal.reporting import Reporter
from chronik.pipeline.landing import run
from chronik.pipeline.spark.tasks import in_this_process
from chronik.pipeline.tables.storage import table_uri
from chronik.protocol.batch import parse_header
from chronik.protocol.errors import KafkaError
from chronik.protocol.records import decode_batch, encode_batch
from chronik.protocol.rewrite import retain
from chronik.testing import Cluster
from chronik.testing.plugin import BrokerFactory
from tests.long import SEED, count
from tests.pipeline.audit.audited import batches_in, flip

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = 30_000
PARTITIONS = 3
KILLS = count(4, 30)
WAIT_SECONDS_MAX = 60.0
BROKER = {"log.cleaner.backoff.ms": 100, "offsets.topic.num.partitions": 3}
COMPACTED = {"cleanup.policy": "compact", "internal.segment.bytes": "50000", "min.cleanable.dirty.ratio": "0.01"}


@dataclass
class World:
    cluster: Cluster
    root: str
    topic_id: str

    @property
    def data_dirs(self) -> list[Path]:
        return [node.data_dir for node in self.cluster.nodes.values()]

    def folder(self, node: int, partition: int) -> Path:
        return self.cluster[node].data_dir / "topics" / self.topic_id / str(partition)

    def place(self, node: int, partition: int, offset: int) -> tuple[Path, int, int, int]:
        """(file, position, size, base offset) of the batch that holds the offset."""
        for path in sorted(self.folder(node, partition).glob("*.log"), reverse=True):
            for position, size, base in reversed(batches_in(path)):
                if base <= offset:
                    return path, position, size, base
        raise AssertionError(offset)

    def audited(self, *, live: bool = False, **more: Any) -> Report:
        bootstrap = self.cluster.bootstrap if live else None
        return audit(self.data_dirs, bootstrap=bootstrap, table_root=self.root, tasks=in_this_process, **more)

    def command(self, *words: str) -> int:
        """`chronik pipeline audit`, on the session that is there."""
        folders = [word for folder in self.data_dirs for word in ("--data-dir", str(folder))]
        return main(["pipeline", "audit", *folders, "--table-root", self.root, *words])


@pytest.fixture(scope="module")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A topic that has landed, a compacted one that each node has compacted for itself, and two groups. Stopped."""
    folder = tmp_path_factory.mktemp("audited")
    root = str(folder / "tables")
    with Cluster(3, folder, broker=BROKER) as cluster, Client(cluster.bootstrap) as client:
        create_topics(client, [NewTopic("orders", PARTITIONS, 3), NewTopic("latest", 1, 3, COMPACTED)])
        producer = Producer(client)
        for first in range(0, RECORDS, 600):
            numbers = range(first, first + 600)
            values = [OutgoingRecord(b'{"number": %d}' % number, b"key %d" % (number % 97)) for number in numbers]
            producer.send("orders", values)
            producer.send("latest", values)
        run(cluster.bootstrap, root, ["orders"], once=True, spark=spark, reporter=Reporter())
        commit_offsets(client, "readers", {TopicPartition("orders", each): 100 for each in range(PARTITIONS)})
        made = World(cluster, root, format_id(client.topic("orders").topic_id))
        latest = format_id(client.topic("latest").topic_id)
        cluster.wait_until(lambda: _not_compacted(made, latest), "every node has compacted", WAIT_SECONDS_MAX)
        _healthy(made, spark)
        cluster.stop()
        yield made


def _not_compacted(world: World, topic_id: str) -> str | None:
    folders = [folder / "topics" / topic_id / "0" for folder in world.data_dirs]
    missing = [str(folder) for folder in folders if not (folder / "compacted").exists()]
    return ", ".join(missing) or None


def _healthy(world: World, spark: SparkSession) -> None:
    """While it runs: with the tasks on Spark, and asking every node what it holds in memory."""
    http = [node.http for node in world.cluster.nodes.values()]
    report = audit(world.data_dirs, bootstrap=world.cluster.bootstrap, table_root=world.root, http=http, spark=spark)
    assert report.is_clean, report.text()
    assert (report.nodes, report.tables, report.rows) == ((1, 2, 3), 1, RECORDS)
    assert report.records > 3 * RECORDS
    assert report.groups >= 2
    assert report.state_index is not None
    assert report.replicas == 3 * report.partitions


@pytest.fixture
def stopped(world: World) -> Iterator[World]:
    """Whatever a test does to files is undone."""
    folders = [world.folder(node, partition) for node in (1, 2, 3) for partition in range(PARTITIONS)]
    before = {path: path.read_bytes() for folder in folders for path in folder.glob("*.log")}
    yield world
    for path, data in before.items():
        path.write_bytes(data)


def test_a_healthy_cluster_that_was_stopped_passes_by_command(
    stopped: World, capsys: pytest.CaptureFixture[str]
) -> None:
    code = stopped.command("--master", "local[2]")
    told = capsys.readouterr().out
    assert code == 0, told
    assert "ok     replicas are identical up to the high watermark" in told
    assert f"ok     {RECORDS:,} rows of 1 table equal their records" in told
    assert "ok     the metadata is the same on all nodes" in told
    assert told.endswith("Everything is as it must be.\n")


def test_every_planted_fault_is_named_by_command_in_one_go(stopped: World, capsys: pytest.CaptureFixture[str]) -> None:
    expected = {
        _flipped_byte(stopped),
        _missing_record(stopped),
        _duplicated_batch(stopped),
        _diverged_replica(stopped),
    }
    assert stopped.command("--master", "local[2]", "--json") == 1
    report = json.loads(capsys.readouterr().out)
    assert not report["clean"]
    names = ("kind", "partition", "node", "offset", "file", "position")
    assert {tuple(found[name] for name in names) for found in report["findings"]} == expected
    assert {found["topic"] for found in report["findings"]} == {"orders"}


Place = tuple[str, int, int, int, str, int]


def _flipped_byte(world: World) -> Place:
    path, position, size, base = world.place(1, 0, 2000)
    flip(path, position + size // 2)
    return "checksum", 0, 1, base, str(path), position + size // 2


def _missing_record(world: World) -> Place:
    path, position, size, base = world.place(2, 0, 4000)
    data = path.read_bytes()
    thinned = retain(data, position, lambda offset, *_: offset != base + 5)
    assert thinned is not None
    path.write_bytes(data[:position] + thinned + data[position + size :])
    return "missing_records", 0, 2, base + 5, str(path), position


def _duplicated_batch(world: World) -> Place:
    path, position, size, base = world.place(3, 1, 1000)
    data = path.read_bytes()
    path.write_bytes(data[: position + size] + data[position:])
    return "duplicate_batch", 1, 3, base, str(path), position + size


def _diverged_replica(world: World) -> Place:
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


def test_a_lost_table_row_is_named(stopped: World) -> None:
    table = DeltaTable(table_uri(stopped.root, "orders"))
    version = table.version()
    table.delete("_partition = 1 AND _offset = 1234")
    report = stopped.audited()
    DeltaTable(table_uri(stopped.root, "orders")).restore(version)
    (found,) = report.findings
    assert (found.kind, found.topic, found.partition, found.offset) == (Kind.LOST_ROW, "orders", 1, 1234)
    assert report.exit_code == 1
    assert "WRONG" in report.text()
    assert stopped.audited().is_clean


def test_a_group_that_has_read_what_is_not_there_is_named(stopped: World) -> None:
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
        Kind.COMMITTED_OFFSET,
        "orders",
        2,
        1_000_000,
    )
    assert "group dreamers" in found.says


def test_a_node_whose_metadata_is_damaged_is_named(stopped: World) -> None:
    (path,) = (stopped.cluster[3].data_dir / "__raft").glob("*.wal")
    before = path.read_bytes()
    flip(path, 300)
    report = stopped.audited()
    path.write_bytes(before)
    (found,) = report.findings
    assert (found.kind, found.node) == (Kind.STATE, 3)


def test_a_folder_that_was_not_given_is_not_taken_for_clean(stopped: World) -> None:
    report = audit(stopped.data_dirs[:2], topics=["orders"], tasks=in_this_process)
    assert (report.exit_code, report.findings) == (2, []), report.text()
    assert "node 3 holds 3 replicas, and its data folder was not given" in report.unseen[0]


def test_what_cannot_be_looked_at_has_an_exit_code_of_its_own(
    stopped: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pipeline", "audit", "--data-dir", str(tmp_path)]) == 2
    assert "is not a node's data folder" in capsys.readouterr().err
    folder = str(stopped.data_dirs[0])
    assert main(["pipeline", "audit", "--data-dir", folder, "--data-dir", folder]) == 2
    assert "are both of node 1" in capsys.readouterr().err
    assert main(["pipeline", "audit", "--data-dir", folder, "-b", stopped.cluster.bootstrap]) == 2
    assert capsys.readouterr().err.startswith("chronik: ")
    with pytest.raises(CannotLook, match="there is no topic nowhere"):
        audit(stopped.data_dirs, topics=["nowhere"], tasks=in_this_process)


def test_a_node_that_stands_alone_is_audited_too(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory()
    broker.create_topic("orders", 2)
    with broker.cluster() as client:
        Producer(client).send("orders", [OutgoingRecord(b"%d" % number, b"%d" % number) for number in range(1000)])
        commit_offsets(client, "readers", {TopicPartition("orders", 0): 5})
    report = audit([broker.data_dir], bootstrap=broker.bootstrap)
    assert report.is_clean, report.text()
    assert (report.records, report.groups, report.nodes) == (1000, 1, (1,))
    broker.stop()
    assert audit([broker.data_dir], tasks=in_this_process).records == 1000
    path = max(broker.data_dir.glob("topics/*/*/*.log"), key=lambda path: path.stat().st_size)
    flip(path, 200)
    (found,) = audit([broker.data_dir], tasks=in_this_process).findings
    assert (found.kind, found.topic, found.file) == (Kind.CHECKSUM, "orders", str(path))


def test_spark_is_not_started_for_what_takes_less_time_than_that(spark: SparkSession) -> None:
    assert tasks_for(None, None, WITHOUT_SPARK_BYTES_MAX - 1) is in_this_process
    assert tasks_for(None, None, WITHOUT_SPARK_BYTES_MAX) is not in_this_process
    assert tasks_for(None, "local[2]", 0) is not in_this_process
    assert tasks_for(spark, None, 0) is not in_this_process


class Load:
    """Writes until it is stopped, whatever becomes of the brokers."""

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
def test_a_cluster_that_went_through_kills_is_clean_in_between_and_afterwards(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    config: dict[str, Any] = {"metadata_snapshot_entries": 20, "broker": BROKER}
    with Cluster(3, tmp_path, **config) as cluster, Client(cluster.bootstrap) as client:
        small = {"internal.segment.bytes": "200000"}
        create_topics(client, [NewTopic("busy", 3, 3, small), NewTopic("kept", 1, 3, COMPACTED)])
        folders = [node.data_dir for node in cluster.nodes.values()]
        with Load(cluster.bootstrap) as load:
            for _ in range(KILLS):
                goal = load.written + 20
                cluster.wait_until(lambda: _less_than(load, goal), "writes go on", WAIT_SECONDS_MAX)  # noqa: B023
                victim = cluster[rng.choice((1, 2, 3))]
                victim.kill()
                report = audit(folders, bootstrap=cluster.bootstrap, tasks=in_this_process)
                assert not report.findings, report.text()
                victim.start()
                cluster.wait_until_ready()
        report = audit(folders, bootstrap=cluster.bootstrap, tasks=in_this_process)
        assert not report.findings, report.text()
        assert report.records > 0
        for node in cluster.nodes.values():
            node.kill()
        report = audit(folders, tasks=in_this_process)
        assert not report.findings, report.text()
        assert report.records > load.written * 50


def _less_than(load: Load, goal: int) -> str | None:
    return None if load.written >= goal else f"{load.written} of {goal}"
