"""Exceptions of the data pipeline."""

from __future__ import annotations

from chronik.errors import ChronikError


class OptionError(ChronikError):
    """An invalid source or sink option: missing, malformed, or in conflict with another option."""


class DataLossError(ChronikError):
    """Offsets can no longer be read: they were deleted by retention, truncated, or belong to a deleted partition."""


class SchemaError(ChronikError):
    """Rows cannot be written because their columns do not match those of a Kafka record."""


class EpochMismatchError(ChronikError):
    """An exactly-once micro-batch was retried with different rows or a different number of tasks."""
