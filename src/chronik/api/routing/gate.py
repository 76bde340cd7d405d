"""The gate before the router, where a listener asks for SASL: nothing else is answered until a client is let in.

What comes in a frame is looked at no further than its API's key. A client that was let in for a time only, and whose
time is over, may say again who it is, and nothing else.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from chronik.exchange import Disconnect, Dispatch, Peer, Reply
from chronik.limits import UNAUTHENTICATED_FRAME_BYTES_MAX
from chronik.protocol.apis import API_VERSIONS_KEY, APIS, SASL_AUTHENTICATE_KEY, SASL_HANDSHAKE_KEY
from chronik.security.sasl.authenticator import Authenticator
from chronik.security.sasl.session import Session

_SIZE: Final = struct.Struct(">i")

_TO_SAY_WHO: Final = frozenset({SASL_HANDSHAKE_KEY, SASL_AUTHENTICATE_KEY})
_BEFORE: Final = _TO_SAY_WHO | {API_VERSIONS_KEY}


class Gate:
    def __init__(
        self, dispatch: Dispatch, authenticator: Authenticator, sessions: Mapping[str, Callable[[], Session]]
    ) -> None:
        """`sessions` are made by listener: those of others need not say who they are."""
        self._dispatch = dispatch
        self._authenticator = authenticator
        self._sessions = sessions

    def dispatch(self, frame: bytearray, peer: Peer) -> Reply[Any]:
        """Raises Disconnect."""
        session = self._session(peer)
        if session is None:
            return self._dispatch(frame, peer)
        if session.expects_tokens:
            if len(frame) > UNAUTHENTICATED_FRAME_BYTES_MAX:  # the connection has no limit any more once it is let in
                raise Disconnect(f"a message of SASL in {len(frame)} bytes")
            return self._bare(session, peer, bytes(frame))
        key = int.from_bytes(frame[:2], "big", signed=True)
        if not session.is_let_in:
            if key not in _BEFORE:
                raise Disconnect(f"{_named(key)} came before it had said who it is: is security.protocol right?")
        elif key not in _TO_SAY_WHO and session.is_expired(self._authenticator.monotonic()):
            raise Disconnect(f"the session of {session.principal} has expired, and it did not authenticate again")
        return self._dispatch(frame, peer)

    def _session(self, peer: Peer) -> Session | None:
        session = peer.session
        if session is None:
            make = self._sessions.get(peer.listener)
            session = peer.session = make() if make is not None else None
        assert session is None or isinstance(session, Session)
        return session

    def _bare(self, session: Session, peer: Peer, data: bytes) -> Reply[Any]:
        """Answer a message of the mechanism that is not wrapped in a request."""
        reply: Reply[Any] = Reply()

        async def answer() -> None:
            try:
                found = await self._authenticator.answer(session, peer, data)
                if found.error is not None:
                    raise Disconnect(found.why)
                if session.principal is not None and not session.expects_tokens:
                    peer.let_in(session.principal)
            except Exception as error:
                reply.disconnect(error)
            else:
                reply.ready([_SIZE.pack(len(found.data)) + found.data])

        task = asyncio.ensure_future(answer())
        reply.on_cancel = task.cancel  # type: ignore[assignment]
        return reply


def _named(key: int) -> str:
    return APIS[key].name if key in APIS else "what is no request"
