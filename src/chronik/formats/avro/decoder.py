"""The decoder of Avro values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from chronik.formats.avro.layout import has_empty_values, parse_writer_schema, plan_layout
from chronik.formats.avro.schema import AvroRecord, Type, break_cycles, iter_types
from chronik.formats.avro.values import ArrowCompiler, FormCompiler, Leftover, Read, read_payload
from chronik.formats.codec import DecodedColumn, JsonForm, UndecodableValueError, WriterSchema
from chronik.formats.decoded_size import ColumnBudget, ValueBudget

if TYPE_CHECKING:
    import pyarrow as pa

    from chronik.formats.avro.columns import ColumnDecoder

CHUNK_PAYLOADS: Final = 32 * 1024
"""Payloads that are decoded at the same time. Their intermediate results stay in the processor's cache."""

CHUNK_BYTES: Final = 256 * 1024 * 1024
"""Maximum bytes of payloads that are decoded at the same time; positions have 32 bits."""

COLUMN_PAYLOADS_MIN: Final = 48
"""Minimum payloads for decoding with NumPy. Fewer are decoded faster one by one."""

OBJECTS_PAYLOADS: Final = 256
"""Payloads of which there are Python objects at the same time. These are several times as large as the values."""


class AvroDecoder:
    """A decoder of values with an Avro schema. See `ValueDecoder`.

    Columns store types as follows, in addition to `codec`:

    | Avro type                                | column type                                                      |
    |------------------------------------------|------------------------------------------------------------------|
    | union of null and one type               | the other type                                                   |
    | another union, a record within itself    | JSON text                                                        |
    | null, a record without fields            | JSON text                                                        |
    | decimal with a precision of more than 38 | JSON text                                                        |
    | enum, uuid                               | string                                                           |
    | fixed                                    | binary                                                           |
    | duration                                 | struct of int64 `months`, `days`, `milliseconds`                 |
    | time-millis, time-micros                 | string such as `08:30:00`, with 0, 3 or 6 fractional digits      |
    | (local-)timestamp-nanos                  | string such as `2026-11-19T08:30:00.000000001Z`, with all digits |

    The value of a union is the value of its branch. It has a tag with the name of the branch, as in `{"Order": {}}`, if
    another branch has the same JSON type, unless both are numbers.
    """

    def __init__(self, schema: WriterSchema) -> None:
        """Compile a schema.

        Raises:
            UnsupportedSchemaError: The schema is invalid or nested too deeply.
        """
        self._forms = FormCompiler()
        self._types: list[Type] = []
        self._type, references = parse_writer_schema(schema)
        self._types += (self._type, *references)
        self._layout = plan_layout(self._type, references)
        self._has_empty_values = has_empty_values(self._type)
        self._read_form = self._forms.compile(self._type)
        self._field: pa.Field | None = None
        self._read_arrow: Read | None = None
        self._columns: ColumnDecoder | None = None
        self._value_budget = ValueBudget()

    def __del__(self) -> None:
        # Decoders of recursive types are reference cycles, which the garbage collector does not find if a node has
        # frozen them while they were in use: see `chronik.node.memory_tuning`.
        self._forms.break_cycles()
        for root in self._types:
            break_cycles([each for each in iter_types(root) if isinstance(each, AvroRecord)])

    @property
    def arrow_field(self) -> pa.Field:
        """The Arrow type of the payloads. See `ValueDecoder`.

        Raises:
            UnsupportedSchemaError: The schema describes too many columns.
        """
        if self._field is None:
            from chronik.formats.avro.columns import build_value_field

            self._field = build_value_field(self._layout)
        return self._field

    def decode_value(self, payload: bytes) -> JsonForm:
        """Decode one payload to its JSON form. See `ValueDecoder`."""
        return read_payload(self._read_form, payload)

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
            decoded = self._decode_chunk(chunk, budget)
            arrays.append(decoded.array)
            errors.update((start + index, error) for index, error in decoded.errors.items())
            leftovers.update((start + index, form) for index, form in decoded.leftovers.items())
            start += len(chunk)
        arrow_type = self.arrow_field.type
        array = arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays) if arrays else pa.nulls(0, arrow_type)
        return DecodedColumn(array, errors, leftovers)

    def _decode_chunk(self, payloads: pa.BinaryArray, budget: ColumnBudget) -> DecodedColumn:
        import numpy as np
        import pyarrow as pa

        arrow_type = self.arrow_field.type
        if len(payloads) < COLUMN_PAYLOADS_MIN or payloads.nbytes > CHUNK_BYTES or self._has_empty_values:
            return self._decode_one_by_one(payloads, budget)
        if self._columns is None:
            from chronik.formats.avro.columns import ColumnDecoder

            self._columns = ColumnDecoder(self._layout, arrow_type, self._forms)
        array, marked = self._columns.decode(payloads, budget)
        if not len(marked):
            return DecodedColumn(array, {}, {})
        others = self._decode_one_by_one(payloads.take(pa.array(marked)), budget)
        order = np.arange(len(payloads))
        order[marked] = len(payloads) + np.arange(len(marked))
        array = pa.concat_arrays([array, others.array]).take(pa.array(order))
        errors = {int(marked[index]): error for index, error in others.errors.items()}
        leftovers = {int(marked[index]): form for index, form in others.leftovers.items()}
        return DecodedColumn(array, errors, leftovers)

    def _decode_one_by_one(self, payloads: pa.BinaryArray, budget: ColumnBudget) -> DecodedColumn:
        import pyarrow as pa

        if self._read_arrow is None:
            self._read_arrow = ArrowCompiler(self._forms, self._value_budget).compile(self._layout)
        arrays: list[pa.Array] = []
        errors: dict[int, str] = {}
        leftovers: dict[int, JsonForm] = {}
        for start in range(0, len(payloads), OBJECTS_PAYLOADS):
            values: list[Any] = []
            for index, payload in enumerate(payloads.slice(start, OBJECTS_PAYLOADS).to_pylist(), start):
                self._value_budget.reset(len(payload))
                try:
                    value = read_payload(self._read_arrow, payload)
                except UndecodableValueError as error:
                    errors[index] = str(error)
                    value = None
                else:
                    budget.take(self._layout.slot_bytes + self._value_budget.used)
                if type(value) is Leftover:
                    leftovers[index], value = value
                values.append(value)
            arrays.append(pa.array(values, self.arrow_field.type))
        return DecodedColumn(pa.concat_arrays(arrays), errors, leftovers)
