"""Handles of delta-rs: opened, looked into, and committed with, once for each attempt.

Delta-rs excuses some conflicts. So every attempt looks at the table afresh, decides, and commits onto exactly the
version that it looked at: when anybody else came between, it looks again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from chronik.pipeline.tables.delta.commit_log import check_entries, make_entry_durable
from chronik.pipeline.tables.files import ANY_NUMBER, LiveFile
from chronik.pipeline.tables.layout import OFFSET, PARTITION
from chronik.pipeline.tables.storage import check_place
from chronik.pipeline.tables.topic_table import CommitFailed, TableDiffers, TableError, TableMissing

CONFLICTS_MAX = 100
"""Attempts that lose to another commit: each means that somebody else got through, so only a crowd comes near it."""

FAILURES_MAX = 3
"""Attempts with any other error. Their outcome is unknown, and a fresh snapshot tells it; what fails three times (no
permission, a full disk) would fail for ever."""

PAUSE_SECONDS_MAX = 0.2

ON_THIS_VERSION = CommitProperties(max_commit_retries=0)
"""Delta-rs commits after the very version that the handle has read, or fails."""

Result = TypeVar("Result")


def open_delta(uri: str, storage_options: Mapping[str, str] | None) -> DeltaTable:
    """Opens the table as it is now. Raises ConfigError, TableMissing, TableTorn; DeltaError when its log is damaged."""
    check_place(uri)
    check_entries(uri)
    try:
        return DeltaTable(uri, storage_options=dict(storage_options) if storage_options else None)
    except TableNotFoundError as error:
        raise TableMissing(f"there is no table at {uri}") from error


@contextmanager
def as_table_error(uri: str) -> Iterator[None]:
    """Raises what delta-rs says of a table that it cannot read as TableError: callers know nothing of delta-rs."""
    try:
        yield
    except DeltaError as error:
        raise TableError(f"{uri}: {str(error).splitlines()[0]}") from error  # it adds a backtrace


def schema_of_delta(table: DeltaTable) -> pa.Schema:
    return pa.schema(table.schema().to_arrow())


def live_files(table: DeltaTable) -> tuple[LiveFile, ...]:
    """Raises TableDiffers for a table whose files do not hold just their rows (deletion vectors, renamed columns)."""
    features = table.protocol().reader_features
    if features:
        raise TableDiffers(f"{table.table_uri} has features that are not known here: {', '.join(features)}")
    columns = table.metadata().partition_columns
    actions = pa.table(table.get_add_actions())
    values = actions["partition"].to_pylist() if columns else [{}] * actions.num_rows
    return tuple(
        LiveFile(path, size_bytes, tuple(row[name] for name in columns), partitions, offsets)
        for path, size_bytes, row, partitions, offsets in zip(
            actions["path"].to_pylist(),
            actions["size_bytes"].to_pylist(),
            values,
            _ends(actions, PARTITION),
            _ends(actions, OFFSET),
            strict=True,
        )
    )


def _ends(actions: pa.Table, name: str) -> list[tuple[int, int]]:
    """Returns the lowest and the highest of a column in each file, as far as its statistics tell."""
    found = []
    for end, unknown in zip(("min", "max"), ANY_NUMBER, strict=True):
        index = actions.schema.get_field_index(end)
        known = index >= 0 and actions.schema.field(index).type.get_field_index(name) >= 0
        numbers = pc.struct_field(actions[end], name).to_pylist() if known else [None] * actions.num_rows
        found.append([unknown if number is None else number for number in numbers])
    return list(zip(*found, strict=True))


def committed_durably(uri: str, table: DeltaTable, attempt: Callable[[DeltaTable], Result]) -> Result:
    """`attempt` commits once, onto the version that the table is at, or finds that there is nothing to commit."""
    version = table.version()
    make_entry_durable(uri, version)
    result = attempt(table)
    make_entry_durable(uri, version + 1)
    return result


class Attempts:
    """Counts how often a commit is tried."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._conflicts = self._failures = 0

    @property
    def outcome_unknown(self) -> bool:
        """Whether one of them may have gone through although it failed. (One that lost to another surely has not.)"""
        return self._failures > 0

    def after(self, error: Exception) -> None:
        """Pauses for a moment before the next look. Raises CommitFailed when there were too many."""
        if isinstance(error, CommitFailedError):
            self._conflicts += 1
        else:
            self._failures += 1
        if self._conflicts >= CONFLICTS_MAX or self._failures >= FAILURES_MAX:
            raise CommitFailed(f"{self._uri}: {error}") from error
        crowd = min(1.0, (self._conflicts + self._failures) / 10)
        time.sleep(random.uniform(0, PAUSE_SECONDS_MAX * crowd))
