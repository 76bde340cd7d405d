"""Data directories of earlier versions start with all their contents (see `create_archives.py`)."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from chronik.node.identity import DIRECTORY_FORMAT
from chronik.testing import Broker
from chronik.testing.cluster import Cluster
from tests.api.request_builders import BROKER, TOPIC, batch, produce
from tests.api.test_configs import describe_configs
from tests.data_directories import create_archives
from tests.raw import RawClient

ARCHIVES = sorted(Path(__file__).parent.glob("*.tar.gz"))


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.gz"))
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with tarfile.open(request.param) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.2 (Debian) has no filter
        archive.extractall(tmp_path)
    return tmp_path


@pytest.fixture
def cluster(directory: Path) -> Iterator[Cluster]:
    with Cluster(3, directory / "cluster") as cluster:
        yield cluster


def check(broker: Broker) -> None:
    """Check that the broker has all records, configs and committed offsets."""
    assert [
        record.value for record in broker.records(create_archives.TOPIC)
    ] == create_archives.VALUES * create_archives.PARTITIONS
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": create_archives.GROUP})
    try:
        asked = [TopicPartition(create_archives.TOPIC, partition) for partition in range(create_archives.PARTITIONS)]
        committed = consumer.committed(asked, timeout=create_archives.DEADLINE_SECONDS)
    finally:
        consumer.close()
    assert [each.offset for each in committed] == [create_archives.COMMITTED] * create_archives.PARTITIONS
    name, value = create_archives.BROKER_CONFIG
    with RawClient(broker.bootstrap) as client:
        configs = describe_configs(client, TOPIC, create_archives.TOPIC, list(create_archives.CONFIGS))
        assert {config: each.value for config, each in configs.items()} == create_archives.CONFIGS
        assert describe_configs(client, BROKER, "1", [name])[name].value == value


def identity(data_dir: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((data_dir / "node.json").read_bytes())
    return found


def test_archives_of_earlier_versions_exist() -> None:
    assert {"1bf886d.tar.gz", "5b5ad4a.tar.gz"} <= {path.name for path in ARCHIVES}


def test_standalone_node_starts_on_directory_of_earlier_version(directory: Path) -> None:
    with Broker(directory / "standalone") as broker:
        check(broker)
        with RawClient(broker.bootstrap) as client:
            assert produce(client, create_archives.TOPIC, batch(b"more")).base_offset == len(create_archives.VALUES)
        broker.restart()
        assert (
            len(broker.records(create_archives.TOPIC)) == len(create_archives.VALUES) * create_archives.PARTITIONS + 1
        )
        assert identity(broker.data_dir)["format"] == DIRECTORY_FORMAT


@pytest.mark.xdist_group("cluster")
def test_cluster_starts_on_directories_of_earlier_version(cluster: Cluster) -> None:
    for node in cluster.nodes.values():
        check(node)
        assert node.status()["level"] == 1
        assert identity(node.data_dir)["format"] == DIRECTORY_FORMAT
    cluster.wait_until_agreed()
    cluster.restart()
    cluster.wait_until_ready()
    for node in cluster.nodes.values():
        check(node)
