"""A backup is taken under load, updated, and restored into an empty cluster: it contains all records acknowledged
before it started, no partial transactions, and offsets of restored records only.

More committed offsets than one command can contain are restored completely, too.
"""

from __future__ import annotations

import contextlib
import re
import resource
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as Offset

from chronik.client.admin import NewTopic, create_topics, delete_topics
from chronik.client.cluster import ClusterClient as Client
from chronik.client.consumer import read_all
from chronik.client.groups import commit_offsets, list_committed_offsets
from chronik.client.records import TopicPartition
from chronik.metadata.commands.imports import IMPORTED_OFFSETS_MAX
from chronik.metadata.image import Image
from chronik.metadata.records import CommittedOffset
from chronik.migration import failpoints
from chronik.migration.target_cluster import read_cluster_image
from chronik.testing.cluster import Cluster
from tests import run_size
from tests.cli.command_line import environment
from tests.cluster.replication_helpers import wait_for
from tests.cluster.test_standalone_import import chronik
from tests.migration import sample_data
from tests.run_size import IS_LONG_RUN

pytestmark = pytest.mark.xdist_group("cluster")

BACKUP_POINTS: tuple[str, ...] = ("piece:3", "before_manifest", "after_manifest")
RESTORE_POINTS: tuple[str, ...] = ("topics", "request:1", "compared", "finished")
if IS_LONG_RUN:
    BACKUP_POINTS = "held", *(f"piece:{number % 5 + 1}" for number in range(16)), *BACKUP_POINTS
    RESTORE_POINTS = "begun", *(f"request:{number % 3 + 1}" for number in range(15)), *RESTORE_POINTS
TOPICS = ("left", "right")

PARTITIONS = run_size.sized(300, 2000)
GROUPS = run_size.sized(340, 500)
SECONDS_MAX = run_size.sized(120, 1200)


class Writer:
    """A producer of consecutive numbers to two topics, in transactions with group offsets and without."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.committed = 0
        """Number of transactions that are definitely committed."""
        self.plain = 0
        self.error: BaseException | None = None

    def _run(self) -> None:
        try:
            producer = Producer({"bootstrap.servers": self._bootstrap, "transactional.id": "writer"})
            plain = Producer({"bootstrap.servers": self._bootstrap, "enable.idempotence": True})
            consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": "copier"})
            producer.init_transactions(sample_data.SECONDS)
            with contextlib.closing(consumer):
                while not self._stopping.is_set():
                    self._write(producer, consumer)
                    plain.produce("plain", str(self.plain))
                    assert plain.flush(sample_data.SECONDS) == 0
                    self.plain += 1
        except BaseException as error:
            self.error = error

    def _write(self, producer: Producer, consumer: Consumer) -> None:
        number = self.committed
        producer.begin_transaction()
        for topic in TOPICS:
            for partition in range(2):
                producer.produce(topic, str(number), partition=partition)
        offsets = [Offset("input", 0, number + 1)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), sample_data.SECONDS)
        while True:
            try:
                producer.commit_transaction(sample_data.SECONDS)
                break
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
        self.committed += 1

    def wait_for(self, committed: int) -> None:
        wait_for("transactions", lambda: self.committed >= committed or self.error)

    @contextlib.contextmanager
    def running(self) -> Iterator[Writer]:
        self._thread.start()
        try:
            yield self
        finally:
            self._stopping.set()
            self._thread.join(60)
            assert not self._thread.is_alive()
            assert self.error is None, self.error


def numbers(bootstrap: str, topic: str) -> dict[int, list[int]]:
    """Return the committed numbers by partition, in order."""
    found = defaultdict(list)
    with Client(bootstrap) as client:
        partitions = client.partitions(topic)
    for place, _, value in sample_data.read_committed(bootstrap, partitions):
        found[place.partition].append(int(value or b""))
    return found


def backup(cluster: Cluster, folder: Path, fail_at: str = "") -> str:
    done = chronik("backup", str(folder), "-b", cluster.bootstrap, fail_at=fail_at)
    assert done.returncode == (failpoints.EXIT_CODE if fail_at else 0), (fail_at, done.stderr)
    return done.stdout


def restore(folder: Path, cluster: Cluster, fail_at: str = "") -> str:
    done = chronik("restore", str(folder), "-b", cluster.bootstrap, "--yes", fail_at=fail_at)
    assert done.returncode == (failpoints.EXIT_CODE if fail_at else 0), (fail_at, done.stderr)
    return done.stdout


def test_backup_under_load_contains_all_acknowledged_records(tmp_path: Path) -> None:
    folder = tmp_path / "backup"
    with Cluster(3) as cluster:
        with Client(cluster.bootstrap) as client:
            create_topics(client, [*(NewTopic(name, 2) for name in TOPICS), NewTopic("plain", 1), NewTopic("input", 1)])
        with Writer(cluster.bootstrap).running() as writer:
            for run, point in enumerate(BACKUP_POINTS, 1):
                writer.wait_for(10 * run)
                backup(cluster, folder, point)
            writer.wait_for(writer.committed + 5)
            transactions, plain = writer.committed, writer.plain
            output = backup(cluster, folder)
            assert "updated incrementally" in output
            writer.wait_for(writer.committed + 1)
        checked = chronik("backup", str(folder), "--check")
        assert checked.returncode == 0, checked.stderr
    with Cluster(3) as other:
        for point in RESTORE_POINTS:
            restore(folder, other, point)
        assert restore(folder, other).splitlines()[-1] == "already imported"
        committed = {name: numbers(other.bootstrap, name) for name in TOPICS}
        (count,) = {len(each) for topic in committed.values() for each in topic.values()}
        assert count >= transactions
        assert all(each == list(range(count)) for topic in committed.values() for each in topic.values())
        with Client(other.bootstrap) as client:
            assert [int(record.value or b"") for record in read_all(client, "plain")][:plain] == list(range(plain))
            offset = list_committed_offsets(client, "copier")[TopicPartition("input", 0)].offset
        assert offset <= count
        status = other.leader().status()
        assert status["cluster_id"] != cluster_id_of(folder)


def cluster_id_of(folder: Path) -> str:
    found = re.search(r'"cluster_id":"([^"]+)"', (folder / "manifest.json").read_text())
    assert found is not None
    return found[1]


def test_second_backup_run_detects_changes(tmp_path: Path) -> None:
    """Deleted and recreated topics, advanced log starts and compacted logs are restored in their last state."""
    folder = tmp_path / "backup"
    with Cluster(1, broker=sample_data.EAGER) as cluster:
        sample_data.create_sample_data(cluster.bootstrap, records=50)
        first = backup(cluster, folder)
        assert re.search(r"run 1: 11 partitions, 0 of them updated incrementally, [1-9][\d,]* bytes copied", first)
        assert re.search(
            r"run 2: 11 partitions, 11 of them updated incrementally, 0 bytes copied", backup(cluster, folder)
        )
        with Client(cluster.bootstrap) as client:
            delete_topics(client, ["old", "empty"])
            create_topics(client, [NewTopic("old", 1)])
            sample_data.delete_records(client, TopicPartition("plain", 0), -1)
        sample_data.produce(cluster.bootstrap, "old", 3)
        sample_data.produce(cluster.bootstrap, "plain", 60)
        write_tombstones(cluster.bootstrap, "keys")
        wait_for("compaction", lambda: cluster[1].log.count("keys-0: log compacted") > 1)
        third = backup(cluster, folder)
        assert re.search(r"run 3: 9 partitions, 7 of them updated incrementally, [1-9][\d,]* bytes copied", third), (
            third
        )
        view = sample_data.read_client_view(cluster.bootstrap)
        refused = chronik("restore", str(folder), "-b", cluster.bootstrap, "--yes")
        assert "a backup can only be restored into an empty cluster, and this one has cut, emptied" in refused.stderr
    with Cluster(1) as other:
        restore(folder, other)
        assert_same(sample_data.read_client_view(other.bootstrap), view)


def write_tombstones(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(5):
        producer.produce(topic, None, f"key {number}")
    assert producer.flush(sample_data.SECONDS) == 0
    for number in range(3):  # one batch each, so that earlier batches are in closed segments
        producer.produce(topic, b"last", f"end {number}")
        assert producer.flush(sample_data.SECONDS) == 0


def assert_same(now: dict[str, Any], view: dict[str, Any]) -> None:
    assert len(view) > 5
    for name, each in view.items():
        assert now[name] == each, name


def test_damaged_backup_is_rejected(tmp_path: Path) -> None:
    folder = tmp_path / "backup"
    with Cluster(1) as cluster:
        with Client(cluster.bootstrap) as client:
            create_topics(client, [NewTopic("plain", 1)])
        sample_data.produce(cluster.bootstrap, "plain", 20)
        backup(cluster, folder)
        (piece,) = folder.rglob("*.batches")
        data = bytearray(piece.read_bytes())
        data[-1] ^= 1
        piece.write_bytes(data)
        with Cluster(1) as other:
            refused = chronik("restore", str(folder), "-b", other.bootstrap, "--yes")
            assert refused.returncode == 1
            assert refused.stderr.endswith("is damaged: its size or checksum differs from the manifest\n")


def test_commits_held_by_killed_backup_are_released(tmp_path: Path) -> None:
    with Cluster(1) as cluster:
        with Client(cluster.bootstrap) as client:
            create_topics(client, [NewTopic("ended", 2)])
        backup(cluster, tmp_path / "backup", "held")
        began = time.monotonic()
        producer = sample_data.run_transaction(cluster.bootstrap, "waits", commit=None)
        producer.commit_transaction(60)
        assert 9 < time.monotonic() - began < 60
        sample_data.run_transaction(cluster.bootstrap, "goes on", commit=True)


def run(*words: str, fail_at: str = "") -> str:
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "chronik", *words],
        env=environment(None) | ({failpoints.ENVIRONMENT_VARIABLE: fail_at} if fail_at else {}),
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    assert done.returncode == (failpoints.EXIT_CODE if fail_at else 0), done.stderr
    peak_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"{words[0]}: {time.monotonic() - began:.1f} s, largest process so far {peak_mb:,.0f} MB")
    return done.stdout


def offsets_of(image: Image) -> dict[str, dict[tuple[str, int], CommittedOffset]]:
    return {group_id: dict(image.offsets(group_id)) for group_id in image.iter_groups_with_offsets()}


def test_backup_with_offsets_beyond_one_command_is_restored(tmp_path: Path) -> None:
    folder = str(tmp_path / "backup")
    with Cluster(1) as cluster, Client(cluster.bootstrap) as client:
        create_topics(client, [NewTopic("orders", PARTITIONS)])
        for number in range(GROUPS):
            commit_offsets(
                client, f"readers-{number}", {TopicPartition("orders", each): 0 for each in range(PARTITIONS)}
            )
        before = offsets_of(read_cluster_image(client))
        count = sum(map(len, before.values()))
        assert count == PARTITIONS * GROUPS > IMPORTED_OFFSETS_MAX
        run("backup", folder, "-b", cluster.bootstrap)
    assert "can be restored: run 1, " in run("backup", folder, "--check")
    with Cluster(1) as other, Client(other.bootstrap) as client:
        run("restore", folder, "-b", other.bootstrap, "--yes", fail_at="groups:7")
        assert not [name for name in read_cluster_image(client).topics if name == "orders"], (
            "the topic is not visible yet"
        )
        done = run("restore", folder, "-b", other.bootstrap, "--yes")
        assert f"{count:,} committed offsets" in done.splitlines()[-1]
        assert offsets_of(read_cluster_image(client)) == before
