"""What a client takes of a listener from when it is accepted until it is gone, its TLS handshake included."""

from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    host: str
    waits_until: float
    """By the loop's clock: before that no request of its client is handled."""
