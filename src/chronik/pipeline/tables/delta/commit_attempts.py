"""Commit attempts on delta-rs handles.

Delta-rs resolves some conflicts by itself. Therefore every attempt reads the table's current version, decides what to
commit, and commits onto exactly that version; after a conflict it starts over.
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

from chronik.pipeline.tables.delta.transaction_log import check_log_entries, sync_log_entry
from chronik.pipeline.tables.layout import OFFSET, PARTITION
from chronik.pipeline.tables.storage import check_table_uri
from chronik.pipeline.tables.table_files import UNKNOWN_BOUNDS, LiveFile
from chronik.pipeline.tables.topic_table import TableCommitError, TableError, TableMismatchError, TableMissingError

CONFLICTS_MAX = 100
"""Maximum number of conflicts. In each one another writer has succeeded, so only heavy contention reaches it."""

FAILURES_MAX = 3
"""Maximum number of other errors. Their outcome is unknown until the table is read again; an error that occurs three
times (no permission, a full disk) is permanent."""

RETRY_DELAY_SECONDS_MAX = 0.2

WITHOUT_RETRIES = CommitProperties(max_commit_retries=0)
"""Commit properties with which delta-rs commits onto exactly the version that the handle has read, or fails."""

Result = TypeVar("Result")


def open_delta(uri: str, storage_options: Mapping[str, str] | None) -> DeltaTable:
    """Open the current version of a table.

    Raises:
        ConfigError, TableMissingError, TornLogError: The URI is invalid, or there is no usable table.
        DeltaError: The transaction log is damaged.
    """
    check_table_uri(uri)
    check_log_entries(uri)
    try:
        return DeltaTable(uri, storage_options=dict(storage_options) if storage_options else None)
    except TableNotFoundError as error:
        raise TableMissingError(f"no table at {uri}") from error


@contextmanager
def convert_delta_errors(uri: str) -> Iterator[None]:
    """Convert DeltaErrors to TableErrors, because callers do not depend on delta-rs."""
    try:
        yield
    except DeltaError as error:
        raise TableError(f"{uri}: {str(error).splitlines()[0]}") from error  # delta-rs appends a backtrace


def delta_arrow_schema(table: DeltaTable) -> pa.Schema:
    """Return the Arrow schema of a Delta table."""
    return pa.schema(table.schema().to_arrow())


def list_live_files(table: DeltaTable) -> tuple[LiveFile, ...]:
    """Return the data files of the current version.

    Raises:
        TableMismatchError: The files do not contain exactly their rows (deletion vectors, column mapping).
    """
    features = table.protocol().reader_features
    if features:
        raise TableMismatchError(f"{table.table_uri} has unsupported Delta features: {', '.join(features)}")
    columns = table.metadata().partition_columns
    actions = pa.table(table.get_add_actions())
    values = actions["partition"].to_pylist() if columns else [{}] * actions.num_rows
    return tuple(
        LiveFile(path, size_bytes, tuple(row[name] for name in columns), partitions, offsets)
        for path, size_bytes, row, partitions, offsets in zip(
            actions["path"].to_pylist(),
            actions["size_bytes"].to_pylist(),
            values,
            _column_bounds(actions, PARTITION),
            _column_bounds(actions, OFFSET),
            strict=True,
        )
    )


def _column_bounds(actions: pa.Table, name: str) -> list[tuple[int, int]]:
    """Return the minimum and maximum of a column in each file, as far as statistics exist."""
    found = []
    for bound, default in zip(("min", "max"), UNKNOWN_BOUNDS, strict=True):
        index = actions.schema.get_field_index(bound)
        has_stats = index >= 0 and actions.schema.field(index).type.get_field_index(name) >= 0
        numbers = pc.struct_field(actions[bound], name).to_pylist() if has_stats else [None] * actions.num_rows
        found.append([default if number is None else number for number in numbers])
    return list(zip(*found, strict=True))


def commit_durably(uri: str, table: DeltaTable, attempt: Callable[[DeltaTable], Result]) -> Result:
    """Call `attempt`, which commits once onto the table's version or not at all, and sync the log around it."""
    version = table.version()
    sync_log_entry(uri, version)
    result = attempt(table)
    sync_log_entry(uri, version + 1)
    return result


class CommitAttempts:
    """Counter of failed commit attempts, with a random delay between them."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._conflicts = self._failures = 0

    @property
    def is_outcome_unknown(self) -> bool:
        """Whether a failed attempt may have been committed; conflicts are certain not to be."""
        return self._failures > 0

    def record_failure(self, error: Exception) -> None:
        """Record a failed attempt and pause before the next one.

        Raises:
            TableCommitError: There were too many failures.
        """
        if isinstance(error, CommitFailedError):
            self._conflicts += 1
        else:
            self._failures += 1
        if self._conflicts >= CONFLICTS_MAX or self._failures >= FAILURES_MAX:
            raise TableCommitError(f"{self._uri}: {error}") from error
        contention = min(1.0, (self._conflicts + self._failures) / 10)
        time.sleep(random.uniform(0, RETRY_DELAY_SECONDS_MAX * contention))
