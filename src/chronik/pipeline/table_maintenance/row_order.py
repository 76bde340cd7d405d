"""Orders of rows in compacted files: sorted, or along a Z-order curve, so that readers can skip row groups.

Along a Z-order curve, rows that are close in several columns are close in the file, so that filters on any of them skip
rows. A sorted file serves filters on its first column best.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from chronik.errors import ConfigError
from chronik.wording import format_spelling_suggestion

Z_ORDER_COLUMNS_MAX: Final = 4
"""Maximum number of columns of a Z-order. Each additional column makes the order less useful for all of them."""

Z_ORDER_BITS: Final = 16
"""Number of bits per column in a Z-order, which divides a column's values into 65,536 ranges."""


@dataclass(frozen=True, slots=True)
class RowOrder:
    """The columns by which rows are ordered."""

    columns: tuple[str, ...]
    is_z_order: bool = False

    def check(self, schema: pa.Schema) -> None:
        """Check that the table has these columns, and that their types can be sorted.

        Raises:
            ConfigError: A column does not exist or has no order, or there are too many.
        """
        if self.is_z_order and not 2 <= len(self.columns) <= Z_ORDER_COLUMNS_MAX:
            raise ConfigError(f"a Z-order needs 2 to {Z_ORDER_COLUMNS_MAX} columns, not {len(self.columns)}")
        for name in self.columns:
            if name not in schema.names:
                raise ConfigError(f"no column {name!r}{format_spelling_suggestion(name, schema.names)}")
            if pa.types.is_nested(schema.field(name).type):
                raise ConfigError(f"column {name!r} has no order, because its values are lists or objects")

    def sort(self, rows: pa.Table) -> pa.Table:
        """Sort rows by these columns, nulls last. The sort is stable: rows with equal values keep their order."""
        if self.is_z_order:
            return rows.take(pa.array(np.argsort(self._compute_z_values(rows), kind="stable")))
        keys = [(name, "ascending") for name in self.columns]
        return rows.take(pc.sort_indices(rows, sort_keys=keys))

    def _compute_z_values(self, rows: pa.Table) -> npt.NDArray[np.uint64]:
        """Return the position of each row on the Z-order curve, by interleaving the bits of the columns' ranks."""
        positions = np.zeros(rows.num_rows, np.uint64)
        ranks = [_compute_ranks(rows[name]) for name in self.columns]
        for bit in range(Z_ORDER_BITS):
            for index, rank in enumerate(ranks):
                position = np.uint64(bit * len(ranks) + len(ranks) - 1 - index)
                positions |= ((rank >> np.uint64(bit)) & np.uint64(1)) << position
        return positions


def _compute_ranks(column: pa.ChunkedArray) -> npt.NDArray[np.uint64]:
    """Return the rank of each value among the column's distinct values, scaled to Z_ORDER_BITS bits."""
    options: Any = pc.RankOptions(sort_keys="ascending", tiebreaker="dense")
    ranks: npt.NDArray[np.uint64] = pc.rank(column, options=options).to_numpy(zero_copy_only=False).astype(np.uint64)
    highest = int(ranks.max()) if len(ranks) else 1
    scaled: npt.NDArray[np.uint64] = (ranks - np.uint64(1)) * np.uint64((1 << Z_ORDER_BITS) - 1)
    return scaled // np.uint64(max(1, highest - 1))
