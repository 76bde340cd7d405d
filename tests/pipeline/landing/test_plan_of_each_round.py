"""What a round reads, who reads it, and what the command is told: without a broker and without Spark."""

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


def planned(
    next_offsets: dict[int, int],
    earliest: Offsets,
    ends: Offsets,
    records_max: int = MANY,
    up_to: Offsets | None = None,
) -> Plan:
    return plan_round(next_offsets, earliest, ends, up_to=up_to, records_max=records_max, allow_data_loss=False)


def test_a_round_continues_where_the_table_ends_and_new_partitions_start_at_their_first_record() -> None:
    plan = planned({0: 5, 1: 0, 2: 9}, offsets(0, 0, 0, 0), offsets(8, 4, 9, 7))
    assert plan.spans == (Span(0, 5, 8), Span(1, 0, 4), Span(3, 0, 7))
    assert plan.complete
    assert not plan.gone
    assert not plan.empty


def test_a_new_table_starts_with_what_there_is_and_notes_where_empty_partitions_stand() -> None:
    plan = planned({}, offsets(3, 7, 0), offsets(9, 7, 0))
    assert plan.spans == (Span(0, 3, 9),)
    assert plan.empty == (Span(1, 0, 7),), "or what it gets and loses from now on would not be missed"
    assert plan.complete
    assert not plan.gone


@pytest.mark.parametrize("end", [500, 600])
def test_what_a_partition_lost_before_it_landed_for_the_first_time_is_named(end: int) -> None:
    earliest, ends = offsets(0, 500), offsets(10, end)
    with pytest.raises(RecordsGone, match=r"orders-1: offsets 0 to 499 are gone: it starts at 500 now"):
        planned({0: 10}, earliest, ends)
    plan = plan_round({0: 10}, earliest, ends, records_max=MANY, allow_data_loss=True)
    assert plan.spans == (Span(1, 0, end),)
    assert len(plan.gone) == 1


def test_a_landing_that_is_to_end_may_find_that_another_has_landed_more_than_that() -> None:
    plan = planned({0: 150, 1: 3}, offsets(140, 0, 0), offsets(160, 9, 5), up_to=offsets(100, 7))
    assert plan.spans == (Span(1, 3, 7),)
    assert plan.complete
    behind = planned({0: 100}, offsets(140), offsets(160), up_to=offsets(100))
    assert behind.spans == (), "what is gone was not asked for"
    with pytest.raises(PartitionShorter, match=r"landed up to 12, but the partition ends at 9 now"):
        planned({0: 12}, offsets(0), offsets(9), up_to=offsets(20))


def test_a_round_takes_no_more_than_its_limit_and_lets_no_partition_starve() -> None:
    plan = planned({}, offsets(0, 0, 0), offsets(10_000, 10, 0), records_max=1000)
    assert not plan.complete
    assert sum(span.end - span.start for span in plan.spans) <= 1001
    assert {span.partition for span in plan.spans} == {0, 1}


def test_records_that_are_gone_are_named_and_fail_the_round_unless_allowed() -> None:
    earliest, ends = offsets(7, 0), offsets(9, 4)
    with pytest.raises(RecordsGone, match=r"orders-0: offsets 2 to 6 are gone: it starts at 7 now.*allow-data-loss"):
        planned({0: 2, 1: 1}, earliest, ends)
    plan = plan_round({0: 2, 1: 1}, earliest, ends, records_max=MANY, allow_data_loss=True)
    # The span covers the gap: the table's offsets must not leave one.
    assert plan.spans == (Span(0, 2, 9), Span(1, 1, 4))
    assert len(plan.gone) == 1


def test_a_partition_that_ends_before_the_table_does_is_named() -> None:
    with pytest.raises(PartitionShorter, match=r"orders-0: the table has landed up to 12, but .* ends at 9 now"):
        planned({0: 12}, offsets(0), offsets(9))
    allowed = plan_round({0: 12}, offsets(0), offsets(9), records_max=MANY, allow_data_loss=True)
    assert allowed.spans == ()


@given(st.lists(st.integers(1, 5 * TASK_RECORDS_MIN), min_size=1, max_size=12), st.integers(1, 16))
def test_tasks_share_all_offsets_evenly_and_what_they_land_can_be_committed(sizes: list[int], tasks_max: int) -> None:
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


def test_columns_that_several_tasks_ask_for_are_joined_without_loss() -> None:
    a = [pa.field("price", pa.int64()), pa.field("id", pa.string())]
    b = [pa.field("price", pa.float64()), pa.field("at", pa.struct([pa.field("x", pa.int64())]))]
    c = [pa.field("id", pa.int64()), pa.field("at", pa.struct([pa.field("y", pa.bool_())]))]
    assert types(joined_fields([a, b, c])) == {
        "price": pa.float64(),
        "id": pa.string(),
        "at": pa.struct([pa.field("x", pa.int64()), pa.field("y", pa.bool_())]),
    }


def test_what_is_learned_from_values_without_a_column_is_asked_for_once() -> None:
    growth = Growth(pa.schema([pa.field("id", pa.int64())]))
    growth.learn([None, {"id": "no number"}, {"ID": 1}])
    assert types(growth.wanted) == {}, "values that do not fit and names that clash ask for nothing"
    growth.learn([{"price": 1, "at": {"x": 1}}])
    growth.learn([None, {"price": 1.5, "at": {"y": True}}])
    at = pa.struct([pa.field("x", pa.int64()), pa.field("y", pa.bool_())])
    assert types(growth.wanted) == {"price": pa.float64(), "at": at}
    assert growth.schema.names == ["id", "price", "at"]


def test_who_runs_it_has_the_first_word_then_the_topic_then_the_default() -> None:
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
def test_the_group_is_named_after_the_place(root: str, group: str) -> None:
    assert default_group(root) == f"chronik-pipeline-{group}"


def test_fail_points_are_checked_before_anything_runs() -> None:
    assert failpoints.parse("after_files, data_commit:3") == {"after_files": 1, "data_commit": 3}
    for wrong in ("nowhere", "data_commit:x"):
        with pytest.raises(ConfigError, match="expected NAME or NAME:NTH"):
            failpoints.parse(wrong)
    failpoints.reached("data_commit")  # nothing is armed here


def test_a_report_tells_lag_and_speed() -> None:
    report = TopicReport(
        "p", "orders", "tables/orders", State.LANDING, {0: 5}, {0: 9, 1: 3}, round_rows=50, round_seconds=2.0
    )
    assert report.lag == 7
    assert report.rows_per_second == 25
