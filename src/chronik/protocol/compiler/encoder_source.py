"""Generation of a message encoder as straight-line Python source.

An encoder is `encode(message, out, chunks) -> out`: it appends to the bytearray `out`. Large records are not copied:
`out` and the records are appended to `chunks`, and the rest of the message is in the returned bytearray.

For a value that cannot be encoded, Python raises an error, which `codec` turns into UnencodableMessage with the field's
name. So encoders check only what Python would accept: the size of uuids.

An element of a top-level array of a response may be given as encoded bytes.
"""

from __future__ import annotations

from chronik.protocol import wire
from chronik.protocol.compiler.source import LENGTH_FORMATS, FunctionSource, format_struct_function
from chronik.protocol.schema import ARRAY_FORMATS, FIXED_FORMATS, Field, Request, Response, Struct

_RUNTIME: dict[str, object] = {
    "UnencodableMessage": wire.UnencodableMessage,
    "UnsupportedField": wire.UnsupportedField,
    "records_length": wire.records_length,
    "write_records": wire.write_records,
    "write_varint": wire.write_varint,
}

# Booleans are encoded as int8: struct's "?" would accept any value, including None.
_FORMATS = FIXED_FORMATS | {"bool": "b"}


class EncoderSource(FunctionSource):
    """The source of the encoder of a message version."""

    def __init__(self, cls: type[Struct], version: int, message: type[Struct] | None = None) -> None:
        """Generate the encoder of a message, or of a part of `message`, which determines the flexible versions."""
        flexible = (message or cls).__schema__.flexible.covers(version)
        super().__init__("encode(message, out, chunks)", version, flexible, _RUNTIME)
        self._depth = 0
        self._rejects_unsupported = issubclass(cls, Request)
        self._accepts_encoded = issubclass(cls, Response)
        self._struct(cls, "message")
        self._flush()
        self.add_lines("return out")

    # --- single values

    def _flush(self) -> None:
        """Write the collected fixed-size values with a single pack."""
        if not self.pending_values:
            return
        layout, expressions = self.take_pending_values()
        if layout.format == ">x":
            self.add_lines("out.append(0)")
            return
        pack = self.bind_name(format_struct_function("pack", layout), layout.pack)
        self.add_lines(f"out += {pack}({', '.join(expressions)})")

    def _varint(self, value: str, *, maximum: int = wire.VARINT_MAX) -> None:
        self._flush()
        self.add_lines(f"varint = {value}", "if varint < 128: out.append(varint)")
        if maximum < wire.VARINT_MAX:
            self.add_lines(f"elif varint > {maximum}: raise UnencodableMessage('a string of more than 32767 bytes')")
        self.add_lines("else: write_varint(out, varint)")

    # --- structs and their fields

    def _struct(self, cls: type[Struct], variable: str) -> None:
        depth = self._depth
        self._depth += 1
        if self._rejects_unsupported:
            self._reject_unsupported(cls, variable)
        plain, tagged = cls.__schema__.fields_at(self.version)
        for field in plain:
            self._field(field, f"{variable}.{field.name}", f"{field.name}_{depth}")
        if self.flexible and tagged:
            self._tags(cls, tagged, variable, depth)
        elif self.flexible:
            self.pending_values.append(("x", ""))  # no tagged fields: a zero byte, written with the preceding values
        self._depth -= 1

    def _reject_unsupported(self, cls: type[Struct], variable: str) -> None:
        for field in cls.__schema__.fields:
            if not field.ignorable and not field.versions.covers(self.version):
                is_set = self._differs(cls, field, f"{variable}.{field.name}")
                text = f"{cls.__name__}.{field.name} does not exist in version {self.version}"
                self.add_lines(f"if {is_set}: raise UnsupportedField({text!r})")

    def _differs(self, cls: type[Struct], field: Field, value: str) -> str:
        """Return an expression that is true if a field differs from its default."""
        if field.default == []:
            return f"len({value}) > 0"
        if field.default is None:
            return f"{value} is not None"
        default = self.bind_name(f"{cls.__name__}_{field.name}", field.default)
        return f"{value} is not {default} and {value} != {default}"

    def _field(self, field: Field, value: str, variable: str) -> None:
        nullable = field.nullable.covers(self.version)
        if field.kind == "uuid":
            self.add_lines(f"{variable} = {value}")
            self.add_lines(f"if len({variable}) != 16: raise UnencodableMessage('{field.name}: an id has 16 bytes')")
            self.pending_values.append(("16s", variable))
        elif field.kind in _FORMATS:
            self.pending_values.append((_FORMATS[field.kind], value))
        elif field.kind == "array":
            self._array(field, value, variable, nullable)
        elif field.kind == "struct":
            self._single_struct(field, value, variable, nullable)
        else:
            self._length_prefixed(field.kind, value, variable, nullable)

    def _length_prefixed(self, kind: str, value: str, variable: str, nullable: bool) -> None:
        """Write a string, bytes or records: a length (plus one in compact form), then the bytes."""
        encoded = ".encode()" if kind == "string" else ""
        length = f"records_length({variable})" if kind == "records" else f"len({variable})"
        if not nullable:
            self.add_lines(f"{variable} = {value}{encoded}")
            self._length(kind, length)
            self._content(kind, variable)
            return
        self._flush()
        self.add_lines(f"{variable} = {value}")
        self._null_check(variable, LENGTH_FORMATS[kind])
        with self.block("else:"):
            if encoded:
                self.add_lines(f"{variable} = {variable}{encoded}")
            self._length(kind, length)
            self._content(kind, variable)

    def _length(self, kind: str, length: str) -> None:
        if self.flexible:
            maximum = wire.STRING_BYTES_MAX + 1 if kind == "string" else wire.VARINT_MAX
            self._varint(f"{length} + 1", maximum=maximum)
        else:
            self.pending_values.append((LENGTH_FORMATS[kind], length))
            self._flush()

    def _content(self, kind: str, variable: str) -> None:
        self.add_lines(f"out = write_records(out, chunks, {variable})" if kind == "records" else f"out += {variable}")

    def _null_check(self, variable: str, letter: str) -> None:
        null = b"\0" if self.flexible else (b"\xff\xff" if letter == "h" else b"\xff\xff\xff\xff")
        self.add_lines(f"if {variable} is None: out += {null!r}")

    def _single_struct(self, field: Field, value: str, variable: str, nullable: bool) -> None:
        """Write a struct that is not in an array; a nullable one has an int8 prefix, -1 for null."""
        assert isinstance(field.element, type)
        self._flush()
        self.add_lines(f"{variable} = {value}")
        if not nullable:
            self._struct(field.element, variable)
            self._flush()
            return
        self.add_lines(f"if {variable} is None: out.append(255)")
        with self.block("else:"):
            self.add_lines("out.append(1)")
            self._struct(field.element, variable)
            self._flush()

    # --- arrays

    def _array(self, field: Field, value: str, variable: str, nullable: bool) -> None:
        if not nullable:
            self.add_lines(f"{variable} = {value}")
            self._elements(field, variable)
            return
        self._flush()
        self.add_lines(f"{variable} = {value}")
        self._null_check(variable, "i")
        with self.block("else:"):
            self._elements(field, variable)

    def _elements(self, field: Field, variable: str) -> None:
        self._length("array", f"len({variable})")
        if field.element in ARRAY_FORMATS:
            pack = self.bind_name(f"pack_{field.element}s", wire.INT_ARRAYS[ARRAY_FORMATS[str(field.element)]].pack)
            self.add_lines(f"if {variable}: out += {pack}({variable})")
            return
        element = f"element_{self._depth}"
        with self.block(f"for {element} in {variable}:"):
            if isinstance(field.element, type):
                if self._accepts_encoded and self._depth == 1:
                    with self.block(f"if {element}.__class__ is bytes:"):
                        self.add_lines(f"out += {element}", "continue")
                self._struct(field.element, element)
                self._flush()
            else:
                self._length_prefixed(str(field.element), element, "item", nullable=False)

    # --- tagged fields

    def _tags(self, cls: type[Struct], tagged: list[Field], variable: str, depth: int) -> None:
        """Write the tagged fields that differ from their defaults, each with its size."""
        self._flush()
        flags = [f"has_{field.name}_{depth}" for field in tagged]
        for field, flag in zip(tagged, flags, strict=True):
            self.add_lines(f"{flag} = {self._differs(cls, field, f'{variable}.{field.name}')}")
        with self.block(f"if {' or '.join(flags)}:"):
            self.add_lines(f"out.append({' + '.join(flags)})")
            for field, flag in zip(tagged, flags, strict=True):
                with self.block(f"if {flag}:"):
                    self._tag(field, f"{variable}.{field.name}", depth)
        self.add_lines("else: out.append(0)")

    def _tag(self, field: Field, value: str, depth: int) -> None:
        self.add_lines(f"outer_{depth} = out", "out = bytearray()")
        self._field(field, value, f"{field.name}_{depth}")
        self._flush()
        self.add_lines(
            f"write_varint(outer_{depth}, {field.tag})",
            f"write_varint(outer_{depth}, len(out))",
            f"outer_{depth} += out",
            f"out = outer_{depth}",
        )
