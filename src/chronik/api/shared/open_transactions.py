"""Checks of open transactions against an image that is confirmed to be current."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from chronik.api.shared.context import Services
from chronik.api.shared.read_consistency import CONFIRM_TIMEOUT_SECONDS
from chronik.metadata.records import Transaction, TransactionState
from chronik.metadata.stores.store import StoreClosedError
from chronik.protocol.errors import ErrorCode, KafkaError

CATCH_UP_SECONDS: Final = 0.02
"""Seconds to wait for the local image before a majority is asked to confirm it.

A change that another node has acknowledged usually arrives here within a millisecond or two, which costs less than a
round trip to a majority.
"""


async def confirm_transaction_state(services: Services, is_open: Callable[[], bool]) -> None:
    """Wait until the image shows that the transaction is open, or is confirmed to be current.

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
    """Return the producer's open transaction that contains the group.

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
