"""Tests that run the programs of docs/guides/pipeline.md, which read a topic and write another one."""

from __future__ import annotations

import re
from pathlib import Path

from pyspark.sql import SparkSession

from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord
from chronik.testing import Broker

PAGE = Path(__file__).parents[3] / "docs" / "guides" / "pipeline.md"


def test_documented_programs_read_and_copy_orders(
    spark: SparkSession, chronik_broker: Broker, chronik_topic: str
) -> None:
    copies = f"{chronik_topic}-copies"
    chronik_broker.create_topic(copies)
    with chronik_broker.cluster() as cluster:
        Producer(cluster).send(chronik_topic, [OutgoingRecord(b"tea"), OutgoingRecord(b"salt")])
    programs = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(programs) == 2
    names: dict[str, object] = {}
    for program in programs:
        text = program.replace("127.0.0.1:9092", chronik_broker.bootstrap)
        text = text.replace('"orders"', f'"{chronik_topic}"').replace('"copies"', f'"{copies}"')
        exec(compile(text, str(PAGE), "exec"), names)
    assert names["spark"] is spark or isinstance(names["spark"], SparkSession)
    written = sorted(record.value or b"" for record in chronik_broker.records(copies))
    assert written == sorted([b"tea", b"salt"] * 2), "once by each program"
