"""Handlers of cluster-wide commands: cluster id, feature levels, producer ids and nodes.

From level 3 on, the controller changes the membership of the metadata log to match the nodes. Changes that could never
take effect are therefore rejected here.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from chronik.limits import CLUSTER_MEMBERS_MAX
from chronik.metadata import levels
from chronik.metadata.commands.brokers import BrokerStatus
from chronik.metadata.commands.cluster import (
    AddNode,
    AllocateProducerIds,
    CreateCluster,
    RemoveNode,
    SetFeatureLevel,
    UpdateNode,
)
from chronik.metadata.handlers import CommandHandlers
from chronik.metadata.handlers.brokers import (
    get_running_broker_status,
    require_registered_broker,
    set_broker_status,
    unregister_broker,
)
from chronik.metadata.image import Image
from chronik.metadata.levels import DYNAMIC_MEMBERSHIP_LEVEL, get_cluster_level
from chronik.metadata.records import ApplyResult, CommandRejectedError, NodeRecord
from chronik.metadata.writer import ImageWriter
from chronik.protocol.errors import ErrorCode
from chronik.wording import pluralize

PRODUCER_ID_MAX: Final = 2**63 - 1
FEATURES_MAX: Final = 1000
"""The maximum number of features, which bounds the image if a client keeps adding new names."""

NODES_MAX: Final = 1000
"""The maximum number of nodes below level 3. From level 3 on, the membership limit of the metadata log applies."""


def create_cluster(writer: ImageWriter, command: CreateCluster, index: int) -> ApplyResult:
    """Apply a CreateCluster command: store the id of the new cluster."""
    if writer.image.cluster_id:
        raise CommandRejectedError(
            ErrorCode.INCONSISTENT_CLUSTER_ID, f"this is cluster {writer.image.cluster_id} already"
        )
    level = levels.get_cluster_level(writer.image.features)
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
    """Apply a SetFeatureLevel command: set the level of a feature, or remove the feature if the level is 0."""
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
    current = (
        levels.get_cluster_level(features) if command.name == levels.FEATURE_NAME else features.get(command.name, 0)
    )
    if current != command.level:
        writer.set_feature(command.name, command.level)
    return ApplyResult()


def allocate_producer_ids(writer: ImageWriter, command: AllocateProducerIds, index: int) -> ApplyResult:
    """Apply an AllocateProducerIds command: reserve a block of producer ids for a broker."""
    require_registered_broker(writer, command.broker_id, command.broker_epoch)
    first = writer.image.next_producer_id
    if first > PRODUCER_ID_MAX - command.count:
        raise CommandRejectedError(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids have been given out")
    writer.set_next_producer_id(first + command.count)
    return ApplyResult(value=first)


def add_node(writer: ImageWriter, command: AddNode, index: int) -> ApplyResult:
    """Apply an AddNode command: add a node to the cluster, or change the peer address of a known node."""
    nodes, has_dynamic_membership = writer.image.nodes, _has_dynamic_membership(writer.image)
    known = nodes.get(command.node_id)
    nodes_max = CLUSTER_MEMBERS_MAX if has_dynamic_membership else NODES_MAX
    if known is None and len(nodes) >= nodes_max:
        raise CommandRejectedError(ErrorCode.INVALID_REQUEST, f"there are {nodes_max} nodes already")
    node = NodeRecord(command.node_id, command.host, command.port, command.voter, known is not None and known.draining)
    if has_dynamic_membership:
        _check_address_is_unique(writer.image, node)
        _check_voters_remain(writer.image, node)
    _put(writer, node)
    return ApplyResult()


def update_node(writer: ImageWriter, command: UpdateNode, index: int) -> ApplyResult:
    """Apply an UpdateNode command: change the fields of a node's record that are not None in the command."""
    node = _require_node(writer.image, command.node_id)
    changes = {name: getattr(command, name) for name in ("host", "port", "voter", "draining")}
    node = replace(node, **{name: value for name, value in changes.items() if value is not None})
    _check_address_is_unique(writer.image, node)
    _check_voters_remain(writer.image, node)
    _put(writer, node)
    return ApplyResult()


def remove_node(writer: ImageWriter, command: RemoveNode, index: int) -> ApplyResult:
    """Apply a RemoveNode command: remove a node from the cluster."""
    image = writer.image
    node = _require_node(image, command.node_id)
    if _has_dynamic_membership(image):
        _check_voters_remain(image, replace(node, voter=False))
        held = image.replica_count(node.id)
        if held:
            message = f"node {node.id} holds replicas of {pluralize(held, 'partition')}: move them to other nodes first"
            raise CommandRejectedError(ErrorCode.POLICY_VIOLATION, message)
        if node.id in image.brokers:
            unregister_broker(writer, node.id)
    writer.remove_node(node.id)
    return ApplyResult()


def _has_dynamic_membership(image: Image) -> bool:
    return get_cluster_level(image.features) >= DYNAMIC_MEMBERSHIP_LEVEL


def _require_node(image: Image, node_id: int) -> NodeRecord:
    node = image.nodes.get(node_id)
    if node is None:
        raise CommandRejectedError(ErrorCode.VOTER_NOT_FOUND, f"there is no node {node_id}")
    return node


def _check_address_is_unique(image: Image, node: NodeRecord) -> None:
    for other in image.nodes.values():
        if other.id != node.id and (other.host, other.port) == (node.host, node.port):
            message = f"{node.host}:{node.port} is the address of node {other.id}"
            raise CommandRejectedError(ErrorCode.INVALID_REQUEST, message)


def _check_voters_remain(image: Image, node: NodeRecord) -> None:
    """Reject a change that would leave the cluster without voters. During bootstrap, voters are added one by one."""
    others_vote = any(other.voter for other in image.nodes.values() if other.id != node.id)
    if image.cluster_id and not node.voter and not others_vote:
        raise CommandRejectedError(ErrorCode.POLICY_VIOLATION, f"without node {node.id} nobody would be meant to vote")


def _put(writer: ImageWriter, node: NodeRecord) -> None:
    """Store a node record, and update the status of the node's broker if draining has started or stopped."""
    if writer.image.nodes.get(node.id) == node:
        return
    writer.put_node(node)
    broker = writer.image.brokers.get(node.id)
    if broker is not None and broker.status is not BrokerStatus.OFFLINE:
        set_broker_status(writer, broker, get_running_broker_status(writer.image, node.id))


HANDLERS: CommandHandlers = {
    CreateCluster: create_cluster,
    SetFeatureLevel: set_feature_level,
    AllocateProducerIds: allocate_producer_ids,
    AddNode: add_node,
    UpdateNode: update_node,
    RemoveNode: remove_node,
}
