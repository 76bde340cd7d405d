"""Comparison of tables with the log, driver side: open the tables, plan slices, run tasks and confirm findings.

Each record must have one equal row, and each row a record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from pyarrow import fs

from chronik.client.records import TopicPartition
from chronik.formats.registry_client import RegistrySettings
from chronik.pipeline.audit.data_directories import AuditInputError
from chronik.pipeline.audit.findings import Finding, FindingKind, extract_first_error_line
from chronik.pipeline.audit.partition_plan import AuditedPartition
from chronik.pipeline.audit.range_plan import bundle_items_by_size
from chronik.pipeline.audit.row_comparison import RowComparison, RowSlice, compare_row_slices, list_decoded_columns
from chronik.pipeline.spark.tasks import TaskRunner
from chronik.pipeline.tables.catalog import open_table
from chronik.pipeline.tables.storage import TableStorage, build_dead_letters_uri, local_directory, table_uri
from chronik.pipeline.tables.storage_errors import TableStorageError
from chronik.pipeline.tables.table_files import TableFiles
from chronik.pipeline.tables.topic_table import TableError, TableMissingError

ROWS_PER_SLICE: Final = 250_000
"""Number of rows that a task compares at once. It holds them twice, from the log and the table: tens of megabytes."""

FIELDS_COST: Final = 5
"""Memory use of a row with decoded fields, as a multiple of a row without decoded fields."""

ROW_BYTES: Final = 256
"""Estimated memory use of a row in bytes, by which row slices are grouped into tasks."""

READ_ATTEMPTS_MAX: Final = 20
"""Maximum number of attempts to read a table that changes while it is read."""


SuspectReplicas = Mapping[TopicPartition, Collection[int]]
"""Nodes whose replica of a partition has findings and is therefore not trusted, by partition."""


@dataclass(frozen=True, slots=True)
class AuditedTable:
    """One version of a topic's table, with the dead-letter table read at the same time or later."""

    topic: str
    topic_id: str
    next_offsets: dict[int, int]
    table: TableFiles
    dead_letters: TableFiles | None

    def with_registry(self, registry: RegistrySettings | None) -> AuditedTable:
        """Return the table with the registry from which its records are decoded."""
        return replace(self, table=replace(self.table, registry=registry))

    @property
    def paths(self) -> set[str]:
        """The locations of all files of the table and its dead-letter table, as in findings."""
        several = [self.table] if self.dead_letters is None else [self.table, self.dead_letters]
        return {
            storage.describe_path(file.path) for table in several for storage in [table.storage] for file in table.files
        }


def check_table_root(root: str) -> None:
    """Check that a local table root exists. An object store has no directories; its tables are listed when opened.

    Raises:
        AuditInputError: The directory does not exist.
    """
    directory = local_directory(root)
    if directory is not None and not directory.is_dir():
        raise AuditInputError(f"table root {root} does not exist")


def open_audited_table(root: str, topic: str, storage_options: Mapping[str, str] | None = None) -> AuditedTable | None:
    """Open a topic's table and its dead-letter table, or return None if the topic has no table.

    Dead-letter records are committed before the rows, and read here after them: a landed record that is not in the
    table is therefore among them.

    Raises:
        AuditInputError: The table cannot be read.
    """
    uri = table_uri(root, topic)
    try:
        return _open_table(root, topic, uri, storage_options)
    except TableMissingError:
        _check_no_orphaned_files(uri, storage_options)
        return None
    except TableStorageError as error:
        raise AuditInputError(f"cannot read table {uri}: {error}") from error
    except (OSError, TableError) as error:
        message = extract_first_error_line(error)
        raise AuditInputError(message if message.startswith(uri) else f"cannot read table {uri}: {message}") from error


def _open_table(root: str, topic: str, uri: str, storage_options: Mapping[str, str] | None) -> AuditedTable:
    table = open_table(uri, storage_options)
    for _ in range(READ_ATTEMPTS_MAX):
        snapshot = table.snapshot()
        files = replace(table.files(), earlier_schemas=tuple(table.schema_versions().values()))
        if table.snapshot().version == snapshot.version:
            spec = snapshot.spec
            dead_letters = _open_dead_letter_table(root, topic, storage_options)
            return AuditedTable(spec.topic, spec.topic_id, snapshot.next_offsets, files, dead_letters)
    raise AuditInputError(
        f"cannot audit table {uri}: it changed during each of {READ_ATTEMPTS_MAX} attempts to read it"
    )


def _open_dead_letter_table(root: str, topic: str, storage_options: Mapping[str, str] | None) -> TableFiles | None:
    uri = build_dead_letters_uri(root, topic)
    try:
        return open_table(uri, storage_options).files()
    except TableMissingError:
        _check_no_orphaned_files(uri, storage_options)
        return None


def _check_no_orphaned_files(uri: str, storage_options: Mapping[str, str] | None) -> None:
    """Raise AuditInputError if there are Parquet files but no transaction log, which means that the log was lost."""
    storage = TableStorage(uri, storage_options)
    found = storage.filesystem.get_file_info(
        fs.FileSelector(storage.full_path(""), allow_not_found=True, recursive=True)
    )
    if any(info.path.endswith(".parquet") for info in found):
        raise AuditInputError(f"table {uri} has Parquet files but no transaction log")


def plan_row_slices(landed: AuditedTable, partition: AuditedPartition, suspects: SuspectReplicas) -> Iterator[RowSlice]:
    """Yield slices of the offsets that both the table and the log should contain, to compare them."""
    replicas = tuple(partition.reference_replicas(suspects.get(partition.topic_partition, ())))
    end = min(landed.next_offsets.get(partition.index, 0), partition.end)
    if not replicas or partition.start >= end:
        return
    step = ROWS_PER_SLICE // (FIELDS_COST if list_decoded_columns(landed.table.schema) else 1)
    bounds = [*range(partition.start, end, step), end]
    for first, last in pairwise(bounds):
        table_end = landed.next_offsets[partition.index] if last == end else None
        yield RowSlice(
            topic=partition.topic,
            partition=partition.index,
            start=first,
            end=last,
            replicas=replicas,
            is_compacted=partition.is_compacted,
            table=landed.table.select_overlapping_files(partition.index, first, last if table_end is None else 2**62),
            dead_letters=None
            if landed.dead_letters is None
            else landed.dead_letters.select_overlapping_files(partition.index, first, last),
            table_end=table_end,
        )


def find_rows_beyond_log(landed: AuditedTable, partition: AuditedPartition) -> Finding | None:
    """Return a finding if the table's next offset is beyond the end of the partition."""
    reached = landed.next_offsets.get(partition.index, 0)
    if reached <= partition.end:
        return None
    says = f"the table has landed up to offset {reached}, but the partition ends at {partition.end}"
    return Finding(
        FindingKind.FOREIGN_ROW, says, partition.topic, partition.index, offset=partition.end, file=landed.table.uri
    )


def compare_table(
    tasks: TaskRunner,
    root: str,
    landed: AuditedTable,
    partitions: Sequence[AuditedPartition],
    suspects: SuspectReplicas | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> tuple[list[Finding], int]:
    """Compare a table with the log and return the findings and the number of rows compared.

    Findings count only if a second comparison confirms them, because retries of dead-letter records and compaction may
    move rows between files while they are read.

    Raises:
        AuditInputError: The table changes too fast to be read.
    """
    findings, rows = _compare_slices(tasks, root, landed, partitions, suspects or {}, storage_options)
    if not findings:
        return [], rows
    reopened = _reopen(root, landed, storage_options)
    if reopened is None:
        return [], 0
    again, _ = _compare_slices(tasks, root, reopened, partitions, suspects or {}, storage_options)
    seen = set(map(_finding_key, findings))
    confirmed = [each for each in again if _finding_key(each) in seen]
    files = {each.file: each for each in confirmed if each.kind is FindingKind.TABLE_FILE}  # slices may share a file
    return [*files.values(), *(each for each in confirmed if each.kind is not FindingKind.TABLE_FILE)], rows


def _reopen(root: str, landed: AuditedTable, storage_options: Mapping[str, str] | None) -> AuditedTable | None:
    found = open_audited_table(root, landed.topic, storage_options)
    return None if found is None else found.with_registry(landed.table.registry)


def _finding_key(finding: Finding) -> tuple[object, ...]:
    """Return a key that identifies a finding in repeated comparisons, even if its row has moved to another file."""
    file = finding.file if finding.kind is FindingKind.TABLE_FILE else None
    return finding.kind, finding.partition, finding.offset, file


def _compare_slices(
    tasks: TaskRunner,
    root: str,
    landed: AuditedTable,
    partitions: Sequence[AuditedPartition],
    suspects: SuspectReplicas,
    storage_options: Mapping[str, str] | None,
) -> tuple[list[Finding], int]:
    for _ in range(READ_ATTEMPTS_MAX):
        slices = [each for partition in partitions for each in plan_row_slices(landed, partition, suspects)]
        sized = [(each, ROW_BYTES * (each.end - each.start)) for each in slices]
        compared: list[RowComparison] = [
            each for some in tasks(compare_row_slices, bundle_items_by_size(sized)) for each in some
        ]
        missing = {path for each in compared for path in each.missing_files}
        reopened = _reopen(root, landed, storage_options) if missing else landed
        if reopened is None:
            break
        if missing <= reopened.paths:
            return [finding for each in compared for finding in each.findings], sum(each.rows for each in compared)
        landed = reopened
    raise AuditInputError(f"cannot audit table {landed.table.uri}: its files are replaced faster than they can be read")
