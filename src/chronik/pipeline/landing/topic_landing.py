"""Landing of one topic: each round is planned from the table's offsets, run by tasks, and committed atomically.

    landing = TopicLanding("orders", settings, cluster)
    round = landing.plan_round(parallelism)
    while round.tasks:
        round.add_results(jobs.run(round.tasks))
    result = round.commit()

The order of the commits makes a crash between them harmless: new columns, then dead-letter records, then rows with
their offsets, and finally the group's offsets, which are never read.

Dead-letter records and rows are two commits, and a later or concurrent driver may decode by other rules. Therefore a
committed dead-letter record remains one, even if it can be decoded now. A record that fails to decode only now, among
offsets whose dead-letter records are already committed, is a late dead-letter record and is appended separately. Each
record is thus in exactly one of the two tables.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from chronik.client.cluster import ClusterClient
from chronik.client.errors import ClientError
from chronik.client.groups import commit_offsets
from chronik.client.records import TopicPartition
from chronik.errors import ChronikError, ConfigError
from chronik.formats.registry_client import RegistrySettings, RegistryUnavailableError
from chronik.pipeline import failpoints
from chronik.pipeline.landing.format_decision import FormatUndecidedError, decide_formats, replace_auto_formats
from chronik.pipeline.landing.landing_task import LandingTask, LandingTaskResult
from chronik.pipeline.landing.round_plan import RECORD_BYTES_ASSUMED, RoundPlan, bundle_ranges, plan_round
from chronik.pipeline.landing.sampling import sample_records
from chronik.pipeline.landing.settings import (
    DEFAULT_TABLE_SETTINGS,
    LandingSettings,
    StartPosition,
    TableSettings,
    TopicDescription,
    build_table_settings,
    fetch_topic_configs,
    parse_schema_from_configs,
    parse_table_settings_from_configs,
)
from chronik.pipeline.landing.topic_positions import TopicPositions, fetch_topic_ids, fetch_topic_positions
from chronik.pipeline.registry_access import resolve_registry
from chronik.pipeline.source.offset_ranges import Offsets
from chronik.pipeline.source.offset_resolver import OffsetResolver
from chronik.pipeline.source.options import IsolationLevel, ReadSettings
from chronik.pipeline.spark.tasks import TaskFailedError
from chronik.pipeline.tables.catalog import open_or_create_table, open_table
from chronik.pipeline.tables.commit_plan import CommitRejectedError, TaskOutput, WrittenFile, WrittenFilesLostError
from chronik.pipeline.tables.layout import KEY_VALUE, OFFSET, PARTITION, TableKind
from chronik.pipeline.tables.offset_sets import OffsetSets, collect_offsets
from chronik.pipeline.tables.storage import build_dead_letters_uri, table_uri
from chronik.pipeline.tables.table_files import TableDescriptor, scan
from chronik.pipeline.tables.topic_table import (
    SequenceConflictError,
    TableMismatchError,
    TableMissingError,
    TableSpec,
    TopicTable,
)
from chronik.pipeline.tables.values.field_statistics import FieldStatistics, merge_statistics
from chronik.pipeline.tables.values.row_decoder import infer_record_statistics
from chronik.pipeline.tables.values.table_schema import UnknownFields
from chronik.protocol.errors import KafkaError

LATE_SEQUENCE = "late"
"""Name of the sequence of commits that write late dead-letter records, each exactly once. A late record is below the
dead-letter table's next offset."""

MISFIT_RATE_REPORTED = 0.01
"""Fraction of a column's values that must not fit its type before the landing round reports the column."""

RECORD_BYTES_WEIGHT = 0.5
"""Weight of the last round in the estimated size of a topic's records."""

logger = logging.getLogger("chronik.pipeline")

SCHEMA_CHANGES_MAX = 5
"""Maximum number of times that a round may add columns; further new fields are stored in `_rescued`.

One is enough, unless another driver adds columns concurrently or tasks infer different types within objects.
"""


class DeadLettersChangedError(CommitRejectedError):
    """Another driver has committed dead-letter records of the same offsets. The round must be planned again."""


@dataclass(frozen=True, slots=True)
class DeadLetterState:
    """The state of a dead-letter table when a round is planned."""

    next_offsets: dict[int, int]
    next_late_sequence_number: int
    """Sequence number of the next commit of late dead-letter records (see `LATE_SEQUENCE`)."""
    offsets_ahead: OffsetSets
    """Offsets of the dead-letter records at or beyond the next offsets of the topic's table, by partition."""


def read_dead_letter_state(dead: TopicTable, table_next_offsets: Mapping[int, int]) -> DeadLetterState:
    """Read the state of a dead-letter table, given the next offsets of the topic's table."""
    # Read the records last: a concurrent commit is then detected by the changed sequence number or next offsets.
    late_number = dead.next_sequence_number(LATE_SEQUENCE)
    next_offsets = dead.next_offsets()
    ahead = {
        partition: range(table_next_offsets.get(partition, 0), end)
        for partition, end in next_offsets.items()
        if table_next_offsets.get(partition, 0) < end
    }
    return DeadLetterState(next_offsets, late_number, _read_offsets_within(dead, ahead) if ahead else {})


def _read_offsets_within(dead: TopicTable, wanted: Mapping[int, range]) -> OffsetSets:
    table = dead.files()
    overlapping = [
        file
        for file in table.files
        if any(file.may_contain(partition, offsets.start, offsets.stop) for partition, offsets in wanted.items())
    ]
    found = collect_offsets(scan(table.with_files(*overlapping), [PARTITION, OFFSET]))
    return {
        partition: found[partition][(found[partition] >= offsets.start) & (found[partition] < offsets.stop)]
        for partition, offsets in wanted.items()
        if partition in found
    }


def commit_dead_letters(
    dead: TopicTable,
    planned: DeadLetterState,
    partitions: Iterable[int],
    landed: Sequence[TaskOutput],
    late: Sequence[WrittenFile],
) -> int:
    """Commit dead-letter records and return the number of new ones. On success, the rows may be committed.

    Raises:
        CommitRejectedError: Another driver has committed dead-letter records; some of these may be committed too.
        TableCommitError: The outcome is unknown.
    """
    expected, rows = planned.next_offsets, sum(file.rows for file in late)
    if late:
        try:
            dead.append_in_sequence(late, LATE_SEQUENCE, planned.next_late_sequence_number)
        except SequenceConflictError as superseded:
            raise DeadLettersChangedError(str(superseded)) from superseded
    if landed:
        committed = dead.commit(landed)
        if committed.committed_outputs:
            raise DeadLettersChangedError(f"{dead.uri} has dead-letter records of these offsets already")
        expected = expected | committed.next_offsets
        rows += committed.rows
    # Also check a round without dead-letter records: another driver may have found some among the same records.
    now = dead.next_offsets()
    has_changed = any(now.get(partition) != expected.get(partition) for partition in partitions)
    if has_changed or dead.next_sequence_number(LATE_SEQUENCE) != planned.next_late_sequence_number + bool(late):
        raise DeadLettersChangedError(
            f"another driver has committed dead-letter records of these offsets to {dead.uri}"
        )
    return rows


@dataclass(frozen=True, slots=True)
class RoundResult:
    """The result of a committed round."""

    next_offsets: dict[int, int]
    """Next offset by partition; partitions that have never landed are omitted."""
    rows: int
    dead_letters: int
    size_bytes: int
    warnings: tuple[str, ...]
    engine: str | None = None
    """Where the tasks ran: `driver` or `spark`; None if there were none."""
    misfits: Mapping[str, int] = field(default_factory=dict)
    """Number of values that did not fit, for columns in which they are more than MISFIT_RATE_REPORTED."""
    is_superseded: bool = False
    """Whether the round must be planned again, because another driver has committed some of its offsets."""


class TopicLanding:
    """The landing of one topic, that is, writing its records to its tables in rounds. Not thread-safe."""

    def __init__(self, topic: str, settings: LandingSettings, cluster: ClusterClient) -> None:
        self.topic = topic
        self.table = table_uri(settings.table_root, topic)
        self.settings = settings
        self.cluster = cluster
        self.next_offsets: dict[int, int] = {}
        """Offset of the next record to write to the table, by partition, as of the last plan or commit."""
        self.end_offsets: Offsets = {}
        self.schema: pa.Schema | None = None
        """Schema of the table in the last round that read records, or None before the table is read."""
        self.record_bytes = float(RECORD_BYTES_ASSUMED)
        """Estimated size of a record, from the records of the last rounds."""
        self._positions: TopicPositions | None = None
        """The positions of the last measured backlog."""
        self._are_offsets_known = False
        """Whether `next_offsets` were read from the table and no commit has failed since."""
        self._resolver = OffsetResolver(cluster, IsolationLevel.READ_COMMITTED)
        self._opened: TopicTables | None = None

    def plan_next_round(self, tasks_max: int, up_to: Offsets | None = None) -> LandingRound:
        """Plan the next round of this topic alone, up to the offsets `up_to` if given.

        Raises:
            RecordsDeletedError: Retention has deleted records before they landed.
            TableError: The table cannot be read, or belongs to another topic.
            ConfigError: The topic's configs are invalid.
            ClientError: No broker responds.
            KafkaError: A broker rejects a request.
            OSError: The table's storage fails.
        """
        positions, errors = fetch_topic_positions(self.cluster, [self.topic])
        for error in errors.values():
            raise error
        self.measure_backlog(positions[self.topic], up_to)
        return self.plan_round(tasks_max, up_to)

    @property
    def is_open(self) -> bool:
        """Whether the topic's tables have been opened."""
        return self._opened is not None

    def is_idle(self, positions: TopicPositions) -> bool:
        """Return whether the topic has no records to land, as far as is known without reading its table.

        Records of an idle topic may be landed by another driver. A commit detects that, as it is conditional on the
        table's next offsets.
        """
        if self._opened is None or self._opened.data.spec.topic_id != positions.topic_id:
            is_undecided = self._positions is not None and self._opened is None and self._are_offsets_known
            return is_undecided and self._positions == positions
        return self._are_offsets_known and all(
            self.next_offsets.get(each.partition, 0) == end for each, end in positions.ends.items()
        )

    def measure_backlog(self, positions: TopicPositions, up_to: Offsets | None = None) -> int:
        """Read the next offsets of the table, open it if needed, and return the number of offsets to land.

        Raises the errors of `plan_next_round`.
        """
        self._are_offsets_known = False
        self._positions, self.end_offsets = positions, positions.ends
        try:
            tables = self._get_or_open_tables(positions.topic_id)
        except FormatUndecidedError:
            self._opened, self._are_offsets_known = None, True
            return 0
        self.next_offsets = tables.data.next_offsets()
        self._are_offsets_known = True
        if self.schema is None:
            self.schema = tables.data.descriptor().schema
        ends = positions.ends if up_to is None else up_to
        starts = {each: self.next_offsets.get(each.partition, positions.earliest.get(each, 0)) for each in ends}
        return sum(max(0, end - starts[each]) for each, end in ends.items())

    def plan_round(self, tasks_max: int, up_to: Offsets | None = None, records_max: int | None = None) -> LandingRound:
        """Plan a round at the positions of the last measured backlog. `records_max` is the topic's share of the round.

        Raises the errors of `plan_next_round`.
        """
        positions, tables = self._positions, self._opened
        if positions is None or tables is None:
            return LandingRound(self, None, RoundPlan((), (), (), is_complete=True), tasks_max)
        limit = self.settings.round_records_max
        self._are_offsets_known = False
        plan = plan_round(
            self.next_offsets,
            positions.earliest,
            positions.ends,
            first=None if self.next_offsets else self._resolve_table_start_offsets(),
            up_to=up_to,
            records_max=limit if records_max is None else min(limit, records_max),
            allow_data_loss=self.settings.allow_data_loss,
        )
        round = LandingRound(self, tables, plan, tasks_max)
        self._are_offsets_known = not plan.ranges and not plan.empty_ranges
        return round

    def complete_round(self, next_offsets: Mapping[int, int], record_bytes: float | None) -> None:
        """Store the next offsets of a committed round, and the average size of its records if it had any."""
        self.next_offsets = {**self.next_offsets, **next_offsets}
        self._are_offsets_known = True
        if record_bytes is not None:
            self.record_bytes += RECORD_BYTES_WEIGHT * (record_bytes - self.record_bytes)

    def _resolve_table_start_offsets(self) -> Offsets | None:
        """Return the offsets at which a new table starts, or None for the earliest."""
        starts = self.settings.start
        start = starts.get(self.topic) or starts.get("")
        if start is None or start == StartPosition():
            return None
        if start.is_latest:
            return self.end_offsets
        if start.offset is not None:
            return {each: min(start.offset, end) for each, end in self.end_offsets.items()}
        found = self._resolver.list_offsets_at(dict.fromkeys(self.end_offsets, start.timestamp_ms or 0))
        return {each: self.end_offsets[each] if offset < 0 else offset for each, offset in found.items()}

    def _get_or_open_tables(self, topic_id: str) -> TopicTables:
        if self._opened is None or self._opened.data.spec.topic_id != topic_id:
            topic = TopicDescription(self.topic, topic_id, fetch_topic_configs(self.cluster, self.topic))
            self._opened, self.schema = open_topic_tables(self.settings, topic, self.cluster), None
        return self._opened

    def resolve_registry(self, tables: TopicTables) -> RegistrySettings | None:
        """Return the registry with the schemas of the topic's records, or None if the table does not need one.

        Raises:
            ConfigError: It needs one, but none is configured.
        """
        if not tables.data.spec.format.needs_registry:
            return None
        return resolve_registry(self.settings.registry, self.cluster)


@dataclass(frozen=True, slots=True)
class TopicTables:
    """The table with a topic's rows, and the table with its dead-letter records."""

    data: TopicTable
    dead_letters: TopicTable | None


def open_topic_tables(settings: LandingSettings, now: TopicDescription, cluster: ClusterClient) -> TopicTables:
    """Open a topic's tables, and create missing ones.

    Raises:
        TableMismatchError: The table belongs to another topic or has another format.
        ConfigError: The topic's configs are invalid.
        FormatUndecidedError: The format is decided from the records, and there are none.
    """
    uri, options = table_uri(settings.table_root, now.name), settings.storage_options
    table_settings = settings.table_settings.with_fallback(parse_table_settings_from_configs(now.configs))
    schema = settings.schema or parse_schema_from_configs(now.configs)
    if schema is not None:
        table_settings = table_settings.with_fallback(TableSettings(TableKind.DECODED))
    try:
        found = open_table(uri, options).spec
        _check_topic_id(uri, found, now)
        table_settings = replace_auto_formats(table_settings, build_table_settings(found))
        table_settings = table_settings.with_fallback(build_table_settings(found))
    except TableMissingError:
        if table_settings.is_auto or table_settings.has_auto_keys:
            decided = decide_formats(settings, now.name, cluster)
            table_settings = replace_auto_formats(table_settings, decided)
    table_settings = table_settings.with_fallback(DEFAULT_TABLE_SETTINGS)
    assert table_settings.kind is not None
    assert table_settings.partitioning is not None
    assert table_settings.table_format is not None
    format, table_format = table_settings.build_format(), table_settings.table_format
    spec = TableSpec(now.name, now.topic_id, table_settings.kind, table_settings.partitioning, format, table_format)
    if schema is not None and spec.kind is TableKind.RAW:
        raise ConfigError(f"topic {now.name} has a schema, but lands raw values: use format json")
    data = open_or_create_table(uri, spec, options, schema)
    if spec.kind is TableKind.RAW:
        return TopicTables(data, None)
    if schema is not None:
        data.set_schema(schema)
    if format.needs_registry:
        data.set_registry_url(resolve_registry(settings.registry, cluster).display_url)
    dead_spec = TableSpec(now.name, now.topic_id, TableKind.DEAD_LETTERS, table_format=table_format)
    dead_uri = build_dead_letters_uri(settings.table_root, now.name)
    return TopicTables(data, open_or_create_table(dead_uri, dead_spec, options))


def _check_topic_id(uri: str, found: TableSpec, now: TopicDescription) -> None:
    if found.topic == now.name and found.topic_id != now.topic_id:
        raise TableMismatchError(
            f"topic {now.name} was deleted and created again since table {uri} was created, so its offsets now refer to"
            " other records. Move the table away, or use another --table-root"
        )


class LandingRound:
    """A planned landing round of one topic, its unfinished tasks and the results of its finished tasks."""

    def __init__(self, landing: TopicLanding, tables: TopicTables | None, plan: RoundPlan, tasks_max: int) -> None:
        self.landing = landing
        self.is_complete = plan.is_complete
        self.tasks: list[LandingTask] = []
        """Tasks that still have to run."""
        self._opened_tables = tables
        """The tables, or None if their format is not decided yet, because there are no records."""
        self._outcomes: list[LandingTaskResult] = []
        self._warnings = list(plan.missing_offsets)
        self._schema_changes = 0
        self._empty = [TaskOutput((span,)) for span in plan.empty_ranges]
        self._starts = {span.partition: landing.next_offsets.get(span.partition) for span in plan.ranges}
        self._letters: DeadLetterState | None = None
        self._written_with: pa.Schema | None = None
        if plan.ranges:
            self.tasks = self._plan_tasks(plan, tasks_max)

    @property
    def _tables(self) -> TopicTables:
        assert self._opened_tables is not None, "a round without tables has no records"
        return self._opened_tables

    def _plan_tasks(self, plan: RoundPlan, tasks_max: int) -> list[LandingTask]:
        settings, tables = self.landing.settings, self._tables
        table = replace(tables.data.descriptor(), registry=self.landing.resolve_registry(tables))
        # Columns that this round adds need no check: only a rebuild changes columns, and it changes the schema itself.
        self._written_with = table.schema
        frozen = self._infer_columns(table, plan)
        self.landing.schema = frozen.schema
        read = ReadSettings(settings.bootstrap, isolation=IsolationLevel.READ_COMMITTED)
        first = LandingTask(
            self.landing.topic,
            (),
            read,
            frozen,
            allow_data_loss=settings.allow_data_loss,
            codec=settings.codec,
        )
        if tables.dead_letters is not None:
            letters = self._letters = read_dead_letter_state(tables.dead_letters, self.landing.next_offsets)
            first = replace(
                first,
                dead_letters=tables.dead_letters.descriptor(),
                dead_letter_next_offsets=letters.next_offsets,
                dead_letters_ahead=letters.offsets_ahead,
            )
        return [replace(first, ranges=bundle) for bundle in bundle_ranges(plan.ranges, tasks_max)]

    def _infer_columns(self, table: TableDescriptor, plan: RoundPlan) -> TableDescriptor:
        """Infer the columns of a new table from a sample of the topic's records, and add them to the table."""
        has_columns = bool(table.value_schema.resolve_columns(table.schema)) or (
            table.value_schema.unknown_fields is not UnknownFields.COLUMN
        )
        has_keys = not table.format.has_decoded_keys or KEY_VALUE in table.schema.names
        if self._tables.dead_letters is None or (has_columns and has_keys):
            return table
        read = ReadSettings(self.landing.settings.bootstrap, isolation=IsolationLevel.READ_COMMITTED)
        statistics = infer_record_statistics(table.row_decoder(), sample_records(self.landing.topic, plan.ranges, read))
        if statistics.is_empty:
            return table
        return replace(table, schema=self._add_columns([statistics]))

    def add_results(self, outcomes: Sequence[LandingTaskResult]) -> None:
        """Add the results of `tasks`. Tasks that requested columns are scheduled again with the new schema.

        Raises:
            TaskFailedError, RegistryUnavailableError: A task failed; all files of the round are deleted.
            TableCommitError: The columns could not be added.
        """
        tasks, self.tasks = self.tasks, []
        self._outcomes += outcomes
        self._warnings += [warning for outcome in outcomes for warning in outcome.warnings]
        failed = [outcome for outcome in outcomes if outcome.error is not None]
        if failed:
            self.discard_files()
            failed.sort(key=lambda outcome: outcome.is_registry_unavailable)
            error = failed[0].error
            raise RegistryUnavailableError(error) if failed[0].is_registry_unavailable else TaskFailedError(error)
        requesting = [task for task, outcome in zip(tasks, outcomes, strict=True) if outcome.unknown_fields is not None]
        if requesting:
            schema = self._add_columns(
                [outcome.unknown_fields for outcome in outcomes if outcome.unknown_fields is not None]
            )
            # A task that requested columns has written nothing, so it can run again with the new schema.
            self.tasks = [
                replace(
                    task,
                    table=replace(task.table, schema=schema),
                    may_request_columns=self._schema_changes < SCHEMA_CHANGES_MAX,
                )
                for task in requesting
            ]

    def _add_columns(self, unknown_fields: Iterable[FieldStatistics]) -> pa.Schema:
        self._schema_changes += 1
        evolved = self._tables.data.add_columns(merge_statistics(unknown_fields))
        self._warnings += [f"field {path} gets no column: {why}" for path, why in evolved.rejected.items()]
        self.landing.schema = evolved.schema
        failpoints.hit_failpoint(failpoints.SCHEMA_CHANGE)
        return evolved.schema

    @property
    def has_results(self) -> bool:
        """Whether there is anything to commit."""
        return bool(self._empty) or any(outcome.output is not None for outcome in self._outcomes)

    @property
    def read_bytes(self) -> int:
        """Bytes of the keys and values that the finished tasks have read."""
        return sum(outcome.read_bytes for outcome in self._outcomes)

    def commit(self) -> RoundResult:
        """Commit the files of all tasks to the tables, after the tasks have run, and the offsets to the group.

        Raises:
            TableCommitError: The outcome is unknown. The next plan reads the table to find out.
            TableMismatchError: The topic was deleted or created again; nothing is committed.
            ClientError: No broker responds; nothing is committed.
            KafkaError: A broker rejects a request; nothing is committed.
        """
        if not self.has_results:
            return self.commit_tables()
        try:
            topic_id = fetch_topic_ids(self.landing.cluster, [self.landing.topic])[self.landing.topic]
        except ChronikError:
            self.discard_files()
            raise
        self.check_topic_id(topic_id)
        result = self.commit_tables()
        if result.is_superseded:
            return result
        warnings = commit_group_offsets([self.landing])
        failpoints.hit_failpoint(failpoints.GROUP_COMMIT)
        return replace(result, warnings=(*result.warnings, *warnings))

    def commit_tables(self) -> RoundResult:
        """Commit the files of all tasks to the tables. Rounds of several topics may be committed in several threads.

        Raises:
            TableCommitError: The outcome is unknown. The next plan reads the table to find out.
        """
        if not self.has_results:
            return RoundResult(self.landing.next_offsets, 0, 0, 0, tuple(self._warnings))
        landed = self._empty + [outcome.output for outcome in self._outcomes if outcome.output is not None]
        failpoints.hit_failpoint(failpoints.SPARK_COMMIT)
        try:
            dead_rows = self._commit_dead_letters()
            committed = self._tables.data.commit(landed, self._written_with)
        except CommitRejectedError as refused:
            # Not after TableCommitError or an undecided commit: a table version may reference the files.
            if not refused.is_undecided:
                _discard_files(self._tables.data, (file for each in landed for file in each.files))
            if isinstance(refused, WrittenFilesLostError):
                self._warnings.append(f"{refused}; the files are written again")
            return self._discard_round(str(refused))
        failpoints.hit_failpoint(failpoints.DATA_COMMIT)
        self.landing.complete_round(committed.next_offsets, self._compute_record_bytes())
        size = sum(file.size_bytes for each in landed if each not in committed.committed_outputs for file in each.files)
        misfits = self._find_frequent_misfits(committed.rows)
        return RoundResult(
            self.landing.next_offsets,
            committed.rows,
            dead_rows,
            size,
            tuple(dict.fromkeys(self._warnings)),
            self._get_round_engine(),
            misfits,
        )

    def _find_frequent_misfits(self, rows: int) -> dict[str, int]:
        """Return the columns in which many values did not fit, and warn of them."""
        counts: Counter[str] = Counter()
        for outcome in self._outcomes:
            counts.update(outcome.misfits)
        frequent = {name: count for name, count in counts.items() if count > MISFIT_RATE_REPORTED * rows}
        self._warnings += [
            f"column {name}: {count:,} of {rows:,} values did not fit and are in _rescued"
            for name, count in frequent.items()
        ]
        return frequent

    def _compute_record_bytes(self) -> float | None:
        """Return the average size of the records that were read, or None if the round read none."""
        ran = [outcome for outcome in self._outcomes if outcome.output is not None]
        offsets = sum(span.end - span.start for outcome in ran if outcome.output for span in outcome.output.ranges)
        return max(1.0, sum(outcome.read_bytes for outcome in ran) / offsets) if offsets else None

    def _get_round_engine(self) -> str | None:
        ran = [outcome for outcome in self._outcomes if outcome.output is not None]
        if not ran:
            return None
        return "driver" if all(outcome.ran_in_driver for outcome in ran) else "spark"

    def _commit_dead_letters(self) -> int:
        """Commit the dead-letter records and return the number of new ones.

        Raises:
            CommitRejectedError: Another driver has committed dead-letter records of the same offsets.
            TableCommitError: The outcome is unknown.
        """
        dead_letters, planned = self._tables.dead_letters, self._letters
        if dead_letters is None or planned is None:
            return 0
        dead = [outcome.dead_letter_output for outcome in self._outcomes if outcome.dead_letter_output is not None]
        late = [file for outcome in self._outcomes for file in outcome.late_dead_letters]
        if dead or late:
            self._check_not_landed_by_other_driver()
        rows = commit_dead_letters(dead_letters, planned, self._starts, dead, late)
        if dead or late:
            failpoints.hit_failpoint(failpoints.DEAD_LETTER_COMMIT)
        return rows

    def _check_not_landed_by_other_driver(self) -> None:
        """Raise DeadLettersChangedError if another driver has already committed the records of this round."""
        now = self._tables.data.next_offsets()
        if any(now.get(partition) != start for partition, start in self._starts.items()):
            self.discard_files()
            raise DeadLettersChangedError(f"table {self._tables.data.uri} has these records already")

    def check_topic_id(self, now: str | None) -> None:
        """Discard the round and raise TableMismatchError if the topic has another id: it was deleted while it was read.

        `now` is the current id, or None if the topic does not exist.
        """
        if now == self._tables.data.spec.topic_id:
            return
        self.discard_files()
        happened = "deleted" if now is None else "deleted and created again"
        raise TableMismatchError(
            f"topic {self.landing.topic} was {happened} while it was being read; this round is not committed to"
            f" table {self._tables.data.uri}"
        )

    def _discard_round(self, why: str) -> RoundResult:
        logger.info(
            "topic %s: landing round superseded by another driver's commit: %s; planning the round again",
            self.landing.topic,
            why,
        )
        return RoundResult(self.landing.next_offsets, 0, 0, 0, tuple(self._warnings), is_superseded=True)

    def discard_files(self) -> None:
        """Delete the files of a round that cannot be committed."""
        landed = [each.output for each in self._outcomes if each.output is not None]
        dead = [each.dead_letter_output for each in self._outcomes if each.dead_letter_output is not None]
        late = [file for each in self._outcomes for file in each.late_dead_letters]
        _discard_files(self._tables.data, (file for each in landed for file in each.files))
        if self._tables.dead_letters is not None:
            _discard_files(self._tables.dead_letters, (*late, *(file for each in dead for file in each.files)))


def commit_group_offsets(landings: Sequence[TopicLanding]) -> list[str]:
    """Commit the next offsets of topics to the consumer group, for lag monitoring only; return warnings of failures."""
    if not landings:
        return []
    group, cluster = landings[0].settings.group, landings[0].cluster
    offsets = {
        TopicPartition(landing.topic, partition): offset
        for landing in landings
        for partition, offset in landing.next_offsets.items()
        if TopicPartition(landing.topic, partition) in landing.end_offsets
    }
    try:
        commit_offsets(cluster, group, offsets)
    except (ClientError, KafkaError) as error:
        return [f"group {group}: cannot commit offsets: {error}; its lag is outdated"]
    return []


def _discard_files(table: TopicTable, files: Iterable[WrittenFile]) -> None:
    table.storage.discard_files(file.path for file in files)
