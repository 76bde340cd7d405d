"""Generation of encoders and decoders from the message declarations, as straight-line Python source.

A message version is compiled when it is first used. The source resembles handwritten code: consecutive fixed-size
fields, and the length or count after them, are one `pack` or `unpack_from`; nested structs are nested loops; nothing is
looked up per field.

A decoder is `decode(data, position, budget) -> (message, position)`; `budget` limits the total number of array elements
and tagged fields of the message. Bounds that Python checks itself raise IndexError or struct.error, which `codec` turns
into MalformedMessage.

An encoder is `encode(message, out, chunks) -> out`: it appends to the bytearray `out`. Large records are not copied:
`out` and the records are appended to `chunks`, and the rest of the message is in the returned bytearray. For a value
that cannot be encoded, Python raises an error, which `codec` turns into UnencodableMessage with the field's name. So
encoders check only what Python would accept: the size of uuids. An element of a top-level array of a response may be
given as encoded bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, cast

from chronik.errors import check_invariant
from chronik.protocol import wire
from chronik.protocol.schema import ARRAY_FORMATS, FIXED_FORMATS, BytesLike, Field, Request, Response, Struct
from chronik.protocol.wire import STRING_BYTES_MAX, UnsupportedVersion

LENGTH_FORMATS = {"string": "h", "bytes": "i", "records": "i", "array": "i"}

_INTEGERS = {f"int{bits}": range(-(1 << (bits - 1)), 1 << (bits - 1)) for bits in (8, 16, 32, 64)}
_INTEGERS["uint16"] = range(1 << 16)

_DECODER_NAMES: dict[str, object] = {
    "MalformedMessage": wire.MalformedMessage,
    "bad_count": wire.build_count_error,
    "bad_length": wire.build_length_error,
    "over_budget": wire.build_budget_error,
    "read_tag": wire.read_tag,
    "read_tag_count": wire.read_tag_count,
    "read_varint": wire.read_varint,
    "skip_tags": wire.skip_tags,
}

_ENCODER_NAMES: dict[str, object] = {
    "UnencodableMessage": wire.UnencodableMessage,
    "UnsupportedField": wire.UnsupportedField,
    "records_length": wire.records_length,
    "write_records": wire.write_records,
    "write_varint": wire.write_varint,
}

# Booleans are encoded as int8: struct's "?" would accept any value, including None.
_FORMATS = FIXED_FORMATS | {"bool": "b"}

Decoder = Callable[[bytes | memoryview, int, int], tuple[Struct, int]]
Encoder = Callable[[Struct, bytearray, list[BytesLike]], bytearray]


class FunctionSource:
    """The source code of a generated Python function."""

    def __init__(self, signature: str, version: int, flexible: bool, runtime: dict[str, object]) -> None:
        self.version = version
        self.flexible = flexible
        self.names = dict(runtime)
        self._lines = [f"def {signature}:"]
        self._indent = 1
        # Fixed-size values that are not written yet, as (struct letter, expression); they become one pack or unpack.
        self.pending_values: list[tuple[str, str]] = []

    @property
    def source_code(self) -> str:
        """The source code of the function."""
        return "\n".join(self._lines) + "\n"

    def compile_function(self, name: str, filename: str) -> Callable[..., Any]:
        """Compile the source and return the function."""
        exec(compile(self.source_code, filename, "exec"), self.names)
        return self.names[name]  # type: ignore[return-value]

    def add_lines(self, *lines: str) -> None:
        """Append lines of code at the current indentation."""
        self._lines += ["    " * self._indent + line for line in lines]

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Append a line that starts a block of code, and indent the code added inside the `with` block."""
        self.add_lines(head)
        self._indent += 1
        yield
        self._indent -= 1

    def bind_name(self, name: str, value: object) -> str:
        """Make `value` available as the global `name` in the generated function, and return the name."""
        self.names[name] = value
        return name

    def take_pending_values(self) -> tuple[struct.Struct, list[str]]:
        """Return the struct layout and the expressions of the pending fixed-size values, and forget these values."""
        layout = struct.Struct(">" + "".join(letter for letter, _ in self.pending_values))
        expressions = [expression for _, expression in self.pending_values if expression]
        self.pending_values.clear()
        return layout, expressions


def format_struct_function(verb: str, layout: struct.Struct) -> str:
    """Return the name under which the generated function calls a struct layout's pack or unpack method."""
    return f"{verb}_{layout.format[1:].replace('?', 't')}"


def has_records(cls: type[Struct], version: int) -> bool:
    """Return whether this version of a message has a field that contains records."""
    plain, tagged = cls.__schema__.get_fields_of_version(version)
    return any(field.kind == "records" or _contains_records(field, version) for field in plain + tagged)


def _contains_records(field: Field, version: int) -> bool:
    return isinstance(field.element, type) and has_records(field.element, version)


def compute_min_element_size(element: str | type[Struct] | None, version: int, flexible: bool) -> int:
    """Return the minimum encoded size of an array element in bytes, which limits the plausible number of elements."""
    if isinstance(element, type):
        plain, _ = element.__schema__.get_fields_of_version(version)
        return sum(_get_min_field_size(field.kind, flexible) for field in plain) + flexible
    return _get_min_field_size(str(element), flexible)


def _get_min_field_size(kind: str, flexible: bool) -> int:
    if kind in FIXED_FORMATS:
        return struct.calcsize(">" + FIXED_FORMATS[kind])
    return 1 if flexible or kind == "struct" else struct.calcsize(">" + LENGTH_FORMATS[kind])


def find_invalid_field(message: Struct, version: int) -> str | None:
    """Return a description of the message's first field that cannot be encoded, or None if all fields are valid.

    Called only after an encoder has failed.
    """
    return next(_iter_struct_errors(message, version, type(message).__name__), None)


def _iter_struct_errors(value: Struct, version: int, path: str) -> Iterator[str]:
    plain, tagged = value.__schema__.get_fields_of_version(version)
    for field in plain + tagged:
        actual = getattr(value, field.name)
        field_path = f"{path}.{field.name}"
        if actual is None:
            if not field.nullable.covers(version):
                yield f"{field_path} is null in version {version}"
        elif field.kind == "array":
            yield from _iter_array_errors(field, actual, version, field_path)
        elif field.kind == "struct":
            yield from _iter_element_errors(field.element, actual, version, field_path)
        else:
            yield from _iter_element_errors(field.kind, actual, version, field_path)


def _iter_array_errors(field: Field, actual: object, version: int, field_path: str) -> Iterator[str]:
    if not isinstance(actual, list | tuple):
        yield f"{field_path} is {type(actual).__name__}, not a list"
        return
    for index, element in enumerate(actual):
        yield from _iter_element_errors(field.element, element, version, f"{field_path}[{index}]")


def _iter_element_errors(
    kind: str | type[Struct] | None, actual: object, version: int, field_path: str
) -> Iterator[str]:
    if isinstance(kind, type):
        if isinstance(actual, kind):
            yield from _iter_struct_errors(actual, version, field_path)
        else:
            yield f"{field_path} is {type(actual).__name__}, not {kind.__name__}"
    elif kind in _INTEGERS:
        if not isinstance(actual, int) or actual not in _INTEGERS[kind]:
            yield f"{field_path} is {actual!r}, not {kind}"
    elif kind == "bool":
        if not isinstance(actual, bool):
            yield f"{field_path} is {actual!r}, not a bool"
    elif kind == "float64":
        if not isinstance(actual, float | int):
            yield f"{field_path} is {actual!r}, not a number"
    elif kind == "string":
        yield from _iter_string_errors(actual, field_path)
    elif kind == "uuid":
        if not isinstance(actual, bytes) or len(actual) != 16:
            yield f"{field_path} is not 16 bytes"
    elif not isinstance(actual, bytes | bytearray | memoryview | list):
        yield f"{field_path} is {type(actual).__name__}, not bytes"


def _iter_string_errors(actual: object, field_path: str) -> Iterator[str]:
    if not isinstance(actual, str):
        yield f"{field_path} is {type(actual).__name__}, not a string"
        return
    try:
        size = len(actual.encode())
    except UnicodeEncodeError:
        yield f"{field_path} has lone surrogates"
        return
    if size > STRING_BYTES_MAX:
        yield f"{field_path} has {size} bytes, more than {STRING_BYTES_MAX}"


class DecoderSource(FunctionSource):
    """The generator of the source code that decodes one version of a message."""

    def __init__(self, cls: type[Struct], version: int) -> None:
        super().__init__(
            "decode(data, position, budget)", version, cls.__schema__.flexible.covers(version), _DECODER_NAMES
        )
        self._depth = 0
        # Slices of bytes are twice as fast as those of memoryviews, so a message without records is copied once.
        self._is_copied = not has_records(cls, version)
        if self._is_copied:
            self.add_lines("data = bytes(data)")
        self.add_lines("size = len(data)")
        result = self._generate_struct_code(cls)
        self.add_lines(f"return {result}, position")

    # --- single values

    def _generate_pending_values_code(self) -> None:
        """Generate code that decodes all pending fixed-size values with a single `struct` call."""
        if not self.pending_values:
            return
        layout, variables = self.take_pending_values()
        if layout.format == ">B":
            self.add_lines(f"{variables[0]} = data[position]", "position += 1")
            return
        unpack = self.bind_name(format_struct_function("unpack", layout), layout.unpack_from)
        comma = "," if len(variables) == 1 else ""
        self.add_lines(f"{', '.join(variables)}{comma} = {unpack}(data, position)", f"position += {layout.size}")

    def _generate_varint_code(self, variable: str, *, maximum: int = wire.VARINT_MAX) -> None:
        """Generate code that decodes a variable-length integer.

        Its first byte, usually the only one, is read with the preceding values.
        """
        self.pending_values.append(("B", variable))
        self._generate_pending_values_code()
        with self.block(f"if {variable} > 127:"):
            self.add_lines(f"{variable}, position = read_varint(data, position - 1)")
            if maximum < wire.VARINT_MAX:
                self.add_lines(f"if {variable} > {maximum}: raise bad_length('string', {variable}, size - position)")

    # --- structs and their fields

    def _generate_struct_code(self, cls: type[Struct]) -> str:
        """Generate code that decodes the fields of a struct into local variables.

        Return the expression that builds the struct.
        """
        depth = self._depth
        self._depth += 1
        plain, tagged = cls.__schema__.get_fields_of_version(self.version)
        for field in plain:
            self._generate_field_code(field, f"{field.name}_{depth}")
        if self.flexible:
            self._generate_tagged_fields_code(cls, tagged, depth)
        self._generate_pending_values_code()
        self._depth -= 1
        arguments = ", ".join(f"{field.name}={field.name}_{depth}" for field in plain + tagged)
        return f"{self.bind_name(cls.__name__, cls)}({arguments})"

    def _generate_field_code(self, field: Field, variable: str) -> None:
        nullable = field.nullable.covers(self.version)
        if field.kind in FIXED_FORMATS:
            self.pending_values.append((FIXED_FORMATS[field.kind], variable))
        elif field.kind == "array":
            self._generate_array_code(field, variable, nullable)
        elif field.kind == "struct":
            self._generate_single_struct_code(field, variable, nullable)
        else:
            self._generate_length_prefixed_code(field.name, field.kind, variable, nullable)

    def _generate_length_prefixed_code(self, name: str, kind: str, variable: str, nullable: bool) -> None:
        """Generate code that decodes a string, bytes or records field: the length, then the content."""
        if self.flexible:
            self._generate_varint_code(
                "length", maximum=wire.STRING_BYTES_MAX + 1 if kind == "string" else wire.VARINT_MAX
            )
            null, end = "0", "position + length - 1"
        else:
            self.pending_values.append((LENGTH_FORMATS[kind], "length"))
            self._generate_pending_values_code()
            null, end = "-1", "position + length"
        lines = (
            f"end = {end}",
            f"if not position <= end <= size: raise bad_length({name!r}, end - position, size - position)",
            f"{variable} = {self._format_slice_expression(kind)}",
            "position = end",
        )
        self._generate_nullable_read_code(nullable, f"length == {null}", variable, lines)

    def _generate_nullable_read_code(self, nullable: bool, is_null: str, variable: str, lines: tuple[str, ...]) -> None:
        if not nullable:
            self.add_lines(*lines)
            return
        self.add_lines(f"if {is_null}: {variable} = None")
        with self.block("else:"):
            self.add_lines(*lines)

    def _format_slice_expression(self, kind: str) -> str:
        if kind == "records":
            return "data[position:end]"
        if kind == "string":
            how = f"'utf-8', '{wire.REPLACE_INVALID_UTF8}'"
            return f"data[position:end].decode({how})" if self._is_copied else f"str(data[position:end], {how})"
        return "data[position:end]" if self._is_copied else "bytes(data[position:end])"

    def _generate_single_struct_code(self, field: Field, variable: str, nullable: bool) -> None:
        """Generate code that decodes a struct that is not an array element and may be null."""
        assert isinstance(field.element, type)
        if not nullable:
            self.add_lines(f"{variable} = {self._generate_struct_code(field.element)}")
            return
        self.pending_values.append(("b", "presence"))
        self._generate_pending_values_code()
        self.add_lines(f"if presence == -1: {variable} = None")
        self.add_lines(f"elif presence != 1: raise MalformedMessage('{field.name}: neither null nor present')")
        with self.block("else:"):
            self.add_lines(f"{variable} = {self._generate_struct_code(field.element)}")

    # --- arrays

    def _generate_array_code(self, field: Field, variable: str, nullable: bool) -> None:
        if self.flexible:
            self._generate_varint_code("count")
            self.add_lines("count -= 1")
        else:
            self.pending_values.append(("i", "count"))
            self._generate_pending_values_code()
        if not nullable:
            self._generate_elements_code(field, variable)
            return
        self.add_lines(f"if count == -1: {variable} = None")
        with self.block("else:"):
            self._generate_elements_code(field, variable)

    def _generate_elements_code(self, field: Field, variable: str) -> None:
        size = compute_min_element_size(field.element, self.version, self.flexible)
        check_invariant(size > 0, f"an element of {field.name} takes no bytes, so its count would be unbounded")
        self.add_lines(
            f"if not 0 <= count * {size} <= size - position: raise bad_count({field.name!r}, count, size - position)",
            "budget -= count",
            "if budget < 0: raise over_budget()",
        )
        if field.element in ARRAY_FORMATS:
            self._generate_integer_array_code(str(field.element), variable)
            return
        self.add_lines(f"{variable} = []")
        with self.block("for _ in range(count):"):
            if isinstance(field.element, type):
                self.add_lines(f"{variable}.append({self._generate_struct_code(field.element)})")
            else:
                self._generate_length_prefixed_code(field.name, str(field.element), "element", nullable=False)
                self.add_lines(f"{variable}.append(element)")

    def _generate_integer_array_code(self, kind: str, variable: str) -> None:
        letter = ARRAY_FORMATS[kind]
        read = self.bind_name(f"read_{kind}s", wire.INT_ARRAYS[letter].read)
        self.add_lines(f"{variable} = {read}(data, position, count) if count else []")
        self.add_lines(f"position += count * {struct.calcsize('>' + letter)}")

    # --- tagged fields

    def _generate_tagged_fields_code(self, cls: type[Struct], tagged: list[Field], depth: int) -> None:
        """Generate code that decodes the tagged fields of a struct.

        Their count, usually a zero byte, is read with the preceding values.
        """
        for field in tagged:
            default = "[]" if field.default == [] else self.bind_name(f"{cls.__name__}_{field.name}", field.default)
            self.add_lines(f"{field.name}_{depth} = {default}")
        self.pending_values.append(("B", f"tags_{depth}"))
        self._generate_pending_values_code()
        with self.block(f"if tags_{depth}:"):
            self.add_lines(f"tags_{depth}, position, budget = read_tag_count(data, position - 1, size, budget)")
            if tagged:
                self._generate_known_tags_code(tagged, depth)
            else:
                self.add_lines(f"position = skip_tags(data, position, size, tags_{depth})")

    def _generate_known_tags_code(self, tagged: list[Field], depth: int) -> None:
        tag, end = f"tag_{depth}", f"end_{depth}"
        self.add_lines(f"{tag} = -1")
        with self.block(f"for _ in range(tags_{depth}):"):
            self.add_lines(f"{tag}, position, {end} = read_tag(data, position, size, {tag})")
            for field in tagged:
                with self.block(f"if {tag} == {field.tag}:"):
                    self._generate_field_code(field, f"{field.name}_{depth}")
                    self._generate_pending_values_code()
                    self.add_lines(
                        f"if position != {end}: raise MalformedMessage('{field.name}: its tag has another size')"
                    )
            self.add_lines(f"position = {end}")


class EncoderSource(FunctionSource):
    """The generator of the source code that encodes one version of a message."""

    def __init__(self, cls: type[Struct], version: int, message: type[Struct] | None = None) -> None:
        """Create the generator for a message class, or for an element class of an array in `message`."""
        flexible = (message or cls).__schema__.flexible.covers(version)
        super().__init__("encode(message, out, chunks)", version, flexible, _ENCODER_NAMES)
        self._depth = 0
        self._rejects_unsupported = issubclass(cls, Request)
        self._accepts_encoded = issubclass(cls, Response)
        self._generate_struct_code(cls, "message")
        self._generate_pending_values_code()
        self.add_lines("return out")

    # --- single values

    def _generate_pending_values_code(self) -> None:
        """Generate code that encodes all pending fixed-size values with a single `struct` call."""
        if not self.pending_values:
            return
        layout, expressions = self.take_pending_values()
        if layout.format == ">x":
            self.add_lines("out.append(0)")
            return
        pack = self.bind_name(format_struct_function("pack", layout), layout.pack)
        self.add_lines(f"out += {pack}({', '.join(expressions)})")

    def _generate_varint_code(self, value: str, *, maximum: int = wire.VARINT_MAX) -> None:
        self._generate_pending_values_code()
        self.add_lines(f"varint = {value}", "if varint < 128: out.append(varint)")
        if maximum < wire.VARINT_MAX:
            self.add_lines(f"elif varint > {maximum}: raise UnencodableMessage('a string of more than 32767 bytes')")
        self.add_lines("else: write_varint(out, varint)")

    # --- structs and their fields

    def _generate_struct_code(self, cls: type[Struct], variable: str) -> None:
        depth = self._depth
        self._depth += 1
        if self._rejects_unsupported:
            self._generate_unsupported_field_checks(cls, variable)
        plain, tagged = cls.__schema__.get_fields_of_version(self.version)
        for field in plain:
            self._generate_field_code(field, f"{variable}.{field.name}", f"{field.name}_{depth}")
        if self.flexible and tagged:
            self._generate_tagged_fields_code(cls, tagged, variable, depth)
        elif self.flexible:
            self.pending_values.append(("x", ""))  # no tagged fields: a zero byte, written with the preceding values
        self._depth -= 1

    def _generate_unsupported_field_checks(self, cls: type[Struct], variable: str) -> None:
        for field in cls.__schema__.fields:
            if not field.ignorable and not field.versions.covers(self.version):
                is_set = self._format_differs_expression(cls, field, f"{variable}.{field.name}")
                text = f"{cls.__name__}.{field.name} does not exist in version {self.version}"
                self.add_lines(f"if {is_set}: raise UnsupportedField({text!r})")

    def _format_differs_expression(self, cls: type[Struct], field: Field, value: str) -> str:
        """Return a Python expression that is true if the field's value differs from its default."""
        if field.default == []:
            return f"len({value}) > 0"
        if field.default is None:
            return f"{value} is not None"
        default = self.bind_name(f"{cls.__name__}_{field.name}", field.default)
        return f"{value} is not {default} and {value} != {default}"

    def _generate_field_code(self, field: Field, value: str, variable: str) -> None:
        nullable = field.nullable.covers(self.version)
        if field.kind == "uuid":
            self.add_lines(f"{variable} = {value}")
            self.add_lines(f"if len({variable}) != 16: raise UnencodableMessage('{field.name}: an id has 16 bytes')")
            self.pending_values.append(("16s", variable))
        elif field.kind in _FORMATS:
            self.pending_values.append((_FORMATS[field.kind], value))
        elif field.kind == "array":
            self._generate_array_code(field, value, variable, nullable)
        elif field.kind == "struct":
            self._generate_single_struct_code(field, value, variable, nullable)
        else:
            self._generate_length_prefixed_code(field.kind, value, variable, nullable)

    def _generate_length_prefixed_code(self, kind: str, value: str, variable: str, nullable: bool) -> None:
        """Generate code that encodes a string, bytes or records field: the length, then the content."""
        encoded = ".encode()" if kind == "string" else ""
        length = f"records_length({variable})" if kind == "records" else f"len({variable})"
        if not nullable:
            self.add_lines(f"{variable} = {value}{encoded}")
            self._generate_length_code(kind, length)
            self._generate_content_code(kind, variable)
            return
        self._generate_pending_values_code()
        self.add_lines(f"{variable} = {value}")
        self._generate_null_check(variable, LENGTH_FORMATS[kind])
        with self.block("else:"):
            if encoded:
                self.add_lines(f"{variable} = {variable}{encoded}")
            self._generate_length_code(kind, length)
            self._generate_content_code(kind, variable)

    def _generate_length_code(self, kind: str, length: str) -> None:
        if self.flexible:
            maximum = wire.STRING_BYTES_MAX + 1 if kind == "string" else wire.VARINT_MAX
            self._generate_varint_code(f"{length} + 1", maximum=maximum)
        else:
            self.pending_values.append((LENGTH_FORMATS[kind], length))
            self._generate_pending_values_code()

    def _generate_content_code(self, kind: str, variable: str) -> None:
        self.add_lines(f"out = write_records(out, chunks, {variable})" if kind == "records" else f"out += {variable}")

    def _generate_null_check(self, variable: str, letter: str) -> None:
        null = b"\0" if self.flexible else (b"\xff\xff" if letter == "h" else b"\xff\xff\xff\xff")
        self.add_lines(f"if {variable} is None: out += {null!r}")

    def _generate_single_struct_code(self, field: Field, value: str, variable: str, nullable: bool) -> None:
        """Generate code that encodes a struct that is not an array element and may be null."""
        assert isinstance(field.element, type)
        self._generate_pending_values_code()
        self.add_lines(f"{variable} = {value}")
        if not nullable:
            self._generate_struct_code(field.element, variable)
            self._generate_pending_values_code()
            return
        self.add_lines(f"if {variable} is None: out.append(255)")
        with self.block("else:"):
            self.add_lines("out.append(1)")
            self._generate_struct_code(field.element, variable)
            self._generate_pending_values_code()

    # --- arrays

    def _generate_array_code(self, field: Field, value: str, variable: str, nullable: bool) -> None:
        if not nullable:
            self.add_lines(f"{variable} = {value}")
            self._generate_elements_code(field, variable)
            return
        self._generate_pending_values_code()
        self.add_lines(f"{variable} = {value}")
        self._generate_null_check(variable, "i")
        with self.block("else:"):
            self._generate_elements_code(field, variable)

    def _generate_elements_code(self, field: Field, variable: str) -> None:
        self._generate_length_code("array", f"len({variable})")
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
                self._generate_struct_code(field.element, element)
                self._generate_pending_values_code()
            else:
                self._generate_length_prefixed_code(str(field.element), element, "item", nullable=False)

    # --- tagged fields

    def _generate_tagged_fields_code(self, cls: type[Struct], tagged: list[Field], variable: str, depth: int) -> None:
        """Generate code that encodes the tagged fields of a struct that differ from their default values."""
        self._generate_pending_values_code()
        flags = [f"has_{field.name}_{depth}" for field in tagged]
        for field, flag in zip(tagged, flags, strict=True):
            self.add_lines(f"{flag} = {self._format_differs_expression(cls, field, f'{variable}.{field.name}')}")
        with self.block(f"if {' or '.join(flags)}:"):
            self.add_lines(f"out.append({' + '.join(flags)})")
            for field, flag in zip(tagged, flags, strict=True):
                with self.block(f"if {flag}:"):
                    self._generate_tagged_field_code(field, f"{variable}.{field.name}", depth)
        self.add_lines("else: out.append(0)")

    def _generate_tagged_field_code(self, field: Field, value: str, depth: int) -> None:
        self.add_lines(f"outer_{depth} = out", "out = bytearray()")
        self._generate_field_code(field, value, f"{field.name}_{depth}")
        self._generate_pending_values_code()
        self.add_lines(
            f"write_varint(outer_{depth}, {field.tag})",
            f"write_varint(outer_{depth}, len(out))",
            f"outer_{depth} += out",
            f"out = outer_{depth}",
        )


@cache
def compile_decoder(cls: type[Struct], version: int) -> Decoder:
    """Return the generated decoder of one version of a message class."""
    _check_version_supported(cls, version)
    return cast(Decoder, DecoderSource(cls, version).compile_function("decode", f"<{cls.__name__} v{version}>"))


@cache
def compile_encoder(cls: type[Struct], version: int) -> Encoder:
    """Return the generated encoder of one version of a message class."""
    _check_version_supported(cls, version)
    return cast(Encoder, EncoderSource(cls, version).compile_function("encode", f"<{cls.__name__} v{version}>"))


@cache
def compile_element_encoder(message: type[Struct], element: type[Struct], version: int) -> Encoder:
    """Return the generated encoder of the elements of an array in a message class."""
    _check_version_supported(message, version)
    name = f"<{element.__name__} in {message.__name__} v{version}>"
    return cast(Encoder, EncoderSource(element, version, message).compile_function("encode", name))


def _check_version_supported(cls: type[Struct], version: int) -> None:
    if not cls.__schema__.versions.covers(version):
        raise UnsupportedVersion(cls.__schema__.api_key, version, correlation_id=-1)
