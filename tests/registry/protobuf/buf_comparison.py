"""Compare verdicts on generated pairs of Protobuf schemas with those of `buf breaking`.

Run by hand: `python -m tests.registry.protobuf.buf_comparison BUF [PAIRS]`, where BUF is the path of the program from
the package buf-bin of PyPI. The report counts the pairs of each difference. `EXPLANATIONS` has the reasons.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from chronik.registry.protobuf import parse
from tests.run_size import SEED

CONFIG = {"version": "v2", "breaking": {"use": ["WIRE"]}}

EXPLANATIONS = {
    # Only buf objects.
    "FIELD_NO_DELETE_UNLESS_NUMBER_RESERVED": "Confluent allows removing fields without reserving their numbers",
    "ENUM_VALUE_NO_DELETE_UNLESS_NUMBER_RESERVED": "Confluent allows removing enum values: readers keep the number",
    "RESERVED_MESSAGE_NO_DELETE": "Confluent ignores reserved numbers and names",
    "FIELD_SAME_ONEOF": "Confluent allows moving one field into a new oneof, and fields out of a oneof",
    "FIELD_WIRE_COMPATIBLE_CARDINALITY": (
        "Confluent compares labels only if both fields have one, and only those of numbers: "
        "for it, int64 and repeated int64 of proto3 are compatible, and so are optional string and repeated string"
    ),
    "FIELD_WIRE_COMPATIBLE_TYPE": (
        "Confluent groups types by their encoding: for it, bytes and string are compatible, and so are an enum and "
        "the integers; buf also compares the name of a map's entry type, which follows the name of the field"
    ),
    # Only Confluent objects.
    "MESSAGE_REMOVED": "buf checks it in the categories FILE and PACKAGE: data on the wire has no names of messages",
}
"""Why only one side objects, by the rule of buf or the type of Confluent's difference."""

SCALARS = ("int32", "int64", "uint32", "sint32", "fixed32", "fixed64", "bool", "string", "bytes", "float", "double")


class PairGenerator:
    """Generates a schema and an update of it with one change."""

    def __init__(self, source: random.Random) -> None:
        self._source = source

    def generate(self, package: str) -> tuple[str, str]:
        source = self._source
        fields = {number: (*self._choose_type(), f"f{number}") for number in source.sample(range(1, 15), 5)}
        oneof = {number: ("", source.choice(SCALARS), f"o{number}") for number in (20, 21)[: source.randrange(3)]}
        enum = {number: f"V{number}" for number in range(source.randrange(2, 5))}
        original = self._render(package, fields, oneof, enum, ["A", "B"])
        changes: tuple[Callable[[], str], ...] = (
            lambda: self._render(package, self._retype(fields), oneof, enum, ["A", "B"]),
            lambda: self._render(package, self._relabel(fields), oneof, enum, ["A", "B"]),
            lambda: self._render(package, self._rename(fields), oneof, enum, ["A", "B"]),
            lambda: self._render(package, self._remove(fields), oneof, enum, ["A", "B"]),
            lambda: self._render(package, fields | {16: ("", "int32", "added")}, oneof, enum, ["A", "B"]),
            lambda: self._render(package, fields, self._remove(oneof), enum, ["A", "B"]),
            lambda: self._render(package, fields, oneof | {22: ("", "int32", "added")}, enum, ["A", "B"]),
            lambda: self._render(package, fields, oneof, enum, ["A"] if "B" not in original else ["A", "B", "C"]),
            lambda: self._render(package, fields, oneof, enum, ["B", "A"]),
            lambda: self._render(package, fields, oneof, dict(list(enum.items())[:-1]), ["A", "B"]),
            lambda: self._render(package, fields, oneof, enum | {0: "RENAMED"}, ["A", "B"]),
            lambda: self._render(package, fields, oneof, enum | {9: "ADDED"}, ["A", "B"]),
            lambda: self._move_into_oneof(package, fields, oneof, enum),
            lambda: self._render(package, fields | oneof, {}, enum, ["A", "B"]),
            lambda: original.replace("message Unused {}", ""),
            lambda: original.replace("reserved 100;", ""),
        )
        return original, source.choice(changes)()

    def _choose_type(self) -> tuple[str, str]:
        source = self._source
        kind = source.choice((*SCALARS, "A", "B", "E", "map<string, int32>"))
        label = "" if kind.startswith("map") else source.choice(("", "", "optional", "repeated"))
        return label, kind

    def _retype(self, fields: dict[int, tuple[str, str, str]]) -> dict[int, tuple[str, str, str]]:
        number = self._source.choice(list(fields))
        _, kind = self._choose_type()
        label = "" if kind.startswith("map") else fields[number][0]
        return fields | {number: (label, kind, fields[number][2])}

    def _relabel(self, fields: dict[int, tuple[str, str, str]]) -> dict[int, tuple[str, str, str]]:
        number = self._source.choice([each for each in fields if not fields[each][1].startswith("map")] or list(fields))
        _, kind, name = fields[number]
        label = "" if kind.startswith("map") else self._source.choice(("", "optional", "repeated"))
        return fields | {number: (label, kind, name)}

    def _rename(self, fields: dict[int, tuple[str, str, str]]) -> dict[int, tuple[str, str, str]]:
        number = self._source.choice(list(fields))
        return fields | {number: (*fields[number][:2], "renamed")}

    def _remove(self, fields: dict[int, tuple[str, str, str]]) -> dict[int, tuple[str, str, str]]:
        removed = self._source.choice(list(fields)) if fields else None
        return {number: field for number, field in fields.items() if number != removed}

    def _move_into_oneof(
        self,
        package: str,
        fields: dict[int, tuple[str, str, str]],
        oneof: dict[int, tuple[str, str, str]],
        enum: dict[int, str],
    ) -> str:
        movable = [number for number, (label, kind, _) in fields.items() if not label and not kind.startswith("map")]
        moved = movable[: self._source.randrange(1, 3)]
        rest = {number: field for number, field in fields.items() if number not in moved}
        return self._render(package, rest, oneof | {number: fields[number] for number in moved}, enum, ["A", "B"])

    def _render(
        self,
        package: str,
        fields: dict[int, tuple[str, str, str]],
        oneof: dict[int, tuple[str, str, str]],
        enum: dict[int, str],
        messages: list[str],
    ) -> str:
        lines = [f"{label} {kind} {name} = {number};" for number, (label, kind, name) in fields.items()]
        if oneof:
            members = " ".join(f"{kind} {name} = {number};" for number, (_, kind, name) in oneof.items())
            lines.append(f"oneof choice {{ {members} }}")
        values = " ".join(f"{name} = {number};" for number, name in enum.items())
        declared = " ".join(f"message {name} {{ int32 x = 1; }}" for name in messages)
        body = " ".join(lines)
        return (
            f'syntax = "proto3"; package {package}; message M {{ reserved 100; {body} }} '
            f"enum E {{ {values} }} {declared} message Unused {{}}\n"
        )


def run_buf(buf: str, pairs: dict[str, tuple[str, str]]) -> dict[str, set[str]]:
    """Return the rules that each pair breaks."""
    with tempfile.TemporaryDirectory() as directory:
        for side, name in enumerate(("old", "new")):
            for package, pair in pairs.items():
                path = Path(directory, name, package, "m.proto")
                path.parent.mkdir(parents=True)
                path.write_text(pair[side], encoding="utf-8")
            Path(directory, name, "buf.yaml").write_text(json.dumps(CONFIG), encoding="utf-8")
        command = [buf, "breaking", f"{directory}/new", "--against", f"{directory}/old", "--error-format", "json"]
        output = subprocess.run(command, capture_output=True, text=True, cwd=directory, check=False).stdout
    broken: dict[str, set[str]] = {package: set() for package in pairs}
    for line in output.splitlines():
        found = json.loads(line)
        broken[Path(found["path"]).parts[-2]].add(found["type"])
    return broken


def main() -> None:
    buf, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    generator = PairGenerator(random.Random(SEED))
    pairs = {f"p{index}": generator.generate(f"p{index}") for index in range(count)}
    agreed = 0
    differences: Counter[tuple[str, str]] = Counter()
    examples: dict[tuple[str, str], tuple[str, str]] = {}
    for package, rules in run_buf(buf, pairs).items():
        writer, reader = (parse(text, []) for text in pairs[package])
        types = {message.split('"')[1] for message in reader.find_incompatibilities(writer)}
        if bool(rules) is bool(types):
            agreed += 1
            continue
        for name in rules or types:
            key = ("buf" if rules else "Confluent", name)
            differences[key] += 1
            examples.setdefault(key, pairs[package])
    print(f"{agreed} of {count} pairs have the same verdict")
    for (side, name), number in differences.most_common():
        print(f"{number:5} only {side} objects: {name}: {EXPLANATIONS.get(name, 'UNEXPLAINED')}")
        if name not in EXPLANATIONS:
            print(*examples[side, name], sep="")
    sys.exit(any(name not in EXPLANATIONS for _, name in differences))


if __name__ == "__main__":
    main()
