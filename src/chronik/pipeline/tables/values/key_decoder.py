"""The decoder of a table's keys, which become one column. The bytes of each key are in a column of their own."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from chronik.pipeline.tables.layout import KEY_VALUE
from chronik.pipeline.tables.values.column_projection import Convert, compile_conversion
from chronik.pipeline.tables.values.framed_decoder import DecodedGroup, FramedDecoder
from chronik.pipeline.tables.values.sql_types import FORMAT_KEY, restore_element_formats
from chronik.pipeline.tables.values.table_schema import INFERRED
from chronik.pipeline.tables.values.written_types import WrittenTypes, plan_written_columns


class KeyDecoder:
    """A decoder of keys for one version of a table. Not thread-safe."""

    def __init__(self, table: pa.Schema, keys: FramedDecoder) -> None:
        self._table = table
        self._keys = keys
        self._target = _get_key_field(table)
        self._conversions: dict[str, Convert] = {}
        self._missing: dict[str, pa.Field] = {}
        """Types with fields that the column does not have."""

    def decode(
        self, keys: pa.BinaryArray, headers: pa.ListArray | None, errors: dict[int, str], written: WrittenTypes
    ) -> pa.Array | None:
        """Return the column of decoded keys, or None if the table does not have it yet.

        Parts of a key that do not fit the column's type are null. Reasons why keys cannot be decoded are added to
        `errors`, and types that the column cannot store to `written`.

        Raises:
            RegistryUnavailableError, RegistryRequestError, ConfigError: See `FramedDecoder.decode`.
        """
        found: dict[int, str] = {}
        arrays: list[pa.Array] = []
        order = np.full(len(keys), -1, np.int64)
        start = 0
        for decoded in self._keys.decode(keys, headers, found):
            if self._lacks_fields(decoded):
                written.keys[decoded.schema.zfill(12)] = decoded.written
            if self._target is None:
                continue
            arrays.append(self._get_conversion(decoded)(decoded.column.array).array)
            order[decoded.rows] = start + np.arange(len(decoded.rows))
            start += len(decoded.rows)
        errors.update({row: f"key: {message}" for row, message in found.items()})
        if self._target is None:
            return None
        if len(arrays) == 1 and start == len(keys):
            return arrays[0]
        order[order < 0] = start
        return pa.concat_arrays([*arrays, pa.nulls(1, self._target.type)]).take(pa.array(order))

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

    def collect_types(self, keys: pa.BinaryArray, headers: pa.ListArray | None) -> WrittenTypes:
        """Return the types of keys, ignoring those that cannot be decoded."""
        found = WrittenTypes()
        for decoded in self._keys.decode(keys, headers, {}):
            found.keys[decoded.schema.zfill(12)] = decoded.written
        return found


def _get_key_field(table: pa.Schema) -> pa.Field | None:
    if KEY_VALUE not in table.names:
        return None
    stored = table.field(KEY_VALUE)
    metadata = stored.metadata or {}
    kept = {FORMAT_KEY: metadata[FORMAT_KEY]} if metadata.get(FORMAT_KEY) else None
    return pa.field(KEY_VALUE, restore_element_formats(stored.type, metadata), metadata=kept)
