"""Errors of measurements."""

from __future__ import annotations

from chronik.errors import ChronikError
from chronik.wording import format_install_hint


class BenchmarkError(ChronikError):
    """A measurement failed: the broker or the client did not behave as required."""


class LibrdkafkaNotInstalled(BenchmarkError):
    """A measurement requires librdkafka, which is not installed."""

    def __init__(self) -> None:
        super().__init__(f"the load generator requires librdkafka: {format_install_hint('bench')}")
