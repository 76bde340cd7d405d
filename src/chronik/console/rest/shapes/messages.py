"""Messages: read, searched, followed and produced."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from chronik.console.rest.shapes.common import Body, Index, Int64, Limit

Position = Annotated[str, msgspec.Meta(min_length=1, max_length=6000)]
"""The `next` of a topic of several hundred partitions has room in it."""
Format = Literal["text", "json", "base64"]


class Shown(msgspec.Struct):
    kind: Literal["json", "text", "bytes", "null"]
    text: str | None
    """JSON as it was sent, text, or bytes in base64."""
    truncated: bool = False


class ShownHeader(msgspec.Struct):
    name: str
    value: Shown


class Message(msgspec.Struct):
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: Literal["create", "append"]
    key: Shown
    value: Shown
    headers: list[ShownHeader]
    size: int
    """Of key, value and headers, in bytes."""
    transactional: bool
    control: bool


class ReadMessages(msgspec.Struct, kw_only=True):
    partition: Index | None = None
    """All of them, unless one is named."""
    from_: Position = msgspec.field(name="from", default="-50")
    """start, end, an offset, -N for the last N of each partition, @TIME for a time (ISO 8601, or milliseconds since
    1970), or the `next` of the page before."""
    limit: Limit = 50
    isolation: Literal["committed", "uncommitted"] = "committed"
    format: Literal["auto", "text", "bytes"] = "auto"
    """How keys and values are shown."""


class Messages(msgspec.Struct):
    items: list[Message]
    """In the order of their timestamps; those of one partition in the order of their offsets."""
    next: str | None
    """What to give as `from` to read on; null when there is no more at the moment."""
    ends: dict[int, int]
    """Where each partition ends now."""


class SearchMessages(msgspec.Struct, kw_only=True):
    text: Annotated[str, msgspec.Meta(min_length=1, max_length=500)]
    """What key, value or a header contains, byte by byte in UTF-8."""
    partition: Index | None = None
    from_: Position = msgspec.field(name="from", default="start")
    until: Position = "end"
    """Where it ends: end (as it is now), an offset, or @TIME."""
    isolation: Literal["committed", "uncommitted"] = "committed"
    max_messages: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)] = 1_000_000
    """How many are looked at."""
    max_matches: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 100
    max_seconds: Annotated[int, msgspec.Meta(ge=1, le=300)] = 30


class Progress(msgspec.Struct):
    scanned: int
    bytes: int
    matches: int


class SearchEnd(msgspec.Struct):
    why: Literal["end", "messages", "matches", "seconds", "error"]
    """end: all was looked at. Otherwise the budget that is used up, or what went wrong."""
    scanned: int
    matches: int
    error: str | None = None


class TailMessages(msgspec.Struct, kw_only=True):
    partition: Index | None = None
    isolation: Literal["committed", "uncommitted"] = "committed"
    format: Literal["auto", "text", "bytes"] = "auto"


class Skipped(msgspec.Struct):
    count: int
    """Messages that were not shown, as there were too many."""


class SentHeader(Body):
    name: str
    value: str | None = None


class NewMessage(Body, kw_only=True):
    partition: Index | None = None
    """null: by the key, as all Kafka clients choose it."""
    key: str | None = None
    value: str | None = None
    """null: a tombstone."""
    headers: list[SentHeader] = []
    key_format: Format | None = None
    """How `key` is written; text unless said. json: it is checked and sent as it is written."""
    value_format: Format | None = None
    timestamp_ms: Int64 | None = None


class Produced(msgspec.Struct):
    partition: int
    offset: int
