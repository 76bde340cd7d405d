"""What an attack may cost those beside it, and who says when it cost more. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Budget:
    held_ms: float = 100.0
    """The event loop's longest turn, as a client on its own connection sees it."""
    memory_bytes: int = 100 * MIB
    memory_per_request: float = 3.0
    """Of the largest request, on top: it is received, decoded and answered."""
    probe_p99_ms: float = 250.0
    arrival_p99_ms: float = 250.0
    """The probe's arrival where it has to say who it is: with TLS, a login and the first answer."""
    log_bytes: int = 64 * 1024
    """A stranger must not fill the disk through the log."""
    longest_ms: float = math.inf
    """Maximum latency of an honest request."""
    disk_bytes: float = math.inf
    """Growth of a node's data directory."""

    def memory_max(self, request_bytes: int) -> float:
        return self.memory_bytes + self.memory_per_request * request_bytes


BUDGET: Final = Budget()


@dataclass(frozen=True, slots=True)
class Latencies:
    """Latencies of one kind of honest request, less the waits for a core, and `raw` with them."""

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
class Figures:
    """What was measured of one attack. Times are in milliseconds."""

    sent_bytes: int
    request_bytes: int
    held_ms: float
    """Longest trip of a request that costs nothing, less the time in which node or client waited for a core."""
    held_raw_ms: float
    memory_bytes: int
    log_bytes: int
    quiet_p99_ms: float
    """The probe's, before the attack, in the same run, with its waits for a core."""
    probe_p99_ms: float
    probe_p99_raw_ms: float
    probe_longest_ms: float
    probe_records: int
    pulses: int
    """Answers that `held_ms` is the longest of."""
    arrival_p99_ms: float | None = None
    """None where nobody asks who comes."""
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
    ailments: list[str] = field(default_factory=list)
    """What is wrong with the node afterwards, or with what it acknowledged."""


def overruns(figures: Figures, budget: Budget = BUDGET) -> list[str]:
    """Every budget that was not kept, and everything that is wrong; empty for a row that is well."""
    return [*_too_slow(figures, budget), *_too_much(figures, budget), *figures.ailments]


def with_waits(figures: Figures) -> Figures:
    """As a client sees it, who does not care who had the core."""
    return replace(
        figures,
        held_ms=figures.held_raw_ms,
        probe_p99_ms=figures.probe_p99_raw_ms,
        arrival_p99_ms=figures.arrival_p99_raw_ms,
        honest=[replace(each, p99_ms=each.p99_raw_ms, longest_ms=each.longest_raw_ms) for each in figures.honest],
    )


def is_only_slow(figures: Figures, budget: Budget = BUDGET) -> bool:
    """Whether another look is fair: a machine that does much else is slow at times; it neither leaks nor forgets."""
    return not figures.ailments and not list(_too_much(figures, budget))


def _too_slow(figures: Figures, budget: Budget) -> Iterator[str]:
    if figures.held_ms > budget.held_ms:
        yield f"held the loop for {figures.held_ms:.0f} ms (at most {budget.held_ms:.0f})"
    if figures.probe_p99_ms > budget.probe_p99_ms:
        yield f"probe p99 {figures.probe_p99_ms:.0f} ms (at most {budget.probe_p99_ms:.0f})"
    if figures.arrival_p99_ms is not None and figures.arrival_p99_ms > budget.arrival_p99_ms:
        yield f"arrivals p99 {figures.arrival_p99_ms:.0f} ms (at most {budget.arrival_p99_ms:.0f})"
    for each in figures.honest:
        if each.p99_ms > budget.probe_p99_ms:
            yield f"{each.kind} p99 {each.p99_ms:.0f} ms (at most {budget.probe_p99_ms:.0f})"
        if each.longest_ms > budget.longest_ms:
            yield f"{each.kind} maximum {each.longest_ms:.0f} ms (at most {budget.longest_ms:.0f})"


def _too_much(figures: Figures, budget: Budget) -> Iterator[str]:
    memory_max = budget.memory_max(figures.request_bytes)
    if figures.memory_bytes > memory_max:
        yield f"took {figures.memory_bytes / MIB:.0f} MB (at most {memory_max / MIB:.0f})"
    if figures.log_bytes > budget.log_bytes:
        yield f"logged {figures.log_bytes / 1024:.0f} kB (at most {budget.log_bytes / 1024:.0f})"
    if figures.disk_bytes > budget.disk_bytes:
        yield f"wrote {figures.disk_bytes / MIB:.0f} MB to disk (at most {budget.disk_bytes / MIB:.0f})"
    for each in figures.honest:
        if not each.count:
            yield f"no honest {each.kind} request was answered"
    if not figures.probe_records:
        yield "the probe was never answered"
    if not figures.pulses:
        yield "nobody saw how long the loop was held"
    if figures.arrival_p99_ms is not None and not figures.arrivals:
        yield "nobody was let in"


def percentile(values: list[float], share: float) -> float:
    """The smallest value that `share` of them do not exceed; 0 of none."""
    ordered = sorted(values)
    if not ordered:
        return 0.0
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
