"""Delta tables through delta-rs: the topic's offsets stand in the table's transaction log, beside the files they cover.

Each data commit carries one transaction `chronik/<topic id>/<partition>` per partition that moved, whose version is the
next offset. Delta-rs refuses a commit when another one of the same application id came between, so two writers never
both land a range; but it lets a version go backwards, so every attempt starts from a fresh snapshot and checks. For the
same reason an answer that got lost does no harm: the next attempt finds the ranges in the table.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction

from chronik.pipeline.tables.columns import Kind, Partitioning, schema_of
from chronik.pipeline.tables.committer import (
    CommitFailed,
    Committed,
    Snapshot,
    Superseded,
    TableDiffers,
    TableMissing,
    TableSpec,
)
from chronik.pipeline.tables.evolution import Evolved, plan_columns
from chronik.pipeline.tables.progress import Landed, WrittenFile, choose
from chronik.pipeline.tables.storage import local_folder

CONFLICTS_MAX = 100
"""Attempts that lose to another commit: each means that somebody else got through, so only a crowd comes near it."""

FAILURES_MAX = 3
"""Attempts with any other error. Their outcome is unknown, and a fresh snapshot tells it; what fails three times (no
permission, a full disk) would fail for ever."""

PAUSE_SECONDS_MAX = 0.2

TOPIC, TOPIC_ID, KIND, PARTITIONING = "chronik.topic", "chronik.topic.id", "chronik.kind", "chronik.partitioning"
FORGETS_OFFSETS = "delta.setTransactionRetentionDuration"

Result = TypeVar("Result")


class DeltaCommitter:
    """See `Committer`. Not for several threads at once: each opens its own."""

    def __init__(self, uri: str, storage_options: Mapping[str, str] | None = None) -> None:
        """Opens a table that is there. Raises TableMissing, TableDiffers."""
        self.uri = uri
        self._storage_options = dict(storage_options) if storage_options else None
        table = self._fresh()
        self.spec = _spec_of(table, uri)

    @classmethod
    def open_or_create(
        cls, uri: str, spec: TableSpec, storage_options: Mapping[str, str] | None = None
    ) -> DeltaCommitter:
        """Raises TableDiffers when the table that is there is not for this."""
        try:
            found = cls(uri, storage_options)
        except TableMissing:
            _create(uri, spec, storage_options)
            found = cls(uri, storage_options)
        if found.spec != spec:
            raise TableDiffers(f"{uri} was made for {_described(found.spec)}, not for {_described(spec)}")
        return found

    def snapshot(self) -> Snapshot:
        table = self._fresh()
        return Snapshot(
            version=table.version(),
            next_offsets=self._next_offsets(table),
            file_uris=tuple(table.file_uris()),
            schema=_arrow_schema(table),
            partition_by=self.spec.partitioning.columns,
        )

    def next_offsets(self) -> dict[int, int]:
        return self._next_offsets(self._fresh())

    def commit(self, landed: Sequence[Landed]) -> Committed:
        # Dead letters are few: a table that had to be told of every span would get a commit for every batch without.
        gaps = self.spec.kind is Kind.DEAD_LETTERS

        def attempt(table: DeltaTable) -> Committed:
            before = self._next_offsets(table)
            choice = choose(landed, before, gaps=gaps)
            if choice.fresh:
                files = [file for each in choice.fresh for file in each.files]
                self._append(table, files, self._transactions(choice.moved, before))
                table.update_incremental()
            rows = sum(each.rows for each in choice.fresh)
            return Committed(table.version(), before | choice.moved, rows, choice.present)

        return self._attempts(attempt)

    def append_numbered(self, files: Sequence[WrittenFile], sequence: str, number: int) -> None:
        def attempt(table: DeltaTable) -> None:
            expected = self._next_number(table, sequence)
            if number != expected:
                raise Superseded(f"{self.uri}: {sequence} continues with {expected}, not with {number}")
            self._append(table, files, [Transaction(self._sequence_id(sequence), number)])

        self._attempts(attempt)

    def next_number(self, sequence: str) -> int:
        return self._next_number(self._fresh(), sequence)

    def add_columns(self, fields: Sequence[pa.Field]) -> Evolved:
        def attempt(table: DeltaTable) -> Evolved:
            plan = plan_columns(_arrow_schema(table), fields)
            if plan.added:
                table.alter.add_columns([Field.from_arrow(field) for field in plan.added])
                table = self._fresh()
            return Evolved(_arrow_schema(table), plan.refused)

        return self._attempts(attempt)

    # One attempt and its transactions

    def _append(self, table: DeltaTable, files: Iterable[WrittenFile], transactions: list[Transaction]) -> None:
        table.create_write_transaction(
            [_add_action(file) for file in files],
            mode="append",
            schema=table.schema(),
            partition_by=list(self.spec.partitioning.columns),
            commit_properties=CommitProperties(app_transactions=transactions),
        )

    def _transactions(self, moved: Mapping[int, int], before: Mapping[int, int]) -> list[Transaction]:
        transactions = [Transaction(self._partition_id(number), offset) for number, offset in sorted(moved.items())]
        # A transaction can be asked for but not listed, so the table also says up to which partition to ask.
        count = max(moved) + 1
        if count > max(before, default=-1) + 1:
            transactions.append(Transaction(self._topic_key, count))
        return transactions

    def _next_offsets(self, table: DeltaTable) -> dict[int, int]:
        count = table.transaction_version(self._topic_key)
        versions = ((number, table.transaction_version(self._partition_id(number))) for number in range(count or 0))
        return {number: version for number, version in versions if version is not None}

    def _next_number(self, table: DeltaTable, sequence: str) -> int:
        last = table.transaction_version(self._sequence_id(sequence))
        return 0 if last is None else last + 1

    @property
    def _topic_key(self) -> str:
        return f"chronik/{self.spec.topic_id}"

    def _partition_id(self, partition: int) -> str:
        return f"{self._topic_key}/{partition}"

    def _sequence_id(self, sequence: str) -> str:
        return f"{self._topic_key}/sequence/{sequence}"

    # Attempts

    def _attempts(self, attempt: Callable[[DeltaTable], Result]) -> Result:
        conflicts = failures = 0
        while True:
            try:
                return attempt(self._fresh())
            except CommitFailedError as error:
                conflicts += 1
                last: Exception = error
            except (DeltaError, OSError) as error:
                failures += 1
                last = error
            if conflicts >= CONFLICTS_MAX or failures >= FAILURES_MAX:
                raise CommitFailed(f"{self.uri}: {last}") from last
            time.sleep(random.uniform(0, PAUSE_SECONDS_MAX * min(1.0, (conflicts + failures) / 10)))

    def _fresh(self) -> DeltaTable:
        """Raises TableMissing."""
        return _open(self.uri, self._storage_options)


def _open(uri: str, storage_options: Mapping[str, str] | None) -> DeltaTable:
    try:
        return DeltaTable(uri, storage_options=dict(storage_options) if storage_options else None)
    except TableNotFoundError as error:
        raise TableMissing(f"there is no table at {uri}") from error


def _create(uri: str, spec: TableSpec, storage_options: Mapping[str, str] | None) -> None:
    folder = local_folder(uri)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    try:
        DeltaTable.create(
            uri,
            Schema.from_arrow(schema_of(spec.kind, spec.partitioning)),
            mode="error",
            partition_by=list(spec.partitioning.columns),
            name=spec.topic,
            configuration={
                TOPIC: spec.topic,
                TOPIC_ID: spec.topic_id,
                KIND: spec.kind.value,
                PARTITIONING: spec.partitioning.value,
            },
            storage_options=dict(storage_options) if storage_options else None,
            # A creation that lost a race and was tried again would land as version 1 and take back columns added since.
            commit_properties=CommitProperties(max_commit_retries=0),
            raise_if_key_not_exists=False,
        )
    except DeltaError:
        # Somebody else was quicker: then it opens.
        _open(uri, storage_options)


def _spec_of(table: DeltaTable, uri: str) -> TableSpec:
    found = table.metadata().configuration
    if FORGETS_OFFSETS in found:
        raise TableDiffers(f"{uri} sets {FORGETS_OFFSETS}: it would forget up to where topics have landed")
    if TOPIC_ID not in found:
        raise TableDiffers(f"{uri} is a table, but not of a topic")
    return TableSpec(found[TOPIC], found[TOPIC_ID], Kind(found[KIND]), Partitioning(found[PARTITIONING]))


def _described(spec: TableSpec) -> str:
    return f"topic {spec.topic} ({spec.topic_id}), {spec.kind}, partitioned by {spec.partitioning}"


def _arrow_schema(table: DeltaTable) -> pa.Schema:
    return pa.schema(table.schema().to_arrow())


def _add_action(file: WrittenFile) -> AddAction:
    return AddAction(file.path, file.size_bytes, file.partition_values, file.modified_ms, True, file.stats)
