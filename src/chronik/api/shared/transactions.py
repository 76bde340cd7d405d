"""Open transactions in the image, and errors that all transaction APIs share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from chronik.api.shared.context import Services
from chronik.api.shared.read_consistency import CONFIRM_TIMEOUT_SECONDS
from chronik.metadata import levels
from chronik.metadata.image import Image
from chronik.metadata.records import Transaction, TransactionState
from chronik.metadata.stores.store import StoreClosedError
from chronik.protocol.errors import ErrorCode, KafkaError

CATCH_UP_SECONDS: Final = 0.02
"""Time in seconds to wait for a change in the local metadata image before asking a majority to confirm it.

A change that another node has acknowledged usually arrives within two milliseconds, which is faster than a round trip
to a majority.
"""

TRANSACTIONS_UNSUPPORTED_ERROR: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
"""Error code for transactional requests if the cluster's feature level does not support transactions.

Every client treats this error as fatal; after any other error, librdkafka would search for a coordinator forever.
"""


async def confirm_transaction_state(services: Services, is_open: Callable[[], bool]) -> None:
    """Wait until the metadata image contains the open transaction, or a majority confirms the image.

    Raises:
        KafkaError: NOT_ENOUGH_REPLICAS, because no majority confirmed the image.
    """
    changes = services.transactions.changes
    loop = asyncio.get_running_loop()
    deadline = loop.time() + CATCH_UP_SECONDS
    while not is_open():
        if not await changes.wait(changes.generation, deadline - loop.time()):
            break
    else:
        return
    try:
        await services.store.read_barrier(CONFIRM_TIMEOUT_SECONDS)
    except (KafkaError, StoreClosedError) as error:
        raise KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS, "No majority confirmed whether the transaction is open: retry"
        ) from error


async def find_open_transaction(
    services: Services, transactional_id: str, producer_id: int, producer_epoch: int, group_id: str
) -> Transaction:
    """Return the producer's open transaction to which the consumer group was added.

    Raises:
        KafkaError: The producer has no such transaction.
    """
    find_transaction = partial(
        _find_open_transaction, services, transactional_id, producer_id, producer_epoch, group_id
    )
    found = find_transaction()
    if isinstance(found, ErrorCode) and services.store.is_shared:
        await confirm_transaction_state(services, lambda: isinstance(find_transaction(), Transaction))
        found = find_transaction()
    if isinstance(found, ErrorCode):
        raise KafkaError(found)
    return found


def _find_open_transaction(
    services: Services, transactional_id: str, producer_id: int, producer_epoch: int, group_id: str
) -> Transaction | ErrorCode:
    transaction = services.image.transactions.get(transactional_id)
    if transaction is None or transaction.producer_id != producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if transaction.producer_epoch != producer_epoch:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    is_open = transaction.state is TransactionState.ONGOING and group_id in transaction.groups
    return transaction if is_open else ErrorCode.INVALID_TXN_STATE


def find_transactions_unsupported_reason(image: Image) -> str | None:
    """Return why the cluster does not support transactions, or None if it does."""
    level = levels.get_cluster_level(image.features)
    if level >= levels.TRANSACTIONS_LEVEL:
        return None
    return (
        f"Transactions need {levels.FEATURE_NAME} {levels.TRANSACTIONS_LEVEL}, but the cluster is at {level}: once "
        "all nodes run a version of Chronik that supports it, raise it with `chronik cluster upgrade`"
    )


def find_transaction_request_error(image: Image, transactional_id: str) -> ErrorCode | None:
    """Return the error code if a transactional request is invalid or unsupported, otherwise None."""
    if find_transactions_unsupported_reason(image) is not None:
        return TRANSACTIONS_UNSUPPORTED_ERROR
    return None if transactional_id else ErrorCode.INVALID_REQUEST


class ErrorVersions(NamedTuple):
    """The API versions from which clients support newer transaction error codes."""

    producer_fenced: int
    """First API version whose clients support PRODUCER_FENCED."""
    transaction_abortable: int
    """First API version whose clients support TRANSACTION_ABORTABLE."""

    def translate(self, code: ErrorCode, version: int) -> ErrorCode:
        """Return the error code, or an older equivalent for clients that do not support it."""
        if code is ErrorCode.PRODUCER_FENCED and version < self.producer_fenced:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if code is ErrorCode.TRANSACTION_ABORTABLE and version < self.transaction_abortable:
            return ErrorCode.INVALID_TXN_STATE
        return code
