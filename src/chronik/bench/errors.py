"""What can go wrong with a measurement."""

from __future__ import annotations

from chronik.errors import ChronikError
from chronik.wording import install_hint


class BenchFailed(ChronikError):
    """The broker or the client did not do what was to be measured; the message says what."""


class ClientMissing(BenchFailed):
    """librdkafka is not installed."""

    def __init__(self) -> None:
        super().__init__(f"the load generator needs librdkafka: {install_hint('bench')}")
