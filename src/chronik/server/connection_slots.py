"""Connection slots of a listener, held from accept to close, and connection statistics."""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class ConnectionSlot(NamedTuple):
    """A slot of an accepted client, held until its connection is closed, including the TLS handshake."""

    host: str
    throttled_until: float
    """Event-loop time before which no request of the client is handled (connection-rate throttling)."""


class ConnectionStats(msgspec.Struct):
    """Connection statistics of one listener since the node started."""

    accepted: int = 0
    rejected: int = 0
    """Connections rejected because of a limit, before or after the TLS handshake."""
    open: int = 0
    throttled: int = 0
    """Admitted connections that were delayed by the limit on the connection rate."""
    throttled_seconds: float = 0.0
