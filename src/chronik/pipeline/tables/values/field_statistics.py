"""Statistics of the JSON types of fields, and the column types that they suggest.

Statistics of several tasks can be merged. A type that at least 95 % of a field's values have is chosen, and other
values are rescued; a field without such a type becomes JSON text.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa

from chronik.pipeline.tables.values.column_names import choose_column_name, with_json_key
from chronik.pipeline.tables.values.exact_json import parse_exact_float
from chronik.pipeline.tables.values.sql_types import JSON_FORMAT, SqlType
from chronik.pipeline.tables.values.table_schema import Path, is_parsable_key
from chronik.pipeline.tables.values.value_codecs import EXACT_IN_FLOAT_MAX, ISO_STYLES
from chronik.pipeline.tables.values.written_types import WrittenTypes

MAJORITY: Final = 0.95
"""Fraction of a JSON field's values that must have the same type for the column to get this type."""

DEPTH_MAX: Final = 16
"""Maximum nesting depth of inferred column types. Deeper values are stored as JSON text, since few readers can unnest
them."""

FIELDS_MAX: Final = 2000
"""Maximum number of fields of an object with statistics. An object with more fields uses its keys as data."""

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
INT64_CHARACTERS_MAX: Final = len(str(INT64_MIN))


class DetectedType(StrEnum):
    """A type that can be detected in JSON strings, if requested, such as timestamps or numbers."""

    TIMESTAMP = "timestamp"
    DATE = "date"
    NUMBER = "number"


_DETECTED: Final = {
    DetectedType.TIMESTAMP: re.compile(
        r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d(:?\d\d)?)?", re.ASCII
    ),
    DetectedType.DATE: re.compile(r"\d{4}-\d\d-\d\d", re.ASCII),
    DetectedType.NUMBER: re.compile(r"-?(0|[1-9]\d*)(\.\d+)?", re.ASCII),
}


DEFAULT_STYLE: Final = "iso8601"
_STYLE_PATTERNS: Final = {
    name: re.compile(style.pattern + re.escape(style.offset), re.ASCII) for name, style in ISO_STYLES.items()
}


@dataclass(slots=True)
class FieldStatistics:
    """The number of a JSON field's values of each JSON type, not counting null."""

    booleans: int = 0
    integers: int = 0
    floats: int = 0
    strings: int = 0
    lists: int = 0
    objects: int = 0
    inexact_numbers: int = 0
    """Number of integers beyond 64 bits, and of other numbers that float64 would round."""
    too_deep: int = 0
    """Number of lists and objects that are nested too deep for a column type."""
    large_integers: int = 0
    """Number of the 64-bit integers that float64 would round."""
    fields: dict[str, FieldStatistics] = field(default_factory=dict)
    """Statistics of the nested fields, for values that are objects."""
    element: FieldStatistics | None = None
    """Statistics of the elements, for values that are lists."""
    detected: dict[DetectedType, int] = field(default_factory=dict)
    """Number of strings that match the format of each detectable type."""
    integer_texts: int = 0
    """Number of the numeric strings that are 64-bit integers."""
    large_integer_texts: int = 0
    """Number of these integers that float64 would round."""
    timestamp_styles: dict[str, int] = field(default_factory=dict)
    """Number of timestamp strings that are written exactly in each ISO 8601 format."""
    written_types: WrittenTypes | None = None
    """Types of the writers of whole records with typed keys or values; None if there are none."""
    json_keys: FieldStatistics | None = None
    """Statistics of the JSON keys of whole records; None if there are none."""

    def add_json_key(self, value: Any) -> None:
        """Count the JSON key of a record, or the part of it that the table's column lacks."""
        if self.json_keys is None:
            self.json_keys = FieldStatistics()
        self.json_keys.add(value)

    def add_written_types(self, types: WrittenTypes) -> None:
        """Add the types of writers."""
        if types:
            if self.written_types is None:
                self.written_types = WrittenTypes()
            self.written_types.merge(types)

    @property
    def total(self) -> int:
        numbers = self.integers + self.floats + self.inexact_numbers
        return self.booleans + numbers + self.strings + self.lists + self.objects + self.too_deep

    def add(self, value: Any, depth: int = DEPTH_MAX) -> None:
        """Count a value as the general JSON parser returns it."""
        kind = type(value)
        if value is None:
            return
        if kind is bool:
            self.booleans += 1
        elif kind is int and INT64_MIN <= value <= INT64_MAX:
            self.integers += 1
            if not -EXACT_IN_FLOAT_MAX <= value <= EXACT_IN_FLOAT_MAX:
                self.large_integers += not _is_exact_in_float(str(value))
        elif kind is float:
            self.floats += 1
        elif kind is str:
            self._add_string(value)
        elif kind is list and depth > 0:
            self.lists += 1
            if value and self.element is None:
                self.element = FieldStatistics()
            for each in value:
                assert self.element is not None
                self.element.add(each, depth - 1)
        elif kind is dict and depth > 0:
            self.objects += 1
            for name, each in value.items():
                self._field(name).add(each, depth - 1)
        elif kind is list or kind is dict:
            self.too_deep += 1
        else:
            self.inexact_numbers += 1

    def _add_string(self, value: str) -> None:
        self.strings += 1
        for detected, pattern in _DETECTED.items():
            if pattern.fullmatch(value) and (detected is not DetectedType.NUMBER or self._count_number_text(value)):
                self.detected[detected] = self.detected.get(detected, 0) + 1
                if detected is DetectedType.TIMESTAMP:
                    self._count_timestamp_styles(value)

    def _count_number_text(self, value: str) -> bool:
        """Count a string that is a number, and return whether a number type can store it exactly."""
        is_integer, is_exact = _is_int64(value), _is_exact_in_float(value)
        self.integer_texts += is_integer
        self.large_integer_texts += is_integer and not is_exact
        return is_integer or is_exact

    def _count_timestamp_styles(self, value: str) -> None:
        for style, pattern in _STYLE_PATTERNS.items():
            if pattern.fullmatch(value):
                self.timestamp_styles[style] = self.timestamp_styles.get(style, 0) + 1

    def add_nested_value(self, path: Path, value: Any) -> None:
        """Count a value of a nested field, and the objects that contain it."""
        node = self
        for key in path:
            node.objects += 1
            node = node._field(key)
        node.add(value, DEPTH_MAX - len(path) + 1)

    def _field(self, name: str) -> FieldStatistics:
        found = self.fields.get(name)
        if found is None:
            found = FieldStatistics()
            if len(self.fields) < FIELDS_MAX:
                self.fields[name] = found
        return found

    def merge(self, other: FieldStatistics) -> None:
        """Add the counts of another set of statistics for the same field."""
        for name in _COUNTERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for key, each in other.fields.items():
            self._field(key).merge(each)
        if other.element is not None:
            if self.element is None:
                self.element = FieldStatistics()
            self.element.merge(other.element)
        for detected, count in other.detected.items():
            self.detected[detected] = self.detected.get(detected, 0) + count
        for style, count in other.timestamp_styles.items():
            self.timestamp_styles[style] = self.timestamp_styles.get(style, 0) + count
        if other.written_types is not None:
            self.add_written_types(other.written_types)
        if other.json_keys is not None:
            if self.json_keys is None:
                self.json_keys = FieldStatistics()
            self.json_keys.merge(other.json_keys)

    @property
    def is_empty(self) -> bool:
        """Whether there are no fields and no keys."""
        return not self.fields and self.written_types is None and self.json_keys is None

    def choose_type(self, detect: Iterable[DetectedType] = ()) -> SqlType | None:
        """Choose a column type from the counts of the field's values.

        None means that no type is known: there were only nulls, empty lists and objects, and values nested too deep.
        `detect` are the types to detect in strings.
        """
        total = self.total
        if total == self.too_deep:
            return None
        enough = MAJORITY * total
        if self.booleans >= enough:
            return SqlType(pa.bool_())
        number = _choose_number_type(self.integers, self.floats, self.large_integers, enough)
        if number is not None:
            return SqlType(number)
        if self.strings >= enough:
            return self._choose_string_type(detect)
        if self.objects >= enough:
            return self._choose_struct_type(detect)
        if self.lists >= enough:
            return self._choose_list_type(detect)
        return SqlType(pa.string(), JSON_FORMAT)

    def _choose_string_type(self, detect: Iterable[DetectedType]) -> SqlType:
        wanted, enough = set(detect), MAJORITY * self.strings
        if DetectedType.TIMESTAMP in wanted and self.detected.get(DetectedType.TIMESTAMP, 0) >= enough:
            return SqlType(pa.timestamp("us", tz="UTC"), self._choose_timestamp_format())
        if DetectedType.DATE in wanted and self.detected.get(DetectedType.DATE, 0) >= enough:
            return SqlType(pa.date32())
        if DetectedType.NUMBER in wanted:
            floats = self.detected.get(DetectedType.NUMBER, 0) - self.integer_texts
            number = _choose_number_type(self.integer_texts, floats, self.large_integer_texts, enough)
            if number is not None:
                return SqlType(number, "string")
        return SqlType(pa.string())

    def _choose_timestamp_format(self) -> str | None:
        """Return the timestamp format that matches the most strings exactly, or None for the default format."""
        default = self.timestamp_styles.get(DEFAULT_STYLE, 0)
        style, count = max(self.timestamp_styles.items(), key=lambda item: item[1], default=(DEFAULT_STYLE, default))
        return style if count > default else None

    def _choose_list_type(self, detect: Iterable[DetectedType]) -> SqlType | None:
        element = None if self.element is None else self.element._choose_nested_type(detect)
        return None if element is None else SqlType(pa.list_(element.to_field("element")))

    def _choose_nested_type(self, detect: Iterable[DetectedType]) -> SqlType | None:
        """Choose the type of a nested field, which unlike a column has no format except JSON text."""
        chosen = self.choose_type(set(detect) - {DetectedType.NUMBER})
        return chosen if chosen is None or chosen.format == JSON_FORMAT else SqlType(chosen.data_type)

    def _choose_struct_type(self, detect: Iterable[DetectedType]) -> SqlType | None:
        fields: list[pa.Field] = []
        for source, each in self.fields.items():
            chosen = each._choose_nested_type(detect)
            if chosen is not None and is_parsable_key(source):
                name = choose_column_name(source, [known.name for known in fields], frozenset())
                fields.append(with_json_key(chosen.to_field(name), source))
        return SqlType(pa.struct(fields)) if fields else None


_COUNTERS: Final = tuple(each.name for each in dataclasses.fields(FieldStatistics) if each.type == "int")


def _choose_number_type(integers: int, floats: int, large_integers: int, enough: float) -> pa.DataType | None:
    """Return the type that stores enough of the numbers exactly, or None. `large_integers` need the integer type."""
    if floats and integers + floats - large_integers >= enough:
        return pa.float64()
    return pa.int64() if integers >= enough else None


def _is_exact_in_float(text: str) -> bool:
    return type(parse_exact_float(text)) is float


def _is_int64(text: str) -> bool:
    # Python does not convert numbers with thousands of digits.
    return len(text) <= INT64_CHARACTERS_MAX and "." not in text and INT64_MIN <= int(text) <= INT64_MAX


def merge_statistics(found: Iterable[FieldStatistics]) -> FieldStatistics:
    """Return the sum of statistics of the same field."""
    merged = FieldStatistics()
    for each in found:
        merged.merge(each)
    return merged
