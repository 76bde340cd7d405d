"""The decoders of a table's keys, which become one column. The bytes of each key are in a column of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec
import numpy as np
import pyarrow as pa

from chronik.pipeline.tables.layout import KEY_VALUE, RESCUED
from chronik.pipeline.tables.values.column_projection import Convert, compile_conversion
from chronik.pipeline.tables.values.field_statistics import FieldStatistics
from chronik.pipeline.tables.values.framed_decoder import DecodedGroup, FramedDecoder
from chronik.pipeline.tables.values.json_decoder import JsonDecoder
from chronik.pipeline.tables.values.sql_types import FORMAT_KEY, restore_element_formats
from chronik.pipeline.tables.values.table_schema import INFERRED
from chronik.pipeline.tables.values.value_codecs import JsonValue
from chronik.pipeline.tables.values.written_types import WrittenTypes, plan_written_columns


@dataclass(slots=True)
class DecodedKeys:
    """The result of decoding a batch of keys."""

    column: pa.Array | None = None
    """The decoded keys, null where there is an error; None if the table does not have the column yet.

    Parts of a key that do not fit the column's type are null.
    """
    errors: dict[int, str] = field(default_factory=dict)
    """Reasons why keys cannot be decoded, by row."""
    written_types: dict[str, pa.Field] = field(default_factory=dict)
    """Types of writers that the column cannot store, as in `WrittenTypes.keys`."""
    json_keys: list[JsonValue] = field(default_factory=list)
    """JSON keys, or parts of them, for which the column must be added or extended."""


class KeyDecoder(Protocol):
    """A decoder of keys for one version of a table. Not thread-safe."""

    def decode(self, keys: pa.BinaryArray, headers: pa.ListArray | None) -> DecodedKeys:
        """Decode a batch of keys.

        Raises:
            RegistryUnavailableError, RegistryRequestError, ConfigError: See `FramedDecoder.decode`.
        """

    def collect_statistics(self, keys: pa.BinaryArray, headers: pa.ListArray | None) -> FieldStatistics:
        """Return the types of keys, ignoring those that cannot be decoded."""


class TypedKeyDecoder:
    """A decoder of keys that were written with schemas."""

    def __init__(self, table: pa.Schema, keys: FramedDecoder) -> None:
        self._table = table
        self._keys = keys
        self._target = _get_key_field(table)
        self._conversions: dict[str, Convert] = {}
        self._missing: dict[str, pa.Field] = {}
        """Types with fields that the column does not have."""

    def decode(self, keys: pa.BinaryArray, headers: pa.ListArray | None) -> DecodedKeys:
        """See `KeyDecoder.decode`."""
        result = DecodedKeys()
        arrays: list[pa.Array] = []
        order = np.full(len(keys), -1, np.int64)
        start = 0
        for decoded in self._keys.decode(keys, headers, result.errors):
            if self._lacks_fields(decoded):
                result.written_types[decoded.schema.zfill(12)] = decoded.written
            if self._target is None:
                continue
            arrays.append(self._get_conversion(decoded)(decoded.column.array).array)
            order[decoded.rows] = start + np.arange(len(decoded.rows))
            start += len(decoded.rows)
        if self._target is None:
            return result
        if len(arrays) == 1 and start == len(keys):
            result.column = arrays[0]
        else:
            order[order < 0] = start
            result.column = pa.concat_arrays([*arrays, pa.nulls(1, self._target.type)]).take(pa.array(order))
        return result

    def _lacks_fields(self, decoded: DecodedGroup) -> bool:
        if decoded.schema in self._missing:
            return True
        if decoded.schema in self._conversions:
            return False
        types = WrittenTypes(keys={decoded.schema: decoded.written})
        if plan_written_columns(INFERRED, self._table, types).added:
            self._missing[decoded.schema] = decoded.written
            return True
        return False

    def _get_conversion(self, decoded: DecodedGroup) -> Convert:
        conversion = self._conversions.get(decoded.schema)
        if conversion is None:
            assert self._target is not None
            conversion = compile_conversion(decoded.written, self._target)
            self._conversions[decoded.schema] = conversion
        return conversion

    def collect_statistics(self, keys: pa.BinaryArray, headers: pa.ListArray | None) -> FieldStatistics:
        """See `KeyDecoder.collect_statistics`."""
        found = WrittenTypes()
        for decoded in self._keys.decode(keys, headers, {}):
            found.keys[decoded.schema.zfill(12)] = decoded.written
        statistics = FieldStatistics()
        statistics.add_written_types(found)
        return statistics


_NAME: Final = "key"
_PREFIX: Final = f'{{"{_NAME}":'.encode()
_check_json: Final = msgspec.json.Decoder(msgspec.Raw).decode


class JsonKeyDecoder:
    """A decoder of keys that are JSON without a schema: objects or any other values.

    The decoder of JSON values decodes each key as the only field of an object. What it rescues is dropped, because
    the table has the bytes of the key.
    """

    def __init__(self, table: pa.Schema) -> None:
        target = _get_key_field(table)
        columns = [] if target is None else [target.with_name(_NAME)]
        self._has_column = target is not None
        self._decoder = JsonDecoder(INFERRED, pa.schema([*columns, pa.field(RESCUED, pa.string())]))

    def decode(self, keys: pa.BinaryArray, headers: pa.ListArray | None = None) -> DecodedKeys:
        """See `KeyDecoder.decode`."""
        result = DecodedKeys()
        objects = self._wrap(keys.to_pylist(), result.errors)
        decoded = self._decoder.decode(objects)
        result.errors = dict(sorted((result.errors | decoded.errors).items()))
        result.json_keys = [value for _, value in decoded.unknown_fields]
        if self._has_column:
            result.column = _insert_nulls(decoded.columns[_NAME], len(keys), decoded.errors)
        return result

    def _wrap(self, keys: Sequence[bytes | None], errors: dict[int, str]) -> list[bytes | None]:
        """Return objects that contain the keys. The reasons why keys are not JSON are added to `errors`."""
        objects: list[bytes | None] = []
        for row, key in enumerate(keys):
            try:
                if key is not None:
                    _check_json(key)  # otherwise `1,"x":2` would be a key
                objects.append(None if key is None else _PREFIX + key + b"}")
            except msgspec.DecodeError as error:
                errors[row] = f"not valid JSON: {error}"
                objects.append(None)
        return objects

    def collect_statistics(self, keys: pa.BinaryArray, headers: pa.ListArray | None = None) -> FieldStatistics:
        """See `KeyDecoder.collect_statistics`."""
        statistics = FieldStatistics()
        for value in self.decode(keys).json_keys:
            statistics.add_json_key(value)
        return statistics


def _insert_nulls(array: pa.Array, count: int, missing: Mapping[int, str]) -> pa.Array:
    """Return an array of `count` elements that is null in the `missing` rows, which `array` lacks."""
    if not missing:
        return array
    is_present = np.ones(count, bool)
    is_present[list(missing)] = False
    positions = np.where(is_present, np.cumsum(is_present) - 1, 0)
    return array.take(pa.array(positions, mask=~is_present))


def _get_key_field(table: pa.Schema) -> pa.Field | None:
    if KEY_VALUE not in table.names:
        return None
    stored = table.field(KEY_VALUE)
    metadata = stored.metadata or {}
    kept = {FORMAT_KEY: metadata[FORMAT_KEY]} if metadata.get(FORMAT_KEY) else None
    return pa.field(KEY_VALUE, restore_element_formats(stored.type, metadata), metadata=kept)
