"""Other Kafka codecs behind one interface that encodes and decodes our message classes.

Fields are matched by position, so that names may differ slightly, but missing or extra fields are detected.
"""

from __future__ import annotations

import importlib
import io
import uuid
from collections.abc import Callable, Iterator
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from typing import Any, NamedTuple, Protocol, get_args, get_origin, get_type_hints

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.old.types as old_types
import kafka.protocol.producer
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.schemas.fields import ArrayField, StructField
from kafka.protocol.schemas.fields.codecs import BitField
from kio import index as kio_index
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer

from chronik.ids import ZERO_ID
from chronik.protocol.schema import Field, Request, Struct


class Oracle(Protocol):
    name: str

    def supports(self, cls: type[Struct], version: int) -> bool: ...
    def encode(self, message: Struct, version: int) -> bytes: ...
    def decode(self, cls: type[Struct], version: int, data: bytes) -> Struct: ...


def fields_of_version(cls: type[Struct], version: int) -> list[Field]:
    """Return all fields of a version in declaration order, including tagged ones."""
    return [field for field in cls.__schema__.fields if field.versions.covers(version)]


class OracleField(NamedTuple):
    """A field as declared by another codec."""

    field: Any
    name: str
    kind: str
    """The kind, as returned by `kind_of` for our fields."""


def kind_of(field: Field) -> str:
    element = "struct" if isinstance(field.element, type) else field.element
    return f"array of {element}" if field.kind == "array" else field.kind


def match_fields(cls: type[Struct], version: int, theirs: list[OracleField]) -> list[tuple[Field, Any]]:
    """Return pairs of our and their fields. Raise AssertionError with the first field that differs."""
    ours, where = fields_of_version(cls, version), f"{cls.__schema__.name} {version}"
    for our, their in zip(ours, theirs, strict=False):
        said = f"{where}: `{our.name}` is {kind_of(our)}, and theirs in its place is `{their.name}`, {their.kind}"
        assert kind_of(our) == their.kind, said
        assert _are_alike(our.name, their.name), said
    names = [", ".join(each.name for each in fields) for fields in (ours, theirs)]
    assert len(ours) == len(theirs), f"{where}: ours are {names[0]}; theirs are {names[1]}"
    return [(our, their.field) for our, their in zip(ours, theirs, strict=True)]


def _are_alike(ours: str, theirs: str) -> bool:
    """Return whether two field names match; some codecs omit `_ms` or append version suffixes."""
    ours, theirs = ours.replace("_", ""), theirs.replace("_", "")
    return ours in theirs or theirs in ours


def over_elements(field: Field, value: Any, convert: Callable[[Any], Any]) -> Any:
    """Apply `convert` to a value, or to each element of an array."""
    if value is None or field.kind != "array":
        return None if value is None else convert(value)
    return [convert(element) for element in value]


class Kio:
    name = "kio"

    def supports(self, cls: type[Struct], version: int) -> bool:
        try:
            self._entity(cls, version)
        except kio_index.KioIndexError:
            return False
        return True

    @staticmethod
    @cache
    def _entity(cls: type[Struct], version: int) -> Any:
        schema = cls.__schema__
        load = kio_index.load_request_schema if issubclass(cls, Request) else kio_index.load_response_schema
        return load(schema.api_key, version)

    def encode(self, message: Struct, version: int) -> bytes:
        entity = self._entity(type(message), version)
        out = io.BytesIO()
        entity_writer(entity)(out, self._build(version, entity, message))
        return out.getvalue()

    def decode(self, cls: type[Struct], version: int, data: bytes) -> Struct:
        entity = self._entity(cls, version)
        value, size = entity_reader(entity)(data, 0)
        assert size == len(data)
        return self._read(cls, version, value)

    def _build(self, version: int, entity: Any, message: Struct) -> Any:
        arguments = {}
        for ours, theirs in _beside_kio(type(message), version, entity):
            value = getattr(message, ours.name)
            if isinstance(ours.element, type):
                nested = _kio_element(entity, theirs.name)
                value = over_elements(ours, value, partial(self._build, version, nested))
            else:
                value = over_elements(ours, value, partial(_to_kio, theirs.metadata["kafka_type"]))
            arguments[theirs.name] = tuple(value) if isinstance(value, list) else value
        return entity(**arguments)

    def _read(self, cls: type[Struct], version: int, value: Any) -> Struct:
        arguments = {}
        entity: Any = type(value)
        for ours, theirs in _beside_kio(cls, version, entity):
            held = getattr(value, theirs.name)
            if isinstance(ours.element, type):
                nested = ours.element
                held = over_elements(ours, held, partial(self._read, nested, version))
            elif ours.kind == "array":
                kind = theirs.metadata["kafka_type"]
                held = None if held is None else [_from_kio(kind, one) for one in held]
            else:
                held = _from_kio(theirs.metadata["kafka_type"], held)
            arguments[ours.name] = held
        return cls(**arguments)


@cache  # called for each of ten thousand elements
def _beside_kio(cls: type[Struct], version: int, entity: Any) -> list[tuple[Field, Any]]:
    return match_fields(
        cls, version, [OracleField(each, each.name, _kio_kind(each)) for each in dataclass_fields(entity)]
    )


def _kio_kind(field: Any) -> str:
    meaning = field.metadata.get("kafka_type", "struct")
    kind = {"error_code": "int16", "timedelta_i32": "int32", "timedelta_i64": "int64", "datetime_i64": "int64"}.get(
        meaning, meaning
    )
    is_array = any(get_origin(hint) is tuple for hint in (field.type, *get_args(field.type)))
    return f"array of {kind}" if is_array else kind


@cache
def _kio_element(entity: Any, name: str) -> Any:
    """Return the class in `tuple[Class, ...] | None`, matched by position because class names differ."""
    hint = get_type_hints(entity)[name]
    while not is_dataclass(hint):
        hint = next(part for part in get_args(hint) if part is not type(None))
    return hint


_MILLISECOND = timedelta(milliseconds=1)


def _to_kio(kind: str, value: Any) -> Any:
    if kind == "error_code":
        return KioErrorCode(value)
    if kind == "uuid":
        return None if value == ZERO_ID else uuid.UUID(bytes=value)
    if kind.startswith("timedelta"):
        return timedelta(milliseconds=value)
    if kind == "datetime_i64":
        return None if value == -1 else datetime.fromtimestamp(value // 1000, tz=UTC)
    return value


def _from_kio(kind: str, value: Any) -> Any:
    if kind == "error_code":
        return int(value.value) if hasattr(value, "value") else int(value)
    if kind == "uuid":
        return ZERO_ID if value is None else value.bytes
    if kind.startswith("timedelta"):
        return value // _MILLISECOND
    if kind == "datetime_i64":
        return -1 if value is None else int(value.timestamp()) * 1000
    return value


class KafkaPython:
    """kafka-python 3, generated from Kafka's JSON schemas; it also supports versions that Kafka has removed."""

    name = "kafka-python"

    def supports(self, cls: type[Struct], version: int) -> bool:
        found = _kafka_python_class(cls.__schema__.name)
        return found is not None and version <= found.max_version

    def encode(self, message: Struct, version: int) -> bytes:
        theirs = _kafka_python_class(type(message).__schema__.name)
        built = self._build(version, theirs._struct, theirs, message)
        # Bypass the overrides of single classes, which change their input.
        return bytes(ApiMessage.encode(built, version=version))

    def decode(self, cls: type[Struct], version: int, data: bytes) -> Struct:
        theirs = _kafka_python_class(cls.__schema__.name)
        # ApiVersionsResponse overrides decode to read every error as version 0.
        return self._read(cls, version, theirs._struct, ApiMessage.decode.__func__(theirs, data, version=version))

    def _build(self, version: int, struct: Any, container: Any, message: Struct) -> Any:
        arguments = {}
        for ours, theirs in _beside_kafka_python(type(message), version, struct):
            value = getattr(message, ours.name)
            if ours.tag is not None and value == ours.default:
                continue  # it encodes every tagged field that is set
            if isinstance(ours.element, type):
                nested = theirs.array_of if ours.kind == "array" else theirs
                value = over_elements(ours, value, partial(self._build, version, nested, nested.data_class))
            elif ours.kind == "uuid":
                value = None if value == ZERO_ID else uuid.UUID(bytes=value)
            elif theirs.type_str == "bitfield":
                value = BitField.from_32_bit_field(value & 0xFFFF_FFFF)
            arguments[theirs.name] = value
        return container(version=version, **arguments)

    def _read(self, cls: type[Struct], version: int, struct: Any, value: Any) -> Struct:
        arguments = {}
        for ours, theirs in _beside_kafka_python(cls, version, struct):
            if ours.tag is not None and theirs.name not in (value.tags or ()):
                continue
            held = getattr(value, theirs.name)
            if isinstance(ours.element, type):
                nested = theirs.array_of if ours.kind == "array" else theirs
                held = over_elements(ours, held, partial(self._read, ours.element, version, nested))
            elif ours.kind == "uuid":
                held = ZERO_ID if held is None else held.bytes
            elif theirs.type_str == "bitfield":
                unsigned = BitField.to_32_bit_field({31} if held is None else held)
                held = unsigned - (1 << 32) if unsigned >> 31 else unsigned
            arguments[ours.name] = held
        return cls(**arguments)


_BESIDE_KAFKA_PYTHON: dict[tuple[type[Struct], int, int], list[tuple[Field, Any]]] = {}
"""Keyed by the identity of their structs, which are not hashable and live as long as their classes."""


def _beside_kafka_python(cls: type[Struct], version: int, struct: Any) -> list[tuple[Field, Any]]:
    key = cls, version, id(struct)
    if key not in _BESIDE_KAFKA_PYTHON:
        fields = [field for field in struct._fields if field.for_version_q(version)]
        theirs = [OracleField(each, each.name, _kafka_python_kind(each)) for each in fields]
        _BESIDE_KAFKA_PYTHON[key] = match_fields(cls, version, theirs)
    return _BESIDE_KAFKA_PYTHON[key]


def _kafka_python_kind(field: Any) -> str:
    if isinstance(field, ArrayField):
        return f"array of {_kafka_python_kind(field.array_of)}"
    if isinstance(field, StructField):
        return "struct"
    return "int32" if field.type_str == "bitfield" else str(field.type_str)


@cache
def _kafka_python_class(name: str) -> Any:
    packages = (kafka.protocol.admin, kafka.protocol.consumer, kafka.protocol.metadata, kafka.protocol.producer)
    return next((getattr(package, name) for package in packages if hasattr(package, name)), None)


class OldKafkaPython:
    """kafka-python's former handwritten schemas, which cover the oldest versions."""

    name = "kafka-python old"
    _MODULES = (
        "admin",
        "api_versions",
        "commit",
        "fetch",
        "find_coordinator",
        "group",
        "init_producer_id",
        "list_offsets",
        "metadata",
        "offset_for_leader_epoch",
        "produce",
        "sasl_authenticate",
        "sasl_handshake",
    )

    # Its DescribeLogDirs request has a single partition instead of an array, and its DescribeAcls lacks compact
    # strings.
    _WRONG = (("DescribeLogDirsRequest", 0), ("DescribeAclsRequest", 2), ("DescribeAclsResponse", 2))

    def supports(self, cls: type[Struct], version: int) -> bool:
        name = cls.__schema__.name
        _, tagged = cls.__schema__.get_fields_of_version(version)  # it does not support tagged fields
        return self._class(name, version) is not None and not tagged and (name, version) not in self._WRONG

    @classmethod
    @cache
    def _class(cls, name: str, version: int) -> Any:
        for module in cls._MODULES:
            found = getattr(importlib.import_module(f"kafka.protocol.old.{module}"), f"{name}_v{version}", None)
            if found is not None:
                return found
        return None

    def encode(self, message: Struct, version: int) -> bytes:
        schema = self._class(type(message).__schema__.name, version).SCHEMA
        return bytes(schema.encode(self._build(version, schema, message)))

    def decode(self, cls: type[Struct], version: int, data: bytes) -> Struct:
        buffer = io.BytesIO(data)
        values = self._class(cls.__schema__.name, version).SCHEMA.decode(buffer)
        assert buffer.read() == b""
        return self._read(cls, version, self._class(cls.__schema__.name, version).SCHEMA, values)

    def _build(self, version: int, schema: Any, message: Struct) -> Any:
        plain, _ = type(message).__schema__.get_fields_of_version(version)
        if not isinstance(schema, old_types.Schema):
            return getattr(message, plain[0].name)  # an array of single-field structs is an array of that field
        row = []
        for ours, theirs in zip(plain, self._untagged(schema), strict=True):
            value = getattr(message, ours.name)
            if isinstance(ours.element, type):
                inner = theirs.array_of
                value = over_elements(ours, value, partial(self._build, version, inner))
            elif theirs is old_types.BitField:
                value = old_types.BitField.from_32_bit_field(value & 0xFFFF_FFFF)
            row.append(value)
        return self._nest(schema, row)

    def _read(self, cls: type[Struct], version: int, schema: Any, values: Any) -> Struct:
        plain, _ = cls.__schema__.get_fields_of_version(version)
        if not isinstance(schema, old_types.Schema):
            return cls(**{plain[0].name: values})
        arguments = {}
        untagged = list(self._untagged(schema))
        for ours, theirs, held in zip(plain, untagged, self._flatten(schema, values), strict=True):
            if isinstance(ours.element, type):
                held = over_elements(ours, held, partial(self._read, ours.element, version, theirs.array_of))
            elif theirs is old_types.BitField:
                unsigned = old_types.BitField.to_32_bit_field({31} if held is None else held)
                held = unsigned - (1 << 32) if unsigned >> 31 else unsigned
            arguments[ours.name] = held
        return cls(**arguments)

    # Schemas may be nested (as in CreatePartitions), which makes no difference on the wire.

    def _untagged(self, schema: Any) -> Iterator[Any]:
        for field in schema.fields:
            if isinstance(field, old_types.Schema):
                yield from self._untagged(field)
            elif field is not old_types.TaggedFields:
                yield field

    def _nest(self, schema: Any, row: list[Any]) -> list[Any]:
        """Take the values that `schema` needs from `row`, in its structure."""
        nested: list[Any] = []
        for field in schema.fields:
            if isinstance(field, old_types.Schema):
                nested.append(self._nest(field, row))
            else:
                nested.append({} if field is old_types.TaggedFields else row.pop(0))
        return nested

    def _flatten(self, schema: Any, values: Any) -> Iterator[Any]:
        for field, value in zip(schema.fields, values, strict=False):  # values omit empty tagged fields
            if isinstance(field, old_types.Schema):
                yield from self._flatten(field, value)
            elif field is not old_types.TaggedFields:
                yield value


ORACLES: tuple[Oracle, ...] = (Kio(), KafkaPython(), OldKafkaPython())
