"""Statistics of a table's data files, from its metadata: with them, a query skips files without opening them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class FileStatistics:
    """Statistics of data files, as Arrow arrays with one element per file, in the order of the snapshot's files.

    They include those of partition columns, whose bounds are equal. Columns may be missing, and each element may be
    null, which means that nothing is known.
    """

    rows: pa.Array
    """Number of rows of each file (int64)."""
    lower: Mapping[str, pa.Array]
    """By column: a value that is at most as large as all others of the file, except null and NaN. It may be smaller
    than all of them, as with truncated strings. It has the column's type."""
    upper: Mapping[str, pa.Array]
    """By column: a value that is at least as large as all others of the file, except null and NaN."""
    null_counts: Mapping[str, pa.Array]
    """By column: the number of nulls (int64)."""

    def select(self, positions: Sequence[int]) -> FileStatistics:
        """Return the statistics of the files at these positions."""
        indices = pa.array(positions, pa.int64())
        return FileStatistics(
            self.rows.take(indices),
            {name: values.take(indices) for name, values in self.lower.items()},
            {name: values.take(indices) for name, values in self.upper.items()},
            {name: values.take(indices) for name, values in self.null_counts.items()},
        )
