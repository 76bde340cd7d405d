"""The protocol between tests and drivers: one JSON object per line, bytes as base64.

A request is `{"id", "command", "arguments"}`, a response `{"id", "result"}` or `{"id", "error": {"name", "message"}}`.
The error name is Kafka's (`TOPIC_ALREADY_EXISTS`) if the client reports it.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Header = tuple[str, bytes | None]


def encode_bytes(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def decode_bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


@dataclass(frozen=True)
class Record:
    """A record to write. `partition` None lets the client choose; `timestamp_ms` None uses the current time."""

    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "key": encode_bytes(self.key),
            "value": encode_bytes(self.value),
            "headers": [[name, encode_bytes(value)] for name, value in self.headers],
            "partition": self.partition,
            "timestamp_ms": self.timestamp_ms,
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Record:
        return cls(
            key=decode_bytes(fields["key"]),
            value=decode_bytes(fields["value"]),
            headers=tuple((name, decode_bytes(value)) for name, value in fields["headers"]),
            partition=fields["partition"],
            timestamp_ms=fields["timestamp_ms"],
        )


@dataclass(frozen=True)
class ReceivedRecord:
    """A record as a consumer returned it; `timestamp_ms` is None if the client does not report one."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    timestamp_ms: int | None

    def to_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "key": encode_bytes(self.key),
            "value": encode_bytes(self.value),
            "headers": [[name, encode_bytes(value)] for name, value in self.headers],
            "timestamp_ms": self.timestamp_ms,
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> ReceivedRecord:
        return cls(
            topic=fields["topic"],
            partition=fields["partition"],
            offset=fields["offset"],
            key=decode_bytes(fields["key"]),
            value=decode_bytes(fields["value"]),
            headers=tuple((name, decode_bytes(value)) for name, value in fields["headers"]),
            timestamp_ms=fields["timestamp_ms"],
        )


class ExpectedRecords:
    """Collects received records until every topic has the expected number."""

    def __init__(self, wanted: dict[str, int]) -> None:
        self._missing = Counter(wanted)
        self._received: list[ReceivedRecord] = []

    def add(self, records: Iterable[ReceivedRecord]) -> None:
        for record in records:
            self._missing[record.topic] -= 1
            self._received.append(record)

    @property
    def complete(self) -> bool:
        return all(count <= 0 for count in self._missing.values())

    def to_json(self, problem: str | None = None) -> dict[str, Any]:
        """Return the records, also if some are missing, so that a test can name the topic."""
        if problem is None and not self.complete:
            problem = f"still missing at the deadline: {dict(+self._missing)}"
        return {"records": [record.to_json() for record in self._received], "problem": problem}
