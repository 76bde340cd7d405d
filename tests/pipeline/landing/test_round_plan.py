"""Planning of landing rounds, table settings, failpoints and reports, without a broker and without Spark."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronik.client.records import TopicPartition
from chronik.errors import ConfigError
from chronik.pipeline import failpoints
from chronik.pipeline.journal.reports import TopicReport
from chronik.pipeline.landing.round_plan import (
    TASK_OVERHEAD_RECORDS,
    TASK_RECORDS_MIN,
    PartitionTruncatedError,
    RecordsDeletedError,
    RoundPlan,
    TopicDemand,
    bundle_ranges,
    group_tasks,
    plan_round,
    share_round,
)
from chronik.pipeline.landing.settings import (
    DEFAULT_TABLE_SETTINGS,
    TableSettings,
    derive_group_name,
    is_landing_enabled,
    parse_table_settings,
    parse_table_settings_from_configs,
)
from chronik.pipeline.source.offset_ranges import Offsets
from chronik.pipeline.tables.commit_plan import PartitionRange, TaskOutput, plan_commit
from chronik.pipeline.tables.layout import TableKind
from chronik.pipeline.tables.partitioning import Partitioning
from chronik.pipeline.tables.topic_table import TableFormat
from chronik.pipeline.tables.values.data_format import DataFormat
from chronik.pipeline_journal import LandingState

MANY = 10**9


def offsets(*values: int) -> Offsets:
    return {TopicPartition("orders", index): value for index, value in enumerate(values)}


def plan_without_loss(
    next_offsets: dict[int, int],
    earliest: Offsets,
    ends: Offsets,
    records_max: int = MANY,
    up_to: Offsets | None = None,
) -> RoundPlan:
    return plan_round(next_offsets, earliest, ends, up_to=up_to, records_max=records_max, allow_data_loss=False)


def test_round_continues_at_next_offsets_and_includes_new_partitions() -> None:
    plan = plan_without_loss({0: 5, 1: 0, 2: 9}, offsets(0, 0, 0, 0), offsets(8, 4, 9, 7))
    assert plan.ranges == (PartitionRange(0, 5, 8), PartitionRange(1, 0, 4), PartitionRange(3, 0, 7))
    assert plan.is_complete
    assert not plan.missing_offsets
    assert not plan.empty_ranges


def test_new_table_starts_at_earliest_offsets_and_records_empty_partitions() -> None:
    plan = plan_without_loss({}, offsets(3, 7, 0), offsets(9, 7, 0))
    assert plan.ranges == (PartitionRange(0, 3, 9),)
    assert plan.empty_ranges == (PartitionRange(1, 0, 7),), (
        "without a next offset, records lost later would not be noticed"
    )
    assert plan.is_complete
    assert not plan.missing_offsets


@pytest.mark.parametrize("end", [500, 600])
def test_records_deleted_before_first_landing_are_reported(end: int) -> None:
    earliest, ends = offsets(0, 500), offsets(10, end)
    with pytest.raises(
        RecordsDeletedError, match=r"orders-1: offsets 0 to 499 were deleted .*: the log start offset is 500"
    ):
        plan_without_loss({0: 10}, earliest, ends)
    plan = plan_round({0: 10}, earliest, ends, records_max=MANY, allow_data_loss=True)
    assert plan.ranges == (PartitionRange(1, 0, end),)
    assert len(plan.missing_offsets) == 1


def test_once_plan_is_empty_if_another_driver_landed_further() -> None:
    plan = plan_without_loss({0: 150, 1: 3}, offsets(140, 0, 0), offsets(160, 9, 5), up_to=offsets(100, 7))
    assert plan.ranges == (PartitionRange(1, 3, 7),)
    assert plan.is_complete
    behind = plan_without_loss({0: 100}, offsets(140), offsets(160), up_to=offsets(100))
    assert behind.ranges == (), "the deleted records are beyond the requested end"
    with pytest.raises(PartitionTruncatedError, match=r"landed up to offset 12, but the partition ends at 9"):
        plan_without_loss({0: 12}, offsets(0), offsets(9), up_to=offsets(20))


def test_round_limit_is_shared_among_partitions() -> None:
    plan = plan_without_loss({}, offsets(0, 0, 0), offsets(10_000, 10, 0), records_max=1000)
    assert not plan.is_complete
    assert sum(span.end - span.start for span in plan.ranges) <= 1001
    assert {span.partition for span in plan.ranges} == {0, 1}


def test_deleted_records_fail_the_round_unless_allowed() -> None:
    earliest, ends = offsets(7, 0), offsets(9, 4)
    with pytest.raises(
        RecordsDeletedError, match=r"orders-0: offsets 2 to 6 were deleted .* offset is 7.*allow-data-loss"
    ):
        plan_without_loss({0: 2, 1: 1}, earliest, ends)
    plan = plan_round({0: 2, 1: 1}, earliest, ends, records_max=MANY, allow_data_loss=True)
    # The range includes the gap, since the table's offsets must be contiguous.
    assert plan.ranges == (PartitionRange(0, 2, 9), PartitionRange(1, 1, 4))
    assert len(plan.missing_offsets) == 1


def test_partition_ending_before_the_table_fails_the_round() -> None:
    with pytest.raises(
        PartitionTruncatedError, match=r"orders-0: the table has landed up to offset 12, but .* ends at 9"
    ):
        plan_without_loss({0: 12}, offsets(0), offsets(9))
    allowed = plan_round({0: 12}, offsets(0), offsets(9), records_max=MANY, allow_data_loss=True)
    assert allowed.ranges == ()


@given(st.lists(st.integers(1, 5 * TASK_RECORDS_MIN), min_size=1, max_size=12), st.integers(1, 16))
def test_tasks_get_equal_shares_that_can_be_committed(sizes: list[int], tasks_max: int) -> None:
    spans = [PartitionRange(index, 10, 10 + size) for index, size in enumerate(sizes)]
    found = bundle_ranges(spans, tasks_max)
    assert 1 <= len(found) <= tasks_max
    loads = [sum(span.end - span.start for span in bundle) for bundle in found]
    assert sum(loads) == sum(sizes)
    assert max(loads) - min(loads) <= 1
    assert len(found) == 1 or min(loads) >= TASK_RECORDS_MIN
    choice = plan_commit([TaskOutput(bundle) for bundle in found], dict.fromkeys(range(len(sizes)), 10))
    assert choice.next_offsets == {index: 10 + size for index, size in enumerate(sizes)}


# Shares of topics


DEMANDS = st.lists(
    st.builds(
        TopicDemand,
        st.one_of(st.just(0), st.integers(1, 20), st.integers(1, 10**7)),
        st.floats(1.0, 10**6),
        st.integers(0, 3),
    ),
    max_size=30,
)


@settings(deadline=None)
@given(DEMANDS, st.floats(1.0, 10**10))
def test_shares_are_bounded_and_max_min_fair(demands: list[TopicDemand], bytes_max: float) -> None:
    shares = share_round(demands, bytes_max)
    sizes = [share * each.record_bytes for share, each in zip(shares, demands, strict=True)]
    largest = max((each.record_bytes for each in demands), default=0.0)
    assert all(0 <= share <= each.records for share, each in zip(shares, demands, strict=True))
    assert sum(sizes) <= max(bytes_max, largest) * 1.000001
    assert any(shares) or not any(each.records for each in demands)
    for size, share, each in zip(sizes, shares, demands, strict=True):
        if share < each.records:  # a topic that gets less than it needs gets as much as any other, up to one record
            assert size + largest >= max(sizes)
    if sum(each.bytes for each in demands) > bytes_max:  # the round is used entirely, except for parts of records
        assert sum(sizes) + 2 * sum(each.record_bytes for each in demands) >= bytes_max * 0.999999
    elif not any(each.waited_rounds for each in demands):
        assert shares == [each.records for each in demands]


def test_topic_with_huge_backlog_leaves_other_topics_their_records() -> None:
    demands = [TopicDemand(10**9, 100.0), *(TopicDemand(500, 100.0) for _ in range(999))]
    shares = share_round(demands, 10**9)
    assert shares[1:] == [500] * 999
    assert shares[0] == (10**9 - 999 * 500 * 100) // 100


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 60), st.integers(1, 500)), min_size=1, max_size=12), st.integers(1, 600))
def test_no_topic_starves_in_rounds_smaller_than_a_record(topics: list[tuple[int, int]], bytes_max: int) -> None:
    backlogs = [records for records, _ in topics]
    waited = [0] * len(topics)
    rounds = 0
    while any(backlogs):
        shares = share_round(
            [
                TopicDemand(backlog, size, waiting)
                for backlog, (_, size), waiting in zip(backlogs, topics, waited, strict=True)
            ],
            bytes_max,
        )
        for index, share in enumerate(shares):
            waited[index] = waited[index] + 1 if backlogs[index] and not share else 0
            backlogs[index] -= share
        assert max(waited) <= len(topics), "each waiting topic is served before the others are served twice"
        rounds += 1
    assert rounds <= sum(records for records, _ in topics)


@settings(deadline=None)
@given(st.lists(st.integers(0, 3 * TASK_RECORDS_MIN), max_size=200), st.integers(1, 64))
def test_small_tasks_are_grouped_in_order(counts: list[int], parallelism: int) -> None:
    groups = group_tasks(counts, parallelism)
    assert [index for group in groups for index in group] == list(range(len(counts)))
    limit = max(TASK_RECORDS_MIN, sum(count + TASK_OVERHEAD_RECORDS for count in counts) // (4 * parallelism))
    costs = [sum(counts[index] + TASK_OVERHEAD_RECORDS for index in group) for group in groups]
    assert all(cost <= limit or len(group) == 1 for cost, group in zip(costs, groups, strict=True))
    assert all(first + second > limit for first, second in pairwise(costs)), "groups are not split"


def test_large_tasks_are_not_grouped_and_a_thousand_small_ones_use_all_cores() -> None:
    assert len(group_tasks([TASK_RECORDS_MIN] * 8, 8)) == 8
    assert 8 <= len(group_tasks([3] * 1000, 2)) <= 10


def test_table_settings_precedence_is_option_then_topic_then_default() -> None:
    configs = {"columnar.enabled": "TRUE", "columnar.format": "json", "columnar.partition.by": "hour"}
    assert is_landing_enabled(configs)
    assert not is_landing_enabled({"columnar.enabled": "false"})
    assert not is_landing_enabled({})
    decoded = TableSettings(TableKind.DECODED, Partitioning.HOUR, DataFormat.JSON)
    assert parse_table_settings_from_configs(configs) == decoded
    assert parse_table_settings("raw", None).with_fallback(parse_table_settings_from_configs(configs)).with_fallback(
        DEFAULT_TABLE_SETTINGS
    ) == TableSettings(TableKind.RAW, Partitioning.HOUR, DataFormat.RAW, table_format=TableFormat.DELTA)
    assert parse_table_settings_from_configs({}).with_fallback(DEFAULT_TABLE_SETTINGS) == DEFAULT_TABLE_SETTINGS
    with pytest.raises(ConfigError, match=r"columnar\.format = 'xml': expected raw, json, avro"):
        parse_table_settings_from_configs({"columnar.format": "xml"})


@pytest.mark.parametrize(
    ("root", "group"),
    [("/data/tables", "tables"), ("s3://lake/my tables/", "lake-my-tables"), ("s3://lake", "lake"), ("/", "tables")],
)
def test_default_group_is_derived_from_table_root(root: str, group: str) -> None:
    assert derive_group_name(root) == f"chronik-pipeline-{group}"


def test_invalid_failpoints_are_rejected() -> None:
    assert failpoints.parse_failpoints("after_files, data_commit:3") == {"after_files": 1, "data_commit": 3}
    for wrong in ("nowhere", "data_commit:x"):
        with pytest.raises(ConfigError, match="expected NAME or NAME:NTH"):
            failpoints.parse_failpoints(wrong)
    failpoints.hit_failpoint("data_commit")  # no failpoint is armed here


def test_report_computes_lag_and_rate() -> None:
    report = TopicReport(
        "p", "orders", "tables/orders", LandingState.LANDING, {0: 5}, {0: 9, 1: 3}, round_rows=50, round_seconds=2.0
    )
    assert report.lag == 7
    assert report.rows_per_second == 25
