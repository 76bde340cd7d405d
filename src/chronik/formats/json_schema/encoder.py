"""The encoder of JSON values that have a JSON Schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from chronik.formats.codec import JsonForm, WriterSchema, encode_json
from chronik.formats.encoding import UnencodableValueError
from chronik.formats.json_schema.bundle import SchemaBundle
from chronik.formats.json_schema.type_derivation import derive_type
from chronik.formats.json_schema.validation import NESTING_MAX, JsonSchemaValidator, is_nested_too_deep
from chronik.formats.json_schema.value_types import WritingMode

if TYPE_CHECKING:
    import pyarrow as pa


class JsonSchemaEncoder:
    """An encoder of values with a JSON Schema. See `ValueEncoder`.

    Every value is validated. A property that is null is omitted if it is not required, unless the value is valid only
    with it.
    """

    message_indexes: tuple[int, ...] = ()

    def __init__(self, schema: WriterSchema) -> None:
        """Compile a schema.

        Raises:
            UnsupportedSchemaError: The schema is invalid or too complex, or has regular expressions with lookaround.
            ConfigError: jsonschema-rs is not installed.
        """
        bundle = SchemaBundle(schema)
        self._validator = JsonSchemaValidator(bundle)
        self._type = derive_type(bundle)

    def encode_value(self, value: JsonForm) -> bytes:
        """Encode a value in its JSON form as a payload. See `ValueEncoder`."""
        if is_nested_too_deep(value):
            raise UnencodableValueError(f"lists and objects are nested more than {NESTING_MAX} deep")
        return self._encode(value, is_arrow=False)

    def encode_column(self, column: pa.Array) -> list[bytes | None]:
        """Encode the elements of an Arrow array as payloads. See `ValueEncoder`."""
        encoded: list[bytes | None] = []
        for index, value in enumerate(column.to_pylist()):
            try:
                encoded.append(None if value is None else self._encode(value, is_arrow=True))
            except UnencodableValueError as error:
                error.path.append(f"[{index}]")
                raise
        return encoded

    def _encode(self, value: Any, *, is_arrow: bool) -> bytes:
        payload, problem = self._write(value, WritingMode(is_arrow))
        if problem is None:
            return payload
        payload, other_problem = self._write(value, WritingMode(is_arrow, keeps_null=True))
        if other_problem is None:
            return payload
        raise UnencodableValueError(problem)

    def _write(self, value: Any, mode: WritingMode) -> tuple[bytes, str | None]:
        """Return a payload, and why it is not valid."""
        converted = None if value is None else self._type.to_json(value, mode)
        try:
            payload = encode_json(converted)
        except (RecursionError, UnicodeEncodeError) as error:
            raise UnencodableValueError(f"not valid JSON: {error}") from None
        return payload, self._validator.find_problem(converted, len(payload))
