"""The text of `chronik pipeline sql --explain`: a line per view and half, with the conditions below."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronik.cli.output import Cell, format_table
from chronik.wording import pluralize

if TYPE_CHECKING:
    from chronik.pipeline.query.explanation import QueryExplanation, ViewExplanation

HEADINGS = ("VIEW", "HALF", "FILES", "ROWS", "BYTES", "SKIPPED", "OFFSETS")


def format_explanation(found: QueryExplanation) -> str:
    """Format an explanation for people."""
    if not found.views:
        return "the query reads no topic"
    lines = [format_table(HEADINGS, [row for view in found.views for row in _list_rows(view)])]
    lines += [f"{view.view}: {' AND '.join(each) or 'all rows'}" for view in found.views for each in view.conditions]
    if found.reads_all_because is not None:
        lines.append(f"nothing is skipped: {found.reads_all_because}")
    return "\n".join(lines)


def _list_rows(view: ViewExplanation) -> list[tuple[Cell, ...]]:
    rows: list[tuple[Cell, ...]] = []
    if view.table is not None:
        skipped = ", ".join(
            f"{pluralize(totals.files, 'file')} by {reason}" for reason, totals in view.skipped.items() if totals.files
        )
        rows.append((view.view, "landed", view.read.files, view.read.rows, view.read.bytes, skipped, None))
    if view.tail or view.tail_skipped or view.table is None:
        ranges = ", ".join(f"{each.partition}: {each.start}-{each.end - 1}" for each in view.tail)
        skipped = pluralize(view.tail_skipped, "offset") if view.tail_skipped else ""
        rows.append((view.view, "tail", None, sum(each.size for each in view.tail), view.tail_bytes, skipped, ranges))
    return rows
