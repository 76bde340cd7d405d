"""SASL gate in front of the router: rejects requests of unauthenticated connections on SASL listeners.

The gate only reads the API key of a frame. A client whose session has expired may reauthenticate (KIP-368) and do
nothing else.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from chronik.limits import UNAUTHENTICATED_FRAME_BYTES_MAX
from chronik.protocol.apis import API_VERSIONS_KEY, APIS, SASL_AUTHENTICATE_KEY, SASL_HANDSHAKE_KEY
from chronik.request_reply import ConnectedClient, Disconnect, Dispatch, Reply
from chronik.security.sasl.authenticator import Authenticator
from chronik.security.sasl.session import SaslSession

_SIZE: Final = struct.Struct(">i")

_SASL_KEYS: Final = frozenset({SASL_HANDSHAKE_KEY, SASL_AUTHENTICATE_KEY})
_UNAUTHENTICATED_KEYS: Final = _SASL_KEYS | {API_VERSIONS_KEY}


class AuthenticationGate:
    """A filter that forwards only requests of authenticated connections to the router."""

    def __init__(
        self, dispatch: Dispatch, authenticator: Authenticator, sessions: Mapping[str, Callable[[], SaslSession]]
    ) -> None:
        """Create the gate; `sessions` creates the SASL sessions of each listener that requires authentication."""
        self._dispatch = dispatch
        self._authenticator = authenticator
        self._sessions = sessions

    def dispatch(self, frame: bytearray, peer: ConnectedClient) -> Reply[Any]:
        """Forward a request to the router if its connection is authenticated or the request authenticates it.

        Raises:
            Disconnect: The client must authenticate first, or its session has expired.
        """
        session = self._get_session(peer)
        if session is None:
            return self._dispatch(frame, peer)
        if session.expects_bare_messages:
            if len(frame) > UNAUTHENTICATED_FRAME_BYTES_MAX:  # an authenticated connection has no frame size limit
                raise Disconnect(f"SASL message of {len(frame)} bytes exceeds {UNAUTHENTICATED_FRAME_BYTES_MAX} bytes")
            return self._handle_raw_sasl_token(session, peer, bytes(frame))
        key = int.from_bytes(frame[:2], "big", signed=True)
        if not session.is_authenticated:
            if key not in _UNAUTHENTICATED_KEYS:
                raise Disconnect(f"{_get_api_name(key)} request before authentication: check security.protocol")
        elif key not in _SASL_KEYS and session.is_expired(self._authenticator.monotonic()):
            raise Disconnect(f"session of {session.principal} expired without reauthentication")
        return self._dispatch(frame, peer)

    def _get_session(self, peer: ConnectedClient) -> SaslSession | None:
        session = peer.session
        if session is None:
            create_session = self._sessions.get(peer.listener)
            session = peer.session = create_session() if create_session is not None else None
        assert session is None or isinstance(session, SaslSession)
        return session

    def _handle_raw_sasl_token(self, session: SaslSession, peer: ConnectedClient, data: bytes) -> Reply[Any]:
        """Handle a SASL token that a client sends without a SaslAuthenticate request (SaslHandshake v0)."""
        reply: Reply[Any] = Reply()

        async def answer() -> None:
            try:
                outcome = await self._authenticator.respond(session, peer, data)
                if outcome.error is not None:
                    raise Disconnect(outcome.rejection_reason)
                if session.principal is not None and not session.expects_bare_messages:
                    peer.set_authenticated(session.principal)
            except Exception as error:
                reply.disconnect(error)
            else:
                reply.complete([_SIZE.pack(len(outcome.data)) + outcome.data])

        task = asyncio.ensure_future(answer())
        reply.on_cancel = task.cancel  # type: ignore[assignment]
        return reply


def _get_api_name(key: int) -> str:
    return APIS[key].name if key in APIS else "unknown"
