"""Derivation of Avro schemas from Arrow types, for rows that are written without a given schema."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import pyarrow as pa

from chronik.formats.codec import UnsupportedSchemaError

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OTHER_CHARACTERS: Final = re.compile(r"[^A-Za-z0-9_]+")


def derive_avro_schema(data_type: pa.DataType, name: str) -> str:
    """Return the text of the Avro schema for values of a type, which are not null.

    `name` is the name of the record; characters that Avro does not allow become underscores. Nested records have the
    names of their fields appended. Nullable fields become unions with null, with null as default.

    Raises:
        UnsupportedSchemaError: Avro has no such type, or does not allow the name of a field.
    """
    record_name = _OTHER_CHARACTERS.sub("_", name)
    if not _NAME.fullmatch(record_name):
        record_name = f"_{record_name}"
    return json.dumps(_derive(data_type, record_name))


def _derive(data_type: pa.DataType, name: str) -> Any:
    is_a = pa.types
    if is_a.is_struct(data_type):
        return {"type": "record", "name": name, "fields": [_derive_field(field, name) for field in data_type]}
    if is_a.is_list(data_type):
        return {"type": "array", "items": _derive_element(data_type.value_field, name)}
    if is_a.is_map(data_type) and is_a.is_string(data_type.key_type):
        return {"type": "map", "values": _derive_element(data_type.item_field, name)}
    if is_a.is_decimal(data_type):
        return {
            "type": "bytes",
            "logicalType": "decimal",
            "precision": data_type.precision,
            "scale": data_type.scale,
        }
    if is_a.is_timestamp(data_type) and data_type.unit == "us":
        prefix = "timestamp" if data_type.tz else "local-timestamp"
        return {"type": "long", "logicalType": f"{prefix}-micros"}
    if data_type in _TYPES:
        return _TYPES[data_type]
    raise UnsupportedSchemaError(f"Avro has no type for {data_type}")


_TYPES: Final[dict[pa.DataType, Any]] = {
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
}


def _derive_field(field: pa.Field, record: str) -> dict[str, Any]:
    if not _NAME.fullmatch(field.name):
        raise UnsupportedSchemaError(f"Avro does not allow the field name {field.name!r}")
    derived = _derive(field.type, f"{record}_{field.name}")
    if field.nullable:
        return {"name": field.name, "type": ["null", derived], "default": None}
    return {"name": field.name, "type": derived}


def _derive_element(field: pa.Field, name: str) -> Any:
    derived = _derive(field.type, f"{name}_{field.name}")
    return ["null", derived] if field.nullable else derived
