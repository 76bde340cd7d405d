"""Errors of measurements."""

from __future__ import annotations

from chronik.errors import ChronikError
from chronik.wording import format_install_hint


class BenchmarkError(ChronikError):
    """An error that stops a benchmark: the broker or the client did not behave as required."""


class LibrdkafkaNotInstalled(BenchmarkError):
    """The error that a benchmark requires librdkafka, which is not installed."""

    def __init__(self) -> None:
        super().__init__(f"the load generator requires librdkafka: {format_install_hint('bench')}")
