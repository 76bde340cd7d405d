"""What every API handler is given: the parts of the node, and who asks."""

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
    """Whether others may believe that this broker is gone: then it serves no data and no groups."""
    may_be_replaced: Callable[[], bool]
    """Whether others may have taken its place before that: see `Standing`."""
    controller_id: Callable[[], int]
    is_gone: Callable[[int], bool]
    """Whether a node's port refuses connections, and it is not fenced for it yet. Clients are not sent there: Java's
    admin client would wait for such a broker, once it is no longer listed, until the call times out: KAFKA-20673."""
    refused_batches: RefusedBatches
    bound: dict[str, Address] = msgspec.field(default_factory=dict)
    """Where this node listens, by listener; empty until its ports are taken."""
    openings: Openings = msgspec.field(default_factory=Openings)
    topic_bytes: TopicBytes = msgspec.field(default_factory=TopicBytes)
    samples: Samples = msgspec.field(default_factory=Samples)
    producer_id_allowances: ClientAllowances = msgspec.field(
        default_factory=lambda: ClientAllowances(
            PRODUCER_IDS_PER_CLIENT_MAX, PRODUCER_IDS_PER_CLIENT_MAX / PRODUCER_IDS_PER_SECOND
        )
    )
    authorizer: Authorizer | None = None
    """Without one everybody may do everything."""
    outbox: Outbox = msgspec.field(default_factory=Outbox)
    scheduler: Scheduler = msgspec.field(default_factory=Scheduler)
    authenticator: Authenticator | None = None
    """Where a listener asks clients who they are."""

    @property
    def image(self) -> Image:
        return self.store.image

    @property
    def node_id(self) -> int:
        return self.config.node_id

    def stop_waiting(self) -> None:
        """Answers those who only wait, for records or for each other: this node stops."""
        self.replicas.stop_waiting()
        self.samples.stop_waiting()


class Context(NamedTuple):
    """One request's circumstances."""

    version: int
    client_id: str
    peer: Peer
    hurry: Hurry = Hurry(lambda: False)
    """Others wait behind it on its connection."""
    usage: Usage | None = None
    """What it uses of its client's quotas; None when no quota holds for that."""
    may_be_behind: bool = False
    """No majority has confirmed that the image holds all that was answered: nothing in it is certain but its past."""

    api_key: int = 0

    @property
    def api(self) -> str:
        """Its name."""
        return APIS[self.api_key].name

    @property
    def listener(self) -> str:
        """Brokers are named to a client by their addresses of the listener that it came by."""
        return self.peer.listener
