"""An import of thousands of topics, a million records and ten thousand offsets that is killed repeatedly: the cluster
contains everything that was acknowledged.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from confluent_kafka import Producer

from chronik.client.admin import NewTopic, create_topics, list_topics
from chronik.client.cluster import ClusterClient as Client
from chronik.client.consumer import Consumer
from chronik.client.groups import commit_offsets, list_committed_offsets
from chronik.client.offsets import list_earliest_offsets, list_latest_offsets
from chronik.client.records import TopicPartition
from chronik.migration import failpoints
from chronik.testing.broker import Broker
from chronik.testing.cluster import Cluster
from tests.cluster.test_standalone_import import names, run_import
from tests.migration.sample_data import SECONDS
from tests.run_size import IS_LONG_RUN, SEED, sized

pytestmark = pytest.mark.xdist_group("cluster")

TOPICS = sized(60, 3000)
RECORDS = sized(6000, 1_000_000)
GROUPS = sized(5, 100)
OFFSETS_PER_GROUP = sized(20, 100)
SAMPLE = sized(20, 200)
"""Topics whose records the test compares; the import itself compares all."""

POINTS = (
    "begun",
    *(f"topics:{number}" for number in ((1, 3, 5, 8) if IS_LONG_RUN else ())),
    *(f"request:{number}" for number in (range(1, 14) if IS_LONG_RUN else (1,))),
    "compared",
    "finished",
)


def fill(bootstrap: str, rng: random.Random) -> dict[str, list[bytes]]:
    """Produce records and return the acknowledged ones by topic, in order."""
    topics = [f"topic-{number:04}" for number in range(TOPICS)]
    with Client(bootstrap) as client:
        for first in range(0, TOPICS, 500):
            create_topics(client, [NewTopic(name, 1) for name in topics[first : first + 500]])
        acknowledged: dict[str, list[bytes]] = {name: [] for name in topics}
        producer = Producer(
            {"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 2_000_000}
        )
        for number in range(RECORDS):
            name = topics[int(rng.random() ** 3 * TOPICS)]  # most records go to a few topics
            value = b"%d " % number + b"." * rng.randrange(60)
            acknowledged[name].append(value)
            producer.produce(name, value, partition=0)
        assert producer.flush(10 * SECONDS) == 0
        for number in range(GROUPS):
            some = rng.sample(topics, OFFSETS_PER_GROUP)
            commit_offsets(
                client, f"group {number}", {TopicPartition(name, 0): len(acknowledged[name]) for name in some}
            )
    return acknowledged


def test_large_import_resumes_after_kills(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    with Broker(tmp_path, flush="os") as broker:
        acknowledged = fill(broker.bootstrap, rng)
        with Client(broker.bootstrap) as client:
            offsets = {f"group {n}": list_committed_offsets(client, f"group {n}") for n in range(GROUPS)}
            ids = {topic.name: topic.topic_id for topic in list_topics(client) if not topic.is_internal}
        broker.kill()
    with Cluster(3) as cluster:
        for point in POINTS:
            killed = run_import(tmp_path / "data", cluster, point, "--timeout", "60")
            assert killed.returncode == failpoints.EXIT_CODE, (point, killed.stdout, killed.stderr)
            assert names(cluster) == (set(acknowledged) if point == "finished" else set()), point
        assert "already imported" in run_import(tmp_path / "data", cluster).stdout
        with Client(cluster.bootstrap) as client:
            assert {topic.name: topic.topic_id for topic in list_topics(client) if not topic.is_internal} == ids
            partitions = [TopicPartition(name, 0) for name in acknowledged]
            ends = list_latest_offsets(client, partitions)
            assert ends == {each: len(acknowledged[each.topic]) for each in partitions}
            assert {group: list_committed_offsets(client, group) for group in offsets} == offsets
            for each in rng.sample(partitions, SAMPLE):
                consumer = Consumer(client, list_earliest_offsets(client, [each]))
                found = [record.value for record in consumer.read_until({each: ends[each]})]
                assert found == acknowledged[each.topic], each
        cluster.wait_until_agreed()
