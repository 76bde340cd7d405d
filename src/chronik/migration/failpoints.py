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
"""The import has started, and nothing has been imported yet."""
TOPICS: Final = "topics"
"""Some topics have been created."""
REQUEST: Final = "request"
"""A request with records has been acknowledged."""
COMPARED: Final = "compared"
"""All records have been imported and verified, but are not visible to clients."""
SECURED: Final = "secured"
"""Some users, ACLs and quotas have been imported."""
GROUPS: Final = "groups"
"""Some groups and committed offsets have been imported."""
FINISHED: Final = "finished"
"""The import has finished, but the result has not been reported."""
HELD: Final = "held"
"""A backup blocks transaction commits."""
PIECE: Final = "piece"
"""A file of a backup has been written, but is not in the manifest yet."""
BEFORE_MANIFEST: Final = "before_manifest"
AFTER_MANIFEST: Final = "after_manifest"
"""The manifest has been replaced, but obsolete files have not been removed yet."""

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
    """Parse failpoints and return the number of hits after which each exits the process, by name.

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
