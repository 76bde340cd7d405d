"""Cells of CSV files, protected against execution as formulas by spreadsheets."""

from __future__ import annotations

import re
from typing import Final

_FORMULA_START: Final = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
"""The first characters of cells that spreadsheets execute as formulas."""
_NUMBER: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_APOSTROPHE: Final = "'"


def format_csv_cell(text: str | None) -> str:
    """Return a cell of a CSV file: null is empty, and empty text is quoted."""
    if text is None:
        return ""
    return '"' + disable_formula(text).replace('"', '""') + '"'


def disable_formula(text: str) -> str:
    """Add an apostrophe before a text that could be a formula, so that spreadsheets do not execute it.

    Texts with apostrophes before a formula get another one, so that `restore_formula` can reverse this.
    """
    return _APOSTROPHE + text if _is_formula(text.lstrip(_APOSTROPHE)) else text


def restore_formula(text: str) -> str:
    """Remove the apostrophe that `disable_formula` has added."""
    return text[1:] if text.startswith(_APOSTROPHE) and _is_formula(text.lstrip(_APOSTROPHE)) else text


def _is_formula(text: str) -> bool:
    return text.startswith(_FORMULA_START) and not _NUMBER.fullmatch(text)
