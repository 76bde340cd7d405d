"""Topic, directory and incarnation ids: 16 bytes in memory, 22 base64url characters as text, as in Kafka."""

from __future__ import annotations

import base64
import uuid

ZERO_ID = bytes(16)
"""Id that means "no id" in Kafka's protocol."""


def generate_id() -> bytes:
    """Return a random id whose text form, as in Kafka, does not start with a dash."""
    while True:
        value = uuid.uuid4().bytes
        if not format_id(value).startswith("-"):
            return value


def format_id(value: bytes) -> str:
    """Return the id as 22 characters of unpadded base64url."""
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def parse_id(text: str) -> bytes:
    """Parse the text form of an id, as returned by `format_id`, to its 16 bytes.

    Raises:
        ValueError: The text is not a formatted id.
    """
    value = base64.urlsafe_b64decode(text + "==")
    if len(value) != 16 or format_id(value) != text:
        raise ValueError(f"not an id: {text!r}")
    return value
