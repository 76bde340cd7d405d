"""The second half of the demo, on Spark: what was written becomes a table, is asked a question, and is audited."""

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

AFTERWARDS = 1000
"""Orders that are written after the landing: a query sees them all the same."""

QUESTION = f"""\
SELECT customer, count(*) AS orders, sum(euros) AS euros, count(country) AS with_country
FROM {TOPIC} GROUP BY customer ORDER BY customer"""

SHORT_LIVED = {"spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}
"""One compiler of the two, and one thread that collects: what the others do pays off after minutes, and the demo would
take two thirds more of a processor."""


def show(nodes: Cluster, tables: Path) -> None:
    with step("starting Spark on this machine"):
        spark = runtime.session(**SHORT_LIVED)
    try:
        with step(f"landing {TOPIC} in a Delta table, its JSON as columns"):
            landed = run(nodes.bootstrap, str(tables), [TOPIC], format="json", once=True, spark=spark)
        rows, dead = landed.rows[TOPIC], landed.dead_letters[TOPIC]
        note(f"{rows:,} rows; {dead} records that are no JSON went to the dead letters, with the reason")
        with step(f"writing {AFTERWARDS:,} more orders, which are not landed"), nodes.live[0].cluster() as cluster:
            Producer(cluster).send(TOPIC, orders(AFTERWARDS, first=1_000_000))
        with step("asking in SQL: the table and the live tail of the topic, each order once"):
            answer = query(spark, QUESTION, nodes.bootstrap, str(tables))
            totals = [tuple(row) for row in answer.collect()]
        note(table([name.upper() for name in answer.columns], totals))
        invariant(sum(row[1] for row in totals) == rows + AFTERWARDS, "the query did not see every order once")
        with step("auditing: every replica on every node's disk, record by record, and the table"):
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
