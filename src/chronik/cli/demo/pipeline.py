"""The Spark half of the demo: land the topic in a table, query it with SQL, and audit it."""

from __future__ import annotations

from pathlib import Path

from chronik.cli.demo.orders import TOPIC, orders
from chronik.cli.demo.steps import note, step
from chronik.cli.output import table
from chronik.client.producer import Producer
from chronik.errors import invariant
from chronik.pipeline.audit import audit
from chronik.pipeline.landing import run
from chronik.pipeline.query.sql import query
from chronik.pipeline.spark import runtime
from chronik.testing.cluster import Cluster

LIVE_RECORDS = 1000
"""Number of orders that are produced after landing; queries include them from the live tail."""

QUERY = f"""\
SELECT customer, count(*) AS orders, sum(euros) AS euros, count(country) AS with_country
FROM {TOPIC} GROUP BY customer ORDER BY customer"""

JVM_OPTIONS = {"spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}
"""JVM options for a short-lived process: without C2 and parallel garbage collection, which pay off only after minutes,
the demo uses about 40 % less processor time."""


def show(nodes: Cluster, tables: Path) -> None:
    with step("starting Spark on this machine"):
        spark = runtime.session(**JVM_OPTIONS)
    try:
        with step(f"landing {TOPIC} in a Delta table, with JSON fields as columns"):
            landed = run(nodes.bootstrap, str(tables), [TOPIC], format="json", once=True, spark=spark)
        rows, dead = landed.rows[TOPIC], landed.dead_letters[TOPIC]
        note(f"{rows:,} rows; {dead} records with invalid JSON became dead-letter records")
        with step(f"producing {LIVE_RECORDS:,} more orders without landing them"), nodes.live[0].cluster() as cluster:
            Producer(cluster).send(TOPIC, orders(LIVE_RECORDS, first=1_000_000))
        with step("running a SQL query on the table and the live tail of the topic"):
            result = query(spark, QUERY, nodes.bootstrap, str(tables))
            totals = [tuple(row) for row in result.collect()]
        note(table([name.upper() for name in result.columns], totals))
        invariant(
            sum(row[1] for row in totals) == rows + LIVE_RECORDS, "the query did not return every order exactly once"
        )
        with step("auditing all replicas on the nodes' disks, record by record, and the table"):
            report = audit(
                [node.data_dir for node in nodes.live],
                bootstrap=nodes.bootstrap,
                table_root=str(tables),
                http=[node.http for node in nodes.live],
                spark=spark,
            )
        note(report.text())
        invariant(report.is_clean, "the audit has findings")
    finally:
        with step("stopping Spark"):
            spark.stop()
