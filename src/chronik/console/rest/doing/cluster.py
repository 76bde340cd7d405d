"""How the cluster is: what its nodes say of themselves, side by side, and what needs attention."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Final

from chronik.client.errors import ClientError
from chronik.console.agreement import compare_states
from chronik.console.rest.call import Call
from chronik.console.rest.inside import InsideConnection
from chronik.console.rest.node_side import NodeSide
from chronik.console.rest.shapes.cluster import Attention, ClusterView, Node
from chronik.console.rest.shapes.common import NoQuestion
from chronik.errors import ChronikError
from chronik.metadata.image import Image
from chronik.metadata.levels import level_of
from chronik.metadata.records import TransactionState
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.describe_nodes import DescribedNode, DescribeNodesRequest, DescribeNodesResponse
from chronik.protocol.permissions import CLUSTER_NAME, Operation, ResourceType
from chronik.security import audit

SILENT_SECONDS: Final = 1.0
"""A node that does not answer for so long is shown as one that cannot be reached."""

NAMED_MAX: Final = 5
LONG_TRANSACTION_MS: Final = 15 * 60 * 1000

Status = dict[str, Any]


def statuses_of(call: Call, ids: Iterable[int]) -> dict[int, Status]:
    """Asks all nodes at once; those that do not answer are left out."""
    return call.loop.run(_statuses(call.side, list(ids)), 3 * SILENT_SECONDS)


async def _statuses(side: NodeSide, ids: list[int]) -> dict[int, Status]:
    async def ask(node_id: int) -> Status | None:
        if node_id == side.services.node_id:
            return side.source.status()
        try:
            return await side.others.status(node_id, SILENT_SECONDS)
        except (ChronikError, LookupError):
            return None

    found = await asyncio.gather(*map(ask, ids))
    return {node_id: status for node_id, status in zip(ids, found, strict=True) if status is not None}


ASK_SECONDS_MAX: Final = 2.0
"""For the leader's word on who takes part: without it, this node says what it knows."""


def known_nodes(call: Call) -> tuple[DescribeNodesResponse, bool]:
    """Returns nodes, and whether a majority has confirmed it. Without one there is more need than ever to see how the
    cluster is, so this node's own image tells. Raises KafkaError for those who may not know."""
    services = call.side.services
    check_describing(call)
    if services.controller_id() >= 0:
        own = InsideConnection(call.side, call.loop, call.cluster.peer, services.node_id, ASK_SECONDS_MAX)
        try:
            response = own.request(DescribeNodesRequest(), DescribeNodesResponse)
            if not response.error_code:
                response.nodes.sort(key=lambda node: node.node_id)
                return response, True
        except ClientError:
            pass
    return _by_image(services.image), False


def check_describing(call: Call) -> None:
    """Raises KafkaError."""
    if not call.may_describe_cluster():
        audit.refused(call.cluster.peer, "DescribeNodes", Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def _by_image(image: Image) -> DescribeNodesResponse:
    nodes, brokers = dict(image.nodes), dict(image.brokers)
    described = []
    for node_id in sorted({*nodes, *brokers}):
        node, broker = nodes.get(node_id), brokers.get(node_id)
        described.append(
            DescribedNode(
                node_id=node_id,
                host=node.host if node is not None else "",
                port=node.port if node is not None else 0,
                meant_to_vote=node.voter if node is not None else True,
                draining=node.draining if node is not None else False,
                is_member=True,
                is_voter=node.voter if node is not None else True,
                rack=broker.rack if broker is not None else None,
                status=broker.status.value if broker is not None else "unregistered",
            )
        )
    return DescribeNodesResponse(cluster_id=image.cluster_id or None, level=level_of(image.features), nodes=described)


class Counted:
    """What is in the image of partitions: counted from copies, and not on the loop."""

    def __init__(self, image: Image) -> None:
        topics = list(image.topics.values())  # at once: nothing comes between
        self.internal_topics = sum(topic.internal for topic in topics)
        self.topics = len(topics) - self.internal_topics
        self.partitions = 0
        self.under_replicated: list[str] = []
        self.offline: list[str] = []
        self.leads: dict[int, int] = {}
        self.replicas: dict[int, int] = {}
        for topic in topics:
            self.partitions += len(topic.partitions)
            for index, each in enumerate(topic.partitions):
                self.leads[each.leader] = self.leads.get(each.leader, 0) + 1
                for replica in each.replicas:
                    self.replicas[replica] = self.replicas.get(replica, 0) + 1
                if each.leader < 0:
                    self.offline.append(f"{topic.name}-{index}")
                if len(each.isr) < len(each.replicas):
                    self.under_replicated.append(f"{topic.name}-{index}")


_counted: list[tuple[Image, int, Counted]] = []
"""The last one: most looks at a cluster find it as it was two seconds ago."""


def counted_in(image: Image) -> Counted:
    index = image.applied_index
    for known, at, counted in _counted:
        if known is image and at == index:
            return counted
    _counted[:] = [(image, index, Counted(image))]
    return _counted[0][2]


def nodes_of(
    call: Call,
    described: DescribeNodesResponse,
    statuses: dict[int, Status] | None = None,
    counted: Counted | None = None,
) -> list[Node]:
    image = call.side.services.image
    statuses = statuses_of(call, [node.node_id for node in described.nodes]) if statuses is None else statuses
    counted = counted or counted_in(image)
    return [_node(call, node, statuses.get(node.node_id), counted) for node in described.nodes]


def _node(call: Call, told: DescribedNode, status: Status | None, counted: Counted) -> Node:
    services = call.side.services
    broker = services.image.brokers.get(told.node_id)
    said = status or {}
    return Node(
        id=told.node_id,
        host=broker.host if broker is not None else None,
        port=broker.port if broker is not None else None,
        rack=told.rack,
        status=_status(told, said),
        draining=told.draining,
        role=_role(told, said),
        voter=told.is_voter,
        reachable=status is not None,
        version=said.get("version"),
        uptime_s=said.get("uptime_s"),
        term=said.get("term"),
        applied_index=said.get("applied_index"),
        state_hash=said.get("state_hash"),
        leads=counted.leads.get(told.node_id, 0),
        replicas=counted.replicas.get(told.node_id, 0),
        bytes=said.get("bytes"),
        is_me=told.node_id == services.node_id,
        is_controller=told.node_id == services.controller_id(),
    )


def _status(told: DescribedNode, said: Status) -> str:
    if told.status == "unregistered":
        return "absent"
    return "fenced" if told.status == "online" and said.get("fenced") else told.status


def _role(told: DescribedNode, said: Status) -> str | None:
    role = said.get("role")
    if role == "alone":
        return "standalone"
    return "observer" if role == "follower" and not told.is_voter else role


def show(call: Call, asked: NoQuestion) -> ClusterView:
    return cluster_view(call)


def cluster_view(call: Call) -> ClusterView:
    """Raises KafkaError, ClientError."""
    described, is_confirmed = known_nodes(call)
    statuses = statuses_of(call, [node.node_id for node in described.nodes])
    image = call.side.services.image
    counted = counted_in(image)
    nodes = nodes_of(call, described, statuses, counted)
    verdict, agrees, index = _verdict(nodes, statuses)
    controller = call.side.services.controller_id()
    open_since = [each.began_ms for each in list(image.unfinished_transactions()) if _is_open(each.state)]
    view = ClusterView(
        cluster_id=described.cluster_id,
        level=described.level,
        controller_id=controller if controller >= 0 else None,
        leader_id=controller if controller >= 0 else None,
        term=max((node.term for node in nodes if node.term is not None), default=None),
        verdict=verdict,
        agrees=agrees,
        compared_index=index,
        topics=counted.topics,
        internal_topics=counted.internal_topics,
        partitions=counted.partitions,
        under_replicated=len(counted.under_replicated),
        offline=len(counted.offline),
        groups=len(image.groups),
        open_transactions=len(open_since),
        attention=[],
        nodes=nodes,
    )
    now_ms = call.side.services.clock.now_ms()
    oldest_ms = now_ms - min(open_since) if open_since else 0
    view.attention = list(_attention(view, counted, oldest_ms, statuses))
    if not is_confirmed:
        told = "no majority answers: nothing can be changed, and what is shown may be old"
        view.attention.insert(0, Attention("error", told, "/nodes"))
    return view


def _is_open(state: TransactionState) -> bool:
    return state is TransactionState.ONGOING


def _verdict(nodes: Sequence[Node], statuses: dict[int, Status]) -> tuple[str, bool | None, int | None]:
    """Says in a few words whether the nodes hold the same metadata."""
    if len(nodes) == 1:
        return "1 node, which agrees with itself", True, nodes[0].applied_index
    answering = [status for status in statuses.values() if "state_hash" in status]
    agreement = compare_states(answering)
    if agreement.index is None:
        return f"{len(answering)} of {len(nodes)} answer, too far apart to be compared", None, None
    if agreement.is_same:
        return f"{len(answering)} of {len(nodes)} agree", True, agreement.index
    return f"{len(agreement.hashes)} different states among {len(answering)} nodes", False, agreement.index


def _attention(view: ClusterView, counted: Counted, oldest_ms: int, statuses: dict[int, Status]) -> Iterable[Attention]:
    """What to look at first, the worst first."""
    if view.agrees is False:
        yield Attention("error", f"nodes hold different metadata: {view.verdict}", "/nodes")
    if counted.offline:
        yield Attention("error", f"{_many(counted.offline, 'no leader')}", f"/topics/{_topic(counted.offline[0])}")
    for node in view.nodes:
        for damage in statuses.get(node.id, {}).get("damaged", ())[:NAMED_MAX]:
            yield Attention("error", f"node {node.id} has lost records: {damage}", f"/nodes/{node.id}")
        if not node.reachable and node.status == "absent":
            yield Attention("info", f"node {node.id} was added, and was never here yet", f"/nodes/{node.id}")
        elif not node.reachable:
            yield Attention("error", f"node {node.id} does not answer", f"/nodes/{node.id}")
        elif node.status in ("fenced", "offline"):
            yield Attention("error", f"node {node.id} is {node.status}", f"/nodes/{node.id}")
        elif node.draining or node.status == "maintenance":
            yield Attention("info", f"node {node.id} is drained", f"/nodes/{node.id}")
    if counted.under_replicated:
        told = _many(counted.under_replicated, "replicas that are not in sync")
        yield Attention("warning", told, f"/topics/{_topic(counted.under_replicated[0])}")
    if oldest_ms > LONG_TRANSACTION_MS:
        yield Attention("warning", f"a transaction is open for {oldest_ms // 60_000} minutes", "/transactions")


def _many(partitions: Sequence[str], what: str) -> str:
    named = ", ".join(partitions[:NAMED_MAX])
    more = f" and {len(partitions) - NAMED_MAX} more" if len(partitions) > NAMED_MAX else ""
    verb = "has" if len(partitions) == 1 else "have"
    return f"{named}{more} {verb} {what}"


def _topic(partition: str) -> str:
    return partition.rpartition("-")[0]
