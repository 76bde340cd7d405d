"""`chronik demo`: run three nodes, produce Avro through a crash, land the topic in a table, query and audit it."""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import textwrap
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from chronik.cli.arguments import add_debug_argument
from chronik.cli.output import format_table
from chronik.client.admin import NewTopic, create_topics
from chronik.client.cluster import ClusterClient
from chronik.client.consumer import read_all
from chronik.client.producer import Producer
from chronik.client.records import ConsumedRecord, OutgoingRecord, TopicPartition
from chronik.client.registry_discovery import discover_registry
from chronik.errors import ChronikError, check_invariant
from chronik.formats.codec import ValueFormat, WriterSchema
from chronik.formats.encoding import ValueEncoder, build_prefix, create_encoder
from chronik.formats.registry_client import RegistryClient
from chronik.protocol.compression import Codec
from chronik.testing.cluster import Cluster

TOPIC = "orders"
SUBJECT = f"{TOPIC}-value"
FIELDS = (
    {"name": "number", "type": "long"},
    {"name": "customer", "type": "string"},
    {"name": "euros", "type": "int"},
)
ADDED_FIELD = {"name": "country", "type": ["null", "string"], "default": None}
SCHEMAS = tuple(
    WriterSchema(ValueFormat.AVRO, json.dumps({"type": "record", "name": "Order", "fields": fields}))
    for fields in (FIELDS, (*FIELDS, ADDED_FIELD))
)
"""The versions of the schema of the demo's orders."""

SEED = 1
CUSTOMERS = ("ada", "alan", "barbara", "edsger", "grace", "ken")
COUNTRIES = ("DE", "FR", "IT", "NL")
INVALID_EVERY = 5000
"""Number of the demo's records for each truncated one, which becomes a dead-letter record."""

NODES = 3
PARTITIONS = 3
RECORDS = 20_000
CHUNKS = 20
"""Number of chunks in which the demo produces its orders.

It kills a node between the first and the last chunk.
"""

LIVE_RECORDS = 1000
"""Number of orders that the demo produces after it wrote the others to the table.

Queries read them directly from the topic.
"""

QUERY = f"""\
SELECT customer, count(*) AS orders, sum(euros) AS euros, count(country) AS with_country
FROM {TOPIC} GROUP BY customer ORDER BY customer"""

JVM_OPTIONS = {"spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}
"""JVM options that shorten the startup of the demo's Spark process.

Disabling C2 and parallel garbage collection reduces the demo's CPU time by about 40 %.
"""

INDENT = "    "

NEXT_STEPS = """\
Next steps:
  chronik start                                 a broker on 127.0.0.1:9092, data in ./data
  chronik cluster up --dir cluster              three nodes on this machine, as here
  echo hello | chronik produce greetings        any other Kafka client works as well
  chronik pipeline run --topics greetings --table-root tables
  chronik pipeline sql 'SELECT * FROM greetings' --table-root tables
  docs/guides/schema-registry.md                       schemas of topics, and their evolution
  docs/guides/pipeline.md                              topics as tables, and the Spark session API
  docs/guides/testing.md                               brokers in your own tests, with fault injection"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=run)
    parser.add_argument(
        "--s3", action="store_true", help="store the table on S3, in a SeaweedFS server on this machine"
    )
    add_debug_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    with (
        tempfile.TemporaryDirectory(prefix="chronik-demo-", ignore_cleanup_errors=True) as folder,
        _run_store(Path(folder)) if arguments.s3 else nullcontext(_TableLocation(f"{folder}/tables")) as tables,
    ):
        nodes = Cluster(NODES, Path(folder) / "nodes")
        try:
            orders = _show_cluster(nodes)
            _show_pipeline(nodes, orders, tables)
            orders.close()
            with print_step("stopping the nodes and removing all data"):
                nodes.close()
        finally:
            nodes.close()
    print(f"\n{NEXT_STEPS}")
    return 0


class _TableLocation(NamedTuple):
    """The root of the demo's tables, and the options of its object store."""

    root: str
    storage_options: Mapping[str, str] | None = None


@contextmanager
def _run_store(folder: Path) -> Iterator[_TableLocation]:
    """Run an S3 server with a bucket for the table.

    Raises:
        ConfigError: SeaweedFS is not installed.
    """
    from chronik.testing.seaweedfs import BUCKET, SeaweedFS

    seaweedfs = SeaweedFS(folder / "s3")
    try:
        with print_step("starting an S3 server (SeaweedFS)"):
            seaweedfs.start()
        print_note(f"bucket {BUCKET} at {seaweedfs.server.endpoint}")
        yield _TableLocation(f"s3://{BUCKET}/tables", seaweedfs.server.options)
    finally:
        seaweedfs.kill()


def _show_cluster(nodes: Cluster) -> OrderEncoder:
    with print_step(f"starting {NODES} nodes in a temporary directory"):
        nodes.start()
        nodes.wait_until_ready()
    print_note(f"Kafka clients can connect to {nodes.bootstrap}; node {nodes.leader().node_id} is the Raft leader")
    description = f"creating topic {TOPIC} with {PARTITIONS} partitions and a replica of each on every node"
    with print_step(description), nodes.live_nodes[0].cluster() as cluster:
        create_topics(cluster, [NewTopic(TOPIC, PARTITIONS, NODES, {"columnar.enabled": "true"})])
        orders = OrderEncoder(open_registry(cluster))
    with print_step(f"producing {RECORDS:,} orders in Avro with acks=all, and killing a partition leader concurrently"):
        victim = _produce_through_crash(nodes, orders)
    print_note(f"node {victim}, which led a partition, was killed (SIGKILL); another node leads the partition now")
    ids = " and ".join(map(str, orders.schema_ids))
    print_note(f"subject {SUBJECT} of the schema registry has {len(orders.schema_ids)} versions, with ids {ids}")
    with print_step("restarting the node; it replicates the records that it has missed"):
        nodes[victim].start()
        nodes.wait_until_ready()
    with print_step("consuming all records"), nodes.live_nodes[0].cluster() as cluster:
        records = read_all(cluster, TOPIC)
    check_invariant(
        group_by_customer(records) == group_by_customer(orders.generate(RECORDS)),
        "consumed records differ from acknowledged records",
    )
    print_note(f"{len(records):,} of {RECORDS:,} orders were consumed exactly once, in order per customer")
    return orders


def _produce_through_crash(nodes: Cluster, orders: OrderEncoder) -> int:
    """Produce the orders, kill the leader of a partition while they are produced, and return its node id."""
    with nodes.live_nodes[0].cluster() as cluster:
        victim = nodes[cluster.retry(lambda: cluster.leader_id(TopicPartition(TOPIC, 0)))]
    some_written = threading.Event()

    def kill() -> None:
        some_written.wait()
        victim.kill()

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    survivor = next(node for node in nodes.live_nodes if node is not victim)
    with survivor.cluster() as cluster:
        producer, rest = Producer(cluster, codec=Codec.ZSTD), orders.generate(RECORDS)
        for _ in range(CHUNKS):
            producer.send(TOPIC, list(islice(rest, RECORDS // CHUNKS)))
            some_written.set()
    killer.join()
    return victim.node_id


def _show_pipeline(nodes: Cluster, orders: OrderEncoder, tables: _TableLocation) -> None:
    from chronik.pipeline.spark.environment_checks import require_packages

    try:
        require_packages("pyspark", "pyarrow", "deltalake")
    except ChronikError as error:
        print_note(f"skipping the rest of the demo: {error}")
        return
    _land_query_and_audit(nodes, orders, tables)


def _land_query_and_audit(nodes: Cluster, orders: OrderEncoder, tables: _TableLocation) -> None:
    from chronik.pipeline.audit import audit
    from chronik.pipeline.landing import run as land
    from chronik.pipeline.query.sql import query
    from chronik.pipeline.spark import runtime

    with print_step("starting Spark on this machine"):
        spark = runtime.session(**JVM_OPTIONS)
    try:
        with print_step(f"landing {TOPIC} in a Delta table, with a column for each field of both schemas"):
            landed = land(
                nodes.bootstrap,
                tables.root,
                [TOPIC],
                format="avro",
                once=True,
                spark=spark,
                storage_options=tables.storage_options,
            )
        rows, dead = landed.rows[TOPIC], landed.dead_letters[TOPIC]
        print_note(f"{rows:,} rows; {dead} truncated records became dead-letter records")
        with (
            print_step(f"producing {LIVE_RECORDS:,} more orders without landing them"),
            nodes.live_nodes[0].cluster() as cluster,
        ):
            Producer(cluster).send(TOPIC, orders.generate(LIVE_RECORDS, first=1_000_000))
        with print_step("running a SQL query on the table and the live tail of the topic"):
            result = query(spark, QUERY, nodes.bootstrap, tables.root, storage_options=tables.storage_options)
            totals = [tuple(row) for row in result.collect()]
        print_note(format_table([name.upper() for name in result.columns], totals))
        check_invariant(
            sum(row[1] for row in totals) == rows + LIVE_RECORDS, "the query did not return every order exactly once"
        )
        with print_step("auditing all replicas on the nodes' disks, record by record, and the table"):
            report = audit(
                [node.data_dir for node in nodes.live_nodes],
                bootstrap=nodes.bootstrap,
                table_root=tables.root,
                storage_options=tables.storage_options,
                http=[node.http for node in nodes.live_nodes],
                spark=spark,
            )
        print_note(report.to_text())
        check_invariant(report.is_clean, "the audit has findings")
    finally:
        with print_step("stopping Spark"):
            spark.stop()


class _SchemaEncoder(NamedTuple):
    """An encoder of orders, and the bytes that name its schema in front of each value."""

    encoder: ValueEncoder
    prefix: bytes


class OrderEncoder:
    """An encoder of the demo's orders in Avro, which registers each schema when the first order needs it."""

    def __init__(self, registry: RegistryClient) -> None:
        self._registry = registry
        self._encoders: list[_SchemaEncoder] = []
        self.schema_ids: list[int] = []

    def generate(self, count: int, first: int = 0) -> Iterator[OutgoingRecord]:
        """Generate orders deterministically. The second half has the second version of the schema."""
        rng = random.Random(SEED + first)
        for number in range(first, first + count):
            customer = rng.choice(CUSTOMERS)
            order = {"number": number, "customer": customer, "euros": rng.randint(1, 99)}
            is_evolved = number >= first + count // 2
            if is_evolved:
                order["country"] = rng.choice(COUNTRIES)
            encoder, prefix = self._get_encoder(is_evolved)
            value = prefix + encoder.encode_value(order)
            yield OutgoingRecord(
                value[:-1] if number % INVALID_EVERY == INVALID_EVERY - 1 else value, customer.encode()
            )

    def _get_encoder(self, version: int) -> _SchemaEncoder:
        while version >= len(self._encoders):
            schema = SCHEMAS[len(self._encoders)]
            schema_id = self._registry.register(SUBJECT, schema)
            self.schema_ids.append(schema_id)
            self._encoders.append(_SchemaEncoder(create_encoder(schema), build_prefix(schema_id)))
        return self._encoders[version]

    def close(self) -> None:
        """Close the connection to the registry."""
        self._registry.close()


def open_registry(cluster: ClusterClient) -> RegistryClient:
    """Return a client of the schema registry that the brokers serve."""
    settings = discover_registry(cluster)
    check_invariant(settings is not None, "the brokers report no schema registry")
    assert settings is not None
    return RegistryClient(settings)


def group_by_customer(records: Iterable[OutgoingRecord | ConsumedRecord]) -> dict[bytes | None, list[bytes | None]]:
    """Group the values of records by customer, preserving their order."""
    found: dict[bytes | None, list[bytes | None]] = {}
    for record in records:
        found.setdefault(record.key, []).append(record.value)
    return found


@contextmanager
def print_step(what: str) -> Iterator[None]:
    print(f"… {what}", end="", flush=True)
    began = time.perf_counter()
    yield
    seconds = time.perf_counter() - began
    print(f": {seconds:.1f} s" if seconds >= 1 else f": {seconds * 1000:.0f} ms", flush=True)


def print_note(text: str) -> None:
    print(textwrap.indent(text, INDENT), flush=True)
