"""The declaration of Kafka messages: a class per struct, a line per field, each with a version range.

    class PartitionProduceData(Struct):
        index: int = int32("0+")
        records: memoryview | bytes | None = records("0+", nullable="0+")

    class ProduceRequest(Request): ...

Every field has a default, so that it also has a value in versions without the field. Encoders, decoders, error
responses and tests are derived from the declarations. The API key and versions of a message are in
`chronik.protocol.apis`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final, NamedTuple, TypeVar, cast, dataclass_transform, overload

import msgspec

from chronik.errors import check_invariant
from chronik.ids import ZERO_ID
from chronik.protocol.apis import API_BY_MESSAGE, VersionRange

T = TypeVar("T")

BytesLike = bytes | bytearray | memoryview
Records = BytesLike | list[BytesLike]  # accepted by encoders; decoders return a memoryview of their input

FIXED_FORMATS: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
ARRAY_FORMATS: Final = {"int8": "b", "int16": "h", "int32": "i", "int64": "q"}


class Field:
    """A field declared in a message class, with its type, versions and default value."""

    __slots__ = ("default", "element", "ignorable", "kind", "mirrors", "name", "nullable", "tag", "versions")

    def __init__(
        self,
        kind: str,
        versions: str,
        default: object,
        *,
        nullable: str | None = None,
        tag: int | None = None,
        ignorable: bool = False,
        element: str | type[Struct] | None = None,
    ) -> None:
        self.name = ""
        self.kind = kind
        self.versions = VersionRange.parse(versions)
        self.default = default
        self.nullable = VersionRange.parse(nullable)
        self.tag = tag
        self.ignorable = ignorable
        self.element = element
        self.mirrors: str | None = None


class StructSchema(NamedTuple):
    """The schema of a struct class: its fields and, for messages, its API key and versions."""

    name: str
    fields: tuple[Field, ...]
    api_key: int
    versions: VersionRange
    flexible: VersionRange

    def get_fields_of_version(self, version: int) -> tuple[list[Field], list[Field]]:
        """Return the fields in this version of the struct: ordinary fields in order, and tagged fields by tag."""
        present = [field for field in self.fields if field.versions.covers(version)]
        tagged = [field for field in present if field.tag is not None]
        return [field for field in present if field.tag is None], sorted(tagged, key=lambda field: field.tag or 0)


_NO_API: Final = (-1, VersionRange.parse(None), VersionRange.parse(None))


@dataclass_transform(kw_only_default=True)
class MessageStructMeta(msgspec.StructMeta):
    """The metaclass of message structs, which derives the schema from the declared fields."""

    def __new__(
        mcls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        frozen: bool = False,
    ) -> MessageStructMeta:
        fields = []
        for key, value in namespace.items():
            if isinstance(value, Field):
                value.name = key
                fields.append(value)
                namespace[key] = value.default
        # gc=False: messages are acyclic, and a garbage collection during a large decode is slow.
        cls = super().__new__(mcls, name, bases, namespace, kw_only=True, gc=False, frozen=frozen)
        api = API_BY_MESSAGE.get(name)
        api_fields = (api.key, api.versions, api.flexible) if api is not None else _NO_API
        cls.__schema__ = StructSchema(name, tuple(fields), *api_fields)  # type: ignore[attr-defined]
        return cls


class Struct(msgspec.Struct, metaclass=MessageStructMeta):
    """The base class of structs in messages. The class of a single struct field must be frozen."""

    __schema__: ClassVar[StructSchema]


class Request(Struct):
    """The base class of requests.

    Fields that its version does not contain must have their default value or be `ignorable`.
    """


class Response(Struct):
    """The base class of responses. When a response is encoded, fields that its version lacks are omitted."""


# --- field specifiers; mypy checks the annotations against their return types ----------------------------------------


def boolean(versions: str, *, default: bool = False, tag: int | None = None, ignorable: bool = False) -> bool:
    """Declare a boolean field."""
    return cast(bool, Field("bool", versions, default, tag=tag, ignorable=ignorable))


def int8(versions: str, *, default: int = 0, tag: int | None = None, ignorable: bool = False) -> int:
    """Declare an int8 field."""
    return cast(int, Field("int8", versions, default, tag=tag, ignorable=ignorable))


def int16(versions: str, *, default: int = 0, tag: int | None = None, ignorable: bool = False) -> int:
    """Declare an int16 field."""
    return cast(int, Field("int16", versions, default, tag=tag, ignorable=ignorable))


def uint16(versions: str) -> int:
    """Declare a uint16 field, as used for ports."""
    return cast(int, Field("uint16", versions, 0))


def int32(versions: str, *, default: int = 0, tag: int | None = None, ignorable: bool = False) -> int:
    """Declare an int32 field."""
    return cast(int, Field("int32", versions, default, tag=tag, ignorable=ignorable))


def int64(versions: str, *, default: int = 0, tag: int | None = None, ignorable: bool = False) -> int:
    """Declare an int64 field."""
    return cast(int, Field("int64", versions, default, tag=tag, ignorable=ignorable))


def float64(versions: str) -> float:
    """Declare a float64 field."""
    return cast(float, Field("float64", versions, 0.0))


def uuid(versions: str, *, tag: int | None = None, ignorable: bool = False) -> bytes:
    """Declare a uuid field of 16 raw bytes (see `chronik.ids`)."""
    return cast(bytes, Field("uuid", versions, ZERO_ID, tag=tag, ignorable=ignorable))


@overload
def string(versions: str, *, default: str = "", tag: int | None = None, ignorable: bool = False) -> str: ...
@overload
def string(
    versions: str, *, nullable: str, default: str | None = "", tag: int | None = None, ignorable: bool = False
) -> str | None: ...
def string(
    versions: str,
    *,
    nullable: str | None = None,
    default: str | None = "",
    tag: int | None = None,
    ignorable: bool = False,
) -> str | None:
    return cast(str, Field("string", versions, default, nullable=nullable, tag=tag, ignorable=ignorable))


def binary(versions: str) -> bytes:
    """Declare a bytes field. The decoder copies its value, so that it may outlive the frame."""
    return cast(bytes, Field("bytes", versions, b""))


def records(versions: str, *, nullable: str) -> Any:
    """Declare a field that contains record batches, which are not copied from the frame."""
    return Field("records", versions, None, nullable=nullable)


@overload
def array(element: Callable[..., T], versions: str, *, tag: int | None = None, ignorable: bool = False) -> list[T]: ...
@overload
def array(
    element: Callable[..., T], versions: str, *, nullable: str, default: None = ..., ignorable: bool = False
) -> list[T] | None: ...
def array(
    element: Callable[..., T],
    versions: str,
    *,
    nullable: str | None = None,
    default: object = (),
    tag: int | None = None,
    ignorable: bool = False,
) -> list[T] | None:
    """Declare an array field. `element` is a struct class or the field specifier of a primitive type."""
    of = element if isinstance(element, type) else element.__name__
    start: list[T] | None = None if default is None else []
    field = Field("array", versions, start, nullable=nullable, tag=tag, ignorable=ignorable, element=of)
    return cast("list[T]", field)


def struct(element: type[T], versions: str, *, tag: int, ignorable: bool = False) -> T:
    """Declare a tagged field that contains a struct. Its default instance is shared, so its class must be frozen."""
    check_invariant(element.__struct_config__.frozen, f"{element.__name__} must be frozen")  # type: ignore[attr-defined]
    return cast(T, Field("struct", versions, element(), tag=tag, ignorable=ignorable, element=cast(Any, element)))


def nullable_struct(element: type[T], versions: str) -> T | None:
    """Declare a field that contains a struct or null."""
    return cast("T | None", Field("struct", versions, None, nullable=versions, element=cast(Any, element)))


def mirror_request_field(name: str, field: T) -> T:
    """Declare that a response field has the value of the request field `name`, also in error responses.

    A mirrored array has an element for each element of the request's array, whose fields mirror that element's fields.
    If those are primitives, a field mirrors the array itself: see `OffsetFetchResponsePartition`.
    """
    cast(Field, field).mirrors = name
    return field
