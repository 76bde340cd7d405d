"""Commands of brokers."""

from enum import Enum
from typing import Annotated, Final

from msgspec import Meta

from chronik.metadata.commands.base import NO_EPOCH, Base, BrokerId, Id, Part, Port, TimeMs
from chronik.metadata.levels import FIRST, GROWTH, added_fields

CLUSTER_DEFAULT: Final = -1
"""The broker id under which configs for all brokers are kept."""

Level = Annotated[int, Meta(ge=1, le=2**15 - 1)]


class BrokerStatus(Enum):
    ONLINE = "online"
    OFFLINE = "offline"
    MAINTENANCE = "maintenance"
    """Keeps its replicas in sync, leads nothing that another could lead, and gets nothing new."""


class Endpoint(Part, frozen=True):
    """A listener of a broker, and where its clients find it."""

    listener: Annotated[str, Meta(min_length=1)]
    host: str
    port: Port


@added_fields(listeners=FIRST, levels=FIRST, time_ms=GROWTH)
class RegisterBroker(Base, frozen=True, tag=10):
    """A broker has started. The result's `value` is its broker epoch: the log index of the registration.

    A new incarnation may have lost what it had not synced, so the leader epoch of every partition it led goes up: the
    same epoch and offset never hold different data. It also leaves every ISR that has other members, unless it
    `is_durable`, which means that it had synced whatever it acknowledged. `host` and `port` are those of its main
    listener. Without `listeners` that is the only one, and called PLAINTEXT.
    """

    broker_id: BrokerId
    host: str
    port: Port
    rack: str | None
    incarnation: Id
    directory_id: Id
    is_durable: bool = False
    listeners: tuple[Endpoint, ...] = ()
    levels: tuple[Level, Level] = (1, 1)
    """The lowest and the highest level that it supports: see `levels`."""
    time_ms: TimeMs = -1


class UpdateBrokerStatus(Base, frozen=True, tag=11):
    """Fences a broker or brings it back; ISRs shrink and leaders are elected in the same command."""

    broker_id: BrokerId
    status: BrokerStatus
    broker_epoch: int = NO_EPOCH


class RemoveBroker(Base, frozen=True, tag=12):
    broker_id: BrokerId
    broker_epoch: int = NO_EPOCH


class UpdateBrokerConfig(Base, frozen=True, tag=13):
    """Changes dynamic configs of one broker, or of all (`CLUSTER_DEFAULT`). `replace` drops keys that are not set."""

    broker_id: Annotated[int, Meta(ge=-1, le=2**31 - 1)]
    set: dict[str, str] = {}
    delete: tuple[str, ...] = ()
    replace: bool = False
