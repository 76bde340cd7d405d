"""Named places where a move can be made to die, for tests that prove that it may.

    CHRONIK_MOVE_FAIL_POINT=request:3 chronik cluster import …

A process that comes to a point for the NTH time (the first, unless it says otherwise) ends there at once, as if it had
been killed.
"""

from __future__ import annotations

import os
from typing import Final

from chronik.errors import ConfigError

VARIABLE: Final = "CHRONIK_MOVE_FAIL_POINT"
EXIT_CODE: Final = 77

BEGUN: Final = "begun"
"""The cluster knows of the import, and has nothing of it."""
TOPICS: Final = "topics"
"""Some topics are made."""
REQUEST: Final = "request"
"""A request with records was answered."""
COMPARED: Final = "compared"
"""All is there, and nobody sees it."""
SECURED: Final = "secured"
"""Some of the users, ACLs and quotas are there."""
GROUPS: Final = "groups"
"""Some of the groups and committed offsets are there."""
FINISHED: Final = "finished"
"""All is done, and nobody was told."""
HELD: Final = "held"
"""A backup holds commits back."""
PIECE: Final = "piece"
"""A file of a backup is written, and no manifest names it."""
BEFORE_MANIFEST: Final = "before_manifest"
AFTER_MANIFEST: Final = "after_manifest"
"""The manifest is replaced, and what it does not name any more is still there."""

POINTS: Final = (
    BEGUN,
    TOPICS,
    REQUEST,
    COMPARED,
    SECURED,
    GROUPS,
    FINISHED,
    HELD,
    PIECE,
    BEFORE_MANIFEST,
    AFTER_MANIFEST,
)


def parse(text: str) -> dict[str, int]:
    """Returns, by name, how many times each is passed until the process ends. Raises ConfigError."""
    points: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, nth = part.partition(":")
        if name not in POINTS or not (nth or "1").isdecimal():
            raise ConfigError(f"{VARIABLE} = {text!r}: expected NAME or NAME:NTH, of {', '.join(POINTS)}")
        points[name] = int(nth or "1")
    return points


_points = parse(os.environ.get(VARIABLE, ""))


def reached(name: str) -> None:
    if name in _points:
        _points[name] -= 1
        if _points[name] == 0:
            os._exit(EXIT_CODE)
