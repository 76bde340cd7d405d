"""The report of an audit as one HTML page, which loads nothing else and runs no scripts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Final

from chronik.pipeline.audit.findings import Finding
from chronik.pipeline.audit.report import AuditReport, Check
from chronik.wording import pluralize

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
"""Content security policy: names of topics and files come from the data that is audited."""

STYLE: Final = """
:root { color-scheme: light dark; --line: #8884; --bad: #c62828; --good: #2e7d32; --open: #b26a00 }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.4rem; margin-bottom: 0 }
h2 { font-size: 1.1rem; margin-top: 2rem }
table { border-collapse: collapse; width: 100% }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .6rem .3rem 0; text-align: left; vertical-align: top }
td { overflow-wrap: anywhere }
code { font: .85em ui-monospace, monospace }
.ok { color: var(--good) } .failed { color: var(--bad) } .open { color: var(--open) }
.result { font-size: 1.2rem; font-weight: 600 }
"""


def write_html_report(report: AuditReport, path: Path, now: datetime | None = None) -> None:
    """Write the report to a file, which is replaced in one step if it exists.

    Raises:
        OSError: The file cannot be written.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with partial.open("w", encoding="utf-8", errors="backslashreplace") as file:
            file.writelines(iter_html(report, now or datetime.now(UTC)))
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def iter_html(report: AuditReport, now: datetime) -> Iterator[str]:
    """Yield the parts of the page. `now` is the time of the report."""
    result = "failed" if report.findings else "open" if report.unchecked else "ok"
    yield (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">\n'
        f'<meta name="viewport" content="width=device-width">\n'
        f"<title>Audit: {escape(report.conclusion)}</title>\n<style>{STYLE}</style></head><body>\n"
        f"<h1>Audit of {escape(_describe_nodes(report))}</h1>\n<p>{now:%Y-%m-%d %H:%M:%S} UTC</p>\n"
        f'<p class="result {result}">{escape(report.conclusion)}</p>\n<p>{escape(report.totals)}</p>\n'
    )
    yield "<h2>Checks</h2>\n<table><tbody>\n"
    yield from map(_format_check, report.list_checks())
    yield "</tbody></table>\n"
    if report.findings:
        yield "<h2>Findings</h2>\n<table><thead><tr><th>#</th><th>Kind</th><th>Where</th><th>Problem</th></tr></thead>"
        yield "<tbody>\n"
        yield from (_format_finding(number, each) for number, each in enumerate(report.findings, 1))
        yield "</tbody></table>\n"
    yield from _format_list("Not checked", report.unchecked)
    yield from _format_list("Notes", report.notes)
    yield "</body></html>\n"


def _describe_nodes(report: AuditReport) -> str:
    names = ", ".join(map(str, report.nodes))
    return f"{'node' if len(report.nodes) == 1 else 'nodes'} {names}" if names else "no nodes"


def _format_check(check: Check) -> str:
    result = f'<td class="failed">{pluralize(check.findings, "finding")}' if check.findings else '<td class="ok">ok'
    return f"<tr>{result}</td><td>{escape(check.statement)}</td></tr>\n"


def _format_finding(number: int, finding: Finding) -> str:
    position = f"<br><code>{escape(finding.file_position)}</code>" if finding.file_position is not None else ""
    return (
        f"<tr><td>{number}</td><td><code>{escape(finding.kind)}</code></td><td>{escape(finding.location)}</td>"
        f"<td>{escape(finding.says)}{position}</td></tr>\n"
    )


def _format_list(title: str, entries: Iterable[str]) -> Iterator[str]:
    items = [f"<li>{escape(each)}</li>\n" for each in entries]
    if items:
        yield f"<h2>{title}</h2>\n<ul>\n{''.join(items)}</ul>\n"
