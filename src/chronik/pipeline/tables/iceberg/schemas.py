"""Schemas and partition specs of Iceberg tables, and their conversion to and from Arrow.

The Arrow schema of a table has the field ids, which the writer stores in data files, and the partition columns of
hidden partitioning (`_date`, `_at_day`), which only Chronik's readers see. Iceberg has no metadata of fields: the paths
and settings of columns are in a table property.

The column `_partition` is `_kafka_partition` in Iceberg schemas, because Spark's Iceberg runtime rejects queries that
read a column with the reserved name. The Arrow schema and Chronik's data files have the name `_partition`: engines find
the columns of data files by field id. Tables of earlier versions have `_partition` until the schema changes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from itertools import count
from typing import Any, Final

import pyarrow as pa
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import BucketTransform, DayTransform, HourTransform, IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from chronik.errors import ConfigError
from chronik.pipeline.tables.layout import (
    DATE,
    HOUR,
    ICEBERG_PARTITION,
    OFFSET,
    PARTITION,
    TIMESTAMP,
    VALUE_CRC32C,
)
from chronik.pipeline.tables.parquet import FIELD_ID_KEY
from chronik.pipeline.tables.partitioning import PartitionField as PartitionedBy
from chronik.pipeline.tables.partitioning import Partitioning, PartitionTransform
from chronik.pipeline.tables.values.table_schema import COMMENT_KEY

COLUMNS_PROPERTY: Final = "chronik.columns"
"""Table property with the metadata of columns and nested fields, as a JSON object by path, such as `customer.name`.

They are not stored by field id, because a catalog may assign other ids when it creates the table.
"""

EPOCH: Final = date(1970, 1, 1)

_TYPES: Final[tuple[tuple[pa.DataType, IcebergType], ...]] = (
    (pa.bool_(), BooleanType()),
    (pa.int32(), IntegerType()),
    (pa.int64(), LongType()),
    (pa.float32(), FloatType()),
    (pa.float64(), DoubleType()),
    (pa.date32(), DateType()),
    (pa.timestamp("us", tz="UTC"), TimestamptzType()),
    (pa.timestamp("us"), TimestampType()),
    (pa.string(), StringType()),
    (pa.large_string(), StringType()),
    (pa.binary(), BinaryType()),
    (pa.large_binary(), BinaryType()),
)
"""The types without parameters; the first Arrow type of an Iceberg type is that of its columns."""

ColumnMetadata = dict[str, dict[str, str]]
"""Metadata of columns and nested fields, by path. Names of columns contain no dots."""


# Schemas


def build_schema(
    fields: Iterable[pa.Field], known: Schema | None = None, schema_id: int = 0, last_id: int = 0
) -> Schema:
    """Return the Iceberg schema of Arrow fields. Those that the known schema has keep their ids.

    `last_id` is the highest field id that the table has ever used.

    Raises:
        ConfigError: Iceberg has no such type.
    """
    fields, ids = list(fields), count(last_id + 1)
    old = {} if known is None else {to_column_name(field.name, known): field for field in known.fields}
    is_renamed = ICEBERG_PARTITION not in {field.name for field in fields}
    return Schema(
        *(
            _build_field(
                field.with_name(ICEBERG_PARTITION) if is_renamed and field.name == PARTITION else field,
                old.get(field.name),
                lambda: next(ids),
            )
            for field in fields
        ),
        schema_id=schema_id,
    )


def to_column_name(name: str, schema: Schema) -> str:
    """Return the name that a column of an Iceberg schema has in Chronik.

    A table of an earlier version may have both names, one of them for a field of the values.
    """
    return PARTITION if name == ICEBERG_PARTITION and has_iceberg_names(schema) else name


def has_iceberg_names(schema: Schema) -> bool:
    """Return whether the partition of records has another name in a schema than in Chronik's data files."""
    names = {field.name for field in schema.fields}
    return ICEBERG_PARTITION in names and PARTITION not in names


def is_upgradable(schema: Schema) -> bool:
    """Return whether the partition of records has the name of earlier versions, and can be renamed."""
    names = {field.name for field in schema.fields}
    return PARTITION in names and ICEBERG_PARTITION not in names


def get_partition_field(schema: Schema) -> NestedField:
    """Return the column with the partitions of records."""
    return schema.find_field(ICEBERG_PARTITION if has_iceberg_names(schema) else PARTITION)


def select_columns(known: Schema, metadata: ColumnMetadata, fields: Iterable[pa.Field]) -> Schema:
    """Return the columns of a schema that have the same names and types as Arrow fields."""
    types = {field.name: field.type for field in fields}
    arrow = to_arrow_fields(known, metadata)
    return Schema(
        *(
            field
            for field, each in zip(known.fields, arrow, strict=True)
            if each.name in types and each.type == types[each.name]
        )
    )


def find_schema(schemas: Iterable[Schema], fields: Iterable[pa.Field]) -> Schema | None:
    """Return the schema with exactly these columns, which have field ids, or None if there is none.

    Schemas with the column names of earlier versions are ignored, so that none of them becomes the current one again.
    """
    wanted = pa.schema(fields)
    metadata = collect_metadata(wanted)
    return next(
        (
            each
            for each in schemas
            if not is_upgradable(each)
            and pa.schema(to_arrow_fields(each, metadata)).equals(wanted, check_metadata=True)
        ),
        None,
    )


def _build_field(field: pa.Field, known: NestedField | None, new_id: Callable[[], int]) -> NestedField:
    comment = (field.metadata or {}).get(COMMENT_KEY)
    return NestedField(
        field_id=new_id() if known is None else known.field_id,
        name=field.name,
        field_type=_build_type(field.name, field.type, None if known is None else known.field_type, new_id),
        required=False,
        doc=comment.decode() if comment else None,
    )


def _build_type(name: str, data_type: pa.DataType, known: Any, new_id: Callable[[], int]) -> IcebergType:
    if pa.types.is_struct(data_type):
        old = {field.name: field for field in known.fields} if isinstance(known, StructType) else {}
        return StructType(*(_build_field(each, old.get(each.name), new_id) for each in data_type))
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        is_known = isinstance(known, ListType)
        element_id = known.element_id if is_known else new_id()
        old_element = known.element_type if is_known else None
        element = _build_type(name, data_type.value_type, old_element, new_id)
        return ListType(element_id=element_id, element_type=element, element_required=False)
    if pa.types.is_map(data_type):
        is_known = isinstance(known, MapType)
        key_id, value_id = (known.key_id, known.value_id) if is_known else (new_id(), new_id())
        return MapType(
            key_id=key_id,
            key_type=_build_type(name, data_type.key_type, known.key_type if is_known else None, new_id),
            value_id=value_id,
            value_type=_build_type(name, data_type.item_type, known.value_type if is_known else None, new_id),
            value_required=False,
        )
    if pa.types.is_decimal(data_type):
        return DecimalType(data_type.precision, data_type.scale)
    found = next((iceberg for arrow, iceberg in _TYPES if arrow == data_type), None)
    if found is None:
        raise ConfigError(f"column {name!r}: Iceberg tables have no type {data_type}: declare another one, such as int")
    return found


def to_arrow_fields(schema: Schema, metadata: ColumnMetadata) -> list[pa.Field]:
    """Return the Arrow fields of the columns, with their field ids and their metadata."""
    return [_to_arrow_field(field, metadata, to_column_name(field.name, schema)) for field in schema.fields]


def _to_arrow_field(field: NestedField, metadata: ColumnMetadata, path: str) -> pa.Field:
    entries = {key.encode(): value.encode() for key, value in metadata.get(path, {}).items()}
    return pa.field(
        path.rpartition(".")[2],
        _to_arrow_type(field.field_type, metadata, path),
        metadata={FIELD_ID_KEY: str(field.field_id).encode(), **entries},
    )


def _to_arrow_type(data_type: IcebergType, metadata: ColumnMetadata, path: str) -> pa.DataType:
    if isinstance(data_type, StructType):
        return pa.struct([_to_arrow_field(field, metadata, f"{path}.{field.name}") for field in data_type.fields])
    if isinstance(data_type, ListType):
        return pa.list_(_to_arrow_field(data_type.element_field, metadata, f"{path}.element"))
    if isinstance(data_type, MapType):
        key = _to_arrow_field(data_type.key_field, metadata, f"{path}.key").with_nullable(False)
        return pa.map_(key, _to_arrow_field(data_type.value_field, metadata, f"{path}.value"))
    if isinstance(data_type, DecimalType):
        return pa.decimal128(data_type.precision, data_type.scale)
    return next((arrow for arrow, iceberg in _TYPES if iceberg == data_type), pa.null())


def is_supported(data_type: IcebergType) -> bool:
    """Return whether Chronik can read and write values of a type."""
    if isinstance(data_type, StructType):
        return all(is_supported(field.field_type) for field in data_type.fields)
    if isinstance(data_type, ListType):
        return is_supported(data_type.element_type)
    if isinstance(data_type, MapType):
        return is_supported(data_type.key_type) and is_supported(data_type.value_type)
    return isinstance(data_type, DecimalType) or any(data_type == iceberg for _, iceberg in _TYPES)


def collect_metadata(fields: Iterable[pa.Field]) -> ColumnMetadata:
    """Return the metadata of Arrow fields and their nested fields, by path."""
    found: ColumnMetadata = {}
    for field in fields:
        _collect_metadata(field, field.name, found)
    return found


def _collect_metadata(field: pa.Field, path: str, found: ColumnMetadata) -> None:
    entries = {key.decode(): value.decode() for key, value in (field.metadata or {}).items() if key != FIELD_ID_KEY}
    if entries:
        found[path] = entries
    _collect_type_metadata(field.type, path, found)


def _collect_type_metadata(data_type: pa.DataType, path: str, found: ColumnMetadata) -> None:
    if pa.types.is_struct(data_type):
        for each in data_type:
            _collect_metadata(each, f"{path}.{each.name}", found)
    elif pa.types.is_list(data_type):
        _collect_type_metadata(data_type.value_type, f"{path}.element", found)
    elif pa.types.is_map(data_type):
        _collect_type_metadata(data_type.item_type, f"{path}.value", found)


def encode_metadata(metadata: ColumnMetadata) -> dict[str, str]:
    """Return the table property that stores the metadata of columns."""
    return {COLUMNS_PROPERTY: json.dumps(metadata, separators=(",", ":"))}


def decode_metadata(properties: Mapping[str, str]) -> ColumnMetadata:
    """Return the metadata of columns that a table property stores."""
    found: ColumnMetadata = json.loads(properties.get(COLUMNS_PROPERTY, "{}"))
    return found


# Hidden partitioning


def list_hidden_fields(partitioning: Partitioning) -> list[pa.Field]:
    """Return the partition columns that Iceberg computes, and that its tables and data files therefore do not have."""
    system = [pa.field(DATE, pa.date32())] * partitioning.by_date + [pa.field(HOUR, pa.int32())] * partitioning.by_hour
    return [*system, *partitioning.computed_fields()]


def insert_hidden_fields(fields: Iterable[pa.Field], partitioning: Partitioning) -> pa.Schema:
    """Return the schema with which rows are decoded, written and read: with the hidden partition columns."""
    hidden = list_hidden_fields(partitioning)
    found: list[pa.Field] = []
    for field in fields:
        found.append(field)
        if field.name == VALUE_CRC32C:
            found += [each for each in hidden if each.name in (DATE, HOUR)]
    return pa.schema([*found, *(each for each in hidden if each.name not in (DATE, HOUR))])


def exclude_hidden_fields(fields: Iterable[pa.Field], partitioning: Partitioning) -> list[pa.Field]:
    """Return the fields of a table without the hidden partition columns."""
    hidden = {field.name for field in list_hidden_fields(partitioning)}
    return [field for field in fields if field.name not in hidden]


def build_partition_spec(partitioning: Partitioning, schema: Schema) -> PartitionSpec:
    """Return the Iceberg partition spec: transforms of `_timestamp` and of columns of the values."""
    ids = count(PARTITION_FIELD_ID_START)
    fields = []

    def add(source: str, transform: Any, name: str) -> None:
        source_id = schema.find_field(source).field_id
        fields.append(PartitionField(source_id=source_id, field_id=next(ids), transform=transform, name=name))

    if partitioning.by_hour:
        add(TIMESTAMP, HourTransform(), HOUR)
    elif partitioning.by_date:
        add(TIMESTAMP, DayTransform(), DATE)
    for each in partitioning.fields:
        add(each.source, _build_transform(each), each.column)
    return PartitionSpec(*fields)


def _build_transform(field: PartitionedBy) -> Any:
    if field.transform is PartitionTransform.BUCKET:
        return BucketTransform(field.buckets)
    return {
        PartitionTransform.IDENTITY: IdentityTransform,
        PartitionTransform.DAY: DayTransform,
        PartitionTransform.HOUR: HourTransform,
    }[field.transform]()


def build_sort_order(schema: Schema) -> SortOrder:
    """Return the order in which landing writes rows: by partition and offset."""
    return SortOrder(
        *(
            SortField(source_id=field.field_id, transform=IdentityTransform())
            for field in (get_partition_field(schema), schema.find_field(OFFSET))
        )
    )


def to_partition_record(partitioning: Partitioning, values: Mapping[str, str | None], schema: Schema) -> Record:
    """Return the partition values of a written file, as Iceberg stores them."""
    found: list[Any] = []
    day, hour = values.get(DATE), values.get(HOUR)
    if partitioning.by_hour:
        found.append(None if day is None or hour is None else _parse_day(day) * 24 + int(hour))
    elif partitioning.by_date:
        found.append(None if day is None else _parse_day(day))
    for each in partitioning.fields:
        text = values[each.column]
        if text is None:
            found.append(None)
        elif each.transform is PartitionTransform.DAY:
            found.append(_parse_day(text))
        elif each.transform is PartitionTransform.HOUR:
            date_text, _, hour_text = text.rpartition("-")
            found.append(_parse_day(date_text) * 24 + int(hour_text))
        elif each.transform is PartitionTransform.BUCKET:
            found.append(int(text))
        else:
            found.append(_parse_identity(text, schema.find_field(each.source).field_type))
    return Record(*found)


def from_partition_record(partitioning: Partitioning, record: Record, schema: Schema) -> tuple[Any, ...]:
    """Return the values of the partition columns, as the other way round."""
    stored = iter(record[index] for index in range(len(record)))
    found: list[Any] = []
    if partitioning.by_hour:
        hours = next(stored)
        found += [None, None] if hours is None else [_to_date(hours // 24), hours % 24]
    elif partitioning.by_date:
        days = next(stored)
        found.append(None if days is None else _to_date(days))
    for each in partitioning.fields:
        value = next(stored)
        if value is None or each.transform is PartitionTransform.BUCKET:
            found.append(value)
        elif each.transform is PartitionTransform.DAY:
            found.append(_to_date(value))
        elif each.transform is PartitionTransform.HOUR:
            time = datetime.fromtimestamp(0, UTC) + timedelta(hours=value)
            found.append(f"{time:%Y-%m-%d-%H}")
        else:
            is_date = isinstance(schema.find_field(each.source).field_type, DateType)
            found.append(_to_date(value) if is_date and isinstance(value, int) else value)
    return tuple(found)


def _parse_day(text: str) -> int:
    return (date.fromisoformat(text) - EPOCH).days


def _to_date(days: int | date) -> date:
    return days if isinstance(days, date) else EPOCH + timedelta(days=days)


def _parse_identity(text: str, data_type: IcebergType) -> Any:
    if isinstance(data_type, IntegerType | LongType):
        return int(text)
    if isinstance(data_type, BooleanType):
        return text == "true"
    return _parse_day(text) if isinstance(data_type, DateType) else text
