"""Node mode: the interface behind which standalone mode and cluster mode differ."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from chronik.broker.replica_manager import ReplicaManager
from chronik.config import Address, NodeConfig
from chronik.configs.resolver import ConfigResolver
from chronik.histogram import Histogram
from chronik.listeners import PLAINTEXT
from chronik.metadata import levels
from chronik.metadata.commands.brokers import Endpoint, RegisterBroker
from chronik.metadata.stores.store import MetadataStore
from chronik.request_reply import Dispatch
from chronik.scheduler import Scheduler
from chronik.transactions.coordinator import TransactionComponents
from chronik.transactions.peer_messages import TransactionPeers

if TYPE_CHECKING:
    from chronik.console.rest.node_interface import OtherNodes
    from chronik.quorum.watchdog import EventLoopWatchdog

BackgroundJob = Callable[[], Awaitable[None]]
"""A background job of a node, which runs until it is cancelled."""


def build_registration(
    config: NodeConfig, endpoints: tuple[Endpoint, ...], directory_id: bytes, incarnation: bytes, *, is_durable: bool
) -> RegisterBroker:
    """Return the command that registers a broker with its advertised endpoints, the main one first."""
    main = endpoints[0]
    return RegisterBroker(
        broker_id=config.node_id,
        host=main.host,
        port=main.port,
        rack=config.rack,
        incarnation=incarnation,
        directory_id=directory_id,
        is_durable=is_durable,
        listeners=endpoints if len(endpoints) > 1 or main.listener != PLAINTEXT else (),
        levels=(levels.LOWEST, levels.HIGHEST),
    )


def build_advertised_endpoints(config: NodeConfig, bound: Mapping[str, Address]) -> tuple[Endpoint, ...]:
    """Return the advertised endpoints for listeners that are bound to these addresses, the main one first."""
    advertised = ((listener.name, listener.advertised_address(bound[listener.name])) for listener in config.listeners)
    return tuple(Endpoint(name, address.host, address.port) for name, address in advertised if address is not None)


class NodeMode(Protocol):
    """The interface for the parts of a node that depend on its mode."""

    @property
    def store(self) -> MetadataStore:
        """Return the metadata store."""

    @property
    def broker_epoch(self) -> int:
        """Return the broker epoch; -1 until this incarnation is registered."""

    @property
    def is_fenced(self) -> bool:
        """Return whether other nodes may consider this broker offline; a fenced broker serves no data."""

    @property
    def lease_expired_seconds(self) -> float:
        """Return the seconds since the controller lease expired; negative while it is valid, infinite without one."""

    @property
    def may_be_replaced(self) -> bool:
        """Return whether other brokers may lead this broker's partitions by now, because its heartbeats failed.

        If so, the image may be outdated until a majority has confirmed it.
        """

    @property
    def controller_id(self) -> int:
        """Return the id of the node to which clients send changes, or -1 while there is no leader."""

    def is_recently_lost(self, node_id: int) -> bool:
        """Return whether the connection to a node was lost recently, before the controller has fenced its broker."""

    def status(self) -> dict[str, Any]:
        """Return the state of the metadata log, for the status page."""

    @property
    def sync_times(self) -> Histogram:
        """Return the histogram of sync times of the metadata log."""

    @property
    def watchdog(self) -> EventLoopWatchdog | None:
        """Return the event-loop watchdog, if the mode has one."""

    def raft_metrics(self) -> Mapping[str, int]:
        """Return the `chronik_raft_…` metrics, by name without that prefix."""

    def start_replication(self, replicas: ReplicaManager, configs: ConfigResolver) -> None:
        """Start replicating this node's partitions. Called before any component starts."""

    @property
    def transaction_peers(self) -> TransactionPeers:
        """Return the interface for transaction requests to other nodes."""

    def serve_transactions(self, parts: TransactionComponents) -> None:
        """Register the handlers for other nodes' transaction requests. Called before any component starts."""

    @property
    def other_nodes(self) -> OtherNodes:
        """Return the interface for the console's requests to other nodes."""

    def serve_other_nodes(self, dispatch: Dispatch, scheduler: Scheduler, status: Callable[[], dict[str, Any]]) -> None:
        """Register the handlers for other nodes' console requests. Called before any component starts."""

    async def bind(self) -> None:
        """Bind the peer port. Raises OSError."""

    async def join(self, endpoints: tuple[Endpoint, ...]) -> None:
        """Register this broker with its advertised endpoints, or start to. Called after the metadata store starts."""

    async def drain(self) -> None:
        """Transfer partition leadership to other brokers, within a time limit. First step of a clean shutdown."""

    @property
    def is_draining(self) -> bool:
        """Return whether the node is shutting down and should get no new clients."""

    async def report_offline(self) -> None:
        """Report this broker as offline, within a time limit, so that it is fenced before its session times out."""

    @property
    def is_up_to_date(self) -> bool:
        """Return whether the metadata image contains all acknowledged changes as soon as `join` returns."""

    def background_jobs(self, when_up_to_date: Callable[[], None]) -> list[BackgroundJob]:
        """Return the background jobs. If not `is_up_to_date`, one of them calls `when_up_to_date` once."""
