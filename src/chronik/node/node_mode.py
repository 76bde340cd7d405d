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
"""A coroutine function that runs a background job of a node until it is cancelled."""


def build_register_broker_command(
    config: NodeConfig, endpoints: tuple[Endpoint, ...], directory_id: bytes, incarnation: bytes, *, is_durable: bool
) -> RegisterBroker:
    """Return the RegisterBroker command of this node. The first endpoint is the broker's main listener."""
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
    """Return the advertised endpoints of the Kafka listeners, given the addresses to which they are bound."""
    advertised = ((listener.name, listener.advertised_address(bound[listener.name])) for listener in config.listeners)
    return tuple(Endpoint(name, address.host, address.port) for name, address in advertised if address is not None)


class NodeMode(Protocol):
    """The interface of the parts of a node that differ between standalone mode and cluster mode."""

    @property
    def store(self) -> MetadataStore:
        """Return the metadata store of the node."""

    @property
    def broker_epoch(self) -> int:
        """Return the broker epoch of this registration, or -1 until the broker is registered."""

    @property
    def is_fenced(self) -> bool:
        """Return whether this broker must reject client requests because other nodes may consider it offline."""

    @property
    def lease_expired_seconds(self) -> float:
        """Return the seconds since the broker's lease expired: negative before that, infinite without a lease."""

    @property
    def may_be_replaced(self) -> bool:
        """Return whether the controller may have elected other leaders for this broker's partitions.

        If so, the image may be outdated until a majority has confirmed it.
        """

    @property
    def controller_id(self) -> int:
        """Return the node id of the active controller, or -1 while the cluster has no leader."""

    def is_recently_lost(self, node_id: int) -> bool:
        """Return whether the connection to a node was lost so recently that its broker may not be fenced yet."""

    def status(self) -> dict[str, Any]:
        """Return the state of the metadata log for the node's status page, as a JSON-compatible dict."""

    @property
    def sync_times(self) -> Histogram:
        """Return the histogram of the metadata log's sync durations."""

    @property
    def watchdog(self) -> EventLoopWatchdog | None:
        """Return the event-loop watchdog, or None if the mode runs none."""

    def raft_metrics(self) -> Mapping[str, int]:
        """Return the values of the `chronik_raft_…` metrics by name, without the common prefix."""

    def start_replication(self, replicas: ReplicaManager, configs: ConfigResolver) -> None:
        """Start replicating this node's partitions. Called before any component starts."""

    @property
    def transaction_peers(self) -> TransactionPeers:
        """Return the interface through which transaction requests are sent to other nodes."""

    def serve_transactions(self, parts: TransactionComponents) -> None:
        """Register the handlers of transaction requests from other nodes. Called before any component starts."""

    @property
    def other_nodes(self) -> OtherNodes:
        """Return the interface through which the web console queries other nodes."""

    def serve_other_nodes(
        self,
        dispatch: Dispatch,
        scheduler: Scheduler,
        status: Callable[[], dict[str, Any]],
        receive_health: Callable[[bytes], Awaitable[bytes]],
        answer_history_query: Callable[[bytes], Awaitable[bytes]],
    ) -> None:
        """Register the handlers of other nodes' requests, health reports and queries of the history.

        Called before any component starts.
        """

    async def report_health(self, node_id: int, report: bytes, timeout_s: float) -> bytes:
        """Send this node's health report to the controller, and return its response."""

    async def bind(self) -> None:
        """Bind the port of the peer listener. Raises OSError."""

    async def join(self, endpoints: tuple[Endpoint, ...]) -> None:
        """Register this broker, at once or in the background. Called after the metadata store starts."""

    async def drain(self) -> None:
        """Transfer the leadership of this broker's partitions to other brokers, as the first step of a shutdown."""

    @property
    def is_draining(self) -> bool:
        """Return whether the node is shutting down and should get no new clients."""

    async def report_offline(self) -> None:
        """Report to the controller that this broker shuts down, so that it is fenced immediately."""

    @property
    def is_up_to_date(self) -> bool:
        """Return whether the metadata image contains all acknowledged changes once `join` has returned."""

    def background_jobs(self, when_up_to_date: Callable[[], None]) -> list[BackgroundJob]:
        """Return the mode's background jobs. If not `is_up_to_date`, one of them calls `when_up_to_date` once."""
