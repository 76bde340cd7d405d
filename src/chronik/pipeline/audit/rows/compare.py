"""Tables beside the log, seen from the driver: which there are, up to where they have landed, and who compares what."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from chronik.client.records import TopicPartition
from chronik.pipeline.audit.findings import Finding, Kind, first_line
from chronik.pipeline.audit.folders import CannotLook
from chronik.pipeline.audit.logs.stretches import bundles
from chronik.pipeline.audit.rows.examining import RowsCompared, RowsSlice, compare_all_rows
from chronik.pipeline.audit.rows.fields import field_names
from chronik.pipeline.audit.standing import Partition
from chronik.pipeline.spark.tasks import Tasks
from chronik.pipeline.tables.files import TableFiles
from chronik.pipeline.tables.opening import open_table
from chronik.pipeline.tables.storage import dead_letters_uri, local_folder, table_uri
from chronik.pipeline.tables.topic_table import TableError, TableMissing

ROWS_PER_SLICE: Final = 250_000
"""Rows held at a time, once from the log and once from the table: some tens of megabytes."""

FIELDS_COST: Final = 5
"""How much more a row costs whose fields are held too."""

ROW_BYTES: Final = 256
"""What a row costs a task, roughly: for bundling."""

LOOKS_MAX: Final = 20
"""A table may move on while it is looked at; not so often in a row."""


Suspects = Mapping[TopicPartition, Collection[int]]
"""Nodes whose replica of a partition has findings of its own."""


@dataclass(frozen=True, slots=True)
class LandedTable:
    """One version of a topic's table, and its dead letters as of then or later."""

    topic: str
    topic_id: str
    next_offsets: dict[int, int]
    table: TableFiles
    dead_letters: TableFiles | None

    @property
    def paths(self) -> set[str]:
        """The paths of all files that it names."""
        several = [self.table] if self.dead_letters is None else [self.table, self.dead_letters]
        return {table.storage.full_path(file.path) for table in several for file in table.files}


def require_root(root: str) -> None:
    """Raises CannotLook when it is not there. (An object store has no folders: it tells by having no tables.)"""
    folder = local_folder(root)
    if folder is not None and not folder.is_dir():
        raise CannotLook(f"there is no folder {root}")


def landed_table(root: str, topic: str) -> LandedTable | None:
    """Returns None when the topic has none. Raises CannotLook.

    Dead letters are committed first, and looked at last: whatever the table does not have of what has landed is there.
    """
    uri = table_uri(root, topic)
    try:
        return _landed_table(root, topic, uri)
    except TableMissing:
        _refuse_leftovers(uri)
        return None
    except (OSError, TableError) as error:
        told = first_line(error)
        raise CannotLook(told if told.startswith(uri) else f"{uri}: {told}") from error


def _landed_table(root: str, topic: str, uri: str) -> LandedTable:
    table = open_table(uri)
    for _ in range(LOOKS_MAX):
        snapshot = table.snapshot()
        files = table.files()
        if table.snapshot().version == snapshot.version:
            spec = snapshot.spec
            return LandedTable(spec.topic, spec.topic_id, snapshot.next_offsets, files, _dead_letters(root, topic))
    raise CannotLook(f"{uri} changes too quickly to be looked at")


def _dead_letters(root: str, topic: str) -> TableFiles | None:
    uri = dead_letters_uri(root, topic)
    try:
        return open_table(uri).files()
    except TableMissing:
        _refuse_leftovers(uri)
        return None


def _refuse_leftovers(uri: str) -> None:
    """A table has its log before it has files: where there are files there was one."""
    folder = local_folder(uri)
    if folder is not None and any(folder.rglob("*.parquet")):
        raise CannotLook(f"{uri} has Parquet files, and no log that says which of them are the table's")


def row_slices(landed: LandedTable, partition: Partition, suspects: Suspects) -> Iterator[RowsSlice]:
    """Yields slices of what is in the log and has landed."""
    copies = tuple(partition.references(suspects.get(partition.source, ())))
    end = min(landed.next_offsets.get(partition.index, 0), partition.end)
    if not copies or partition.start >= end:
        return
    step = ROWS_PER_SLICE // (FIELDS_COST if field_names(landed.table.schema) else 1)
    cuts = [*range(partition.start, end, step), end]
    for first, last in pairwise(cuts):
        beyond = landed.next_offsets[partition.index] if last == end else None
        yield RowsSlice(
            topic=partition.topic,
            partition=partition.index,
            start=first,
            end=last,
            copies=copies,
            is_compacted=partition.is_compacted,
            table=landed.table.that_may_hold(partition.index, first, last if beyond is None else 2**62),
            dead_letters=None
            if landed.dead_letters is None
            else landed.dead_letters.that_may_hold(partition.index, first, last),
            beyond=beyond,
        )


def beyond_the_log(landed: LandedTable, partition: Partition) -> Finding | None:
    """A table cannot have landed what the partition does not have."""
    reached = landed.next_offsets.get(partition.index, 0)
    if reached <= partition.end:
        return None
    says = f"the table has landed up to offset {reached}, and the partition ends at {partition.end}"
    return Finding(
        Kind.FOREIGN_ROW, says, partition.topic, partition.index, offset=partition.end, file=landed.table.uri
    )


def compare_table(
    tasks: Tasks, root: str, landed: LandedTable, partitions: Sequence[Partition], suspects: Suspects | None = None
) -> tuple[list[Finding], int]:
    """Returns findings, and how many rows were compared. What is found counts when a second look finds it: rows move
    from the dead letters to the table, and files are joined, while both are read. Raises CannotLook."""
    findings, rows = _compared(tasks, root, landed, partitions, suspects or {})
    if not findings:
        return [], rows
    fresh = landed_table(root, landed.topic)
    if fresh is None:
        return [], 0
    again, _ = _compared(tasks, root, fresh, partitions, suspects or {})
    seen = set(map(_place, findings))
    kept = [each for each in again if _place(each) in seen]
    files = {each.file: each for each in kept if each.kind is Kind.TABLE_FILE}  # several slices may need the same one
    return [*files.values(), *(each for each in kept if each.kind is not Kind.TABLE_FILE)], rows


def _place(finding: Finding) -> tuple[object, ...]:
    """Returns what a second look has to find again. Which file holds a row may change in between."""
    file = finding.file if finding.kind is Kind.TABLE_FILE else None
    return finding.kind, finding.partition, finding.offset, file


def _compared(
    tasks: Tasks, root: str, landed: LandedTable, partitions: Sequence[Partition], suspects: Suspects
) -> tuple[list[Finding], int]:
    for _ in range(LOOKS_MAX):
        slices = [each for partition in partitions for each in row_slices(landed, partition, suspects)]
        sized = [(each, ROW_BYTES * (each.end - each.start)) for each in slices]
        compared: list[RowsCompared] = [each for some in tasks(compare_all_rows, bundles(sized)) for each in some]
        gone = {path for each in compared for path in each.gone}
        fresh = landed_table(root, landed.topic) if gone else landed
        if fresh is None:
            break
        if gone <= fresh.paths:
            return [finding for each in compared for finding in each.findings], sum(each.rows for each in compared)
        landed = fresh
    raise CannotLook(f"{landed.table.uri}: its files go away faster than they can be read")
