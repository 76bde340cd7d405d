"""File descriptors of the process: a part is reserved for segment files, and connections get the rest."""

from __future__ import annotations

import logging
import sys
from typing import Final, NamedTuple

from chronik.limits import OPEN_FILES_MAX

logger = logging.getLogger("chronik.node")

DESCRIPTORS_WANTED: Final = 1 << 20
"""Descriptor limit to request if the operating system imposes no hard limit."""

OPEN_FILES_DIVISOR: Final = 4
"""Divisor of the descriptor limit: if descriptors are scarce, segment files get a quarter of them."""

NON_FILE_DESCRIPTORS: Final = 160
"""Descriptors reserved for peers, the metadata log, snapshots, compaction, HTTP and the event loop, with a margin."""

HTTP_CONNECTIONS_MIN: Final = 64
"""Minimum number of HTTP connections, included in NON_FILE_DESCRIPTORS."""
HTTP_CONNECTIONS_MAX: Final = 512
HTTP_CONNECTIONS_DIVISOR: Final = 16
"""Divisor of the descriptor limit that yields the number of HTTP connections, within its minimum and maximum."""

CONNECTIONS_MIN: Final = 16
"""Minimum number of client connections, so that an operator can always connect."""


class DescriptorLimits(NamedTuple):
    """The allocation of the process's file descriptors."""

    open_files: int
    """Maximum number of open segment files."""
    connections: int
    """Client connections."""


def divide_descriptors(limit: int) -> DescriptorLimits:
    """Divide a descriptor limit between segment files and client connections."""
    open_files = min(OPEN_FILES_MAX, limit // OPEN_FILES_DIVISOR)
    others = NON_FILE_DESCRIPTORS + _compute_http_connections_max(limit) - HTTP_CONNECTIONS_MIN
    return DescriptorLimits(open_files, max(limit - open_files - others, CONNECTIONS_MIN))


def _compute_http_connections_max(limit: int) -> int:
    return min(max(limit // HTTP_CONNECTIONS_DIVISOR, HTTP_CONNECTIONS_MIN), HTTP_CONNECTIONS_MAX)


if sys.platform == "win32":

    def raise_descriptor_limit() -> int:
        """Return a large number, because Windows has no common limit for sockets and files."""
        return DESCRIPTORS_WANTED

    def http_connections_max() -> int:
        """Return the maximum number of HTTP connections."""
        return HTTP_CONNECTIONS_MAX

else:
    import resource

    def raise_descriptor_limit() -> int:
        """Raise the process's descriptor limit as far as possible, and return it."""
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
        """Return the maximum number of HTTP connections."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return _compute_http_connections_max(DESCRIPTORS_WANTED if soft == resource.RLIM_INFINITY else soft)
