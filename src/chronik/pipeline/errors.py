"""What can go wrong between a topic and Spark, one sentence each."""

from __future__ import annotations

from chronik.errors import ChronikError


class OptionError(ChronikError):
    """An option of the source or the sink is missing, malformed, or contradicts another."""


class DataLoss(ChronikError):
    """Records that were to be read are gone: deleted by retention, truncated, or their partition was deleted."""


class SchemaError(ChronikError):
    """The rows to be written do not have the columns that a record is made of."""


class EpochDiffers(ChronikError):
    """A micro-batch that is written exactly once was run again with other rows, or with these in other tasks."""
