"""A file can be read at one sitting, and a room be overlooked: what grows beyond that is divided."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "chronik"

LINES_MAX = 400
FILES_MAX = 20
"""At one level of a room."""
ONE_PER_API = {"api", "protocol/messages"}
"""Rooms that have as many files as Kafka has APIs."""


def files() -> list[Path]:
    found = list(PACKAGE.rglob("*.py"))
    assert len(found) > 100
    return found


def test_no_file_is_too_long() -> None:
    lengths = {str(path.relative_to(PACKAGE)): len(path.read_text(encoding="utf-8").splitlines()) for path in files()}
    long = {name: lines for name, lines in lengths.items() if lines > LINES_MAX}
    assert not long, f"more than {LINES_MAX} lines: divide the file"


def test_no_room_has_too_many_files() -> None:
    rooms = Counter(path.parent.relative_to(PACKAGE).as_posix() for path in files())
    full = {room: count for room, count in rooms.items() if count > FILES_MAX}
    assert full.keys() >= ONE_PER_API, "a room that is small again needs no exception"
    others = {room: count for room, count in full.items() if room not in ONE_PER_API}
    assert not others, f"more than {FILES_MAX} files: divide the room"
