"""The decoder of Protobuf values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from chronik.formats.codec import DecodedColumn, JsonForm, UndecodableValueError, UnsupportedSchemaError, WriterSchema
from chronik.formats.decoded_size import ColumnBudget, ValueBudget
from chronik.formats.protobuf.layout import FieldLayout, load_message, plan_layouts
from chronik.formats.protobuf.syntax import ProtoSyntaxError
from chronik.formats.protobuf.types import break_cycles
from chronik.formats.protobuf.values import ToArrow, Unfit, build_form, compile_struct
from chronik.formats.protobuf.wire import WireFormatError, read_message

if TYPE_CHECKING:
    import pyarrow as pa

    from chronik.formats.protobuf.columns import MessageColumnDecoder

CHUNK_PAYLOADS: Final = 32 * 1024
"""Payloads that are decoded at the same time. Their intermediate results stay in the processor's cache."""

CHUNK_BYTES: Final = 16 * 1024 * 1024
"""Maximum bytes of payloads that are decoded at the same time. Elements of lists take 8 to 50 times their bytes."""

COLUMN_PAYLOADS_MIN: Final = 48
"""Minimum payloads for decoding with NumPy, if they are small. Fewer are decoded faster one by one."""

COLUMN_BYTES_MIN: Final = 256 * 1024
"""Minimum bytes for decoding fewer payloads with NumPy: they may contain long lists."""

OBJECTS_PAYLOADS: Final = 256
"""Payloads of which there are Python objects at the same time. These are several times as large as the values."""


class ProtobufDecoder:
    """A decoder of values with a Protobuf schema. See `ValueDecoder`.

    Columns store types as follows, in addition to `codec`:

    | Protobuf type                                    | column type                                        |
    |--------------------------------------------------|----------------------------------------------------|
    | uint32, fixed32                                  | int64                                              |
    | uint64, fixed64                                  | decimal128(20, 0)                                  |
    | enum                                             | string with the name; unknown numbers do not fit   |
    | map                                              | map with keys as strings                           |
    | field of a oneof                                 | nullable field                                     |
    | google.protobuf.Timestamp                        | timestamp; other than whole microseconds do not fit |
    | google.protobuf.Int32Value and the like          | nullable value                                     |
    | google.protobuf.Struct, Value and ListValue      | JSON text                                          |
    | google.type.Date                                 | date; incomplete dates do not fit                  |
    | google.type.TimeOfDay                            | string such as `08:30:00`                          |
    | confluent.type.Decimal with precision and scale  | decimal128; other scales do not fit                |
    | message within itself, message without fields    | JSON text                                          |
    | other messages, such as Duration and Any         | struct                                             |

    An absent field has the default value, or is null if readers can distinguish it from one and the schema declares no
    default. Unknown fields and extensions are ignored.
    """

    def __init__(self, schema: WriterSchema, message_indexes: Sequence[int] = ()) -> None:
        """Resolve a message type of a schema; by default, the first one.

        Raises:
            UnsupportedSchemaError: The schema is invalid, or it has no such message type.
        """
        self._message, _ = load_message(schema, tuple(message_indexes))
        self._layouts: tuple[FieldLayout, ...] | None = None
        self._field: pa.Field | None = None
        self._convert: ToArrow | None = None
        self._columns: MessageColumnDecoder | None = None
        self._value_budget = ValueBudget()

    def __del__(self) -> None:
        message = getattr(self, "_message", None)
        if message is not None:
            break_cycles(message)

    @property
    def arrow_field(self) -> pa.Field:
        """The Arrow type of the payloads. See `ValueDecoder`.

        Raises:
            UnsupportedSchemaError: The schema describes too many columns.
        """
        if self._field is None:
            from chronik.formats.protobuf.columns import build_value_field

            try:
                # The name identifies the message type to which the field numbers belong.
                self._field = build_value_field(self._plan()).with_name(self._message.full_name)
            except ProtoSyntaxError as error:
                raise UnsupportedSchemaError(f"invalid Protobuf schema: {error}") from None
        return self._field

    def decode_value(self, payload: bytes) -> JsonForm:
        """Decode one payload to its JSON form. See `ValueDecoder`."""
        try:
            return build_form(self._message, read_message(self._message, payload))
        except (WireFormatError, ProtoSyntaxError) as error:
            raise UndecodableValueError(str(error)) from None

    def decode_column(self, payloads: pa.BinaryArray) -> DecodedColumn:
        """Decode payloads to an Arrow array. See `ValueDecoder`."""
        import pyarrow as pa

        arrays: list[pa.Array] = []
        errors: dict[int, str] = {}
        leftovers: dict[int, JsonForm] = {}
        start = 0
        for chunk, decoded in self._decode_chunks(payloads, ColumnBudget(len(payloads))):
            arrays.append(decoded.array)
            errors.update((start + index, error) for index, error in decoded.errors.items())
            leftovers.update((start + index, form) for index, form in decoded.leftovers.items())
            start += len(chunk)
        arrow_type = self.arrow_field.type
        array = arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays) if arrays else pa.nulls(0, arrow_type)
        return DecodedColumn(array, errors, leftovers)

    def _decode_chunks(
        self, payloads: pa.BinaryArray, budget: ColumnBudget
    ) -> Iterator[tuple[pa.BinaryArray, DecodedColumn]]:
        """Yield parts of the payloads that do not take too much memory, with their decoded values."""
        pending = [payloads.slice(start, CHUNK_PAYLOADS) for start in range(0, len(payloads), CHUNK_PAYLOADS)]
        pending.reverse()
        while pending:
            chunk = pending.pop()
            decoded = None if len(chunk) > 1 and chunk.nbytes > CHUNK_BYTES else self._decode_chunk(chunk, budget)
            if decoded is None:
                half = len(chunk) // 2
                pending += [chunk.slice(half), chunk.slice(0, half)]
            else:
                yield chunk, decoded

    def _plan(self) -> tuple[FieldLayout, ...]:
        if self._layouts is None:
            self._layouts = plan_layouts(self._message)
        return self._layouts

    def _decode_chunk(self, payloads: pa.BinaryArray, budget: ColumnBudget) -> DecodedColumn | None:
        """Decode payloads, or return None if they must be split."""
        import numpy as np
        import pyarrow as pa

        from chronik.formats.protobuf.columns import PASS_MESSAGES_MIN, MessageColumnDecoder, TooManyCellsError

        count = len(payloads)
        is_small = count < COLUMN_PAYLOADS_MIN and payloads.nbytes < COLUMN_BYTES_MIN
        if is_small or count <= PASS_MESSAGES_MIN or payloads.nbytes > CHUNK_BYTES or not self._message.fields:
            return self._decode_one_by_one(payloads, budget)
        if self._columns is None:
            self._columns = MessageColumnDecoder(self._message, self._plan(), self.arrow_field.type)
        try:
            array, marked = self._columns.decode(payloads, budget)
        except TooManyCellsError:
            return None
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

        arrow_type = self.arrow_field.type
        layouts, sizes = self._plan(), self._value_budget
        if self._convert is None:
            self._convert = compile_struct(self._message, layouts, sizes)
        slot_bytes = sum(layout.slot_bytes for layout in layouts)
        arrays: list[pa.Array] = []
        errors: dict[int, str] = {}
        leftovers: dict[int, JsonForm] = {}
        for start in range(0, len(payloads), OBJECTS_PAYLOADS):
            values: list[Any] = []
            for index, payload in enumerate(payloads.slice(start, OBJECTS_PAYLOADS).to_pylist(), start):
                sizes.reset(len(payload))
                try:
                    value = self._convert(read_message(self._message, payload))
                except (WireFormatError, UndecodableValueError) as error:
                    errors[index] = str(error)
                    value = None
                else:
                    budget.take(slot_bytes + sizes.used)
                if type(value) is Unfit:
                    leftovers[index], value = value.leftover, value.stored
                values.append(value)
            arrays.append(pa.array(values, arrow_type))
        return DecodedColumn(pa.concat_arrays(arrays), errors, leftovers)
