"""The landing driver: rounds over all topics, each with one Spark job, until everything has landed or it is stopped.

A topic that fails does not delay the others: it is retried with exponential backoff.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa

from chronik.client.cluster import ClusterClient
from chronik.client.errors import ClientError
from chronik.errors import ChronikError, ConfigError
from chronik.formats.registry_client import RegistryUnavailableError
from chronik.limits import MIB
from chronik.pipeline import failpoints
from chronik.pipeline.journal.reports import DriverRole, ProgressReporter, TopicReport
from chronik.pipeline.landing.election import DriverElection
from chronik.pipeline.landing.landing_task import LandingTask
from chronik.pipeline.landing.local_runner import LandingTaskRunner
from chronik.pipeline.landing.round_budget import RoundBudget, is_throttling_error
from chronik.pipeline.landing.round_plan import RecordsDeletedError, TopicDemand, share_round
from chronik.pipeline.landing.settings import LandingSettings, list_enabled_topics
from chronik.pipeline.landing.topic_landing import LandingRound, RoundResult, TopicLanding, commit_group_offsets
from chronik.pipeline.landing.topic_positions import TopicPositions, fetch_topic_ids, fetch_topic_positions
from chronik.pipeline.source.offset_ranges import Offsets
from chronik.pipeline.spark.tasks import TaskFailedError
from chronik.pipeline.tables.formatting import describe_columns
from chronik.pipeline.tables.storage_errors import TableStorageAccessError
from chronik.pipeline.tables.topic_table import TableMismatchError
from chronik.pipeline_journal import ColumnInfo, LandingState
from chronik.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger("chronik.pipeline")

RETRY_DELAY_SECONDS_MIN, RETRY_DELAY_DOUBLINGS_MAX = 0.5, 7
"""Delay before a failed topic is retried: doubled after each further failure, up to a minute."""

STANDBY_UPDATE_SECONDS = 10.0
"""Time between two checks of a standby driver for new topics, whose tables it opens."""

STOP_POLL_SECONDS = 0.2

COMMIT_THREADS = 8
"""Number of tables to which a round is committed concurrently."""

ONCE_FAILURES_MAX = 4
"""Number of consecutive failures after which a `once` run stops retrying a topic."""

REPORT_SECONDS_MAX = 10.0
"""Maximum time between two reports of a topic without changes."""

REGISTRY_WAIT_SECONDS_MAX = 60.0
"""Time for which a `once` run waits for a schema registry that is not available."""

REGISTRY_DELAY_DOUBLINGS_MAX = 3
"""Limits the delay before the next attempt during an outage of the schema registry to four seconds."""

PERMANENT_ERRORS = (ConfigError, RecordsDeletedError, TableMismatchError, TableStorageAccessError)
"""Errors that a retry cannot fix, because they need a change by an operator."""


class LandingFailedError(ChronikError):
    """Some topics could not be written to their tables. The message contains their names and errors."""


@dataclass(frozen=True, slots=True)
class LandingSummary:
    """The result of a landing run: the numbers of rows and dead-letter records written to tables."""

    rows: dict[str, int]
    """Rows added to each topic's table."""
    dead_letters: dict[str, int]
    seconds: float
    is_complete: bool = True
    """False if a run with `once` was stopped before all records had landed."""


@dataclass(frozen=True, slots=True)
class RoundReport:
    """The durations of a round of all topics, and the errors of topics that failed."""

    seconds: float = 0.0
    commit_s: float = 0.0
    """Duration of the commits to tables and to the consumer group."""
    errors: tuple[str, ...] = ()


@dataclass(slots=True)
class _TopicState:
    """The state of one topic in a landing run."""

    landing: TopicLanding
    end_offsets: Offsets | None = None
    """Offsets at which a run with `once` stops; None if not known yet, or without `once`."""
    done: bool = False
    abandoned: bool = False
    failures: int = 0
    registry_missing_since: float | None = None
    """Time of the first failure in an outage of the schema registry; None if there is none."""
    retry_at: float = 0.0
    rows: int = 0
    dead_letters: int = 0
    last_error: str | None = None
    waited_rounds: int = 0
    """Number of consecutive rounds without a share for the topic's records."""
    last_report: TopicReport | None = None
    reported_at: float = 0.0
    columns: tuple[pa.Schema | None, tuple[ColumnInfo, ...]] = (None, ())
    """The table's schema and its description for reports."""

    def has_news(self, state: LandingState) -> bool:
        """Return whether a report without a round would differ from the last one."""
        last, landing = self.last_report, self.landing
        return last is None or (last.state, last.next_offsets, len(last.high_watermarks), last.last_error) != (
            state,
            landing.next_offsets,
            len(landing.end_offsets),
            self.last_error,
        )

    def describe_columns(self) -> tuple[ColumnInfo, ...]:
        schema = self.landing.schema
        if schema is not self.columns[0]:
            self.columns = schema, () if schema is None else describe_columns(schema)
        return self.columns[1]


@dataclass(slots=True)
class _TopicRound:
    """One landing round of a topic: the planned offset ranges, and the committed result or the error."""

    topic: _TopicState
    started: float
    backlog: int = 0
    """Number of offsets between the table and the end of the topic."""
    round: LandingRound | None = None
    done: RoundResult | None = None
    error: Exception | None = None
    is_waiting: bool = False
    """Whether the topic has no share of this round, because the round is too small."""


class LandingDriver:
    """A driver that lands topics, that is, writes their new records to tables, in the calling thread.

    Setting `stop` stops it after the current round.
    """

    def __init__(
        self,
        settings: LandingSettings,
        cluster: ClusterClient,
        jobs: LandingTaskRunner,
        reporter: ProgressReporter,
        stop: threading.Event,
        monotonic: Callable[[], float] = time.monotonic,
        election: DriverElection | None = None,
    ) -> None:
        self._settings = settings
        self._cluster = cluster
        self._jobs = jobs
        self._reporter = reporter
        self._stop = stop
        self._monotonic = monotonic
        self._election = election
        self._budget = RoundBudget()
        self._last_round = RoundReport()
        self._role: DriverRole | None = None
        self._topics: dict[str, _TopicState] = {}
        self._started = monotonic()

    # The two modes

    def run(self) -> LandingSummary:
        """Land topics, that is, write their new records to tables, until `stop` is set.

        Raises:
            SparkUnavailableError: The Spark session does not exist any more.
        """
        try:
            while not self._stop.is_set():
                if not self._is_active():
                    self._stand_by()
                    continue
                started = self._monotonic()
                self._update_topics()
                has_more = self._run_round(list(self._topics.values()))
                if not has_more:
                    self._wait_for_next_round(started + self._settings.interval_s)
            return self._build_summary()
        finally:
            self._report_stopped_topics()

    def run_once(self) -> LandingSummary:
        """Write all records that exist when the run starts to tables, then return.

        Raises:
            LandingFailedError: A topic did not land.
            SparkUnavailableError: The Spark session does not exist any more.
            ClientError: No broker responds.
            KafkaError: A broker rejects a request.
        """
        try:
            names = self._settings.topics
            for name in list_enabled_topics(self._cluster) if names is None else names:
                self._add_topic(name)
            while not self._stop.is_set() and (unfinished_topics := self._list_unfinished_topics()):
                if not self._run_round(unfinished_topics, once=True) and self._list_unfinished_topics():
                    self._wait_for_next_round(self._monotonic() + RETRY_DELAY_SECONDS_MIN)
            abandoned = [topic for topic in self._topics.values() if topic.abandoned]
            if abandoned:
                raise LandingFailedError("; ".join(f"{each.landing.topic}: {each.last_error}" for each in abandoned))
            return self._build_summary()
        finally:
            self._report_stopped_topics()

    # Standby

    def _is_active(self) -> bool:
        """Return whether this driver may land records, and report a change of its role."""
        if self._election is None:
            return True
        is_active = self._election.is_active()
        role = DriverRole.ACTIVE if is_active else DriverRole.STANDBY
        if role is not self._role:
            if is_active or self._role is not None:
                logger.info("pipeline %s: driver role changed: role=%s", self._settings.group, role)
            self._role = role
            self._reporter.report_role(role)
        return is_active

    def _stand_by(self) -> None:
        """Open the tables, so that the first round starts quickly, and wait for the role to change."""
        assert self._election is not None
        self._update_topics(is_standby=True)
        new = [topic for topic in self._topics.values() if not topic.landing.is_open]
        if new:
            self._measure_backlogs(new, once=False)
        deadline = self._monotonic() + STANDBY_UPDATE_SECONDS
        while not self._stop.is_set() and self._monotonic() < deadline and not self._election.wait(STOP_POLL_SECONDS):
            pass

    def _list_unfinished_topics(self) -> list[_TopicState]:
        return [topic for topic in self._topics.values() if not topic.done]

    def _wait_for_next_round(self, until: float) -> None:
        """Wait until the next round is due, or until a failed topic may be retried."""
        retries = [topic.retry_at for topic in self._topics.values() if topic.failures]
        self._stop.wait(max(0.0, min([until, *retries]) - self._monotonic()))

    # Topics

    def _update_topics(self, *, is_standby: bool = False) -> None:
        names = self._settings.topics
        if names is None:
            try:
                names = tuple(list_enabled_topics(self._cluster))
            except (ClientError, KafkaError) as error:
                logger.warning("topic listing failed: %s; continuing with the current topics", error)
                return
        for name in names:
            self._add_topic(name)
        for name in self._topics.keys() - set(names):
            topic = self._topics.pop(name)
            if not is_standby:
                self._report_topic_state(topic, LandingState.STOPPED)

    def _add_topic(self, name: str) -> None:
        if name not in self._topics:
            self._topics[name] = _TopicState(TopicLanding(name, self._settings, self._cluster))

    # One round

    def land_round(self) -> RoundReport:
        """Land one round of all topics, for programs that call it themselves, and return what it has done."""
        self._update_topics()
        self._run_round(list(self._topics.values()))
        return self._last_round

    def _run_round(self, topics: list[_TopicState], *, once: bool = False) -> bool:
        """Write the next records of each topic to its table; return whether another round should follow immediately."""
        started = self._monotonic()
        due = []
        for topic in topics:
            if self._reporter.is_paused(topic.landing.topic):
                topic.done = True  # a `once` run does not wait until the topic is resumed
                self._report_topic_state(topic, LandingState.PAUSED)
            elif topic.retry_at <= self._monotonic():
                due.append(topic)
        topic_rounds = self._measure_backlogs(due, once)
        self._plan_shares(topic_rounds)
        self._run_tasks([topic_round for topic_round in topic_rounds if topic_round.round is not None])
        committing = self._monotonic()
        if not self._is_active():
            self._discard_rounds(topic_rounds)
            return False
        self._commit_rounds([each for each in topic_rounds if each.round is not None and each.error is None])
        finished = self._monotonic()
        self._last_round = RoundReport(
            finished - started, finished - committing, tuple(str(each.error) for each in topic_rounds if each.error)
        )
        self._adapt_budget(topic_rounds, finished - started)
        unfinished = [self._complete_round(topic_round, once) for topic_round in topic_rounds]
        return any(unfinished)

    def _measure_backlogs(self, topics: list[_TopicState], once: bool) -> list[_TopicRound]:
        """Measure the backlogs of the topics that may have one. The others need no round and no access to a table."""
        started = self._monotonic()
        found: dict[str, TopicPositions] = {}
        errors: dict[str, ChronikError] = {}
        try:
            found, errors = fetch_topic_positions(self._cluster, [topic.landing.topic for topic in topics])
        except (ClientError, KafkaError) as error:
            errors = {topic.landing.topic: error for topic in topics}
        topic_rounds = []
        for topic in topics:
            positions = found.get(topic.landing.topic)
            if positions is not None:
                if once and topic.end_offsets is None:
                    topic.end_offsets = positions.ends
                if not topic.failures and topic.landing.is_idle(positions):
                    self._complete_idle_topic(topic, positions)
                    continue
            topic_round = _TopicRound(topic, started, error=errors.get(topic.landing.topic))
            topic_rounds.append(topic_round)
            if positions is not None:
                with _capture_round_error(topic_round):
                    topic_round.backlog = topic.landing.measure_backlog(positions, topic.end_offsets)
        return topic_rounds

    def _complete_idle_topic(self, topic: _TopicState, positions: TopicPositions) -> None:
        topic.landing.end_offsets = positions.ends
        topic.done, topic.waited_rounds = True, 0
        self._report_topic_state(topic, LandingState.WAITING)

    def _plan_shares(self, topic_rounds: list[_TopicRound]) -> None:
        """Plan the topics' rounds within their fair shares of the driver's round."""
        planned = [topic_round for topic_round in topic_rounds if topic_round.error is None]
        demands = [
            TopicDemand(
                min(each.backlog, self._settings.round_records_max),
                each.topic.landing.record_bytes,
                each.topic.waited_rounds,
            )
            for each in planned
        ]
        parallelism = self._jobs.parallelism()
        for topic_round, records in zip(planned, share_round(demands, self._budget.bytes_max), strict=True):
            topic = topic_round.topic
            topic.waited_rounds = topic.waited_rounds + 1 if topic_round.backlog and not records else 0
            if topic.waited_rounds:
                topic_round.is_waiting = True
                continue
            with _capture_round_error(topic_round):
                topic_round.round = topic.landing.plan_round(parallelism, topic.end_offsets, max(1, records))

    def _adapt_budget(self, topic_rounds: list[_TopicRound], seconds: float) -> None:
        """Adapt the size of the next rounds to the duration of this one, and log a reduction and its end."""
        read = [each.round.read_bytes for each in topic_rounds if each.round is not None and each.round.has_results]
        is_throttled = any(each.error is not None and is_throttling_error(str(each.error)) for each in topic_rounds)
        if not read and not is_throttled:
            return
        before, was_reduced = self._budget.bytes_max, self._budget.is_reduced
        self._budget.record_round(sum(read), seconds, len(read), is_throttled=is_throttled)
        after = self._budget.bytes_max
        if after < before and self._budget.is_reduced:
            logger.warning(
                "pipeline %s: landing rounds reduced: %s; round_mib=%d, before=%d",
                self._settings.group,
                "the store throttles requests" if is_throttled else f"a round took {seconds:.0f} s",
                after // MIB,
                before // MIB,
            )
        elif was_reduced and not self._budget.is_reduced:
            logger.warning("pipeline %s: landing rounds restored: round_mib=%d", self._settings.group, after // MIB)

    def _run_tasks(self, topic_rounds: list[_TopicRound]) -> None:
        """Run the tasks of all topics in one Spark job, and run tasks again that requested new columns."""
        while running := [
            topic_round for topic_round in topic_rounds if topic_round.error is None and _get_round_tasks(topic_round)
        ]:
            self._run_split_jobs(running)

    def _run_split_jobs(self, topic_rounds: list[_TopicRound]) -> None:
        """Run a job, and each half of it if it fails, as one topic may crash the workers."""
        if not self._run_job(topic_rounds) and len(topic_rounds) > 1:
            middle = len(topic_rounds) // 2
            self._run_split_jobs(topic_rounds[:middle])
            self._run_split_jobs(topic_rounds[middle:])

    def _run_job(self, topic_rounds: list[_TopicRound]) -> bool:
        try:
            outcomes = iter(
                self._jobs.run([task for topic_round in topic_rounds for task in _get_round_tasks(topic_round)])
            )
        except TaskFailedError as error:
            if len(topic_rounds) == 1:
                topic_rounds[0].error = error
            return False
        for topic_round in topic_rounds:
            results = [next(outcomes) for _ in _get_round_tasks(topic_round)]
            assert topic_round.round is not None
            with _capture_round_error(topic_round):
                topic_round.round.add_results(results)
        return True

    def _discard_rounds(self, topic_rounds: list[_TopicRound]) -> None:
        """Delete the files of rounds that another driver lands, because this driver is no longer active."""
        logger.info("pipeline %s: landing round discarded: another driver is active", self._settings.group)
        for topic_round in topic_rounds:
            if topic_round.round is not None and topic_round.error is None and topic_round.round.has_results:
                topic_round.round.discard_files()

    def _commit_rounds(self, topic_rounds: list[_TopicRound]) -> None:
        """Commit the topics' rounds to their tables, several at a time, because a commit mostly waits for the store."""
        committing = [each for each in topic_rounds if each.round is not None and each.round.has_results]
        ids = self._fetch_topic_ids(committing)
        for topic_round in committing:
            if topic_round.error is None and topic_round.round is not None:
                with _capture_round_error(topic_round):
                    topic_round.round.check_topic_id(ids[topic_round.topic.landing.topic])
        remaining = [each for each in topic_rounds if each.error is None]
        if len(committing) > 1:
            with ThreadPoolExecutor(min(COMMIT_THREADS, len(committing)), "chronik-commit") as pool:
                list(pool.map(_commit_tables, remaining))
        else:
            for topic_round in remaining:
                _commit_tables(topic_round)
        committed = [
            each for each in committing if each.error is None and each.done is not None and not each.done.is_superseded
        ]
        warnings = tuple(commit_group_offsets([each.topic.landing for each in committed]))
        for topic_round in committed:
            failpoints.hit_failpoint(failpoints.GROUP_COMMIT)
            if warnings and topic_round.done is not None:
                topic_round.done = replace(topic_round.done, warnings=(*topic_round.done.warnings, *warnings))

    def _fetch_topic_ids(self, topic_rounds: list[_TopicRound]) -> dict[str, str | None]:
        """Return the current ids of the rounds' topics. If they are not available, the rounds fail."""
        if not topic_rounds:
            return {}
        try:
            return fetch_topic_ids(self._cluster, [each.topic.landing.topic for each in topic_rounds])
        except (ClientError, KafkaError) as error:
            for topic_round in topic_rounds:
                topic_round.error = error
                if topic_round.round is not None:
                    topic_round.round.discard_files()
            return {}

    def _complete_round(self, topic_round: _TopicRound, once: bool) -> bool:
        topic, done = topic_round.topic, topic_round.done
        if topic_round.is_waiting:
            topic.done = False
            return True
        seconds = self._monotonic() - topic_round.started
        if done is None or topic_round.round is None:
            self._record_failure(topic, topic_round.error, once)
            return False
        topic.failures, topic.registry_missing_since = 0, None
        topic.rows += done.rows
        topic.dead_letters += done.dead_letters
        has_more = done.is_superseded or not topic_round.round.is_complete
        topic.done = not has_more
        self._report_topic_state(topic, LandingState.LANDING if has_more else LandingState.WAITING, done, seconds)
        return has_more

    def _record_failure(self, topic: _TopicState, error: Exception | None, once: bool) -> None:
        topic.failures += 1
        doublings_max = RETRY_DELAY_DOUBLINGS_MAX
        if isinstance(error, RegistryUnavailableError):
            doublings_max = REGISTRY_DELAY_DOUBLINGS_MAX
            if topic.registry_missing_since is None:
                topic.registry_missing_since = self._monotonic()
            topic.abandoned = once and self._monotonic() - topic.registry_missing_since >= REGISTRY_WAIT_SECONDS_MAX
            topic.last_error = str(error) if topic.abandoned else f"waiting for the schema registry: {error}"
        else:
            topic.registry_missing_since = None
            topic.last_error = str(error) or type(error).__name__
            topic.abandoned = once and (topic.failures >= ONCE_FAILURES_MAX or _is_permanent(error))
        topic.done = topic.abandoned
        doublings = min(topic.failures - 1, doublings_max)
        topic.retry_at = self._monotonic() + RETRY_DELAY_SECONDS_MIN * 2**doublings
        self._report_topic_state(topic, LandingState.FAILING)

    # Reporting

    def _report_topic_state(
        self, topic: _TopicState, state: LandingState, done: RoundResult | None = None, seconds: float = 0.0
    ) -> None:
        landing = topic.landing
        if self._role is DriverRole.STANDBY:
            return  # the active driver reports the topics
        now = self._monotonic()
        if done is None and not topic.has_news(state) and now < topic.reported_at + REPORT_SECONDS_MAX:
            return
        report = TopicReport(
            pipeline=self._settings.group,
            topic=landing.topic,
            table=landing.table,
            state=state,
            next_offsets=dict(landing.next_offsets),
            high_watermarks={each.partition: end for each, end in landing.end_offsets.items()},
            round_rows=0 if done is None else done.rows + done.dead_letters,
            round_dead_letters=0 if done is None else done.dead_letters,
            round_bytes=0 if done is None else done.size_bytes,
            round_bytes_max=int(self._budget.bytes_max) if self._budget.is_reduced else 0,
            round_seconds=seconds,
            round_engine=None if done is None else done.engine,
            round_misfits={} if done is None else done.misfits,
            total_rows=topic.rows,
            total_dead_letters=topic.dead_letters,
            last_error=topic.last_error,
            warnings=() if done is None else done.warnings,
            columns=topic.describe_columns(),
            at_ms=int(time.time() * 1000),
        )
        topic.last_report, topic.reported_at = report, now
        self._reporter.report(report)

    def _report_stopped_topics(self) -> None:
        for topic in self._topics.values():
            self._report_topic_state(topic, LandingState.STOPPED)

    def _build_summary(self) -> LandingSummary:
        topics = self._topics.values()
        return LandingSummary(
            rows={topic.landing.topic: topic.rows for topic in topics},
            dead_letters={topic.landing.topic: topic.dead_letters for topic in topics},
            seconds=self._monotonic() - self._started,
            is_complete=not self._list_unfinished_topics(),
        )


@contextmanager
def _capture_round_error(topic_round: _TopicRound) -> Iterator[None]:
    """Store an exception as the topic's error, so that one failing topic does not stop the other topics."""
    try:
        yield
    except (ChronikError, OSError) as error:
        topic_round.error = error
    except Exception as error:
        logger.exception(
            "topic %s: landing round failed unexpectedly; it will be retried", topic_round.topic.landing.topic
        )
        topic_round.error = error


def _commit_tables(topic_round: _TopicRound) -> None:
    if topic_round.round is not None:
        with _capture_round_error(topic_round):
            topic_round.done = topic_round.round.commit_tables()


def _is_permanent(error: Exception | None) -> bool:
    if isinstance(error, KafkaError):
        return error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # the client has already retried for a second
    return isinstance(error, PERMANENT_ERRORS)


def _get_round_tasks(topic_round: _TopicRound) -> list[LandingTask]:
    return [] if topic_round.round is None else topic_round.round.tasks
