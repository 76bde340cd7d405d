"""Partitions that move from node to node."""

from __future__ import annotations

from chronik.client.nodes import describe_nodes
from chronik.client.partitions import list_reassignments, reassign_partitions
from chronik.client.records import TopicPartition
from chronik.console.rest.call import Call
from chronik.console.rest.doing.shared import metadata_of
from chronik.console.rest.shapes.common import NoQuestion, Plan
from chronik.console.rest.shapes.transactions import Move, Moves, Reassignments


def list_all(call: Call, asked: NoQuestion) -> Moves:
    moves = list_reassignments(call.cluster)
    return Moves([Move(*each.partition, each.replicas, each.adding, each.removing) for each in moves])


def start(call: Call, asked: Reassignments) -> Plan:
    wanted = {TopicPartition(each.topic, each.partition): each.replicas for each in asked.partitions}
    if asked.dry_run:
        describe_nodes(call.cluster)  # whoever may not describe the cluster is told no plans
        return _plan(call, wanted)
    plan = Plan([_sentence(each, None, replicas) for each, replicas in wanted.items()])
    for partition, error in reassign_partitions(call.cluster, wanted).items():
        raise type(error)(error.code, f"{partition}: {error.code.message}")
    plan.done = True
    return plan


def _plan(call: Call, wanted: dict[TopicPartition, list[int] | None]) -> Plan:
    topics = metadata_of(call.cluster, sorted({each.topic for each in wanted}))
    now = {
        TopicPartition(name, each.partition_index): each.replica_nodes
        for name, topic in topics.items()
        for each in topic.partitions
    }
    brokers = set(call.side.services.image.brokers)
    plan = Plan([_sentence(each, now.get(each), replicas) for each, replicas in wanted.items()])
    for partition, replicas in wanted.items():
        if partition not in now:
            plan.refused = f"{partition}: there is no such partition"
        elif replicas is not None and (not replicas or len(set(replicas)) < len(replicas)):
            plan.refused = f"{partition}: expected one node at least, and none twice"
        elif unknown := sorted(set(replicas or ()) - brokers):
            plan.refused = f"{partition}: there is no node {unknown[0]}"
    return plan


def _sentence(partition: TopicPartition, now: list[int] | None, replicas: list[int] | None) -> str:
    if replicas is None:
        return f"leave {partition} where it was"
    before = "" if now is None else f" from nodes {_listed(now)}"
    return f"move {partition}{before} to nodes {_listed(replicas)}"


def _listed(nodes: list[int]) -> str:
    return ", ".join(map(str, nodes))
