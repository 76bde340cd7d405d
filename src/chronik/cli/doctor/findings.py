"""Findings of `chronik doctor`: the problem, its effect and the fix. Each is printed as one paragraph."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Any, Final

import msgspec

from chronik.wording import pluralize

NAMES_SHOWN: Final = 5
"""Maximum number of object names that a doctor finding lists."""


UNCOLLECTED: Final = "not-seen"
"""Name of the doctor check that reports facts about the cluster that it could not collect."""


class Severity(IntEnum):
    NOTE = 0
    """Information that requires no action."""
    WARNING = 1
    """A problem that reduces fault tolerance or security, or that will become an error."""
    ERROR = 2
    """A failure, or an immediate risk of data loss."""


class DoctorFinding(msgspec.Struct, frozen=True):
    check: str
    """Machine-readable name of the doctor check that reports the finding."""
    severity: Severity
    what: str
    why: str = ""
    do: str = ""


def error_finding(check: str, what: str, why: str = "", do: str = "") -> DoctorFinding:
    return DoctorFinding(check, Severity.ERROR, what, why, do)


def warning_finding(check: str, what: str, why: str = "", do: str = "") -> DoctorFinding:
    return DoctorFinding(check, Severity.WARNING, what, why, do)


def note_finding(check: str, what: str, why: str = "", do: str = "") -> DoctorFinding:
    return DoctorFinding(check, Severity.NOTE, what, why, do)


def compute_exit_code(findings: Iterable[DoctorFinding]) -> int:
    """Return the doctor's exit code: 0 without problems, 1 with warnings, 2 with errors."""
    return max((int(finding.severity) for finding in findings), default=0)


def sort_by_severity(findings: Iterable[DoctorFinding]) -> list[DoctorFinding]:
    return sorted(findings, key=lambda finding: -finding.severity)


def format_findings(findings: Sequence[DoctorFinding], width: int) -> str:
    """Format findings as paragraphs, most severe first, followed by a summary."""
    return "\n\n".join(
        [*(_format_finding(each, width) for each in sort_by_severity(findings)), summarize_findings(findings)]
    )


def _format_finding(finding: DoctorFinding, width: int) -> str:
    why = finding.why[:1].upper() + finding.why[1:]
    counts_text = " ".join(_append_period(part) for part in (finding.what, why) if part)
    label = f"{finding.severity.name:<8} "
    lines = textwrap.wrap(
        counts_text, max(width, 40), initial_indent=label, subsequent_indent=" " * len(label), break_on_hyphens=False
    )
    if finding.do:  # on its own line, so that it can be copied
        lines.append(f"{' ' * len(label)}-> {finding.do}")
    return "\n".join(lines)


def _append_period(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def summarize_findings(findings: Iterable[DoctorFinding]) -> str:
    counts = dict.fromkeys(Severity, 0)
    unseen = False
    for finding in findings:
        counts[finding.severity] += 1
        unseen = unseen or finding.check == UNCOLLECTED
    if not counts[Severity.ERROR] and not counts[Severity.WARNING]:
        return "No problems found in the facts that were collected." if unseen else "No problems found."
    counts_text = [
        pluralize(counts[severity], severity.name.lower())
        for severity in (Severity.ERROR, Severity.WARNING)
        if counts[severity]
    ]
    return f"{' and '.join(counts_text)}."


def findings_to_json(findings: Sequence[DoctorFinding]) -> list[dict[str, Any]]:
    return [msgspec.to_builtins(each) | {"severity": each.severity.name.lower()} for each in sort_by_severity(findings)]


def abbreviate_names(names: Sequence[object], limit: int = NAMES_SHOWN) -> str:
    """Join the first names of a list: `a, b, c and 7 more`."""
    shown = ", ".join(str(name) for name in names[:limit])
    return f"{shown} and {len(names) - limit} more" if len(names) > limit else shown
