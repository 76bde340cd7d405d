"""Commands that register brokers and change their status and configs."""

from enum import Enum
from typing import Annotated, Final

from msgspec import Meta

from chronik.metadata.commands.base import NO_EPOCH, BrokerId, CommandBase, CommandPart, Port, TimeMs, UuidBytes
from chronik.metadata.levels import DYNAMIC_MEMBERSHIP_LEVEL, FIRST_LEVEL, added_fields

CLUSTER_DEFAULT: Final = -1
"""The broker id under which the cluster-wide broker configs are stored."""

FeatureLevel = Annotated[int, Meta(ge=1, le=2**15 - 1)]


class BrokerStatus(Enum):
    """The status of a registered broker: online, offline, or drained for maintenance."""

    ONLINE = "online"
    OFFLINE = "offline"
    MAINTENANCE = "maintenance"
    """The broker is drained: it receives no new replicas and leads only if no other ISR member is available."""


class Endpoint(CommandPart, frozen=True):
    """The advertised host and port of one of a broker's listeners."""

    listener: Annotated[str, Meta(min_length=1)]
    host: str
    port: Port


@added_fields(listeners=FIRST_LEVEL, levels=FIRST_LEVEL, time_ms=DYNAMIC_MEMBERSHIP_LEVEL)
class RegisterBroker(CommandBase, frozen=True, tag=10):
    """A command that registers a broker incarnation. The result's `value` is the broker epoch: the command's log index.

    A new incarnation may have lost unsynced records. The command therefore increments the leader epoch of every
    partition that the broker led, so that one epoch and offset never identify two different records. It also removes
    the broker from every ISR with other members, unless `is_durable` says that the broker had synced everything that it
    acknowledged.

    `host` and `port` belong to the main listener. If `listeners` is empty, the main listener is the only one and is
    named PLAINTEXT.
    """

    broker_id: BrokerId
    host: str
    port: Port
    rack: str | None
    incarnation: UuidBytes
    directory_id: UuidBytes
    is_durable: bool = False
    listeners: tuple[Endpoint, ...] = ()
    levels: tuple[FeatureLevel, FeatureLevel] = (1, 1)
    """The lowest and the highest feature level (`chronik.version`) that the broker supports."""
    time_ms: TimeMs = -1


class UpdateBrokerStatus(CommandBase, frozen=True, tag=11):
    """A command that fences or unfences a broker, and updates the ISRs and leaders of the broker's partitions."""

    broker_id: BrokerId
    status: BrokerStatus
    broker_epoch: int = NO_EPOCH


class RemoveBroker(CommandBase, frozen=True, tag=12):
    """A command that unregisters a broker."""

    broker_id: BrokerId
    broker_epoch: int = NO_EPOCH


class UpdateBrokerConfig(CommandBase, frozen=True, tag=13):
    """A command that changes the dynamic configs of one broker, or of all brokers (`CLUSTER_DEFAULT`).

    With `replace`, keys that are not in `set` are removed.
    """

    broker_id: Annotated[int, Meta(ge=-1, le=2**31 - 1)]
    set: dict[str, str] = {}
    delete: tuple[str, ...] = ()
    replace: bool = False
