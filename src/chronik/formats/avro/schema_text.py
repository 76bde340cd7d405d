"""Texts of Avro schemas, equal to those that Apache Avro's Java library and Confluent's Schema Registry write."""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Final

from chronik.formats.avro.schema import (
    DEPTH_MAX,
    MISSING,
    Array,
    AvroField,
    AvroRecord,
    AvroSchemaError,
    Enum,
    Fixed,
    Kind,
    LogicalType,
    Map,
    NamedType,
    Type,
    Union,
    find_logical_type,
    read_decimal,
)

TOO_DEEP: Final = f"The schema is nested more than {DEPTH_MAX} levels deep"


def format_schema(root: Type, known_names: Iterable[str] = ()) -> str:
    """Return the text of a schema, as Java's `Schema.toString` writes it.

    Args:
        root: The schema.
        known_names: Full names of types that are written as names, because they are defined elsewhere.

    Raises:
        AvroSchemaError: The text would be nested too deeply, or is not valid Unicode.
    """
    parts: list[str] = []
    _Writer(parts, set(known_names)).write(root, None, 0)
    text = "".join(parts)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise AvroSchemaError("The schema contains a surrogate character, which is not valid Unicode") from None
    return text


def format_json(value: Any) -> str:
    """Return a JSON value as text, as Jackson writes it."""
    if isinstance(value, str):
        return _format_string(value)
    if isinstance(value, float):
        return _format_double(value)
    if isinstance(value, Decimal):
        return str(value or abs(value))  # Java's decimals have no negative zero
    if isinstance(value, dict):
        return "{" + ",".join(f"{_format_string(key)}:{format_json(element)}" for key, element in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(format_json, value)) + "]"
    return json.dumps(value)


_ESCAPE: Final = re.compile(r"\\(?:u[0-9a-f]{4}|.)")


def _format_string(value: str) -> str:
    text = json.dumps(value, ensure_ascii=False)
    if "\\u" in text:
        text = _ESCAPE.sub(lambda match: match[0] if len(match[0]) == 2 else "\\u" + match[0][2:].upper(), text)
    return text


def _format_double(value: float) -> str:
    """Return a number as Java's `Double.toString` writes it. Jackson quotes NaN and infinities."""
    if math.isnan(value):
        return '"NaN"'
    if math.isinf(value):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    text = repr(value)
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return text if "e" not in text else f"{value:f}"
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = text.lstrip("-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = whole + ("" if fraction == "0" else fraction)
    significant = digits.lstrip("0")
    point = len(whole) - (len(digits) - len(significant)) + int(exponent or 0)
    significant = significant.rstrip("0")
    return f"{sign}{significant[0]}.{significant[1:] or '0'}E{point - 1}"


class _Writer:
    def __init__(self, parts: list[str], known_names: set[str]) -> None:
        self._add = parts.append
        self._known = known_names

    def write(self, type_: Type, namespace: str | None, depth: int) -> None:
        if depth > DEPTH_MAX:
            raise AvroSchemaError(TOO_DEEP)
        if isinstance(type_, NamedType):
            self._write_named(type_, namespace, depth)
        elif isinstance(type_, Union):
            self._add("[")
            for index, branch in enumerate(type_.branches):
                if index:
                    self._add(",")
                self.write(branch, namespace, depth + 1)
            self._add("]")
        elif isinstance(type_, Array):
            self._add('{"type":"array","items":')
            self.write(type_.items, namespace, depth + 1)
            self._write_props(type_.props)
            self._add("}")
        elif isinstance(type_, Map):
            self._add('{"type":"map","values":')
            self.write(type_.values, namespace, depth + 1)
            self._write_props(type_.props)
            self._add("}")
        elif type_.props:
            self._add(f'{{"type":"{type_.kind}"')
            self._write_props(type_.props)
            self._add("}")
        else:
            self._add(f'"{type_.kind}"')

    def _write_named(self, type_: NamedType, namespace: str | None, depth: int) -> None:
        if type_.full_name in self._known:
            self._add(_format_string(type_.name.qualify(namespace)))
            return
        self._known.add(type_.full_name)
        is_error = isinstance(type_, AvroRecord) and type_.is_error
        self._add(f'{{"type":"{"error" if is_error else type_.kind}","name":"{type_.name.simple}"')
        own = type_.name.namespace
        if own is not None and own != namespace:
            self._add(f',"namespace":{_format_string(own)}')
        elif own is None and namespace is not None:
            self._add(',"namespace":""')
        if type_.doc is not None:
            self._add(f',"doc":{_format_string(type_.doc)}')
        if isinstance(type_, AvroRecord):
            self._add(',"fields":[')
            for index, field in enumerate(type_.fields):
                if index:
                    self._add(",")
                self._write_field(field, own, depth)
            self._add("]")
        elif isinstance(type_, Enum):
            self._add(f',"symbols":{format_json(type_.symbols)}')
            if type_.default is not None:
                self._add(f',"default":{_format_string(type_.default)}')
        elif isinstance(type_, Fixed):
            self._add(f',"size":{type_.size}')
        self._write_props(type_.props)
        if type_.aliases:
            self._add(f',"aliases":{format_json([alias.qualify(own) for alias in type_.aliases.values()])}')
        self._add("}")

    def _write_field(self, field: AvroField, namespace: str | None, depth: int) -> None:
        self._add(f'{{"name":{_format_string(field.name)},"type":')
        self.write(field.type, namespace, depth + 1)
        if field.doc is not None:
            self._add(f',"doc":{_format_string(field.doc)}')
        if field.has_default:
            self._add(f',"default":{format_json(field.default)}')
        if field.order != "ascending":
            self._add(f',"order":"{field.order}"')
        if field.aliases:
            self._add(f',"aliases":{format_json(field.aliases)}')
        self._write_props(field.props)
        self._add("}")

    def _write_props(self, props: dict[str, Any]) -> None:
        for key, value in props.items():
            self._add(f",{_format_string(key)}:{format_json(value)}")


# Normal form


def normalize_schema(root: Type, known_names: Iterable[str] = ()) -> Any:
    """Return the JSON of a schema in Confluent's normal form.

    Names are full names, attributes and aliases are sorted, numbers of default values have the field's type, and empty
    documentation is removed. Confluent's registry parses the result again, and stores its text.
    """
    return _Normalizer(set(known_names)).normalize(root, None)


def _sort_key(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")  # the order of Java's strings


def _sort_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sort_json(value[key]) for key in sorted(value, key=_sort_key)}
    if isinstance(value, list):
        return list(map(_sort_json, value))
    return value


def _sort_props(type_: Type) -> dict[str, Any]:
    sorted_props: dict[str, Any] = _sort_json(type_.props)
    logical_type = find_logical_type(type_)
    if logical_type is None:
        return sorted_props
    first: dict[str, Any] = {"logicalType": str(logical_type)}
    if logical_type is LogicalType.DECIMAL:
        precision, scale = read_decimal(type_)
        first |= {"precision": precision} | ({"scale": scale} if scale else {})
    return first | sorted_props


class _Normalizer:
    def __init__(self, known_names: set[str]) -> None:
        self._known = known_names

    def normalize(self, type_: Type, namespace: str | None) -> Any:
        if isinstance(type_, NamedType):
            return self._normalize_named(type_, namespace)
        if isinstance(type_, Union):
            return [self.normalize(branch, namespace) for branch in type_.branches]
        if isinstance(type_, Array):
            return {"type": "array", "items": self.normalize(type_.items, namespace)} | _sort_props(type_)
        if isinstance(type_, Map):
            return {"type": "map", "values": self.normalize(type_.values, namespace)} | _sort_props(type_)
        return {"type": str(type_.kind)} | _sort_props(type_) if type_.props else str(type_.kind)

    def _normalize_named(self, type_: NamedType, namespace: str | None) -> Any:
        if type_.full_name in self._known:
            return type_.full_name
        self._known.add(type_.full_name)
        own = type_.name.namespace
        schema: dict[str, Any] = {"name": type_.full_name, "type": str(type_.kind)}
        if own is None and namespace is not None:
            schema["namespace"] = ""  # otherwise, the type would move to the enclosing namespace
        if isinstance(type_, Enum):
            schema["symbols"] = type_.symbols
        elif isinstance(type_, Fixed):
            schema["size"] = type_.size
        elif isinstance(type_, AvroRecord):
            schema["fields"] = [self._normalize_field(field, own) for field in type_.fields]
        if type_.doc:
            schema["doc"] = type_.doc
        if type_.aliases:
            schema["aliases"] = sorted(type_.alias_names, key=_sort_key)
        if isinstance(type_, Enum) and type_.default is not None:
            schema["default"] = type_.default
        return schema | _sort_props(type_)

    def _normalize_field(self, field: AvroField, namespace: str | None) -> Any:
        definition: dict[str, Any] = {"name": field.name, "type": self.normalize(field.type, namespace)}
        definition["order"] = field.order
        if field.doc is not None:
            definition["doc"] = field.doc
        if field.aliases:
            definition["aliases"] = sorted(field.aliases, key=_sort_key)
        if field.default is not MISSING:
            definition["default"] = _normalize_default(field.default, field.type)
        return definition | _sort_json(field.props)


_SINGLE: Final = struct.Struct("<f")


def _normalize_default(value: Any, type_: Type) -> Any:
    if isinstance(type_, Union):
        # Confluent's registry uses the first branch, and removes the default value of another branch, which would
        # change how the schemas evolve.
        return _normalize_default(value, type_.branches[0]) if type_.branches else value
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return _normalize_number(value, type_.kind)
    if isinstance(value, list) and isinstance(type_, Array):
        return [_normalize_default(element, type_.items) for element in value]
    if isinstance(value, dict):
        value = _sort_json(value)
        if isinstance(type_, Map):
            return {key: _normalize_default(element, type_.values) for key, element in value.items()}
        if isinstance(type_, AvroRecord):
            return {
                key: _normalize_default(element, type_.by_name[key].type) if key in type_.by_name else element
                for key, element in value.items()
            }
    return value


def _normalize_number(value: float, kind: Kind) -> float:
    if kind is Kind.DOUBLE:
        return _to_double(value)
    if kind is Kind.FLOAT:
        number = _to_double(value)
        if not math.isfinite(number):
            return number
        try:
            single: float = _SINGLE.unpack(_SINGLE.pack(number))[0]
        except OverflowError:
            return math.copysign(math.inf, number)
        return next(short for digits in range(1, 18) if _to_single(short := float(f"{single:.{digits}g}")) == single)
    return value


def _to_single(value: float) -> float | None:
    try:
        single: float = _SINGLE.unpack(_SINGLE.pack(value))[0]
    except OverflowError:
        return None
    return single


def _to_double(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.copysign(math.inf, value)
