"""Age limits for data files that are written but not committed yet.

To a vacuum, such files look like orphans of a killed task, and a commit could add one between the vacuum's listing and
its deletions. A vacuum therefore deletes only files that are much older than any file that may still be committed. The
margin covers clock differences, and a driver that is delayed between its last check and its commit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from chronik.pipeline.tables.commit_plan import WrittenFile
from chronik.pipeline.tables.storage import TableStorage

COMMIT_HOURS_MAX = 12
"""Age at which a file is no longer committed but written again. Tasks write for minutes."""

ORPHAN_HOURS_MIN = 24
"""Age below which a file does not count as an orphan."""


def find_uncommittable_files(storage: TableStorage, files: Sequence[WrittenFile]) -> list[str]:
    """Return the paths of written files that must not be committed: deleted, or old enough for a vacuum to delete."""
    modified_s = storage.modification_times([file.path for file in files])
    oldest_commit_s = time.time() - COMMIT_HOURS_MAX * 3600
    return [file.path for file in files if modified_s.get(file.path, -math.inf) < oldest_commit_s]
