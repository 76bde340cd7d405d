"""`chronik demo`: run three nodes, produce through a crash, land the topic in a table, query and audit it."""

from __future__ import annotations

import argparse
import tempfile
import threading
from pathlib import Path

from chronik.cli.arguments import add_debug_argument
from chronik.cli.demo.orders import TOPIC, generate_orders, group_by_customer
from chronik.cli.demo.steps import print_note, print_step
from chronik.client.admin import NewTopic, create_topics
from chronik.client.consumer import read_all
from chronik.client.producer import Producer
from chronik.client.records import TopicPartition
from chronik.errors import ChronikError, check_invariant
from chronik.protocol.compression import Codec
from chronik.testing.cluster import Cluster

NODES = 3
PARTITIONS = 3
RECORDS = 20_000
CHUNKS = 20
"""Number of chunks in which the orders are produced; the crash happens between the first and the last."""

NEXT_STEPS = """\
Next steps:
  chronik start                                 a broker on 127.0.0.1:9092, data in ./data
  chronik cluster up --dir cluster              three nodes on this machine, as here
  echo hello | chronik produce greetings        any other Kafka client works as well
  chronik pipeline run --topics greetings --table-root tables
  chronik pipeline sql 'SELECT * FROM greetings' --table-root tables
  docs/guides/pipeline.md                              topics as tables, and the Spark session API
  docs/guides/testing.md                               brokers in your own tests, with fault injection"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=run)
    add_debug_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="chronik-demo-", ignore_cleanup_errors=True) as folder:
        nodes = Cluster(NODES, Path(folder) / "nodes")
        try:
            _show_cluster(nodes)
            _show_pipeline(nodes, Path(folder) / "tables")
            with print_step("stopping the nodes and removing all data"):
                nodes.close()
        finally:
            nodes.close()
    print(f"\n{NEXT_STEPS}")
    return 0


def _show_cluster(nodes: Cluster) -> None:
    with print_step(f"starting {NODES} nodes in a temporary directory"):
        nodes.start()
        nodes.wait_until_ready()
    print_note(f"Kafka clients can connect to {nodes.bootstrap}; node {nodes.leader().node_id} is the Raft leader")
    description = f"creating topic {TOPIC} with {PARTITIONS} partitions and a replica of each on every node"
    with print_step(description), nodes.live_nodes[0].cluster() as cluster:
        create_topics(cluster, [NewTopic(TOPIC, PARTITIONS, NODES, {"columnar.enabled": "true"})])
    with print_step(f"producing {RECORDS:,} orders with acks=all, and killing a partition leader concurrently"):
        victim = _produce_through_crash(nodes)
    print_note(f"node {victim}, which led a partition, was killed (SIGKILL); another node leads the partition now")
    with print_step("restarting the node; it replicates the records that it has missed"):
        nodes[victim].start()
        nodes.wait_until_ready()
    with print_step("consuming all records"), nodes.live_nodes[0].cluster() as cluster:
        records = read_all(cluster, TOPIC)
    check_invariant(
        group_by_customer(records) == group_by_customer(generate_orders(RECORDS)),
        "consumed records differ from acknowledged records",
    )
    print_note(f"{len(records):,} of {RECORDS:,} orders were consumed exactly once, in order per customer")


def _produce_through_crash(nodes: Cluster) -> int:
    """Produce the orders while a partition leader is killed, and return its node id."""
    with nodes.live_nodes[0].cluster() as cluster:
        victim = nodes[cluster.retry(lambda: cluster.leader_id(TopicPartition(TOPIC, 0)))]
    rest, some_written = list(generate_orders(RECORDS)), threading.Event()

    def kill() -> None:
        some_written.wait()
        victim.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    survivor = next(node for node in nodes.live_nodes if node is not victim)
    with survivor.cluster() as cluster:
        producer = Producer(cluster, codec=Codec.ZSTD)
        size = RECORDS // CHUNKS
        for first in range(0, RECORDS, size):
            producer.send(TOPIC, rest[first : first + size])
            some_written.set()
    killer.join()
    return victim.node_id


def _show_pipeline(nodes: Cluster, tables: Path) -> None:
    from chronik.pipeline.spark.environment_checks import require_packages

    try:
        require_packages("pyspark", "pyarrow", "deltalake")
    except ChronikError as error:
        print_note(f"skipping the rest of the demo: {error}")
        return
    from chronik.cli.demo.pipeline import show_pipeline

    show_pipeline(nodes, tables)
