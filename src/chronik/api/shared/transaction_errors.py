"""Errors that all transaction APIs share: unsupported transactions, and codes that old clients do not know."""

from __future__ import annotations

from typing import Final, NamedTuple

from chronik.metadata import levels
from chronik.metadata.image import Image
from chronik.protocol.errors import ErrorCode

TRANSACTIONS_UNSUPPORTED_ERROR: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
"""Error of transactional requests when the cluster does not support transactions.

Every client treats it as fatal; after any other error, librdkafka would look for a coordinator forever.
"""


def transactions_unsupported_reason(image: Image) -> str | None:
    """Return why the cluster does not support transactions, or None if it does."""
    level = levels.cluster_level(image.features)
    if level >= levels.TRANSACTIONS_LEVEL:
        return None
    return (
        f"Transactions need {levels.FEATURE_NAME} {levels.TRANSACTIONS_LEVEL}, but the cluster is at {level}: once "
        "all nodes run a version of Chronik that supports it, raise it with `chronik cluster upgrade`"
    )


def transaction_request_error(image: Image, transactional_id: str) -> ErrorCode | None:
    """Return the error for a request with this transactional id before a coordinator handles it, or None."""
    if transactions_unsupported_reason(image) is not None:
        return TRANSACTIONS_UNSUPPORTED_ERROR
    return None if transactional_id else ErrorCode.INVALID_REQUEST


class ErrorVersions(NamedTuple):
    """The first versions of an API whose clients know newer error codes."""

    producer_fenced: int
    """First version with PRODUCER_FENCED."""
    transaction_abortable: int
    """First version with TRANSACTION_ABORTABLE."""

    def translate(self, code: ErrorCode, version: int) -> ErrorCode:
        """Return the error code, replaced by an older equivalent if clients of this version do not know it."""
        if code is ErrorCode.PRODUCER_FENCED and version < self.producer_fenced:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if code is ErrorCode.TRANSACTION_ABORTABLE and version < self.transaction_abortable:
            return ErrorCode.INVALID_TXN_STATE
        return code
