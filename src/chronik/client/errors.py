"""Errors of requests without a usable response. An error code in a response is a KafkaError instead."""

from __future__ import annotations

from chronik.errors import ChronikError


class ClientError(ChronikError):
    """A request could not be sent, or received no usable response."""


class BrokerUnreachable(ClientError):
    """No connection to the broker could be established; the request was not sent."""


class BrokerUnresponsive(BrokerUnreachable):
    """The broker accepted the connection but did not respond. Its process may be suspended or overloaded."""

    def __init__(self, address: object, seconds: float) -> None:
        super().__init__(
            f"{address} accepts connections but did not respond within {seconds:g} s: "
            "its process is stopped or overloaded"
        )


class ConnectionLost(ClientError):
    """The connection closed before the response arrived; the request may have taken effect."""


class RequestTimedOut(ConnectionLost):
    """The response did not arrive in time; the request may have taken effect."""


class ApiNotSupported(ClientError):
    """The client and the broker have no common version of the API."""


class LoginFailed(ClientError):
    """The broker rejected the login: invalid user name, password or token, or an unsupported mechanism."""
