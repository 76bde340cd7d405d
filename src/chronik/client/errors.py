"""Why a broker's answer did not come, one sentence each. What a broker answers is a KafkaError instead."""

from __future__ import annotations

from chronik.errors import ChronikError


class ClientError(ChronikError):
    """A request could not be made, or its answer did not come."""


class BrokerUnreachable(ClientError):
    """No connection could be made: the request was never sent."""


class BrokerUnresponsive(BrokerUnreachable):
    """The port accepted the connection, and then no answer came: the process is stopped or overloaded."""

    def __init__(self, address: object, seconds: float) -> None:
        super().__init__(
            f"{address} accepts connections, but does not answer within {seconds:g} s: "
            "its process is stopped or overloaded"
        )


class ConnectionLost(ClientError):
    """The connection ended before the answer came: whether the request took effect is unknown."""


class RequestTimedOut(ConnectionLost):
    """The answer did not come in time: whether the request took effect is unknown."""


class ApiNotSupported(ClientError):
    """The broker speaks no version of the API that we speak."""


class LoginRefused(ClientError):
    """The broker is there, and does not let us in: the name, the password or the token is not right."""
