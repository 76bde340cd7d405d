"""The rooms of the house stand on floors: a module imports from its own room and from the floors below."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "chronik"

FLOORS = (
    {"__main__"},
    {"cli"},
    {"bench", "pipeline", "testing"},
    {"node"},
    {"console"},
    {"server"},
    {"api", "replication"},
    {"groups", "controller", "broker", "client"},
    {"coordination"},
    {"configs"},
    {"metadata"},
    {"raft"},
    {"log", "wal"},
    {"protocol"},
    {"files"},
    {"config", "limits", "logs"},
    {"clock", "crc", "errors", "exchange", "ids", "log_levels", "news", "shown"},
)
FLOOR = {room: -number for number, rooms in enumerate(FLOORS) for room in rooms}
BROUGHT_IN = {
    "server": {"protocol", "api", "broker", "metadata", "log"},  # it is handed what it dispatches to
}


def room_of(path: Path) -> str:
    inside = path.relative_to(PACKAGE)
    return inside.parts[0] if len(inside.parts) > 1 else inside.stem


def imported_rooms(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            names = [node.module or ""]
            if node.module == "chronik":
                names = [f"chronik.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == "chronik" and len(parts) > 1:
                yield node.lineno, parts[1]


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or path.name != "__init__.py")


def test_every_room_has_a_floor() -> None:
    rooms = {room_of(path) for path in modules()}
    assert len(rooms) > 5
    assert rooms <= set(FLOOR)


def test_imports_run_downwards_only() -> None:
    wrong = []
    for path in modules():
        room = room_of(path)
        for line, other in imported_rooms(path):
            if other == "__version__":
                continue
            above = FLOOR[other] >= FLOOR[room] and other != room
            if above or other in BROUGHT_IN.get(room, ()):
                wrong.append(f"{path.relative_to(PACKAGE.parent)}:{line}: {room} must not import {other}")
    assert not wrong, "\n".join(wrong)
