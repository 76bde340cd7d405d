"""Settings of the transaction coordinator under Kafka's names, and the limits a stranger could push against."""

from __future__ import annotations

from typing import Final

import msgspec

TRANSACTIONAL_IDS_MAX: Final = 100_000
"""Ids that are remembered, each for `transactional.id.expiration.ms`, with or without a transaction: some 500 bytes
each. A client that invents one per request must not take every node's memory."""

PARTITIONS_PER_TRANSACTION_MAX: Final = 10_000
"""Partitions of one transaction: to end it takes 2 µs for each, in which the node does nothing else."""

GROUPS_PER_TRANSACTION_MAX: Final = 100
"""Groups of one transaction: their names are written, and counted in the state hash, with each change of it."""

PARTITIONS_MAX: Final = 500_000
"""Partitions of all open transactions, some 150 bytes each on every node."""

EPOCH_MAX: Final = 2**15 - 1
"""The last epoch of a producer id. It is never given to a producer: it is kept for markers that fence the last one."""

WAIT_MS_MAX: Final = 3_000
"""How long a request waits for the markers of the transaction before it. Then the client is told to ask again."""

COMPLETED_AFTER_MS: Final = 20
"""How long a transaction that has its markers waits for the next one of its id, which completes it along with its own
first command. A producer that goes on at once does so within a few milliseconds: then it is one command less for each
transaction. Nobody waits for it; a coordinator that takes over meanwhile writes the markers again."""

RETRY_MS: Final = 1_000
"""When what could not be stored is tried again."""


class TransactionConfig(msgspec.Struct, frozen=True):
    timeout_ms_max: int = 900_000
    """`transaction.max.timeout.ms`"""
    expiration_ms: int = 7 * 24 * 3600 * 1000
    """`transactional.id.expiration.ms`"""
    expiration_check_interval_ms: int = 3_600_000
    """`transaction.remove.expired.transaction.cleanup.interval.ms`"""
