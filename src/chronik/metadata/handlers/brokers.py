"""Handlers of broker commands: registration, status, removal and configs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from msgspec.structs import replace

from chronik.metadata import elections
from chronik.metadata.commands.base import NO_EPOCH
from chronik.metadata.commands.brokers import (
    BrokerStatus,
    RegisterBroker,
    RemoveBroker,
    UpdateBrokerConfig,
    UpdateBrokerStatus,
)
from chronik.metadata.handlers import CommandHandlers
from chronik.metadata.handlers.configs import apply_config_changes
from chronik.metadata.image import Image
from chronik.metadata.levels import (
    DYNAMIC_MEMBERSHIP_LEVEL,
    FEATURE_NAME,
    find_registration_obstacle,
    get_cluster_level,
)
from chronik.metadata.records import ApplyResult, Broker, CommandRejectedError, Partition
from chronik.metadata.writer import ImageWriter
from chronik.protocol.errors import ErrorCode

PartitionReaction = Callable[[Partition, int, Mapping[int, Broker]], Partition]
"""A function that returns a partition with its ISR and leader updated after a broker's status change."""

BROKERS_MAX: Final = 1000
"""The maximum number of registered brokers, which bounds the image if a client keeps registering new ids."""


def register_broker(writer: ImageWriter, command: RegisterBroker, index: int) -> ApplyResult:
    """Apply a RegisterBroker command: register the broker's new incarnation and re-elect its partitions' leaders."""
    known = writer.image.brokers.get(command.broker_id)
    if known is not None and known.incarnation == command.incarnation:
        return ApplyResult(value=known.epoch)
    _check_broker_registration(writer, command)
    broker = Broker(
        id=command.broker_id,
        host=command.host,
        port=command.port,
        rack=command.rack,
        status=get_running_broker_status(writer.image, command.broker_id),
        epoch=index,
        incarnation=command.incarnation,
        directory_id=command.directory_id,
        listeners=command.listeners,
        levels=command.levels,
        first_registered_ms=_get_first_registered_ms(known, command),
        registered_ms=command.time_ms,
    )
    writer.put_broker(broker)
    if known is not None and known.directory_id != command.directory_id:
        _update_partitions(writer, command.broker_id, elections.after_disk_loss)
    else:
        restarted = elections.after_durable_restart if command.is_durable else elections.after_restart
        _update_partitions(writer, command.broker_id, restarted)
    return ApplyResult(value=index)


def _get_first_registered_ms(known: Broker | None, command: RegisterBroker) -> int:
    return command.time_ms if known is None or known.first_registered_ms < 0 else known.first_registered_ms


def _check_broker_registration(writer: ImageWriter, command: RegisterBroker) -> None:
    image = writer.image
    # Brokers register before the cluster is bootstrapped; its initial level depends on what they support.
    if image.cluster_id or FEATURE_NAME in image.features:
        fault = find_registration_obstacle(image.features, command.broker_id, command.levels)
        if fault is not None:
            raise CommandRejectedError(ErrorCode.UNSUPPORTED_VERSION, fault)
    for other in image.brokers.values():
        if other.directory_id == command.directory_id and other.id != command.broker_id:
            message = f"the data folder of broker {command.broker_id} belongs to broker {other.id}"
            raise CommandRejectedError(ErrorCode.INVALID_REGISTRATION, message)
    if (
        image.cluster_id
        and image.nodes
        and get_cluster_level(image.features) >= DYNAMIC_MEMBERSHIP_LEVEL
        and command.broker_id not in image.nodes
    ):
        message = f"node {command.broker_id} does not belong to this cluster: chronik cluster add-node lets it in"
        raise CommandRejectedError(ErrorCode.INVALID_REGISTRATION, message)
    if command.broker_id not in image.brokers and len(image.brokers) >= BROKERS_MAX:
        raise CommandRejectedError(ErrorCode.INVALID_REGISTRATION, f"there are {BROKERS_MAX} brokers already")


_REACTIONS: Final[dict[BrokerStatus, PartitionReaction]] = {
    BrokerStatus.OFFLINE: elections.after_fencing,
    BrokerStatus.ONLINE: elections.after_return,
    BrokerStatus.MAINTENANCE: elections.after_maintenance_start,
}


def update_broker_status(writer: ImageWriter, command: UpdateBrokerStatus, index: int) -> ApplyResult:
    """Apply an UpdateBrokerStatus command: fence or unfence a broker and update its partitions' ISRs and leaders."""
    broker = require_registered_broker(writer, command.broker_id, command.broker_epoch)
    is_back = command.status is BrokerStatus.ONLINE
    set_broker_status(writer, broker, get_running_broker_status(writer.image, broker.id) if is_back else command.status)
    return ApplyResult()


def get_running_broker_status(image: Image, broker_id: int) -> BrokerStatus:
    """Return the status of a running broker: MAINTENANCE if its node is drained, else ONLINE."""
    node = image.nodes.get(broker_id)
    return BrokerStatus.MAINTENANCE if node is not None and node.draining else BrokerStatus.ONLINE


def set_broker_status(writer: ImageWriter, broker: Broker, status: BrokerStatus) -> None:
    """Set a broker's status, and update the ISRs and leaders of its partitions."""
    if broker.status is not status:
        writer.put_broker(replace(broker, status=status))
        _update_partitions(writer, broker.id, _REACTIONS[status])


def remove_broker(writer: ImageWriter, command: RemoveBroker, index: int) -> ApplyResult:
    """Apply a RemoveBroker command: delete a broker's registration."""
    unregister_broker(writer, require_registered_broker(writer, command.broker_id, command.broker_epoch).id)
    return ApplyResult()


def unregister_broker(writer: ImageWriter, broker_id: int) -> None:
    """Delete a broker's registration and dynamic configs, and fence the broker in its partitions."""
    writer.remove_broker(broker_id)
    _update_partitions(writer, broker_id, elections.after_fencing)
    if broker_id in writer.image.broker_configs:
        writer.set_broker_configs(broker_id, {})


def update_broker_config(writer: ImageWriter, command: UpdateBrokerConfig, index: int) -> ApplyResult:
    """Apply an UpdateBrokerConfig command: change the dynamic configs of a broker, registered or not."""
    old = writer.image.broker_configs.get(command.broker_id, {})
    new = apply_config_changes(old, command.set, command.delete, replace=command.replace)
    if new != old:
        writer.set_broker_configs(command.broker_id, new)
    return ApplyResult()


def require_registered_broker(writer: ImageWriter, broker_id: int, epoch: int) -> Broker:
    """Return the registered broker with this id, and reject the command if the broker epoch differs.

    Raises:
        CommandRejectedError: The broker is not registered, or has another epoch.
    """
    broker = writer.image.brokers.get(broker_id)
    if broker is None:
        raise CommandRejectedError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered")
    if epoch not in (NO_EPOCH, broker.epoch):
        message = f"broker {broker_id} is in epoch {broker.epoch}, the command is for epoch {epoch}"
        raise CommandRejectedError(ErrorCode.STALE_BROKER_EPOCH, message)
    return broker


def _update_partitions(writer: ImageWriter, broker_id: int, react: PartitionReaction) -> None:
    brokers = writer.image.brokers
    for topic in writer.image.topics_on_broker(broker_id):  # only partitions with a replica on the broker can change
        changes: dict[int, Partition] = {}
        for number, partition in enumerate(topic.partitions):
            changed = react(partition, broker_id, brokers)
            if changed is not partition:
                changes[number] = changed
        if changes:
            writer.set_partitions(topic, changes)


HANDLERS: CommandHandlers = {
    RegisterBroker: register_broker,
    UpdateBrokerStatus: update_broker_status,
    RemoveBroker: remove_broker,
    UpdateBrokerConfig: update_broker_config,
}
