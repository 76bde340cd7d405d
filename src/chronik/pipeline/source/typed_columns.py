"""Decoding of keys and values of the source into typed columns.

A record is decoded with the schema of its writer, and its fields are matched with those of the column: by number
(Protobuf), by name, or by alias. Fields that the writer's schema does not have get the default value of the column's
schema, or null. Fields that the column does not have are dropped. No value is rounded or truncated.

In mode PERMISSIVE, the columns `valueError` and `valueRescued` (for keys, `keyError` and `keyRescued`) report what the
column `value` does not contain:

| record                                                 | value       | valueError | valueRescued                   |
|--------------------------------------------------------|-------------|------------|--------------------------------|
| is decoded completely, or is null                      | the value   | null       | null                           |
| cannot be decoded: names no schema, or does not match  | null        | the reason | null                           |
| has fields that do not fit the types of the column     | null there  | null       | these fields, as a JSON object |

In mode FAILFAST, the last two fail the query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from chronik.escaping import truncate_text
from chronik.formats.codec import DEFAULT_KEY, JsonForm, UndecodableValueError
from chronik.formats.decoded_size import check_json_size, decode_in_parts, find_size_max
from chronik.pipeline.records.columns import RecordColumns
from chronik.pipeline.source.offset_ranges import OffsetRange
from chronik.pipeline.source.typed_options import (
    ERROR_SUFFIX,
    KEY,
    RESCUED_SUFFIX,
    TypedColumn,
    TypedColumns,
)
from chronik.pipeline.tables.values.arrow_json import convert_to_json_forms
from chronik.pipeline.tables.values.column_projection import (
    Convert,
    Rename,
    compile_conversion,
    compile_renaming,
)
from chronik.pipeline.tables.values.exact_json import decode_exact_json
from chronik.pipeline.tables.values.field_matching import list_nested_identities, match_fields
from chronik.pipeline.tables.values.framed_decoder import DecodedGroup, FramedDecoder
from chronik.pipeline.tables.values.json_decoder import merge_json_values
from chronik.pipeline.tables.values.value_codecs import TYPED_OPTIONS as TYPED_CODECS
from chronik.pipeline.tables.values.value_codecs import create_field_codec
from chronik.pipeline.tables.values.written_types import get_message_name

SHOWN_CHARACTERS_MAX: Final = 500
"""Maximum characters of a value in an error message."""

Int64s = npt.NDArray[np.int64]

_encode: Final = msgspec.json.Encoder(decimal_format="number").encode


class _Resolution(NamedTuple):
    """The resolution of values of a writer's type to the type of the column."""

    convert: Convert
    add_defaults: Callable[[pa.Array], pa.Array] | None
    rename: Rename | None
    problem: str | None
    """Reason why no value of the writer's type can be a value of the column."""


class _ResolvedValues(NamedTuple):
    """The values of a column, with what it does not contain."""

    array: pa.Array
    errors: dict[int, str]
    rescued: dict[int, bytes]


class TypedColumnReader:
    """A reader of one typed column. Not thread-safe."""

    def __init__(self, column: TypedColumn) -> None:
        self._name = column.name
        self._target = column.arrow_field
        self._values = FramedDecoder(column.format, column.writer_schema, column.registry, is_key=column.name == KEY)
        self._resolutions: dict[str, _Resolution] = {}

    def read(self, values: pa.BinaryArray, headers: pa.ListArray | None) -> _ResolvedValues:
        """Decode values, of which those that are null stay null.

        Raises:
            RegistryUnavailableError, RegistryRequestError, ConfigError: See `FramedDecoder.decode`.
        """
        errors: dict[int, str] = {}
        rescued: dict[int, bytes] = {}
        arrays: list[pa.Array] = []
        order = np.full(len(values), -1, np.int64)
        start = 0
        for group in self._values.decode(values, headers, errors):
            resolution = self._get_resolution(group)
            if resolution.problem is not None:
                errors.update((row, resolution.problem) for row in group.rows.tolist() if row not in errors)
                continue
            arrays.append(self._resolve(values, group, resolution, rescued, errors))
            order[group.rows] = start + np.arange(len(group.rows))
            start += len(group.rows)
        if len(arrays) == 1 and start == len(values):
            return _ResolvedValues(arrays[0], errors, rescued)
        order[order < 0] = start
        array = pa.concat_arrays([*arrays, pa.nulls(1, self._target.type)]).take(pa.array(order))
        return _ResolvedValues(array, errors, rescued)

    def _get_resolution(self, group: DecodedGroup) -> _Resolution:
        found = self._resolutions.get(group.schema)
        if found is None:
            found = self._resolutions[group.schema] = self._compile_resolution(group.written)
        return found

    def _compile_resolution(self, written: pa.Field) -> _Resolution:
        names = get_message_name(written), get_message_name(self._target)
        is_other_message = names[0] != names[1] and None not in names
        return _Resolution(
            compile_conversion(written, self._target, drops_unknown=True, converts_text=True),
            compile_defaults(written, self._target),
            compile_renaming(written, self._target),
            f"the message type is {names[0]}, expected {names[1]}" if is_other_message else None,
        )

    def _resolve(
        self,
        values: pa.BinaryArray,
        group: DecodedGroup,
        resolution: _Resolution,
        rescued: dict[int, bytes],
        errors: dict[int, str],
    ) -> pa.Array:
        converted = resolution.convert(group.column.array)
        is_incomplete = np.zeros(len(group.rows), np.bool_) if converted.misfits is None else converted.misfits.copy()
        is_incomplete[list(group.column.leftovers)] = True
        is_incomplete[list(group.column.errors)] = False
        incomplete = np.flatnonzero(is_incomplete)
        if len(incomplete):
            for row, lost in self._find_lost_parts(group, resolution, converted.array, incomplete):
                try:
                    check_json_size(lost, find_size_max(len(values[row].as_buffer())))
                    rescued[row] = _encode(lost)
                except UndecodableValueError as error:
                    errors[row] = str(error)
        return converted.array if resolution.add_defaults is None else resolution.add_defaults(converted.array)

    def _find_lost_parts(
        self, group: DecodedGroup, resolution: _Resolution, converted: pa.Array, incomplete: Int64s
    ) -> Iterator[tuple[int, JsonForm]]:
        """Yield the rows of incomplete values, with the parts that the column does not contain."""
        taken = pa.array(incomplete)
        written = convert_to_json_forms(group.column.array.take(taken), group.written)
        stored = convert_to_json_forms(converted.take(taken), self._target)
        for index, form, kept in zip(incomplete.tolist(), written, stored, strict=True):
            if index in group.column.leftovers:
                form = merge_json_values(form, group.column.leftovers[index])
            form = form if resolution.rename is None else resolution.rename(form)
            lost = _find_lost(form, kept, self._target.type)
            if lost is not None:
                yield int(group.rows[index]), lost


def _find_lost(form: JsonForm, kept: JsonForm, target: pa.DataType) -> JsonForm:
    """Return the part of a JSON form that is missing in another one; None if there is none."""
    if isinstance(form, msgspec.Raw):
        return None if isinstance(kept, msgspec.Raw) and bytes(form) == bytes(kept) else form
    if not isinstance(form, dict) or not isinstance(kept, dict):
        return None if form == kept else form
    if pa.types.is_struct(target):
        types = {field.name: field.type for field in target}
    elif pa.types.is_map(target):
        types = dict.fromkeys(form, target.item_type)
    else:
        return form
    lost = {name: _find_lost(form[name], kept.get(name), type_) for name, type_ in types.items() if name in form}
    return {name: value for name, value in lost.items() if value is not None} or None


def compile_defaults(written: pa.Field, target: pa.Field) -> Callable[[pa.Array], pa.Array] | None:
    """Return a function that fills in the default values of fields that the writer's type does not have.

    It gets values of the column's type. The result is None if no field has to be filled in.
    """
    source_type, target_type, is_a = written.type, target.type, pa.types
    if is_a.is_struct(source_type) and is_a.is_struct(target_type):
        return _compile_struct_defaults(source_type, target_type)
    if is_a.is_list(source_type) and is_a.is_list(target_type):
        fill = compile_defaults(source_type.value_field, target_type.value_field)
        return None if fill is None else partial(_replace_values, fill)
    if is_a.is_map(source_type) and is_a.is_map(target_type):
        fill = compile_defaults(source_type.item_field, target_type.item_field)
        return None if fill is None else partial(_replace_items, fill)
    return None


def _compile_struct_defaults(source: pa.StructType, target: pa.StructType) -> Callable[[pa.Array], pa.Array] | None:
    written = list(source)
    steps: dict[int, Callable[[pa.Array], pa.Array]] = {}
    for position, index in enumerate(match_fields(list_nested_identities(target), written)):
        field = target.field(position)
        step = _compile_constant(field) if index is None else compile_defaults(written[index], field)
        if step is not None:
            steps[position] = step
    if not steps:
        return None

    def fill(array: pa.StructArray) -> pa.StructArray:
        children = [array.field(position) for position in range(target.num_fields)]
        for position, step in steps.items():
            children[position] = step(children[position])
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(target), mask=mask)

    return fill


def _compile_constant(field: pa.Field) -> Callable[[pa.Array], pa.Array] | None:
    """Return a function that returns the default value of a field for each element; None if it has no default."""
    text = (field.metadata or {}).get(DEFAULT_KEY)
    default = None if text is None else decode_exact_json(text)
    if default is None:
        return None
    codec = create_field_codec(field, TYPED_CODECS)
    scalar: Any = codec.build([codec.adapt(default).value]).array
    return lambda array: scalar.take(pa.array(np.zeros(len(array), np.int64)))


def _replace_values(fill: Callable[[pa.Array], pa.Array], array: pa.ListArray) -> pa.ListArray:
    mask = array.is_null() if array.null_count else None
    offsets, start, end = _get_offsets(array)
    values = fill(array.values.slice(start, end - start))
    return pa.ListArray.from_arrays(offsets, values, type=array.type, mask=mask)


def _replace_items(fill: Callable[[pa.Array], pa.Array], array: pa.MapArray) -> pa.MapArray:
    offsets, start, end = _get_offsets(array)
    if array.null_count:
        nulls = np.append(array.is_null().to_numpy(zero_copy_only=False), False)
        offsets = pa.array(offsets.to_numpy(), mask=nulls)
    items = fill(array.items.slice(start, end - start))
    return pa.MapArray.from_arrays(offsets, array.keys.slice(start, end - start), items, type=array.type)


def _get_offsets(array: Any) -> tuple[pa.Array, int, int]:
    """Return the offsets of lists or maps from 0 on, and the range of the elements to which they refer."""
    offsets = array.offsets.to_numpy()
    return pa.array((offsets - offsets[0]).astype(np.int32)), int(offsets[0]), int(offsets[-1])


class TypedRecordReader:
    """A reader of the typed columns of a query. Not thread-safe."""

    def __init__(self, typed: TypedColumns) -> None:
        self._readers = {column.name: TypedColumnReader(column) for column in typed.columns}
        self._fails_fast = typed.fails_fast

    def read_in_parts(
        self, target: OffsetRange, records: RecordColumns
    ) -> Iterator[tuple[RecordColumns, dict[str, pa.Array]]]:
        """Yield records with their typed columns, in parts if the values are large together. See `read`."""

        def read(start: int, count: int) -> tuple[RecordColumns, dict[str, pa.Array]]:
            part = records.slice(start, count)
            return part, self.read(target, part)

        return decode_in_parts(read, 0, len(records))

    def read(self, target: OffsetRange, records: RecordColumns) -> dict[str, pa.Array]:
        """Return the typed columns of records, and the columns that report what they do not contain.

        Raises:
            UndecodableValueError: A record cannot be decoded completely in mode FAILFAST.
            RegistryUnavailableError, RegistryRequestError, ConfigError, ColumnTooLargeError: See
                `FramedDecoder.decode`.
        """
        found: dict[str, pa.Array] = {}
        for name, reader in self._readers.items():
            values = records.key if name == KEY else records.value
            if values is None:  # not selected
                continue
            resolved = reader.read(values, records.headers)
            if self._fails_fast:
                _raise_first_problem(target, records, name, resolved)
            found[name] = resolved.array
            found[name + ERROR_SUFFIX] = _build_texts(len(records), resolved.errors)
            texts = {row: text.decode() for row, text in resolved.rescued.items()}
            found[name + RESCUED_SUFFIX] = _build_texts(len(records), texts)
        return found


def _raise_first_problem(target: OffsetRange, records: RecordColumns, name: str, resolved: _ResolvedValues) -> None:
    rows = resolved.rescued.keys() | resolved.errors.keys()
    if not rows:
        return
    row = min(rows)
    problem = resolved.errors.get(row)
    if problem is None:
        text = truncate_text(resolved.rescued[row].decode(), SHOWN_CHARACTERS_MAX)
        problem = f"it does not fit the column: {text}"
    raise UndecodableValueError(
        f"{target.topic_partition} offset {records.offset[row]}: the {name} cannot be decoded: {problem};"
        " set mode = PERMISSIVE to read such records as null"
    )


def _build_texts(count: int, texts: dict[int, str]) -> pa.StringArray:
    """Return an array that is null except for the given elements."""
    if not texts:
        return pa.nulls(count, pa.string())
    rows = np.full(count, len(texts), np.int64)
    rows[list(texts)] = np.arange(len(texts))
    return pa.array([*texts.values(), None], pa.string()).take(pa.array(rows))
