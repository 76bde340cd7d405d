"""The definition of an attack, and its target.

An `Attack` is declared in the module of its category:

    Attack("same-topic-4000-times", "Metadata of one topic, named 4,000 times", strike, prepare=large_topic)

`prepare(target)` creates topics and other state as an honest user would. `strike(target)` executes the attack over
connections of `target.connect()`, which count the bytes sent. The strike and the seconds after it are measured.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from chronik.client.cluster import ClusterClient as Client
from chronik.client.records import TopicPartition
from chronik.config import Address
from chronik.listeners import PLAINTEXT
from chronik.testing.cluster import Cluster, ClusterNode
from tests.abuse.authentication.attacked_listener import ATTACKER_HOST, AttackedListener, attacked_address
from tests.abuse.budget import BUDGET, AttackBudget
from tests.raw import RawClient

SINGLE_NODE: Final = "node"
CLUSTER: Final = "cluster"
BOTH: Final = (SINGLE_NODE, CLUSTER)


@dataclass(slots=True)
class SentBytes:
    """Bytes sent by an attacker: the total, and the largest request."""

    total: int = 0
    largest: int = 0

    def add(self, count: int) -> None:
        self.total += count
        self.largest = max(self.largest, count)


class MeteredClient(RawClient):
    """A raw Kafka client that counts the bytes it sends."""

    def __init__(self, address: Address, meter: SentBytes) -> None:
        super().__init__(str(address))
        self._meter = meter

    def send_bytes(self, data: bytes) -> None:
        super().send_bytes(data)
        self._meter.add(len(data))


@dataclass(frozen=True, slots=True)
class ProbeOptions:
    """The honest requests that run alongside an attack, in addition to the pings."""

    acks: int = 1
    fetches: bool = False
    http: bool = False
    """Whether to log in over HTTP repeatedly and to hold a `/stream`; needs a listener with passwords."""


@dataclass(slots=True)
class AttackTarget:
    """The node or cluster under attack. `victim` leads the probe's partition."""

    kind: str
    nodes: list[ClusterNode]
    victim: ClusterNode
    probe_topic: str
    raft: Address | None = None
    """The victim's peer listener, in a cluster."""
    cluster: Cluster | None = None
    attacked_listener: AttackedListener | None = None
    """The secured listener under attack, if it is not the plaintext one. The attacker uses another address."""
    random: random.Random = field(default_factory=random.Random)
    meter: SentBytes = field(default_factory=SentBytes)
    responses: int = 0
    """Responses that a flood has received."""
    use_small_counts: bool = False
    """Whether to use the small counts of `make test`."""

    restarted: set[int] = field(default_factory=set)
    """Ids of nodes that the attack restarts. Lost connections to them are not reported."""
    _open_connections: list[socket.socket | RawClient] = field(default_factory=list)

    def count(self, few: int, full: int) -> int:
        """Return the small or the full count."""
        return few if self.use_small_counts else full

    @property
    def kafka(self) -> Address:
        return attacked_address(self.victim)

    @property
    def http(self) -> Address:
        return self.victim.http

    def connect(self) -> MeteredClient:
        """Open a connection to the victim's Kafka port."""
        return MeteredClient(self.kafka, self.meter)

    def connect_to_leader(self, topic: str) -> MeteredClient:
        """Open a connection to the leader of a topic's first partition."""
        with Client(self.victim.bootstrap, client_id="abuse") as client:
            return MeteredClient(client.retry(lambda: client.leader(TopicPartition(topic, 0))).address, self.meter)

    def open_socket(self, address: Address, data: bytes = b"", seconds: float = 30.0) -> socket.socket:
        """Open a socket to any port of the victim and send `data`."""
        connection = socket.create_connection(address, seconds, (ATTACKER_HOST, 0) if self.attacked_listener else None)
        if data:
            connection.sendall(data)
            self.meter.add(len(data))
        return connection

    def keep_open(self, connection: socket.socket | RawClient) -> None:
        """Keep a connection open until the measurement ends."""
        self._open_connections.append(connection)

    def close_kept(self) -> None:
        """Close all connections that were kept open."""
        for connection in self._open_connections:
            connection.close()
        self._open_connections.clear()


def prepare_nothing(target: AttackTarget) -> None:
    """Prepare nothing."""


@dataclass(frozen=True, slots=True)
class Attack:
    """An attack and its budget."""

    name: str
    description: str
    """The description in the report, one line."""
    strike: Callable[[AttackTarget], None]
    prepare: Callable[[AttackTarget], None] = prepare_nothing
    targets: tuple[str, ...] = BOTH
    quick: bool = False
    """Whether the attack also runs in `make test`, with small counts."""
    config: dict[str, Any] = field(default_factory=dict)
    """Keys of the nodes' configuration files."""
    protocol: str = PLAINTEXT
    """The security protocol of the attacked listener, which the probe uses as well."""
    mechanism: str = ""
    """The probe's SASL mechanism, if the listener requires authentication."""
    budget: AttackBudget = BUDGET
    """The budget. A comment must give the reason for a different one."""
    probe: ProbeOptions = ProbeOptions()
