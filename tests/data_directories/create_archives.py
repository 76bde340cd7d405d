"""Creates archives of the data directories of a version: of a standalone node, and of a cluster of three nodes.

    cd tests/data_directories
    PYTHONPATH=<sources of that version> python create_archives.py <version>.tar.gz

Each data directory has one topic with VALUES in every partition, configs, committed offsets of a group, metadata
snapshots and the logs after them.
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from chronik.testing import Broker
from chronik.testing.cluster import Cluster

TOPIC, PARTITIONS = "orders", 3
CONFIGS = {"retention.ms": "-1"}
VALUES = [b"value %d" % number for number in range(10)]
GROUP, COMMITTED = "readers", 7
BROKER_CONFIG = ("message.max.bytes", "2000000")
SNAPSHOT_ENTRIES = 20
DEADLINE_SECONDS = 60


def fill(bootstrap: str) -> None:
    servers = {"bootstrap.servers": bootstrap}
    producer = Producer(servers | {"enable.idempotence": True})
    for partition in range(PARTITIONS):
        for value in VALUES:
            producer.produce(TOPIC, value, key=b"key", partition=partition)
    assert producer.flush(DEADLINE_SECONDS) == 0
    entry = ConfigEntry(*BROKER_CONFIG, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    admin = AdminClient(servers)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(DEADLINE_SECONDS)
    consumer = Consumer(servers | {"group.id": GROUP, "enable.auto.commit": False})
    for offset in range(COMMITTED + 1):  # separate commits: enough commands for snapshots and a log after them
        for partition in range(PARTITIONS):
            consumer.commit(offsets=[TopicPartition(TOPIC, partition, offset)], asynchronous=False)
    consumer.close()


def standalone(folder: Path) -> None:
    with Broker(folder, metadata_snapshot_entries=SNAPSHOT_ENTRIES) as broker:
        broker.create_topic(TOPIC, PARTITIONS, CONFIGS)
        fill(broker.bootstrap)


def cluster(folder: Path) -> None:
    with Cluster(3, folder, metadata_snapshot_entries=SNAPSHOT_ENTRIES, metadata_kept_bytes=0) as cluster:
        cluster[1].create_topic(TOPIC, PARTITIONS, CONFIGS)
        fill(cluster.bootstrap)
        cluster.wait_until_agreed()
        cluster.stop()


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        standalone(Path(temporary) / "standalone")
        cluster(Path(temporary) / "cluster")
        with tarfile.open(sys.argv[1], "w:gz") as archive:
            for path in sorted(Path(temporary).rglob("*")):
                if path.is_file() and "data" in path.parts and path.name != ".lock":
                    archive.add(path, path.relative_to(temporary), filter=_without_owner)


def _without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Remove the owner from an archive member."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    main()
