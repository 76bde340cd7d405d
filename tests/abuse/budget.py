"""The budget of an attack: the latency, memory, log and disk usage that it may cause. Performs no I/O."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class AttackBudget:
    """Limits on the effects of an attack."""

    blocked_ms: float = 100.0
    """Maximum time that the event loop is blocked, as measured by pings on a separate connection."""
    memory_bytes: int = 100 * MIB
    memory_per_request: float = 3.0
    """Additional memory per byte of the largest request, which is received, decoded and answered."""
    probe_p99_ms: float = 250.0
    arrival_p99_ms: float = 250.0
    """p99 of new connections to a secured listener, including TLS, login and the first response."""
    log_bytes: int = 64 * 1024
    """Maximum log output: an unauthenticated client must not be able to fill the disk."""
    longest_ms: float = math.inf
    """Maximum latency of an honest request."""
    disk_bytes: float = math.inf
    """Growth of a node's data directory."""

    def memory_max(self, request_bytes: int) -> float:
        """Return the maximum memory growth for a given size of the largest request."""
        return self.memory_bytes + self.memory_per_request * request_bytes


BUDGET: Final = AttackBudget()


@dataclass(frozen=True, slots=True)
class Latencies:
    """Latencies of one kind of honest request, without CPU scheduling delays; `raw` includes them."""

    kind: str
    count: int
    p99_ms: float
    longest_ms: float
    p99_raw_ms: float
    longest_raw_ms: float


@dataclass(frozen=True, slots=True)
class NodeMemory:
    """Resident bytes of a node before and after an attack, and at its peak."""

    before: int
    after: int
    peak: int

    @property
    def growth(self) -> int:
        return max(0, self.peak - self.before)


@dataclass(frozen=True, slots=True)
class AttackFigures:
    """The measurements of one attack. Times are in milliseconds."""

    sent_bytes: int
    request_bytes: int
    blocked_ms: float
    """Longest ping without CPU scheduling delays of the node and the client."""
    blocked_raw_ms: float
    memory_bytes: int
    log_bytes: int
    before_p99_ms: float
    """The probe's p99 before the attack, including CPU scheduling delays."""
    probe_p99_ms: float
    probe_p99_raw_ms: float
    probe_longest_ms: float
    probe_records: int
    pings: int
    """Number of pings."""
    arrival_p99_ms: float | None = None
    """None if the listener requires no authentication."""
    arrival_p99_raw_ms: float | None = None
    arrivals: int = 0
    honest: list[Latencies] = field(default_factory=list)
    """Honest requests of each kind, alongside a flood."""
    memory: list[NodeMemory] = field(default_factory=list)
    """Memory of each node."""
    disk_bytes: int = 0
    """Growth of the largest data directory."""
    responses: int = 0
    """Responses that the attacker received."""
    problems: list[str] = field(default_factory=list)
    """Problems found during or after the attack, such as lost records."""


def find_overruns(figures: AttackFigures, budget: AttackBudget = BUDGET) -> list[str]:
    """Return every exceeded limit and every problem; an empty list if the attack is within its budget."""
    return [*_latency_overruns(figures, budget), *_resource_overruns(figures, budget), *figures.problems]


def with_raw_latencies(figures: AttackFigures) -> AttackFigures:
    """Return the figures with the raw latencies, as a client sees them."""
    return replace(
        figures,
        blocked_ms=figures.blocked_raw_ms,
        probe_p99_ms=figures.probe_p99_raw_ms,
        arrival_p99_ms=figures.arrival_p99_raw_ms,
        honest=[replace(each, p99_ms=each.p99_raw_ms, longest_ms=each.longest_raw_ms) for each in figures.honest],
    )


def exceeds_only_latency(figures: AttackFigures, budget: AttackBudget = BUDGET) -> bool:
    """Return whether only latencies exceed the budget, so that a new measurement is justified."""
    return not figures.problems and not list(_resource_overruns(figures, budget))


def _latency_overruns(figures: AttackFigures, budget: AttackBudget) -> Iterator[str]:
    if figures.blocked_ms > budget.blocked_ms:
        yield f"event loop blocked for {figures.blocked_ms:.0f} ms (at most {budget.blocked_ms:.0f})"
    if figures.probe_p99_ms > budget.probe_p99_ms:
        yield f"probe p99 {figures.probe_p99_ms:.0f} ms (at most {budget.probe_p99_ms:.0f})"
    if figures.arrival_p99_ms is not None and figures.arrival_p99_ms > budget.arrival_p99_ms:
        yield f"new connections p99 {figures.arrival_p99_ms:.0f} ms (at most {budget.arrival_p99_ms:.0f})"
    for each in figures.honest:
        if each.p99_ms > budget.probe_p99_ms:
            yield f"{each.kind} p99 {each.p99_ms:.0f} ms (at most {budget.probe_p99_ms:.0f})"
        if each.longest_ms > budget.longest_ms:
            yield f"{each.kind} maximum {each.longest_ms:.0f} ms (at most {budget.longest_ms:.0f})"


def _resource_overruns(figures: AttackFigures, budget: AttackBudget) -> Iterator[str]:
    memory_max = budget.memory_max(figures.request_bytes)
    if figures.memory_bytes > memory_max:
        yield f"memory grew by {figures.memory_bytes / MIB:.0f} MB (at most {memory_max / MIB:.0f})"
    if figures.log_bytes > budget.log_bytes:
        yield f"logged {figures.log_bytes / 1024:.0f} kB (at most {budget.log_bytes / 1024:.0f})"
    if figures.disk_bytes > budget.disk_bytes:
        yield f"wrote {figures.disk_bytes / MIB:.0f} MB to disk (at most {budget.disk_bytes / MIB:.0f})"
    for each in figures.honest:
        if not each.count:
            yield f"no honest {each.kind} request was answered"
    if not figures.probe_records:
        yield "the probe received no response"
    if not figures.pings:
        yield "no ping was answered"
    if figures.arrival_p99_ms is not None and not figures.arrivals:
        yield "no new connection was authenticated"


def percentile(values: list[float], fraction: float) -> float:
    """Return the smallest value that a fraction of the values do not exceed; 0 if there are none."""
    ordered = sorted(values)
    if not ordered:
        return 0.0
    return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))]
