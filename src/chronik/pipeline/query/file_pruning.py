"""Selection of the data files that may have rows for which conditions are true, by the statistics of the files.

Statistics that are missing, or that do not order values as Spark does, exclude no file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa

from chronik.pipeline.query.conditions import ColumnCondition, Conjunction, Operator
from chronik.pipeline.tables.file_statistics import FileStatistics


class SkipReason(StrEnum):
    """The reason why a statement does not need a data file."""

    PARTITION = "partition"
    """The values of its partition columns exclude all rows."""
    STATISTICS = "statistics"
    """The bounds or the null counts of its columns exclude all rows."""


def find_skipped_files(
    statistics: FileStatistics, references: Sequence[Conjunction], partition_by: Sequence[str]
) -> list[SkipReason | None]:
    """Return for each file why no reference to the table needs it, or None if one may need it.

    Each reference needs the rows for which all of its conditions are true.
    """
    files = len(statistics.rows)
    by_partition = [True] * files
    by_statistics = [True] * files
    for conditions in references:
        on_partitions = [each for each in conditions if each.column in partition_by]
        others = [each for each in conditions if each.column not in partition_by]
        in_partition = _find_matches(statistics, on_partitions, files, is_exact=True)
        in_bounds = _find_matches(statistics, others, files, is_exact=False)
        for index in range(files):
            by_partition[index] &= not in_partition[index]
            by_statistics[index] &= not (in_partition[index] and in_bounds[index])
    return [
        SkipReason.PARTITION if partition else SkipReason.STATISTICS if skipped else None
        for partition, skipped in zip(by_partition, by_statistics, strict=True)
    ]


def _find_matches(
    statistics: FileStatistics, conditions: Iterable[ColumnCondition], files: int, *, is_exact: bool
) -> list[bool]:
    """Return for each file whether it may have rows for which all conditions are true."""
    found = [True] * files
    for condition in conditions:
        matches = _find_matching_files(statistics, condition, is_exact)
        found = [before and after for before, after in zip(found, matches, strict=True)]
    return found


def _find_matching_files(statistics: FileStatistics, condition: ColumnCondition, is_exact: bool) -> list[bool]:
    rows, unknown = statistics.rows.to_pylist(), [None] * len(statistics.rows)
    nulls = statistics.null_counts[condition.column].to_pylist() if condition.column in statistics.null_counts else None
    has_nulls_only = [count is not None and count == total for count, total in zip(nulls or unknown, rows, strict=True)]
    if condition.operator is Operator.IS_NULL:
        return [count != 0 for count in nulls or unknown]
    if condition.operator is Operator.IS_NOT_NULL:
        return [not each for each in has_nulls_only]
    lower, upper = statistics.lower.get(condition.column), statistics.upper.get(condition.column)
    data_type = next((each.type for each in (lower, upper) if each is not None), None)
    test = None if data_type is None else _build_test(condition, data_type, is_exact)
    if test is None:
        return [not each for each in has_nulls_only]
    lows = unknown if lower is None else _normalize_bounds(lower)
    highs = unknown if upper is None else _normalize_bounds(upper)
    return [not is_null and test(low, high) for is_null, low, high in zip(has_nulls_only, lows, highs, strict=True)]


# Comparisons with the bounds of a file

BoundsTest = Callable[[Any, Any], bool]
"""Returns whether a value between the lower and the upper bound may meet a condition. A bound of None is unknown."""

_TEXT_OPERATORS: Final = {
    Operator.EQUAL,
    Operator.IN,
    Operator.GREATER,
    Operator.GREATER_OR_EQUAL,
    Operator.LESS,
    Operator.LESS_OR_EQUAL,
    Operator.STARTS_WITH,
}
_FLOAT_OPERATORS: Final = {Operator.EQUAL, Operator.IN, Operator.LESS, Operator.LESS_OR_EQUAL}
"""Spark orders NaN above all numbers, and bounds ignore it, so that an upper bound says nothing about NaN."""


def _build_test(condition: ColumnCondition, data_type: pa.DataType, is_exact: bool) -> BoundsTest | None:
    """Return the test for a condition, or None if bounds of this type cannot exclude files.

    `is_exact` says that all values of the column in a file are equal to its bounds.
    """
    values = [_normalize_literal(value, data_type) for value in condition.values]
    if not values or None in values:
        return None
    operator = condition.operator
    types: Any = pa.types
    if types.is_floating(data_type) and operator not in _FLOAT_OPERATORS:
        return None
    if isinstance(values[0], bytes):
        if is_exact and operator in (Operator.NOT_EQUAL, Operator.NOT_IN):
            return lambda low, high: low is None or low != high or low not in values
        return _build_text_test(operator, values) if operator in _TEXT_OPERATORS else None
    tests: dict[Operator, BoundsTest] = {
        Operator.EQUAL: lambda low, high: _may_equal(low, high, values[0]),
        Operator.IN: lambda low, high: any(_may_equal(low, high, value) for value in values),
        Operator.NOT_EQUAL: lambda low, high: low is None or low != high or low != values[0],
        Operator.NOT_IN: lambda low, high: low is None or low != high or low not in values,
        Operator.GREATER: lambda low, high: high is None or high > values[0],
        Operator.GREATER_OR_EQUAL: lambda low, high: high is None or high >= values[0],
        Operator.LESS: lambda low, high: low is None or low < values[0],
        Operator.LESS_OR_EQUAL: lambda low, high: low is None or low <= values[0],
    }
    return tests.get(operator)


def _may_equal(low: Any, high: Any, value: Any) -> bool:
    return (low is None or low <= value) and (high is None or high >= value)


def _build_text_test(operator: Operator, values: Sequence[bytes]) -> BoundsTest:
    """Return a test for strings or bytes. Writers may truncate a bound, perhaps without raising an upper bound."""

    def may_equal(low: bytes | None, high: bytes | None, value: bytes) -> bool:
        return (low is None or low <= value) and (high is None or high >= value[: len(high)])

    first = values[0]
    tests: dict[Operator, BoundsTest] = {
        Operator.EQUAL: lambda low, high: may_equal(low, high, first),
        Operator.IN: lambda low, high: any(may_equal(low, high, value) for value in values),
        Operator.GREATER: lambda low, high: high is None or high >= first[: len(high)],
        Operator.GREATER_OR_EQUAL: lambda low, high: high is None or high >= first[: len(high)],
        Operator.LESS: lambda low, high: low is None or low < first,
        Operator.LESS_OR_EQUAL: lambda low, high: low is None or low <= first,
        Operator.STARTS_WITH: lambda low, high: may_equal(None if low is None else low[: len(first)], high, first),
    }
    return tests[operator]


# Values that Python orders as Spark does


def _normalize_bounds(bounds: pa.Array) -> list[Any]:
    """Return bounds as Python values that are ordered as in Spark; None for unknown bounds."""
    types: Any = pa.types
    kind = bounds.type
    if types.is_timestamp(kind) or types.is_date64(kind):
        return list(bounds.cast(pa.int64()).to_pylist())
    if types.is_date32(kind):
        return list(bounds.cast(pa.int32()).to_pylist())
    if types.is_floating(kind):
        return [None if value is None or math.isnan(value) else value for value in bounds.to_pylist()]
    if _is_text(kind):
        return [None if value is None else value.encode() for value in bounds.to_pylist()]
    is_supported = types.is_integer(kind) or types.is_boolean(kind) or types.is_decimal(kind) or _is_bytes(kind)
    return list(bounds.to_pylist()) if is_supported else [None] * len(bounds)


def _normalize_literal(value: Any, kind: pa.DataType) -> Any:
    """Convert a constant of a condition to be compared with bounds; None if it cannot be converted exactly."""
    types: Any = pa.types
    if types.is_boolean(kind):
        return value if type(value) is bool else None
    if types.is_integer(kind):
        return value if type(value) is int else None
    if types.is_floating(kind):
        return value if type(value) is float and not math.isnan(value) else None
    if types.is_decimal(kind):
        return value if isinstance(value, Decimal) or type(value) is int else None
    if _is_text(kind):
        try:
            return value.encode() if type(value) is str else None
        except UnicodeEncodeError:
            return None
    if _is_bytes(kind):
        return bytes(value) if isinstance(value, bytes | bytearray) else None
    is_date = types.is_date32(kind) and type(value) is date
    # A timestamp without time zone depends on the session's time zone.
    is_time = types.is_timestamp(kind) and isinstance(value, datetime) and (value.tzinfo is None) == (kind.tz is None)
    if not is_date and not is_time:
        return None
    try:
        return pa.array([value], kind).cast(pa.int32() if is_date else pa.int64())[0].as_py()
    except (pa.ArrowException, OverflowError):
        return None


def _is_text(kind: pa.DataType) -> bool:
    types: Any = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    types: Any = pa.types
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind))
