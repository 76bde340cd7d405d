"""Findings of `chronik doctor`: the problem, its effect and the fix. Each is printed as one paragraph."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Any, Final

import msgspec

from chronik.wording import counted

NAMES_SHOWN: Final = 5
"""Maximum number of names in a finding about several objects."""


UNSEEN: Final = "not-seen"
"""Name of the check that reports facts which could not be collected."""


class Severity(IntEnum):
    NOTE = 0
    """Information that requires no action."""
    WARNING = 1
    """A problem that reduces safety or will become an error."""
    ERROR = 2
    """A failure, or an immediate risk of data loss."""


class Finding(msgspec.Struct, frozen=True):
    check: str
    """Machine-readable name of the check."""
    severity: Severity
    what: str
    why: str = ""
    do: str = ""


def error(check: str, what: str, why: str = "", do: str = "") -> Finding:
    return Finding(check, Severity.ERROR, what, why, do)


def warning(check: str, what: str, why: str = "", do: str = "") -> Finding:
    return Finding(check, Severity.WARNING, what, why, do)


def note(check: str, what: str, why: str = "", do: str = "") -> Finding:
    return Finding(check, Severity.NOTE, what, why, do)


def exit_code(findings: Iterable[Finding]) -> int:
    """Return the exit code: 0 without problems, 1 with warnings, 2 with errors."""
    return max((int(finding.severity) for finding in findings), default=0)


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: -finding.severity)


def paragraphs(findings: Sequence[Finding], width: int) -> str:
    """Format findings as paragraphs, the most severe first, followed by the summary."""
    return "\n\n".join([*(_format_finding(each, width) for each in worst_first(findings)), verdict(findings)])


def _format_finding(finding: Finding, width: int) -> str:
    why = finding.why[:1].upper() + finding.why[1:]
    counts_text = " ".join(_with_period(part) for part in (finding.what, why) if part)
    label = f"{finding.severity.name:<8} "
    lines = textwrap.wrap(
        counts_text, max(width, 40), initial_indent=label, subsequent_indent=" " * len(label), break_on_hyphens=False
    )
    if finding.do:  # on its own line, so that it can be copied
        lines.append(f"{' ' * len(label)}-> {finding.do}")
    return "\n".join(lines)


def _with_period(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def verdict(findings: Iterable[Finding]) -> str:
    counts = dict.fromkeys(Severity, 0)
    unseen = False
    for finding in findings:
        counts[finding.severity] += 1
        unseen = unseen or finding.check == UNSEEN
    if not counts[Severity.ERROR] and not counts[Severity.WARNING]:
        return "No problems found in the facts that were collected." if unseen else "No problems found."
    counts_text = [
        counted(counts[severity], severity.name.lower())
        for severity in (Severity.ERROR, Severity.WARNING)
        if counts[severity]
    ]
    return f"{' and '.join(counts_text)}."


def to_json(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    return [msgspec.to_builtins(each) | {"severity": each.severity.name.lower()} for each in worst_first(findings)]


def some(names: Sequence[object], limit: int = NAMES_SHOWN) -> str:
    """Join the first names of a list: `a, b, c and 7 more`."""
    shown = ", ".join(str(name) for name in names[:limit])
    return f"{shown} and {len(names) - limit} more" if len(names) > limit else shown
