"""What a topic may be called."""

from __future__ import annotations

import re

from chronik.limits import TOPIC_NAME_LETTERS_MAX
from chronik.protocol.errors import ErrorCode, KafkaError

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+\Z")

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE})


def check_topic_name(name: str) -> None:
    """Raises INVALID_TOPIC_EXCEPTION."""
    if not name:
        problem = "a topic name cannot be empty"
    elif name in {".", ".."}:
        problem = "a topic name cannot be '.' or '..'"
    elif len(name) > TOPIC_NAME_LETTERS_MAX:
        problem = f"a topic name cannot have more than {TOPIC_NAME_LETTERS_MAX} letters"
    elif not _LEGAL.match(name):
        problem = f"{name!r} has letters other than a-z, A-Z, 0-9, '.', '_' and '-'"
    else:
        return
    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")
