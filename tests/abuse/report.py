"""The report of attacks in Markdown: tables of figures and a summary."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tests.abuse.attack import Attack
from tests.abuse.budget import MIB, AttackFigures, Latencies, find_overruns, with_raw_latencies
from tests.abuse.probe import FETCH, HTTP, PRODUCE

HEAD = (
    "attack",
    "against",
    "sent",
    "loop blocked ms (raw)",
    "memory MB",
    "log kB",
    "probe p99 ms (raw; before)",
    "probe max ms",
    "new connections p99 ms (raw)",
    "result",
)


FLOODS_HEAD = (
    "flood",
    "against",
    "sent",
    "responses",
    "produce p99 / max ms (raw)",
    "fetch p99 / max ms (raw)",
    "HTTP p99 / max ms (raw)",
    "memory MB: before, peak, after",
    "disk MB",
    "result",
)


class ReportRow(NamedTuple):
    """The result of one attack on one kind of target."""

    attack: Attack
    kind: str
    figures: AttackFigures
    runs: int = 1
    """Number of measurements until the latencies were within the budget, since a busy machine is slow at times."""

    @property
    def overruns(self) -> list[str]:
        return find_overruns(self.figures, self.attack.budget)


def format_report(rows: Sequence[ReportRow], seed: int, catalogue: Iterable[Attack] = ()) -> Iterator[str]:
    """Yield the lines of the report. It describes the attacks of the rows and those of the catalogue."""
    failed = [row for row in rows if row.overruns]
    raw = [row for row in rows if find_overruns(with_raw_latencies(row.figures), row.attack.budget)]
    summary = f"{len(rows) - len(failed)} within budget, {len(failed)} over budget"
    yield "## Results"
    yield f"{len(rows)} rows, seed {seed}: {summary}; within budget with raw latencies: {len(rows) - len(raw)}."
    yield ""
    floods = [row for row in rows if row.figures.honest]
    yield from _table(HEAD, [format_cells(row) for row in rows if not row.figures.honest])
    yield ""
    if floods:
        yield "### Floods"
        yield "Latencies are those of the honest requests that ran alongside."
        yield ""
        yield from _table(FLOODS_HEAD, [format_flood_cells(row) for row in floods])
        yield ""
    for row in failed:
        yield f"- **{row.attack.name}** against a {row.kind}: {'; '.join(row.overruns)}"
    if failed:
        yield ""
    yield from format_descriptions([*catalogue, *(row.attack for row in rows)])


def format_descriptions(attacks: Iterable[Attack]) -> Iterator[str]:
    """Yield the section that describes the attacks, each once."""
    yield "## Attacks"
    yield "Attacks without a row in the results have not been measured for this report."
    yield ""
    yield "| attack | description |"
    yield "|---|---|"
    for name, description in dict.fromkeys((attack.name, attack.description) for attack in attacks):
        yield _line([f"`{name}`", description.replace("|", "\\|").replace("*", "\\*")])


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield _line(head)
    yield _line(["---"] * 2 + ["---:"] * (len(head) - 3) + ["---"])
    for row in rows:
        yield _line(row)


def format_flood_cells(row: ReportRow) -> list[str]:
    figures = row.figures
    by_kind = {each.kind: each for each in figures.honest}
    memory = ("/".join(f"{size / MIB:.0f}" for size in (each.before, each.peak, each.after)) for each in figures.memory)
    return [
        row.attack.name,
        row.kind,
        format_size(figures.sent_bytes),
        str(figures.responses),
        *(_format_latencies(by_kind.get(kind)) for kind in (PRODUCE, FETCH, HTTP)),
        ", ".join(memory),
        f"{figures.disk_bytes / MIB:.0f}",
        _format_result(row),
    ]


def _format_latencies(honest: Latencies | None) -> str:
    if honest is None:
        return "–"
    raw = f"{honest.p99_raw_ms:.0f} / {honest.longest_raw_ms:.0f}"
    return f"{honest.p99_ms:.0f} / {honest.longest_ms:.0f} ({raw})"


def format_cells(row: ReportRow) -> list[str]:
    figures = row.figures
    return [
        row.attack.name,
        row.kind,
        format_size(figures.sent_bytes),
        f"{figures.blocked_ms:.0f} ({figures.blocked_raw_ms:.0f})",
        f"{figures.memory_bytes / MIB:.0f}",
        f"{figures.log_bytes / 1024:.1f}",
        f"{figures.probe_p99_ms:.0f} ({figures.probe_p99_raw_ms:.0f}; {figures.before_p99_ms:.0f})",
        f"{figures.probe_longest_ms:.0f}",
        _format_arrivals(figures),
        _format_result(row),
    ]


def _format_arrivals(figures: AttackFigures) -> str:
    if figures.arrival_p99_ms is None or figures.arrival_p99_raw_ms is None:
        return "–"
    return f"{figures.arrival_p99_ms:.0f} ({figures.arrival_p99_raw_ms:.0f})"


def _format_result(row: ReportRow) -> str:
    if row.overruns:
        return "**over budget**"
    return "ok" if row.runs == 1 else f"ok ({row.runs} runs)"


def format_size(count: int) -> str:
    for unit, factor in (("MB", MIB), ("kB", 1024)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} B"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
