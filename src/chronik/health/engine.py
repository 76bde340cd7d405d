"""The health engine: turns conditions into problems that neither flicker nor forget when they started."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from chronik.health.checks import HealthCondition, find_conditions
from chronik.health.facts import HealthFacts
from chronik.health.problems import KINDS, Problem, ProblemSeverity, sort_problems

ProblemKey = tuple[str, str]
"""The kind and the subject of a problem."""


ADOPTED_S: Final = 30.0
"""Time in seconds for which adopted problems are kept until the facts for their checks are complete."""


class _TrackedCondition(msgspec.Struct):
    """A condition that persists, and its problem if it was raised."""

    since_s: float
    keep_until_s: float
    """The time at which the problem is cleared if its condition is not found until then."""
    problem: Problem | None = None


class HealthEngine:
    """The problems of a cluster over time.

    A problem is raised when its condition has persisted for `raise_after_s` of its kind, and cleared when the condition
    has been absent for `clear_after_s`. The memory is limited because the number of conditions is.
    """

    def __init__(self) -> None:
        self._tracked: dict[ProblemKey, _TrackedCondition] = {}

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The current problems, the most severe first."""
        raised = {key: each.problem for key, each in self._tracked.items() if each.problem is not None}
        return sort_problems(
            problem for problem in raised.values() if (KINDS[problem.kind].superseded_by, problem.subject) not in raised
        )

    def adopt(self, problems: Iterable[Problem], now_s: float) -> None:
        """Adopt the problems of an engine that is not used any more, such as that of the previous controller.

        They keep their start times, and are cleared as usual if their conditions are not found.
        """
        for problem in problems:
            if problem.kind in KINDS:
                tracked = self._tracked.setdefault((problem.kind, problem.subject), _TrackedCondition(now_s, 0.0))
                tracked.since_s = min(tracked.since_s, problem.since_s)
                tracked.keep_until_s = max(tracked.keep_until_s, now_s + ADOPTED_S)
                tracked.problem = tracked.problem or problem

    def evaluate(self, facts: HealthFacts) -> tuple[Problem, ...]:
        """Check new facts, and return the current problems, the most severe first."""
        now_s = facts.now_s
        found = {(each.kind, each.subject): each for each in find_conditions(facts)}
        for key, condition in found.items():
            self._track(key, condition, now_s)
        for key, tracked in list(self._tracked.items()):
            kept_s = max(KINDS[key[0]].clear_after_s, ADOPTED_S) if tracked.problem is not None else 0.0
            if key not in found and not 0 < tracked.keep_until_s - now_s <= kept_s:  # longer if the clock was set back
                del self._tracked[key]
        return self.problems

    def _track(self, key: ProblemKey, condition: HealthCondition, now_s: float) -> None:
        tracked = self._tracked.get(key)
        if condition.severity is None and (tracked is None or tracked.problem is None):
            self._tracked.pop(key, None)  # too weak to become a problem
            return
        if tracked is None:
            tracked = self._tracked[key] = _TrackedCondition(now_s, now_s)
        kind = KINDS[condition.kind]
        tracked.since_s = min(tracked.since_s, now_s)
        tracked.keep_until_s = now_s + kind.clear_after_s
        if tracked.problem is not None or now_s - tracked.since_s >= kind.raise_after_s:
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
