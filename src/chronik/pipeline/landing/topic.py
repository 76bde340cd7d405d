"""One topic and its table: a round is planned from the table's offsets, run by tasks, and committed in one piece.

    landing = TopicLanding("orders", settings, cluster)
    round = landing.plan(parallelism)
    while round.tasks:
        round.take(jobs.run(round.tasks))
    done = round.commit()

The order of the commits is what makes a death between any two of them harmless: columns, then dead letters, then rows
together with their offsets, and the group at last, which nothing is ever read from.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from chronik.client.cluster import Cluster
from chronik.client.errors import ClientError
from chronik.client.groups import commit_offsets
from chronik.client.records import TopicPartition
from chronik.errors import ChronikError
from chronik.pipeline.landing import failpoints
from chronik.pipeline.landing.letters import Letters, LettersMoved, commit_letters, letters_now
from chronik.pipeline.landing.plan import Plan, bundles, plan_round
from chronik.pipeline.landing.settings import DEFAULTS, LandingSettings, Wishes, wishes_of
from chronik.pipeline.landing.task import Outcome, Task
from chronik.pipeline.landing.topics import TopicNow, look_up, topic_id_now
from chronik.pipeline.reading.options import IsolationLevel, ReadSettings
from chronik.pipeline.reading.positions import Positions
from chronik.pipeline.reading.ranges import Offsets
from chronik.pipeline.spark.tasks import TaskFailed
from chronik.pipeline.tables.layout import Kind
from chronik.pipeline.tables.opening import open_or_create, open_table
from chronik.pipeline.tables.spans import CommitRefused, FilesGone, Landed, WrittenFile
from chronik.pipeline.tables.storage import dead_letters_uri, table_uri
from chronik.pipeline.tables.topic_table import TableDiffers, TableMissing, TableSpec, TopicTable
from chronik.pipeline.tables.values.growth import joined_fields
from chronik.protocol.errors import KafkaError

logger = logging.getLogger("chronik.pipeline")

GROWTHS_MAX = 5
"""Times that a round may ask for columns. One is enough, unless others add columns meanwhile or types within objects
disagree between tasks; then what still has no column is rescued."""


@dataclass(frozen=True, slots=True)
class RoundDone:
    next_offsets: dict[int, int]
    """Next offsets of all partitions that ever landed."""
    rows: int
    dead_letters: int
    bytes: int
    warnings: tuple[str, ...]
    superseded: bool = False
    """Another driver has committed some of it, and this round has added nothing to the table. Plan again."""


class TopicLanding:
    """Use it from one thread at a time."""

    def __init__(self, topic: str, settings: LandingSettings, cluster: Cluster) -> None:
        self.topic = topic
        self.table = table_uri(settings.table_root, topic)
        self.settings = settings
        self.cluster = cluster
        self.next_offsets: dict[int, int] = {}
        """As of the last look."""
        self.ends: Offsets = {}
        self.schema: pa.Schema | None = None
        """The table's, as of the last round that had something to read."""
        self._positions = Positions(cluster, IsolationLevel.READ_COMMITTED)
        self._opened: Tables | None = None

    def latest(self) -> Offsets:
        """Returns where the topic ends for a reader of committed records. Raises ClientError or KafkaError."""
        self.cluster.forget()
        return self._positions.latest(self.cluster.retrying(lambda: self.cluster.partitions(self.topic)))

    def plan(self, tasks_max: int, up_to: Offsets | None = None) -> Round:
        """Plans up to `up_to`. Raises RecordsGone, TableError, ConfigError, ClientError, KafkaError, OSError."""
        tables = self._tables(look_up(self.cluster, self.topic))
        self.next_offsets = tables.data.next_offsets()
        self.ends = self.latest()
        if self.schema is None:
            self.schema = tables.data.frozen().schema
        plan = plan_round(
            self.next_offsets,
            self._positions.earliest(self.ends),
            self.ends,
            up_to=up_to,
            records_max=self.settings.round_records_max,
            allow_data_loss=self.settings.allow_data_loss,
        )
        return Round(self, tables, plan, tasks_max)

    def _tables(self, now: TopicNow) -> Tables:
        if self._opened is None or self._opened.data.spec.topic_id != now.topic_id:
            self._opened, self.schema = open_tables(self.settings, now), None
        return self._opened


@dataclass(frozen=True, slots=True)
class Tables:
    data: TopicTable
    dead_letters: TopicTable | None


def open_tables(settings: LandingSettings, now: TopicNow) -> Tables:
    """Opens those of a topic, created where they are missing. Raises TableDiffers, ConfigError."""
    uri, options = table_uri(settings.table_root, now.name), settings.storage_options
    asked = settings.wishes.before(wishes_of(now.configs))
    try:
        found = open_table(uri, options).spec
        _refuse_another_topic(uri, found, now)
        asked = asked.before(Wishes(found.kind, found.partitioning))
    except TableMissing:
        pass
    asked = asked.before(DEFAULTS)
    assert asked.kind is not None
    assert asked.partitioning is not None
    spec = TableSpec(now.name, now.topic_id, asked.kind, asked.partitioning)
    data = open_or_create(uri, spec, options)
    if spec.kind is Kind.RAW:
        return Tables(data, None)
    dead_spec = TableSpec(now.name, now.topic_id, Kind.DEAD_LETTERS)
    dead_uri = dead_letters_uri(settings.table_root, now.name)
    return Tables(data, open_or_create(dead_uri, dead_spec, options))


def _refuse_another_topic(uri: str, found: TableSpec, now: TopicNow) -> None:
    if found.topic == now.name and found.topic_id != now.topic_id:
        raise TableDiffers(
            f"topic {now.name} was deleted and created again since {uri} was made: its offsets stand for other records"
            " now. Move the table away, or land under another --table-root"
        )


class Round:
    """What is planned for a topic, and how far it is."""

    def __init__(self, landing: TopicLanding, tables: Tables, plan: Plan, tasks_max: int) -> None:
        self.landing = landing
        self.complete = plan.complete
        self.tasks: list[Task] = []
        """Still to run."""
        self._tables = tables
        self._outcomes: list[Outcome] = []
        self._warnings = list(plan.gone)
        self._growths = 0
        self._empty = [Landed((span,)) for span in plan.empty]
        self._starts = {span.partition: landing.next_offsets.get(span.partition) for span in plan.spans}
        self._letters: Letters | None = None
        if plan.spans:
            self.tasks = self._planned(plan, tasks_max)

    def _planned(self, plan: Plan, tasks_max: int) -> list[Task]:
        settings, tables = self.landing.settings, self._tables
        frozen = tables.data.frozen()
        self.landing.schema = frozen.schema
        read = ReadSettings(settings.bootstrap, isolation=IsolationLevel.READ_COMMITTED)
        first = Task(
            self.landing.topic,
            (),
            read,
            frozen,
            allow_data_loss=settings.allow_data_loss,
            codec=settings.codec,
        )
        if tables.dead_letters is not None:
            letters = self._letters = letters_now(tables.dead_letters, self.landing.next_offsets)
            first = replace(
                first,
                dead_letters=tables.dead_letters.frozen(),
                dead_next_offsets=letters.next_offsets,
                letters_ahead=letters.ahead,
            )
        return [replace(first, spans=bundle) for bundle in bundles(plan.spans, tasks_max)]

    def take(self, outcomes: Sequence[Outcome]) -> None:
        """Takes the answers to `tasks`. Those that need columns are to run again. Raises TaskFailed, CommitFailed."""
        tasks, self.tasks = self.tasks, []
        self._outcomes += outcomes
        self._warnings += [warning for outcome in outcomes for warning in outcome.warnings]
        errors = [outcome.error for outcome in outcomes if outcome.error is not None]
        if errors:
            self.drop()
            raise TaskFailed(errors[0])
        wanting = [task for task, outcome in zip(tasks, outcomes, strict=True) if outcome.wanted]
        if wanting:
            schema = self._grown([outcome.wanted for outcome in outcomes if outcome.wanted])
            # A task that wants columns has written nothing: it runs against the schema that has them.
            self.tasks = [
                replace(
                    task,
                    table=replace(task.table, schema=schema),
                    may_ask_for_columns=self._growths < GROWTHS_MAX,
                )
                for task in wanting
            ]

    def _grown(self, wanted: Iterable[Sequence[pa.Field]]) -> pa.Schema:
        self._growths += 1
        evolved = self._tables.data.add_columns(joined_fields(wanted))
        self._warnings += [f"field {name!r} is no column: {why}" for name, why in evolved.refused.items()]
        self.landing.schema = evolved.schema
        failpoints.reached(failpoints.SCHEMA_CHANGE)
        return evolved.schema

    def commit(self) -> RoundDone:
        """To be called when `tasks` is empty. Raises CommitFailed, which leaves open whether it happened: the next plan
        tells. Raises TableDiffers, ClientError or KafkaError when nothing is committed."""
        landed = self._empty + [outcome.landed for outcome in self._outcomes if outcome.landed is not None]
        if not landed:
            return RoundDone(self.landing.next_offsets, 0, 0, 0, tuple(self._warnings))
        failpoints.reached(failpoints.SPARK_COMMIT)
        self._refuse_another_topic()
        try:
            dead_rows = self._commit_letters()
            committed = self._tables.data.commit(landed)
        except CommitRefused as refused:
            # Not after CommitFailed: only a refusal says that no version names these files. (Letters it may name.)
            _discard(self._tables.data, (file for each in landed for file in each.files))
            if isinstance(refused, FilesGone):
                self._warnings.append(f"{refused}: they are written again")
            return self._superseded(str(refused))
        failpoints.reached(failpoints.DATA_COMMIT)
        self.landing.next_offsets = self.landing.next_offsets | committed.next_offsets
        self._tell_group()
        failpoints.reached(failpoints.GROUP_COMMIT)
        size = sum(file.size_bytes for each in landed if each not in committed.present for file in each.files)
        return RoundDone(
            self.landing.next_offsets, committed.rows, dead_rows, size, tuple(dict.fromkeys(self._warnings))
        )

    def _commit_letters(self) -> int:
        """Returns how many are new. Raises CommitRefused, CommitFailed."""
        dead_letters, planned = self._tables.dead_letters, self._letters
        if dead_letters is None or planned is None:
            return 0
        dead = [outcome.dead for outcome in self._outcomes if outcome.dead is not None]
        late = [file for outcome in self._outcomes for file in outcome.late]
        if dead or late:
            self._refuse_if_overtaken()
        rows = commit_letters(dead_letters, planned, self._starts, dead, late)
        if dead or late:
            failpoints.reached(failpoints.DEAD_LETTER_COMMIT)
        return rows

    def _refuse_if_overtaken(self) -> None:
        """Letters of records that another driver has landed, perhaps by other rules, would be in both tables."""
        now = self._tables.data.next_offsets()
        if any(now.get(partition) != start for partition, start in self._starts.items()):
            self.drop()
            raise LettersMoved(f"{self._tables.data.uri} has these records already")

    def _refuse_another_topic(self) -> None:
        """Tasks read by the topic's name. Ids never come back: if it is the same now, it was while they read."""
        try:
            now = topic_id_now(self.landing.cluster, self.landing.topic)
            if now != self._tables.data.spec.topic_id:
                happened = "deleted" if now is None else "deleted and created again"
                raise TableDiffers(
                    f"topic {self.landing.topic} was {happened} while it was read: nothing of this round goes into"
                    f" {self._tables.data.uri}"
                )
        except ChronikError:
            self.drop()
            raise

    def _superseded(self, why: str) -> RoundDone:
        logger.info("topic %s: another driver was quicker: %s", self.landing.topic, why)
        return RoundDone(self.landing.next_offsets, 0, 0, 0, tuple(self._warnings), superseded=True)

    def drop(self) -> None:
        """Takes back what the tasks of a round that cannot be committed have written."""
        landed = [each.landed for each in self._outcomes if each.landed is not None]
        dead = [each.dead for each in self._outcomes if each.dead is not None]
        late = [file for each in self._outcomes for file in each.late]
        _discard(self._tables.data, (file for each in landed for file in each.files))
        if self._tables.dead_letters is not None:
            _discard(self._tables.dead_letters, (*late, *(file for each in dead for file in each.files)))

    def _tell_group(self) -> None:
        """Tells tools that show lag. Nothing is ever read from there, so that it is no failure if this fails."""
        topic, group = self.landing.topic, self.landing.settings.group
        offsets = {TopicPartition(topic, number): offset for number, offset in self.landing.next_offsets.items()}
        try:
            commit_offsets(self.landing.cluster, group, offsets)
        except (ClientError, KafkaError) as error:
            self._warnings.append(f"group {group} is not told how far the table is: {error}")


def _discard(table: TopicTable, files: Iterable[WrittenFile]) -> None:
    table.storage.discard(file.path for file in files)
