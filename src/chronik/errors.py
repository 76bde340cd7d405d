"""Exceptions that are not error codes of the Kafka protocol: configuration, storage, peer and invariant errors.

Errors that a response reports to a client are in `chronik.protocol.errors`.
"""

from __future__ import annotations

from collections.abc import Iterator


class ChronikError(Exception):
    """Base class of all exceptions that Chronik defines."""


class ConfigError(ChronikError):
    """The configuration is invalid; the message names the source, the key and the expected value."""


class DataDirectoryInUse(ChronikError):
    """Another process has locked the data directory."""


class StorageError(ChronikError):
    """A write or fsync failed; the state of the files on disk is unknown, so the node must stop."""


class DamagedDataError(ChronikError):
    """Data that was synced to disk no longer matches its checksum."""


class InvalidPeerMessage(ChronikError):
    """A peer node sent bytes that cannot be decoded, or an inconsistent message."""


class InvariantError(ChronikError):
    """An internal invariant is violated, which is a bug in Chronik."""


def find_root_cause(error: BaseException) -> BaseException:
    """Return the most relevant exception of an exception group: a storage failure if there is one, else the first.

    A node logs this error as the reason why it stops. A storage failure usually causes the other errors.
    """
    leaves = list(_iter_leaf_exceptions(error))
    return next((leaf for leaf in leaves if isinstance(leaf, StorageError)), leaves[0])


def exc_info_if_unexpected(error: BaseException) -> BaseException | None:
    """Return the error if it is unexpected, so that its traceback is logged, otherwise None.

    Operating-system failures (a full disk, no file descriptors) and errors that Chronik raises on purpose are expected:
    their message is enough. Every other error is a bug and needs its traceback.
    """
    return None if all(map(_is_expected, _iter_leaf_exceptions(error))) else error


def _is_expected(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno is not None  # asyncio's TimeoutError has no errno
    return isinstance(error, ChronikError) and not isinstance(error, InvariantError)


def _iter_leaf_exceptions(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _iter_leaf_exceptions(each)
    else:
        yield error


def check_invariant(condition: bool, message: str) -> None:
    """Raise InvariantError if the condition is false. Unlike `assert`, the check also runs under `python -O`."""
    if not condition:
        raise InvariantError(message)
