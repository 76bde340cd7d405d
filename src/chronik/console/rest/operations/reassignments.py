"""Operations on partition reassignments."""

from __future__ import annotations

from chronik.client.nodes import describe_nodes
from chronik.client.partitions import list_reassignments, reassign_partitions
from chronik.client.records import TopicPartition
from chronik.console.rest.context import OperationContext
from chronik.console.rest.models.common import NoQuestion, Plan
from chronik.console.rest.models.transactions import Move, Moves, Reassignments
from chronik.console.rest.operations.shared import fetch_topic_metadata


def list_all(context: OperationContext, params: NoQuestion) -> Moves:
    """List the partition reassignments in progress."""
    moves = list_reassignments(context.cluster)
    return Moves([Move(*each.partition, each.replicas, each.adding, each.removing) for each in moves])


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
