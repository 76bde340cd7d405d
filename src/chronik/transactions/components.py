"""Construction of a node's transaction components."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from chronik.broker.replica_manager import ReplicaManager
from chronik.clock import Clock
from chronik.coordination.terms import CoordinatorTerms
from chronik.metadata.stores.store import MetadataStore
from chronik.transactions.config import TransactionConfig
from chronik.transactions.coordinator import TransactionCoordinator
from chronik.transactions.joiner import TransactionJoiner
from chronik.transactions.marker_appender import MarkerAppender
from chronik.transactions.marker_sender import MarkerSender
from chronik.transactions.peer_messages import TransactionPeers


class TransactionComponents(NamedTuple):
    """The transaction components of a node."""

    coordinator: TransactionCoordinator
    appender: MarkerAppender
    joiner: TransactionJoiner


def build_transaction_components(
    node_id: int,
    store: MetadataStore,
    replicas: ReplicaManager,
    clock: Clock,
    coordinators: CoordinatorTerms,
    config: TransactionConfig,
    new_producer_id: Callable[[], Awaitable[int]],
    peers: TransactionPeers,
    is_fenced: Callable[[], bool],
    on_fatal: Callable[[BaseException], None],
) -> TransactionComponents:
    """Create the transaction components of a node."""
    appender = MarkerAppender(store, replicas, clock, is_fenced)
    coordinator = TransactionCoordinator(
        store,
        clock,
        new_producer_id,
        MarkerSender(node_id, store, appender, peers),
        config,
        on_fatal,
        coordinators.owned_term,
        is_fenced,
    )
    return TransactionComponents(
        coordinator, appender, TransactionJoiner(node_id, store, coordinators, coordinator, peers)
    )
