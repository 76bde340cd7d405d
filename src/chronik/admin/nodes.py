"""Administration of cluster nodes: membership, voters and draining.

A change writes the intended state with one command. The controller then changes the membership of the metadata log to
match it, even if the caller no longer waits and the leader changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from msgspec.structs import replace

from chronik.admin.fresh_image_retry import refresh_image
from chronik.controller.quorum import QuorumMember, describe_quorum
from chronik.ids import ZERO_ID, format_id
from chronik.limits import CLUSTER_MEMBERS_MAX, HOST_CHARACTERS_MAX
from chronik.metadata import levels
from chronik.metadata.commands.brokers import RemoveBroker
from chronik.metadata.commands.cluster import AddNode, RemoveNode, UpdateNode
from chronik.metadata.image import Image
from chronik.metadata.records import NodeRecord
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.wording import pluralize

UNREGISTERED: Final = "unregistered"
"""Status of a node whose broker is not registered with the controller."""

PORT_MAX: Final = 65535

NodeCommand = AddNode | UpdateNode | RemoveNode

POLL_INTERVAL_SECONDS: Final = 0.1
"""Interval in seconds at which a node polls the Raft membership until a membership change is complete."""

REMOVAL_SECONDS: Final = 30.0
"""Timeout in seconds for the removal of a Raft voter, because Kafka's RemoveRaftVoter request has none.

Before the leader itself is removed, it transfers its leadership, which takes one or two seconds.
"""


class NodeAction(IntEnum):
    """The kind of a node change, such as adding or draining a node, with the numeric codes of AlterNodes."""

    ADD = 0
    REMOVE = 1
    PROMOTE = 2
    DEMOTE = 3
    DRAIN = 4
    UNDRAIN = 5


class NodeChange(NamedTuple):
    """A requested change of a cluster node, such as adding, removing or draining it."""

    node_id: int
    action: int
    host: str | None = None
    port: int = 0


class NodeState(NamedTuple):
    """The desired state of a cluster node in the metadata, and its actual state."""

    node: NodeRecord
    """Desired state of the node. Its address is empty if the node is being removed."""
    member: QuorumMember | None
    directory_id: bytes
    rack: str | None
    status: str
    broker_epoch: int


async def describe_nodes(store: MetadataStore, node_id: int) -> list[NodeState]:
    """Return the states of all nodes of the cluster, including members that are being removed.

    Raises:
        KafkaError: The Raft leader cannot be reached.
    """
    await store.read_barrier()
    members = await describe_members(store, node_id)
    image = store.image
    return [_build_node_state(image, each, members.get(each)) for each in sorted({*image.nodes, *members})]


async def describe_members(store: MetadataStore, node_id: int) -> dict[int, QuorumMember]:
    """Return the voters and observers of the Raft quorum by node id."""
    quorum = await describe_quorum(store, node_id)
    return {member.node_id: member for member in quorum.members}


def _build_node_state(image: Image, node_id: int, member: QuorumMember | None) -> NodeState:
    broker = image.brokers.get(node_id)
    node = image.nodes.get(node_id) or NodeRecord(node_id, "", 0, voter=False)
    if broker is None:
        return NodeState(node, member, member.directory_id if member else ZERO_ID, None, UNREGISTERED, -1)
    directory_id = member.directory_id if member else broker.directory_id
    return NodeState(node, member, directory_id, broker.rack, broker.status.value, broker.epoch)


async def alter_nodes(
    store: MetadataStore,
    node_id: int,
    changes: Sequence[NodeChange],
    *,
    cluster_id: str | None = None,
    seconds: float,
    validate_only: bool = False,
    may_promote_absent: bool = False,
) -> list[KafkaError | None]:
    """Apply the node changes in order until one fails, and return an error or None for each change.

    With `may_promote_absent`, a node may be promoted before it has joined.

    Raises:
        KafkaError: No change can be applied.
    """
    await refresh_image(store)
    check_nodes_can_change(store.image, cluster_id)
    members = None if may_promote_absent else await describe_members(store, node_id)
    planned = dict(store.image.nodes)
    outcomes: list[KafkaError | None] = []
    try:
        async with asyncio.timeout(seconds):
            for change in changes:
                command = _plan_node_change(store.image, planned, members, change)
                if command is not None and not validate_only:
                    await store.propose(command)
                outcomes.append(None)
    except KafkaError as error:
        outcomes.append(error.without_traceback())
    except TimeoutError:
        outcomes.append(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
    untried = KafkaError(ErrorCode.OPERATION_NOT_ATTEMPTED, "Not attempted because an earlier change failed.")
    return outcomes + [untried] * (len(changes) - len(outcomes))


def check_nodes_can_change(image: Image, cluster_id: str | None) -> None:
    """Raise KafkaError if the cluster id is wrong, the feature level is too low, or the node is standalone."""
    if cluster_id is not None and cluster_id != image.cluster_id:
        message = f"This is cluster {image.cluster_id}, not {cluster_id}."
        raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, message)
    level = levels.get_cluster_level(image.features)
    if level < levels.DYNAMIC_MEMBERSHIP_LEVEL:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"Changing nodes needs {levels.FEATURE_NAME} {levels.DYNAMIC_MEMBERSHIP_LEVEL}, and the cluster is at "
            f"{level}: "
            "once all nodes run a version of Chronik that supports it, raise it with chronik cluster upgrade.",
        )
    if not image.nodes:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "This is a standalone node without [[peers]]; it cannot add nodes.")


def _plan_node_change(
    image: Image, nodes: dict[int, NodeRecord], members: Mapping[int, QuorumMember] | None, change: NodeChange
) -> NodeCommand | None:
    """Apply a node change to `nodes`, and return its metadata command, or None if nothing changes."""
    if change.action == NodeAction.ADD:
        return _plan_node_addition(nodes, change)
    node = nodes.get(change.node_id)
    if node is None:
        raise KafkaError(ErrorCode.VOTER_NOT_FOUND, f"Node {change.node_id} does not exist in this cluster.")
    match change.action:
        case NodeAction.REMOVE:
            _check_voter_majority_remains(image, nodes, node, "removed")
            _check_broker_hosts_no_replicas(image, node.id)
            del nodes[node.id]
            return RemoveNode(node.id)
        case NodeAction.PROMOTE:
            if members is not None and node.id not in members:
                raise KafkaError(
                    ErrorCode.POLICY_VIOLATION,
                    f"Node {node.id} has not joined yet: start it, and promote it once it follows the metadata log.",
                )
            command = UpdateNode(node.id, voter=True)
        case NodeAction.DEMOTE:
            _check_voter_majority_remains(image, nodes, node, "demoted")
            command = UpdateNode(node.id, voter=False)
        case NodeAction.DRAIN | NodeAction.UNDRAIN:
            command = UpdateNode(node.id, draining=change.action == NodeAction.DRAIN)
        case _:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown action {change.action}.")
    changed = replace(
        node,
        voter=node.voter if command.voter is None else command.voter,
        draining=node.draining if command.draining is None else command.draining,
    )
    nodes[node.id] = changed
    return command if changed != node else None


def _plan_node_addition(nodes: dict[int, NodeRecord], change: NodeChange) -> NodeCommand | None:
    """Return the command that adds a node as an observer, or that changes an existing node's address."""
    if not change.host or not 0 < change.port <= PORT_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"The peer address HOST:PORT of node {change.node_id} is missing or invalid."
        )
    if len(change.host) > HOST_CHARACTERS_MAX:
        message = (
            f"The host of node {change.node_id} has {len(change.host)} characters; the limit is {HOST_CHARACTERS_MAX}."
        )
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    if change.node_id < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"A node id must not be negative: {change.node_id}.")
    known = nodes.get(change.node_id)
    if known is None and len(nodes) >= CLUSTER_MEMBERS_MAX:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"A cluster has at most {CLUSTER_MEMBERS_MAX} nodes.")
    for other in nodes.values():
        if other.id != change.node_id and (other.host, other.port) == (change.host, change.port):
            message = f"{change.host}:{change.port} is already the peer address of node {other.id}."
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    if known is None:
        nodes[change.node_id] = NodeRecord(change.node_id, change.host, change.port, voter=False)
        return AddNode(change.node_id, change.host, change.port, voter=False)
    moved = nodes[change.node_id] = replace(known, host=change.host, port=change.port)
    return UpdateNode(change.node_id, change.host, change.port) if moved != known else None


def _check_voter_majority_remains(image: Image, nodes: Mapping[int, NodeRecord], node: NodeRecord, done: str) -> None:
    voters = [other.id for other in nodes.values() if other.voter and other.id != node.id]
    if not node.voter:
        return
    online = [voter for voter in voters if voter in image.brokers and not image.brokers[voter].is_fenced]
    if 2 * len(online) <= len(voters) or not voters:
        left = (
            f"only {_join_ids(online)} of the voters {_join_ids(voters)} would be online"
            if voters
            else "no voter would be left"
        )
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"If node {node.id} were {done}, {left}, which is no majority. Promote other nodes first.",
        )


def _join_ids(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids)) or "none"


async def unregister_broker(store: MetadataStore, broker_id: int) -> None:
    """Unregister a broker that is permanently offline.

    Raises:
        KafkaError: The broker is not registered, still alive, or hosts replicas.
    """
    await refresh_image(store)
    broker = store.image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker {broker_id} is not registered.")
    if not broker.is_fenced:
        message = f"Broker {broker_id} is {broker.status.value} and would register again: stop it first."
        raise KafkaError(ErrorCode.POLICY_VIOLATION, message)
    _check_broker_hosts_no_replicas(store.image, broker_id)
    await store.propose(RemoveBroker(broker_id, broker.epoch))


def _check_broker_hosts_no_replicas(image: Image, node_id: int) -> None:
    topic_count = len(image.topics_on_broker(node_id))
    if topic_count:
        message = f"Node {node_id} hosts replicas of {pluralize(topic_count, 'topic')}: move them to other nodes first."
        raise KafkaError(ErrorCode.POLICY_VIOLATION, message)


class VoterKey(NamedTuple):
    """A voter of the Raft quorum, identified by node id and directory id."""

    node_id: int
    directory_id: bytes
    """The voter's directory id, or ZERO_ID to match any directory."""


async def add_voter(
    store: MetadataStore,
    node_id: int,
    voter: VoterKey,
    address: tuple[str, int] | None,
    *,
    cluster_id: str | None,
    seconds: float,
    wait_until_voter: bool = True,
) -> None:
    """Promote a node to a voter of the Raft quorum, adding the node to the cluster first if necessary.

    With `wait_until_voter`, waits until the membership has changed.

    Raises:
        KafkaError: The node is already a voter, or the change failed or timed out.
    """
    member = await _find_raft_member(store, node_id, voter, cluster_id)
    if member is not None and member.is_voter:
        raise KafkaError(ErrorCode.DUPLICATE_VOTER, f"Node {voter.node_id} is already a voter.")
    changes = [NodeChange(voter.node_id, NodeAction.PROMOTE)]
    if voter.node_id not in store.image.nodes:
        host, port = address or (None, 0)
        changes.insert(0, NodeChange(voter.node_id, NodeAction.ADD, host, port))
    await _alter_voter(store, node_id, changes, cluster_id, seconds)
    if wait_until_voter:
        await _wait_for_voter_status(store, node_id, voter.node_id, seconds, votes=True)


async def remove_voter(store: MetadataStore, node_id: int, voter: VoterKey, *, cluster_id: str | None) -> None:
    """Demote a voter of the Raft quorum to an observer, and wait until the demotion is complete.

    Raises:
        KafkaError: The node is not a voter, or the change failed or timed out.
    """
    member = await _find_raft_member(store, node_id, voter, cluster_id)
    if member is None or not member.is_voter:
        raise KafkaError(ErrorCode.VOTER_NOT_FOUND, f"Node {voter.node_id} is not a voter.")
    await _alter_voter(store, node_id, [NodeChange(voter.node_id, NodeAction.DEMOTE)], cluster_id, REMOVAL_SECONDS)
    await _wait_for_voter_status(store, node_id, voter.node_id, REMOVAL_SECONDS, votes=False)


async def _find_raft_member(
    store: MetadataStore, node_id: int, voter: VoterKey, cluster_id: str | None
) -> QuorumMember | None:
    """Return the Raft member with the voter's node id, or None if the node has not joined.

    Raises:
        KafkaError: The directory id is not that of the member.
    """
    await refresh_image(store)
    check_nodes_can_change(store.image, cluster_id)
    member = (await describe_members(store, node_id)).get(voter.node_id)
    broker = store.image.brokers.get(voter.node_id)
    known = member.directory_id if member is not None else broker.directory_id if broker is not None else ZERO_ID
    if ZERO_ID not in (voter.directory_id, known) and voter.directory_id != known:
        message = f"Node {voter.node_id} has directory id {format_id(known)}, not {format_id(voter.directory_id)}."
        raise KafkaError(ErrorCode.INVALID_VOTER_KEY, message)
    return member


async def _alter_voter(
    store: MetadataStore, node_id: int, changes: list[NodeChange], cluster_id: str | None, seconds: float
) -> None:
    outcomes = await alter_nodes(
        store, node_id, changes, cluster_id=cluster_id, seconds=seconds, may_promote_absent=True
    )
    for outcome in outcomes:
        if outcome is not None:
            raise outcome


async def _wait_for_voter_status(
    store: MetadataStore, node_id: int, voter_id: int, seconds: float, *, votes: bool
) -> None:
    try:
        async with asyncio.timeout(seconds):
            while True:
                if await _is_voter(store, node_id, voter_id) == votes:
                    return
                await asyncio.sleep(POLL_INTERVAL_SECONDS)
    except TimeoutError:
        state = "is not a voter yet" if votes else "is still a voter"
        message = f"Node {voter_id} {state}; the controller continues with the change."
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, message) from None


async def _is_voter(store: MetadataStore, node_id: int, voter_id: int) -> bool | None:
    """Return whether the node is a voter of the Raft quorum, or None if the Raft leader cannot be reached."""
    try:
        member = (await describe_members(store, node_id)).get(voter_id)
    except KafkaError:
        return None
    return member is not None and member.is_voter
