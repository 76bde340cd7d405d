"""Errors that are not answers to a client: whose fault they are, one sentence each.

What a client is told stands in `chronik.protocol.errors`.
"""

from __future__ import annotations


class ChronikError(Exception):
    """Anything that Chronik raises on purpose."""


class ConfigError(ChronikError):
    """The configuration is wrong; the message names the file, the key and what is expected there."""


class DataFolderInUse(ChronikError):
    """Another process holds the data folder."""


class StorageFailed(ChronikError):
    """A write or a sync failed: what is on disk is no longer known, so the node must stop."""


class DataDamaged(ChronikError):
    """Bytes that were once synced no longer read back as they were written."""


class InvariantBroken(ChronikError):
    """A thing that cannot happen did: a bug in Chronik."""


def invariant(condition: bool, message: str) -> None:
    """An assertion that stays on in production (`python -O` strips `assert`)."""
    if not condition:
        raise InvariantBroken(message)
