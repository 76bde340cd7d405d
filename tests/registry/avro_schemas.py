"""Random Avro schemas, and changes of them, for comparisons with Apache Avro."""

from __future__ import annotations

import copy
import random
from typing import Any

Json = Any

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
LOGICAL_TYPES = {
    "int": ("date", "time-millis"),
    "long": ("timestamp-millis", "timestamp-micros", "local-timestamp-micros", "time-micros", "date"),
    "string": ("uuid", "unknown"),
    "bytes": ("big-decimal",),
}
DEFAULTS: dict[str, tuple[Json, ...]] = {
    "null": (None,),
    "boolean": (True, False),
    "int": (0, -7, 2**31 - 1),
    "long": (0, 2**40),
    "float": (0, 1.5, 0.1, "NaN"),
    "double": (0, 1e10, 1e-7, 123456789.125, "-Infinity"),
    "bytes": ("", "ÿ"),
    "string": ("", 'é"\n\x01'),
}


class SchemaGenerator:
    """A generator of random schemas from few names, so that their types often match."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._defined: list[str] = []
        self._open: list[str] = []

    def generate(self) -> Json:
        """Return a schema, usually a record."""
        self._defined = []
        self._open = []
        return self._named() if self._rng.random() < 0.8 else self._type(0)

    def _type(self, depth: int) -> Json:
        rng = self._rng
        draw = rng.random()
        if depth > 3 or draw < 0.45:
            return self._primitive()
        if draw < 0.55:
            return self._with_props({"type": "array", "items": self._type(depth + 1)})
        if draw < 0.62:
            return self._with_props({"type": "map", "values": self._type(depth + 1)})
        if draw < 0.77:
            return self._union(depth)
        if draw < 0.85 and (self._defined or self._open):
            return rng.choice(self._defined + self._open)
        return self._named(depth + 1)

    def _primitive(self) -> Json:
        name = self._rng.choice(PRIMITIVES)
        draw = self._rng.random()
        if draw < 0.1 and name in LOGICAL_TYPES:
            return {"type": name, "logicalType": self._rng.choice(LOGICAL_TYPES[name])}
        if draw < 0.15 and name == "bytes":
            return {"type": "bytes", "logicalType": "decimal", "scale": self._rng.choice((0, 2, 9)), "precision": 5}
        return self._with_props({"type": name}) if draw < 0.25 else name

    def _with_props(self, schema: Json) -> Json:
        if self._rng.random() < 0.1:
            schema["x-note"] = self._rng.choice(("a", 1, 2.50, None, [1e20, {"b": 1, "a": {"d": 1, "c": 2}}]))
            schema["a-note"] = "b"
        return schema

    def _union(self, depth: int) -> Json:
        branches: dict[str, Json] = {}
        for _ in range(self._rng.randint(1, 4)):
            branch = self._type(depth + 1)
            if isinstance(branch, list):
                continue
            name = branch if isinstance(branch, str) else branch.get("name", branch["type"])
            branches.setdefault(name, branch)
        return list(branches.values())

    def _named(self, depth: int = 0) -> Json:
        rng = self._rng
        name = rng.choice(("A", "B", "C", "D", "E", "F", "G", "H")) + (rng.choice("12345") if depth else "")
        namespace = rng.choice((None, None, None, "n", "m.n"))
        if name in self._defined + self._open:
            return self._primitive()
        schema: dict[str, Json] = {"type": rng.choice(("record", "record", "record", "enum", "fixed")), "name": name}
        if namespace is not None:
            schema["namespace"] = namespace
        if rng.random() < 0.2:
            schema["doc"] = rng.choice(("", "documentation", "\x1f"))
        if rng.random() < 0.2:
            schema["aliases"] = rng.sample(("A", "n.B", "m.n.C", "D1", "n.E2", ".F"), 2)
        if schema["type"] == "enum":
            schema["symbols"] = rng.sample(("P", "Q", "R", "S"), rng.randint(1, 4))
            if rng.random() < 0.3:
                schema["default"] = schema["symbols"][0]
        elif schema["type"] == "fixed":
            schema["size"] = rng.choice((4, 8, 12, 16))
            if rng.random() < 0.3:
                schema |= rng.choice(({"logicalType": "uuid"}, {"logicalType": "decimal", "precision": 9, "scale": 2}))
        else:
            self._open.append(name)
            names = rng.sample(("a", "b", "c", "d", "e", "f"), rng.randint(0, 5))
            schema["fields"] = [self._field(field, depth) for field in names]
            self._open.remove(name)
        if namespace is None:  # otherwise, the name cannot be resolved from outside
            self._defined.append(name)
        return self._with_props(schema)

    def _field(self, name: str, depth: int) -> Json:
        rng = self._rng
        field: dict[str, Json] = {"name": name, "type": self._type(depth)}
        if rng.random() < 0.5:
            self._add_default(field)
        if rng.random() < 0.15:
            field["aliases"] = rng.sample(("a", "b", "c", "x", "y"), rng.randint(1, 2))
        if rng.random() < 0.1:
            field["order"] = rng.choice(("ascending", "descending", "ignore"))
        if rng.random() < 0.1:
            field["doc"] = "documentation"
        return self._with_props(field)

    def _add_default(self, field: Json) -> None:
        type_ = field["type"]
        if isinstance(type_, list) and type_:
            type_ = self._rng.choice(type_)
        if isinstance(type_, dict):
            if type_["type"] == "enum":
                field["default"] = type_["symbols"][0]
            elif type_["type"] == "array":
                field["default"] = []
            elif type_["type"] in ("map", "record"):
                field["default"] = {}  # not valid for all records
            type_ = type_["type"]
        if isinstance(type_, str) and type_ in DEFAULTS:
            field["default"] = self._rng.choice(DEFAULTS[type_])


def mutate(schema: Json, rng: random.Random) -> Json:
    """Return a copy of a schema with some random changes, which may make it invalid."""
    changed = copy.deepcopy(schema)
    for _ in range(rng.randint(1, 3)):
        objects = list(_iter_objects(changed))
        if objects:
            _change(rng.choice(objects), rng)
    return changed


def _iter_objects(schema: Json) -> Any:
    if isinstance(schema, dict):
        yield schema
    children = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    for child in children:
        yield from _iter_objects(child)


def _change(target: Json, rng: random.Random) -> None:
    kind = target.get("type")
    if kind == "record" and target.get("fields"):
        match rng.randrange(4):
            case 0:
                target["fields"].pop(rng.randrange(len(target["fields"])))
            case 1:
                field: dict[str, Json] = {"name": "added", "type": rng.choice(PRIMITIVES[1:])}
                if rng.random() < 0.5:
                    field["type"], field["default"] = ["null", field["type"]], None
                target["fields"].append(field)
            case 2:
                rng.shuffle(target["fields"])
            case _:
                target.setdefault("aliases", []).append(target["name"])
                target["name"] = "Renamed"
    elif kind == "enum":
        target["symbols"] = rng.sample(("P", "Q", "R", "S", "T"), rng.randint(1, 4))
        target.pop("default", None)
    elif kind == "fixed":
        target["size"] = rng.choice((4, 8, 12))
    elif "name" in target:
        match rng.randrange(5):
            case 0:
                target["aliases"] = [target["name"]]
                target["name"] = "renamed"
            case 1:
                target.pop("default", None)
            case 2 if not isinstance(kind, list):
                target["type"] = [kind, "null"] if kind != "null" else kind
                target.pop("default", None)
            case 3 if isinstance(kind, list) and kind:
                target["type"] = kind[0]
                target.pop("default", None)
            case _:
                target["type"] = rng.choice(PRIMITIVES)
                target.pop("default", None)
    elif kind in PRIMITIVES:
        target["type"] = rng.choice(PRIMITIVES)
