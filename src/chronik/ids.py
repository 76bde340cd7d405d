"""Topic, directory and incarnation ids: 16 raw bytes inside, Kafka's 22 characters outside."""

from __future__ import annotations

import base64
import uuid

ZERO_ID = bytes(16)


def new_id() -> bytes:
    """Returns a random id that, like Kafka's, never starts with a dash when written down."""
    while True:
        value = uuid.uuid4().bytes
        if not format_id(value).startswith("-"):
            return value


def format_id(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def parse_id(text: str) -> bytes:
    """Raises ValueError unless `text` is what `format_id` returns."""
    value = base64.urlsafe_b64decode(text + "==")
    if len(value) != 16 or format_id(value) != text:
        raise ValueError(f"not an id: {text!r}")
    return value
