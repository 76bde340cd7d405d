"""Generates the tables of `docs/reference/metrics.md`: `python -m chronik.console.metrics.listing`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from chronik.console.metrics.families import SECTIONS, MetricFamily

PAGE: Final = Path("docs", "reference", "metrics.md")
"""Path of the documentation page that lists the metrics, relative to the repository root."""

GENERATED_MARK: Final = "<!-- generated from here on by `.venv/bin/python -m chronik.console.metrics.listing` -->"
"""Marker between the handwritten part of the documentation page and the generated tables below it."""


def format_metric_tables() -> str:
    """Format the documentation tables of all Prometheus metrics as Markdown."""
    return "\n".join(
        [
            GENERATED_MARK,
            *(line for section in SECTIONS for line in _format_section(section.title, section.families)),
            "",
        ]
    )


def update_page(before: str) -> str:
    """Return the text of the metrics documentation page with its generated tables updated."""
    handwritten, _, _ = before.partition(GENERATED_MARK)
    return handwritten + format_metric_tables()


def _format_section(title: str, families: tuple[MetricFamily, ...]) -> Iterator[str]:
    yield from ("", f"## {title}", "", "| name | type | labels | description |", "|---|---|---|---|")
    for family in families:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        yield f"| `{family.name}` | {family.kind} | {labels} | {family.help} |"


if __name__ == "__main__":
    PAGE.write_text(update_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
