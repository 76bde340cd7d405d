"""Tests of explanations of what a query reads: files, rows and bytes of a table, and offsets of the live tail."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from chronik.cli.pipeline.query_explanation import format_explanation
from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord
from chronik.pipeline.query.conditions import ColumnCondition, Operator
from chronik.pipeline.query.explanation import QueryExplanation, explain_scan
from chronik.pipeline.query.name_resolution import TopicView, TopicViewScope
from chronik.pipeline.query.pruning import PrunedSnapshot, prune_snapshot
from chronik.pipeline.query.tail_size import measure_ranges
from chronik.pipeline.query.topic_snapshots import TopicSnapshot
from chronik.pipeline.query.views import build_read_settings
from chronik.pipeline.source.offset_ranges import OffsetRange
from chronik.pipeline.tables.commit_plan import PartitionRange
from chronik.pipeline.tables.topic_table import TopicTable
from chronik.protocol.records import Record, encode_batch
from chronik.testing import Broker
from tests.pipeline.table_fixtures import open_test_table, write_task_output

BOTH = TopicView("orders", "orders", TopicViewScope.BOTH)
COLD = TopicView("orders_cold", "orders", TopicViewScope.COLD)
TAIL = (OffsetRange("orders", 0, 10, 15), OffsetRange("orders", 1, 20, 25))
FIRST = (
    ColumnCondition("_partition", Operator.EQUAL, (0,)),
    ColumnCondition("_offset", Operator.GREATER_OR_EQUAL, (12,)),
)
OTHER_DAY = (ColumnCondition("_date", Operator.IS_NULL), ColumnCondition("_partition", Operator.IS_NOT_NULL))


@pytest.fixture
def table(tmp_path: Path) -> TopicTable:
    """A table with two files: ten rows of partition 0, and twenty of partition 1."""
    table = open_test_table(tmp_path)
    for partition, end in ((0, 10), (1, 20)):
        table.commit([write_task_output(tmp_path, PartitionRange(partition, 0, end))])
    return table


def prune(table: TopicTable, view: TopicView, *references: tuple[ColumnCondition, ...]) -> PrunedSnapshot:
    snapshot = TopicSnapshot("orders", table.snapshot(), TAIL)
    return prune_snapshot(view, snapshot, references, lambda _: {})


def count_bytes(ranges: Sequence[OffsetRange]) -> int:
    return sum(100 * each.size for each in ranges)


def test_tail_is_measured_in_whole_batches_up_to_a_limit(chronik_broker: Broker, chronik_topic: str) -> None:
    sizes, now_ms = [], int(time.time() * 1000)
    with chronik_broker.cluster() as cluster:
        for count in (3, 1, 5):
            records = [OutgoingRecord(b"x" * 50, partition=0, timestamp=now_ms) for _ in range(count)]
            Producer(cluster).send(chronik_topic, records)
            batch = encode_batch([Record(number, now_ms, None, b"x" * 50) for number in range(count)])
            sizes.append(len(batch))
        settings = build_read_settings(chronik_broker.bootstrap)
        expected_sizes = {(0, 9): sum(sizes), (3, 4): sizes[1], (2, 4): sizes[0] + sizes[1], (8, 9): sizes[2]}
        for (start, end), expected in expected_sizes.items():
            target = OffsetRange(chronik_topic, 0, start, end)
            assert measure_ranges(cluster, [target], settings) == expected
        assert measure_ranges(cluster, [target, target], settings, bytes_max=2 * sizes[2]) == 2 * sizes[2]
        assert measure_ranges(cluster, [target, target], settings, bytes_max=2 * sizes[2] - 1) is None
        missing = OffsetRange(f"{chronik_topic}-missing", 0, 0, 1)
        assert measure_ranges(cluster, [missing], settings) is None


def test_explanation_counts_what_is_read_and_skipped(table: TopicTable) -> None:
    sizes = {file.rows: file.size_bytes for file in table.files().files}
    partition_1 = (ColumnCondition("_partition", Operator.EQUAL, (1,)),)
    assert explain_scan(prune(table, BOTH, partition_1, FIRST), count_bytes).to_json() == {
        "view": "orders",
        "topic": "orders",
        "conditions": [["_partition = 1"], ["_partition = 0", "_offset >= 12"]],
        "landed": {
            "format": "delta",
            "version": 2,
            "files": 1,
            "rows": 20,
            "bytes": sizes[20],
            "skipped": {
                "partition": {"files": 0, "rows": 0, "bytes": 0},
                "statistics": {"files": 1, "rows": 10, "bytes": sizes[10]},
            },
        },
        "tail": {
            "offsets": 8,
            "bytes": 800,
            "skipped_offsets": 2,
            "ranges": [{"partition": 0, "start": 12, "end": 15}, {"partition": 1, "start": 20, "end": 25}],
        },
    }


def test_explanation_of_landed_half_has_no_tail(table: TopicTable) -> None:
    found = explain_scan(prune(table, COLD, OTHER_DAY)).to_json()
    assert found["landed"]["skipped"]["partition"]["files"] == 2
    assert found["landed"]["files"] == 0
    assert found["conditions"] == [["_date IS NULL"]]
    assert found["tail"] == {"offsets": 0, "bytes": 0, "skipped_offsets": 0, "ranges": []}


def test_unknown_conditions_skip_nothing(table: TopicTable) -> None:
    snapshot = TopicSnapshot("orders", table.snapshot(), TAIL)
    found = explain_scan(PrunedSnapshot(BOTH, snapshot, snapshot)).to_json()
    assert (found["landed"]["files"], found["landed"]["rows"], found["conditions"]) == (2, 30, [])
    assert (found["tail"]["offsets"], found["tail"]["skipped_offsets"]) == (10, 0)


def test_text_has_a_line_for_each_half(table: TopicTable) -> None:
    found = QueryExplanation(None, (explain_scan(prune(table, BOTH, FIRST), count_bytes),))
    lines = format_explanation(found).splitlines()
    assert [line.split() for line in lines] == [
        ["VIEW", "HALF", "FILES", "ROWS", "BYTES", "SKIPPED", "OFFSETS"],
        ["orders", "landed", "0", "0", "0", "2", "files", "by", "statistics", "-"],
        ["orders", "tail", "-", "3", "300", "7", "offsets", "0:", "12-14"],
        ["orders:", "_partition", "=", "0", "AND", "_offset", ">=", "12"],
    ]


def test_text_says_why_nothing_is_skipped(table: TopicTable) -> None:
    snapshot = TopicSnapshot("orders", None, ())
    view = explain_scan(PrunedSnapshot(BOTH, snapshot, snapshot))
    text = format_explanation(QueryExplanation("there are few files and records", (view,)))
    assert text.splitlines()[-1] == "nothing is skipped: there are few files and records"
    assert format_explanation(QueryExplanation(None, ())) == "the query reads no topic"
