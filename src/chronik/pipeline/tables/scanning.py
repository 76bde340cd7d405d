"""Rows of a table's files through pyarrow, a little at a time: what tasks do with tables, wherever those lie."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable

from chronik.pipeline.tables.delta.replacing import LiveFile, live_files
from chronik.pipeline.tables.delta.table import open_delta
from chronik.pipeline.tables.layout import OFFSET, PARTITION
from chronik.pipeline.tables.storage import Storage

ROWS_PER_BATCH = 16_384
"""With records of a kilobyte, 16 MiB at a time."""

Positions = dict[int, npt.NDArray[np.int64]]
"""Records by partition: their offsets, ascending."""


@dataclass(frozen=True, slots=True)
class TableFiles:
    """Some files of one version of a table; small enough to be sent to a task."""

    uri: str
    schema: pa.Schema
    partition_by: tuple[str, ...]
    files: tuple[LiveFile, ...]
    storage_options: Mapping[str, str] | None = None

    @property
    def storage(self) -> Storage:
        return Storage(self.uri, self.storage_options)

    @property
    def inside(self) -> pa.Schema:
        """What the files themselves hold: all but the columns that the table is partitioned by."""
        return pa.schema([field for field in self.schema if field.name not in self.partition_by])

    def of(self, *files: LiveFile) -> TableFiles:
        return TableFiles(self.uri, self.schema, self.partition_by, files, self.storage_options)


def table_files(uri: str, storage_options: Mapping[str, str] | None = None) -> TableFiles:
    """All files of the table as it is now. Raises TableMissing, TableDiffers."""
    return files_of(open_delta(uri, storage_options), uri, storage_options)


def files_of(table: DeltaTable, uri: str, storage_options: Mapping[str, str] | None = None) -> TableFiles:
    return TableFiles(
        uri=uri,
        schema=pa.schema(table.schema().to_arrow()),
        partition_by=tuple(table.metadata().partition_columns),
        files=tuple(live_files(table)),
        storage_options=storage_options,
    )


def dataset_of(table: TableFiles) -> Any:
    """Files from before a column was added have it too, all null."""
    storage = table.storage
    paths = [storage.full_path(file.path) for file in table.files]
    return ds.dataset(paths, schema=table.inside, format="parquet", filesystem=storage.filesystem)


def scan(table: TableFiles, columns: Sequence[str] | None = None, where: Any = None) -> Iterator[pa.RecordBatch]:
    """Rows as they stand in the files; row groups that cannot hold what is looked for are not read."""
    if not table.files:
        return
    yield from dataset_of(table).to_batches(
        columns=None if columns is None else list(columns),
        filter=where,
        batch_size=ROWS_PER_BATCH,
        batch_readahead=1,
        fragment_readahead=1,
    )


def positions_in(batches: Iterator[pa.RecordBatch]) -> Positions:
    """Of every row; a position that comes twice is there once."""
    found: dict[int, list[npt.NDArray[np.int64]]] = {}
    for batch in batches:
        partitions, offsets = batch.column(PARTITION).to_numpy(), batch.column(OFFSET).to_numpy()
        for partition in np.unique(partitions):
            found.setdefault(int(partition), []).append(offsets[partitions == partition])
    return {partition: np.unique(np.concatenate(parts)) for partition, parts in found.items()}


def joined_positions(several: Sequence[Positions]) -> Positions:
    partitions = sorted({partition for each in several for partition in each})
    return {
        partition: np.unique(np.concatenate([each[partition] for each in several if partition in each]))
        for partition in partitions
    }


def are_among(batch: pa.RecordBatch, positions: Positions) -> npt.NDArray[np.bool_]:
    """For each row whether it is one of these."""
    partitions, offsets = batch.column(PARTITION).to_numpy(), batch.column(OFFSET).to_numpy()
    found = np.zeros(batch.num_rows, np.bool_)
    for partition in np.unique(partitions):
        wanted = positions.get(int(partition))
        if wanted is not None:
            rows = partitions == partition
            found[rows] = np.isin(offsets[rows], wanted)
    return found


def count_of(positions: Positions) -> int:
    return sum(map(len, positions.values()))


def that_may_hold(table: TableFiles, positions: Positions) -> list[LiveFile]:
    """Files whose statistics do not rule out that they hold one of these."""
    return [
        file
        for file in table.files
        if any(
            len(offsets) and file.may_hold(partition, int(offsets[0]), int(offsets[-1]) + 1)
            for partition, offsets in positions.items()
        )
    ]


def positions_without(positions: Positions, others: Positions) -> Positions:
    """Partitions of which nothing is left are not in it."""
    empty = np.empty(0, np.int64)
    left = {
        partition: np.setdiff1d(offsets, others.get(partition, empty), assume_unique=True)
        for partition, offsets in positions.items()
    }
    return {partition: offsets for partition, offsets in left.items() if len(offsets)}
