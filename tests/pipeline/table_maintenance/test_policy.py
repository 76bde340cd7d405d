"""Tests of the maintenance policy: single decisions, and simulations of tables that grow for days."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from math import ceil, log

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronik.limits import KIB, MIB
from chronik.pipeline.table_maintenance.policy import (
    CREDIT_SECONDS_MAX,
    DAY_MS,
    FILES_PER_MERGE,
    HOUR_MS,
    LEASE_MS,
    METADATA_FILES_MAX,
    QUIET_MS,
    SHARE,
    STEP_BYTES_MAX,
    TIERS_MAX,
    MaintenanceAction,
    MaintenanceBudget,
    MaintenanceSettings,
    compute_next_vacuum_ms,
    compute_tier,
    find_other_maintainer,
    group_files_to_merge,
    is_small,
    plan_maintenance,
)
from chronik.pipeline.tables.table_files import LiveFile
from chronik.pipeline.tables.table_statistics import MaintenanceKind, MaintenanceRecord, TableStatistics
from tests.run_size import sized

NOW_MS = 1_800_000_000_000
TARGET = 128 * MIB
ME = "here:1"


def build_file(number: int, size_bytes: int = 10 * KIB, day: str = "d", written_ms: int = NOW_MS) -> LiveFile:
    offsets = (number * 10, number * 10 + 9)
    return LiveFile(f"{day}/{number:06}", size_bytes, (day,), (0, 0), offsets, 10, written_ms)


def build_statistics(*files: LiveFile, created_ms: int = NOW_MS, **values: object) -> TableStatistics:
    found = TableStatistics("delta", 9, 10, 3, created_ms, files, None, None, None, None, None)
    return replace(found, **values)  # type: ignore[arg-type]


def list_actions(statistics: TableStatistics, settings: MaintenanceSettings | None = None) -> list[MaintenanceAction]:
    settings = settings or MaintenanceSettings()
    return [each.action for each in plan_maintenance(statistics, settings, maintainer=ME, now_ms=NOW_MS)]


# Compaction


def test_few_small_files_of_active_partition_are_left() -> None:
    assert list_actions(build_statistics(*map(build_file, range(FILES_PER_MERGE - 1)))) == []


def test_enough_small_files_of_active_partition_are_merged_in_offset_order() -> None:
    files = [build_file(number) for number in reversed(range(FILES_PER_MERGE))]
    (plan,) = plan_maintenance(build_statistics(*files), MaintenanceSettings(), maintainer=ME, now_ms=NOW_MS)
    assert (plan.action, plan.benefit) == (MaintenanceAction.COMPACTION, FILES_PER_MERGE - 1)
    (group,) = plan.groups
    assert [file.offsets[0] for file in group] == list(range(0, 10 * FILES_PER_MERGE, 10))


def test_files_of_different_sizes_or_partitions_are_not_merged() -> None:
    sizes = [build_file(number, 10 * KIB if number % 2 else 2 * MIB) for number in range(14)]
    days = [build_file(number, day=f"d{number % 2}") for number in range(14)]
    assert list_actions(build_statistics(*sizes)) == []
    assert list_actions(build_statistics(*days)) == []


def test_quiet_partition_is_merged_completely() -> None:
    old_ms = NOW_MS - QUIET_MS
    files = [build_file(1, 10 * KIB, written_ms=old_ms), build_file(2, 9 * MIB, written_ms=old_ms)]
    assert list_actions(build_statistics(*files)) == [MaintenanceAction.COMPACTION]
    assert list_actions(build_statistics(files[0], replace(files[1], written_ms=old_ms + 1))) == []
    assert list_actions(build_statistics(files[0])) == []


def test_files_near_target_size_are_left() -> None:
    old_ms = NOW_MS - 2 * QUIET_MS
    assert list_actions(build_statistics(*(build_file(n, TARGET * 3 // 4, written_ms=old_ms) for n in range(20)))) == []
    smaller = MaintenanceSettings(file_bytes=16 * KIB)
    assert list_actions(build_statistics(*(build_file(n, 12 * KIB) for n in range(20))), smaller) == []
    assert list_actions(build_statistics(*(build_file(n, 12 * KIB - 1) for n in range(20))), smaller) != []


def test_compaction_step_is_limited_and_takes_largest_groups_first() -> None:
    days = {f"d{index}": 10 + index for index in range(3)}
    size = STEP_BYTES_MAX // 25
    files = [build_file(number, size, day) for day, count in days.items() for number in range(count)]
    (plan,) = plan_maintenance(build_statistics(*files), MaintenanceSettings(), maintainer=ME, now_ms=NOW_MS)
    assert plan.groups
    assert [len(group) for group in plan.groups] == sorted((len(group) for group in plan.groups), reverse=True)
    assert sum(file.size_bytes for group in plan.groups for file in group) <= STEP_BYTES_MAX
    only = [build_file(number, STEP_BYTES_MAX // 2) for number in range(2)]
    larger = MaintenanceSettings(file_bytes=STEP_BYTES_MAX)
    assert list_actions(build_statistics(*only), larger) == [MaintenanceAction.COMPACTION], (
        "a single merge may be larger"
    )


@pytest.mark.parametrize(
    ("size_bytes", "tier"),
    [(TARGET, 0), (TARGET // 8 + 1, 0), (TARGET // 8, 1), (TARGET // 64, 2), (1, TIERS_MAX), (0, TIERS_MAX)],
)
def test_tier_is_number_of_merges_to_target(size_bytes: int, tier: int) -> None:
    assert compute_tier(size_bytes, TARGET) == tier


@given(
    st.lists(st.tuples(st.integers(0, 2 * TARGET), st.sampled_from("abc"), st.booleans()), max_size=80),
    st.sampled_from([64 * KIB, 4 * MIB, TARGET]),
)
@settings(max_examples=sized(100, 5_000), deadline=None)
def test_every_file_is_in_at_most_one_merge_of_one_partition(
    drawn: list[tuple[int, str, bool]], file_bytes: int
) -> None:
    files = [
        build_file(number, size, day, NOW_MS - (2 * QUIET_MS if is_old else 0))
        for number, (size, day, is_old) in enumerate(drawn)
    ]
    groups = list(group_files_to_merge(files, file_bytes, NOW_MS))
    merged = [file for group in groups for file in group]
    assert len(set(merged)) == len(merged)
    assert set(merged) <= {file for file in files if is_small(file, file_bytes)}
    for group in groups:
        assert len(group) >= 2
        assert len({file.partition_values for file in group}) == 1
        assert sum(file.size_bytes for file in group[:-1]) < file_bytes, "the last file may exceed the target"
    # What is left of a partition are fewer files of each tier than a merge takes, and few near the target.
    left = Counter(
        (file.partition_values, compute_tier(file.size_bytes, file_bytes))
        for file in set(files) - set(merged)
        if is_small(file, file_bytes)
    )
    assert all(count < FILES_PER_MERGE for count in left.values())


# Vacuum and metadata


def test_first_vacuum_is_due_when_table_is_as_old_as_retention() -> None:
    settings = MaintenanceSettings(retention_ms=2 * DAY_MS)
    assert list_actions(build_statistics(created_ms=NOW_MS - 2 * DAY_MS + 1), settings) == []
    assert list_actions(build_statistics(created_ms=NOW_MS - 2 * DAY_MS), settings) == [MaintenanceAction.VACUUM]


@pytest.mark.parametrize(
    ("retention_ms", "interval_ms"),
    [(7 * DAY_MS, DAY_MS), (90 * DAY_MS, DAY_MS), (HOUR_MS, HOUR_MS), (DAY_MS, DAY_MS // 7)],
)
def test_vacuum_interval_follows_retention(retention_ms: int, interval_ms: int) -> None:
    settings = MaintenanceSettings(retention_ms=retention_ms)
    last = MaintenanceRecord(MaintenanceKind.VACUUM, NOW_MS, ME)
    found = build_statistics(created_ms=0, last_vacuum=last)
    assert compute_next_vacuum_ms(found, settings) == NOW_MS + interval_ms
    assert list_actions(found, settings) == []


def test_retention_is_rounded_up_to_hours() -> None:
    assert [MaintenanceSettings(retention_ms=HOUR_MS + extra).retention_hours for extra in (0, 1)] == [1, 2]


def test_long_overdue_vacuum_precedes_larger_compaction() -> None:
    files = [build_file(number) for number in range(500)]
    created = {"created_ms": NOW_MS - 7 * DAY_MS}
    assert list_actions(build_statistics(*files, **created)) == [
        MaintenanceAction.COMPACTION,
        MaintenanceAction.VACUUM,
    ]
    created = {"created_ms": NOW_MS - 8 * DAY_MS}
    assert list_actions(build_statistics(*files, **created)) == [
        MaintenanceAction.VACUUM,
        MaintenanceAction.COMPACTION,
    ]


def test_metadata_is_compacted_at_its_limit() -> None:
    assert list_actions(build_statistics(metadata_files=METADATA_FILES_MAX - 1)) == []
    assert list_actions(build_statistics(metadata_files=METADATA_FILES_MAX)) == [MaintenanceAction.METADATA]


# Coordination


def test_table_is_left_to_other_maintainer_until_its_lease_ends() -> None:
    files = [build_file(number) for number in range(20)]
    other = MaintenanceRecord(MaintenanceKind.REBUILD, NOW_MS - 1, "there:2", NOW_MS + 1)
    assert find_other_maintainer(build_statistics(last_rebuild=other), ME, NOW_MS) == "there:2"
    assert list_actions(build_statistics(*files, last_rebuild=other)) == []
    ended, own = replace(other, lease_until_ms=NOW_MS), replace(other, maintainer=ME)
    assert list_actions(build_statistics(*files, last_rebuild=ended)) == [MaintenanceAction.COMPACTION]
    assert list_actions(build_statistics(*files, last_rebuild=own)) == [MaintenanceAction.COMPACTION]


def test_disabled_maintenance_plans_nothing() -> None:
    files = [build_file(number) for number in range(20)]
    found = build_statistics(*files, created_ms=0, metadata_files=10_000)
    assert list_actions(found, MaintenanceSettings(is_enabled=False)) == []


# Budget


def test_budget_allows_one_maintenance_and_then_waits_for_its_time() -> None:
    budget = MaintenanceBudget(0.0, share=0.1)
    assert not budget.is_available(0.0)
    assert budget.is_available(1.0)
    budget.charge(2.0)
    assert not budget.is_available(1.0)
    assert budget.compute_wait(1.0) == pytest.approx(19.0)
    assert not budget.is_available(19.9)
    assert budget.is_available(20.1)


def test_unused_budget_is_limited() -> None:
    budget = MaintenanceBudget(0.0, share=0.1)
    assert budget.is_available(1_000_000.0)
    budget.charge(CREDIT_SECONDS_MAX)
    assert not budget.is_available(1_000_000.0)


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 20)), max_size=60))
@settings(max_examples=sized(100, 5_000), deadline=None)
def test_maintenance_stays_within_its_share(steps: list[tuple[float, float]]) -> None:
    """Whatever the durations, only the last maintenance can exceed the share of the elapsed time."""
    budget, now, used, last = MaintenanceBudget(0.0), 0.0, 0.0, 0.0
    for idle, duration in steps:
        now += idle
        if budget.is_available(now):
            now, used, last = now + duration, used + duration, duration
            budget.charge(duration)
        assert used - last <= SHARE * now + 1e-6


# Simulations


@dataclass
class SimulatedTable:
    """A table whose rounds append files, and whose maintenance is executed as planned."""

    settings: MaintenanceSettings
    overhead_bytes: int
    """Part of each file that a merge removes, such as its footer."""
    now_ms: int = NOW_MS
    files: dict[str, LiveFile] = field(default_factory=dict)
    versions_ms: list[int] = field(default_factory=list)
    removed_ms: list[int] = field(default_factory=list)
    statistics: TableStatistics = field(default_factory=build_statistics)
    rows: int = 0
    appended_bytes: int = 0
    rewritten_bytes: int = 0
    appended: int = 0

    def append(self, size_bytes: int, day: str) -> None:
        file = build_file(self.appended, size_bytes + self.overhead_bytes, day, self.now_ms)
        self.appended += 1
        self.rows += 10
        self.appended_bytes += file.size_bytes
        self.files[file.path] = file
        self.versions_ms.append(self.now_ms)

    def maintain(self) -> list[MaintenanceAction]:
        """Execute what is planned, the most important maintenance first, until nothing is."""
        done: list[MaintenanceAction] = []
        while plans := plan_maintenance(self.describe(), self.settings, maintainer=ME, now_ms=self.now_ms):
            assert len(done) < 50, "maintenance must come to an end"
            done.append(plans[0].action)
            for group in plans[0].groups:
                self._merge(group)
            if plans[0].action is MaintenanceAction.VACUUM:
                self._vacuum()
            self.versions_ms.append(self.now_ms)
        return done

    def describe(self) -> TableStatistics:
        return replace(self.statistics, files=tuple(self.files.values()), versions_kept=len(self.versions_ms))

    def _merge(self, group: tuple[LiveFile, ...]) -> None:
        for file in group:
            del self.files[file.path]
            self.removed_ms.append(self.now_ms)
            self.rewritten_bytes += file.size_bytes
        size = sum(file.size_bytes - self.overhead_bytes for file in group) + self.overhead_bytes
        merged = replace(
            group[0],
            path=f"{group[0].path}+{len(self.versions_ms)}",
            size_bytes=size,
            offsets=(min(file.offsets[0] for file in group), max(file.offsets[1] for file in group)),
            rows=sum(file.rows or 0 for file in group),
            written_ms=self.now_ms,
        )
        self.files[merged.path] = merged

    def _vacuum(self) -> None:
        kept_ms = self.now_ms - self.settings.retention_ms
        self.versions_ms = [each for each in self.versions_ms if each > kept_ms]
        self.removed_ms = [each for each in self.removed_ms if each > kept_ms]
        record = MaintenanceRecord(MaintenanceKind.VACUUM, self.now_ms, ME, self.now_ms + LEASE_MS)
        self.statistics = replace(self.statistics, last_vacuum=record)


@given(
    interval_s=st.sampled_from([10, 60, 300]),
    sizes=st.lists(st.integers(100, 200 * KIB), min_size=1, max_size=5),
    overhead_bytes=st.sampled_from([0, 3 * KIB]),
    days=st.integers(1, 3),
)
@settings(max_examples=sized(8, 200), deadline=None)
def test_growing_table_has_few_files_and_rewrites_each_row_few_times(
    interval_s: int, sizes: list[int], overhead_bytes: int, days: int
) -> None:
    table = SimulatedTable(MaintenanceSettings(file_bytes=MIB), overhead_bytes)
    most = 0
    rounds = sized(1_000, 3_000)
    for number in range(rounds):
        table.now_ms += interval_s * 1000
        table.append(sizes[number % len(sizes)], f"d{number * days // rounds}")
        table.maintain()
        small = Counter(file.partition_values for file in table.files.values() if is_small(file, MIB))
        most = max(most, max(small.values(), default=0))
    assert sum(file.rows or 0 for file in table.files.values()) == table.rows
    assert most < FILES_PER_MERGE * (TIERS_MAX + 1), "of an active partition"
    # A merge multiplies the size by eight, and a last one is needed when a partition becomes quiet. Overhead, which
    # merges remove, slows the growth of small files.
    tiers = ceil(log(MIB / (min(sizes) + overhead_bytes), FILES_PER_MERGE))
    assert table.rewritten_bytes <= table.appended_bytes * (tiers + 2 if overhead_bytes == 0 else 12)
    table.now_ms += QUIET_MS
    while table.maintain():
        table.now_ms += QUIET_MS
    small = Counter(file.partition_values for file in table.files.values() if is_small(file, MIB))
    assert max(small.values(), default=0) <= 1, "of quiet partitions"


@pytest.mark.parametrize("retention_days", [1, 7])
def test_versions_and_unused_files_are_bounded_by_retention(retention_days: int) -> None:
    table = SimulatedTable(MaintenanceSettings(file_bytes=MIB, retention_ms=retention_days * DAY_MS), 0)
    interval_ms = 15 * 60_000
    vacuums_ms: list[int] = []
    kept: list[tuple[int, int]] = []
    for _ in range(40 * DAY_MS // interval_ms):
        table.now_ms += interval_ms
        table.append(20 * KIB, "d")
        before_ms = list(table.versions_ms)
        if MaintenanceAction.VACUUM in table.maintain():
            vacuums_ms.append(table.now_ms)
        assert all(
            each <= table.now_ms - table.settings.retention_ms for each in set(before_ms) - set(table.versions_ms)
        )
        kept.append((len(table.versions_ms), len(table.removed_ms)))
    assert vacuums_ms[0] - NOW_MS >= table.settings.retention_ms
    rounds = (retention_days * DAY_MS + table.settings.vacuum_interval_ms) // interval_ms
    assert max(versions for versions, _ in kept) <= rounds * 1.3 + 2, "each eighth round also merges"
    assert max(removed for _, removed in kept) <= rounds * 1.3 + FILES_PER_MERGE
