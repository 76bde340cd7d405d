"""The names of the record types that a schema defines, by which subject name strategies find its subject.

Only the names are read, without parsing the schema: the text must be one that the registry has accepted.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import Final

import msgspec

from chronik.formats.codec import ValueFormat


class _AvroNames(msgspec.Struct):
    """The parts of an Avro schema that form its full name."""

    type: object = None
    name: str = ""
    namespace: str | None = None


class _JsonSchemaNames(msgspec.Struct):
    """The parts of a JSON Schema that name it."""

    title: str = ""


MESSAGES_MAX: Final = 1000
"""Maximum number of messages of a Protobuf schema whose names are read."""

_PROTOBUF_PACKAGE: Final = re.compile(r"\npackage ([\w.]+);")
_PROTOBUF_MESSAGE: Final = re.compile(r"\n((?:  )*)(?:message|(?:\w+ )?group) (\w+) (?:= \d+ )?\{")


def extract_record_names(format: ValueFormat, text: str) -> frozenset[str]:
    """Return the full names of the types that a value of the schema may have; empty if the schema has no name."""
    match format:
        case ValueFormat.AVRO:
            name = _extract_avro_name(text)
        case ValueFormat.JSON_SCHEMA:
            name = _extract_title(text)
        case ValueFormat.PROTOBUF:
            return _extract_message_names(text)
    return frozenset((name,)) if name else frozenset()


def _extract_avro_name(text: str) -> str:
    match text[0]:
        case '"':
            return str(msgspec.json.decode(text))
        case "[":
            return ""  # a union
    names = msgspec.json.decode(text, type=_AvroNames)
    while isinstance(names.type, dict):  # {"type": {"type": "record", …}}
        names = msgspec.convert(names.type, _AvroNames)
    if not names.name:
        return names.type if isinstance(names.type, str) else ""
    return names.name if "." in names.name or not names.namespace else f"{names.namespace}.{names.name}"


def _extract_title(text: str) -> str:
    try:
        return msgspec.json.decode(text, type=_JsonSchemaNames).title
    except msgspec.ValidationError:  # a boolean schema
        return ""


def _extract_message_names(text: str) -> frozenset[str]:
    """Return the names of messages in canonical Protobuf text, in which indentation shows the nesting."""
    text = "\n" + text
    package = _PROTOBUF_PACKAGE.search(text)
    prefix = [package[1]] if package else []
    names, path = set(), list[str]()
    for message in islice(_PROTOBUF_MESSAGE.finditer(text), MESSAGES_MAX):
        del path[len(message[1]) // 2 :]
        path.append(message[2])
        names.add(".".join((*prefix, *path)))
    return frozenset(names)
