"""Random JSON Schemas, values near them, and the validation by the Python library `jsonschema`."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import jsonschema
from jsonschema.protocols import Validator

Schema = Any
Value = Any

DRAFTS = {
    "http://json-schema.org/draft-04/schema#": jsonschema.Draft4Validator,
    "http://json-schema.org/draft-06/schema#": jsonschema.Draft6Validator,
    "http://json-schema.org/draft-07/schema#": jsonschema.Draft7Validator,
    "https://json-schema.org/draft/2019-09/schema": jsonschema.Draft201909Validator,
    "https://json-schema.org/draft/2020-12/schema": jsonschema.Draft202012Validator,
}
NAMES = ("id", "name", "price", "tags", "a/b", "größe")
DEFINITIONS = ("Node", "Address", "Label")
CONNECT = "org.apache.kafka.connect.data."
NUMBERS = (
    "0",
    "-1",
    "7",
    "1.0",
    "0.5",
    "1.10",
    "-0.0",
    "3.25",
    "1e3",
    "0.1234567890123456789",
    "9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775809",
    "123456789012345678901234567890",
    "1e400",
    "1e-400",
    "9007199254740993e1",
)
"""Numbers as texts, of which some fit neither 64 bits nor a float64."""


class SchemaGenerator:
    """A generator of schemas of one draft."""

    def __init__(self, source: random.Random, draft: str) -> None:
        self._source = source
        self._draft = draft
        self._is_classic = "draft-0" in draft
        self._container = "definitions" if self._is_classic else "$defs"

    def generate(self) -> Schema:
        """Return a schema of an object, with definitions that refer to each other."""
        schema = self._object(0)
        definitions = {name: self._object(2) for name in DEFINITIONS}
        definitions["Label"] = self._string()
        return {"$schema": self._draft, **schema, self._container: definitions}

    def _any(self, depth: int) -> Schema:
        kinds: list[Callable[[], Schema]] = [
            self._string,
            self._string,
            self._number,
            self._number,
            lambda: {"type": "boolean"},
            self._enum,
            self._reference,
            lambda: {"type": self._source.sample(["string", "integer", "null", "number", "boolean", "array"], 2)},
        ]
        if depth < 4:
            kinds += [
                lambda: self._object(depth + 1),
                lambda: self._array(depth + 1),
                lambda: self._map(depth + 1),
                lambda: self._combination(depth + 1),
                lambda: self._nullable(depth + 1),
            ]
        if depth > 1:
            kinds.append(dict)
        return self._source.choice(kinds)()

    def _maybe(self, **keywords: Any) -> dict[str, Any]:
        return {key.replace("_", ""): value for key, value in keywords.items() if self._source.random() < 0.3}

    def _string(self) -> Schema:
        schema: Schema = {"type": "string"}
        match self._source.randrange(8):
            case 0:
                schema["format"] = "date"
            case 1:
                schema["format"] = "date-time"
            case 2:
                schema["contentEncoding"] = "base64"
            case 3:
                schema |= {"format": "byte"}
            case 4:
                schema |= {"title": f"{CONNECT}Decimal", "connect.type": "bytes", "connect.parameters": {"scale": "2"}}
            case _:
                schema |= self._maybe(minLength=1, maxLength=12, pattern="^[a-z]*$")
        return schema

    def _number(self) -> Schema:
        if self._source.random() < 0.2:
            title = self._source.choice(["Decimal", "Date", "Timestamp"])
            kind = "number" if title == "Decimal" else "integer"
            return {"type": kind, "title": CONNECT + title, "connect.parameters": {"scale": "2"}}
        schema = {"type": self._source.choice(["integer", "number"])}
        return schema | self._maybe(minimum=0, maximum=10**18, multipleOf=self._source.choice([1, 0.5, 0.1]))

    def _enum(self) -> Schema:
        if self._source.random() < 0.3 and "04" not in self._draft:
            return {"const": self._source.choice(["x", 1, None, {"id": 1}])}
        return {"enum": self._source.sample(["x", "y", 1, 2, 1.5, None, True, ["x"]], self._source.randint(1, 3))}

    def _reference(self) -> Schema:
        schema = {"$ref": f"#/{self._container}/{self._source.choice(DEFINITIONS)}"}
        return schema if self._is_classic else schema | self._maybe(maxLength=9, required=["id"])

    def _object(self, depth: int) -> Schema:
        names = self._source.sample(NAMES, self._source.randint(1, 4))
        schema = {"type": "object", "properties": {name: self._any(depth + 1) for name in names}}
        schema |= self._maybe(required=names[:1], minProperties=1, maxProperties=5)
        schema |= self._maybe(additionalProperties=False) or self._maybe(additionalProperties=self._any(4))
        if not self._is_classic and "additionalProperties" not in schema:
            schema |= self._maybe(unevaluatedProperties=False, dependentRequired={names[0]: names[-1:]})
        elif self._is_classic:
            schema |= self._maybe(dependencies={names[0]: names[-1:]})
        return schema

    def _map(self, depth: int) -> Schema:
        if self._source.random() < 0.3:
            patterns = {"^[a-z]+$": self._any(depth)}
            return {"type": "object", "patternProperties": patterns, "additionalProperties": False}
        return {"type": "object", "additionalProperties": self._any(depth)}

    def _array(self, depth: int) -> Schema:
        schema: Schema = {"type": "array", "items": self._any(depth)}
        if self._source.random() < 0.1:
            positions = [self._any(depth), self._any(depth)]
            if "2020" in self._draft:
                schema["prefixItems"] = positions
            else:
                schema |= {"items": positions, "additionalItems": self._any(4)}
        return schema | self._maybe(minItems=1, maxItems=3, uniqueItems=True)

    def _combination(self, depth: int) -> Schema:
        keyword = self._source.choice(["anyOf", "oneOf", "allOf"])
        schema: Schema = {keyword: [self._any(depth) for _ in range(self._source.randint(1, 3))]}
        if self._source.random() < 0.2:
            schema |= {"not": {"type": self._source.choice(["string", "integer"])}}
        if self._source.random() < 0.2 and "04" not in self._draft and "06" not in self._draft:
            schema |= {"if": {"type": "string"}, "then": {"maxLength": 3}, "else": self._any(4)}
        return schema

    def _nullable(self, depth: int) -> Schema:
        keyword = self._source.choice(["anyOf", "oneOf"])
        return {keyword: [{"type": "null"}, self._any(depth)]}


class ValueGenerator:
    """A generator of JSON texts of values, most of which are valid."""

    def __init__(self, source: random.Random, schema: Schema) -> None:
        self._source = source
        self._root = schema

    def generate(self) -> bytes:
        """Return the JSON text of a value."""
        if self._source.random() < 0.02:
            return self._source.choice([b"", b"{", b'{"id":01}', b'{"id":"\xff"}', b"[1,]", b'{"a":"\\ud800"}'])
        return self._write(self._root, 0).encode()

    def _write(self, schema: Schema, depth: int) -> str:
        if self._source.random() < 0.02 or not isinstance(schema, dict) or depth > 12:
            return self._write_any(depth)
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            return self._write((self._root.get("definitions") or self._root["$defs"])[name], depth + 1)
        for keyword in ("anyOf", "oneOf", "allOf"):
            if keyword in schema:
                return self._write(self._source.choice(schema[keyword]), depth + 1)
        if "const" in schema or "enum" in schema:
            return json.dumps(self._source.choice(schema.get("enum") or [schema.get("const")]))
        kind = schema.get("type")
        kind = self._source.choice(kind) if isinstance(kind, list) else kind
        match kind:
            case "object":
                return self._write_object(schema, depth)
            case "array":
                items = schema.get("items", {})
                count = self._source.randint(0, 3)
                return "[" + ",".join(self._write(items, depth + 1) for _ in range(count)) + "]"
            case "string":
                return json.dumps(self._string(schema), ensure_ascii=self._source.random() < 0.5)
            case "integer" | "number":
                return self._number(kind)
            case "boolean":
                return self._source.choice(["true", "false"])
            case "null":
                return "null"
        return self._write_any(depth)

    def _write_object(self, schema: Schema, depth: int) -> str:
        members = {}
        for name, each in schema.get("properties", {}).items():
            if name in schema.get("required", ()) or self._source.random() < 0.7:
                members[name] = self._write(each, depth + 1)
        additional = schema.get("additionalProperties", {})
        others = {"*": additional, **schema.get("patternProperties", {})}
        for name in self._source.sample(("x", "yy", "Z", "id"), self._source.choice([0, 0, 1, 2])):
            node = self._source.choice(list(others.values()))
            if node is not False and name not in members:
                members[name] = self._write(node, depth + 1)
        space = self._source.choice(["", " ", "\n "])
        return "{" + ",".join(f"{space}{json.dumps(name)}:{space}{text}" for name, text in members.items()) + "}"

    def _write_any(self, depth: int) -> str:
        return self._source.choice(
            ["null", "true", '"x"', '""', "[]", "{}", '{"id":null}', "[null,1]", *NUMBERS[:8], '{"x":[{"y":1.50}]}']
        )

    def _number(self, kind: str) -> str:
        if self._source.random() < 0.3:
            return self._source.choice(NUMBERS)
        if kind == "integer" or self._source.random() < 0.3:
            return str(self._source.randint(-100_000, 10 ** self._source.randint(1, 19)))
        return repr(round(self._source.uniform(-1000, 1000), self._source.choice([1, 2, 2, 9, 17])))

    def _string(self, schema: Schema) -> str:
        source = self._source
        instant = datetime(1, 1, 1, tzinfo=UTC) + timedelta(microseconds=source.randrange(315_537_897_599_999_999))
        choice = source.random()
        if choice < 0.1:
            return source.choice(["", "x", "ä€😀", "2026-02-30", "2026-11-19T08:30:60Z", "0000-01-01", "AAE", "AB=="])
        if schema.get("format") == "date":
            return instant.date().isoformat()
        if schema.get("format") == "date-time":
            match source.randrange(5):
                case 0:
                    return instant.isoformat().replace("+00:00", "Z")
                case 1:
                    zone = timezone(timedelta(minutes=source.randint(-1439, 1439)))
                    return instant.replace(tzinfo=zone, microsecond=0).isoformat()
                case 2:
                    return instant.replace(microsecond=0).isoformat().replace("+00:00", source.choice(["Z", "z", ""]))
                case 3:
                    return instant.strftime("%Y-%m-%d %H:%M:%SZ")
                case _:
                    return f"2026-11-19T08:30:00.{source.randrange(10**9)}Z"
        if "contentEncoding" in schema or schema.get("format") == "byte" or "connect.type" in schema:
            return base64.b64encode(source.randbytes(source.randint(0, 18))).decode()
        return "".join(source.choices("abcdefxyzXÄ", k=source.randint(0, 9)))


class Oracle:
    """The validation by the Python library, with exact numbers."""

    def __init__(self, schema: Schema) -> None:
        base = DRAFTS[schema["$schema"]]
        is_integer = _is_int if base is jsonschema.Draft4Validator else _is_integer
        checker = base.TYPE_CHECKER.redefine("number", _is_number).redefine("integer", is_integer)
        validator: Any = jsonschema.validators.extend(base, {}, type_checker=checker)
        self._validator: Validator = validator(json.loads(json.dumps(schema), parse_float=Decimal))

    def is_valid(self, text: bytes) -> bool:
        """Return whether a text is JSON, and valid by the schema."""
        try:
            value = json.loads(text.decode(), parse_float=Decimal, parse_constant=_reject_constant)
            json.dumps(value, ensure_ascii=False, default=str).encode()
        except ValueError:
            return False
        return bool(self._validator.is_valid(value))


def _reject_constant(name: str) -> None:
    raise ValueError(name)


def _is_number(_checker: Any, value: Value) -> bool:
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


def _is_int(_checker: Any, value: Value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_integer(_checker: Any, value: Value) -> bool:
    return _is_number(_checker, value) and value == int(value)
