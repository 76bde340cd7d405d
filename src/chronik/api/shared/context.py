"""Services and request context that every API handler receives."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from chronik.admin.topics import TopicAdmin
from chronik.api.shared.topic_bytes import TopicBytes
from chronik.broker.replicas import Replicas
from chronik.broker.requests.client_allowances import ClientAllowances
from chronik.broker.requests.fetch_sessions import FetchSessions
from chronik.broker.requests.openings import Openings
from chronik.broker.requests.producer_ids import ProducerIds
from chronik.broker.requests.refusals import RefusedBatches
from chronik.broker.requests.samples import Samples
from chronik.clock import Clock
from chronik.config import Address, NodeConfig
from chronik.configs.resolver import ConfigResolver
from chronik.coordination.tenure import Coordinators
from chronik.exchange import Hurry, Outbox, Peer
from chronik.groups.coordinator import GroupCoordinator
from chronik.limits import PRODUCER_IDS_PER_CLIENT_MAX, PRODUCER_IDS_PER_SECOND
from chronik.metadata.image import Image
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.apis import APIS
from chronik.scheduler import Scheduler
from chronik.security.quotas.limiter import Usage
from chronik.transactions.coordinator import TransactionCoordinator
from chronik.transactions.joining import Joining

if TYPE_CHECKING:
    from chronik.security.authorizer import Authorizer
    from chronik.security.sasl.authenticator import Authenticator


class Services(msgspec.Struct):
    """The components of a node that API handlers use."""

    config: NodeConfig
    clock: Clock
    store: MetadataStore
    configs: ConfigResolver
    topics: TopicAdmin
    replicas: Replicas
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    joining: Joining
    fetch_sessions: FetchSessions
    producer_ids: ProducerIds
    coordinators: Coordinators
    transaction_coordinators: Coordinators
    is_fenced: Callable[[], bool]
    """Return whether this broker is fenced: its lease has expired, so it serves no records and no groups."""
    may_be_replaced: Callable[[], bool]
    """Return whether another broker may have replaced this one although its lease has not expired yet."""
    controller_id: Callable[[], int]
    is_gone: Callable[[int], bool]
    """Return whether a node's port refuses connections although the node is not fenced yet.

    Responses do not name such a broker: Java's admin client would wait for it until the call times out (KAFKA-20673).
    """
    refused_batches: RefusedBatches
    bound: dict[str, Address] = msgspec.field(default_factory=dict)
    """Addresses that this node has bound, by listener; empty until the node listens."""
    openings: Openings = msgspec.field(default_factory=Openings)
    topic_bytes: TopicBytes = msgspec.field(default_factory=TopicBytes)
    samples: Samples = msgspec.field(default_factory=Samples)
    producer_id_allowances: ClientAllowances = msgspec.field(
        default_factory=lambda: ClientAllowances(
            PRODUCER_IDS_PER_CLIENT_MAX, PRODUCER_IDS_PER_CLIENT_MAX / PRODUCER_IDS_PER_SECOND
        )
    )
    authorizer: Authorizer | None = None
    """The authorizer of client requests. None permits every operation."""
    outbox: Outbox = msgspec.field(default_factory=Outbox)
    scheduler: Scheduler = msgspec.field(default_factory=Scheduler)
    authenticator: Authenticator | None = None
    """The SASL authenticator; None if no listener uses SASL."""

    @property
    def image(self) -> Image:
        return self.store.image

    @property
    def node_id(self) -> int:
        return self.config.node_id

    def stop_waiting(self) -> None:
        """Complete the requests that wait for records or for other requests, because this node stops."""
        self.replicas.stop_waiting()
        self.samples.stop_waiting()


class Context(NamedTuple):
    """The header fields, connection and quota usage of one request."""

    version: int
    client_id: str
    peer: Peer
    hurry: Hurry = Hurry(lambda: False)
    """Signals that later requests of the same connection wait for this one."""
    usage: Usage | None = None
    """The request's usage of the client's quotas; None if the client has no quota."""
    may_be_behind: bool = False
    """Whether the image may be stale, because no majority has confirmed that it is current."""

    api_key: int = 0

    @property
    def api(self) -> str:
        """Return the name of the request's API."""
        return APIS[self.api_key].name

    @property
    def listener(self) -> str:
        """Return the listener of the client's connection. Responses name brokers by their addresses on it."""
        return self.peer.listener
