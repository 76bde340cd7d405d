"""Why a topic does not land, one sentence each."""

from __future__ import annotations

from chronik.errors import ChronikError


class LandingFailed(ChronikError):
    """Some topics did not land; the message names them and says why."""


class RecordsGone(ChronikError):
    """Records that the table does not have yet are gone from the topic."""


class PartitionShorter(ChronikError):
    """A partition ends before the table does: a new leader may not know yet how far it is, or records were lost."""


class SparkGone(ChronikError):
    """The Spark that ran the jobs has ended, or is out of reach."""
