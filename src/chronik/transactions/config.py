"""Configuration of the transaction coordinator under Kafka's names, and limits that protect the node from clients."""

from __future__ import annotations

from typing import Final

import msgspec

TRANSACTIONAL_IDS_MAX: Final = 100_000
"""Maximum number of transactional ids in the cluster, so that a client that uses many ids cannot exhaust the memory.

An id uses about 500 bytes on every node and expires after `transactional.id.expiration.ms`.
"""

PARTITIONS_PER_TRANSACTION_MAX: Final = 10_000
"""Maximum number of partitions per transaction. Ending one blocks the event loop for about 2 µs per partition."""

GROUPS_PER_TRANSACTION_MAX: Final = 100
"""Maximum number of groups per transaction. Every change of a transaction writes and hashes all its group names."""

TRANSACTION_PARTITIONS_MAX: Final = 500_000
"""Maximum number of partitions in all open transactions. Each uses about 150 bytes on every node."""

PRODUCER_EPOCH_MAX: Final = 2**15 - 1
"""The last epoch of a producer id, reserved for markers that fence the last producer. Never assigned to producers."""

MARKER_WAIT_MS_MAX: Final = 3_000
"""Maximum time that a request waits for the previous transaction's markers before it is rejected."""

COMPLETION_DELAY_MS: Final = 20
"""Delay between writing the last marker and completing the transaction with a separate command.

If the producer starts its next transaction within the delay, that command also completes the previous transaction,
which saves one command per transaction. No request waits for the completion. After a coordinator change, the new
coordinator writes the markers again.
"""

STORE_RETRY_MS: Final = 1_000
"""Delay before a failed write to the store is retried."""


class TransactionConfig(msgspec.Struct, frozen=True):
    """Configuration of the transaction coordinator."""

    timeout_ms_max: int = 900_000
    """Kafka's `transaction.max.timeout.ms`: the maximum timeout that a producer may request for its transactions."""
    expiration_ms: int = 7 * 24 * 3600 * 1000
    """Kafka's `transactional.id.expiration.ms`: the time after which an unused transactional id is deleted."""
    expiration_check_interval_ms: int = 3_600_000
    """The interval of the checks for expired ids (`transaction.remove.expired.transaction.cleanup.interval.ms`)."""
