"""Who listens to a landing: what a driver tells after each round of a topic, and what it asks before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class State(StrEnum):
    LANDING = "landing"
    """Rounds go through, and there is more to land."""
    WAITING = "waiting"
    """Everything that there was has landed."""
    PAUSED = "paused"
    FAILING = "failing"
    """The last round did not go through; `last_error` says why. It is tried again."""
    STOPPED = "stopped"
    """The driver has ended, and said so."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a topic's table."""

    name: str
    type: str
    """As Spark's SQL writes it: `bigint`."""


@dataclass(frozen=True, slots=True)
class TopicReport:
    """How far a topic is in its table, as of now."""

    pipeline: str
    """Its name, which is also that of the group that is told the offsets."""
    topic: str
    table: str
    """Its URI."""
    state: State
    next_offsets: Mapping[int, int]
    """By partition: the table holds the records below. Partitions that never landed are not in it."""
    high_watermarks: Mapping[int, int]
    """By partition: the end of what could be landed when this round was planned."""
    round_rows: int = 0
    """Rows of this round, in the table and in the dead letters."""
    round_dead_letters: int = 0
    round_bytes: int = 0
    """The size of the files that were committed."""
    round_seconds: float = 0.0
    total_rows: int = 0
    """Counted since this driver started."""
    total_dead_letters: int = 0
    last_error: str | None = None
    """The error of the last round that failed, also when a later one went through."""
    warnings: Sequence[str] = field(default=())
    """What this round has to say: offsets that are gone, fields that cannot be columns."""
    columns: Sequence[Column] = field(default=())
    """Those of the table, as of the last round that was planned; none before the table was looked at."""
    at_ms: int = 0

    @property
    def lag(self) -> int:
        """Offsets that are still to land."""
        return sum(max(0, end - self.next_offsets.get(partition, 0)) for partition, end in self.high_watermarks.items())

    @property
    def rows_per_second(self) -> float:
        return self.round_rows / self.round_seconds if self.round_seconds > 0 else 0.0


class Reporter:
    """Called from the driver's own thread. It must not raise, and should not take long: landing waits for it.

    This one does not listen.
    """

    def report(self, report: TopicReport) -> None:
        """Called after each round of a topic, and when its state changes."""

    def paused(self, topic: str) -> bool:
        """Called before each round."""
        return False

    def close(self) -> None:
        """Called when the driver has ended, after the last reports."""


class Reporters(Reporter):
    """Several who listen. A topic is paused if any of them says so."""

    def __init__(self, *reporters: Reporter) -> None:
        self._reporters = reporters

    def report(self, report: TopicReport) -> None:
        for reporter in self._reporters:
            reporter.report(report)

    def paused(self, topic: str) -> bool:
        return any(reporter.paused(topic) for reporter in self._reporters)

    def close(self) -> None:
        for reporter in self._reporters:
            reporter.close()
