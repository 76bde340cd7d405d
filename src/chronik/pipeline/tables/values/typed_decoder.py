"""The decoder of a table's typed values: columns, `_rescued`, and the errors of dead-letter records.

Nearly all values fit the columns, which are built in bulk. A record with a value that does not fit, or that has no
column, is converted to its JSON form and decoded as JSON tables do: what does not fit is rescued. So a column's
settings apply to typed values as they do to JSON.

A record type may be nullable, as `["null", "Order"]`. Its null is a row without values, whose `_rescued` is the JSON
text `null`. This distinguishes it from an object whose fields are all null, and from a tombstone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from chronik.formats.codec import UndecodableValueError
from chronik.formats.decoded_size import check_json_size, find_size_max
from chronik.pipeline.tables.layout import RESCUED, VALUE_SCHEMA
from chronik.pipeline.tables.values.arrow_json import convert_to_json_forms
from chronik.pipeline.tables.values.column_projection import ColumnProjection, ProjectedValues
from chronik.pipeline.tables.values.exact_json import decode_exact_json
from chronik.pipeline.tables.values.field_matching import build_object_tree
from chronik.pipeline.tables.values.framed_decoder import DecodedGroup, FramedDecoder
from chronik.pipeline.tables.values.json_decoder import (
    DecodedValues,
    JsonDecoder,
    convert_default_value,
    merge_json_values,
)
from chronik.pipeline.tables.values.table_schema import (
    Column,
    InvalidValues,
    Path,
    TableSchema,
    UnknownFields,
    format_path,
)
from chronik.pipeline.tables.values.value_codecs import create_column_codec
from chronik.pipeline.tables.values.written_types import WrittenTypes, plan_written_columns

encode_form: Final = msgspec.json.Encoder(decimal_format="number").encode
"""Encode a JSON form, which may contain `msgspec.Raw`."""

NULL_VALUE: Final = b"null"
"""The JSON form of a null value of a record type, and its `_rescued`."""


class _ProjectedGroup(NamedTuple):
    """The values of a group of records as columns."""

    decoded: DecodedGroup
    projection: ColumnProjection
    values: ProjectedValues


class TypedDecoder:
    """A decoder of typed values for one version of a table's schema. Not thread-safe."""

    def __init__(
        self,
        schema: TableSchema,
        table: pa.Schema,
        partition_by: Collection[str],
        values: FramedDecoder,
    ) -> None:
        """Create a decoder for the columns of `table`, which may be some of the table's columns. See `JsonDecoder`."""
        self._schema = schema
        self._table = table
        self._values = values
        self._columns = schema.resolve_columns(table)
        self._tree = build_object_tree(self._columns)
        self._has_rescued = RESCUED in table.names
        self._drops_unknown = schema.unknown_fields is UnknownFields.DROP or not self._has_rescued
        self._not_empty = [index for index, each in enumerate(self._columns) if each.name in partition_by]
        self._defaults = {
            index: _build_default_array(column)
            for index, column in enumerate(self._columns)
            if column.default is not None
        }
        self._required = [index for index, column in enumerate(self._columns) if column.required]
        self._json = JsonDecoder(schema, table, partition_by, is_typed=True)
        self._projections: dict[str, ColumnProjection] = {}
        self._missing: dict[str, pa.Field] = {}
        """Types with fields for which columns must be added."""
        self.stops_at_new_types = False
        """Whether values are not decoded completely if columns must be added, because they are decoded again then."""

    # Decoding

    def decode(self, values: pa.BinaryArray, headers: pa.ListArray | None = None) -> DecodedValues:
        """Decode a batch of values into columns. Null is a tombstone, for which all columns are null.

        Raises:
            RegistryUnavailableError, RegistryRequestError, ConfigError: See `FramedDecoder.decode`.
        """
        errors: dict[int, str] = {}
        groups: list[_ProjectedGroup] = []
        written = WrittenTypes()
        for decoded in self._values.decode(values, headers, errors):
            if decoded.schema in self._missing or self._lacks_columns(decoded):
                written.values[decoded.schema.zfill(12)] = decoded.written
            projection = self._get_projection(decoded)
            groups.append(_ProjectedGroup(decoded, projection, self._project(decoded, projection)))
        is_decoded_again = bool(written) and self.stops_at_new_types
        slow = _SlowRows() if is_decoded_again else self._decode_slow_rows(values, groups, errors)
        return self._assemble(len(values), groups, slow, errors, written)

    def _lacks_columns(self, decoded: DecodedGroup) -> bool:
        """Return whether columns must be added for fields of a type that is seen for the first time."""
        if decoded.schema in self._projections or not self._has_rescued:
            return False
        types = WrittenTypes({decoded.schema: decoded.written})
        is_lacking = bool(plan_written_columns(self._schema, self._table, types).added)
        if is_lacking:
            self._missing[decoded.schema] = decoded.written
        return is_lacking

    def _get_projection(self, decoded: DecodedGroup) -> ColumnProjection:
        projection = self._projections.get(decoded.schema)
        if projection is None:
            projection = self._projections[decoded.schema] = ColumnProjection(
                decoded.written, self._columns, self._tree, drops_unknown=self._drops_unknown
            )
        return projection

    def _project(self, decoded: DecodedGroup, projection: ColumnProjection) -> ProjectedValues:
        projected = projection.project(decoded.column.array)
        misfits = projected.misfits
        for index, default in self._defaults.items():
            if projected.arrays[index].null_count:
                projected.arrays[index] = _fill_nulls(projected.arrays[index], default)
        for index in self._required:
            if projected.arrays[index].null_count:
                misfits |= projected.arrays[index].is_null().to_numpy(zero_copy_only=False)
        for index in self._not_empty:
            if pa.types.is_string(projected.arrays[index].type):
                is_empty = pc.fill_null(pc.equal(projected.arrays[index], ""), False)
                misfits |= is_empty.to_numpy(zero_copy_only=False)
        if not projection.is_single_value and decoded.column.array.null_count:
            misfits |= decoded.column.array.is_null().to_numpy(zero_copy_only=False)
        if decoded.column.leftovers:
            misfits[list(decoded.column.leftovers)] = True
        if decoded.column.errors:
            misfits[list(decoded.column.errors)] = False
        return projected

    # Slow path

    def _decode_slow_rows(
        self, values: pa.BinaryArray, groups: list[_ProjectedGroup], errors: dict[int, str]
    ) -> _SlowRows:
        """Decode records again, by their JSON forms, that have values that do not fit or have no column."""
        slow = _SlowRows()
        for group in groups:
            positions = np.flatnonzero(group.values.misfits)
            if len(positions):
                rows = group.decoded.rows[positions].tolist()
                for row, form in zip(rows, self._build_forms(group, positions), strict=True):
                    try:
                        check_json_size(form, find_size_max(len(values[row].as_buffer())))
                    except UndecodableValueError as error:
                        errors[row] = str(error)
                        continue
                    slow.add(row, form, {} if form is None else self._separate_lost_values(group.projection, form))
        if not slow.rows:
            return slow
        decoded = self.decode_forms([encode_form(form) for form in slow.forms])
        errors.update({slow.rows[index]: message for index, message in decoded.errors.items()})
        slow.misfits = decoded.misfits
        slow.rows = [row for index, row in enumerate(slow.rows) if index not in decoded.errors]
        slow.columns = decoded.columns
        self._rescue_lost_values(slow, errors)
        return slow

    def decode_forms(self, forms: Sequence[bytes | None]) -> DecodedValues:
        """Decode the encoded JSON objects of records, with the keys of the columns' paths, or `null`."""
        nulls = {row for row, form in enumerate(forms) if form == NULL_VALUE}
        if not nulls:
            return self._json.decode(forms)
        decoded = self._json.decode([b"{}" if row in nulls else form for row, form in enumerate(forms)])
        if self._has_rescued:
            kept = (row for row in range(len(forms)) if row not in decoded.errors)
            texts = zip(kept, decoded.columns[RESCUED].to_pylist(), strict=True)
            decoded.columns[RESCUED] = pa.array(
                [NULL_VALUE.decode() if row in nulls else text for row, text in texts], pa.string()
            )
        return decoded

    def _build_forms(self, group: _ProjectedGroup, positions: npt.NDArray[np.int64]) -> list[dict[str, Any] | None]:
        """Return the JSON objects of records, with the keys of the columns' paths; None for a value that is null."""
        column, projection = group.decoded.column, group.projection
        taken = column.array.take(pa.array(positions))
        forms = self._merge_leftovers(group, positions, convert_to_json_forms(taken, group.decoded.written))
        return [projection.rename(form) for form in forms]

    def _separate_lost_values(self, projection: ColumnProjection, form: dict[str, Any]) -> dict[int, Any]:
        """Remove the values from a form that their columns cannot store, and return them by index of the column."""
        lost: dict[int, Any] = {}
        for index, separate in projection.separations.items():
            node: Any = form
            *parents, key = self._columns[index].path
            for each in parents:
                node = node.get(each) if isinstance(node, dict) else None
            if isinstance(node, dict) and node.get(key) is not None:
                node[key], rest = separate(node[key])
                if rest is not None:
                    lost[index] = rest
        return lost

    def _merge_leftovers(self, group: _ProjectedGroup, positions: npt.NDArray[np.int64], forms: list[Any]) -> list[Any]:
        leftovers = group.decoded.column.leftovers
        if not leftovers:
            return forms
        return [
            merge_json_values(form, leftovers[position]) if position in leftovers else form
            for position, form in zip(positions.tolist(), forms, strict=True)
        ]

    def _rescue_lost_values(self, slow: _SlowRows, errors: dict[int, str]) -> None:
        """Rescue the values that were removed from the forms."""
        if not slow.lost:
            return
        texts: list[str | None] = slow.columns[RESCUED].to_pylist() if self._has_rescued else [None] * len(slow.rows)
        for position, row in enumerate(slow.rows):
            for index, original in slow.lost.get(row, {}).items():
                column = self._columns[index]
                if self._schema.get_invalid_values_policy(column) is InvalidValues.DEAD_LETTER:
                    errors[row] = f"column {column.name}: {format_path(column.path)} has another type"
                slow.misfits[column.name] += 1
                text = texts[position]
                rescued = {} if text is None else decode_exact_json(text.encode())
                texts[position] = encode_form(merge_json_values(rescued, _nest(column.path, original))).decode()
        if self._has_rescued:
            slow.columns[RESCUED] = pa.array(texts, pa.string())

    # Result

    def _assemble(
        self,
        count: int,
        groups: list[_ProjectedGroup],
        slow: _SlowRows,
        errors: dict[int, str],
        written: WrittenTypes,
    ) -> DecodedValues:
        names = [column.name for column in self._columns]
        is_plain = len(groups) == 1 and len(groups[0].decoded.rows) == count and not slow.rows and not errors
        if is_plain:
            columns = dict(zip(names, groups[0].values.arrays, strict=True))
            schemas = pa.repeat(pa.scalar(groups[0].decoded.schema, pa.string()), count)
            rescued = pa.nulls(count, pa.string())
        else:
            positions, sources = self._locate_rows(count, groups, slow)
            kept = np.array([row not in errors for row in range(count)], bool) if errors else np.ones(count, bool)
            indices = pa.array(positions[kept])
            columns = {
                column.name: _concat_and_take(
                    [*(group.values.arrays[index] for group in groups), slow.get(column.name)],
                    indices,
                    column.data_type,
                )
                for index, column in enumerate(self._columns)
            }
            rescued = None
            if self._has_rescued:
                total = sum(len(group.decoded.rows) for group in groups)
                rescued = _concat_and_take([pa.nulls(total, pa.string()), slow.get(RESCUED)], indices, pa.string())
            group_names = pa.array([*(group.decoded.schema for group in groups), None], pa.string())
            schemas = group_names.take(pa.array(sources[kept]))
        if self._has_rescued:
            columns[RESCUED] = rescued
        if VALUE_SCHEMA in self._table.names:
            columns[VALUE_SCHEMA] = schemas
        return DecodedValues(columns, dict(sorted(errors.items())), [], slow.misfits, written)

    def _locate_rows(
        self, count: int, groups: list[_ProjectedGroup], slow: _SlowRows
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the position of each row in the concatenated columns, and the group of each row.

        The columns are those of the groups, then those of slow rows, then a null for tombstones.
        """
        total = sum(len(group.decoded.rows) for group in groups)
        positions = np.full(count, total + len(slow.rows), np.int64)
        sources = np.full(count, len(groups), np.int64)
        start = 0
        for number, group in enumerate(groups):
            rows = group.decoded.rows
            positions[rows] = start + np.arange(len(rows))
            sources[rows] = number
            start += len(rows)
        positions[slow.rows] = total + np.arange(len(slow.rows))
        return positions, sources

    # Records

    def iter_forms(self, values: pa.BinaryArray, headers: pa.ListArray | None) -> Iterator[dict[str, Any] | None]:
        """Yield the JSON object of each value, with the keys of the columns' paths.

        Yield None for a value that is null or cannot be decoded.
        """
        errors: dict[int, str] = {}
        forms: dict[int, dict[str, Any] | None] = {}
        for decoded in self._values.decode(values, headers, errors):
            projection = self._get_projection(decoded)
            group = _ProjectedGroup(decoded, projection, projection.project(decoded.column.array))
            built = self._build_forms(group, np.arange(len(decoded.rows)))
            for row, form in zip(decoded.rows.tolist(), built, strict=True):
                forms[row] = form
        for row in range(len(values)):
            yield None if row in errors else forms.get(row, {})

    def collect_types(self, values: pa.BinaryArray, headers: pa.ListArray | None) -> WrittenTypes:
        """Return the types of values, ignoring those that cannot be decoded."""
        found = WrittenTypes()
        for decoded in self._values.decode(values, headers, {}):
            found.values[decoded.schema.zfill(12)] = decoded.written
        return found


class _SlowRows:
    """Records that are decoded by their JSON forms, and the result."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.forms: list[dict[str, Any] | None] = []
        self.lost: dict[int, dict[int, Any]] = {}
        """Values that the forms do not contain because columns cannot store them, by row and index of the column."""
        self.columns: dict[str, pa.Array] = {}
        self.misfits: Counter[str] = Counter()

    def add(self, row: int, form: dict[str, Any] | None, lost: dict[int, Any]) -> None:
        self.rows.append(row)
        self.forms.append(form)
        if lost:
            self.lost[row] = lost

    def get(self, name: str) -> pa.Array | None:
        """Return a column of the rows, or None if there are none."""
        return self.columns.get(name)


def _concat_and_take(arrays: list[pa.Array | None], indices: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Return elements of concatenated arrays, after which there is a null."""
    present = [each for each in arrays if each is not None]
    return pa.concat_arrays([*present, pa.nulls(1, data_type)]).take(indices)


def _build_default_array(column: Column) -> pa.Array:
    codec = create_column_codec(column)
    return codec.build([convert_default_value(column, codec)]).array


def _fill_nulls(array: pa.Array, default: pa.Array) -> pa.Array:
    """Replace nulls by a value of any type."""
    is_null = array.is_null().to_numpy(zero_copy_only=False)
    indices = np.where(is_null, len(array), np.arange(len(array)))
    return pa.concat_arrays([array, default]).take(pa.array(indices))


def _nest(path: Path, value: Any) -> dict[str, Any]:
    """Return an object with a value at a path."""
    for key in reversed(path):
        value = {key: value}
    nested: dict[str, Any] = value
    return nested
