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
"""The failpoint after an import is started, before anything is transferred."""
TOPICS: Final = "topics"
"""The failpoint after each request that creates imported topics."""
REQUEST: Final = "request"
"""The failpoint after each response to a request that transfers records."""
COMPARED: Final = "compared"
"""The failpoint after all records are transferred and verified, before the topics become visible."""
SECURED: Final = "secured"
"""The failpoint after each request that imports users, ACLs or quotas."""
SCHEMAS: Final = "schemas"
"""The failpoint after each request that imports entries of the schema registry."""
GROUPS: Final = "groups"
"""The failpoint after each request that imports consumer groups and committed offsets."""
FINISHED: Final = "finished"
"""The failpoint after the cluster has finished the import, before the result is reported."""
HELD: Final = "held"
"""The failpoint while transaction commits are blocked for a backup."""
PIECE: Final = "piece"
"""The failpoint after each file of a backup is written, before the manifest refers to it."""
BEFORE_MANIFEST: Final = "before_manifest"
AFTER_MANIFEST: Final = "after_manifest"
"""The failpoint after a backup's manifest is replaced, before obsolete files are deleted."""

POINTS: Final = (
    BEGUN,
    TOPICS,
    REQUEST,
    COMPARED,
    SECURED,
    SCHEMAS,
    GROUPS,
    FINISHED,
    HELD,
    PIECE,
    BEFORE_MANIFEST,
    AFTER_MANIFEST,
)


def parse_failpoints(text: str) -> dict[str, int]:
    """Parse a list of failpoints (`NAME` or `NAME:NTH`) into a dict from name to the hit at which the process exits.

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
    """Exit the process if the failpoint is armed and this is the hit for which it is configured."""
    if name in _points:
        _points[name] -= 1
        if _points[name] == 0:
            os._exit(EXIT_CODE)
