"""Tests that run the programs of docs/guides/pipeline.md, which read a topic and its table, and write another topic."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord
from chronik.pipeline.landing.runner import run
from chronik.pipeline.query.name_resolution import to_unquoted_name
from chronik.testing import Broker

PAGE = Path(__file__).parents[3] / "docs" / "guides" / "pipeline.md"


def test_documented_programs_read_and_copy_orders(
    spark: SparkSession, chronik_broker: Broker, chronik_topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copies = f"{chronik_topic}-copies"
    chronik_broker.create_topic(copies)
    with chronik_broker.cluster() as cluster:
        Producer(cluster).send(chronik_topic, [OutgoingRecord(b"tea"), OutgoingRecord(b"salt")])
    run(chronik_broker.bootstrap, str(tmp_path), [chronik_topic], once=True, spark=spark)
    spark.sql(f"CREATE DATABASE lake LOCATION '{tmp_path}/warehouse'")
    programs = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(programs) == 4
    names: dict[str, object] = {}
    for program in programs:
        text = program.replace("127.0.0.1:9092", chronik_broker.bootstrap)
        text = text.replace('"orders"', f'"{chronik_topic}"').replace('"copies"', f'"{copies}"')
        text = text.replace('"tables"', repr(str(tmp_path))).replace(
            "lake.orders", f"lake.{to_unquoted_name(chronik_topic)}"
        )
        text = text.replace("/lake/tables/orders", f"{tmp_path}/{chronik_topic}")
        exec(compile(text, str(PAGE), "exec"), names)
    spark.sql("DROP DATABASE lake CASCADE")
    spark.catalog.dropTempView("landed_orders")
    assert capsys.readouterr().out.count("|       2|") == 2, "the rows of the registered table and of the view"
    assert names["spark"] is spark or isinstance(names["spark"], SparkSession)
    written = sorted(record.value or b"" for record in chronik_broker.records(copies))
    assert written == sorted([b"tea", b"salt"] * 2), "once by each program that writes"
