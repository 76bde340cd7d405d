"""SaslHandshake: select a SASL mechanism; from version 1 on SaslAuthenticate follows."""

from __future__ import annotations

from chronik.protocol.schema import Request, Response, array, int16, string


class SaslHandshakeRequest(Request):
    mechanism: str = string("0+")


class SaslHandshakeResponse(Response):
    error_code: int = int16("0+")
    mechanisms: list[str] = array(string, "0+")
