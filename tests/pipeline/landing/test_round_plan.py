"""Planning of landing rounds, table settings, failpoints and reports, without a broker and without Spark."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronik.client.records import TopicPartition
from chronik.errors import ConfigError
from chronik.pipeline.journal.reporting import State, TopicReport
from chronik.pipeline.landing import failpoints
from chronik.pipeline.landing.plan import (
    TASK_RECORDS_MIN,
    PartitionShorter,
    Plan,
    RecordsGone,
    bundles,
    plan_round,
)
from chronik.pipeline.landing.settings import DEFAULTS, Wishes, default_group, is_enabled, wishes, wishes_of
from chronik.pipeline.reading.ranges import Offsets
from chronik.pipeline.tables.layout import Kind, Partitioning
from chronik.pipeline.tables.spans import Landed, Span, choose
from chronik.pipeline.tables.values.growth import Growth, joined_fields

MANY = 10**9


def offsets(*values: int) -> Offsets:
    return {TopicPartition("orders", index): value for index, value in enumerate(values)}


def plan_without_loss(
    next_offsets: dict[int, int],
    earliest: Offsets,
    ends: Offsets,
    records_max: int = MANY,
    up_to: Offsets | None = None,
) -> Plan:
    return plan_round(next_offsets, earliest, ends, up_to=up_to, records_max=records_max, allow_data_loss=False)


def test_round_continues_at_next_offsets_and_includes_new_partitions() -> None:
    plan = plan_without_loss({0: 5, 1: 0, 2: 9}, offsets(0, 0, 0, 0), offsets(8, 4, 9, 7))
    assert plan.spans == (Span(0, 5, 8), Span(1, 0, 4), Span(3, 0, 7))
    assert plan.complete
    assert not plan.gone
    assert not plan.empty


def test_new_table_starts_at_earliest_offsets_and_records_empty_partitions() -> None:
    plan = plan_without_loss({}, offsets(3, 7, 0), offsets(9, 7, 0))
    assert plan.spans == (Span(0, 3, 9),)
    assert plan.empty == (Span(1, 0, 7),), "without a next offset, records lost later would not be noticed"
    assert plan.complete
    assert not plan.gone


@pytest.mark.parametrize("end", [500, 600])
def test_records_deleted_before_first_landing_are_reported(end: int) -> None:
    earliest, ends = offsets(0, 500), offsets(10, end)
    with pytest.raises(RecordsGone, match=r"orders-1: offsets 0 to 499 were deleted .*: the log start offset is 500"):
        plan_without_loss({0: 10}, earliest, ends)
    plan = plan_round({0: 10}, earliest, ends, records_max=MANY, allow_data_loss=True)
    assert plan.spans == (Span(1, 0, end),)
    assert len(plan.gone) == 1


def test_once_plan_is_empty_if_another_driver_landed_further() -> None:
    plan = plan_without_loss({0: 150, 1: 3}, offsets(140, 0, 0), offsets(160, 9, 5), up_to=offsets(100, 7))
    assert plan.spans == (Span(1, 3, 7),)
    assert plan.complete
    behind = plan_without_loss({0: 100}, offsets(140), offsets(160), up_to=offsets(100))
    assert behind.spans == (), "the deleted records are beyond the requested end"
    with pytest.raises(PartitionShorter, match=r"landed up to offset 12, but the partition ends at 9"):
        plan_without_loss({0: 12}, offsets(0), offsets(9), up_to=offsets(20))


def test_round_limit_is_shared_among_partitions() -> None:
    plan = plan_without_loss({}, offsets(0, 0, 0), offsets(10_000, 10, 0), records_max=1000)
    assert not plan.complete
    assert sum(span.end - span.start for span in plan.spans) <= 1001
    assert {span.partition for span in plan.spans} == {0, 1}


def test_deleted_records_fail_the_round_unless_allowed() -> None:
    earliest, ends = offsets(7, 0), offsets(9, 4)
    with pytest.raises(RecordsGone, match=r"orders-0: offsets 2 to 6 were deleted .* offset is 7.*allow-data-loss"):
        plan_without_loss({0: 2, 1: 1}, earliest, ends)
    plan = plan_round({0: 2, 1: 1}, earliest, ends, records_max=MANY, allow_data_loss=True)
    # The range includes the gap, since the table's offsets must be contiguous.
    assert plan.spans == (Span(0, 2, 9), Span(1, 1, 4))
    assert len(plan.gone) == 1


def test_partition_ending_before_the_table_fails_the_round() -> None:
    with pytest.raises(PartitionShorter, match=r"orders-0: the table has landed up to offset 12, but .* ends at 9"):
        plan_without_loss({0: 12}, offsets(0), offsets(9))
    allowed = plan_round({0: 12}, offsets(0), offsets(9), records_max=MANY, allow_data_loss=True)
    assert allowed.spans == ()


@given(st.lists(st.integers(1, 5 * TASK_RECORDS_MIN), min_size=1, max_size=12), st.integers(1, 16))
def test_tasks_get_equal_shares_that_can_be_committed(sizes: list[int], tasks_max: int) -> None:
    spans = [Span(index, 10, 10 + size) for index, size in enumerate(sizes)]
    found = bundles(spans, tasks_max)
    assert 1 <= len(found) <= tasks_max
    loads = [sum(span.end - span.start for span in bundle) for bundle in found]
    assert sum(loads) == sum(sizes)
    assert max(loads) - min(loads) <= 1
    assert len(found) == 1 or min(loads) >= TASK_RECORDS_MIN
    choice = choose([Landed(bundle) for bundle in found], dict.fromkeys(range(len(sizes)), 10))
    assert choice.moved == {index: 10 + size for index, size in enumerate(sizes)}


def types(fields: Iterable[pa.Field]) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in fields}


def test_columns_requested_by_several_tasks_are_merged() -> None:
    a = [pa.field("price", pa.int64()), pa.field("id", pa.string())]
    b = [pa.field("price", pa.float64()), pa.field("at", pa.struct([pa.field("x", pa.int64())]))]
    c = [pa.field("id", pa.int64()), pa.field("at", pa.struct([pa.field("y", pa.bool_())]))]
    assert types(joined_fields([a, b, c])) == {
        "price": pa.float64(),
        "id": pa.string(),
        "at": pa.struct([pa.field("x", pa.int64()), pa.field("y", pa.bool_())]),
    }


def test_new_fields_request_columns_with_common_types() -> None:
    evolution = Growth(pa.schema([pa.field("id", pa.int64())]))
    evolution.learn([None, {"id": "no number"}, {"ID": 1}])
    assert types(evolution.wanted) == {}, "values with other types and names that clash request no columns"
    evolution.learn([{"price": 1, "at": {"x": 1}}])
    evolution.learn([None, {"price": 1.5, "at": {"y": True}}])
    at = pa.struct([pa.field("x", pa.int64()), pa.field("y", pa.bool_())])
    assert types(evolution.wanted) == {"price": pa.float64(), "at": at}
    assert evolution.schema.names == ["id", "price", "at"]


def test_table_settings_precedence_is_option_then_topic_then_default() -> None:
    configs = {"columnar.enabled": "TRUE", "columnar.format": "json", "columnar.partition.by": "hour"}
    assert is_enabled(configs)
    assert not is_enabled({"columnar.enabled": "false"})
    assert not is_enabled({})
    assert wishes_of(configs) == Wishes(Kind.DECODED, Partitioning.HOUR)
    assert wishes("raw", None).before(wishes_of(configs)).before(DEFAULTS) == Wishes(Kind.RAW, Partitioning.HOUR)
    assert wishes_of({}).before(DEFAULTS) == DEFAULTS
    with pytest.raises(ConfigError, match=r"columnar\.format = 'xml': expected raw or json"):
        wishes_of({"columnar.format": "xml"})


@pytest.mark.parametrize(
    ("root", "group"),
    [("/data/tables", "tables"), ("s3://lake/my tables/", "my-tables"), ("/", "tables")],
)
def test_default_group_is_derived_from_table_root(root: str, group: str) -> None:
    assert default_group(root) == f"chronik-pipeline-{group}"


def test_invalid_failpoints_are_rejected() -> None:
    assert failpoints.parse("after_files, data_commit:3") == {"after_files": 1, "data_commit": 3}
    for wrong in ("nowhere", "data_commit:x"):
        with pytest.raises(ConfigError, match="expected NAME or NAME:NTH"):
            failpoints.parse(wrong)
    failpoints.reached("data_commit")  # no failpoint is armed here


def test_report_computes_lag_and_rate() -> None:
    report = TopicReport(
        "p", "orders", "tables/orders", State.LANDING, {0: 5}, {0: 9, 1: 3}, round_rows=50, round_seconds=2.0
    )
    assert report.lag == 7
    assert report.rows_per_second == 25
