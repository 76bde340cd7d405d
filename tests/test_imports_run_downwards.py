"""The rooms of the house stand on floors: a module imports from its own room and from the floors below. Inside of a
room, and of every room within it, imports run one way, too: nothing needs what needs it."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "chronik"

FLOORS = (
    {"__main__"},
    {"cli"},
    {"bench", "moving", "pipeline", "testing"},
    {"node"},
    {"console"},
    {"server"},
    {"api", "replication"},
    {"admin", "transactions"},
    {"groups", "controller", "broker", "client"},
    {"coordination"},
    {"configs"},
    {"security"},
    {"metadata"},
    {"quorum"},
    {"raft", "peers", "planning"},
    {"log", "wal"},
    {"protocol"},
    {"files", "tls"},
    {"command_parser", "config", "exchange", "limits", "logs", "patterns"},
    {"listeners", "scheduler"},
    {
        "addresses",
        "clock",
        "crc",
        "errors",
        "ids",
        "kept_modules",
        "log_levels",
        "meters",
        "news",
        "principals",
        "shown",
        "wording",
    },
)
FLOOR = {room: -number for number, rooms in enumerate(FLOORS) for room in rooms}
BROUGHT_IN = {
    "server": {"protocol", "api", "broker", "metadata", "log"},  # it is handed what it dispatches to
}


@cache
def modules() -> dict[str, Path]:
    """By name; a room's `__init__` has the name of the room."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def statements(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """These and those within them; expressions, which are most of a module, have none."""
    for node in body:
        yield node
        for name in ("body", "orelse", "handlers", "finalbody", "cases"):
            yield from statements(getattr(node, name, ()))


@cache
def imported(name: str) -> list[tuple[int, str]]:
    """The modules of ours that this one imports, anywhere in it and for types too, each with its line."""
    path = modules()[name]
    found = []
    for node in statements(ast.parse(path.read_text(encoding="utf-8")).body):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for each in names:
            module = each if each in modules() else each.rpartition(".")[0]
            if module in modules():
                found.append((node.lineno, module))
    return found


def test_every_room_has_a_floor() -> None:
    rooms = {name.split(".")[1] for name in modules() if name != "chronik"}
    assert len(rooms) > 5
    assert rooms <= set(FLOOR)


def test_imports_run_downwards_only() -> None:
    wrong = []
    for name, path in modules().items():
        for line, other in imported(name):
            if "chronik" in (name, other):
                continue  # its version
            room, other_room = name.split(".")[1], other.split(".")[1]
            above = FLOOR[other_room] >= FLOOR[room] and other_room != room
            if above or other_room in BROUGHT_IN.get(room, ()):
                wrong.append(f"{path.relative_to(PACKAGE.parent)}:{line}: {room} must not import {other_room}")
    assert not wrong, "\n".join(wrong)


def where_they_part(name: str, other: str) -> tuple[str, str, str]:
    """The innermost room that both are in, and what each is there, or is in: a module or a room. A room's `__init__` is
    a neighbour of what is in it."""
    mine, others = name.split("."), other.split(".")
    depth = 0
    while depth < min(len(mine), len(others)) and mine[depth] == others[depth]:
        depth += 1
    return ".".join(mine[:depth]), ".".join(mine[: depth + 1]), ".".join(others[: depth + 1])


def test_nothing_in_a_room_needs_what_needs_it() -> None:
    rooms: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for name in modules():
        for _, other in imported(name):
            room, mine, others = where_they_part(name, other)
            rooms[room][mine].add(others)
    assert {"chronik", "chronik.raft", "chronik.quorum", "chronik.peers"} <= set(rooms)
    cycles = []
    for graph in rooms.values():
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            cycles.append(" imports ".join(reversed(error.args[1])))
    assert not cycles, "\n".join(cycles)


def test_what_is_looked_at_is_what_stands_side_by_side() -> None:
    assert where_they_part("chronik.raft.core", "chronik.raft.rules")[0] == "chronik.raft"
    assert where_they_part("chronik.a.b.c", "chronik.a.d.e") == ("chronik.a", "chronik.a.b", "chronik.a.d")
    assert where_they_part("chronik.a.b.c", "chronik.a") == ("chronik.a", "chronik.a.b", "chronik.a")
    assert where_they_part("chronik.a", "chronik.a.b.c") == ("chronik.a", "chronik.a", "chronik.a.b")
