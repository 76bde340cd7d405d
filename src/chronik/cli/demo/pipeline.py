"""The Spark half of the demo: land the topic in a table, query it with SQL, and audit it."""

from __future__ import annotations

from pathlib import Path

from chronik.cli.demo.orders import TOPIC, generate_orders
from chronik.cli.demo.steps import print_note, print_step
from chronik.cli.output import format_table
from chronik.client.producer import Producer
from chronik.errors import check_invariant
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


def show_pipeline(nodes: Cluster, tables: Path) -> None:
    with print_step("starting Spark on this machine"):
        spark = runtime.session(**JVM_OPTIONS)
    try:
        with print_step(f"landing {TOPIC} in a Delta table, with JSON fields as columns"):
            landed = run(nodes.bootstrap, str(tables), [TOPIC], format="json", once=True, spark=spark)
        rows, dead = landed.rows[TOPIC], landed.dead_letters[TOPIC]
        print_note(f"{rows:,} rows; {dead} records with invalid JSON became dead-letter records")
        with (
            print_step(f"producing {LIVE_RECORDS:,} more orders without landing them"),
            nodes.live_nodes[0].cluster() as cluster,
        ):
            Producer(cluster).send(TOPIC, generate_orders(LIVE_RECORDS, first=1_000_000))
        with print_step("running a SQL query on the table and the live tail of the topic"):
            result = query(spark, QUERY, nodes.bootstrap, str(tables))
            totals = [tuple(row) for row in result.collect()]
        print_note(format_table([name.upper() for name in result.columns], totals))
        check_invariant(
            sum(row[1] for row in totals) == rows + LIVE_RECORDS, "the query did not return every order exactly once"
        )
        with print_step("auditing all replicas on the nodes' disks, record by record, and the table"):
            report = audit(
                [node.data_dir for node in nodes.live_nodes],
                bootstrap=nodes.bootstrap,
                table_root=str(tables),
                http=[node.http for node in nodes.live_nodes],
                spark=spark,
            )
        print_note(report.to_text())
        check_invariant(report.is_clean, "the audit has findings")
    finally:
        with print_step("stopping Spark"):
            spark.stop()
