"""Sets of offsets by partition, to select and compare rows of a table. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from chronik.pipeline.tables.layout import OFFSET, PARTITION
from chronik.pipeline.tables.table_files import TableFiles

OffsetSets = dict[int, npt.NDArray[np.int64]]
"""Sets of offsets by partition, each as a sorted NumPy array."""


def collect_offsets(batches: Iterable[pa.RecordBatch]) -> OffsetSets:
    """Return the distinct offsets of all rows, by partition."""
    found: dict[int, list[npt.NDArray[np.int64]]] = {}
    for batch in batches:
        partitions, offsets = batch.column(PARTITION).to_numpy(), batch.column(OFFSET).to_numpy()
        for partition in np.unique(partitions):
            found.setdefault(int(partition), []).append(offsets[partitions == partition])
    return {partition: np.unique(np.concatenate(parts)) for partition, parts in found.items()}


def union_offsets(all_sets: Sequence[OffsetSets]) -> OffsetSets:
    """Return the union of several offset sets."""
    partitions = sorted({partition for each in all_sets for partition in each})
    return {
        partition: np.unique(np.concatenate([each[partition] for each in all_sets if partition in each]))
        for partition in partitions
    }


def subtract_offsets(sets: OffsetSets, others: OffsetSets) -> OffsetSets:
    """Return the offsets of `sets` that are not in `others`, omitting partitions without any."""
    empty = np.empty(0, np.int64)
    remaining = {
        partition: np.setdiff1d(offsets, others.get(partition, empty), assume_unique=True)
        for partition, offsets in sets.items()
    }
    return {partition: offsets for partition, offsets in remaining.items() if len(offsets)}


def count_offsets(sets: OffsetSets) -> int:
    """Return the number of offsets in the sets."""
    return sum(map(len, sets.values()))


def compute_offsets_mask(batch: pa.RecordBatch, sets: OffsetSets) -> npt.NDArray[np.bool_]:
    """Return a mask that selects the rows whose offsets are in the sets."""
    partitions, offsets = batch.column(PARTITION).to_numpy(), batch.column(OFFSET).to_numpy()
    found = np.zeros(batch.num_rows, np.bool_)
    for partition in np.unique(partitions):
        wanted = sets.get(int(partition))
        if wanted is not None:
            rows = partitions == partition
            found[rows] = np.isin(offsets[rows], wanted)
    return found


def find_files_containing_offsets(table: TableFiles, sets: OffsetSets) -> list[TableFiles]:
    """Return the table's files that may contain one of the offsets, each file as a TableFiles of its own."""
    return [
        table.with_files(file)
        for file in table.files
        if any(
            len(offsets) and file.may_contain(partition, int(offsets[0]), int(offsets[-1]) + 1)
            for partition, offsets in sets.items()
        )
    ]
