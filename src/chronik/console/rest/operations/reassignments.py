"""Operations on partition reassignments."""

from __future__ import annotations

import re
from typing import Final

from chronik.client.nodes import describe_nodes, to_planned_node
from chronik.client.partitions import list_reassignments, reassign_partitions
from chronik.client.records import TopicPartition
from chronik.console.rest.context import OperationContext, build_bad_request_error
from chronik.console.rest.models.common import NoQuestion, Plan
from chronik.console.rest.models.transactions import Move, Moves, Placement, PlacementQuery, PlannedMove, Reassignments
from chronik.console.rest.operations.cluster import fetch_nodes
from chronik.console.rest.operations.shared import fetch_topic_metadata
from chronik.planning.replica_moves import plan_placement
from chronik.planning.views import PlannedPartition, PlanRejectedError


def list_all(context: OperationContext, params: NoQuestion) -> Moves:
    """List the partition reassignments in progress."""
    moves = list_reassignments(context.cluster)
    return Moves([Move(*each.partition, each.replicas, each.adding, each.removing) for each in moves])


PLANNED_PARTITIONS_MAX: Final = 10_000
"""Maximum number of partitions of a plan, as of a request that starts reassignments."""
_IDS: Final = re.compile(r"[0-9]{1,9}(,[0-9]{1,9}){0,99}")


def plan(context: OperationContext, params: PlacementQuery) -> Placement:
    """Plan the reassignment of a topic to given nodes. Nothing is changed."""
    if _IDS.fullmatch(params.nodes) is None:
        raise build_bad_request_error(
            f"nodes={params.nodes[:40]!r}: expected at most 100 node ids, separated by commas"
        )
    chosen = {int(each) for each in params.nodes.split(",")}
    nodes = [to_planned_node(each) for each in fetch_nodes(context)[0].nodes]
    name = context.path_parameters["topic"]
    topic = context.cluster.retry(lambda: context.cluster.topic(name))
    if len(topic.partitions) > PLANNED_PARTITIONS_MAX:
        raise build_bad_request_error(f"topic {name} has more than {PLANNED_PARTITIONS_MAX:,} partitions")
    leaving = {
        each.partition.partition: each.removing
        for each in list_reassignments(context.cluster)
        if each.partition.topic == name
    }
    partitions = [
        PlannedPartition(
            name,
            each.partition_index,
            tuple(node for node in each.replica_nodes if node not in leaving.get(each.partition_index, ())),
            tuple(each.isr_nodes),
            each.leader_id,
        )
        for each in sorted(topic.partitions, key=lambda each: each.partition_index)
    ]
    try:
        moves = plan_placement(nodes, partitions, chosen, params.replication_factor)
    except PlanRejectedError as error:
        return Placement([], str(error))
    return Placement(
        [PlannedMove(each.partition.index, list(each.partition.replicas), list(each.replicas)) for each in moves]
    )


def start(context: OperationContext, params: Reassignments) -> Plan:
    """Reassign partitions, or cancel reassignments in progress."""
    wanted = {TopicPartition(each.topic, each.partition): each.replicas for each in params.partitions}
    if params.dry_run:
        describe_nodes(context.cluster)  # A plan requires the Describe permission on the cluster.
        return _build_reassignment_plan(context, wanted)
    plan = Plan([_describe_move(each, None, replicas) for each, replicas in wanted.items()])
    for partition, error in reassign_partitions(context.cluster, wanted).items():
        raise type(error)(error.code, f"{partition}: {error.code.message}")
    plan.done = True
    return plan


def _build_reassignment_plan(context: OperationContext, wanted: dict[TopicPartition, list[int] | None]) -> Plan:
    topics = fetch_topic_metadata(context.cluster, sorted({each.topic for each in wanted}))
    current = {
        TopicPartition(name, each.partition_index): each.replica_nodes
        for name, topic in topics.items()
        for each in topic.partitions
    }
    brokers = set(context.node.services.image.brokers)
    plan = Plan([_describe_move(each, current.get(each), replicas) for each, replicas in wanted.items()])
    for partition, replicas in wanted.items():
        if partition not in current:
            plan.refused = f"{partition}: the partition does not exist"
        elif replicas is not None and (not replicas or len(set(replicas)) < len(replicas)):
            plan.refused = f"{partition}: expected at least one node and no duplicates"
        elif unknown := sorted(set(replicas or ()) - brokers):
            plan.refused = f"{partition}: node {unknown[0]} does not exist"
    return plan


def _describe_move(partition: TopicPartition, current: list[int] | None, replicas: list[int] | None) -> str:
    if replicas is None:
        return f"cancel the reassignment of {partition}"
    before = "" if current is None else f" from nodes {_join_ids(current)}"
    return f"reassign {partition}{before} to nodes {_join_ids(replicas)}"


def _join_ids(nodes: list[int]) -> str:
    return ", ".join(map(str, nodes))
