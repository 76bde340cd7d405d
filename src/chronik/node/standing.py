"""How a node stands: alone, or in a cluster. What differs between the two is behind this interface."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from chronik.broker.replicas import Replicas
from chronik.config import Address, NodeConfig
from chronik.configs.resolver import ConfigResolver
from chronik.exchange import Dispatch
from chronik.listeners import PLAINTEXT
from chronik.metadata import levels
from chronik.metadata.commands.brokers import Endpoint, RegisterBroker
from chronik.metadata.stores.store import MetadataStore
from chronik.meters import Histogram
from chronik.scheduler import Scheduler
from chronik.transactions.messages import Elsewhere
from chronik.transactions.parts import TransactionParts

if TYPE_CHECKING:
    from chronik.console.rest.node_side import OtherNodes
    from chronik.quorum.watchdog import LoopWatchdog

Job = Callable[[], Awaitable[None]]


def registered_as(
    config: NodeConfig, endpoints: tuple[Endpoint, ...], directory_id: bytes, incarnation: bytes, *, is_durable: bool
) -> RegisterBroker:
    """Makes the registration of a broker that clients find at `endpoints`, the main one first."""
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


def endpoints_of(config: NodeConfig, bound: Mapping[str, Address]) -> tuple[Endpoint, ...]:
    """Returns where clients find a broker whose listeners took these ports, the main one first."""
    told = ((listener.name, listener.told(bound[listener.name])) for listener in config.listeners)
    return tuple(Endpoint(name, address.host, address.port) for name, address in told if address is not None)


class Standing(Protocol):
    @property
    def store(self) -> MetadataStore: ...

    @property
    def broker_epoch(self) -> int:
        """-1 while this life of the broker is not registered."""

    @property
    def is_fenced(self) -> bool:
        """Whether others may believe that this broker is gone: then it serves no data."""

    @property
    def may_be_replaced(self) -> bool:
        """Whether others may have taken this broker's place already, as it was not heard or its port refused. Until
        a majority has confirmed the image, what it would tell of its partitions may be old."""

    @property
    def controller_id(self) -> int:
        """Returns the node that clients are told to ask for changes; -1 while nobody leads."""

    def is_gone(self, node_id: int) -> bool:
        """Says whether that node's process seems to have ended, and there was no time yet to agree on it."""

    def status(self) -> dict[str, Any]:
        """Describes the log that the metadata is kept in, for the status page."""

    @property
    def sync_times(self) -> Histogram:
        """How long syncs of that log took."""

    @property
    def watchdog(self) -> LoopWatchdog | None:
        """What looks at the loop, if that is looked at anyway."""

    def raft_meters(self) -> Mapping[str, int]:
        """Returns the values of the metrics `chronik_raft_…`, by the rest of their names."""

    def keep_in_sync(self, replicas: Replicas, configs: ConfigResolver) -> None:
        """Called before anything starts: sees to it that this node's partitions are kept as other nodes have them."""

    @property
    def elsewhere(self) -> Elsewhere:
        """The other nodes, as far as transactions concern them."""

    def serve_transactions(self, parts: TransactionParts) -> None:
        """Called before anything starts: answers other nodes."""

    @property
    def others(self) -> OtherNodes:
        """The other nodes, as far as this one's console asks them."""

    def serve_others(self, dispatch: Dispatch, scheduler: Scheduler, status: Callable[[], dict[str, Any]]) -> None:
        """Called before anything starts: answers other nodes' consoles."""

    async def bind(self) -> None:
        """Takes the ports it needs. Raises OSError."""

    async def join(self, endpoints: tuple[Endpoint, ...]) -> None:
        """Called when the store has started: takes this broker's place, or has it taken as soon as can be. Clients
        find it at `endpoints`, the main one first."""

    async def drain(self) -> None:
        """Called first when the node stops on purpose: others lead what it led, while it still answers. Bounded in
        time."""

    @property
    def is_draining(self) -> bool:
        """Whether it is about to stop: nobody new should come."""

    async def leave(self) -> None:
        """Called when the node stops on purpose: the others need not find out by its silence. Bounded in time."""

    @property
    def is_up_to_date(self) -> bool:
        """Whether the image holds everything that was ever answered, as soon as `join` returns."""

    def jobs(self, when_up_to_date: Callable[[], None]) -> list[Job]:
        """Returns what has to run as long as the node does; if not `is_up_to_date`, it calls `when_up_to_date` once."""
