"""Models for reading, searching, tailing and producing messages."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from chronik.console.rest.models.common import Body, Index, Int64, Limit, Words
from chronik.formats.codec import ValueFormat

Position = Annotated[str, msgspec.Meta(min_length=1, max_length=6000)]
"""A position in a topic: start, end, an offset, a time, or the `next` value of a page. The maximum length fits the
`next` value of a topic with several hundred partitions."""
Format = Literal["text", "json", "base64"]


class ShownSchema(msgspec.Struct):
    """The schema that a typed key or value names."""

    id: int | None
    guid: str | None
    """The GUID, if the value names its schema by GUID instead of id."""
    format: ValueFormat | None
    """The format of the schema; null if the schema could not be read."""
    subject: str | None
    version: int | None
    """A version of `subject` that has the schema."""
    problem: str | None
    """Why the value was not decoded; null if it was."""


class Shown(msgspec.Struct):
    """A key, value or header value in displayable form."""

    kind: Literal["json", "text", "bytes", "null"]
    text: str | None
    """The original JSON, plain text, base64-encoded bytes, or the JSON form of a decoded value."""
    truncated: bool = False
    schema: ShownSchema | None = None
    """The schema, if this is a typed key or value and `format` is `auto`."""


class ShownHeader(msgspec.Struct):
    """A record header in a displayable form."""

    name: str
    value: Shown


class Message(msgspec.Struct):
    """A record of a topic."""

    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: Literal["create", "append"]
    key: Shown
    value: Shown
    headers: list[ShownHeader]
    size: int
    """Total size of key, value and headers in bytes."""
    transactional: bool
    control: bool


class MessageQuery(msgspec.Struct, kw_only=True):
    """The query parameters that select messages. Those that are given must all match."""

    partition: Index | None = None
    """The partition; null selects all partitions."""
    text: Words = ""
    """A text that the key, the value or a header contains, regardless of case. Typed keys and values and JSON escapes
    are decoded."""
    key: Words | None = None
    """The key as text."""
    header: Words = ""
    """The name of a header, or NAME=VALUE."""
    where: Words = ""
    """A condition on values, such as `$.customer.id = 7 and not $.paid exists`."""
    isolation: Literal["committed", "uncommitted"] = "committed"


class ReadMessages(MessageQuery, kw_only=True):
    """The query parameters for reading messages."""

    order: Literal["oldest", "newest"] = "oldest"
    """With `oldest`, read from the start position onwards, with `newest`, read backwards the messages before it."""
    from_: Position | None = msgspec.field(name="from", default=None)
    """The start position: start, end, an offset, @TIME (ISO 8601, or milliseconds since 1970), or the `next` or
    `previous` value of a page. With the order `oldest` also -N for the last N messages; the default is -50. With
    `newest`, the default is end."""
    until: Position | None = None
    """The position at which to stop: exclusive with the order `oldest`, inclusive with `newest`."""
    limit: Limit = 50
    max_seconds: Annotated[int, msgspec.Meta(ge=1, le=10)] = 2
    """Time after which a page is returned even if fewer messages match."""
    format: Literal["auto", "text", "bytes"] = "auto"
    """The display format of keys and values: with `auto`, typed ones (Avro, JSON Schema, Protobuf) are decoded. That
    requires the Read permission on a subject with their schema."""


class Messages(msgspec.Struct):
    """A page of messages."""

    items: list[Message]
    """The messages, sorted by timestamp as requested by `order`. Messages of one partition stay in offset order."""
    next: str | None
    """The `from` parameter with which to request the next page in the same order; null if nothing is left to read."""
    ends: dict[int, int]
    """The current end offset of each partition."""
    previous: str | None = None
    """The `from` parameter with which to request the messages before this page, in the opposite order; null if there
    are none."""
    is_complete: bool = True
    """Whether the page has `limit` messages or nothing is left to read. Otherwise the time was over: request `next`."""
    scanned: int = 0
    """The number of messages that were read."""
    scanned_bytes: int = 0


class ExportMessages(MessageQuery, kw_only=True):
    """The query parameters for downloading messages."""

    format: Literal["jsonl", "csv", "parquet"] = "jsonl"
    order: Literal["oldest", "newest"] = "oldest"
    from_: Position | None = msgspec.field(name="from", default=None)
    """The start position, as for reading messages, without -N; by default the first one in the order."""
    until: Position | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 1000
    """Maximum number of messages in the file."""


class ReadValue(msgspec.Struct, kw_only=True):
    """The query parameters for downloading a key or value."""

    field: Literal["key", "value", "header"] = "value"
    header: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 0
    """The index of the header, if `field` is `header`."""
    decoded: bool = False
    """Whether to return the JSON of a typed key or value instead of its bytes."""


class SearchMessages(MessageQuery, kw_only=True):
    """The query parameters for searching messages."""

    from_: Position = msgspec.field(name="from", default="start")
    until: Position = "end"
    """The end of the search: end (the current end offset), an offset, or @TIME."""
    max_messages: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)] = 1_000_000
    """Approximate maximum number of messages to scan."""
    max_matches: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 100
    max_seconds: Annotated[int, msgspec.Meta(ge=1, le=300)] = 30


class Progress(msgspec.Struct):
    """The progress of a search."""

    scanned: int
    bytes: int
    matches: int


class SearchEnd(msgspec.Struct):
    """The end of a search."""

    why: Literal["end", "messages", "matches", "seconds", "error"]
    """The reason why the search ended: `end` if all messages were scanned, the limit that was reached, or `error`."""
    scanned: int
    matches: int
    error: str | None = None


class TailMessages(MessageQuery, kw_only=True):
    """The query parameters for tailing a topic."""

    format: Literal["auto", "text", "bytes"] = "auto"


class Skipped(msgspec.Struct):
    """An event that reports a gap in a tailed topic: messages that were skipped because too many arrived."""

    count: int
    """Number of skipped messages."""


class SentHeader(Body):
    """A record header to produce."""

    name: str
    value: str | None = None


class NewMessage(Body, kw_only=True):
    """A record to produce."""

    partition: Index | None = None
    """The partition; null selects it by key, as Kafka's default partitioner does."""
    key: str | None = None
    value: str | None = None
    """The value; null produces a tombstone."""
    headers: list[SentHeader] = []
    key_format: Format | None = None
    """The encoding of `key`; text by default. A JSON key is validated and produced unchanged."""
    value_format: Format | None = None
    timestamp_ms: Int64 | None = None


class Produced(msgspec.Struct):
    """The position of a produced record."""

    partition: int
    offset: int
