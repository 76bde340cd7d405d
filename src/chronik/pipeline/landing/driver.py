"""Rounds over all topics: one Spark job lands what each of them has, until all is landed or somebody says stop.

A topic that fails does not hold up the others: it is tried again after a pause, which grows.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from chronik.client.cluster import Cluster
from chronik.client.errors import ClientError
from chronik.errors import ChronikError, ConfigError
from chronik.pipeline.journal.reporting import Reporter, State, TopicReport
from chronik.pipeline.landing.plan import RecordsGone
from chronik.pipeline.landing.settings import LandingSettings
from chronik.pipeline.landing.task import Task, run_task
from chronik.pipeline.landing.topic import Round, RoundDone, TopicLanding
from chronik.pipeline.landing.topics import enabled_topics
from chronik.pipeline.reading.ranges import Offsets
from chronik.pipeline.spark.tasks import SparkJobs, TaskFailed
from chronik.pipeline.tables.showing import columns_of
from chronik.pipeline.tables.topic_table import TableDiffers
from chronik.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger("chronik.pipeline")

PAUSE_SECONDS_MIN, PAUSE_DOUBLINGS_MAX = 0.5, 7
"""The pause after a failure; twice as long after each that follows, up to a minute."""

FAILURES_MAX_ONCE = 4
"""Failures of one topic in a row, at which a landing with `once` gives it up."""

LASTING = (ConfigError, RecordsGone, TableDiffers)
"""Errors that are not worth another try: only a person can change what is wrong."""


class LandingFailed(ChronikError):
    """Some topics did not land; the message names them and says why."""


@dataclass(frozen=True, slots=True)
class Summary:
    rows: dict[str, int]
    """By topic: what this landing has added to its table."""
    dead_letters: dict[str, int]
    seconds: float


@dataclass(slots=True)
class _Topic:
    landing: TopicLanding
    up_to: Offsets | None = None
    """Where a landing with `once` ends."""
    done: bool = False
    given_up: bool = False
    failures: int = 0
    not_before: float = 0.0
    rows: int = 0
    dead_letters: int = 0
    last_error: str | None = None


@dataclass(slots=True)
class _Tally:
    """What one round of a topic took."""

    topic: _Topic
    began: float
    round: Round | None = None
    done: RoundDone | None = None
    error: Exception | None = None


class Driver:
    """Runs in one thread. `stop` may be set from any other, or from a signal: the round that runs is finished."""

    def __init__(
        self,
        settings: LandingSettings,
        cluster: Cluster,
        jobs: SparkJobs,
        reporter: Reporter,
        stop: threading.Event,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._cluster = cluster
        self._jobs = jobs
        self._reporter = reporter
        self._stop = stop
        self._monotonic = monotonic
        self._topics: dict[str, _Topic] = {}
        self._began = monotonic()

    # The two ways to run

    def run(self) -> Summary:
        """Lands until `stop` is set. Raises SparkGone."""
        try:
            while not self._stop.is_set():
                began = self._monotonic()
                self._discover()
                more = self._round(list(self._topics.values()))
                if not more:
                    self._rest(began + self._settings.interval_s)
            return self._summary()
        finally:
            self._say_stopped()

    def run_once(self) -> Summary:
        """Lands what there is. Raises LandingFailed if a topic was not landed, SparkGone, ClientError, KafkaError."""
        try:
            names = self._settings.topics
            for name in enabled_topics(self._cluster) if names is None else names:
                self._add(name)
            while not self._stop.is_set() and (open_topics := self._open_topics()):
                if not self._round(open_topics, once=True) and self._open_topics():
                    self._rest(self._monotonic() + PAUSE_SECONDS_MIN)
            given_up = [topic for topic in self._topics.values() if topic.given_up]
            if given_up:
                raise LandingFailed("; ".join(f"{each.landing.topic}: {each.last_error}" for each in given_up))
            return self._summary()
        finally:
            self._say_stopped()

    def _open_topics(self) -> list[_Topic]:
        return [topic for topic in self._topics.values() if not topic.done]

    def _rest(self, until: float) -> None:
        """Waits until the next round, or until a topic that failed is to be tried again."""
        retries = [topic.not_before for topic in self._topics.values() if topic.failures]
        self._stop.wait(max(0.0, min([until, *retries]) - self._monotonic()))

    # Topics

    def _discover(self) -> None:
        names = self._settings.topics
        if names is None:
            try:
                names = tuple(enabled_topics(self._cluster))
            except (ClientError, KafkaError) as error:
                logger.warning("brokers cannot be asked which topics are to land: %s", error)
                return
        for name in names:
            self._add(name)
        for name in self._topics.keys() - set(names):
            self._report(self._topics.pop(name), State.STOPPED)

    def _add(self, name: str) -> None:
        if name not in self._topics:
            self._topics[name] = _Topic(TopicLanding(name, self._settings, self._cluster))

    # A round

    def _round(self, topics: list[_Topic], *, once: bool = False) -> bool:
        """Says whether there is more to do at once."""
        tallies = []
        parallelism = self._jobs.parallelism()
        for topic in topics:
            if self._reporter.paused(topic.landing.topic):
                topic.done = True  # with `once` it does not wait for somebody to resume it
                self._report(topic, State.PAUSED)
            elif topic.not_before <= self._monotonic():
                tallies.append(self._planned(topic, parallelism, once))
        self._execute([tally for tally in tallies if tally.round is not None])
        for tally in tallies:
            self._commit(tally)
        unfinished = [self._finish(tally, once) for tally in tallies]
        return any(unfinished)

    def _planned(self, topic: _Topic, parallelism: int, once: bool) -> _Tally:
        tally = _Tally(topic, self._monotonic())
        with _kept(tally):
            if once and topic.up_to is None:
                topic.up_to = topic.landing.latest()
            tally.round = topic.landing.plan(parallelism, topic.up_to)
        return tally

    def _execute(self, tallies: list[_Tally]) -> None:
        """Runs the tasks of all topics together, again while some need columns."""
        while running := [tally for tally in tallies if tally.error is None and _tasks(tally)]:
            if not self._ran_job(running) and len(running) > 1:
                for tally in running:  # one of them may be what workers die of: the others land all the same
                    self._ran_job([tally])

    def _ran_job(self, tallies: list[_Tally]) -> bool:
        try:
            outcomes = iter(self._jobs.run(run_task, [task for tally in tallies for task in _tasks(tally)]))
        except TaskFailed as error:
            if len(tallies) == 1:
                tallies[0].error = error
            return False
        for tally in tallies:
            answers = [next(outcomes) for _ in _tasks(tally)]
            assert tally.round is not None
            with _kept(tally):
                tally.round.take(answers)
        return True

    def _commit(self, tally: _Tally) -> None:
        if tally.round is not None and tally.error is None:
            with _kept(tally):
                tally.done = tally.round.commit()

    def _finish(self, tally: _Tally, once: bool) -> bool:
        topic, done = tally.topic, tally.done
        seconds = self._monotonic() - tally.began
        if done is None or tally.round is None:
            self._failed(topic, tally.error, once)
            return False
        topic.failures = 0
        topic.rows += done.rows
        topic.dead_letters += done.dead_letters
        more = done.superseded or not tally.round.complete
        topic.done = not more
        self._report(topic, State.LANDING if more else State.WAITING, done, seconds)
        return more

    def _failed(self, topic: _Topic, error: Exception | None, once: bool) -> None:
        topic.failures += 1
        topic.last_error = str(error) or type(error).__name__
        topic.given_up = once and (topic.failures >= FAILURES_MAX_ONCE or _is_lasting(error))
        topic.done = topic.given_up
        doublings = min(topic.failures - 1, PAUSE_DOUBLINGS_MAX)
        topic.not_before = self._monotonic() + PAUSE_SECONDS_MIN * 2**doublings
        self._report(topic, State.FAILING)

    # What is told

    def _report(self, topic: _Topic, state: State, done: RoundDone | None = None, seconds: float = 0.0) -> None:
        landing = topic.landing
        self._reporter.report(
            TopicReport(
                pipeline=self._settings.group,
                topic=landing.topic,
                table=landing.table,
                state=state,
                next_offsets=dict(landing.next_offsets),
                high_watermarks={each.partition: end for each, end in landing.ends.items()},
                round_rows=0 if done is None else done.rows + done.dead_letters,
                round_dead_letters=0 if done is None else done.dead_letters,
                round_bytes=0 if done is None else done.bytes,
                round_seconds=seconds,
                total_rows=topic.rows,
                total_dead_letters=topic.dead_letters,
                last_error=topic.last_error,
                warnings=() if done is None else done.warnings,
                columns=() if landing.schema is None else columns_of(landing.schema),
                at_ms=int(time.time() * 1000),
            )
        )

    def _say_stopped(self) -> None:
        for topic in self._topics.values():
            self._report(topic, State.STOPPED)

    def _summary(self) -> Summary:
        topics = self._topics.values()
        return Summary(
            rows={topic.landing.topic: topic.rows for topic in topics},
            dead_letters={topic.landing.topic: topic.dead_letters for topic in topics},
            seconds=self._monotonic() - self._began,
        )


@contextmanager
def _kept(tally: _Tally) -> Iterator[None]:
    """What goes wrong with one topic must not stop the others, whatever it is: it is kept, told, and tried again."""
    try:
        yield
    except (ChronikError, OSError) as error:
        tally.error = error
    except Exception as error:
        logger.exception("topic %s", tally.topic.landing.topic)
        tally.error = error


def _is_lasting(error: Exception | None) -> bool:
    if isinstance(error, KafkaError):
        return error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # it was asked for again already, for a second
    return isinstance(error, LASTING)


def _tasks(tally: _Tally) -> list[Task]:
    return [] if tally.round is None else tally.round.tasks
