"""Limits of the client listeners: request sizes, connections and timeouts."""

from __future__ import annotations

import msgspec

from chronik import limits


class ListenerLimits(msgspec.Struct, frozen=True):
    """The limits of the client listeners of a node; tests lower them."""

    frame_bytes: int = limits.FRAME_BYTES_MAX
    frames_bytes: int = limits.FRAMES_BYTES_MAX
    frame_receive_seconds: float = limits.FRAME_RECEIVE_SECONDS_MAX
    frame_rate_seconds: float = limits.FRAME_RATE_SECONDS
    connections: int = limits.CONNECTIONS_MAX
    handshakes: int = limits.TLS_HANDSHAKES_MAX
    handshakes_per_address: int = limits.TLS_HANDSHAKES_PER_ADDRESS_MAX
    handshake_seconds: float = limits.TLS_HANDSHAKE_SECONDS_MAX
    idle_seconds: float = limits.CONNECTION_IDLE_SECONDS_MAX
    responses_bytes: int = limits.RESPONSES_BYTES_MAX
    response_stalled_seconds: float = limits.RESPONSE_STALLED_SECONDS_MAX
    unauthenticated_frame_bytes: int = limits.UNAUTHENTICATED_FRAME_BYTES_MAX
    authentication_seconds: float = limits.AUTHENTICATION_SECONDS_MAX
    linger_seconds: float = 5.0
    stop_seconds: float = 10.0
