"""Tests of docs/guides/from-spark-kafka.md: its programs run, and its tables list every option."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord
from chronik.formats.codec import ValueFormat, WriterSchema
from chronik.formats.encoding import build_prefix, create_encoder
from chronik.formats.registry_client import RegistryClient, parse_registry_settings
from chronik.pipeline.source.option_names import (
    IGNORED_OPTIONS,
    REJECTED_BY_SINK,
    REJECTED_BY_SOURCE,
    SINK_OPTIONS,
    SOURCE_OPTIONS,
)
from chronik.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCS = Path(__file__).parents[3] / "docs" / "guides"
PAGE = DOCS / "from-spark-kafka.md"
REFERENCE = DOCS / "pipeline.md"

ORDER = WriterSchema(
    ValueFormat.AVRO,
    '{"type":"record","name":"Order","fields":[{"name":"item","type":"string"},{"name":"price","type":"double"}]}',
)

PROGRAM = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", re.MULTILINE | re.DOTALL)


def options_in_tables(page: Path) -> set[str]:
    rows = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    return {name for row in rows for name in re.findall(r"`([\w.]+)`", row)}


@pytest.mark.parametrize("names", [SOURCE_OPTIONS, SINK_OPTIONS, IGNORED_OPTIONS, REJECTED_BY_SOURCE, REJECTED_BY_SINK])
def test_page_lists_every_option(names: tuple[str, ...]) -> None:
    assert set(names) - options_in_tables(PAGE) == set()


def test_reference_lists_every_option() -> None:
    evaluated_by_spark = {"checkpointLocation", "queryName"}
    assert {*SOURCE_OPTIONS, *SINK_OPTIONS} - evaluated_by_spark - options_in_tables(REFERENCE) == set()


@pytest.fixture
def typed_topic(chronik_broker: Broker, chronik_topic: str, chronik_registry: dict[str, str]) -> str:
    """A topic with two orders in Avro."""
    topic = f"{chronik_topic}-typed"
    registry = RegistryClient(parse_registry_settings(chronik_registry["url"]))
    prefix = build_prefix(registry.register(f"{topic}-value", ORDER))
    registry.close()
    encoder = create_encoder(ORDER)
    chronik_broker.create_topic(topic)
    with chronik_broker.cluster() as cluster:
        orders = [{"item": "tea", "price": 4.0}, {"item": "salt", "price": 2.5}]
        Producer(cluster).send(topic, [OutgoingRecord(prefix + encoder.encode_value(order)) for order in orders])
    return topic


def test_documented_programs_copy_orders(
    spark: SparkSession,
    chronik_broker: Broker,
    chronik_topic: str,
    typed_topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    copies, cheap = f"{chronik_topic}-copies", f"{chronik_topic}-cheap"
    for name in (copies, cheap):
        chronik_broker.create_topic(name)
    with chronik_broker.cluster() as cluster:
        Producer(cluster).send(chronik_topic, [OutgoingRecord(b"tea"), OutgoingRecord(b"salt")])
    programs = PROGRAM.findall(PAGE.read_text(encoding="utf-8"))
    assert len(programs) == 3
    names: dict[str, object] = {}
    for program, output in programs:
        text = program.replace("127.0.0.1:9092", chronik_broker.bootstrap).replace("checkpoints/", f"{tmp_path}/")
        text = text.replace('"orders"', f'"{chronik_topic}"').replace('"copies"', f'"{copies}"')
        text = text.replace("subscribe 'copies'", f"subscribe '{copies}'")
        text = text.replace('"typed-orders"', f'"{typed_topic}"').replace('"cheap-orders"', f'"{cheap}"')
        exec(compile(text, str(PAGE), "exec"), names)
        assert output in capsys.readouterr().out
    written = sorted(record.value or b"" for record in chronik_broker.records(copies))
    assert written == [b"salt", b"tea"]
    assert [record.value for record in chronik_broker.records(cheap, decode=True)] == [{"item": "salt", "price": 2.5}]
    (row,) = spark.sql("SELECT count(DISTINCT offset) FROM copies").collect()
    assert row[0] == 2
