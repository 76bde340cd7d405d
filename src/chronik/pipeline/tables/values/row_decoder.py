"""Records as rows of a decoded table or as dead-letter records.

Which of them a record becomes depends only on its bytes and on the table's schema, so reading a range again gives the
same result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from chronik.formats.decoded_size import decode_in_parts
from chronik.formats.registry_client import RegistrySettings
from chronik.pipeline.records.columns import RecordColumns
from chronik.pipeline.tables.layout import ERROR, HEADERS, KEY, KEY_VALUE, RESCUED, VALUE, system_columns
from chronik.pipeline.tables.partitioning import PARTITION_KEY, parse_partitioning
from chronik.pipeline.tables.values.data_format import JSON_VALUES, DataFormat, RecordFormat
from chronik.pipeline.tables.values.exact_json import decode_exact_json
from chronik.pipeline.tables.values.field_statistics import FieldStatistics, merge_statistics
from chronik.pipeline.tables.values.framed_decoder import FramedDecoder
from chronik.pipeline.tables.values.json_decoder import DecodedValues, JsonDecoder, UnknownField
from chronik.pipeline.tables.values.key_decoder import JsonKeyDecoder, KeyDecoder, TypedKeyDecoder
from chronik.pipeline.tables.values.table_schema import INFERRED, TableSchema
from chronik.pipeline.tables.values.typed_decoder import TypedDecoder, encode_form
from chronik.pipeline.tables.values.value_codecs import JsonValue
from chronik.pipeline.tables.values.written_types import WrittenTypes

DECODE_BATCH_ROWS: Final = 8192
"""Number of rows decoded at a time.

The Python objects are several times larger than the encoded values. Objects of this many rows fit into the CPU cache
and reuse the same memory.
"""


TYPED_BATCH_ROWS: Final = 65_536
"""Number of rows with typed values decoded at a time. They never become Python objects."""


class NewFields(NamedTuple):
    """Fields of records for which a table has no column."""

    json: Sequence[UnknownField] = ()
    written: WrittenTypes = WrittenTypes()
    """Types of writers that have them."""
    json_keys: Sequence[JsonValue] = ()
    """JSON keys, or parts of them, that the column of keys lacks."""

    def __bool__(self) -> bool:
        return bool(self.json or self.written or self.json_keys)


class DecodedRows(NamedTuple):
    """Records decoded for a table: its rows, the fields without a column, and dead-letter records."""

    rows: dict[str, pa.Array]
    """System columns and columns of the values, for `build_table_batch` with the table's schema."""
    unknown_fields: NewFields
    """Fields without a column, if columns are to be added for them."""
    misfits: Counter[str]
    """Number of values that did not fit, by column."""
    dead_letters: dict[str, pa.Array] | None
    """System columns and `_error` of dead-letter records for `build_table_batch`; None if there are none."""


class RowDecoder:
    """A decoder of records for one version of a table's schema. Not thread-safe."""

    def __init__(
        self,
        schema: TableSchema,
        table: pa.Schema,
        partition_by: Collection[str] = (),
        format: RecordFormat = JSON_VALUES,
        registry: RegistrySettings | None = None,
        *,
        stops_at_new_types: bool = False,
    ) -> None:
        """Create a decoder of records in `format`, with the schemas in `registry`.

        With `stops_at_new_types`, rows with typed values are incomplete if columns must be added for them.
        """
        self._json = self._typed = None
        self._batch_rows = DECODE_BATCH_ROWS
        value_format, key_format = format.value.value_format, format.key.value_format
        if value_format is None:
            self._json = JsonDecoder(schema, table, partition_by)
        else:
            values = FramedDecoder(value_format, format.value_schema, registry)
            self._typed = TypedDecoder(schema, table, partition_by, values)
            self._typed.stops_at_new_types = stops_at_new_types
            self._batch_rows = TYPED_BATCH_ROWS
        self._keys: KeyDecoder | None = None
        if format.key is DataFormat.JSON:
            self._keys = JsonKeyDecoder(table)
        elif key_format is not None:
            self._keys = TypedKeyDecoder(table, FramedDecoder(key_format, format.key_schema, registry, is_key=True))
        self._computed = [
            parse_partitioning(field.metadata[PARTITION_KEY].decode()).fields[0]
            for field in table
            if PARTITION_KEY in (field.metadata or {})
        ]

    def decode_records(self, partition: int, records: RecordColumns) -> Iterator[DecodedRows]:
        """Decode records in order, and yield the results in chunks. See `decode_rows`."""

        def decode(start: int, count: int) -> DecodedRows:
            return self.decode_rows(system_columns(partition, records.slice(start, count)))

        for start in range(0, len(records), self._batch_rows):
            yield from decode_in_parts(decode, start, min(self._batch_rows, len(records) - start))

    def decode_rows_in_parts(self, own: Mapping[str, pa.Array]) -> Iterator[DecodedRows]:
        """Decode the values of records, in parts if their values are large together. See `decode_rows`."""
        return _decode_in_parts(self.decode_rows, own)

    def decode_rows(self, own: Mapping[str, pa.Array]) -> DecodedRows:
        """Decode the values of records into table rows; `own` contains the records' system columns.

        Raises:
            RegistryUnavailableError, RegistryRequestError: A schema cannot be fetched.
            ConfigError: There is no registry, or a library is not installed.
            ColumnTooLargeError: The values of several records are too large. Decode them in parts.
        """
        if self._typed is not None:
            decoded = self._typed.decode(own[VALUE], own.get(HEADERS))
        else:
            assert self._json is not None
            decoded = self._json.decode(own[VALUE].to_pylist())
        return self._build_rows(own, self._add_keys(own, decoded))

    def decode_restored_rows(self, own: Mapping[str, pa.Array]) -> Iterator[DecodedRows]:
        """Decode JSON objects that `record_rebuild` has restored from rows of the table into rows again, in parts.

        `own` also contains the decoded keys and the names of schemas, which do not change.
        """
        return _decode_in_parts(self._decode_restored_rows, own)

    def _decode_restored_rows(self, own: Mapping[str, pa.Array]) -> DecodedRows:
        if self._typed is not None:
            # The JSON objects do not have the types of fields without a column.
            decoded = replace(self._typed.decode_forms(own[VALUE].to_pylist()), unknown_fields=[])
        else:
            assert self._json is not None
            decoded = self._json.decode(own[VALUE].to_pylist())
        return self._build_rows(own, decoded)

    def _add_keys(self, own: Mapping[str, pa.Array], decoded: DecodedValues) -> DecodedValues:
        """Add the decoded keys to the columns. A record with a key that cannot be decoded becomes an error."""
        if self._keys is None:
            return decoded
        found = self._keys.decode(own[KEY], own.get(HEADERS))
        decoded.written_types.keys.update(found.written_types)
        errors = {row: f"key: {message}" for row, message in found.errors.items()}
        keys, columns = found.column, decoded.columns
        if errors:
            rows = [row for row in range(len(own[VALUE])) if row not in decoded.errors]
            kept = pa.array([index for index, row in enumerate(rows) if row not in errors], pa.int64())
            columns = {name: array.take(kept) for name, array in columns.items()}
        errors = dict(sorted((errors | decoded.errors).items()))
        if keys is not None:
            if errors:
                keys = keys.take(pa.array([row for row in range(len(keys)) if row not in errors], pa.int64()))
            columns = {**columns, KEY_VALUE: keys}
        return replace(decoded, columns=columns, errors=errors, json_keys=found.json_keys)

    def _build_rows(self, own: Mapping[str, pa.Array], decoded: DecodedValues) -> DecodedRows:
        for field in self._computed:
            decoded.columns[field.column] = field.compute(decoded.columns[field.source])
        new_fields = NewFields(decoded.unknown_fields, decoded.written_types, decoded.json_keys)
        if not decoded.errors:
            return DecodedRows({**own, **decoded.columns}, new_fields, decoded.misfits, None)
        decodable = [row for row in range(len(own[VALUE])) if row not in decoded.errors]
        dead = _select_rows(own, list(decoded.errors)) | {ERROR: pa.array(decoded.errors.values(), pa.string())}
        rows = _select_rows(own, decodable) | decoded.columns
        return DecodedRows(rows, new_fields, decoded.misfits, dead)

    def iter_objects(self, own: Mapping[str, pa.Array]) -> Iterator[dict[str, Any] | None]:
        """Yield the JSON object of each record, as `record_rebuild` restores it; None for one without an object."""
        if self._typed is not None:
            for form in self._typed.iter_forms(own[VALUE], own.get(HEADERS)):
                yield None if form is None else decode_exact_json(encode_form(form))
            return
        for value in own[VALUE].to_pylist():
            try:
                found = {} if value is None else decode_exact_json(value)
            except (msgspec.DecodeError, UnicodeError):
                found = None
            yield found

    def collect_statistics(self, records: RecordColumns) -> FieldStatistics:
        """Return the types of all fields in a sample of records, ignoring those that cannot be decoded.

        Raises:
            RegistryUnavailableError, RegistryRequestError, ConfigError: See `decode_rows`.
        """
        assert records.value is not None, "values are read"
        found = FieldStatistics() if self._typed is not None else infer_statistics(records.value.to_pylist())
        if self._typed is not None:
            found.add_written_types(self._typed.collect_types(records.value, records.headers))
        if self._keys is not None:
            assert records.key is not None, "keys are read"
            found.merge(self._keys.collect_statistics(records.key, records.headers))
        return found


def _decode_in_parts(
    decode: Callable[[Mapping[str, pa.Array]], DecodedRows], own: Mapping[str, pa.Array]
) -> Iterator[DecodedRows]:
    def decode_part(start: int, count: int) -> DecodedRows:
        return decode({name: values.slice(start, count) for name, values in own.items()})

    return decode_in_parts(decode_part, 0, len(own[VALUE]))


def _select_rows(columns: Mapping[str, pa.Array], rows: list[int]) -> dict[str, pa.Array]:
    indices = pa.array(rows, pa.int64())
    return {name: values.take(indices) for name, values in columns.items()}


def collect_statistics(new_fields: NewFields | Sequence[UnknownField]) -> FieldStatistics:
    """Return the statistics of the fields for which the table has no column."""
    if not isinstance(new_fields, NewFields):
        new_fields = NewFields(new_fields)
    statistics = FieldStatistics()
    for path, value in new_fields.json:
        statistics.add_nested_value(path, value)
    statistics.add_written_types(new_fields.written)
    for value in new_fields.json_keys:
        statistics.add_json_key(value)
    return statistics


def infer_statistics(values: Sequence[bytes | None]) -> FieldStatistics:
    """Count the types of all JSON fields in a sample of values, ignoring values that cannot be decoded."""
    decoder = JsonDecoder(INFERRED, pa.schema([pa.field(RESCUED, pa.string())]))
    return collect_statistics(decoder.decode(values).unknown_fields)


def infer_record_statistics(decoder: RowDecoder, records: Iterable[RecordColumns]) -> FieldStatistics:
    """Return the types of all fields in a sample of records, ignoring those that cannot be decoded."""
    return merge_statistics(chain.from_iterable(_iter_statistics(decoder, each) for each in records))


def _iter_statistics(decoder: RowDecoder, records: RecordColumns) -> Iterator[FieldStatistics]:
    return decode_in_parts(
        lambda start, count: decoder.collect_statistics(records.slice(start, count)), 0, len(records)
    )
