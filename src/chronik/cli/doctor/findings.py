"""What is wrong, why it matters, and what mends it. One finding is one paragraph."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Any, Final

import msgspec

from chronik.wording import counted

NAMES_SHOWN: Final = 5
"""Of things that are wrong in the same way; --json has them all where they are few hundred."""


UNSEEN: Final = "not-seen"
"""The check of what could not be looked at."""


class Severity(IntEnum):
    NOTE = 0
    """Good to know; nothing to do, or only perhaps."""
    WARNING = 1
    """It works, and will not for ever, or not after the next fault."""
    ERROR = 2
    """Something does not work, or is in danger now."""


class Finding(msgspec.Struct, frozen=True):
    check: str
    """The name of what was looked at, for programs."""
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
    """0: fine, 1: there are warnings, 2: there are errors."""
    return max((int(finding.severity) for finding in findings), default=0)


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: -finding.severity)


def paragraphs(findings: Sequence[Finding], width: int) -> str:
    """Makes text for people: a paragraph for each, and the verdict at the end."""
    return "\n\n".join([*(_paragraph(each, width) for each in worst_first(findings)), verdict(findings)])


def _paragraph(finding: Finding, width: int) -> str:
    why = finding.why[:1].upper() + finding.why[1:]
    told = " ".join(_ended(part) for part in (finding.what, why) if part)
    label = f"{finding.severity.name:<8} "
    lines = textwrap.wrap(
        told, max(width, 40), initial_indent=label, subsequent_indent=" " * len(label), break_on_hyphens=False
    )
    if finding.do:  # on a line of its own, so that it can be copied
        lines.append(f"{' ' * len(label)}-> {finding.do}")
    return "\n".join(lines)


def _ended(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def verdict(findings: Iterable[Finding]) -> str:
    counts = dict.fromkeys(Severity, 0)
    unseen = False
    for finding in findings:
        counts[finding.severity] += 1
        unseen = unseen or finding.check == UNSEEN
    if not counts[Severity.ERROR] and not counts[Severity.WARNING]:
        return "Nothing is wrong with what was seen." if unseen else "Nothing is wrong."
    told = [
        counted(counts[severity], severity.name.lower())
        for severity in (Severity.ERROR, Severity.WARNING)
        if counts[severity]
    ]
    return f"{' and '.join(told)}."


def to_json(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    return [msgspec.to_builtins(each) | {"severity": each.severity.name.lower()} for each in worst_first(findings)]


def some(names: Sequence[object], limit: int = NAMES_SHOWN) -> str:
    """Names a few of many: `a, b, c and 7 more`."""
    shown = ", ".join(str(name) for name in names[:limit])
    return f"{shown} and {len(names) - limit} more" if len(names) > limit else shown
