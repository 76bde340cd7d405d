"""Python source that is being written, and the names it refers to: what the two compilers have in common."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from chronik.protocol.schema import FIXED_FORMATS, Field, Struct

LENGTH_FORMATS = {"string": "h", "bytes": "i", "records": "i", "array": "i"}


class Source:
    """The source of one function, written line by line."""

    def __init__(self, signature: str, version: int, flexible: bool, runtime: dict[str, object]) -> None:
        self.version = version
        self.flexible = flexible
        self.names = dict(runtime)
        self._lines = [f"def {signature}:"]
        self._indent = 1
        # Fixed-size values not yet written out, as (struct letter, expression): they become one pack or unpack.
        self.run: list[tuple[str, str]] = []

    @property
    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def function(self, name: str, filename: str) -> Callable[..., Any]:
        exec(compile(self.text, filename, "exec"), self.names)
        return self.names[name]  # type: ignore[return-value]

    def add(self, *lines: str) -> None:
        self._lines += ["    " * self._indent + line for line in lines]

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.add(head)
        self._indent += 1
        yield
        self._indent -= 1

    def name(self, name: str, value: object) -> str:
        """Makes `value` known to the function under `name`."""
        self.names[name] = value
        return name

    def take_run(self) -> tuple[struct.Struct, list[str]]:
        """Returns the values collected so far, which the caller now writes out."""
        layout = struct.Struct(">" + "".join(letter for letter, _ in self.run))
        expressions = [expression for _, expression in self.run if expression]
        self.run.clear()
        return layout, expressions


def run_name(verb: str, layout: struct.Struct) -> str:
    return f"{verb}_{layout.format[1:].replace('?', 't')}"


def has_records(cls: type[Struct], version: int) -> bool:
    plain, tagged = cls.__schema__.at(version)
    return any(field.kind == "records" or _holds_records(field, version) for field in plain + tagged)


def _holds_records(field: Field, version: int) -> bool:
    return isinstance(field.element, type) and has_records(field.element, version)


def smallest(element: str | type[Struct] | None, version: int, flexible: bool) -> int:
    """Returns the fewest bytes an array's element can take: it bounds the count that fits into the bytes left."""
    if isinstance(element, type):
        plain, _ = element.__schema__.at(version)
        return sum(_smallest_field(field.kind, flexible) for field in plain) + flexible
    return _smallest_field(str(element), flexible)


def _smallest_field(kind: str, flexible: bool) -> int:
    if kind in FIXED_FORMATS:
        return struct.calcsize(">" + FIXED_FORMATS[kind])
    return 1 if flexible or kind == "struct" else struct.calcsize(">" + LENGTH_FORMATS[kind])
