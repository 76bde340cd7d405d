"""Errors that all transaction APIs share: unsupported transactions, and codes that old clients do not know."""

from __future__ import annotations

from typing import Final, NamedTuple

from chronik.metadata import levels
from chronik.metadata.image import Image
from chronik.protocol.errors import ErrorCode

REFUSED: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
"""Error of transactional requests when the cluster does not support transactions.

Every client treats it as fatal; after any other error, librdkafka would look for a coordinator forever.
"""


def why_refused(image: Image) -> str | None:
    """Return why the cluster does not support transactions, or None if it does."""
    level = levels.level_of(image.features)
    if level >= levels.TRANSACTIONS:
        return None
    return (
        f"Transactions need {levels.FEATURE} {levels.TRANSACTIONS}, but the cluster is at {level}: once "
        "all nodes run a version of Chronik that supports it, raise it with `chronik cluster upgrade`"
    )


def refusal(image: Image, transactional_id: str) -> ErrorCode | None:
    """Return the error for a request with this transactional id before a coordinator handles it, or None."""
    if why_refused(image) is not None:
        return REFUSED
    return None if transactional_id else ErrorCode.INVALID_REQUEST


class FirstVersions(NamedTuple):
    """The first versions of an API whose clients know newer error codes."""

    fenced: int
    """First version with PRODUCER_FENCED."""
    abortable: int
    """First version with TRANSACTION_ABORTABLE."""

    def told(self, code: ErrorCode, version: int) -> ErrorCode:
        """Return the error code, replaced by an older equivalent if clients of this version do not know it."""
        if code is ErrorCode.PRODUCER_FENCED and version < self.fenced:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if code is ErrorCode.TRANSACTION_ABORTABLE and version < self.abortable:
            return ErrorCode.INVALID_TXN_STATE
        return code
