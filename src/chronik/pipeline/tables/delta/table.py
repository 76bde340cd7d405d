"""Delta tables through delta-rs: the topic's offsets stand in the table's transaction log, beside the files they cover.

Each data commit carries one transaction `chronik/<topic id>/<partition>` per partition that moved, whose version is the
next offset. Delta-rs would let a version go backwards: so an attempt decides by the offsets of the very version that it
commits onto (`handle`). For the same reason an answer that got lost does no harm: the next attempt finds the ranges in
the table.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from chronik.pipeline.tables.delta.commit_log import make_entry_durable
from chronik.pipeline.tables.delta.handle import (
    ON_THIS_VERSION,
    Attempts,
    Result,
    as_table_error,
    committed_durably,
    live_files,
    open_delta,
    schema_of_delta,
)
from chronik.pipeline.tables.files import FrozenTable, LiveFile, TableFiles
from chronik.pipeline.tables.in_flight import COMMIT_HOURS_MAX, lost_files
from chronik.pipeline.tables.layout import DECODING_RULES, Kind, Partitioning, schema_of
from chronik.pipeline.tables.spans import FilesGone, Landed, WrittenFile, choose
from chronik.pipeline.tables.storage import Storage, local_folder, make_folder
from chronik.pipeline.tables.topic_table import (
    Committed,
    Snapshot,
    Superseded,
    TableDiffers,
    TableMissing,
    TableSpec,
)
from chronik.pipeline.tables.values.growth import Evolved, plan_columns
from chronik.wording import counted

CHECKPOINT_COMMITS = "20"
"""Every commit begins with a fresh look at the table, which reads the log from its last checkpoint on: with delta-rs's
own 100 that comes to most of a commit's time."""

TOPIC, TOPIC_ID, KIND, PARTITIONING = "chronik.topic", "chronik.topic.id", "chronik.kind", "chronik.partitioning"
RULES = "chronik.decoding.rules"
FORGETS_OFFSETS = "delta.setTransactionRetentionDuration"


class DeltaTopicTable:
    """A `TopicTable`, which says what its methods do."""

    def __init__(self, uri: str, storage_options: Mapping[str, str] | None = None) -> None:
        """Opens a table that is there. Raises TableMissing."""
        self.uri = uri
        self._storage_options = dict(storage_options) if storage_options else None
        self.storage = Storage(uri, self._storage_options)
        with as_table_error(uri):
            self._configuration = self._fresh().metadata().configuration

    @classmethod
    def open_or_create(
        cls, uri: str, spec: TableSpec, storage_options: Mapping[str, str] | None = None
    ) -> DeltaTopicTable:
        """Raises TableDiffers when the table that is there is not for this."""
        try:
            found = cls(uri, storage_options)
        except TableMissing:
            _create(uri, spec, storage_options)
            found = cls(uri, storage_options)
        if found.spec != spec:
            raise TableDiffers(f"{uri} was made for {_described(found.spec)}, not for {_described(spec)}")
        found._take_over()
        return found

    def _take_over(self) -> None:
        """From now on this version's rules say what a row and what a dead letter is. A driver that knows only older
        ones finds that with its next commit, and ends: were each to have its way, a record could be both, or neither.
        """

        def attempt(table: DeltaTable) -> None:
            if self._rules_of(table) < DECODING_RULES:
                table.alter.set_table_properties(
                    {RULES: str(DECODING_RULES)}, raise_if_not_exists=False, commit_properties=ON_THIS_VERSION
                )

        if self._rules_of(self._fresh()) < DECODING_RULES:
            self._attempts(attempt)

    def _rules_of(self, table: DeltaTable) -> int:
        """Raises TableDiffers."""
        rules = int(table.metadata().configuration.get(RULES, 0))
        if rules > DECODING_RULES:
            raise TableDiffers(
                f"{self.uri} is landed by a newer version, whose rules for decoding are {rules}, not {DECODING_RULES}"
            )
        return rules

    @cached_property
    def spec(self) -> TableSpec:
        found = self._configuration
        if FORGETS_OFFSETS in found:
            raise TableDiffers(f"{self.uri} sets {FORGETS_OFFSETS}: it would forget up to where topics have landed")
        if TOPIC_ID not in found:
            raise TableDiffers(f"{self.uri} is a table, but not of a topic")
        return TableSpec(found[TOPIC], found[TOPIC_ID], Kind(found[KIND]), Partitioning(found[PARTITIONING]))

    # What it holds

    def snapshot(self) -> Snapshot:
        with as_table_error(self.uri):
            table = self._fresh()
            return Snapshot(
                version=table.version(),
                spec=self.spec,
                next_offsets=self._next_offsets(table),
                file_uris=tuple(table.file_uris()),
                frozen=self._frozen(table),
            )

    def next_offsets(self) -> dict[int, int]:
        with as_table_error(self.uri):
            return self._next_offsets(self._fresh())

    def frozen(self) -> FrozenTable:
        with as_table_error(self.uri):
            return self._frozen(self._fresh())

    def files(self) -> TableFiles:
        with as_table_error(self.uri):
            table = self._fresh()
            return self._frozen(table).with_files(*live_files(table))

    def _frozen(self, table: DeltaTable) -> FrozenTable:
        columns = tuple(table.metadata().partition_columns)
        return FrozenTable(self.uri, schema_of_delta(table), columns, self._storage_options)

    # What is added

    def commit(self, landed: Sequence[Landed]) -> Committed:
        # Dead letters are few: a table that had to be told of every span would get a commit for every batch without.
        gaps = self.spec.kind is Kind.DEAD_LETTERS
        partitions = {span.partition for each in landed for span in each.spans}

        def attempt(table: DeltaTable) -> Committed:
            self._rules_of(table)
            before = self._next_offsets_of(table, partitions)
            choice = choose(landed, before, gaps=gaps)
            if choice.fresh:
                files = [file for each in choice.fresh for file in each.files]
                self._append(table, files, self._transactions(table, choice.moved))
                table.update_incremental()
            rows = sum(each.rows for each in choice.fresh)
            return Committed(table.version(), before | choice.moved, rows, choice.present)

        return self._attempts(attempt)

    def append_numbered(self, files: Sequence[WrittenFile], sequence: str, number: int) -> None:
        def attempt(table: DeltaTable) -> None:
            self._rules_of(table)
            expected = self._next_number(table, sequence)
            if number != expected:
                raise Superseded(f"{self.uri}: {sequence} continues with {expected}, not with {number}")
            self._append(table, files, [Transaction(self._sequence_id(sequence), number)])

        self._attempts(attempt)

    def next_number(self, sequence: str) -> int:
        with as_table_error(self.uri):
            return self._next_number(self._fresh(), sequence)

    def add_columns(self, fields: Sequence[pa.Field]) -> Evolved:
        def attempt(table: DeltaTable) -> Evolved:
            plan = plan_columns(schema_of_delta(table), fields)
            if plan.added:
                fields_added = [Field.from_arrow(field) for field in plan.added]
                table.alter.add_columns(fields_added, commit_properties=ON_THIS_VERSION)
                table = self._fresh()
            return Evolved(schema_of_delta(table), plan.refused)

        return self._attempts(attempt)

    # How it is kept tidy

    def replace(self, removed: Sequence[LiveFile], written: Sequence[WrittenFile], *, rows_change: bool) -> bool:
        attempts = Attempts(self.uri)

        def attempt(table: DeltaTable) -> None:
            columns = table.metadata().partition_columns
            actions = [_add_action(file, rows_change) for file in written]
            actions += [_remove_action(file, columns, rows_change) for file in removed]
            table.create_write_transaction(
                actions,
                mode="append",
                schema=table.schema(),
                partition_by=columns,
                commit_properties=ON_THIS_VERSION,
            )

        while True:
            with as_table_error(self.uri):
                table = self._fresh()
                live = {file.path for file in live_files(table)}
            # A commit takes in all of them. If only some are left, another has replaced the rest since.
            if any(file.path in live for file in written):
                return True  # by an attempt whose answer got lost
            forestalled = not all(file.path in live for file in removed)
            if forestalled or lost_files(self.storage, written):
                if not attempts.outcome_unknown:  # otherwise versions of the past may name them: left for vacuum
                    self.storage.discard(file.path for file in written)
                return False
            try:
                committed_durably(self.uri, table, attempt)
                return True
            except (CommitFailedError, DeltaError, OSError) as error:
                attempts.after(error)

    def remove_unused(self, hours: int, *, orphans: bool, dry_run: bool = False) -> list[str]:
        with as_table_error(self.uri):
            table = self._fresh()
            listed = table.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=orphans)
            # As long as the log remembers files that were removed from the table, they are listed, there or not.
            there = list(self.storage.modified_s(listed))
            if there and not dry_run:
                before = table.version()
                table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=orphans)
                # It says in the log that it begins and that it has ended.
                for version in range(before + 1, self._fresh().version() + 1):
                    make_entry_durable(self.uri, version)
            return there

    # One attempt and its transactions

    def _append(self, table: DeltaTable, files: Sequence[WrittenFile], transactions: list[Transaction]) -> None:
        """Raises FilesGone."""
        lost = lost_files(self.storage, files)
        if lost:
            told = f"{len(lost)} of {counted(len(files), 'file')} to commit gone, or older than {COMMIT_HOURS_MAX} h"
            raise FilesGone(f"{self.uri}: {told}, {lost[0]} among them")
        table.create_write_transaction(
            [_add_action(file) for file in files],
            mode="append",
            schema=table.schema(),
            partition_by=list(self.spec.partitioning.columns),
            commit_properties=CommitProperties(max_commit_retries=0, app_transactions=transactions),
        )

    def _transactions(self, table: DeltaTable, moved: Mapping[int, int]) -> list[Transaction]:
        transactions = [Transaction(self._partition_id(number), offset) for number, offset in sorted(moved.items())]
        # A transaction can be asked for but not listed, so the table also says up to which partition to ask.
        count = max(moved) + 1
        if count > self._partition_count(table):
            transactions.append(Transaction(self._topic_key, count))
        return transactions

    def _next_offsets(self, table: DeltaTable) -> dict[int, int]:
        return self._next_offsets_of(table, range(self._partition_count(table)))

    def _next_offsets_of(self, table: DeltaTable, partitions: Iterable[int]) -> dict[int, int]:
        """Asks for no more than it needs: each question takes delta-rs up to a millisecond."""
        versions = ((number, table.transaction_version(self._partition_id(number))) for number in partitions)
        return {number: version for number, version in versions if version is not None}

    def _partition_count(self, table: DeltaTable) -> int:
        count = table.transaction_version(self._topic_key)
        return 0 if count is None else count

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
        attempts = Attempts(self.uri)
        while True:
            try:
                return committed_durably(self.uri, self._fresh(), attempt)
            except (CommitFailedError, DeltaError, OSError) as error:
                attempts.after(error)

    def _fresh(self) -> DeltaTable:
        return open_delta(self.uri, self._storage_options)


def _create(uri: str, spec: TableSpec, storage_options: Mapping[str, str] | None) -> None:
    folder = local_folder(uri)
    if folder is not None:
        make_folder(folder)
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
                RULES: str(DECODING_RULES),
                "delta.checkpointInterval": CHECKPOINT_COMMITS,
            },
            storage_options=dict(storage_options) if storage_options else None,
            # A creation that lost a race and was tried again would land as version 1 and take back columns added since.
            commit_properties=ON_THIS_VERSION,
            raise_if_key_not_exists=False,
        )
    except DeltaError:
        # Somebody else was quicker: then it opens.
        open_delta(uri, storage_options)
    make_entry_durable(uri, 0)


def _described(spec: TableSpec) -> str:
    return f"topic {spec.topic} ({spec.topic_id}), {spec.kind}, partitioned by {spec.partitioning}"


def _add_action(file: WrittenFile, rows_change: bool = True) -> AddAction:
    return AddAction(file.path, file.size_bytes, file.partition_values, file.modified_ms, rows_change, file.stats)


def _remove_action(file: LiveFile, columns: Sequence[str], rows_change: bool) -> RemoveAction:
    values = {name: None if value is None else str(value) for name, value in zip(columns, file.values, strict=True)}
    return RemoveAction(file.path, rows_change, int(time.time() * 1000), file.size_bytes, values)
