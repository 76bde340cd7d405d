"""What to tell who asks a raw topic for a field of its JSON: that its values are bytes, and what to do. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from chronik.errors import ChronikError
from chronik.pipeline.tables.layout import RESERVED, VALUE

NO_SUCH_COLUMN = "UNRESOLVED_COLUMN"
NOT_A_STRUCT = "INVALID_EXTRACT_BASE_FIELD_TYPE"
"""Spark's conditions for a name that is no column, and for a field of what has none."""


class FieldOfRaw(ChronikError):
    """A statement asks for a field where there are only bytes; the message says how to get it."""


class RawTopic(NamedTuple):
    topic: str
    has_landed: bool


def field_of_raw(condition: str, name: Sequence[str], raw: Mapping[str, RawTopic]) -> FieldOfRaw | None:
    """`name` is what Spark could not resolve, part by part: a column, perhaps with what stands before it, or the column
    that has no fields. `raw` are the topics in the statement whose values are bytes, by the names of their views.
    Returns None when that is not what is wrong."""
    if not name or not raw:
        return None
    if condition == NOT_A_STRUCT and name[-1] == VALUE:
        return _told("…", _meant(name[:-1], raw))
    if condition.startswith(NO_SUCH_COLUMN) and name[-1] not in RESERVED:
        return _told(name[-1], _meant(name[:-1], raw))
    return None


def _meant(before: Sequence[str], raw: Mapping[str, RawTopic]) -> RawTopic:
    """A name before the column is a topic's, or an alias: then any raw topic may be meant."""
    by_name = {view.casefold(): each for view, each in raw.items()}
    return next((by_name[part.casefold()] for part in before if part.casefold() in by_name), next(iter(raw.values())))


def _told(field: str, raw: RawTopic) -> FieldOfRaw:
    topic = raw.topic
    state = f"{topic} landed raw" if raw.has_landed else f"{topic} has not landed"
    into = (
        f"chronik topics alter {topic} -c columnar.format=json, and chronik pipeline run into another --table-root (a "
        "table keeps its format)"
        if raw.has_landed
        else f"chronik topics alter {topic} -c columnar.enabled=true -c columnar.format=json, and chronik pipeline run"
    )
    return FieldOfRaw(
        f"there is no column {field}: {state}, so its values are bytes, in {VALUE}. "
        f"get_json_object(CAST({VALUE} AS STRING), '$.{field}') reads a field now; for columns, land it as JSON: {into}"
    )
