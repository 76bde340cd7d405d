"""The history of one node: its series by scope, and the answers to queries of this and other nodes."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import islice
from typing import Final

import msgspec

from chronik.errors import ChronikError
from chronik.history.metrics import METRICS_BY_NAME, SUBJECTS_MAX, Scope, list_scope_metrics
from chronik.history.series import RESOLUTIONS, SeriesTable, Subject

QUERY_VALUES_MAX: Final = 200_000
"""Maximum number of values in an answer: 50 series of a whole ring buffer are 18,000."""

FOUND_SUBJECTS_MAX: Final = max(SUBJECTS_MAX.values())


class HistoryQuery(msgspec.Struct, array_like=True, frozen=True):
    """A query of a node's history, which another node may send."""

    scope: int
    metrics: tuple[str, ...] = ()
    """The metrics whose values are returned; without any, the answer has only the subjects."""
    subjects: tuple[Subject, ...] | None = None
    """The subjects whose values are returned; None for those that `group` and `topic` select."""
    group: str | None = None
    topic: str | None = None
    step_s: int = RESOLUTIONS[0].step_s
    """The step of a resolution."""
    start: int = 0
    """The first slot."""
    number: int = 0
    """The number of slots."""


class HistorySeries(msgspec.Struct, array_like=True, frozen=True):
    """The values of one metric of one subject, as 32-bit floats; NaN is a gap."""

    metric: str
    subject: Subject
    values: bytes

    def decode(self) -> tuple[float, ...]:
        """Return the values."""
        return struct.unpack(f"<{len(self.values) // 4}f", self.values)


class HistoryAnswer(msgspec.Struct, array_like=True, frozen=True):
    """A node's answer to a query."""

    subjects: tuple[tuple[Subject, float], ...] = ()
    """The selected subjects that have a history, with their recent maximum activity."""
    series: tuple[HistorySeries, ...] = ()
    incomplete: tuple[Subject, ...] = ()
    """The queried subjects that the node has sampled, but of which it keeps no history."""
    left_out: int = 0
    """The number of subjects of the scope that the node has sampled, but of which it keeps no history."""


class InvalidHistoryQuery(ChronikError):
    """A query that names an unknown metric or resolution, or asks for too many values."""


class HistoryStore:
    """The history of a node."""

    def __init__(self) -> None:
        self.tables: Final = {scope: SeriesTable(list_scope_metrics(scope), SUBJECTS_MAX[scope]) for scope in Scope}

    def answer(self, query: HistoryQuery) -> HistoryAnswer:
        """Return the answer to a query.

        Raises:
            InvalidHistoryQuery: The query is invalid.
        """
        resolution = next((each for each in RESOLUTIONS if each.step_s == query.step_s), None)
        if query.scope not in list(Scope) or resolution is None:
            raise InvalidHistoryQuery(f"scope {query.scope} or step {query.step_s} s is unknown")
        if any(name not in METRICS_BY_NAME or METRICS_BY_NAME[name].scope != query.scope for name in query.metrics):
            raise InvalidHistoryQuery("a metric is unknown")
        table = self.tables[Scope(query.scope)]
        if query.subjects is None:
            found = [each for each in table.scores.items() if _is_selected(query, each[0])]
            return HistoryAnswer(subjects=tuple(found), left_out=table.left_out)
        number = max(0, query.number)
        if number * len(query.subjects) * len(query.metrics) > QUERY_VALUES_MAX:
            raise InvalidHistoryQuery(f"the query asks for more than {QUERY_VALUES_MAX} values")
        return HistoryAnswer(
            series=tuple(
                HistorySeries(metric, subject, _encode(table.read(subject, metric, resolution, query.start, number)))
                for subject in query.subjects
                if subject in table
                for metric in query.metrics
            ),
            incomplete=tuple(islice(filter(table.lacks, query.subjects), FOUND_SUBJECTS_MAX)),
            left_out=table.left_out,
        )


def _encode(values: Sequence[float]) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def _is_selected(query: HistoryQuery, subject: Subject) -> bool:
    """Return whether the query's group and topic match a subject of a scope that has both, or one of them."""
    if query.scope == Scope.TOPIC:
        return query.topic in (None, *subject)
    if query.scope == Scope.GROUP:
        return query.group in (None, *subject)
    if query.scope == Scope.GROUP_TOPIC:
        return query.group in (None, subject[0]) and query.topic in (None, subject[1])
    return True
