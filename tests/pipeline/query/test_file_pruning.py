"""Property tests of the selection of data files by their statistics: no file with a matching row is skipped."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from chronik.pipeline.query.conditions import ColumnCondition, Operator
from chronik.pipeline.query.file_pruning import SkipReason, find_skipped_files
from chronik.pipeline.tables.file_statistics import FileStatistics
from tests.run_size import SEED, sized

NAN = math.nan
DAY = date(2024, 5, 1)
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)

TYPES: dict[str, tuple[pa.DataType, Callable[[random.Random], Any]]] = {
    "n": (pa.int64(), lambda random: random.randint(-5, 5)),
    "x": (pa.float64(), lambda random: random.choice([NAN, -math.inf, math.inf, 0.0, -0.0, -1.5, 1.5, 3.0])),
    "s": (pa.string(), lambda random: "".join(random.choices("abß\U0001f600", k=random.randint(0, 4)))),
    "b": (pa.binary(), lambda random: bytes(random.choices(b"\x00a\xff", k=random.randint(0, 4)))),
    "d": (pa.decimal128(10, 2), lambda random: Decimal(random.randint(-300, 300)) / 100),
    "day": (pa.date32(), lambda random: DAY + timedelta(days=random.randint(-3, 3))),
    "at": (pa.timestamp("us", tz="UTC"), lambda random: NOON + timedelta(microseconds=random.randint(-3000, 3000))),
    "local": (pa.timestamp("us"), lambda random: NOON.replace(tzinfo=None) + timedelta(hours=random.randint(-3, 3))),
    "ok": (pa.bool_(), lambda random: random.random() < 0.5),
    "place": (pa.string(), lambda random: random.choice(["DE", "FR", "a/b", ""])),
}
PARTITION_COLUMN = "place"

Row = dict[str, Any]


class File(NamedTuple):
    """A data file as its rows, and the statistics that a writer could have stored for it."""

    rows: list[Row]
    lower: Row
    upper: Row
    nulls: dict[str, int | None]
    total: int | None


def compare(left: Any, right: Any) -> int:
    """Compare two values as Spark does: NaN is equal to itself and larger than all other numbers."""
    if isinstance(left, float):
        left, right = (
            (math.isnan(left), 0.0 if math.isnan(left) else left),
            (math.isnan(right), 0.0 if math.isnan(right) else right),
        )
    if isinstance(left, str):
        left, right = left.encode(), right.encode()
    return int(left > right) - int(left < right)


def is_true(condition: ColumnCondition, row: Row) -> bool:
    """Evaluate a condition as Spark does."""
    value, constants = row[condition.column], condition.values
    if condition.operator is Operator.IS_NULL:
        return value is None
    if value is None:
        return False
    if condition.operator is Operator.IS_NOT_NULL:
        return True
    if condition.operator is Operator.STARTS_WITH:
        return bool(value.startswith(constants[0]))
    orders = [compare(value, each) for each in constants]
    return {
        Operator.EQUAL: orders[0] == 0,
        Operator.NOT_EQUAL: orders[0] != 0,
        Operator.GREATER: orders[0] > 0,
        Operator.GREATER_OR_EQUAL: orders[0] >= 0,
        Operator.LESS: orders[0] < 0,
        Operator.LESS_OR_EQUAL: orders[0] <= 0,
        Operator.IN: 0 in orders,
        Operator.NOT_IN: 0 not in orders,
    }[condition.operator]


def build_file(random: random.Random) -> File:
    place = random.choice([TYPES["place"][1](random), None])
    null_share = random.choice([0, 0, 0.3, 1])
    rows: list[Row] = []
    for _ in range(random.randint(1, 4)):
        row = {name: None if random.random() < null_share else make(random) for name, (_, make) in TYPES.items()}
        rows.append(row | {PARTITION_COLUMN: place})
    lower: Row = {}
    upper: Row = {}
    nulls: dict[str, int | None] = {}
    for name in TYPES:
        values = [row[name] for row in rows if row[name] is not None and row[name] == row[name]]
        is_stored = name == PARTITION_COLUMN or random.random() < 0.8
        nulls[name] = sum(row[name] is None for row in rows) if is_stored else None
        if is_stored and values:
            lower[name], upper[name] = min(values, key=sort_key), max(values, key=sort_key)
            if name in ("s", "b") and random.random() < 0.5:
                length = random.randint(1, 2)
                lower[name], upper[name] = lower[name][:length], upper[name][:length]
            if name == "at":
                upper[name] += timedelta(milliseconds=1)
    return File(rows, lower, upper, nulls, len(rows) if random.random() < 0.9 else None)


def sort_key(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def build_statistics(files: Sequence[File]) -> FileStatistics:
    def collect(bounds: Sequence[Mapping[str, Any]]) -> dict[str, pa.Array]:
        return {
            name: pa.array([each.get(name) for each in bounds], data_type) for name, (data_type, _) in TYPES.items()
        }

    return FileStatistics(
        pa.array([file.total for file in files], pa.int64()),
        collect([file.lower for file in files]),
        collect([file.upper for file in files]),
        {name: pa.array([file.nulls[name] for file in files], pa.int64()) for name in TYPES},
    )


def build_condition(random: random.Random) -> ColumnCondition:
    name = random.choice(list(TYPES))
    make = TYPES[name][1]
    operators = [each for each in Operator if each is not Operator.STARTS_WITH or name in ("s", "place")]
    operator = random.choice(operators)
    if operator in (Operator.IS_NULL, Operator.IS_NOT_NULL):
        return ColumnCondition(name, operator)
    count = random.randint(1, 3) if operator in (Operator.IN, Operator.NOT_IN) else 1
    return ColumnCondition(name, operator, tuple(make(random) for _ in range(count)))


def test_no_file_with_a_needed_row_is_skipped() -> None:
    generator = random.Random(SEED)
    skipped = dict.fromkeys(SkipReason, 0)
    for _ in range(sized(300, 20_000)):
        files = [build_file(generator) for _ in range(5)]
        references = [
            tuple(build_condition(generator) for _ in range(generator.randint(0, 3)))
            for _ in range(generator.choice([1, 1, 2]))
        ]
        found = find_skipped_files(build_statistics(files), references, (PARTITION_COLUMN,))
        for file, reason in zip(files, found, strict=True):
            if reason is None:
                continue
            skipped[reason] += 1
            for conditions in references:
                needed = [row for row in file.rows if all(is_true(each, row) for each in conditions)]
                assert not needed, (conditions, file)
    assert all(count > 50 for count in skipped.values()), skipped


@pytest.mark.parametrize(
    ("column", "operator", "value", "expected"),
    [
        ("n", Operator.EQUAL, 7, [True, False]),
        ("n", Operator.GREATER, 9, [True, True]),
        ("n", Operator.LESS, 5, [False, True]),
        ("n", Operator.EQUAL, 7.5, [False, False]),
        ("x", Operator.GREATER, 9.0, [False, False]),
        ("x", Operator.LESS, 5.0, [False, True]),
        ("x", Operator.LESS, NAN, [False, False]),
        ("s", Operator.EQUAL, "ab", [False, True]),
        ("s", Operator.GREATER, "m", [True, False]),
        ("s", Operator.EQUAL, "mm", [True, False]),
        ("s", Operator.STARTS_WITH, "a", [False, True]),
        ("s", Operator.EQUAL, "\udc00", [False, False]),
        ("at", Operator.LESS, datetime(2024, 5, 1, 12), [False, False]),
        ("at", Operator.LESS, NOON, [False, True]),
        ("missing", Operator.EQUAL, 1, [False, False]),
    ],
)
def test_file_is_skipped_if_bounds_exclude_condition(
    column: str, operator: Operator, value: Any, expected: list[bool]
) -> None:
    """The first file has the rows 1 to 5, "a" to "b", the second one 6 to 9, "m" to "n"."""
    bounds: dict[str, tuple[pa.DataType, list[Any], list[Any]]] = {
        "n": (pa.int64(), [1, 6], [5, 9]),
        "x": (pa.float64(), [1.0, 6.0], [5.0, 9.0]),
        "s": (pa.string(), ["a", "m"], ["b", "n"]),
        "at": (pa.timestamp("us", tz="UTC"), [NOON - timedelta(hours=1), NOON], [NOON, NOON]),
    }
    statistics = FileStatistics(
        pa.array([5, 4], pa.int64()),
        {name: pa.array(low, data_type) for name, (data_type, low, _) in bounds.items()},
        {name: pa.array(high, data_type) for name, (data_type, _, high) in bounds.items()},
        {},
    )
    found = find_skipped_files(statistics, [(ColumnCondition(column, operator, (value,)),)], ())
    assert [reason is SkipReason.STATISTICS for reason in found] == expected


def test_truncated_upper_bound_excludes_no_longer_value() -> None:
    statistics = FileStatistics(
        pa.array([1], pa.int64()), {"s": pa.array(["abc"])}, {"s": pa.array(["abc"])}, {"s": pa.array([0], pa.int64())}
    )
    for operator in (Operator.EQUAL, Operator.GREATER, Operator.GREATER_OR_EQUAL, Operator.NOT_EQUAL):
        assert find_skipped_files(statistics, [(ColumnCondition("s", operator, ("abcdef",)),)], ()) == [None]
    assert find_skipped_files(statistics, [(ColumnCondition("s", Operator.EQUAL, ("abd",)),)], ()) == [
        SkipReason.STATISTICS
    ]
