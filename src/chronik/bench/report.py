"""Formatting of results as tables and as JSON. The fields of results end with their unit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, fields, is_dataclass
from typing import Any

SIGNIFICANT_DIGITS = 4


def format_json(results: list[Any]) -> str:
    values = [asdict(result) for result in results]
    return json.dumps(values[0] if len(values) == 1 else values, indent=2)


def format_table(results: list[Any]) -> str:
    """Format results as a table with one column per result."""
    columns = [dict(_iter_cells(result)) for result in results]
    rows = [[name, *(column[name] for column in columns)] for name in columns[0]]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for name, *texts in rows:
        aligned = (text.rjust(width) for text, width in zip(texts, widths[1:], strict=True))
        lines.append("  ".join([name.ljust(widths[0]), *aligned]))
    return "\n".join(lines)


def _iter_cells(result: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    for field in fields(result):
        value = getattr(result, field.name)
        if is_dataclass(value):
            yield from _iter_cells(value, f"{prefix}{field.name} ")
        elif value is not None:
            yield prefix + field.name.replace("_", " "), format_number(value)


def format_number(value: Any) -> str:
    """Format a number with four significant digits, such as 1,234,567, 12.35 or 0.0512."""
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else str(value)
    if abs(value) >= 10 ** (SIGNIFICANT_DIGITS - 1):
        return f"{value:,.0f}"
    text = f"{value:.{SIGNIFICANT_DIGITS}g}"
    return text if "e" not in text else f"{value:.6f}"
