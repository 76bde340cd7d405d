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

CONNECTIONS_LEAST: Final = 16
"""However few there are, an operator can connect."""


class Descriptors(NamedTuple):
    open_files: int
    """Segment files that are held open."""
    connections: int
    """Connections of clients."""


def shared_out(limit: int) -> Descriptors:
    open_files = min(OPEN_FILES_MAX, limit // FILES_SHARE)
    return Descriptors(open_files, max(limit - open_files - FOR_OTHER_THINGS, CONNECTIONS_LEAST))


if sys.platform == "win32":

    def claim_descriptors() -> int:
        """Windows does not count sockets and files together."""
        return DESCRIPTORS_WANTED

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
