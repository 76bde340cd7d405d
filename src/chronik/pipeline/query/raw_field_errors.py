"""Error messages for statements that use a JSON field of a raw topic, whose values are bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from chronik.errors import ChronikError
from chronik.pipeline.tables.layout import RESERVED_NAMES, VALUE

NO_SUCH_COLUMN = "UNRESOLVED_COLUMN"
NOT_A_STRUCT = "INVALID_EXTRACT_BASE_FIELD_TYPE"
"""Spark's error conditions for an unknown column, and for a field access on a column that has no fields."""


class RawFieldError(ChronikError):
    """A statement uses a JSON field of a raw topic. The message says how to read it."""


class RawTopic(NamedTuple):
    """A topic whose values are bytes, and whether it has a table."""

    topic: str
    has_landed: bool


def explain_raw_field(condition: str, name: Sequence[str], raw: Mapping[str, RawTopic]) -> RawFieldError | None:
    """Explain an analysis error of Spark if it is due to a field of a raw topic; return None otherwise.

    Args:
        condition: Spark's error condition.
        name: The parts of the name that Spark could not resolve, perhaps with a qualifier.
        raw: The raw topics in the statement, by the names of their views.
    """
    if not name or not raw:
        return None
    if condition == NOT_A_STRUCT and name[-1] == VALUE:
        return _build_error("…", _find_topic(name[:-1], raw))
    if condition.startswith(NO_SUCH_COLUMN) and name[-1] not in RESERVED_NAMES:
        return _build_error(name[-1], _find_topic(name[:-1], raw))
    return None


def _find_topic(before: Sequence[str], raw: Mapping[str, RawTopic]) -> RawTopic:
    """Return the raw topic that a qualifier refers to; if it is an alias, the first raw topic of the statement."""
    by_name = {view.casefold(): each for view, each in raw.items()}
    return next((by_name[part.casefold()] for part in before if part.casefold() in by_name), next(iter(raw.values())))


def _build_error(field: str, raw: RawTopic) -> RawFieldError:
    topic = raw.topic
    state = f"{topic} has landed in raw format" if raw.has_landed else f"{topic} has not landed"
    commands = (
        f"chronik topics alter {topic} -c columnar.format=json, and chronik pipeline run into another --table-root (a "
        "table keeps its format)"
        if raw.has_landed
        else f"chronik topics alter {topic} -c columnar.enabled=true -c columnar.format=json, and chronik pipeline run"
    )
    return RawFieldError(
        f"there is no column {field}: {state}, so its values are bytes in column {VALUE}. To read the field now, use "
        f"get_json_object(CAST({VALUE} AS STRING), '$.{field}'); to get columns, land the topic as JSON: {commands}"
    )
