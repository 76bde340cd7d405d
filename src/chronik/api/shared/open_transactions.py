"""Whether something may become part of a transaction: what the image says, once it is known to be up to date."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from chronik.api.shared.admission import CONFIRM_SECONDS
from chronik.api.shared.context import Services
from chronik.metadata.records import Transaction, TransactionState
from chronik.metadata.stores.store import StoreClosed
from chronik.protocol.errors import ErrorCode, KafkaError

CATCH_UP_SECONDS: Final = 0.02
"""What a client was answered by another node mostly is under way to this one, and arrives within a millisecond or two:
to wait for it costs less than to ask a majority."""


async def confirm(services: Services, is_open: Callable[[], bool]) -> None:
    """Returns when the image shows that it is open, or is up to date and does not. Raises NOT_ENOUGH_REPLICAS."""
    changes = services.transactions.changes
    loop = asyncio.get_running_loop()
    deadline = loop.time() + CATCH_UP_SECONDS
    while not is_open():
        if not await changes.since(changes.count, deadline - loop.time()):
            break
    else:
        return
    try:
        await services.store.read_barrier(CONFIRM_SECONDS)
    except (KafkaError, StoreClosed) as error:
        raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "It is not known whether the transaction is open") from error


async def open_with_group(
    services: Services, transactional_id: str, producer_id: int, producer_epoch: int, group_id: str
) -> Transaction:
    """Returns the producer's open transaction, which the group is part of. Raises KafkaError."""
    look = partial(_with_group, services, transactional_id, producer_id, producer_epoch, group_id)
    found = look()
    if isinstance(found, ErrorCode) and services.store.is_shared:
        await confirm(services, lambda: isinstance(look(), Transaction))
        found = look()
    if isinstance(found, ErrorCode):
        raise KafkaError(found)
    return found


def _with_group(
    services: Services, transactional_id: str, producer_id: int, producer_epoch: int, group_id: str
) -> Transaction | ErrorCode:
    transaction = services.image.transactions.get(transactional_id)
    if transaction is None or transaction.producer_id != producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if transaction.producer_epoch != producer_epoch:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    is_open = transaction.state is TransactionState.ONGOING and group_id in transaction.groups
    return transaction if is_open else ErrorCode.INVALID_TXN_STATE
