"""What the APIs of transactions share: when there are none, and how errors are told to clients that know them not."""

from __future__ import annotations

from typing import Final, NamedTuple

from chronik.metadata import levels
from chronik.metadata.image import Image
from chronik.protocol.errors import ErrorCode

REFUSED: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
"""Every client gives up on it at once: librdkafka would look for a coordinator again and again after any other."""


def why_refused(image: Image) -> str | None:
    """Returns why a cluster has no transactions; None when it has."""
    level = levels.level_of(image.features)
    if level >= levels.TRANSACTIONS:
        return None
    return (
        f"Transactions need {levels.FEATURE} {levels.TRANSACTIONS}, and the cluster is at {level}: once all nodes run "
        "a version of Chronik that supports it, raise it with chronik cluster upgrade"
    )


def refusal(image: Image, transactional_id: str) -> ErrorCode | None:
    """Returns the error of a request that no coordinator is asked about."""
    if why_refused(image) is not None:
        return REFUSED
    return None if transactional_id else ErrorCode.INVALID_REQUEST


class FirstVersions(NamedTuple):
    """From which versions on the clients of an API know errors that came later."""

    fenced: int
    abortable: int

    def told(self, code: ErrorCode, version: int) -> ErrorCode:
        if code is ErrorCode.PRODUCER_FENCED and version < self.fenced:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if code is ErrorCode.TRANSACTION_ABORTABLE and version < self.abortable:
            return ErrorCode.INVALID_TXN_STATE
        return code
