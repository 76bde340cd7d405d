"""Generation of a message decoder as straight-line Python source.

The source resembles handwritten code: consecutive fixed-size fields, and the length or count after them, are one
`unpack_from`; nested structs are nested loops; nothing is looked up per field. Bounds that Python checks itself raise
IndexError or struct.error, which `codec` turns into MalformedMessage.

A decoder is `decode(data, position, budget) -> (message, position)`; `budget` limits the total number of array elements
and tagged fields of the message.
"""

from __future__ import annotations

import struct

from chronik.errors import invariant
from chronik.protocol import wire
from chronik.protocol.compiling.source import LENGTH_FORMATS, Source, has_records, run_name, smallest
from chronik.protocol.schema import ARRAY_FORMATS, FIXED_FORMATS, Field, Struct

_RUNTIME: dict[str, object] = {
    "MalformedMessage": wire.MalformedMessage,
    "bad_count": wire.bad_count,
    "bad_length": wire.bad_length,
    "over_budget": wire.over_budget,
    "read_tag": wire.read_tag,
    "read_tag_count": wire.read_tag_count,
    "read_varint": wire.read_varint,
    "skip_tags": wire.skip_tags,
}


class DecoderSource(Source):
    """The source of the decoder of a message version."""

    def __init__(self, cls: type[Struct], version: int) -> None:
        super().__init__("decode(data, position, budget)", version, cls.__schema__.flexible.covers(version), _RUNTIME)
        self._depth = 0
        # Slices of bytes are twice as fast as those of memoryviews, so a message without records is copied once.
        self._is_copied = not has_records(cls, version)
        if self._is_copied:
            self.add("data = bytes(data)")
        self.add("size = len(data)")
        result = self._struct(cls)
        self.add(f"return {result}, position")

    # --- single values

    def _flush(self) -> None:
        """Read the collected fixed-size values with a single unpack."""
        if not self.run:
            return
        layout, variables = self.take_run()
        if layout.format == ">B":
            self.add(f"{variables[0]} = data[position]", "position += 1")
            return
        unpack = self.name(run_name("unpack", layout), layout.unpack_from)
        comma = "," if len(variables) == 1 else ""
        self.add(f"{', '.join(variables)}{comma} = {unpack}(data, position)", f"position += {layout.size}")

    def _varint(self, variable: str, *, maximum: int = wire.VARINT_MAX) -> None:
        """Read a varint. It usually has one byte, which is read with the values before it."""
        self.run.append(("B", variable))
        self._flush()
        with self.block(f"if {variable} > 127:"):
            self.add(f"{variable}, position = read_varint(data, position - 1)")
            if maximum < wire.VARINT_MAX:
                self.add(f"if {variable} > {maximum}: raise bad_length('string', {variable}, size - position)")

    # --- structs and their fields

    def _struct(self, cls: type[Struct]) -> str:
        """Read all fields of a struct into variables, and return the expression that builds it."""
        depth = self._depth
        self._depth += 1
        plain, tagged = cls.__schema__.at(self.version)
        for field in plain:
            self._field(field, f"{field.name}_{depth}")
        if self.flexible:
            self._tags(cls, tagged, depth)
        self._flush()
        self._depth -= 1
        arguments = ", ".join(f"{field.name}={field.name}_{depth}" for field in plain + tagged)
        return f"{self.name(cls.__name__, cls)}({arguments})"

    def _field(self, field: Field, variable: str) -> None:
        nullable = field.nullable.covers(self.version)
        if field.kind in FIXED_FORMATS:
            self.run.append((FIXED_FORMATS[field.kind], variable))
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
            self.run.append((LENGTH_FORMATS[kind], "length"))
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
            self.add(*lines)
            return
        self.add(f"if {is_null}: {variable} = None")
        with self.block("else:"):
            self.add(*lines)

    def _slice(self, kind: str) -> str:
        if kind == "records":
            return "data[position:end]"
        if kind == "string":
            how = f"'utf-8', '{wire.AS_FAR_AS_POSSIBLE}'"
            return f"data[position:end].decode({how})" if self._is_copied else f"str(data[position:end], {how})"
        return "data[position:end]" if self._is_copied else "bytes(data[position:end])"

    def _single_struct(self, field: Field, variable: str, nullable: bool) -> None:
        """Read a struct that is not in an array; a nullable one has an int8 prefix, -1 for null."""
        assert isinstance(field.element, type)
        if not nullable:
            self.add(f"{variable} = {self._struct(field.element)}")
            return
        self.run.append(("b", "presence"))
        self._flush()
        self.add(f"if presence == -1: {variable} = None")
        self.add(f"elif presence != 1: raise MalformedMessage('{field.name}: neither null nor present')")
        with self.block("else:"):
            self.add(f"{variable} = {self._struct(field.element)}")

    # --- arrays

    def _array(self, field: Field, variable: str, nullable: bool) -> None:
        if self.flexible:
            self._varint("count")
            self.add("count -= 1")
        else:
            self.run.append(("i", "count"))
            self._flush()
        if not nullable:
            self._elements(field, variable)
            return
        self.add(f"if count == -1: {variable} = None")
        with self.block("else:"):
            self._elements(field, variable)

    def _elements(self, field: Field, variable: str) -> None:
        size = smallest(field.element, self.version, self.flexible)
        invariant(size > 0, f"an element of {field.name} takes no bytes, so its count would be unbounded")
        self.add(
            f"if not 0 <= count * {size} <= size - position: raise bad_count({field.name!r}, count, size - position)",
            "budget -= count",
            "if budget < 0: raise over_budget()",
        )
        if field.element in ARRAY_FORMATS:
            self._integers(str(field.element), variable)
            return
        self.add(f"{variable} = []")
        with self.block("for _ in range(count):"):
            if isinstance(field.element, type):
                self.add(f"{variable}.append({self._struct(field.element)})")
            else:
                self._length_prefixed(field.name, str(field.element), "element", nullable=False)
                self.add(f"{variable}.append(element)")

    def _integers(self, kind: str, variable: str) -> None:
        letter = ARRAY_FORMATS[kind]
        read = self.name(f"read_{kind}s", wire.INT_ARRAYS[letter].read)
        self.add(f"{variable} = {read}(data, position, count) if count else []")
        self.add(f"position += count * {struct.calcsize('>' + letter)}")

    # --- tagged fields

    def _tags(self, cls: type[Struct], tagged: list[Field], depth: int) -> None:
        """Read the tagged fields. Usually there are none: a zero byte, which is read with the values before it."""
        for field in tagged:
            default = "[]" if field.default == [] else self.name(f"{cls.__name__}_{field.name}", field.default)
            self.add(f"{field.name}_{depth} = {default}")
        self.run.append(("B", f"tags_{depth}"))
        self._flush()
        with self.block(f"if tags_{depth}:"):
            self.add(f"tags_{depth}, position, budget = read_tag_count(data, position - 1, size, budget)")
            if tagged:
                self._known_tags(tagged, depth)
            else:
                self.add(f"position = skip_tags(data, position, size, tags_{depth})")

    def _known_tags(self, tagged: list[Field], depth: int) -> None:
        tag, end = f"tag_{depth}", f"end_{depth}"
        self.add(f"{tag} = -1")
        with self.block(f"for _ in range(tags_{depth}):"):
            self.add(f"{tag}, position, {end} = read_tag(data, position, size, {tag})")
            for field in tagged:
                with self.block(f"if {tag} == {field.tag}:"):
                    self._field(field, f"{field.name}_{depth}")
                    self._flush()
                    self.add(f"if position != {end}: raise MalformedMessage('{field.name}: its tag has another size')")
            self.add(f"position = {end}")
