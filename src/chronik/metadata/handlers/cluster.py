"""Handlers of cluster-wide commands: cluster id, feature levels and producer ids."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from chronik.metadata import levels
from chronik.metadata.commands.cluster import AllocateProducerIds, CreateCluster, SetFeatureLevel
from chronik.metadata.errors import CommandRejectedError
from chronik.metadata.handlers import CommandHandlers
from chronik.metadata.handlers.brokers import require_registered_broker
from chronik.metadata.records import ApplyResult
from chronik.metadata.writer import ImageWriter
from chronik.protocol.errors import ErrorCode

PRODUCER_ID_MAX: Final = 2**63 - 1
FEATURES_MAX: Final = 1000
"""The maximum number of features, a safeguard against clients that add features without end."""


def create_cluster(writer: ImageWriter, command: CreateCluster, index: int) -> ApplyResult:
    """Set the cluster id."""
    if writer.image.cluster_id:
        raise CommandRejectedError(
            ErrorCode.INCONSISTENT_CLUSTER_ID, f"this is cluster {writer.image.cluster_id} already"
        )
    level = levels.cluster_level(writer.image.features)
    fault = levels.find_upgrade_obstacle(writer.image.features, writer.image.brokers, level)
    if fault is not None:  # a broker has registered since the proposer chose the level
        raise CommandRejectedError(ErrorCode.UNSUPPORTED_VERSION, f"{levels.FEATURE_NAME} {level}: {fault}")
    writer.set_cluster_id(command.cluster_id)
    if level >= levels.DYNAMIC_MEMBERSHIP_LEVEL:
        # Brokers that registered before the bootstrap have no time: their commands had to be valid at level 1.
        for broker in [each for each in writer.image.brokers.values() if each.registered_ms < 0]:
            writer.put_broker(replace(broker, first_registered_ms=command.time_ms, registered_ms=command.time_ms))
    return ApplyResult()


def set_feature_level(writer: ImageWriter, command: SetFeatureLevel, index: int) -> ApplyResult:
    """Set or remove a feature level."""
    features = writer.image.features
    if not command.name:
        raise CommandRejectedError(ErrorCode.FEATURE_UPDATE_FAILED, "a feature needs a name")
    if command.name not in features and len(features) >= FEATURES_MAX:
        raise CommandRejectedError(ErrorCode.FEATURE_UPDATE_FAILED, f"there are {FEATURES_MAX} features already")
    if command.name == levels.FEATURE_NAME:
        fault = levels.find_upgrade_obstacle(features, writer.image.brokers, command.level)
        if fault is not None:
            message = levels.format_update_error(command.name, command.level, fault)
            raise CommandRejectedError(ErrorCode.INVALID_UPDATE_VERSION, message)
        # A node that has not registered may not support the level: it must stop here.
        levels.check_level_supported(command.level, "the cluster")
    current = levels.cluster_level(features) if command.name == levels.FEATURE_NAME else features.get(command.name, 0)
    if current != command.level:
        writer.set_feature(command.name, command.level)
    return ApplyResult()


def allocate_producer_ids(writer: ImageWriter, command: AllocateProducerIds, index: int) -> ApplyResult:
    """Allocate a block of producer ids."""
    require_registered_broker(writer, command.broker_id, command.broker_epoch)
    first = writer.image.next_producer_id
    if first > PRODUCER_ID_MAX - command.count:
        raise CommandRejectedError(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids have been given out")
    writer.set_next_producer_id(first + command.count)
    return ApplyResult(value=first)


HANDLERS: CommandHandlers = {
    CreateCluster: create_cluster,
    SetFeatureLevel: set_feature_level,
    AllocateProducerIds: allocate_producer_ids,
}
