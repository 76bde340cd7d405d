"""Tests of docs/guides/from-spark-kafka.md: its programs run, and its tables list every option."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord
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


def test_documented_programs_copy_orders(
    spark: SparkSession,
    chronik_broker: Broker,
    chronik_topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    copies = f"{chronik_topic}-copies"
    chronik_broker.create_topic(copies)
    with chronik_broker.cluster() as cluster:
        Producer(cluster).send(chronik_topic, [OutgoingRecord(b"tea"), OutgoingRecord(b"salt")])
    programs = PROGRAM.findall(PAGE.read_text(encoding="utf-8"))
    assert len(programs) == 2
    names: dict[str, object] = {}
    for program, output in programs:
        text = program.replace("127.0.0.1:9092", chronik_broker.bootstrap).replace("checkpoints/", f"{tmp_path}/")
        text = text.replace('"orders"', f'"{chronik_topic}"').replace('"copies"', f'"{copies}"')
        text = text.replace("subscribe 'copies'", f"subscribe '{copies}'")
        exec(compile(text, str(PAGE), "exec"), names)
        assert output in capsys.readouterr().out
    written = sorted(record.value or b"" for record in chronik_broker.records(copies))
    assert written == [b"salt", b"tea"]
    (row,) = spark.sql("SELECT count(DISTINCT offset) FROM copies").collect()
    assert row[0] == 2
