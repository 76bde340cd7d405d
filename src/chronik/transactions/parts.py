"""Construction of a node's transaction components."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from chronik.broker.replicas import Replicas
from chronik.clock import Clock
from chronik.coordination.tenure import Coordinators
from chronik.metadata.stores.store import MetadataStore
from chronik.transactions.config import TransactionConfig
from chronik.transactions.coordinator import TransactionCoordinator
from chronik.transactions.joining import Joining
from chronik.transactions.marker_appending import MarkerAppender
from chronik.transactions.marker_sending import MarkerSender
from chronik.transactions.messages import Elsewhere


class TransactionParts(NamedTuple):
    """The transaction components of a node."""

    coordinator: TransactionCoordinator
    appender: MarkerAppender
    joining: Joining


def transaction_parts(
    node_id: int,
    store: MetadataStore,
    replicas: Replicas,
    clock: Clock,
    coordinators: Coordinators,
    config: TransactionConfig,
    new_producer_id: Callable[[], Awaitable[int]],
    elsewhere: Elsewhere,
    is_fenced: Callable[[], bool],
    on_fatal: Callable[[BaseException], None],
) -> TransactionParts:
    """Create the transaction components of a node."""
    appender = MarkerAppender(store, replicas, clock, is_fenced)
    coordinator = TransactionCoordinator(
        store,
        clock,
        new_producer_id,
        MarkerSender(node_id, store, appender, elsewhere),
        config,
        on_fatal,
        coordinators.owns,
        is_fenced,
    )
    return TransactionParts(coordinator, appender, Joining(node_id, store, coordinators, coordinator, elsewhere))
