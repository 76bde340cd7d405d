"""What can go wrong with a measurement."""

from __future__ import annotations

from chronik.errors import ChronikError


class BenchFailed(ChronikError):
    """The broker or the client did not do what was to be measured; the message says what."""


class ClientMissing(BenchFailed):
    """librdkafka is not installed."""

    def __init__(self) -> None:
        super().__init__("the load generator needs librdkafka: pip install 'chronik[bench]'")
