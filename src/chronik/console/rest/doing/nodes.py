"""Nodes: listed and shown; let in, drained, given votes, taken out."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from chronik.client.cluster_views import ClusterView, view_cluster, view_partitions
from chronik.client.configs import BROKER_RESOURCE, Resource
from chronik.client.errors import ClientError
from chronik.client.nodes import Action, NodeChange, alter_nodes, describe_nodes, view_of
from chronik.client.partitions import list_reassignments, reassign_partitions
from chronik.client.records import TopicPartition
from chronik.console.rest.call import Call, missing
from chronik.console.rest.doing.cluster import known_nodes, nodes_of
from chronik.console.rest.doing.configs import described as described_configs
from chronik.console.rest.doing.shared import log_dirs, page_of, unless_refused
from chronik.console.rest.refusals import Refusal
from chronik.console.rest.shapes.cluster import LogDirectory, NewNode, Node, NodeDetails, Stopping
from chronik.console.rest.shapes.common import DryRun, NoQuestion, Page, Paging, Plan
from chronik.console.rest.shapes.configs import Config
from chronik.planning.changes import (
    Plan as Steps,
)
from chronik.planning.changes import (
    plan_addition,
    plan_demotion,
    plan_drain,
    plan_promotion,
    plan_removal,
    plan_undrain,
)
from chronik.planning.plans_shown import shown
from chronik.planning.stopping import why_not_stop
from chronik.planning.views import Refused
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.describe_log_dirs import DescribeLogDirsResult


def list_all(call: Call, asked: Paging) -> Page[Node]:
    return page_of(nodes_of(call, known_nodes(call)[0]), asked.after, asked.limit)


def show(call: Call, asked: NoQuestion) -> NodeDetails:
    node_id = call.path["node"]
    found = [node for node in nodes_of(call, known_nodes(call)[0]) if node.id == node_id]
    if not found:
        raise missing(f"there is no node {node_id} in this cluster")
    values = {name: getattr(found[0], name) for name in Node.__struct_fields__}
    folders = _log_dirs(call, node_id)
    details = NodeDetails(**values, configs=_configs(call, node_id), log_dirs=folders)
    details.bytes = sum(each.bytes for each in folders) if folders else None
    return details


def _configs(call: Call, node_id: int) -> list[Config]:
    """Those that are not as they come; none to those who may not see them, or while the node does not answer."""

    def ask() -> list[Config]:
        return described_configs(call.cluster.node(node_id), Resource(BROKER_RESOURCE, str(node_id)))

    try:
        return [each for each in unless_refused(ask) or () if each.source != "default"]
    except (ClientError, KafkaError):
        return []


def _log_dirs(call: Call, node_id: int) -> list[LogDirectory]:
    try:
        return [_log_dir(each) for each in unless_refused(lambda: log_dirs(call, node_id, None)) or ()]
    except (ClientError, KafkaError):
        return []


def _log_dir(told: DescribeLogDirsResult) -> LogDirectory:
    partitions = [each for topic in told.topics for each in topic.partitions]
    return LogDirectory(
        told.log_dir,
        ErrorCode(told.error_code).message if told.error_code else None,
        told.total_bytes if told.total_bytes >= 0 else None,
        told.usable_bytes if told.usable_bytes >= 0 else None,
        len(partitions),
        sum(each.partition_size for each in partitions),
    )


def ok_to_stop(call: Call, asked: NoQuestion) -> Stopping:
    nodes = [view_of(node) for node in describe_nodes(call.cluster).nodes]
    if call.path["node"] not in [node.id for node in nodes]:
        raise missing(f"there is no node {call.path['node']} in this cluster")
    reasons = why_not_stop(nodes, view_partitions(call.cluster), {call.path["node"]})
    return Stopping(not reasons, [each.sentence for each in reasons])


def drain(call: Call, asked: DryRun) -> Plan:
    return _change(call, asked.dry_run, lambda view: plan_drain(view.nodes, call.path["node"]))


def undrain(call: Call, asked: DryRun) -> Plan:
    return _change(call, asked.dry_run, lambda view: plan_undrain(view.nodes, call.path["node"]))


def promote(call: Call, asked: DryRun) -> Plan:
    return _change(call, asked.dry_run, lambda view: plan_promotion(view.nodes, call.path["node"]))


def demote(call: Call, asked: DryRun) -> Plan:
    return _change(call, asked.dry_run, lambda view: plan_demotion(view.nodes, call.path["node"]))


def add(call: Call, asked: NewNode) -> Plan:
    new = NodeChange(Action.ADD, asked.id, asked.host, asked.port)
    return _change(call, asked.dry_run, lambda view: plan_addition(view.nodes, asked.id), new)


def remove(call: Call, asked: DryRun) -> Plan:
    """Takes as many steps as can be taken now: partitions take their time to move, and it is asked again then."""
    node_id = call.path["node"]
    plan = _change(call, asked.dry_run, lambda view: plan_removal(view.nodes, view.partitions, node_id))
    if not asked.dry_run and not plan.done:
        plan.plan.append("ask again when the partitions have moved: then the node is removed")
    return plan


def _change(call: Call, dry_run: bool, make: Callable[[ClusterView], Steps], new: NodeChange | None = None) -> Plan:
    """Raises Refusal, KafkaError."""
    view = view_cluster(call.cluster)
    if not view.nodes:
        raise Refusal(HTTPStatus.CONFLICT, "this node stands alone: there is no cluster that could be changed")
    try:
        steps = make(view)
    except Refused as error:
        if dry_run:
            if not _knows_node(call, view):
                raise missing(str(error)) from None
            return Plan([], str(error))
        status = HTTPStatus.CONFLICT if _knows_node(call, view) else HTTPStatus.NOT_FOUND
        raise Refusal(status, str(error)) from None
    plan = Plan(shown(steps) or ["nothing has to be changed"])
    if not dry_run:
        plan.done = _carry_out(call, steps, new)
    return plan


def _knows_node(call: Call, view: ClusterView) -> bool:
    return "node" not in call.path or call.path["node"] in [node.node_id for node in view.described.nodes]


def _carry_out(call: Call, steps: Steps, new: NodeChange | None) -> bool:
    """Says whether nothing is left to do."""
    cluster = call.cluster
    changes = [new] if new is not None and steps.adds is not None else []
    changes += [NodeChange(Action.DRAIN, steps.drains)] if steps.drains is not None else []
    changes += [NodeChange(Action.UNDRAIN, steps.undrains)] if steps.undrains is not None else []
    if new is None:  # a node that is only just added gets its vote when it has come
        changes += [NodeChange(Action.PROMOTE, each) for each in steps.promotes]
    if changes:
        alter_nodes(cluster, changes)
    if steps.moves:
        moves = {TopicPartition(each.partition.topic, each.partition.index): each.replicas for each in steps.moves}
        refused = reassign_partitions(cluster, moves)
        for error in refused.values():
            if error.code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
                raise error
    if steps.removes is None:
        alter = [NodeChange(Action.DEMOTE, each) for each in steps.demotes]
        if alter:
            alter_nodes(cluster, alter)
        return True
    if steps.moves or any(steps.removes in move.removing for move in list_reassignments(cluster)):
        return False
    last = [NodeChange(Action.DEMOTE, each) for each in steps.demotes]
    alter_nodes(cluster, [*last, NodeChange(Action.REMOVE, steps.removes)])
    return True
