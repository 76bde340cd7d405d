"""`chronik demo`: three nodes, a stream of events, a crash; then the topic as a table, SQL, and an audit."""

from __future__ import annotations

import argparse
import tempfile
import threading
from pathlib import Path

from chronik.cli.arguments import add_debug_argument
from chronik.cli.demo.orders import TOPIC, by_customer, orders
from chronik.cli.demo.steps import note, step
from chronik.client.admin import NewTopic, create_topics
from chronik.client.consumer import read_all
from chronik.client.producer import Producer
from chronik.client.records import TopicPartition
from chronik.errors import ChronikError, invariant
from chronik.protocol.compression import Codec
from chronik.testing.cluster import Cluster

NODES = 3
PARTITIONS = 3
RECORDS = 20_000
PORTIONS = 20
"""The orders are written in so many portions: the crash comes between the first and the last."""

WHERE_NEXT = """\
Where to look next:
  chronik start                                 a broker on 127.0.0.1:9092, data in ./data
  chronik cluster up --dir cluster              three nodes on this machine, as here
  echo hello | chronik produce greetings        any Kafka client will do as well
  chronik pipeline run --topics greetings --table-root tables
  chronik pipeline sql 'SELECT * FROM greetings' --table-root tables
  docs/pipeline.md                              topics as tables, and Spark's own session
  docs/testing.md                               this broker in your own tests, with faults on demand"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=run)
    add_debug_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="chronik-demo-", ignore_cleanup_errors=True) as folder:
        nodes = Cluster(NODES, Path(folder) / "nodes")
        try:
            _show_cluster(nodes)
            _show_pipeline(nodes, Path(folder) / "tables")
            with step("stopping the nodes and removing everything"):
                nodes.close()
        finally:
            nodes.close()
    print(f"\n{WHERE_NEXT}")
    return 0


def _show_cluster(nodes: Cluster) -> None:
    with step(f"starting {NODES} nodes in a temporary folder"):
        nodes.start()
        nodes.wait_until_ready()
    note(f"Kafka clients are answered on {nodes.bootstrap}; node {nodes.leader().node_id} leads the metadata log")
    creating = f"creating the topic {TOPIC}: {PARTITIONS} partitions, a replica of each on every node"
    with step(creating), nodes.live[0].cluster() as cluster:
        create_topics(cluster, [NewTopic(TOPIC, PARTITIONS, NODES, {"columnar.enabled": "true"})])
    with step(f"writing {RECORDS:,} orders, safe on every node when acknowledged, and killing a leader meanwhile"):
        victim = _write_through_a_crash(nodes)
    note(f"node {victim}, which led a partition, was killed (SIGKILL): another one leads it now")
    with step("starting it again; it fetches what it has missed"):
        nodes[victim].start()
        nodes.wait_until_ready()
    with step("reading everything back"), nodes.live[0].cluster() as cluster:
        records = read_all(cluster, TOPIC)
    invariant(by_customer(records) == by_customer(orders(RECORDS)), "what was acknowledged did not come back as it was")
    note(f"{len(records):,} of {RECORDS:,} orders are there, once, and those of each customer in their order")


def _write_through_a_crash(nodes: Cluster) -> int:
    """Returns the node that was killed."""
    with nodes.live[0].cluster() as cluster:
        victim = nodes[cluster.retrying(lambda: cluster.leader_id(TopicPartition(TOPIC, 0)))]
    rest, some_written = list(orders(RECORDS)), threading.Event()

    def kill() -> None:
        some_written.wait()
        victim.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    survivor = next(node for node in nodes.live if node is not victim)
    with survivor.cluster() as cluster:
        producer = Producer(cluster, codec=Codec.ZSTD)
        size = RECORDS // PORTIONS
        for first in range(0, RECORDS, size):
            producer.send(TOPIC, rest[first : first + size])
            some_written.set()
    killer.join()
    return victim.node_id


def _show_pipeline(nodes: Cluster, tables: Path) -> None:
    from chronik.pipeline.spark.doctor import require

    try:
        require("pyspark", "pyarrow", "deltalake")
    except ChronikError as error:
        note(f"the rest of the demo is left out: {error}")
        return
    from chronik.cli.demo.pipeline import show

    show(nodes, tables)
