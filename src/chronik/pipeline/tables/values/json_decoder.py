"""The decoder of a table's JSON values: columns, `_rescued`, and the errors of dead-letter records.

Nearly all records have the fields and types that the table expects. A typed parser reads them into objects with one
attribute per column, which become columns in bulk. A record that it rejects, or a value that would not be restored
exactly, takes the slow path: it is taken apart key by key, and what does not fit is rescued. Both paths use the same
codecs, so a record gives the same row on either.

The row and `_rescued` together give the record back: columns are put back to their paths, and `_rescued` is merged over
them (`merge_json_values`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from chronik.errors import ConfigError
from chronik.formats.codec import UndecodableValueError
from chronik.formats.decoded_size import VALUE_BYTES_PER_BYTE_MAX, ColumnBudget, ValueBudget, find_size_max
from chronik.pipeline.tables.layout import RESCUED
from chronik.pipeline.tables.values.exact_json import (
    DEEP_BYTES_MIN,
    NESTING_MAX,
    decode_exact_json,
    is_nested_too_deep,
)
from chronik.pipeline.tables.values.table_schema import (
    Column,
    InvalidValues,
    Path,
    TableSchema,
    UnknownFields,
    format_path,
    is_parsable_key,
)
from chronik.pipeline.tables.values.value_codecs import (
    BUILD_ERRORS,
    NOTHING,
    NULL,
    AdaptedValue,
    CodecOptions,
    JsonValue,
    MisfitError,
    ValueCodec,
    build_attribute_name,
    build_with_misfits,
    create_column_codec,
    define_struct,
    describe_json_type,
)
from chronik.pipeline.tables.values.written_types import WrittenTypes

UNKNOWN_NAMES_MAX: Final = 200
"""Maximum number of JSON fields without a column that are added to the typed parser to speed up decoding."""

PARSER_ERRORS: Final = (msgspec.DecodeError, UnicodeError, RecursionError)
"""Errors of the typed parser for values that it rejects."""

_decode_keys = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


class UnknownField(NamedTuple):
    """A JSON value without a column, or the part of a JSON value that its column cannot store."""

    path: Path
    value: JsonValue


@dataclass(frozen=True, slots=True)
class DecodedValues:
    """The result of decoding a batch of JSON values: the columns, and the errors of values that cannot be decoded."""

    columns: dict[str, pa.Array]
    """Arrow arrays of the value columns and `_rescued`, with one row for each record without an error."""
    errors: dict[int, str]
    """Error message of each dead-letter record, by row."""
    unknown_fields: list[UnknownField]
    """JSON fields without a column, if the schema adds columns for them; otherwise empty."""
    misfits: Counter[str]
    """Number of values that did not fit their column's type, by column name."""
    written_types: WrittenTypes = field(default_factory=WrittenTypes)
    """Types of writers with fields for which columns must be added."""
    json_keys: list[JsonValue] = field(default_factory=list)
    """JSON keys, or parts of them, that the column of keys lacks."""


@dataclass(slots=True)
class _ObjectNode:
    """A node of the tree of JSON objects that contain columns. Each of its fields is a column or another object."""

    path: Path = ()
    columns: dict[str, int] = field(default_factory=dict)
    """Index of the column that stores each key's value."""
    objects: dict[str, _ObjectNode] = field(default_factory=dict)

    def add(self, path: Path, column: int) -> None:
        node = self
        for key in path[:-1]:
            node = node.objects.setdefault(key, _ObjectNode((*node.path, key)))
        node.columns[path[-1]] = column

    def iter_columns(self) -> Iterable[int]:
        """Yield the indexes of the columns in this object and in its nested objects."""
        yield from self.columns.values()
        for node in self.objects.values():
            yield from node.iter_columns()


class _ObjectCodec(ValueCodec):
    """A placeholder codec for a JSON object whose fields are stored in separate columns."""

    def __init__(self, struct: Any) -> None:
        super().__init__(pa.null())
        self.fast_type = struct | None


class _RawCodec(ValueCodec):
    """A placeholder codec for a JSON field without a column, whose value the parser returns as raw JSON."""

    fast_type = msgspec.Raw
    missing = NULL

    def __init__(self) -> None:
        super().__init__(pa.null())


class JsonDecoder:
    """A decoder of JSON values for one version of a table's schema. Not thread-safe."""

    def __init__(
        self, schema: TableSchema, table: pa.Schema, partition_by: Collection[str] = (), *, is_typed: bool = False
    ) -> None:
        """Create a decoder for the columns of `table`, which may be some of the table's columns.

        With `is_typed`, the values are JSON forms of typed values.

        An empty string does not fit a column in `partition_by`: Delta does not distinguish it from null there.

        Without `_rescued` among them, fields without a column and values that do not fit are dropped.

        Raises:
            ConfigError: The format or time zone of a column is invalid.
        """
        self._schema = schema
        self._columns = schema.resolve_columns(table)
        self._has_rescued = RESCUED in table.names
        self._drops_unknown = schema.unknown_fields is UnknownFields.DROP or not self._has_rescued
        self._codecs = [
            create_column_codec(
                column, CodecOptions(self._drops_unknown, is_typed), rejects_empty=column.name in partition_by
            )
            for column in self._columns
        ]
        self._defaults = [
            codec.missing if column.default is None else convert_default_value(column, codec)
            for column, codec in zip(self._columns, self._codecs, strict=True)
        ]
        self._policies = [schema.get_invalid_values_policy(column) for column in self._columns]
        self._root = _ObjectNode()
        for index, column in enumerate(self._columns):
            self._root.add(column.path, index)
        self._unknown_names: list[str] = []
        self._compile_typed_parser()
        # The sizes of typed values were checked before.
        element_bytes = 0 if is_typed else max((codec.element_bytes for codec in self._codecs), default=0)
        self._element_bytes = 0 if element_bytes <= VALUE_BYTES_PER_BYTE_MAX else element_bytes
        """The size of the largest elements of lists and maps, or 0 if no value is too large for its bytes."""

    def _compile_typed_parser(self) -> None:
        """Define the msgspec types of the typed parser, with a field for each column, object and learned key."""
        self._attributes: dict[Path, dict[str, str]] = {}
        struct = self._define_object_struct(self._root, self._unknown_names)
        self._empty = struct()
        self._decode = msgspec.json.Decoder(struct).decode

    def _define_object_struct(self, node: _ObjectNode, unknown_names: Sequence[str] = ()) -> Any:
        fields: list[tuple[str, ValueCodec]] = [(key, self._codecs[index]) for key, index in node.columns.items()]
        fields += [(key, _ObjectCodec(self._define_object_struct(each))) for key, each in node.objects.items()]
        fields += [(name, _RawCodec()) for name in unknown_names]
        self._attributes[node.path] = {key: build_attribute_name(index) for index, (key, _) in enumerate(fields)}
        return define_struct(fields, forbid_unknown_fields=not self._drops_unknown)

    def decode(self, values: Sequence[bytes | None]) -> DecodedValues:
        """Decode a batch of JSON values into columns. None is a tombstone, for which all columns are null.

        Raises:
            ColumnTooLargeError: The values are too large. Decode them in parts.
        """
        result = _RowResults(len(values))
        if self._element_bytes:
            values = self._limit_sizes(values, result)
        objects = self._parse(values, result)
        arrays = self._build_columns(objects, values, result)
        self._rescue_learned_fields(objects, result)
        if result.slow_rows:
            arrays = self._decode_slow_rows(values, arrays, result)
        return self._assemble_decoded_values(arrays, result)

    def _limit_sizes(self, values: Sequence[bytes | None], result: _RowResults) -> Sequence[bytes | None]:
        """Return the values, with None instead of those that are too large. They become errors."""
        budget, size = ColumnBudget(len(values)), ValueBudget()
        kept = list(values)
        for row, value in enumerate(values):
            if value is None:
                continue
            bound = self._bound_size(value)
            if bound <= find_size_max(len(value)) or is_nested_too_deep(value):
                budget.take(bound)
                continue
            size.reset(len(value))
            try:
                size.take(self._measure(value))
                budget.take(size.used)
            except UndecodableValueError as error:
                result.errors[row] = str(error)
                kept[row] = None
        return kept

    def _bound_size(self, value: bytes) -> int:
        """Return a size that the elements of a value do not exceed."""
        return self._element_bytes * (value.count(b",") + value.count(b"[") + value.count(b"{"))

    def _measure(self, value: bytes) -> int:
        """Return the bytes that count for the elements of lists and maps in the columns of a value."""
        try:
            found = decode_exact_json(value)
        except (msgspec.DecodeError, UnicodeError):
            return 0
        size = 0
        for column, codec in zip(self._columns, self._codecs, strict=True):
            node = found
            for key in column.path:
                node = node.get(key) if isinstance(node, dict) else None
            size += codec.measure(node)
        return size

    # Fast path

    def _parse(self, values: Sequence[bytes | None], result: _RowResults) -> list[Any]:
        """Parse all values with the typed parser. Values that it rejects are decoded on the slow path."""
        decode, empty = self._decode, self._empty
        try:
            objects = [empty if value is None else decode(value) for value in values]
        except PARSER_ERRORS:
            objects = [
                empty if value is None else self._try_parse(row, value, result) for row, value in enumerate(values)
            ]
        if self._drops_unknown:  # the parser does not check the encoding of fields that it skips
            for row, value in enumerate(values):
                if value is not None and not value.isascii() and not _is_utf8(value):
                    result.slow_rows.add(row)
        if max(map(len, filter(None, values)), default=0) > DEEP_BYTES_MIN:
            for row, value in enumerate(values):
                if value is not None and len(value) > DEEP_BYTES_MIN and is_nested_too_deep(value):
                    objects[row] = empty
                    result.slow_rows.add(row)
        return objects

    def _try_parse(self, row: int, value: bytes, result: _RowResults) -> Any:
        try:
            return self._decode(value)
        except PARSER_ERRORS:
            result.slow_rows.add(row)
            return self._empty

    def _build_columns(self, objects: list[Any], values: Sequence[bytes | None], result: _RowResults) -> list[pa.Array]:
        arrays: list[pa.Array] = [None] * len(self._columns)
        self._build_node(self._root, objects, values, arrays, result)
        for index, column in enumerate(self._columns):
            if column.required and arrays[index].null_count:
                missing = np.flatnonzero(arrays[index].is_null().to_numpy(zero_copy_only=False))
                result.slow_rows.update(row for row in missing.tolist() if values[row] is not None)
        return arrays

    def _build_node(
        self,
        node: _ObjectNode,
        objects: list[Any],
        values: Sequence[bytes | None],
        arrays: list[pa.Array],
        result: _RowResults,
    ) -> None:
        attributes = self._attributes[node.path]
        for key, index in node.columns.items():
            taken = _get_attribute_values(objects, attributes[key], self._codecs[index].missing, is_root=not node.path)
            arrays[index] = self._build_column(index, taken, values, result)
        for key, child in node.objects.items():
            children = _get_attribute_values(objects, attributes[key], None, is_root=not node.path)
            self._build_node(child, children, values, arrays, result)
            self._mark_empty_objects_as_slow(child, children, arrays, result)

    def _build_column(
        self, index: int, taken: list[Any], values: Sequence[bytes | None], result: _RowResults
    ) -> pa.Array:
        column, codec, default = self._columns[index], self._codecs[index], self._defaults[index]
        if column.default is not None:
            taken = [
                default if value is not None and is_missing(codec, each) else each
                for each, value in zip(taken, values, strict=True)
            ]
        built, misfits = build_with_misfits(codec, taken)
        result.slow_rows.update(misfits)
        if built.respelled_rows and self._policies[index] is not InvalidValues.CAST:
            for row in built.respelled_rows:
                result.rescue(row, column.path, taken[row])
        return built.array

    def _mark_empty_objects_as_slow(
        self, node: _ObjectNode, objects: list[Any], arrays: list[pa.Array], result: _RowResults
    ) -> None:
        """Mark rows with an object without column values for the slow path, as its columns do not restore it."""
        is_empty = np.array([each is not None for each in objects], bool)
        for index in node.columns.values():
            is_empty &= arrays[index].is_null().to_numpy(zero_copy_only=False)
        for key in node.objects:
            children = _get_attribute_values(objects, self._attributes[node.path][key], None, is_root=False)
            is_empty &= np.array([each is None for each in children], bool)
        result.slow_rows.update(np.flatnonzero(is_empty).tolist())

    def _rescue_learned_fields(self, objects: list[Any], result: _RowResults) -> None:
        for name in self._unknown_names:
            raws = map(attrgetter(self._attributes[()][name]), objects)
            for row, raw in enumerate(raws):
                if raw is NULL or row in result.slow_rows:
                    continue
                text = bytes(raw)
                if text == b"null":
                    continue
                if not _is_utf8(text):
                    result.slow_rows.add(row)
                    continue
                result.rescue(row, (name,), raw)
                self._record_unknown_field(result, (name,), raw)

    # Slow path

    def _decode_slow_rows(
        self, values: Sequence[bytes | None], arrays: list[pa.Array], result: _RowResults
    ) -> list[pa.Array]:
        slow_values: list[list[Any]] = [[] for _ in self._columns]
        kept: list[int] = []
        for row in sorted(result.slow_rows):
            result.forget(row)
            value = values[row]
            assert value is not None, "tombstones take the fast path"
            noted, misfits = len(result.unknown_fields), result.misfits.copy()
            try:
                found = self._split_record_into_columns(row, value, result)
            except MisfitError as error:
                result.errors[row] = str(error)
                result.forget(row)
                del result.unknown_fields[noted:]  # a dead-letter record adds no columns
                result.misfits = misfits
                continue
            kept.append(row)
            for index, each in enumerate(found):
                slow_values[index].append(each)
        # Values were checked one by one, so that they fit now.
        positions = np.arange(result.count)
        positions[kept] = result.count + np.arange(len(kept))
        indices = pa.array(positions)
        return [
            pa.concat_arrays([array, codec.build(each, is_adapted=True).array]).take(indices) if kept else array
            for array, codec, each in zip(arrays, self._codecs, slow_values, strict=True)
        ]

    def _split_record_into_columns(self, row: int, value: bytes, result: _RowResults) -> list[Any]:
        """Split a JSON record into column values, and rescue the values that do not fit their column.

        Raises:
            MisfitError: The record becomes a dead-letter record.
        """
        if is_nested_too_deep(value):
            raise MisfitError(f"lists and objects are nested more than {NESTING_MAX} deep")
        try:
            value.decode()
            fields = _decode_keys(value)
        except (msgspec.DecodeError, UnicodeError) as error:
            raise MisfitError(self._describe_invalid_json(value, error)) from error
        found = list(self._defaults)
        self._decode_object_columns(self._root, fields, row, found, result)
        for column, codec, each in zip(self._columns, self._codecs, found, strict=True):
            if column.required and is_missing(codec, each):
                raise MisfitError(
                    f"column {column.name} is required, but {format_path(column.path)} has no valid value"
                )
        return found

    def _describe_invalid_json(self, value: bytes, error: Exception) -> str:
        try:
            found = decode_exact_json(value)
        except (msgspec.DecodeError, UnicodeError) as invalid:
            return str(invalid) or type(invalid).__name__
        if not isinstance(found, dict):
            return f"a JSON object was expected, this is {describe_json_type(found)}"
        return str(error)

    def _decode_object_columns(
        self, node: _ObjectNode, fields: Mapping[str, msgspec.Raw], row: int, found: list[Any], result: _RowResults
    ) -> bool:
        """Decode the columns of one JSON object; return whether the row's values restore the object."""
        is_restored = False
        for key, raw in fields.items():
            if bytes(raw) == b"null":
                continue
            path = (*node.path, key)
            if key in node.columns:
                is_restored |= self._decode_column_value(node.columns[key], raw, row, found, result)
            elif key in node.objects:
                is_restored |= self._decode_nested_object(node.objects[key], raw, row, found, result)
            elif not self._drops_unknown:
                result.rescue(row, path, raw)
                is_restored = True
                if not node.path:
                    self._learn_unknown_field(key)
                self._record_unknown_field(result, path, raw)
        return is_restored

    def _decode_nested_object(
        self, node: _ObjectNode, raw: msgspec.Raw, row: int, found: list[Any], result: _RowResults
    ) -> bool:
        try:
            fields = _decode_keys(raw)
        except msgspec.DecodeError:  # not an object
            below = list(node.iter_columns())
            if any(self._policies[index] is InvalidValues.DEAD_LETTER for index in below):
                raise MisfitError(f"{format_path(node.path)} is not an object") from None
            result.rescue(row, node.path, raw)
            result.misfits.update(self._columns[index].name for index in below)
            return True
        is_restored = self._decode_object_columns(node, fields, row, found, result)
        if not is_restored and all(is_missing(self._codecs[index], found[index]) for index in node.iter_columns()):
            result.rescue(row, node.path, msgspec.Raw(b"{}"))
        return True

    def _decode_column_value(
        self, index: int, raw: msgspec.Raw, row: int, found: list[Any], result: _RowResults
    ) -> bool:
        """Decode the JSON value of one column; return whether the row's values restore it."""
        column, codec, policy = self._columns[index], self._codecs[index], self._policies[index]
        try:
            adapted = self._adapt(index, raw, cast=policy is InvalidValues.CAST)
            reason = "a nested value does not fit" if adapted.has_misfit else None
        except BUILD_ERRORS as error:
            adapted = AdaptedValue(codec.missing, raw)
            reason = str(error).partition("\n")[0]
        if reason is not None:
            if policy is InvalidValues.DEAD_LETTER:
                raise MisfitError(f"column {column.name}: {reason}")
            result.misfits[column.name] += 1
        elif adapted.leftover is not NOTHING and not isinstance(adapted.leftover, msgspec.Raw):
            self._record_nested_fields(column, adapted.leftover, result)
        found[index] = adapted.value
        if adapted.leftover is not NOTHING:
            result.rescue(row, column.path, adapted.leftover)
        return True

    def _adapt(self, index: int, raw: msgspec.Raw, *, cast: bool) -> AdaptedValue:
        """Convert a JSON value to the input of the column's codec, with the typed parser if it accepts the value.

        Raises:
            BUILD_ERRORS: The value does not fit.
        """
        codec = self._codecs[index]
        try:
            typed = self._typed_decoders[index](raw)
            built = codec.build([typed])
        except BUILD_ERRORS:
            adapted = codec.adapt(decode_exact_json(bytes(raw)), cast=cast)
            built, typed = codec.build([adapted.value], is_adapted=True), adapted.value
            if adapted.leftover is not NOTHING:
                return adapted
        return AdaptedValue(typed, raw if built.respelled_rows and not cast else NOTHING)

    @cached_property
    def _typed_decoders(self) -> list[Any]:
        return [msgspec.json.Decoder(codec.fast_type).decode for codec in self._codecs]

    def _learn_unknown_field(self, name: str) -> None:
        """Add a JSON field to the typed parser, so that later records with this field are decoded on the fast path."""
        is_new = name not in self._unknown_names and is_parsable_key(name)
        if is_new and len(self._unknown_names) < UNKNOWN_NAMES_MAX:
            self._unknown_names.append(name)
            self._is_outdated = True

    _is_outdated = False

    def _record_unknown_field(self, result: _RowResults, path: Path, raw: msgspec.Raw) -> None:
        if self._schema.unknown_fields is UnknownFields.COLUMN:
            result.unknown_fields.append(UnknownField(path, decode_exact_json(bytes(raw))))

    def _record_nested_fields(self, column: Column, leftover: JsonValue, result: _RowResults) -> None:
        """Record the fields of an object that its column lacks, so that they can be added to the column."""
        if self._schema.unknown_fields is UnknownFields.COLUMN and column.path:
            result.unknown_fields.append(UnknownField(column.path, leftover))

    # Result

    def _assemble_decoded_values(self, arrays: list[pa.Array], result: _RowResults) -> DecodedValues:
        if self._is_outdated:
            self._is_outdated = False
            self._compile_typed_parser()
        columns = {column.name: array for column, array in zip(self._columns, arrays, strict=True)}
        if self._has_rescued:
            columns[RESCUED] = result.build_rescued()
        if result.errors:
            decodable = pa.array([row for row in range(result.count) if row not in result.errors], pa.int64())
            columns = {name: array.take(decodable) for name, array in columns.items()}
        return DecodedValues(columns, dict(sorted(result.errors.items())), result.unknown_fields, result.misfits)


def check_codecs(schema: TableSchema, partition_by: Collection[str] = ()) -> None:
    """Check the formats, time zones and defaults of a declared schema, for a table with these partition columns.

    Raises:
        ConfigError: One of them is invalid.
    """
    for column in schema.columns:
        try:
            codec = create_column_codec(column, rejects_empty=column.name in partition_by)
        except ConfigError as error:
            raise ConfigError(f"column {column.name!r}: {error}") from None
        if column.default is not None:
            convert_default_value(column, codec)


def is_missing(codec: ValueCodec, value: Any) -> bool:
    """Return whether a value from the typed parser stands for a missing JSON value or null."""
    return value is None or (codec.missing is NULL and bytes(value) == b"null")


def convert_default_value(column: Column, codec: ValueCodec) -> Any:
    """Convert a column's default value to the input of its codec.

    Raises:
        ConfigError: The default does not fit the type.
    """
    try:
        adapted = codec.adapt(column.default)
        if adapted.leftover is not NOTHING:
            raise MisfitError("a nested value does not fit")
        codec.build([adapted.value])
    except BUILD_ERRORS as error:
        raise ConfigError(f"column {column.name!r}: invalid default {column.default!r}: {error}") from None
    return adapted.value


def _get_attribute_values(objects: list[Any], name: str, missing: Any, *, is_root: bool) -> list[Any]:
    getter = attrgetter(name)
    if is_root:
        return list(map(getter, objects))
    return [missing if each is None else getter(each) for each in objects]


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


class _RowResults:
    """The per-row results of decoding a batch of JSON values, in addition to the columns."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.slow_rows: set[int] = set()
        """Indexes of the rows that are decoded on the slow path."""
        self.errors: dict[int, str] = {}
        self.misfits: Counter[str] = Counter()
        self.unknown_fields: list[UnknownField] = []
        self._rescued: dict[int, dict[str, Any]] = {}

    def rescue(self, row: int, path: Path, value: JsonValue) -> None:
        """Store a JSON value at its path in the row's `_rescued` column."""
        target = self._rescued.setdefault(row, {})
        for key in path[:-1]:
            target = target.setdefault(key, {})
        target[path[-1]] = value

    def forget(self, row: int) -> None:
        """Discard the rescued values of a row, because it is decoded again."""
        self._rescued.pop(row, None)

    def build_rescued(self) -> pa.Array:
        if not self._rescued:
            return pa.nulls(self.count, pa.string())
        texts: list[str | None] = [None] * self.count
        for row, value in self._rescued.items():
            texts[row] = _encode(value).decode()
        return pa.array(texts, pa.string())


def merge_json_values(base: JsonValue, over: JsonValue) -> JsonValue:
    """Merge a rescued JSON value into the restored one: objects recursively; any other value replaces the old one."""
    if type(base) is not dict or type(over) is not dict:
        return over
    return {**base, **{key: merge_json_values(base[key], each) if key in base else each for key, each in over.items()}}
