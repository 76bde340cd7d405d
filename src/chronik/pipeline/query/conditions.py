"""Conditions on columns of a view that a statement needs, as Spark pushes them down to a data source.

Rows for which a condition is false or null are not needed. Conditions that cannot exclude files or offsets are omitted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final


class Operator(StrEnum):
    """The operator of a condition, as in SQL."""

    EQUAL = "="
    NOT_EQUAL = "<>"
    GREATER = ">"
    GREATER_OR_EQUAL = ">="
    LESS = "<"
    LESS_OR_EQUAL = "<="
    IN = "IN"
    NOT_IN = "NOT IN"
    STARTS_WITH = "LIKE"
    IS_NULL = "IS NULL"
    IS_NOT_NULL = "IS NOT NULL"


@dataclass(frozen=True, slots=True)
class ColumnCondition:
    """A comparison of a column with constants."""

    column: str
    operator: Operator
    values: tuple[Any, ...] = ()
    """The constants, none of which is None: one, several for IN and NOT_IN, or none for tests of null."""

    def __str__(self) -> str:
        return " ".join([self.column, self.operator, *([self._format_values()] if self.values else [])])

    def _format_values(self) -> str:
        if self.operator is Operator.STARTS_WITH:
            return _format_value(f"{self.values[0]}%")
        texts = [_format_value(value) for value in self.values]
        return f"({', '.join(texts)})" if self.operator in (Operator.IN, Operator.NOT_IN) else texts[0]


Conjunction = tuple[ColumnCondition, ...]
"""Conditions that are all true for the rows that one reference of a statement to a view needs."""


def _format_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    return str(value) if isinstance(value, int | float) else "'" + str(value).replace("'", "''") + "'"


# Filters of Spark

_COMPARISONS: Final = {
    "EqualTo": Operator.EQUAL,
    "GreaterThan": Operator.GREATER,
    "GreaterThanOrEqual": Operator.GREATER_OR_EQUAL,
    "LessThan": Operator.LESS,
    "LessThanOrEqual": Operator.LESS_OR_EQUAL,
    "StringStartsWith": Operator.STARTS_WITH,
}

_NEGATIONS: Final = {
    Operator.EQUAL: Operator.NOT_EQUAL,
    Operator.IN: Operator.NOT_IN,
    Operator.IS_NULL: Operator.IS_NOT_NULL,
    Operator.IS_NOT_NULL: Operator.IS_NULL,
}


def convert_spark_filters(filters: Iterable[Any]) -> Conjunction:
    """Convert the filters that Spark pushes down to a Python data source; omit those without a condition here."""
    found = (convert_spark_filter(each) for each in filters)
    return tuple(each for each in found if each is not None)


def convert_spark_filter(pushed: Any) -> ColumnCondition | None:
    """Convert a filter of `pyspark.sql.datasource`, or return None if there is no such condition."""
    kind = type(pushed).__name__
    if kind == "Not":
        return _negate(pushed.child)
    attribute: tuple[str, ...] = getattr(pushed, "attribute", ())
    if len(attribute) != 1:
        return None  # statistics are those of columns, not of nested fields
    column = attribute[0]
    if kind in ("IsNull", "IsNotNull"):
        return ColumnCondition(column, Operator.IS_NULL if kind == "IsNull" else Operator.IS_NOT_NULL)
    value = getattr(pushed, "value", None)
    if kind == "EqualNullSafe":
        return (
            ColumnCondition(column, Operator.IS_NULL)
            if value is None
            else ColumnCondition(column, Operator.EQUAL, (value,))
        )
    if value is None:
        return None
    if kind == "In":
        values = tuple(each for each in value if each is not None)  # no row equals null
        return ColumnCondition(column, Operator.IN, values) if values else None
    return ColumnCondition(column, _COMPARISONS[kind], (value,)) if kind in _COMPARISONS else None


def _negate(pushed: Any) -> ColumnCondition | None:
    # NOT (column <=> value) is true for null. NOT IN with a null in the list is never true, so omitting it is safe.
    found = None if type(pushed).__name__ == "EqualNullSafe" else convert_spark_filter(pushed)
    if found is None or found.operator not in _NEGATIONS:
        return None
    return ColumnCondition(found.column, _NEGATIONS[found.operator], found.values)
