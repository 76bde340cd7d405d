"""Services and request context that every API handler receives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from chronik.admin.topics import TopicAdmin
from chronik.api.shared.encoded_topic_cache import EncodedTopicCache
from chronik.broker.replica_manager import ReplicaManager
from chronik.broker.requests.decompression import BatchDecompressor
from chronik.broker.requests.fetch_sessions import FetchSessionCache
from chronik.broker.requests.producer_ids import ProducerIdAllocator
from chronik.broker.requests.rejected_batches import RejectedBatches
from chronik.broker.requests.sample_requests import SampleRequests
from chronik.broker.requests.schema_validation import SchemaValidator
from chronik.clock import Clock
from chronik.config import Address, NodeConfig
from chronik.configs.resolver import ConfigResolver
from chronik.coordination.host import CoordinatorTerms
from chronik.groups.coordinator import GroupCoordinator
from chronik.limits import PRODUCER_IDS_PER_CLIENT_MAX, PRODUCER_IDS_PER_SECOND
from chronik.metadata.image import Image
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.apis import APIS
from chronik.registry.request_metrics import RegistryRequestMeter
from chronik.request_reply import ConnectedClient, EarlyCompletion, UnsentByteCounter
from chronik.scheduler import Scheduler
from chronik.security.quotas.limiter import QuotaUsage
from chronik.security.quotas.token_buckets import ClientRateLimiter
from chronik.transactions.coordinator import TransactionCoordinator, TransactionJoiner

if TYPE_CHECKING:
    from chronik.health.reports import HealthReport
    from chronik.history.store import HistoryAnswer, HistoryQuery
    from chronik.security.authorizer import Authorizer
    from chronik.security.sasl.authenticator import Authenticator


class Services(msgspec.Struct):
    """The components of a node that API handlers use."""

    config: NodeConfig
    clock: Clock
    store: MetadataStore
    configs: ConfigResolver
    topics: TopicAdmin
    replicas: ReplicaManager
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    transaction_joiner: TransactionJoiner
    fetch_sessions: FetchSessionCache
    producer_ids: ProducerIdAllocator
    coordinators: CoordinatorTerms
    transaction_coordinators: CoordinatorTerms
    is_fenced: Callable[[], bool]
    """Return whether this broker is fenced, because its controller lease has expired.

    A fenced broker serves neither records nor groups.
    """
    lease_expired_seconds: Callable[[], float]
    """Return the seconds since the controller lease expired; negative while it is valid, infinite without one."""
    may_be_replaced: Callable[[], bool]
    """Return whether other brokers may have taken over this broker's partitions after failed heartbeats."""
    controller_id: Callable[[], int]
    is_unreachable: Callable[[int], bool]
    """Return whether a broker's port refuses connections although the broker is not fenced yet.

    Responses omit unreachable brokers: Java's admin client would wait for them until the call times out (KAFKA-20673).
    """
    rejected_batches: RejectedBatches
    bound_addresses: dict[str, Address] = msgspec.field(default_factory=dict)
    """Addresses to which this node's listeners are bound, by listener name; empty before they are bound."""
    registry_url: str = ""
    """URL of this node's schema registry; empty if it serves none that its Kafka clients can reach."""
    decompressor: BatchDecompressor = msgspec.field(default_factory=BatchDecompressor)
    schema_validator: SchemaValidator = msgspec.field(default_factory=SchemaValidator)
    encoded_topics: EncodedTopicCache = msgspec.field(default_factory=EncodedTopicCache)
    samples: SampleRequests = msgspec.field(default_factory=SampleRequests)
    producer_id_allowances: ClientRateLimiter = msgspec.field(
        default_factory=lambda: ClientRateLimiter(
            PRODUCER_IDS_PER_CLIENT_MAX, PRODUCER_IDS_PER_CLIENT_MAX / PRODUCER_IDS_PER_SECOND
        )
    )
    authorizer: Authorizer | None = None
    """The authorizer of client requests; None if every operation is permitted."""
    outbox: UnsentByteCounter = msgspec.field(default_factory=UnsentByteCounter)
    scheduler: Scheduler = msgspec.field(default_factory=Scheduler)
    registry_meter: RegistryRequestMeter = msgspec.field(default_factory=RegistryRequestMeter)
    find_health: Callable[[], Awaitable[HealthReport]] | None = None
    """Return the problems of the cluster, as of about now; None if this node does not monitor its health."""
    latest_health: Callable[[], HealthReport | None] = lambda: None
    """Return the latest problems of the cluster without waiting; None if they are not known yet."""
    find_history: Callable[[HistoryQuery], Awaitable[HistoryAnswer]] | None = None
    """Return the answer to a query of this node's history; None if this node keeps none."""
    authenticator: Authenticator | None = None
    """The SASL authenticator; None if no listener uses SASL."""

    @property
    def image(self) -> Image:
        return self.store.image

    @property
    def node_id(self) -> int:
        return self.config.node_id

    def complete_waiting_requests(self) -> None:
        """Complete all requests that wait for records or sample rows, because this node is stopping."""
        self.replicas.wake_fetches()
        self.samples.stop()


class RequestContext(NamedTuple):
    """The header fields, connection and quota usage of one request."""

    version: int
    client_id: str
    peer: ConnectedClient
    early_completion: EarlyCompletion = EarlyCompletion(lambda: False)
    """Signal that completes this request early, because the client's later requests wait for it."""
    usage: QuotaUsage | None = None
    """The meter of this request's quota usage; None if the client has no quota."""
    may_be_stale: bool = False
    """Whether the metadata image may be stale, because no majority has confirmed that it is current."""

    api_key: int = 0

    @property
    def api_name(self) -> str:
        """Return the name of the request's API."""
        return APIS[self.api_key].name

    @property
    def listener(self) -> str:
        """Return the listener of the client's connection, which determines the broker addresses in responses."""
        return self.peer.listener
