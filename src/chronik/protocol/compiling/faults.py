"""Finds what is wrong with a message that could not be encoded. Runs only after an encoder has already failed."""

from __future__ import annotations

from collections.abc import Iterator

from chronik.protocol.schema import Field, Struct
from chronik.protocol.wire import STRING_BYTES_MAX

_INTEGERS = {f"int{bits}": range(-(1 << (bits - 1)), 1 << (bits - 1)) for bits in (8, 16, 32, 64)}
_INTEGERS["uint16"] = range(1 << 16)


def first_fault(message: Struct, version: int) -> str | None:
    """Returns the path of the first field with an impossible value and what is wrong there, or None."""
    return next(_struct_faults(message, version, type(message).__name__), None)


def _struct_faults(value: Struct, version: int, path: str) -> Iterator[str]:
    plain, tagged = value.__schema__.at(version)
    for field in plain + tagged:
        held = getattr(value, field.name)
        where = f"{path}.{field.name}"
        if held is None:
            if not field.nullable.covers(version):
                yield f"{where} is null in version {version}"
        elif field.kind == "array":
            yield from _array_faults(field, held, version, where)
        elif field.kind == "struct":
            yield from _element_faults(field.element, held, version, where)
        else:
            yield from _element_faults(field.kind, held, version, where)


def _array_faults(field: Field, held: object, version: int, where: str) -> Iterator[str]:
    if not isinstance(held, list | tuple):
        yield f"{where} is {type(held).__name__}, not a list"
        return
    for index, element in enumerate(held):
        yield from _element_faults(field.element, element, version, f"{where}[{index}]")


def _element_faults(kind: str | type[Struct] | None, held: object, version: int, where: str) -> Iterator[str]:
    if isinstance(kind, type):
        if isinstance(held, kind):
            yield from _struct_faults(held, version, where)
        else:
            yield f"{where} is {type(held).__name__}, not {kind.__name__}"
    elif kind in _INTEGERS:
        if not isinstance(held, int) or held not in _INTEGERS[kind]:
            yield f"{where} is {held!r}, not {kind}"
    elif kind == "bool":
        if not isinstance(held, bool):
            yield f"{where} is {held!r}, not a bool"
    elif kind == "float64":
        if not isinstance(held, float | int):
            yield f"{where} is {held!r}, not a number"
    elif kind == "string":
        yield from _string_faults(held, where)
    elif kind == "uuid":
        if not isinstance(held, bytes) or len(held) != 16:
            yield f"{where} is not 16 bytes"
    elif not isinstance(held, bytes | bytearray | memoryview | list):
        yield f"{where} is {type(held).__name__}, not bytes"


def _string_faults(held: object, where: str) -> Iterator[str]:
    if not isinstance(held, str):
        yield f"{where} is {type(held).__name__}, not a string"
        return
    try:
        size = len(held.encode())
    except UnicodeEncodeError:
        yield f"{where} has lone surrogates"
        return
    if size > STRING_BYTES_MAX:
        yield f"{where} has {size} bytes, more than {STRING_BYTES_MAX}"
