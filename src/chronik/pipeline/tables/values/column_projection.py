"""Projection of decoded values onto the columns of a table, in bulk.

A projection is compiled for one type of a writer and one version of a table. Values that do not fit their column are
null in the result, and their rows are reported. No value is rounded or truncated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from chronik.formats.codec import JsonForm
from chronik.pipeline.tables.values.column_names import get_json_key
from chronik.pipeline.tables.values.field_matching import (
    ObjectNode,
    choose_field_key,
    list_nested_identities,
    match_fields,
)
from chronik.pipeline.tables.values.sql_types import JSON_FORMAT, get_json_format
from chronik.pipeline.tables.values.table_schema import Column
from chronik.pipeline.tables.values.written_types import SINGLE_VALUE, get_message_name, list_written_fields

Mask = npt.NDArray[np.bool_]

DECIMAL_DIGITS_OF_INT64: Final = 19
INTEGER_MAX: Final = 2**63


class Converted(NamedTuple):
    """An array converted to a column's type."""

    array: pa.Array
    misfits: Mask | None = None
    """Whether each value is lost in part or as a whole; None if none is."""


Convert = Callable[[pa.Array], Converted]
Rename = Callable[[JsonForm], JsonForm]
Separate = Callable[[JsonForm], tuple[JsonForm, JsonForm]]


# Conversion of types


def compile_conversion(
    written: pa.Field, target: pa.Field, *, drops_unknown: bool = False, converts_text: bool = False
) -> Convert:
    """Return a function that converts arrays of a writer's type to a column's type.

    With `converts_text`, strings are converted to bytes and back, as Avro's readers do. Tables cannot do that, because
    their rows would not restore the value.
    """
    options = {"drops_unknown": drops_unknown, "converts_text": converts_text}
    if _is_same(written, target):
        return Converted
    source_type, target_type, is_a = written.type, target.type, pa.types
    if (get_json_format(written) == JSON_FORMAT) != (get_json_format(target) == JSON_FORMAT):
        return _compile_misfit(target_type)
    if is_a.is_struct(source_type) and is_a.is_struct(target_type):
        return _compile_struct_conversion(source_type, target_type, options)
    if is_a.is_list(source_type) and is_a.is_list(target_type):
        return _compile_list_conversion(source_type, target_type, options)
    if is_a.is_map(source_type) and is_a.is_map(target_type):
        return _compile_map_conversion(source_type, target_type, options)
    is_text = converts_text and {source_type, target_type} == {pa.string(), pa.binary()}
    if get_json_format(target) is None and (is_text or _is_castable(source_type, target_type)):
        return _compile_cast(source_type, target_type)
    return _compile_misfit(target_type)


def _is_same(written: pa.Field, target: pa.Field) -> bool:
    """Return whether values of a writer's type can be stored as they are."""
    is_json = get_json_format(written) == JSON_FORMAT
    if written.type != target.type or is_json != (get_json_format(target) == JSON_FORMAT):
        return False
    data_type, is_a = written.type, pa.types
    if is_a.is_struct(data_type):
        matches = match_fields(list_nested_identities(target.type), list(data_type))
        return matches == list(range(data_type.num_fields)) and all(map(_is_same, data_type, target.type))
    if is_a.is_list(data_type):
        return _is_same(data_type.value_field, target.type.value_field)
    return _is_same(data_type.item_field, target.type.item_field) if is_a.is_map(data_type) else True


def _compile_misfit(target_type: pa.DataType) -> Convert:
    def convert(array: pa.Array) -> Converted:
        return Converted(pa.nulls(len(array), target_type), _compute_valid_mask(array) if len(array) else None)

    return convert


def _is_castable(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether some values of the type can be stored in a column of the other type without loss."""
    is_a: Any = pa.types
    if is_a.is_integer(source):
        is_wide_decimal = is_a.is_decimal(target) and target.precision - target.scale >= DECIMAL_DIGITS_OF_INT64
        return bool(is_a.is_integer(target) or is_a.is_floating(target) or is_wide_decimal)
    if is_a.is_floating(source):
        return bool(is_a.is_floating(target))
    if is_a.is_decimal(source):
        return bool(is_a.is_decimal(target))
    return False


def _compile_cast(source: pa.DataType, target: pa.DataType) -> Convert:
    if pa.types.is_float64(source) and pa.types.is_float32(target):
        return _convert_to_single_float

    def convert(array: pa.Array) -> Converted:
        try:
            return Converted(array.cast(target))
        except pa.ArrowInvalid:
            return _cast_with_misfits(array, target)

    return convert


def _cast_with_misfits(array: pa.Array, target: pa.DataType) -> Converted:
    """Cast an array in which some values do not fit. It is halved until they are found."""
    try:
        return Converted(array.cast(target), np.zeros(len(array), bool))
    except pa.ArrowInvalid:
        if len(array) == 1:
            return Converted(pa.nulls(1, target), np.ones(1, bool))
    middle = len(array) // 2
    parts = [_cast_with_misfits(each, target) for each in (array.slice(0, middle), array.slice(middle))]
    masks = [each.misfits for each in parts if each.misfits is not None]
    return Converted(pa.concat_arrays([each.array for each in parts]), np.concatenate(masks))


def _convert_to_single_float(array: pa.Array) -> Converted:
    values = array.to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = values.astype(np.float32)
        misfits = ~((rounded == values) | np.isnan(values)) & _compute_valid_mask(array)
    nulls = misfits | ~_compute_valid_mask(array)
    return Converted(pa.array(rounded, pa.float32(), mask=nulls), misfits if misfits.any() else None)


def _compile_struct_conversion(source: pa.DataType, target: pa.DataType, options: Mapping[str, bool]) -> Convert:
    written = list(source)
    matches = match_fields(list_nested_identities(target), written)
    conversions = [
        None if index is None else compile_conversion(written[index], each, **options)
        for index, each in zip(matches, target, strict=True)
    ]
    unknown = [] if options["drops_unknown"] else [index for index in range(len(written)) if index not in matches]
    fields = [each.with_nullable(True) for each in target]

    def convert(array: pa.StructArray) -> Converted:
        misfits: Mask | None = None
        children: list[pa.Array] = []
        for each, index, inner in zip(fields, matches, conversions, strict=True):
            if index is None or inner is None:
                children.append(pa.nulls(len(array), each.type))
                continue
            child = inner(array.field(index))
            children.append(child.array)
            misfits = _combine_masks(misfits, child.misfits)
        for index in unknown:
            misfits = _combine_masks(misfits, _find_valid(array.field(index)))
        mask = array.is_null() if array.null_count else None
        if misfits is not None and array.null_count:
            misfits &= _compute_valid_mask(array)  # values within null are not part of the record
        return Converted(pa.StructArray.from_arrays(children, fields=fields, mask=mask), misfits)

    return convert


def _compile_list_conversion(source: pa.DataType, target: pa.DataType, options: Mapping[str, bool]) -> Convert:
    inner = compile_conversion(source.value_field, target.value_field, **options)

    def convert(array: pa.ListArray) -> Converted:
        offsets, start, end = _normalize_offsets(array)
        elements = inner(array.values.slice(start, end - start))
        mask = array.is_null() if array.null_count else None
        converted = pa.ListArray.from_arrays(pa.array(offsets), elements.array, type=target, mask=mask)
        return Converted(converted, _find_parents(elements.misfits, offsets, array))

    return convert


def _compile_map_conversion(source: pa.DataType, target: pa.DataType, options: Mapping[str, bool]) -> Convert:
    inner = compile_conversion(source.item_field, target.item_field, **options)

    def convert(array: pa.MapArray) -> Converted:
        offsets, start, end = _normalize_offsets(array)
        items = inner(array.items.slice(start, end - start))
        keys = array.keys.slice(start, end - start)
        nulls = np.append(~_compute_valid_mask(array), False)
        ends = pa.array(offsets, pa.int32(), mask=nulls if array.null_count else None)
        converted = pa.MapArray.from_arrays(ends, keys, items.array, type=target)
        return Converted(converted, _find_parents(items.misfits, offsets, array))

    return convert


def _normalize_offsets(array: Any) -> tuple[npt.NDArray[np.int32], int, int]:
    """Return the offsets of lists or maps from 0 on, and the range of the elements to which they refer."""
    offsets = array.offsets.to_numpy()
    start, end = int(offsets[0]), int(offsets[-1])
    return (offsets - offsets[0]).astype(np.int32), start, end


def _find_parents(misfits: Mask | None, offsets: npt.NDArray[np.int32], array: pa.Array) -> Mask | None:
    """Return whether each list or map contains an element that does not fit."""
    if misfits is None or not misfits.any():
        return None
    counts = np.concatenate(([0], np.cumsum(misfits)))
    found: Mask = (counts[offsets[1:]] > counts[offsets[:-1]]) & _compute_valid_mask(array)
    return found


def _combine_masks(first: Mask | None, second: Mask | None) -> Mask | None:
    if first is None or second is None:
        return second if first is None else first
    return first | second


def _compute_valid_mask(array: pa.Array) -> Mask:
    if not array.null_count:
        return np.ones(len(array), bool)
    mask: Mask = array.is_valid().to_numpy(zero_copy_only=False)
    return mask


def _find_valid(array: pa.Array) -> Mask | None:
    return None if array.null_count == len(array) else _compute_valid_mask(array)


# Names


def compile_renaming(written: pa.Field, target: pa.Field) -> Rename | None:
    """Return a function that gives nested fields of JSON forms the names of the column's fields; None if they have."""
    source_type, target_type, is_a = written.type, target.type, pa.types
    if is_a.is_struct(source_type) and is_a.is_struct(target_type):
        fields = list(source_type)
        matches = match_fields(list_nested_identities(target_type), fields)
        keys = [get_json_key(each) for each in target_type]
        targets = {index: position for position, index in enumerate(matches) if index is not None}
        return _compile_object_renaming(
            [
                (each.name, keys[targets[index]], compile_renaming(each, target_type.field(targets[index])))
                if index in targets
                else (each.name, choose_field_key(each.name, keys), None)
                for index, each in enumerate(fields)
            ]
        )
    if is_a.is_list(source_type) and is_a.is_list(target_type):
        element = compile_renaming(source_type.value_field, target_type.value_field)
        return None if element is None else lambda form: _map_list(element, form)
    if is_a.is_map(source_type) and is_a.is_map(target_type):
        item = compile_renaming(source_type.item_field, target_type.item_field)
        return None if item is None else lambda form: _map_object(item, form)
    return None


def _compile_object_renaming(names: Sequence[tuple[str, str, Rename | None]]) -> Rename | None:
    if all(name == key and inner is None for name, key, inner in names):
        return None
    by_name = {name: (key, inner) for name, key, inner in names}

    def rename(form: JsonForm) -> JsonForm:
        if type(form) is not dict:
            return form
        renamed = {}
        for name, value in form.items():
            key, inner = by_name.get(name, (name, None))
            renamed[key] = value if inner is None else inner(value)
        return renamed

    return rename


def _map_list(inner: Rename, form: JsonForm) -> JsonForm:
    return [inner(each) for each in form] if type(form) is list else form


def _map_object(inner: Rename, form: JsonForm) -> JsonForm:
    return {key: inner(each) for key, each in form.items()} if type(form) is dict else form


# Values that JSON forms do not distinguish


def compile_separation(written: pa.Field, target: pa.Field) -> Separate | None:
    """Return a function that splits JSON forms into the part that a column may store and the one to rescue.

    The JSON forms of bytes and of some texts are equal, and so are those of a map and of a record, whose fields that
    are null may be missing. So a column of the other type would store a different value. Return None if there is none.
    """
    is_json, is_json_target = (get_json_format(each) == JSON_FORMAT for each in (written, target))
    source_type, target_type, is_a = written.type, target.type, pa.types
    if is_json_target:
        return None
    if is_json:
        return _separate_all if _contains_bytes_or_records(target_type) else None
    if is_a.is_struct(source_type) and is_a.is_struct(target_type):
        matches = match_fields(list_nested_identities(target_type), list(source_type))
        fields = {
            get_json_key(each): compile_separation(source_type.field(index), each)
            for each, index in zip(target_type, matches, strict=True)
            if index is not None
        }
        return _compile_object_separation({key: each for key, each in fields.items() if each is not None})
    if is_a.is_list(source_type) and is_a.is_list(target_type):
        element = compile_separation(source_type.value_field, target_type.value_field)
        return None if element is None else partial(_separate_list, element)
    if is_a.is_map(source_type) and is_a.is_map(target_type):
        item = compile_separation(source_type.item_field, target_type.item_field)
        return None if item is None else partial(_separate_map, item)
    if is_a.is_floating(source_type) and is_a.is_decimal(target_type):
        return _separate_negative_zero
    is_text_or_bytes = {source_type, target_type} == {pa.string(), pa.binary()}
    is_map_or_record = {is_a.is_map(source_type), is_a.is_map(target_type)} == {True, False} and (
        is_a.is_struct(source_type) or is_a.is_struct(target_type)
    )
    return _separate_all if is_text_or_bytes or is_map_or_record else None


def _contains_bytes_or_records(data_type: pa.DataType) -> bool:
    is_a = pa.types
    if is_a.is_list(data_type):
        return _contains_bytes_or_records(data_type.value_type)
    if is_a.is_map(data_type):
        return _contains_bytes_or_records(data_type.item_type)
    return bool(is_a.is_binary(data_type) or is_a.is_struct(data_type))


def _separate_all(form: JsonForm) -> tuple[JsonForm, JsonForm]:
    return None, form


def _separate_negative_zero(form: JsonForm) -> tuple[JsonForm, JsonForm]:
    is_negative_zero = type(form) is float and form == 0 and math.copysign(1, form) < 0
    return (None, form) if is_negative_zero else (form, None)


def _compile_object_separation(fields: Mapping[str, Separate]) -> Separate | None:
    return partial(_separate_object, fields) if fields else None


def _separate_object(fields: Mapping[str, Separate], form: JsonForm) -> tuple[JsonForm, JsonForm]:
    if type(form) is not dict:
        return form, None
    kept, lost = dict(form), {}
    for key, separate in fields.items():
        if kept.get(key) is not None:
            kept[key], rest = separate(kept[key])
            if rest is not None:
                lost[key] = rest
    return kept, lost or None


def _separate_map(item: Separate, form: JsonForm) -> tuple[JsonForm, JsonForm]:
    return _separate_object(dict.fromkeys(form, item), form) if type(form) is dict else (form, None)


def _separate_list(element: Separate, form: JsonForm) -> tuple[JsonForm, JsonForm]:
    """Split a list. If an element does not fit, the whole list is rescued, because its positions cannot be merged."""
    if type(form) is not list:
        return form, None
    pairs = [(None, None) if each is None else element(each) for each in form]
    return [kept for kept, _ in pairs], None if all(rest is None for _, rest in pairs) else form


# Columns


class ProjectedValues(NamedTuple):
    """Values as columns of a table."""

    arrays: list[pa.Array]
    misfits: Mask
    """Whether each record has a value without a column, or one that does not fit its column."""
    misfits_by_column: dict[int, Mask]


class ColumnProjection:
    """A projection of the values of one writer's type onto the columns of a table."""

    def __init__(
        self, written: pa.Field, columns: Sequence[Column], tree: ObjectNode, *, drops_unknown: bool = False
    ) -> None:
        self._columns = columns
        self._drops_unknown = drops_unknown
        self.is_single_value = not (pa.types.is_struct(written.type) and written.type.num_fields)
        """Whether the values are no records, and are stored in one column."""
        self._steps: list[tuple[int, tuple[int, ...], Convert]] = []
        """Index of each column with a field, path of indexes to the field, and conversion."""
        self._unknown: list[tuple[int, ...]] = []
        """Paths of indexes to the fields without a column."""
        self._objects: list[tuple[tuple[int, ...], list[int]]] = []
        """Paths to the objects whose fields are columns of their own, with the indexes of these columns."""
        self.separations: dict[int, Separate] = {}
        """For each column that cannot store all JSON forms of its field, the function that separates them."""
        fields = list_written_fields(written)
        renamings = self._compile_object(tree, fields, get_message_name(written), ())
        self._rename = _compile_object_renaming(renamings)

    def _compile_object(
        self, node: ObjectNode, written: Sequence[pa.Field], message: str | None, path: tuple[int, ...]
    ) -> list[tuple[str, str, Rename | None]]:
        matches = match_fields(node.identities, written, message)
        renamings: list[tuple[str, str, Rename | None]] = []
        for key, entry, index in zip(node.keys, node.entries, matches, strict=True):
            if index is None:
                continue
            field, inner_path = written[index], (*path, index)
            if isinstance(entry, ObjectNode):
                renamings.append((field.name, key, self._compile_nested_object(entry, field, inner_path)))
                continue
            target = self._columns[entry].to_field()
            self._steps.append(
                (entry, inner_path, compile_conversion(field, target, drops_unknown=self._drops_unknown))
            )
            separate = compile_separation(field, target)
            if separate is not None:
                self.separations[entry] = separate
            renamings.append((field.name, key, compile_renaming(field, target)))
        for index, field in enumerate(written):
            if index not in matches and not pa.types.is_null(field.type):
                self._unknown.append((*path, index))
                renamings.append((field.name, choose_field_key(field.name, node.keys), None))
        return renamings

    def _compile_nested_object(self, node: ObjectNode, field: pa.Field, path: tuple[int, ...]) -> Rename | None:
        if not pa.types.is_struct(field.type):
            self._unknown.append(path)
            return None
        self._objects.append((path, list(node.iter_columns())))
        return _compile_object_renaming(self._compile_object(node, list(field.type), None, path))

    def project(self, values: pa.Array) -> ProjectedValues:
        """Return the columns of decoded values. Values that are null have only nulls."""
        arrays: list[pa.Array] = [None] * len(self._columns)
        misfits = np.zeros(len(values), bool)
        by_column: dict[int, Mask] = {}
        cache: dict[tuple[int, ...], list[pa.Array]] = {}
        for index, path, convert in self._steps:
            converted = convert(self._take(values, path, cache))
            arrays[index] = converted.array
            if converted.misfits is not None and converted.misfits.any():
                by_column[index] = converted.misfits
                misfits |= converted.misfits
        for index, column in enumerate(self._columns):
            if arrays[index] is None:
                arrays[index] = pa.nulls(len(values), column.data_type)
        if not self._drops_unknown:
            for path in self._unknown:
                found = _find_valid(self._take(values, path, cache))
                if found is not None:
                    misfits |= found
        for path, below in self._objects:
            misfits |= self._find_empty_objects(self._take(values, path, cache), [arrays[index] for index in below])
        return ProjectedValues(arrays, misfits, by_column)

    def _take(self, values: pa.Array, path: tuple[int, ...], cache: dict[tuple[int, ...], list[pa.Array]]) -> pa.Array:
        if self.is_single_value:
            return values
        taken = values
        for length, index in enumerate(path):
            key = path[:length]
            children = cache.get(key)
            if children is None:
                # Children may have values where the object is null.
                children = (
                    taken.flatten() if taken.null_count else [taken.field(n) for n in range(taken.type.num_fields)]
                )
                cache[key] = children
            taken = children[index]
        return taken

    def _find_empty_objects(self, objects: pa.Array, columns: Sequence[pa.Array]) -> Mask:
        """Return which objects have no values in their columns, so that these do not restore them."""
        is_empty = _compute_valid_mask(objects)
        for each in columns:
            is_empty &= ~_compute_valid_mask(each)
        return is_empty

    def rename(self, form: JsonForm) -> dict[str, JsonForm] | None:
        """Return the JSON object of a value, in which fields have the keys of their columns' paths.

        Return None for a record that is null.
        """
        if self.is_single_value:
            form = {SINGLE_VALUE: form}
        renamed: dict[str, JsonForm] | None = form if self._rename is None else self._rename(form)
        return renamed


# Restoring


def compile_restoring(written: pa.Field, columns: Sequence[Column], tree: ObjectNode, *, fills_nulls: bool) -> Rename:
    """Return a function that converts JSON objects with the keys of columns to JSON forms of a writer's type.

    With `fills_nulls`, fields that are missing are null.
    """
    fields = list_written_fields(written)
    restore = _compile_node_restoring(tree, columns, fields, get_message_name(written), fills_nulls)
    if pa.types.is_struct(written.type) and written.type.num_fields:
        return restore
    return lambda form: restore(form).get(SINGLE_VALUE)


def _compile_node_restoring(
    node: ObjectNode, columns: Sequence[Column], written: Sequence[pa.Field], message: str | None, fills_nulls: bool
) -> Rename:
    matches = match_fields(node.identities, written, message)
    steps: dict[int, tuple[str, Rename | None]] = {}
    for key, entry, index in zip(node.keys, node.entries, matches, strict=True):
        if index is None:
            continue
        field = written[index]
        if isinstance(entry, ObjectNode):
            is_object = pa.types.is_struct(field.type)
            inner = _compile_node_restoring(entry, columns, list(field.type), None, fills_nulls) if is_object else None
        else:
            inner = _compile_field_restoring(field, columns[entry].to_field(), fills_nulls)
        steps[index] = key, inner
    return _compile_object_restoring(written, steps, node.keys, fills_nulls)


def _compile_field_restoring(written: pa.Field, target: pa.Field, fills_nulls: bool) -> Rename | None:
    source_type, target_type, is_a = written.type, target.type, pa.types
    if is_a.is_struct(source_type):
        is_object = is_a.is_struct(target_type)
        fields = list(source_type)
        matches = match_fields(list_nested_identities(target_type), fields) if is_object else []
        keys = [get_json_key(each) for each in target_type] if is_object else []
        steps = {
            index: (keys[position], _compile_field_restoring(fields[index], target_type.field(position), fills_nulls))
            for position, index in enumerate(matches)
            if index is not None
        }
        return _compile_object_restoring(fields, steps, keys, fills_nulls)
    if is_a.is_list(source_type) and is_a.is_list(target_type):
        element = _compile_field_restoring(source_type.value_field, target_type.value_field, fills_nulls)
        return None if element is None else lambda form: _map_list(element, form)
    if is_a.is_map(source_type) and is_a.is_map(target_type):
        item = _compile_field_restoring(source_type.item_field, target_type.item_field, fills_nulls)
        return None if item is None else lambda form: _map_object(item, form)
    is_written_integer = is_a.is_integer(source_type) or get_json_format(written) == JSON_FORMAT
    return _restore_integer if is_written_integer and is_a.is_floating(target_type) else None


def _restore_integer(form: JsonForm) -> JsonForm:
    """Return the integer that a float64 is equal to, which has more digits than the shortest text of the float64."""
    if type(form) is not Decimal:
        return form
    value = float(form)
    is_from_column = abs(value) <= INTEGER_MAX and value.is_integer() and Decimal(repr(value)) == form
    return int(value) if is_from_column else form


def _compile_object_restoring(
    written: Sequence[pa.Field], steps: Mapping[int, tuple[str, Rename | None]], keys: Sequence[str], fills_nulls: bool
) -> Rename:
    plan = [
        (field.name, *steps.get(index, (choose_field_key(field.name, keys), None)))
        for index, field in enumerate(written)
    ]

    def restore(form: JsonForm) -> JsonForm:
        if type(form) is not dict:
            return form
        restored = {}
        for name, key, inner in plan:
            value = form.get(key)
            if value is not None:
                restored[name] = value if inner is None else inner(value)
            elif fills_nulls:
                restored[name] = None
        return restored

    return restore
