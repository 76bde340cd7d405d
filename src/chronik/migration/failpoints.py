"""Failpoints: named places at which a test can crash an import or a backup.

    CHRONIK_MOVE_FAIL_POINT=request:3 chronik cluster import …

A process that reaches a failpoint for the NTH time (by default the first) exits immediately, as if it had been killed.
"""

from __future__ import annotations

import os
from typing import Final

from chronik.errors import ConfigError

ENVIRONMENT_VARIABLE: Final = "CHRONIK_MOVE_FAIL_POINT"
EXIT_CODE: Final = 77

BEGUN: Final = "begun"
"""Failpoint after the start of an import, before anything is imported."""
TOPICS: Final = "topics"
"""Failpoint after each request that creates topics."""
REQUEST: Final = "request"
"""Failpoint after each response to a request with imported records."""
COMPARED: Final = "compared"
"""Failpoint after all records are imported and verified, before clients can see them."""
SECURED: Final = "secured"
"""Failpoint after each request that imports users, ACLs or quotas."""
GROUPS: Final = "groups"
"""Failpoint after each request that imports groups and committed offsets."""
FINISHED: Final = "finished"
"""Failpoint after the import is finished, before its result is reported."""
HELD: Final = "held"
"""Failpoint while a backup blocks transaction commits."""
PIECE: Final = "piece"
"""Failpoint after each file of a backup is written, before the manifest lists it."""
BEFORE_MANIFEST: Final = "before_manifest"
AFTER_MANIFEST: Final = "after_manifest"
"""Failpoint after the manifest of a backup is replaced, before obsolete files are removed."""

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


def parse_failpoints(text: str) -> dict[str, int]:
    """Parse failpoints (`NAME` or `NAME:NTH`). Return, by name, the number of hits after which the process exits.

    Raises:
        ConfigError: The text is invalid.
    """
    points: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, nth = part.partition(":")
        if name not in POINTS or not (nth or "1").isdecimal():
            raise ConfigError(f"{ENVIRONMENT_VARIABLE} = {text!r}: expected NAME or NAME:NTH, of {', '.join(POINTS)}")
        points[name] = int(nth or "1")
    return points


_points = parse_failpoints(os.environ.get(ENVIRONMENT_VARIABLE, ""))


def hit_failpoint(name: str) -> None:
    """Exit the process if this failpoint is armed and has reached its configured number of hits."""
    if name in _points:
        _points[name] -= 1
        if _points[name] == 0:
            os._exit(EXIT_CODE)
