"""File descriptors of the process: a part is reserved for segment files, and connections get the rest."""

from __future__ import annotations

import logging
import sys
from typing import Final, NamedTuple

from chronik.limits import OPEN_FILES_MAX

logger = logging.getLogger("chronik.node")

DESCRIPTORS_WANTED: Final = 1 << 20
"""The number of file descriptors to request if the operating system sets no hard limit."""

OPEN_FILES_DIVISOR: Final = 4
"""The divisor of the file descriptor limit that yields the maximum number of open segment files."""

NON_FILE_DESCRIPTORS: Final = 160
"""The number of file descriptors reserved for peers, metadata, snapshots, compaction, HTTP and the event loop."""

HTTP_CONNECTIONS_MIN: Final = 64
"""The minimum of the limit on HTTP connections, whose descriptors are included in NON_FILE_DESCRIPTORS."""
HTTP_CONNECTIONS_MAX: Final = 512
HTTP_CONNECTIONS_DIVISOR: Final = 16
"""The divisor of the file descriptor limit that yields the maximum number of HTTP connections, within its bounds."""

CONNECTIONS_MIN: Final = 16
"""The minimum of the limit on client connections, so that an operator can always connect."""


class DescriptorLimits(NamedTuple):
    """The numbers of file descriptors available to segment files and to client connections."""

    open_files: int
    """The maximum number of open segment files."""
    connections: int
    """The maximum number of client connections."""


def divide_descriptors(limit: int) -> DescriptorLimits:
    """Divide the process's file descriptor limit between segment files and client connections."""
    open_files = min(OPEN_FILES_MAX, limit // OPEN_FILES_DIVISOR)
    others = NON_FILE_DESCRIPTORS + _compute_http_connections_max(limit) - HTTP_CONNECTIONS_MIN
    return DescriptorLimits(open_files, max(limit - open_files - others, CONNECTIONS_MIN))


def _compute_http_connections_max(limit: int) -> int:
    return min(max(limit // HTTP_CONNECTIONS_DIVISOR, HTTP_CONNECTIONS_MIN), HTTP_CONNECTIONS_MAX)


if sys.platform == "win32":

    def raise_descriptor_limit() -> int:
        """Return a fixed large number, because Windows has no common limit for sockets and files."""
        return DESCRIPTORS_WANTED

    def http_connections_max() -> int:
        """Return the maximum number of concurrent HTTP connections."""
        return HTTP_CONNECTIONS_MAX

else:
    import resource

    def raise_descriptor_limit() -> int:
        """Raise the process's soft limit of file descriptors to the hard limit, and return the resulting limit."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = DESCRIPTORS_WANTED if hard == resource.RLIM_INFINITY else hard
        if soft == resource.RLIM_INFINITY or soft >= wanted:
            return min(DESCRIPTORS_WANTED, wanted) if soft == resource.RLIM_INFINITY else soft
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (ValueError, OSError) as error:  # macOS enforces a lower limit than it reports
            logger.warning("descriptor limit not raised: soft_limit=%d requested=%d: %s", soft, wanted, error)
            return soft
        return wanted

    def http_connections_max() -> int:
        """Return the maximum number of concurrent HTTP connections under the current file descriptor limit."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return _compute_http_connections_max(DESCRIPTORS_WANTED if soft == resource.RLIM_INFINITY else soft)
