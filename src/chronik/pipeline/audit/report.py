"""What an audit came to, in plain words, as JSON, and as an exit code."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from chronik.limits import MIB
from chronik.pipeline.audit.findings import Finding, Kind
from chronik.wording import counted

EXIT_CLEAN, EXIT_FINDINGS, EXIT_COULD_NOT_LOOK = 0, 1, 2

OF_LOGS: Final = (Kind.CHECKSUM, Kind.HEADER)
OF_ORDER: Final = (Kind.MISSING_RECORDS, Kind.DUPLICATE_BATCH, Kind.EPOCH)
OF_REPLICAS: Final = (Kind.SHORT_LOG, Kind.DIVERGED)
OF_GROUPS: Final = (Kind.COMMITTED_OFFSET,)
OF_TABLES: Final = (Kind.LOST_ROW, Kind.DUPLICATE_ROW, Kind.FOREIGN_ROW, Kind.DIFFERENT_ROW, Kind.TABLE_FILE)


@dataclass(slots=True)
class Report:
    nodes: tuple[int, ...] = ()
    topics: int = 0
    partitions: int = 0
    replicas: int = 0
    records: int = 0
    """Counted over all replicas."""
    batches: int = 0
    size_bytes: int = 0
    tables: int | None = None
    """None: no tables were asked for."""
    rows: int = 0
    groups: int = 0
    state_index: int | None = None
    """The index at which the nodes' metadata was compared."""
    seconds: float = 0.0
    """The time for all of it."""
    log_seconds: float = 0.0
    """The time for reading the logs alone: without starting Spark, without tables."""
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Worth knowing, and nothing wrong."""
    unseen: list[str] = field(default_factory=list)
    """What could not be looked at."""

    @property
    def exit_code(self) -> int:
        """What was found counts more than what could not be looked at."""
        if self.findings:
            return EXIT_FINDINGS
        return EXIT_COULD_NOT_LOOK if self.unseen else EXIT_CLEAN

    @property
    def is_clean(self) -> bool:
        return self.exit_code == EXIT_CLEAN

    def to_json(self) -> dict[str, Any]:
        return {
            "clean": self.is_clean,
            "nodes": list(self.nodes),
            "topics": self.topics,
            "partitions": self.partitions,
            "replicas": self.replicas,
            "records": self.records,
            "batches": self.batches,
            "bytes": self.size_bytes,
            "tables": self.tables,
            "rows": self.rows,
            "groups": self.groups,
            "state_index": self.state_index,
            "seconds": round(self.seconds, 3),
            "log_seconds": round(self.log_seconds, 3),
            "findings": [finding.to_json() for finding in self.findings],
            "notes": self.notes,
            "unseen": self.unseen,
        }

    def text(self) -> str:
        lines = [self._figures(), "", *self._checks()]
        if self.findings:
            lines.append("")
            for number, finding in enumerate(self.findings, 1):
                where = f"{finding.where}: " if finding.where else ""
                lines.append(f"{number}. {where}{finding.says}")
                if finding.source is not None:
                    lines.append(f"   {finding.source}")
        for title, told in (("Not looked at", self.unseen), ("Worth knowing", self.notes)):
            if told:
                lines += ["", f"{title}:", *(f"- {each}" for each in told)]
        return "\n".join([*lines, "", self._verdict()])

    def _figures(self) -> str:
        rate = self.size_bytes / MIB / self.log_seconds if self.log_seconds > 0 else 0.0
        counts = ((self.topics, "topic"), (self.partitions, "partition"), (self.replicas, "replica"))
        looked = f"{', '.join(counted(*each) for each in counts)} on {counted(len(self.nodes), 'node')}"
        amount = f"{counted(self.records, 'record')}, {self.size_bytes / MIB:,.0f} MiB"
        return f"Read {looked}: {amount} ({rate:,.0f} MiB/s). It took {self.seconds:.1f} s in all."

    def _checks(self) -> list[str]:
        counts = Counter(finding.kind for finding in self.findings)
        checks = [
            ("every batch is as it was written, by its checksum", OF_LOGS),
            ("offsets and leader epochs are in order, and nothing is missing or doubled", OF_ORDER),
            ("replicas are identical up to the high watermark", OF_REPLICAS),
            (f"committed offsets of {counted(self.groups, 'group')} are within their partitions", OF_GROUPS),
        ]
        if self.tables:
            checks.append(
                (f"{counted(self.rows, 'row')} of {counted(self.tables, 'table')} equal their records", OF_TABLES)
            )
        if self.state_index is not None:
            checks.append((f"the metadata is the same on all nodes, at index {self.state_index}", (Kind.STATE,)))
        elif counts[Kind.STATE]:
            checks.append(("the metadata is the same on all nodes", (Kind.STATE,)))
        lines = []
        for says, kinds in checks:
            wrong = sum(counts[kind] for kind in kinds)
            lines.append(f"WRONG  {says}: {counted(wrong, 'finding')}" if wrong else f"ok     {says}")
        return lines

    def _verdict(self) -> str:
        if self.findings:
            return f"{counted(len(self.findings), 'finding')}."
        if self.unseen:
            return "Nothing wrong was found, but not everything could be looked at."
        return "Everything is as it must be."
