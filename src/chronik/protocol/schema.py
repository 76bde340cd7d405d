"""How a Kafka message is declared: a class per struct, a line per field, a version range on each.

    class PartitionProduceData(Struct):
        index: int = int32("0+")
        records: memoryview | bytes | None = records("0+", nullable="0+")

    class ProduceRequest(Request): ...

Every field has a default, Kafka's own or the number that says "unknown", so that a field absent from a version still
has a value. Encoders, decoders, the answers to requests that failed and the tests derive from the declaration. The key
and the versions of a message are in the line that its API has in `chronik.protocol.apis`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final, NamedTuple, TypeVar, cast, dataclass_transform, overload

import msgspec

from chronik.errors import invariant
from chronik.ids import ZERO_ID
from chronik.protocol.apis import API_OF_MESSAGE, Versions

T = TypeVar("T")

Chunk = bytes | bytearray | memoryview
Records = Chunk | list[Chunk]  # what an encoder accepts; a decoder always yields one memoryview into its input

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
    """One declared field. `kind` is Kafka's type name, or "array" or "struct" with `element` saying of what."""

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
        self.versions = Versions.parse(versions)
        self.default = default
        self.nullable = Versions.parse(nullable)
        self.tag = tag
        self.ignorable = ignorable
        self.element = element
        self.mirrors: str | None = None


class Schema(NamedTuple):
    """What a struct class declares. Only messages have an api key and versions, those of their API."""

    name: str
    fields: tuple[Field, ...]
    api_key: int
    versions: Versions
    flexible: Versions

    def at(self, version: int) -> tuple[list[Field], list[Field]]:
        """Returns the fields of one version: the ordinary ones in their order, and the tagged ones by tag."""
        present = [field for field in self.fields if field.versions.covers(version)]
        tagged = [field for field in present if field.tag is not None]
        return [field for field in present if field.tag is None], sorted(tagged, key=lambda field: field.tag or 0)


_PART_OF_A_MESSAGE: Final = (-1, Versions.parse(None), Versions.parse(None))


@dataclass_transform(kw_only_default=True)
class MessageMeta(msgspec.StructMeta):
    """Takes the fields out of the class body, leaves their defaults to msgspec and keeps the schema on the class."""

    def __new__(
        mcls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        frozen: bool = False,
    ) -> MessageMeta:
        fields = []
        for key, value in namespace.items():
            if isinstance(value, Field):
                value.name = key
                fields.append(value)
                namespace[key] = value.default
        # gc=False: messages are trees, never cycles, and a collection in the middle of a large decode is slow.
        cls = super().__new__(mcls, name, bases, namespace, kw_only=True, gc=False, frozen=frozen)
        api = API_OF_MESSAGE.get(name)
        spoken = (api.key, api.versions, api.flexible) if api is not None else _PART_OF_A_MESSAGE
        cls.__schema__ = Schema(name, tuple(fields), *spoken)  # type: ignore[attr-defined]
        return cls


class Struct(msgspec.Struct, metaclass=MessageMeta):
    """A part of a message. Declare it `frozen=True` when it is used as a single field: its default is shared."""

    __schema__: ClassVar[Schema]


class Request(Struct):
    """A message from a client. Fields that its version cannot carry must have their default, or be `ignorable`."""


class Response(Struct):
    """A message from a broker. Fields that its version cannot carry are left out: an old client never knew them."""


# --- field specifiers; their return types are what mypy checks the annotations against -------------------------------


def boolean(versions: str, *, default: bool = False, tag: int | None = None, ignorable: bool = False) -> bool:
    return cast(bool, Field("bool", versions, default, tag=tag, ignorable=ignorable))


def int8(versions: str, *, default: int = 0, tag: int | None = None, ignorable: bool = False) -> int:
    return cast(int, Field("int8", versions, default, tag=tag, ignorable=ignorable))


def int16(versions: str, *, default: int = 0, tag: int | None = None, ignorable: bool = False) -> int:
    return cast(int, Field("int16", versions, default, tag=tag, ignorable=ignorable))


def uint16(versions: str) -> int:
    """A port."""
    return cast(int, Field("uint16", versions, 0))


def int32(versions: str, *, default: int = 0, tag: int | None = None, ignorable: bool = False) -> int:
    return cast(int, Field("int32", versions, default, tag=tag, ignorable=ignorable))


def int64(versions: str, *, default: int = 0, tag: int | None = None, ignorable: bool = False) -> int:
    return cast(int, Field("int64", versions, default, tag=tag, ignorable=ignorable))


def float64(versions: str) -> float:
    return cast(float, Field("float64", versions, 0.0))


def uuid(versions: str, *, tag: int | None = None, ignorable: bool = False) -> bytes:
    """16 raw bytes, see `chronik.ids`."""
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
    """Kafka's `bytes`. Decoded as a copy: such fields (subscriptions, assignments) outlive the frame they came in."""
    return cast(bytes, Field("bytes", versions, b""))


def records(versions: str, *, nullable: str) -> Any:
    """Record batches: a slice of the frame when decoded, any `Records` when encoded. Never copied needlessly."""
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
    """An array of structs (`element` is their class) or of primitives (`element` is their specifier)."""
    of = element if isinstance(element, type) else element.__name__
    start: list[T] | None = None if default is None else []
    field = Field("array", versions, start, nullable=nullable, tag=tag, ignorable=ignorable, element=of)
    return cast("list[T]", field)


def struct(element: type[T], versions: str, *, tag: int, ignorable: bool = False) -> T:
    """A single struct with a tag; its default instance is shared, which is why its class must be frozen."""
    invariant(element.__struct_config__.frozen, f"{element.__name__} must be frozen")  # type: ignore[attr-defined]
    return cast(T, Field("struct", versions, element(), tag=tag, ignorable=ignorable, element=cast(Any, element)))


def nullable_struct(element: type[T], versions: str) -> T | None:
    return cast("T | None", Field("struct", versions, None, nullable=versions, element=cast(Any, element)))


def mirror(name: str, field: T) -> T:
    """Declares a field of a response that repeats the request's field `name`, so that a failure is told with names. An
    array has an element for each of the request's, whose own fields mirror that element's. Where that is a plain name
    or number, the field that takes it mirrors the array itself: see `OffsetFetchResponsePartition`."""
    cast(Field, field).mirrors = name
    return field
