"""Schemas as TOML, in the format that `read_schema` reads."""

from __future__ import annotations

import json
import re
from typing import Any

from chronik.pipeline.tables.values.table_schema import TableSchema, build_schema_document


def format_schema_toml(schema: TableSchema) -> str:
    """Return a schema as a TOML document."""
    document = build_schema_document(schema)
    tables = [(name, document.pop(name)) for name in ("columns", "properties") if name in document]
    lines = [f"{name} = {_format_value(value)}" for name, value in document.items()]
    for name, content in tables:
        lines += ["", f"[{name}]", *(f"{_format_key(key)} = {_format_value(value)}" for key, value in content.items())]
    return "\n".join(lines) + "\n"


def _format_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _format_text(key)


def _format_value(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_format_key(key)} = {_format_value(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_format_value, value)) + "]"
    return _format_text(value) if isinstance(value, str) else json.dumps(value)


def _format_text(text: str) -> str:
    # TOML's basic strings have JSON's escapes, but JSON leaves the delete character as it is.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
