"""What a client takes of a listener from when it is accepted until it is gone, its TLS handshake included; and how many
there were."""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class Place(NamedTuple):
    host: str
    waits_until: float
    """By the loop's clock: before that no request of its client is handled."""


class Comings(msgspec.Struct):
    """The clients of one listener since the node started."""

    accepted: int = 0
    refused: int = 0
    """Of whom there were too many, by any limit; before a TLS handshake or after it."""
    open: int = 0
    throttled: int = 0
    """Those that were let in and had to wait, as too many came in a second."""
    throttled_seconds: float = 0.0
