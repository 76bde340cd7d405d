"""The decoder of JSON values that have a JSON Schema."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

from chronik.formats.codec import DecodedColumn, JsonForm, UndecodableValueError, WriterSchema
from chronik.formats.decoded_size import VALUE_BYTES_PER_BYTE_MAX, ColumnBudget, ValueBudget
from chronik.formats.json_schema.bundle import SchemaBundle
from chronik.formats.json_schema.type_derivation import derive_type
from chronik.formats.json_schema.validation import JsonSchemaValidator
from chronik.formats.json_schema.values import JsonValue, decode_value, decode_values

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK_PAYLOADS: Final = 1024
"""Payloads that are decoded at the same time. Their Python objects stay in the processor's cache."""

CHUNK_BYTES: Final = 64 * 1024 * 1024
"""Maximum bytes of payloads that are decoded at the same time, unless a single one is larger."""

SMALL_ELEMENT_BYTES: Final = VALUE_BYTES_PER_BYTE_MAX
"""Elements of lists and maps up to this size need no limit: each takes at least one byte of the payload."""

UNMEASURED_BYTES_MAX: Final = 1024 * 1024
"""Maximum bytes of the elements of lists and maps in a chunk that are not counted."""

BRACKETS_MAX: Final = 200
"""Maximum brackets in a payload whose nesting is not checked. They could nest no deeper than is allowed."""


class JsonSchemaDecoder:
    """A decoder of values with a JSON Schema. See `ValueDecoder`.

    Every value is validated. Columns store types as follows, in addition to `codec`:

    | JSON Schema                                                 | column type                                |
    |-------------------------------------------------------------|--------------------------------------------|
    | integer                                                     | int64                                      |
    | number                                                      | float64                                    |
    | string, also with an unknown format, enum of strings        | string                                     |
    | string, format `date`                                       | date32                                     |
    | string, format `date-time`                                  | timestamp(us, UTC)                         |
    | string, `contentEncoding: base64` or format `byte`          | binary                                     |
    | array with `items`                                          | list                                       |
    | object with `properties`                                    | struct                                     |
    | object with `additionalProperties` or `patternProperties`   | map                                        |
    | a type and null                                             | the type                                   |
    | `allOf`                                                     | the combination                            |
    | `anyOf` or `oneOf` of objects                               | struct with the properties of all          |
    | `anyOf` or `oneOf` of the same types                        | the type                                   |
    | any other value, an object within itself                    | JSON text                                  |
    | Kafka Connect's Decimal, Date and Timestamp                 | decimal128, date32, timestamp(us, UTC)     |

    A schema accepts values that its column cannot store, such as properties that it does not list, integers beyond 64
    bits, numbers that a float64 rounds, or a date with a month 13. They are leftovers.
    """

    def __init__(self, schema: WriterSchema) -> None:
        """Compile a schema.

        Raises:
            UnsupportedSchemaError: The schema is invalid or too complex, or has regular expressions with lookaround.
            ConfigError: jsonschema-rs is not installed.
        """
        bundle = SchemaBundle(schema)
        self._validator = JsonSchemaValidator(bundle)
        self._type = derive_type(bundle)

    @cached_property
    def arrow_field(self) -> pa.Field:
        """The Arrow type of the payloads. See `ValueDecoder`."""
        return self._type.build_field("value")

    def decode_value(self, payload: bytes) -> JsonForm:
        """Decode one payload to its JSON form. See `ValueDecoder`."""
        value = decode_value(payload)
        problem = self._validator.find_problem(value, len(payload))
        if problem is not None:
            raise UndecodableValueError(problem)
        budget = ValueBudget()
        budget.reset(len(payload))
        if self._bound_size(payload) > budget.left:
            budget.take(self._type.measure(value))
        return self._type.to_form(value)

    def _bound_size(self, payload: bytes) -> int:
        """Return a size that a decoded value does not exceed; 0 if it is small for its payload."""
        element_bytes = self._type.element_bytes
        if element_bytes <= SMALL_ELEMENT_BYTES:
            return 0
        return element_bytes * (payload.count(b",") + payload.count(b"[") + payload.count(b"{"))

    def decode_column(self, payloads: pa.BinaryArray) -> DecodedColumn:
        """Decode payloads to an Arrow array. See `ValueDecoder`."""
        import pyarrow as pa

        arrays: list[pa.Array] = []
        errors: dict[int, str] = {}
        leftovers: dict[int, JsonForm] = {}
        budget = ColumnBudget(len(payloads))
        start = 0
        while start < len(payloads):
            chunk = payloads.slice(start, CHUNK_PAYLOADS)
            while len(chunk) > 1 and chunk.nbytes > CHUNK_BYTES:
                chunk = chunk.slice(0, len(chunk) // 2)
            texts = chunk.to_pylist()
            values, problems = self._read_values(texts)
            self._limit_sizes(texts, values, problems, budget)
            built = self._type.build(values)
            arrays.append(built.array)
            errors.update((start + index, problem) for index, problem in problems.items())
            leftovers.update((start + index, form) for index, form in built.leftovers.items())
            start += len(chunk)
        array = pa.concat_arrays(arrays) if arrays else pa.nulls(0, self.arrow_field.type)
        return DecodedColumn(array, errors, leftovers)

    def _limit_sizes(
        self, payloads: list[bytes], values: list[JsonValue], problems: dict[int, str], budget: ColumnBudget
    ) -> None:
        """Replace values that are too large by None, and add the problems.

        Raises:
            ColumnTooLargeError: See `ColumnBudget.take`.
        """
        budget.take(self._type.slot_bytes * len(payloads))
        if sum(map(self._bound_size, payloads)) <= UNMEASURED_BYTES_MAX:
            return
        size = ValueBudget()
        for index, (payload, value) in enumerate(zip(payloads, values, strict=True)):
            size.reset(len(payload))
            try:
                size.take(self._type.measure(value))
                budget.take(size.used)
            except UndecodableValueError as error:
                values[index] = None
                problems[index] = str(error)

    def _read_values(self, payloads: list[bytes]) -> tuple[list[JsonValue], dict[int, str]]:
        """Decode and validate payloads. Return the values, with None for errors, and the error messages by index."""
        values, errors = decode_values(payloads)
        validator = self._validator
        longest = max(map(len, payloads))
        is_simple = validator.is_affordable(longest) and not (
            longest > BRACKETS_MAX and any(map(_may_be_deep, payloads))
        )
        valid = map(validator.is_valid, values) if is_simple else [False] * len(values)
        for index, is_valid in enumerate(valid):
            if not is_valid and index not in errors:
                problem = validator.find_problem(values[index], len(payloads[index]))
                if problem is not None:
                    errors[index] = problem
        for index in errors:
            values[index] = None
        return values, errors


def _may_be_deep(payload: bytes) -> bool:
    return len(payload) > BRACKETS_MAX and payload.count(b"{") + payload.count(b"[") > BRACKETS_MAX
