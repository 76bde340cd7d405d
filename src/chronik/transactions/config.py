"""Configuration of the transaction coordinator under Kafka's names, and limits that protect the node from clients."""

from __future__ import annotations

from typing import Final

import msgspec

TRANSACTIONAL_IDS_MAX: Final = 100_000
"""Transactional ids that the cluster remembers, each for `transactional.id.expiration.ms`, at about 500 bytes. A client
that invents an id for every request must not exhaust the memory of all nodes."""

PARTITIONS_PER_TRANSACTION_MAX: Final = 10_000
"""Partitions of one transaction. Ending a transaction blocks the event loop for about 2 µs per partition."""

GROUPS_PER_TRANSACTION_MAX: Final = 100
"""Groups of one transaction. Every change of the transaction writes and hashes the names of its groups."""

TRANSACTION_PARTITIONS_MAX: Final = 500_000
"""Partitions of all open transactions, about 150 bytes each on every node."""

PRODUCER_EPOCH_MAX: Final = 2**15 - 1
"""The last epoch of a producer id. Producers never receive it: it is reserved for markers that fence the last epoch."""

MARKER_WAIT_MS_MAX: Final = 3_000
"""Time a request waits for the markers of the previous transaction before it fails with CONCURRENT_TRANSACTIONS."""

COMPLETION_DELAY_MS: Final = 20
"""Delay before a transaction whose markers are written is completed by a command of its own.

A producer that continues immediately starts its next transaction within a few milliseconds, and that command completes
the previous transaction as well, which saves one command per transaction. No request waits for the completion; a new
coordinator writes the markers again.
"""

STORE_RETRY_MS: Final = 1_000
"""Delay before a failed write to the store is retried."""


class TransactionConfig(msgspec.Struct, frozen=True):
    """Configuration of the transaction coordinator."""

    timeout_ms_max: int = 900_000
    """`transaction.max.timeout.ms`"""
    expiration_ms: int = 7 * 24 * 3600 * 1000
    """`transactional.id.expiration.ms`"""
    expiration_check_interval_ms: int = 3_600_000
    """`transaction.remove.expired.transaction.cleanup.interval.ms`"""
