"""Files of a table put in the place of others, in one commit: all of it or nothing.

A commit lands on exactly the version that was looked at, and only while every file that it replaces is still there,
whoever else works on the table.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from chronik.pipeline.tables.delta.table import ON_THIS_VERSION, Attempts, committed_durably, open_delta
from chronik.pipeline.tables.in_flight import lost_files
from chronik.pipeline.tables.layout import OFFSET, PARTITION
from chronik.pipeline.tables.spans import WrittenFile
from chronik.pipeline.tables.storage import Storage
from chronik.pipeline.tables.topic_table import CommitFailed, TableDiffers

ANY_NUMBER = (0, 2**63 - 1)


@dataclass(frozen=True, slots=True)
class LiveFile:
    """One that the table's present version names."""

    path: str
    """Relative to the table."""
    size_bytes: int
    values: tuple[Any, ...]
    """Of the partition columns."""
    partitions: tuple[int, int] = ANY_NUMBER
    """The lowest and the highest partition of the topic that it has records of."""
    offsets: tuple[int, int] = ANY_NUMBER
    """… and the offsets, over all those partitions."""

    def may_hold(self, partition: int, start: int, end: int) -> bool:
        """Whether it can have records of [start, end)."""
        lowest, highest = self.partitions
        return lowest <= partition <= highest and self.offsets[0] < end and self.offsets[1] >= start


def live_files(table: DeltaTable) -> list[LiveFile]:
    """Raises TableDiffers for a table whose files do not hold just their rows (deletion vectors, renamed columns)."""
    features = table.protocol().reader_features
    if features:
        raise TableDiffers(f"{table.table_uri} has features that are not known here: {', '.join(features)}")
    columns = table.metadata().partition_columns
    actions = pa.table(table.get_add_actions())
    values = actions["partition"].to_pylist() if columns else [{}] * actions.num_rows
    return [
        LiveFile(path, size_bytes, tuple(row[name] for name in columns), partitions, offsets)
        for path, size_bytes, row, partitions, offsets in zip(
            actions["path"].to_pylist(),
            actions["size_bytes"].to_pylist(),
            values,
            _ends(actions, PARTITION),
            _ends(actions, OFFSET),
            strict=True,
        )
    ]


def _ends(actions: pa.Table, name: str) -> list[tuple[int, int]]:
    """The lowest and the highest of a column in each file, as far as its statistics tell."""
    found = []
    for end, unknown in zip(("min", "max"), ANY_NUMBER, strict=True):
        index = actions.schema.get_field_index(end)
        known = index >= 0 and actions.schema.field(index).type.get_field_index(name) >= 0
        numbers = pc.struct_field(actions[end], name).to_pylist() if known else [None] * actions.num_rows
        found.append([unknown if number is None else number for number in numbers])
    return list(zip(*found, strict=True))


def replace_files(
    uri: str,
    removed: Sequence[LiveFile],
    written: Sequence[WrittenFile],
    *,
    rows_change: bool,
    storage_options: Mapping[str, str] | None = None,
) -> bool:
    """Whether the table has the new files instead of the old ones. Not so when another took one of these away, or a
    vacuum one of the new ones for an orphan (then the new ones are gone, all of them), nor for sure when the answer got
    lost: look again. `rows_change`: for readers that follow the table's changes. Raises CommitFailed."""
    storage, attempts = Storage(uri, storage_options), Attempts()
    while True:
        table = open_delta(uri, storage_options)
        live = {file.path for file in live_files(table)}
        # A commit takes in all of them. If only some are left, another has replaced the rest since.
        if any(file.path in live for file in written):
            return True  # by an attempt whose answer got lost
        forestalled = not all(file.path in live for file in removed)
        if forestalled or lost_files(storage, written):
            if not attempts.outcome_unknown:  # otherwise versions of the past may name them: left for vacuum
                _remove(storage, written)
            return False
        try:
            committed_durably(uri, table, partial(_replace, removed, written, rows_change))
        except (CommitFailedError, DeltaError, OSError) as error:
            if not attempts.another(error):
                raise CommitFailed(f"{uri}: {error}") from error
            continue
        return True


def _replace(
    removed: Sequence[LiveFile], written: Sequence[WrittenFile], rows_change: bool, table: DeltaTable
) -> None:
    columns = tuple(table.metadata().partition_columns)
    table.create_write_transaction(
        [
            *(_added(file, rows_change) for file in written),
            *(_removed(file, columns, rows_change) for file in removed),
        ],
        mode="append",
        schema=table.schema(),
        partition_by=list(columns),
        commit_properties=ON_THIS_VERSION,
    )


def _remove(storage: Storage, written: Sequence[WrittenFile]) -> None:
    for file in written:
        storage.remove(file.path)


def _added(file: WrittenFile, rows_change: bool) -> AddAction:
    return AddAction(file.path, file.size_bytes, file.partition_values, file.modified_ms, rows_change, file.stats)


def _removed(file: LiveFile, columns: tuple[str, ...], rows_change: bool) -> RemoveAction:
    values = {name: None if value is None else str(value) for name, value in zip(columns, file.values, strict=True)}
    return RemoveAction(file.path, rows_change, int(time.time() * 1000), file.size_bytes, values)
