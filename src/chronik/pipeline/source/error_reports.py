"""Errors of the source and the sink whose report in PySpark starts with the message.

PySpark formats an exception of a data source where it was raised, in a Python worker, and passes the text on: the
traceback comes first, and the message last. Python formats the cause of an exception before the exception itself, so a
cause that has a message and no traceback becomes the first line. PySpark clears the cause in most workers; the
exceptions of this module keep it.
"""

from __future__ import annotations

from contextlib import ContextDecorator
from types import TracebackType

from chronik.errors import ChronikError


class DataSourceError(ChronikError):
    """An error of the Spark source or sink, reported with its message before the traceback."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error) or type(error).__name__)
        self._cause = _prepend_message(error)
        self.__suppress_context__ = True

    @property
    def __cause__(self) -> BaseException | None:
        return self._cause

    @__cause__.setter
    def __cause__(self, cause: BaseException | None) -> None:
        """Keep the current cause: PySpark sets None to shorten tracebacks."""


class MessageFirst(ContextDecorator):
    """A context manager and decorator that makes PySpark print the message of an error before its traceback.

    Use `with` in generators; the decorator covers only the call that creates the generator.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, (ChronikError, OSError)) and not isinstance(error, DataSourceError):
            raise DataSourceError(error).with_traceback(traceback) from None


def _prepend_message(error: Exception) -> BaseException:
    """Return the chain of causes of an error, with the message of the error as the deepest cause."""
    message = _create_message(error)
    first = deepest = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if first is None or deepest is None:
        return message
    while (below := deepest.__cause__ or (None if deepest.__suppress_context__ else deepest.__context__)) is not None:
        deepest = below
    deepest.__cause__ = message
    return first


def _create_message(error: Exception) -> Exception:
    """Return an exception without a traceback that prints the same type and message as the error."""
    kind = type(error)
    message = type(kind.__name__, (Exception,), {"__module__": kind.__module__})(str(error))
    assert isinstance(message, Exception)
    return message
