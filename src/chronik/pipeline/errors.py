"""Exceptions of the data pipeline."""

from __future__ import annotations

from chronik.errors import ChronikError


class OptionError(ChronikError):
    """An invalid source or sink option: missing, malformed, or in conflict with another option."""


class DataLossError(ChronikError):
    """Offsets that can no longer be read: deleted by retention, truncated, or in a deleted partition."""


class SchemaError(ChronikError):
    """Rows that cannot be written because their columns are not those of a Kafka record."""


class EpochMismatchError(ChronikError):
    """An exactly-once micro-batch that was retried with different rows or a different number of tasks."""
