"""The names of the record types that a schema defines, by which subject name strategies find its subject.

Only the names are read, without parsing the schema: the text must be one that the registry has accepted.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from chronik.formats.codec import ValueFormat


class _AvroNames(msgspec.Struct):
    """The parts of an Avro schema that make its full name."""

    type: object = None
    name: str = ""
    namespace: str = ""


class _JsonSchemaNames(msgspec.Struct):
    """The parts of a JSON Schema that name it."""

    title: str = ""


_PROTOBUF_TOKENS: Final = re.compile(
    r"""
      //[^\n]* | /\*.*?\*/                                  # comments
    | "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*'                 # strings
    | \bpackage\s+(?P<package>[\w.]+)\s*;
    | \b(?P<kind>message|group)\s+(?P<message>\w+)\s*[={]   # a group has a number in front of its brace
    | (?P<brace>[{}])
    """,
    re.VERBOSE | re.DOTALL,
)


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
    schema = msgspec.json.decode(text)
    while isinstance(schema, dict) and isinstance(schema.get("type"), dict):  # {"type": {"type": "record", …}}
        schema = schema["type"]
    if isinstance(schema, str):
        return schema
    if not isinstance(schema, dict):  # a union
        return ""
    names = msgspec.convert(schema, _AvroNames)
    if not names.name:
        return names.type if isinstance(names.type, str) else ""
    return names.name if "." in names.name or not names.namespace else f"{names.namespace}.{names.name}"


def _extract_title(text: str) -> str:
    try:
        return msgspec.json.decode(text, type=_JsonSchemaNames).title
    except msgspec.ValidationError:  # a boolean schema
        return ""


def _extract_message_names(text: str) -> frozenset[str]:
    package, names = "", set()
    enclosing: list[str] = []
    opening = ""
    for token in _PROTOBUF_TOKENS.finditer(text):
        if token["package"]:
            package = token["package"]
        elif token["message"]:
            names.add(".".join([*filter(None, enclosing), token["message"]]))
            if token[0].endswith("{"):
                enclosing.append(token["message"])
            else:
                opening = token["message"]
        elif token["brace"] == "{":
            enclosing.append(opening)
            opening = ""
        elif token["brace"] == "}" and enclosing:
            enclosing.pop()
    return frozenset(f"{package}.{name}" if package else name for name in names)
