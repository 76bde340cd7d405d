"""Handlers of cluster-wide commands: cluster id, feature levels and producer ids."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from chronik.metadata import levels
from chronik.metadata.commands.cluster import AllocateProducerIds, CreateCluster, SetFeatureLevel
from chronik.metadata.handlers import Handlers
from chronik.metadata.handlers.brokers import registered
from chronik.metadata.records import Result
from chronik.metadata.rejection import Rejected
from chronik.metadata.writer import ImageWriter
from chronik.protocol.errors import ErrorCode

PRODUCER_ID_MAX: Final = 2**63 - 1
FEATURES_MAX: Final = 1000
"""The maximum number of features, a safeguard against clients that add features without end."""


def create_cluster(writer: ImageWriter, command: CreateCluster, index: int) -> Result:
    """Set the cluster id."""
    if writer.image.cluster_id:
        raise Rejected(ErrorCode.INCONSISTENT_CLUSTER_ID, f"this is cluster {writer.image.cluster_id} already")
    level = levels.level_of(writer.image.features)
    fault = levels.why_not_raised(writer.image.features, writer.image.brokers, level)
    if fault is not None:  # a broker has registered since the proposer chose the level
        raise Rejected(ErrorCode.UNSUPPORTED_VERSION, f"{levels.FEATURE} {level}: {fault}")
    writer.set_cluster_id(command.cluster_id)
    if level >= levels.GROWTH:
        # Brokers that registered before the bootstrap have no time: their commands had to be valid at level 1.
        for broker in [each for each in writer.image.brokers.values() if each.registered_ms < 0]:
            writer.put_broker(replace(broker, first_registered_ms=command.time_ms, registered_ms=command.time_ms))
    return Result()


def set_feature_level(writer: ImageWriter, command: SetFeatureLevel, index: int) -> Result:
    """Set or remove a feature level."""
    features = writer.image.features
    if not command.name:
        raise Rejected(ErrorCode.FEATURE_UPDATE_FAILED, "a feature needs a name")
    if command.name not in features and len(features) >= FEATURES_MAX:
        raise Rejected(ErrorCode.FEATURE_UPDATE_FAILED, f"there are {FEATURES_MAX} features already")
    if command.name == levels.FEATURE:
        fault = levels.why_not_raised(features, writer.image.brokers, command.level)
        if fault is not None:
            message = levels.not_updated(command.name, command.level, fault)
            raise Rejected(ErrorCode.INVALID_UPDATE_VERSION, message)
        # A node that has not registered may not support the level: it must stop here.
        levels.refuse_unsupported(command.level, "the cluster")
    current = levels.level_of(features) if command.name == levels.FEATURE else features.get(command.name, 0)
    if current != command.level:
        writer.set_feature(command.name, command.level)
    return Result()


def allocate_producer_ids(writer: ImageWriter, command: AllocateProducerIds, index: int) -> Result:
    """Allocate a block of producer ids."""
    registered(writer, command.broker_id, command.broker_epoch)
    first = writer.image.next_producer_id
    if first > PRODUCER_ID_MAX - command.count:
        raise Rejected(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids have been given out")
    writer.set_next_producer_id(first + command.count)
    return Result(value=first)


HANDLERS: Handlers = {
    CreateCluster: create_cluster,
    SetFeatureLevel: set_feature_level,
    AllocateProducerIds: allocate_producer_ids,
}
