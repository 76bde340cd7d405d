"""The formats of a topic's keys and values, as far as its table depends on them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from chronik.errors import ConfigError
from chronik.formats.codec import ReferencedSchema, ValueFormat, WriterSchema


class DataFormat(StrEnum):
    """The format of the keys or values of a topic."""

    RAW = "raw"
    """Any bytes, which are not decoded."""
    JSON = "json"
    """JSON without a registered schema: values that are objects, or any keys."""
    AVRO = "avro"
    PROTOBUF = "protobuf"
    JSON_SCHEMA = "json-schema"

    @property
    def value_format(self) -> ValueFormat | None:
        """The format of the writer's schemas, or None for data without one."""
        return None if self in (DataFormat.RAW, DataFormat.JSON) else ValueFormat(self.value)


@dataclass(frozen=True, slots=True)
class RecordFormat:
    """The formats of the keys and values of a topic, which its table keeps."""

    value: DataFormat = DataFormat.JSON
    key: DataFormat = DataFormat.RAW
    value_schema: WriterSchema | None = None
    """The schema of values that do not name their schema; None for values that do."""
    key_schema: WriterSchema | None = None

    @property
    def is_typed(self) -> bool:
        """Whether values are decoded with the schemas of their writers."""
        return self.value.value_format is not None

    @property
    def has_typed_keys(self) -> bool:
        """Whether keys are decoded with the schemas of their writers."""
        return self.key.value_format is not None

    @property
    def has_decoded_keys(self) -> bool:
        """Whether keys are decoded, into a column of their own."""
        return self.key is not DataFormat.RAW

    @property
    def needs_registry(self) -> bool:
        """Whether keys or values name schemas that a registry has."""
        return (self.is_typed and self.value_schema is None) or (self.has_typed_keys and self.key_schema is None)

    def __str__(self) -> str:
        keys = f" with {self.key} keys" if self.has_decoded_keys else ""
        return f"{self.value}{keys}"


JSON_VALUES = RecordFormat()
"""The format of topics with JSON values, and of tables that were created before they stored a format."""


def format_writer_schema(schema: WriterSchema) -> str:
    """Return a schema as JSON text, which `parse_writer_schema` parses."""
    references = [{"name": each.name, "text": each.text} for each in schema.references]
    return json.dumps({"format": schema.format.value, "text": schema.text, "references": references})


def parse_writer_schema(text: str) -> WriterSchema:
    """Parse the JSON text that `format_writer_schema` returned."""
    document: dict[str, Any] = json.loads(text)
    references = tuple(ReferencedSchema(each["name"], each["text"]) for each in document["references"])
    return WriterSchema(ValueFormat(document["format"]), document["text"], references)


def check_record_format(format: RecordFormat) -> RecordFormat:
    """Return the format if a table can have it.

    Raises:
        ConfigError: It cannot.
    """
    if format.has_decoded_keys and format.value is DataFormat.RAW:
        raise ConfigError("keys are decoded only together with values: choose a format other than raw")
    for side, data_format, schema in (
        ("values", format.value, format.value_schema),
        ("keys", format.key, format.key_schema),
    ):
        if schema is not None and schema.format is not data_format.value_format:
            raise ConfigError(f"a schema of format {schema.format} was given for {side} of format {data_format}")
    return format
