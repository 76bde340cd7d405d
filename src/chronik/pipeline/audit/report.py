"""The result of an audit, as text, as JSON and as an exit code. `html_report` shows it as a page."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from chronik.limits import MIB
from chronik.pipeline.audit.findings import Finding, FindingKind
from chronik.wording import pluralize

EXIT_CLEAN, EXIT_FINDINGS, EXIT_INCOMPLETE = 0, 1, 2

BATCH_KINDS: Final = (FindingKind.CHECKSUM, FindingKind.HEADER)
ORDER_KINDS: Final = (FindingKind.MISSING_RECORDS, FindingKind.DUPLICATE_BATCH, FindingKind.EPOCH)
REPLICA_KINDS: Final = (FindingKind.SHORT_LOG, FindingKind.DIVERGED)
GROUP_KINDS: Final = (FindingKind.COMMITTED_OFFSET,)
TABLE_KINDS: Final = (
    FindingKind.LOST_ROW,
    FindingKind.DUPLICATE_ROW,
    FindingKind.FOREIGN_ROW,
    FindingKind.DIFFERENT_ROW,
    FindingKind.UNJUDGED_ROW,
    FindingKind.TABLE_FILE,
)


class Check(NamedTuple):
    """A statement that an audit checked."""

    statement: str
    findings: int
    """Number of findings that contradict it."""


@dataclass(slots=True)
class AuditReport:
    """The result of an audit: the amount of data read, the findings, and the parts that could not be checked."""

    nodes: tuple[int, ...] = ()
    topics: int = 0
    partitions: int = 0
    replicas: int = 0
    records: int = 0
    """Records that were read, counted over all replicas."""
    batches: int = 0
    size_bytes: int = 0
    tables: int | None = None
    """Number of tables compared, or None if no table root was given."""
    rows: int = 0
    groups: int = 0
    metadata_index: int | None = None
    """Index of the metadata log at which the nodes' metadata was compared."""
    seconds: float = 0.0
    """Duration of the whole audit."""
    log_seconds: float = 0.0
    """Time spent reading logs, without starting Spark and without reading tables."""
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Observations that are not problems."""
    unchecked: list[str] = field(default_factory=list)
    """Descriptions of the parts that could not be checked."""
    ends: list[dict[str, Any]] = field(default_factory=list)
    """The ends of the audited partitions, from which a later audit continues."""

    @property
    def exit_code(self) -> int:
        """Process exit code; findings take precedence over unchecked parts."""
        if self.findings:
            return EXIT_FINDINGS
        return EXIT_INCOMPLETE if self.unchecked else EXIT_CLEAN

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
            "state_index": self.metadata_index,
            "seconds": round(self.seconds, 3),
            "log_seconds": round(self.log_seconds, 3),
            "findings": [finding.to_json() for finding in self.findings],
            "notes": self.notes,
            "unseen": self.unchecked,
            "ends": self.ends,
        }

    def to_text(self) -> str:
        lines = [self.totals, "", *self._format_checks()]
        if self.findings:
            lines.append("")
            for number, finding in enumerate(self.findings, 1):
                where = f"{finding.location}: " if finding.location else ""
                lines.append(f"{number}. {where}{finding.says}")
                if finding.file_position is not None:
                    lines.append(f"   {finding.file_position}")
        for title, entries in (("Not checked", self.unchecked), ("Notes", self.notes)):
            if entries:
                lines += ["", f"{title}:", *(f"- {each}" for each in entries)]
        return "\n".join([*lines, "", self.conclusion])

    @property
    def totals(self) -> str:
        """The amount of data that was read, and the time it took."""
        rate = self.size_bytes / MIB / self.log_seconds if self.log_seconds > 0 else 0.0
        counts = ((self.topics, "topic"), (self.partitions, "partition"), (self.replicas, "replica"))
        sources = f"{', '.join(pluralize(*each) for each in counts)} on {pluralize(len(self.nodes), 'node')}"
        amount = f"{pluralize(self.records, 'record')}, {self.size_bytes / MIB:,.0f} MiB"
        return f"Read {sources}: {amount} ({rate:,.0f} MiB/s). Total time: {self.seconds:.1f} s."

    def _format_checks(self) -> list[str]:
        return [
            f"FAILED {check.statement}: {pluralize(check.findings, 'finding')}" if check.findings
            else f"ok     {check.statement}"
            for check in self.list_checks()
        ]  # fmt: skip

    def list_checks(self) -> list[Check]:
        """Return what the audit checked, with the number of findings."""
        counts = Counter(finding.kind for finding in self.findings)
        checks = [
            ("the checksum of every batch is correct", BATCH_KINDS),
            ("offsets and leader epochs are consecutive, without missing or duplicate records", ORDER_KINDS),
            ("replicas are identical up to the high watermark", REPLICA_KINDS),
            (f"committed offsets of {pluralize(self.groups, 'group')} are within their partitions", GROUP_KINDS),
        ]
        if self.tables:
            checks.append(
                (f"{pluralize(self.rows, 'row')} of {pluralize(self.tables, 'table')} match their records", TABLE_KINDS)
            )
        if self.metadata_index is not None:
            checks.append(
                (f"the metadata is the same on all nodes at index {self.metadata_index}", (FindingKind.STATE,))
            )
        elif counts[FindingKind.STATE]:
            checks.append(("the metadata is the same on all nodes", (FindingKind.STATE,)))
        return [Check(statement, sum(counts[kind] for kind in kinds)) for statement, kinds in checks]

    @property
    def conclusion(self) -> str:
        """The result in one sentence."""
        if self.findings:
            return f"{pluralize(len(self.findings), 'finding')}."
        if self.unchecked:
            return "No problems found, but some data could not be checked."
        return "No problems found."
