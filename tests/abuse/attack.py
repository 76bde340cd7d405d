"""What an attack is, and what it is given to work with.

A row of the report is one `Attack`, in the module of its kind:

    Attack("same-topic-4000-times", "Metadata of one topic, named 4,000 times", strike, prepare=large_topic)

`prepare(target)` sets the stage as an honest user would; `strike(target)` does the harm, over connections that it makes
by `target.connect()` (whose bytes are counted). What is measured is the time of the strike and a while after it.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from chronik.client.cluster import Cluster as Client
from chronik.client.records import TopicPartition
from chronik.config import Address
from chronik.listeners import PLAINTEXT
from chronik.testing.cluster import Cluster, ClusterNode
from tests.abuse.budget import BUDGET, Budget
from tests.abuse.doors.door import ATTACKERS_HOST, Door, entrance
from tests.raw import RawClient

NODE: Final = "node"
CLUSTER: Final = "cluster"
BOTH: Final = (NODE, CLUSTER)


@dataclass(slots=True)
class Meter:
    """Bytes that attackers have sent: altogether, and in the largest request."""

    total: int = 0
    largest: int = 0

    def sent(self, count: int) -> None:
        self.total += count
        self.largest = max(self.largest, count)


class MeteredClient(RawClient):
    def __init__(self, address: Address, meter: Meter) -> None:
        super().__init__(str(address))
        self._meter = meter

    def send_bytes(self, data: bytes) -> None:
        super().send_bytes(data)
        self._meter.sent(len(data))


@dataclass(frozen=True, slots=True)
class ProbeOptions:
    """The honest requests that run alongside an attack, in addition to the pulses."""

    acks: int = 1
    fetches: bool = False
    http: bool = False
    """Whether to log in over HTTP repeatedly and to hold a `/stream`; needs a listener with passwords."""


@dataclass(slots=True)
class Target:
    """Who is attacked: `victim` leads the probe's partition, and is the only node when there is no cluster."""

    kind: str
    nodes: list[ClusterNode]
    victim: ClusterNode
    probe_topic: str
    raft: Address | None = None
    """The victim's port for its peers, in a cluster."""
    cluster: Cluster | None = None
    door: Door | None = None
    """What the probe comes in by, if not by the open port; then that is what is attacked, from an address apart."""
    random: random.Random = field(default_factory=random.Random)
    meter: Meter = field(default_factory=Meter)
    responses: int = 0
    """Responses that a flood has received."""
    few: bool = False
    """Whether small counts will do: a share of the rows runs in `make test`."""

    restarted: set[int] = field(default_factory=set)
    """Node ids: their processes are new, and the probe's connections to them were lost, which is no finding."""
    _kept: list[socket.socket | RawClient] = field(default_factory=list)

    def count(self, few: int, full: int) -> int:
        return few if self.few else full

    @property
    def kafka(self) -> Address:
        return entrance(self.victim)

    @property
    def http(self) -> Address:
        return self.victim.http

    def connect(self) -> MeteredClient:
        """A new connection to the victim's Kafka port."""
        return MeteredClient(self.kafka, self.meter)

    def connect_to_leader(self, topic: str) -> MeteredClient:
        """Of its first partition, wherever that is."""
        with Client(self.victim.bootstrap, client_id="abuse") as client:
            return MeteredClient(client.retrying(lambda: client.leader(TopicPartition(topic, 0))).address, self.meter)

    def plain(self, address: Address, data: bytes = b"", seconds: float = 30.0) -> socket.socket:
        """A socket to any of its ports, on which `data` was sent."""
        connected = socket.create_connection(address, seconds, (ATTACKERS_HOST, 0) if self.door else None)
        if data:
            connected.sendall(data)
            self.meter.sent(len(data))
        return connected

    def keep(self, connection: socket.socket | RawClient) -> None:
        """Stays open until all is measured."""
        self._kept.append(connection)

    def let_go(self) -> None:
        for connection in self._kept:
            connection.close()
        self._kept.clear()


def nothing(target: Target) -> None:
    """No stage is needed."""


@dataclass(frozen=True, slots=True)
class Attack:
    name: str
    what: str
    """One line, for the report."""
    strike: Callable[[Target], None]
    prepare: Callable[[Target], None] = nothing
    against: tuple[str, ...] = BOTH
    quick: bool = False
    """Whether it runs in `make test`, too, with small counts."""
    config: dict[str, Any] = field(default_factory=dict)
    """Keys of the nodes' config files."""
    protocol: str = PLAINTEXT
    """Of the listener that is attacked, and by which the probe comes in."""
    mechanism: str = ""
    """By which it says who it is, if it has to."""
    budget: Budget = BUDGET
    """Another one needs a reason beside it."""
    probe: ProbeOptions = ProbeOptions()
