"""Points in time as of which a table is read: one of its versions, or the version that was current at a time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from chronik.errors import check_invariant


@dataclass(frozen=True, slots=True)
class AsOfVersion:
    """The version of a table with this number: of Delta's log, or the id of an Iceberg snapshot."""

    version: int

    def __str__(self) -> str:
        return f"version {self.version}"


@dataclass(frozen=True, slots=True)
class AsOfTime:
    """The version of a table that was current at this time, which has a time zone."""

    time: datetime

    def __post_init__(self) -> None:
        check_invariant(self.time.tzinfo is not None, f"time without a zone: {self.time!r}")

    def __str__(self) -> str:
        return f"time {format_time(self.time)}"


AsOf = AsOfVersion | AsOfTime


def format_time(time: datetime) -> str:
    """Return a time in UTC as in ISO 8601, for messages."""
    return time.astimezone(UTC).replace(tzinfo=None).isoformat(sep=" ") + " UTC"
