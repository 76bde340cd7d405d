"""How many descriptors the process has, and what they are for: files first, and connections get the rest."""

from __future__ import annotations

import logging
import sys
from typing import Final, NamedTuple

from chronik.limits import OPEN_FILES_MAX

logger = logging.getLogger("chronik.node")

DESCRIPTORS_WANTED: Final = 1 << 20
"""How many the system is asked for, where it names no limit of its own."""

FILES_SHARE: Final = 4
"""Where descriptors are few, a quarter of them is for segment files."""

FOR_OTHER_THINGS: Final = 160
"""Peers, the metadata log, snapshots, compaction, HTTP, those that are held back, the loop and its pipes."""

HTTP_CONNECTIONS_MIN: Final = 64
"""Part of FOR_OTHER_THINGS."""
HTTP_CONNECTIONS_MAX: Final = 512
HTTP_SHARE: Final = 16
"""The HTTP port may use a sixteenth of the descriptors, within the limits above."""

CONNECTIONS_LEAST: Final = 16
"""However few there are, an operator can connect."""


class Descriptors(NamedTuple):
    open_files: int
    """Segment files that are held open."""
    connections: int
    """Connections of clients."""


def shared_out(limit: int) -> Descriptors:
    open_files = min(OPEN_FILES_MAX, limit // FILES_SHARE)
    others = FOR_OTHER_THINGS + _http_connections(limit) - HTTP_CONNECTIONS_MIN
    return Descriptors(open_files, max(limit - open_files - others, CONNECTIONS_LEAST))


def _http_connections(limit: int) -> int:
    return min(max(limit // HTTP_SHARE, HTTP_CONNECTIONS_MIN), HTTP_CONNECTIONS_MAX)


if sys.platform == "win32":

    def claim_descriptors() -> int:
        """Windows does not count sockets and files together."""
        return DESCRIPTORS_WANTED

    def http_connections() -> int:
        """Return how many connections the HTTP port may have."""
        return HTTP_CONNECTIONS_MAX

else:
    import resource

    def claim_descriptors() -> int:
        """Raises the limit of this process as far as it may, and returns it."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = DESCRIPTORS_WANTED if hard == resource.RLIM_INFINITY else hard
        if soft == resource.RLIM_INFINITY or soft >= wanted:
            return min(DESCRIPTORS_WANTED, wanted) if soft == resource.RLIM_INFINITY else soft
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (ValueError, OSError) as error:  # macOS has a limit of its own below the one that it names
            logger.warning("the limit of %d open files could not be raised to %d: %s", soft, wanted, error)
            return soft
        return wanted

    def http_connections() -> int:
        """Return how many connections the HTTP port may have."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return _http_connections(DESCRIPTORS_WANTED if soft == resource.RLIM_INFINITY else soft)
