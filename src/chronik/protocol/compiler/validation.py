"""Search for the invalid field of a message that could not be encoded; runs only after an encoder has failed."""

from __future__ import annotations

from collections.abc import Iterator

from chronik.protocol.schema import Field, Struct
from chronik.protocol.wire import STRING_BYTES_MAX

_INTEGERS = {f"int{bits}": range(-(1 << (bits - 1)), 1 << (bits - 1)) for bits in (8, 16, 32, 64)}
_INTEGERS["uint16"] = range(1 << 16)


def find_invalid_field(message: Struct, version: int) -> str | None:
    """Return the path of the first invalid field and what is wrong with it, or None."""
    return next(_struct_faults(message, version, type(message).__name__), None)


def _struct_faults(value: Struct, version: int, path: str) -> Iterator[str]:
    plain, tagged = value.__schema__.fields_at(version)
    for field in plain + tagged:
        actual = getattr(value, field.name)
        field_path = f"{path}.{field.name}"
        if actual is None:
            if not field.nullable.covers(version):
                yield f"{field_path} is null in version {version}"
        elif field.kind == "array":
            yield from _array_faults(field, actual, version, field_path)
        elif field.kind == "struct":
            yield from _element_faults(field.element, actual, version, field_path)
        else:
            yield from _element_faults(field.kind, actual, version, field_path)


def _array_faults(field: Field, actual: object, version: int, field_path: str) -> Iterator[str]:
    if not isinstance(actual, list | tuple):
        yield f"{field_path} is {type(actual).__name__}, not a list"
        return
    for index, element in enumerate(actual):
        yield from _element_faults(field.element, element, version, f"{field_path}[{index}]")


def _element_faults(kind: str | type[Struct] | None, actual: object, version: int, field_path: str) -> Iterator[str]:
    if isinstance(kind, type):
        if isinstance(actual, kind):
            yield from _struct_faults(actual, version, field_path)
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
        yield from _string_faults(actual, field_path)
    elif kind == "uuid":
        if not isinstance(actual, bytes) or len(actual) != 16:
            yield f"{field_path} is not 16 bytes"
    elif not isinstance(actual, bytes | bytearray | memoryview | list):
        yield f"{field_path} is {type(actual).__name__}, not bytes"


def _string_faults(actual: object, field_path: str) -> Iterator[str]:
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
