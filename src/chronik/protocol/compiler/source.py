"""The builder of Python source that the encoder and decoder generators share."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from chronik.protocol.schema import FIXED_FORMATS, Field, Struct

LENGTH_FORMATS = {"string": "h", "bytes": "i", "records": "i", "array": "i"}


class FunctionSource:
    """The source of one generated function."""

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
        """Append lines at the current indentation."""
        self._lines += ["    " * self._indent + line for line in lines]

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Append a line that opens a block, and indent the lines inside the context."""
        self.add_lines(head)
        self._indent += 1
        yield
        self._indent -= 1

    def bind_name(self, name: str, value: object) -> str:
        """Make `value` available to the function as `name`, and return the name."""
        self.names[name] = value
        return name

    def take_pending_values(self) -> tuple[struct.Struct, list[str]]:
        """Return and clear the collected fixed-size values."""
        layout = struct.Struct(">" + "".join(letter for letter, _ in self.pending_values))
        expressions = [expression for _, expression in self.pending_values if expression]
        self.pending_values.clear()
        return layout, expressions


def format_struct_function(verb: str, layout: struct.Struct) -> str:
    """Return the name of a pack or unpack function for a struct layout."""
    return f"{verb}_{layout.format[1:].replace('?', 't')}"


def has_records(cls: type[Struct], version: int) -> bool:
    """Return whether a message version has a field with records."""
    plain, tagged = cls.__schema__.fields_at(version)
    return any(field.kind == "records" or _contains_records(field, version) for field in plain + tagged)


def _contains_records(field: Field, version: int) -> bool:
    return isinstance(field.element, type) and has_records(field.element, version)


def min_element_size(element: str | type[Struct] | None, version: int, flexible: bool) -> int:
    """Return the minimum encoded size of an array element, which limits the number of elements in the bytes left."""
    if isinstance(element, type):
        plain, _ = element.__schema__.fields_at(version)
        return sum(_min_field_size(field.kind, flexible) for field in plain) + flexible
    return _min_field_size(str(element), flexible)


def _min_field_size(kind: str, flexible: bool) -> int:
    if kind in FIXED_FORMATS:
        return struct.calcsize(">" + FIXED_FORMATS[kind])
    return 1 if flexible or kind == "struct" else struct.calcsize(">" + LENGTH_FORMATS[kind])
