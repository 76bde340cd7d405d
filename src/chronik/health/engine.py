"""The health engine: turns conditions into problems that neither flicker nor forget when they started."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from chronik.health.checks import HealthCondition, find_conditions
from chronik.health.facts import HealthFacts
from chronik.health.problems import KINDS, Problem, ProblemSeverity, sort_problems

ProblemKey = tuple[str, str]
"""The kind and the subject of a problem."""


class _TrackedCondition(msgspec.Struct):
    """A condition that persists, and its problem if it was raised."""

    since_s: float
    seen_s: float
    """The last time at which the condition was strong enough to raise or to keep its problem."""
    problem: Problem | None = None


class HealthEngine:
    """The problems of a cluster over time.

    A problem is raised when its condition has persisted for `raise_after_s` of its kind, and cleared when the condition
    has been absent for `clear_after_s`. The memory is limited because the number of conditions is.
    """

    def __init__(self) -> None:
        self._tracked: dict[ProblemKey, _TrackedCondition] = {}
        self._inherited: dict[ProblemKey, Problem] = {}

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The current problems, the most severe first."""
        raised = {key: each.problem for key, each in self._tracked.items() if each.problem is not None}
        return sort_problems(
            problem for problem in raised.values() if (KINDS[problem.kind].superseded_by, problem.subject) not in raised
        )

    def adopt(self, problems: Iterable[Problem]) -> None:
        """Adopt the problems of an engine that is not available any more, such as that of the previous controller.

        If the next evaluation finds their conditions, the problems continue with their original start times.
        """
        self._inherited = {(each.kind, each.subject): each for each in problems if each.kind in KINDS}

    def evaluate(self, facts: HealthFacts) -> tuple[Problem, ...]:
        """Check new facts, and return the current problems, the most severe first."""
        now_s = facts.now_s
        found = {(each.kind, each.subject): each for each in find_conditions(facts)}
        for key, condition in found.items():
            self._track(key, condition, now_s)
        for key, tracked in list(self._tracked.items()):
            if key not in found:
                tracked.since_s = min(tracked.since_s, now_s)
                clear_after_s = KINDS[key[0]].clear_after_s if tracked.problem is not None else 0.0
                if not tracked.seen_s <= now_s < tracked.seen_s + clear_after_s:
                    del self._tracked[key]
        self._inherited = {}
        return self.problems

    def _track(self, key: ProblemKey, condition: HealthCondition, now_s: float) -> None:
        tracked = self._tracked.get(key)
        inherited = self._inherited.get(key)
        if tracked is None:
            if condition.severity is None and inherited is None:
                return
            tracked = _TrackedCondition(now_s, now_s)
            if inherited is not None:
                tracked.since_s, tracked.problem = min(inherited.since_s, now_s), inherited
            self._tracked[key] = tracked
        elif inherited is not None:
            tracked.since_s = min(tracked.since_s, inherited.since_s)
            tracked.problem = tracked.problem or inherited
        tracked.since_s, tracked.seen_s = min(tracked.since_s, now_s), now_s
        if tracked.problem is None and condition.severity is None:
            del self._tracked[key]  # too weak before it became a problem
        elif tracked.problem is not None or now_s - tracked.since_s >= KINDS[condition.kind].raise_after_s:
            severity = choose_severity(condition, None if tracked.problem is None else tracked.problem.severity)
            tracked.problem = build_problem(condition, severity, tracked.since_s)


def choose_severity(condition: HealthCondition, current: ProblemSeverity | None) -> ProblemSeverity:
    """Return the severity of a problem: it rises immediately, and falls only below the lower thresholds."""
    upper = ProblemSeverity.INFO if condition.severity is None else condition.severity
    lower = upper if condition.held_severity is None else condition.held_severity
    return upper if current is None else max(upper, min(current, lower))


def build_problem(condition: HealthCondition, severity: ProblemSeverity, since_s: float) -> Problem:
    """Return the problem of a condition."""
    page = KINDS[condition.kind].console
    link = page.format(_quote(condition.subject)) if condition.subject else page.removesuffix("/{}")
    return Problem(condition.kind, severity, condition.subject, since_s, condition.message, condition.action, link)


def _quote(subject: str) -> str:
    from urllib.parse import quote  # imported on use: most clusters have no problems

    return quote(subject, safe="")


def assess(facts: HealthFacts) -> tuple[Problem, ...]:
    """Return the problems of facts that are collected only once: every condition counts immediately."""
    found = [each for each in find_conditions(facts) if each.severity is not None]
    keys = {(each.kind, each.subject) for each in found}
    return sort_problems(
        build_problem(each, each.severity, facts.now_s)
        for each in found
        if each.severity is not None and (KINDS[each.kind].superseded_by, each.subject) not in keys
    )
