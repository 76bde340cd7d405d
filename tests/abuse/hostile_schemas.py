"""Schemas of up to 1 MiB that are expensive to parse, compare or describe."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
PROTO3: Final = 'syntax = "proto3";\n'
UNREACHABLE_URL: Final = "http://127.0.0.1:9/schema.json"
"""The URL of a schema that the registry must not fetch."""


class HostileSchema(NamedTuple):
    """A schema, and a later version with which it is compared."""

    schema_type: str
    text: str
    later: str = ""
    """Another schema of the same type; empty to compare the schema with itself."""


def _join(items: Iterable[str]) -> str:
    return ",".join(items)


def _record(fields: str, name: str = "R", more: str = "") -> str:
    return f'{{"type":"record","name":"{name}"{more},"fields":[{fields}]}}'


def _dump(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def nest(start: str, inner: str, end: str, depth: int) -> str:
    """Return text that is enclosed `depth` times."""
    return start * depth + inner + end * depth


# Avro


def namespace_times_names(names: int, namespace_characters: int = 400_000) -> HostileSchema:
    """Return types that all inherit a long namespace: their full names are much longer than the text."""
    namespace = "a." * (namespace_characters // 2) + "b"
    types = (f'{{"name":"f{n}","type":{{"type":"fixed","name":"T{n}","size":1}}}}' for n in range(names))
    return HostileSchema(AVRO, _record(_join(types), more=f',"namespace":"{namespace}"'))


def aliases_in_namespace(names: int, namespace_characters: int = 400_000) -> HostileSchema:
    """Return a type with many aliases in a long namespace."""
    aliases = _join(f'"a{n}"' for n in range(names))
    namespace = "a." * (namespace_characters // 2) + "b"
    return HostileSchema(AVRO, _record("", more=f',"namespace":"{namespace}","aliases":[{aliases}]'))


def references_in_namespace(names: int, namespace_characters: int = 400_000) -> HostileSchema:
    """Return a long namespace, and names that are resolved in it."""
    namespace = "a." * (namespace_characters // 2) + "b"
    fields = _join(f'{{"name":"f{n}","type":"U{n}"}}' for n in range(names))
    return HostileSchema(AVRO, _record(fields, more=f',"namespace":"{namespace}"'))


def symbols_times_fields(symbols: int, fields: int) -> HostileSchema:
    """Return records whose fields are all incompatible, with a message that lists all symbols of an enum."""

    def build(listed: str) -> str:
        enum = f'{{"type":"enum","name":"E","symbols":[{listed}]}}'
        first = f'{{"name":"f0","type":{enum}}}'
        return _record(_join((first, *(f'{{"name":"f{n}","type":"E"}}' for n in range(1, fields)))))

    return HostileSchema(AVRO, build(_join(f'"s{n:040d}"' for n in range(symbols))), build('"other"'))


def union_of_records(branches: int, aliases: int) -> HostileSchema:
    """Return a wide union, and a record with many aliases that is compared with each of its branches."""
    union = _join(_record(f'{{"name":"f{n}","type":"int"}}', f"B{n}") for n in range(branches))
    names = _join(f'"n{n}"' for n in range(aliases))
    later = _record(f'{{"name":"f","type":"int","default":0,"aliases":[{names}]}}', "B")
    return HostileSchema(AVRO, f"[{union}]", later)


def records_of_records(count: int) -> HostileSchema:
    """Return records, each with two fields of the previous type: expanded, they have 2**count fields."""
    fields, previous = [], '"int"'
    for n in range(count):
        inner = _join(f'{{"name":"{name}","type":{previous}}}' for name in "ab")
        fields.append(f'{{"name":"f{n}","type":{_record(inner, f"R{n}")}}}')
        previous = f'"R{n}"'
    return HostileSchema(AVRO, _record(_join(fields), "Root"))


def defaults_of_defaults(count: int) -> HostileSchema:
    """Return records whose default values contain those of the previous type twice."""
    fields, previous, default = [], '"int"', "1"
    for n in range(count):
        inner = _join(f'{{"name":"{name}","type":{previous},"default":{default}}}' for name in "ab")
        fields.append(f'{{"name":"f{n}","type":{_record(inner, f"R{n}")}}}')
        previous, default = f'"R{n}"', "{}"
    fields.append(f'{{"name":"z","type":{previous},"default":{{}}}}')
    return HostileSchema(AVRO, _record(_join(fields), "Root"))


# JSON Schema


def combinators_of_references(keyword: str, count: int) -> HostileSchema:
    """Return definitions, each of which refers to the previous one twice."""
    definitions: dict[str, Any] = {"a0": {"type": "string"}}
    for n in range(1, count):
        definitions[f"a{n}"] = {keyword: [{"$ref": f"#/definitions/a{n - 1}"}] * 2}
    schema = {"$ref": f"#/definitions/a{count - 1}", "definitions": definitions}
    return HostileSchema(JSON, _dump(schema), _dump(schema | {"definitions": definitions | {"a0": {"type": "number"}}}))


def alternatives(count: int) -> HostileSchema:
    """Return alternatives that must be compared in pairs."""
    schemas = [{"type": "object", "properties": {f"p{n}": {"minimum": n}}} for n in range(count)]
    return HostileSchema(JSON, _dump({"anyOf": schemas}), _dump({"anyOf": schemas[::-1]}))


def patterns(count: int) -> HostileSchema:
    """Return regular expressions with nested repetitions, whose properties must be compared."""
    found = {f"^((a|a)*(b|b)+{{1,50}}){{1,50}}{n}$": {"pattern": "(x+x+)+y"} for n in range(count)}
    names = {f"{'a' * 30}{n}": {"type": "string"} for n in range(count)}
    return HostileSchema(JSON, _dump({"patternProperties": found}), _dump({"properties": names}))


# Protobuf


def message(fields: int, declare: Callable[[int], str]) -> HostileSchema:
    """Return a message with many fields; the reserved numbers 19000 to 19999 are left out."""
    numbers = (n if n < 19_000 else n + 1_000 for n in range(1, fields + 1))
    return HostileSchema(PROTOBUF, f"{PROTO3}message A {{{''.join(map(declare, numbers))}}}")


def build_schemas(scale: int) -> dict[str, HostileSchema]:
    """Return all schemas by name. `scale` is 1 for those of `make abuse`; larger scales give smaller schemas."""
    million = 1_000_000 // scale
    return {
        "avro-nested-arrays": HostileSchema(AVRO, nest('{"type":"array","items":', '"int"', "}", million // 25)),
        "avro-brackets": HostileSchema(AVRO, "[" * million),
        "avro-wide-union": HostileSchema(AVRO, f"[{_join(_record('', f'R{n}') for n in range(million // 55))}]"),
        "avro-wide-record": HostileSchema(
            AVRO, _record(_join(f'{{"name":"f{n}","type":"int"}}' for n in range(million // 110)))
        ),
        "avro-namespace-names": namespace_times_names(million // 100, million * 2 // 5),
        "avro-namespace-aliases": aliases_in_namespace(million // 20, million * 2 // 5),
        "avro-namespace-references": references_in_namespace(million // 60, million * 2 // 5),
        "avro-symbols-times-fields": symbols_times_fields(million // 80, million // 350),
        "avro-union-times-aliases": union_of_records(million // 200, million // 70),
        "avro-records-of-records": records_of_records(million // 500),
        "avro-defaults-of-defaults": defaults_of_defaults(million // 10_000),
        "avro-properties": HostileSchema(AVRO, _record("", more=f',"x":[{"{}," * (million // 3 - 50)}1]')),
        "avro-long-number": HostileSchema(AVRO, _record("", more=f',"x":{"9" * (million - 100)}')),
        "json-nested-not": HostileSchema(JSON, nest('{"not":', "true", "}", million // 8)),
        "json-reference-cycle": HostileSchema(JSON, '{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/a"}}}'),
        "json-remote-reference": HostileSchema(JSON, _dump({"$ref": UNREACHABLE_URL, "$schema": UNREACHABLE_URL})),
        "json-all-of": combinators_of_references("allOf", million // 160),
        "json-any-of": combinators_of_references("anyOf", 60),
        "json-one-of": combinators_of_references("oneOf", 60),
        "json-alternatives": alternatives(million // 200),
        "json-patterns": patterns(million // 1_100),
        "json-large-repetition": HostileSchema(JSON, _dump({"pattern": "((((a{99}){99}){99}){99}){99}"})),
        "json-nested-groups": HostileSchema(JSON, _dump({"pattern": nest("(", "a", ")", million // 3)})),
        "json-enum": HostileSchema(JSON, _dump({"enum": [{"a": n} for n in range(million // 15)]})),
        "json-exponents": HostileSchema(JSON, '{"multipleOf":1e-999999999,"maximum":1e999999999}'),
        "protobuf-nested-messages": HostileSchema(PROTOBUF, PROTO3 + nest("message A{", "", "}", million // 12)),
        "protobuf-fields": message(million // 28, lambda n: f"int32 f{n}={n};"),
        "protobuf-nested-options": HostileSchema(
            PROTOBUF, f"{PROTO3}message A {{ option (a) = {{{nest('b:{', '', '}', million // 5)}}};}}"
        ),
        "protobuf-enum": HostileSchema(
            PROTOBUF, f"{PROTO3}enum E {{{''.join(f'V{n}={n};' for n in range(million // 18))}}}"
        ),
        "protobuf-maps": message(million // 45, lambda n: f"map<int32,A> f{n}={n};"),
        "protobuf-imports": HostileSchema(PROTOBUF, PROTO3 + 'import "a.proto";' * (million // 20)),
        "protobuf-descriptor": HostileSchema(PROTOBUF, "CgN" + "A" * (million // 4 * 4 + 1)),
        "protobuf-number": HostileSchema(PROTOBUF, f"{PROTO3}message A {{ int32 a = {'9' * (million - 100)}; }}"),
    }
