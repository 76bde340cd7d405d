"""Files that are written and not committed yet: how long that may last.

To a vacuum they look like orphans of a task that was killed, and between its listing and its deletions a commit could
name one. So what no version names is taken only when it is far older than anything that may be committed. The time
between the two is for clocks that differ, and for a driver that is held up between its last look and its commit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from chronik.pipeline.tables.spans import WrittenFile
from chronik.pipeline.tables.storage import Storage

COMMIT_HOURS_MAX = 12
"""An older file is not committed, but written again. Tasks write for minutes."""

ORPHAN_HOURS_MIN = 24
"""A younger file is not taken for an orphan."""


def lost_files(storage: Storage, files: Sequence[WrittenFile]) -> list[str]:
    """Returns paths of those that are gone, or that a vacuum may be about to take: not to be committed."""
    modified_s = storage.modified_s([file.path for file in files])
    oldest_s = time.time() - COMMIT_HOURS_MAX * 3600
    return [file.path for file in files if modified_s.get(file.path, -math.inf) < oldest_s]
