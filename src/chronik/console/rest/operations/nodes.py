"""Operations on nodes: list, describe, add, drain, promote, demote and remove."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from chronik.client.cluster_view import ClusterState, describe_cluster_state, describe_partitions
from chronik.client.configs import BROKER_RESOURCE, ConfigTarget
from chronik.client.errors import ClientError
from chronik.client.nodes import AlterNodesAction, AlterNodesChange, alter_nodes, describe_nodes, to_planned_node
from chronik.client.partitions import list_reassignments, reassign_partitions
from chronik.client.records import TopicPartition
from chronik.console.rest.context import OperationContext, build_not_found_error
from chronik.console.rest.errors import RestError
from chronik.console.rest.models.cluster import Config, LogDirectory, NewNode, Node, NodeDetails, Stopping
from chronik.console.rest.models.common import DryRun, NoQuestion, Page, Paging, Plan
from chronik.console.rest.operations.cluster import build_nodes, fetch_nodes
from chronik.console.rest.operations.configs import describe_resource_configs as described_configs
from chronik.console.rest.operations.shared import call_or_none_if_unauthorized, describe_log_dirs, paginate
from chronik.planning.cluster_plans import ClusterPlan as Steps
from chronik.planning.cluster_plans import (
    describe_plan,
    plan_addition,
    plan_demotion,
    plan_drain,
    plan_promotion,
    plan_removal,
    plan_undrain,
)
from chronik.planning.shutdown_check import find_shutdown_obstacles
from chronik.planning.views import PlanRejectedError
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.describe_log_dirs import DescribeLogDirsResult


def list_all(context: OperationContext, params: Paging) -> Page[Node]:
    """List the nodes of the cluster."""
    return paginate(build_nodes(context, fetch_nodes(context)[0]), params.after, params.limit)


def show(context: OperationContext, params: NoQuestion) -> NodeDetails:
    """Describe a node with its configs and log directories."""
    node_id = context.path_parameters["node"]
    found = [node for node in build_nodes(context, fetch_nodes(context)[0]) if node.id == node_id]
    if not found:
        raise build_not_found_error(f"node {node_id} does not exist in this cluster")
    values = {name: getattr(found[0], name) for name in Node.__struct_fields__}
    directories = _describe_log_dirs(context, node_id)
    details = NodeDetails(**values, configs=_fetch_non_default_configs(context, node_id), log_dirs=directories)
    details.bytes = sum(each.bytes for each in directories) if directories else None
    return details


def _fetch_non_default_configs(context: OperationContext, node_id: int) -> list[Config]:
    """Return a broker's non-default configs; empty if the principal is not authorized or the node is unreachable."""

    def send() -> list[Config]:
        return described_configs(context.cluster.node(node_id), ConfigTarget(BROKER_RESOURCE, str(node_id)))

    try:
        return [each for each in call_or_none_if_unauthorized(send) or () if each.source != "default"]
    except (ClientError, KafkaError):
        return []


def _describe_log_dirs(context: OperationContext, node_id: int) -> list[LogDirectory]:
    try:
        return [
            _to_log_directory(each)
            for each in call_or_none_if_unauthorized(lambda: describe_log_dirs(context, node_id, None)) or ()
        ]
    except (ClientError, KafkaError):
        return []


def _to_log_directory(result: DescribeLogDirsResult) -> LogDirectory:
    partitions = [each for topic in result.topics for each in topic.partitions]
    return LogDirectory(
        result.log_dir,
        ErrorCode(result.error_code).message if result.error_code else None,
        result.total_bytes if result.total_bytes >= 0 else None,
        result.usable_bytes if result.usable_bytes >= 0 else None,
        len(partitions),
        sum(each.partition_size for each in partitions),
    )


def ok_to_stop(context: OperationContext, params: NoQuestion) -> Stopping:
    """Check whether a node can be stopped safely."""
    nodes = [to_planned_node(node) for node in describe_nodes(context.cluster).nodes]
    if context.path_parameters["node"] not in [node.id for node in nodes]:
        raise build_not_found_error(f"node {context.path_parameters['node']} does not exist in this cluster")
    reasons = find_shutdown_obstacles(nodes, describe_partitions(context.cluster), {context.path_parameters["node"]})
    return Stopping(not reasons, [each.sentence for each in reasons])


def drain(context: OperationContext, params: DryRun) -> Plan:
    """Drain a node: transfer its partition leaderships to other nodes and assign it no new replicas."""
    return _plan_and_execute_change(
        context, params.dry_run, lambda view: plan_drain(view.nodes, context.path_parameters["node"])
    )


def undrain(context: OperationContext, params: DryRun) -> Plan:
    """Let a drained node lead partitions again."""
    return _plan_and_execute_change(
        context, params.dry_run, lambda view: plan_undrain(view.nodes, context.path_parameters["node"])
    )


def promote(context: OperationContext, params: DryRun) -> Plan:
    """Make a node a voter of the Raft quorum."""
    return _plan_and_execute_change(
        context, params.dry_run, lambda view: plan_promotion(view.nodes, context.path_parameters["node"])
    )


def demote(context: OperationContext, params: DryRun) -> Plan:
    """Make a node an observer without a vote."""
    return _plan_and_execute_change(
        context, params.dry_run, lambda view: plan_demotion(view.nodes, context.path_parameters["node"])
    )


def add(context: OperationContext, params: NewNode) -> Plan:
    """Add a node to the cluster."""
    new = AlterNodesChange(AlterNodesAction.ADD, params.id, params.host, params.port)
    return _plan_and_execute_change(context, params.dry_run, lambda view: plan_addition(view.nodes, params.id), new)


def remove(context: OperationContext, params: DryRun) -> Plan:
    """Start or continue the removal of a node. The client repeats the request when the reassignments are complete."""
    node_id = context.path_parameters["node"]
    plan = _plan_and_execute_change(
        context, params.dry_run, lambda view: plan_removal(view.nodes, view.partitions, node_id)
    )
    if not params.dry_run and not plan.done:
        plan.plan.append("repeat this request when the reassignments have finished: then the node is removed")
    return plan


def _plan_and_execute_change(
    context: OperationContext, dry_run: bool, make: Callable[[ClusterState], Steps], new: AlterNodesChange | None = None
) -> Plan:
    """Plan a change of the cluster's nodes, execute it unless `dry_run` is set, and return the plan.

    Raises:
        RestError: The change is not possible.
        KafkaError: A step failed.
    """
    view = describe_cluster_state(context.cluster)
    if not view.nodes:
        raise RestError(HTTPStatus.CONFLICT, "this node runs in standalone mode: there is no cluster to change")
    try:
        steps = make(view)
    except PlanRejectedError as error:
        if dry_run:
            if not _node_exists(context, view):
                raise build_not_found_error(str(error)) from None
            return Plan([], str(error))
        status = HTTPStatus.CONFLICT if _node_exists(context, view) else HTTPStatus.NOT_FOUND
        raise RestError(status, str(error)) from None
    plan = Plan(describe_plan(steps) or ["no changes are needed"])
    if not dry_run:
        plan.done = _execute_steps(context, steps, new)
    return plan


def _node_exists(context: OperationContext, view: ClusterState) -> bool:
    return "node" not in context.path_parameters or context.path_parameters["node"] in [
        node.node_id for node in view.described.nodes
    ]


def _execute_steps(context: OperationContext, steps: Steps, new: AlterNodesChange | None) -> bool:
    """Execute the steps of a plan, and return whether the change is complete."""
    cluster = context.cluster
    changes = [new] if new is not None and steps.adds is not None else []
    changes += [AlterNodesChange(AlterNodesAction.DRAIN, steps.drains)] if steps.drains is not None else []
    changes += [AlterNodesChange(AlterNodesAction.UNDRAIN, steps.undrains)] if steps.undrains is not None else []
    if new is None:  # A node that was just added is promoted after it has joined.
        changes += [AlterNodesChange(AlterNodesAction.PROMOTE, each) for each in steps.promotes]
    if changes:
        alter_nodes(cluster, changes)
    if steps.moves:
        moves = {TopicPartition(each.partition.topic, each.partition.index): each.replicas for each in steps.moves}
        failures = reassign_partitions(cluster, moves)
        for error in failures.values():
            if error.code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
                raise error
    if steps.removes is None:
        alter = [AlterNodesChange(AlterNodesAction.DEMOTE, each) for each in steps.demotes]
        if alter:
            alter_nodes(cluster, alter)
        return True
    if steps.moves or any(steps.removes in move.removing for move in list_reassignments(cluster)):
        return False
    last = [AlterNodesChange(AlterNodesAction.DEMOTE, each) for each in steps.demotes]
    alter_nodes(cluster, [*last, AlterNodesChange(AlterNodesAction.REMOVE, steps.removes)])
    return True
