"""Filters of messages: by text, key, header and conditions on values."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from chronik.console.messages.condition import Condition, parse_condition
from chronik.console.messages.text_search import TextPattern
from chronik.protocol.records import Record


class DecodedJson(NamedTuple):
    """The JSON of a typed key and value; None for those that are not typed or not decoded."""

    key: bytes | None = None
    value: bytes | None = None


class MessageFilter:
    """A filter of messages. A message must meet all parts of it."""

    def __init__(self, *, text: str = "", key: str | None = None, header: str = "", where: str = "") -> None:
        """Parse a filter.

        Args:
            text: A text that the key, the value or a header contains, regardless of case.
            key: The key, as text.
            header: The name of a header, or NAME=VALUE.
            where: A condition; see `parse_condition`.

        Raises:
            ConditionError: The condition is malformed.
        """
        self._text = TextPattern(text) if text else None
        self._key = key
        self._header_name, self._has_header_value, header_value = header.partition("=")
        self._header_value = header_value.encode()
        self._condition: Condition | None = parse_condition(where) if where.strip() else None

    @property
    def is_empty(self) -> bool:
        """Whether the filter matches all messages."""
        return self._text is None and self._key is None and not self._header_name and self._condition is None

    @property
    def needs_decoded_values(self) -> bool:
        """Whether the filter depends on the JSON of typed keys and values."""
        return self._text is not None or self._key is not None or self._condition is not None

    def may_match(self, records: bytes) -> bool:
        """Return False only if none of the encoded, untyped records can match."""
        return self._text is None or self._text.may_match(records)

    def matches(self, record: Record, partition: int, decoded: DecodedJson) -> bool:
        """Return whether a record matches. The cheapest parts of the filter are examined first."""
        if self._header_name and not self._has_header(record):
            return False
        if self._key is not None and not self._has_key(record, decoded):
            return False
        if self._text is not None and not self._contains_text(self._text, record, decoded):
            return False
        return self._condition is None or self._condition.is_met(_RecordFields(record, partition, decoded))

    def _has_header(self, record: Record) -> bool:
        return any(
            name == self._header_name and (not self._has_header_value or value == self._header_value)
            for name, value in record.headers
        )

    def _has_key(self, record: Record, decoded: DecodedJson) -> bool:
        return _to_text(record.key, decoded.key) == self._key

    def _contains_text(self, pattern: TextPattern, record: Record, decoded: DecodedJson) -> bool:
        for data, typed in ((record.value, decoded.value), (record.key, decoded.key)):
            if (data is not None and pattern.matches(data)) or (typed is not None and pattern.matches(typed)):
                return True
        return any(pattern.matches_text(name) or (value and pattern.matches(value)) for name, value in record.headers)


class _RecordFields:
    """The fields of a record for conditions."""

    def __init__(self, record: Record, partition: int, decoded: DecodedJson) -> None:
        self._record = record
        self._partition = partition
        self._decoded = decoded

    @property
    def numbers(self) -> Mapping[str, int]:
        record = self._record
        return {"partition": self._partition, "offset": record.offset, "timestamp": record.timestamp}

    def document(self, field: str) -> bytes | None:
        data, typed = self._get(field)
        return data if typed is None else typed

    def text(self, field: str) -> str | None:
        return _to_text(*self._get(field))

    def header(self, name: str) -> list[str | None]:
        return [_to_text(value, None) for each, value in self._record.headers if each == name]

    def _get(self, field: str) -> tuple[bytes | None, bytes | None]:
        if field == "key":
            return self._record.key, self._decoded.key
        return self._record.value, self._decoded.value


def _to_text(data: bytes | None, typed: bytes | None) -> str | None:
    """Return a key or value as text: a typed one as JSON or as the string that it is, and binary data as Base64."""
    if typed is not None:
        return msgspec.json.decode(typed, type=str) if typed[:1] == b'"' else typed.decode()
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return b64encode(data).decode()
