"""A diagnosis of a cluster for failed tests: the state of each node, according to the node itself.

Nothing here raises because of a node's response or silence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from chronik.client.cluster import ClusterClient
from chronik.client.groups import decode_assignment, describe_group, list_committed_offsets
from chronik.client.offsets import LATEST_TIMESTAMP, READ_COMMITTED, list_offsets
from chronik.client.records import TopicPartition
from chronik.client.transactions import describe_transaction, list_open_transactions, list_transactions
from chronik.errors import ChronikError
from chronik.testing.cluster import ClusterNode
from chronik.testing.seen import RECORDED_REQUESTS_MAX
from tests.chaos.replicas import partition_directory, read_log

ASK_SECONDS_MAX = 5.0
ASKER = "standing"
REQUESTS_SHOWN = 40
LOG_LINES_SHOWN = 15
SILENT = (ChronikError, OSError)
COMMON = ("Fetch", "Metadata", "ApiVersions", "OffsetFetch", "Heartbeat", "Produce")
"""Frequent requests, of which only the failed ones are shown."""


def describe_cluster_state(nodes: Iterable[ClusterNode], topics: Iterable[str], group: str) -> str:
    """Query every node about the cluster, transactions and the group, and read its disk."""
    topics = list(topics)
    lines: list[str] = []
    for node in nodes:
        lines.append(f"--- {node}")
        for look in (
            _describe_cluster,
            _describe_transactions,
            _describe_group,
            _describe_partitions,
            _describe_requests,
        ):
            lines += _run_query(look, node, topics, group)
        lines += [f"log: {line}" for line in node.log.splitlines()[-LOG_LINES_SHOWN:]]
    return "\n".join(lines)


Look = Callable[[ClusterNode, list[str], str], Iterator[str]]


def _run_query(look: Look, node: ClusterNode, topics: list[str], group: str) -> list[str]:
    """Return the lines of one query until the node fails, and the error."""
    lines: list[str] = []
    try:
        lines.extend(look(node, topics, group))
    except SILENT as silent:
        lines.append(f"{look.__name__}: {type(silent).__name__}: {silent}")
    return lines


def _client_of(node: ClusterNode) -> ClusterClient:
    return ClusterClient(node.bootstrap, client_id=ASKER, timeout_s=ASK_SECONDS_MAX)


def _describe_cluster(node: ClusterNode, topics: list[str], group: str) -> Iterator[str]:
    status = node.status()
    wanted = ("role", "term", "leader", "commit_index", "applied_index", "state_hash")
    yield f"{ {name: status[name] for name in wanted if name in status} }, {node.not_ready_reason() or 'ready'}"


def _describe_transactions(node: ClusterNode, topics: list[str], group: str) -> Iterator[str]:
    with _client_of(node) as cluster:
        for listed in list_transactions(cluster):
            name = listed.transaction.transactional_id
            coordinator, found = describe_transaction(cluster, name)
            partitions = [(each.topic, each.partitions) for each in found.topics]
            yield (
                f"{name}: {listed.transaction.transaction_state} at {listed.coordinator}, {found.transaction_state} at "
                f"{coordinator}; producer {found.producer_id} epoch {found.producer_epoch}, began "
                f"{found.transaction_start_time_ms}, {partitions}"
            )


def _describe_group(node: ClusterNode, topics: list[str], group: str) -> Iterator[str]:
    yield f"image: {node.group(group)}"
    with _client_of(node) as cluster:
        described = describe_group(cluster, group)
        yield f"group {group}: {described.group_state}, coordinated at {cluster.coordinator(group).address}"
        for member in described.members:
            yield f"{member.member_id}: {decode_assignment(member.member_assignment)}"
        committed = list_committed_offsets(cluster, group)
        yield f"committed: { {str(each): at.offset for each, at in sorted(committed.items())} }"


def _describe_partitions(node: ClusterNode, topics: list[str], group: str) -> Iterator[str]:
    """Yield high watermark and last stable offset of the leader, and the end of the log on this node's disk."""
    with _client_of(node) as cluster:
        for topic in topics:
            partitions = cluster.partitions(topic)
            high = list_offsets(cluster, dict.fromkeys(partitions, LATEST_TIMESTAMP))
            stable = list_offsets(cluster, dict.fromkeys(partitions, LATEST_TIMESTAMP), READ_COMMITTED)
            open_ones = list_open_transactions(cluster, partitions)
            topic_id = cluster.topic(topic).topic_id
            for partition in partitions:
                end = read_log(partition_directory(node.data_dir, topic_id, partition.partition)).end
                yield (
                    f"{partition}: leader {cluster.leader_id(partition)}, last stable {stable[partition]}, high "
                    f"watermark {high[partition]}, end here {end}, open {_producers(open_ones, partition)}"
                )


def _producers(open_ones: Iterable[tuple[TopicPartition, object]], partition: TopicPartition) -> list[str]:
    return [str(producer) for each, producer in open_ones if each == partition]


def _describe_requests(node: ClusterNode, topics: list[str], group: str) -> Iterator[str]:
    of_others = [each for each in node.last_requests(RECORDED_REQUESTS_MAX) if each.client_id != ASKER]
    telling = [each for each in of_others if each.api not in COMMON or each.outcome != "ok"]
    yield from map(str, telling[-REQUESTS_SHOWN:])
