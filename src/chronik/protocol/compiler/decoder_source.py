"""Generation of a message decoder as straight-line Python source.

The source resembles handwritten code: consecutive fixed-size fields, and the length or count after them, are one
`unpack_from`; nested structs are nested loops; nothing is looked up per field. Bounds that Python checks itself raise
IndexError or struct.error, which `codec` turns into MalformedMessage.

A decoder is `decode(data, position, budget) -> (message, position)`; `budget` limits the total number of array elements
and tagged fields of the message.
"""

from __future__ import annotations

import struct

from chronik.errors import check_invariant
from chronik.protocol import wire
from chronik.protocol.compiler.source import (
    LENGTH_FORMATS,
    FunctionSource,
    format_struct_function,
    has_records,
    min_element_size,
)
from chronik.protocol.schema import ARRAY_FORMATS, FIXED_FORMATS, Field, Struct

_RUNTIME: dict[str, object] = {
    "MalformedMessage": wire.MalformedMessage,
    "bad_count": wire.count_error,
    "bad_length": wire.length_error,
    "over_budget": wire.budget_error,
    "read_tag": wire.read_tag,
    "read_tag_count": wire.read_tag_count,
    "read_varint": wire.read_varint,
    "skip_tags": wire.skip_tags,
}


class DecoderSource(FunctionSource):
    """The source of the decoder of a message version."""

    def __init__(self, cls: type[Struct], version: int) -> None:
        super().__init__("decode(data, position, budget)", version, cls.__schema__.flexible.covers(version), _RUNTIME)
        self._depth = 0
        # Slices of bytes are twice as fast as those of memoryviews, so a message without records is copied once.
        self._is_copied = not has_records(cls, version)
        if self._is_copied:
            self.add_lines("data = bytes(data)")
        self.add_lines("size = len(data)")
        result = self._struct(cls)
        self.add_lines(f"return {result}, position")

    # --- single values

    def _flush(self) -> None:
        """Read the collected fixed-size values with a single unpack."""
        if not self.pending_values:
            return
        layout, variables = self.take_pending_values()
        if layout.format == ">B":
            self.add_lines(f"{variables[0]} = data[position]", "position += 1")
            return
        unpack = self.bind_name(format_struct_function("unpack", layout), layout.unpack_from)
        comma = "," if len(variables) == 1 else ""
        self.add_lines(f"{', '.join(variables)}{comma} = {unpack}(data, position)", f"position += {layout.size}")

    def _varint(self, variable: str, *, maximum: int = wire.VARINT_MAX) -> None:
        """Read a varint. It usually has one byte, which is read with the values before it."""
        self.pending_values.append(("B", variable))
        self._flush()
        with self.block(f"if {variable} > 127:"):
            self.add_lines(f"{variable}, position = read_varint(data, position - 1)")
            if maximum < wire.VARINT_MAX:
                self.add_lines(f"if {variable} > {maximum}: raise bad_length('string', {variable}, size - position)")

    # --- structs and their fields

    def _struct(self, cls: type[Struct]) -> str:
        """Read all fields of a struct into variables, and return the expression that builds it."""
        depth = self._depth
        self._depth += 1
        plain, tagged = cls.__schema__.fields_at(self.version)
        for field in plain:
            self._field(field, f"{field.name}_{depth}")
        if self.flexible:
            self._tags(cls, tagged, depth)
        self._flush()
        self._depth -= 1
        arguments = ", ".join(f"{field.name}={field.name}_{depth}" for field in plain + tagged)
        return f"{self.bind_name(cls.__name__, cls)}({arguments})"

    def _field(self, field: Field, variable: str) -> None:
        nullable = field.nullable.covers(self.version)
        if field.kind in FIXED_FORMATS:
            self.pending_values.append((FIXED_FORMATS[field.kind], variable))
        elif field.kind == "array":
            self._array(field, variable, nullable)
        elif field.kind == "struct":
            self._single_struct(field, variable, nullable)
        else:
            self._length_prefixed(field.name, field.kind, variable, nullable)

    def _length_prefixed(self, name: str, kind: str, variable: str, nullable: bool) -> None:
        """Read a string, bytes or records: a length (plus one in compact form), then that many bytes."""
        if self.flexible:
            self._varint("length", maximum=wire.STRING_BYTES_MAX + 1 if kind == "string" else wire.VARINT_MAX)
            null, end = "0", "position + length - 1"
        else:
            self.pending_values.append((LENGTH_FORMATS[kind], "length"))
            self._flush()
            null, end = "-1", "position + length"
        lines = (
            f"end = {end}",
            f"if not position <= end <= size: raise bad_length({name!r}, end - position, size - position)",
            f"{variable} = {self._slice(kind)}",
            "position = end",
        )
        self._read_or_null(nullable, f"length == {null}", variable, lines)

    def _read_or_null(self, nullable: bool, is_null: str, variable: str, lines: tuple[str, ...]) -> None:
        if not nullable:
            self.add_lines(*lines)
            return
        self.add_lines(f"if {is_null}: {variable} = None")
        with self.block("else:"):
            self.add_lines(*lines)

    def _slice(self, kind: str) -> str:
        if kind == "records":
            return "data[position:end]"
        if kind == "string":
            how = f"'utf-8', '{wire.REPLACE_INVALID_UTF8}'"
            return f"data[position:end].decode({how})" if self._is_copied else f"str(data[position:end], {how})"
        return "data[position:end]" if self._is_copied else "bytes(data[position:end])"

    def _single_struct(self, field: Field, variable: str, nullable: bool) -> None:
        """Read a struct that is not in an array; a nullable one has an int8 prefix, -1 for null."""
        assert isinstance(field.element, type)
        if not nullable:
            self.add_lines(f"{variable} = {self._struct(field.element)}")
            return
        self.pending_values.append(("b", "presence"))
        self._flush()
        self.add_lines(f"if presence == -1: {variable} = None")
        self.add_lines(f"elif presence != 1: raise MalformedMessage('{field.name}: neither null nor present')")
        with self.block("else:"):
            self.add_lines(f"{variable} = {self._struct(field.element)}")

    # --- arrays

    def _array(self, field: Field, variable: str, nullable: bool) -> None:
        if self.flexible:
            self._varint("count")
            self.add_lines("count -= 1")
        else:
            self.pending_values.append(("i", "count"))
            self._flush()
        if not nullable:
            self._elements(field, variable)
            return
        self.add_lines(f"if count == -1: {variable} = None")
        with self.block("else:"):
            self._elements(field, variable)

    def _elements(self, field: Field, variable: str) -> None:
        size = min_element_size(field.element, self.version, self.flexible)
        check_invariant(size > 0, f"an element of {field.name} takes no bytes, so its count would be unbounded")
        self.add_lines(
            f"if not 0 <= count * {size} <= size - position: raise bad_count({field.name!r}, count, size - position)",
            "budget -= count",
            "if budget < 0: raise over_budget()",
        )
        if field.element in ARRAY_FORMATS:
            self._integers(str(field.element), variable)
            return
        self.add_lines(f"{variable} = []")
        with self.block("for _ in range(count):"):
            if isinstance(field.element, type):
                self.add_lines(f"{variable}.append({self._struct(field.element)})")
            else:
                self._length_prefixed(field.name, str(field.element), "element", nullable=False)
                self.add_lines(f"{variable}.append(element)")

    def _integers(self, kind: str, variable: str) -> None:
        letter = ARRAY_FORMATS[kind]
        read = self.bind_name(f"read_{kind}s", wire.INT_ARRAYS[letter].read)
        self.add_lines(f"{variable} = {read}(data, position, count) if count else []")
        self.add_lines(f"position += count * {struct.calcsize('>' + letter)}")

    # --- tagged fields

    def _tags(self, cls: type[Struct], tagged: list[Field], depth: int) -> None:
        """Read the tagged fields. Usually there are none: a zero byte, which is read with the values before it."""
        for field in tagged:
            default = "[]" if field.default == [] else self.bind_name(f"{cls.__name__}_{field.name}", field.default)
            self.add_lines(f"{field.name}_{depth} = {default}")
        self.pending_values.append(("B", f"tags_{depth}"))
        self._flush()
        with self.block(f"if tags_{depth}:"):
            self.add_lines(f"tags_{depth}, position, budget = read_tag_count(data, position - 1, size, budget)")
            if tagged:
                self._known_tags(tagged, depth)
            else:
                self.add_lines(f"position = skip_tags(data, position, size, tags_{depth})")

    def _known_tags(self, tagged: list[Field], depth: int) -> None:
        tag, end = f"tag_{depth}", f"end_{depth}"
        self.add_lines(f"{tag} = -1")
        with self.block(f"for _ in range(tags_{depth}):"):
            self.add_lines(f"{tag}, position, {end} = read_tag(data, position, size, {tag})")
            for field in tagged:
                with self.block(f"if {tag} == {field.tag}:"):
                    self._field(field, f"{field.name}_{depth}")
                    self._flush()
                    self.add_lines(
                        f"if position != {end}: raise MalformedMessage('{field.name}: its tag has another size')"
                    )
            self.add_lines(f"position = {end}")
