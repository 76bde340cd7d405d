"""SaslAuthenticate: exchange the messages of a SASL mechanism.

Version 1 returns the session lifetime.
"""

from __future__ import annotations

from chronik.protocol.schema import Request, Response, binary, int16, int64, string


class SaslAuthenticateRequest(Request):
    auth_bytes: bytes = binary("0+")

    def __repr__(self) -> str:
        return f"SaslAuthenticateRequest({len(self.auth_bytes)} bytes)"


class SaslAuthenticateResponse(Response):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    auth_bytes: bytes = binary("0+")
    session_lifetime_ms: int = int64("1+", ignorable=True)
