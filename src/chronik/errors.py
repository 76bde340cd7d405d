"""Errors that are not answers to a client: whose fault they are, one sentence each.

What a client is told is in `chronik.protocol.errors`.
"""

from __future__ import annotations

from collections.abc import Iterator


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


class BadMessage(ChronikError):
    """A peer sent bytes that are no message of ours, or one that contradicts itself."""


class InvariantBroken(ChronikError):
    """A thing that cannot happen did: a bug in Chronik."""


def reason_of(error: BaseException) -> BaseException:
    """Returns the one error behind a group of errors: people are told why a node stops, not that several tasks ended.
    A failed disk comes first, for the rest follows from it."""
    leaves = list(_leaves(error))
    return next((leaf for leaf in leaves if isinstance(leaf, StorageFailed)), leaves[0])


def unexpected(error: BaseException) -> BaseException | None:
    """Return the error if a traceback helps to explain it, to be passed to a log call as `exc_info`.

    Failures of the operating system (a full disk, no descriptors) and errors that Chronik raises on purpose are
    expected: their message says everything. Every other error is a bug, whose traceback is needed.
    """
    return None if all(map(_is_expected, _leaves(error))) else error


def _is_expected(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno is not None  # asyncio's TimeoutError has none
    return isinstance(error, ChronikError) and not isinstance(error, InvariantBroken)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error


def invariant(condition: bool, message: str) -> None:
    """An assertion that stays on in production (`python -O` strips `assert`)."""
    if not condition:
        raise InvariantBroken(message)
