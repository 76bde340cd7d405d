"""UnregisterBroker: remove the registration of a broker that will not return."""

from __future__ import annotations

from chronik.protocol.schema import Request, Response, int16, int32, string


class UnregisterBrokerRequest(Request):
    broker_id: int = int32("0+")


class UnregisterBrokerResponse(Response):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
