"""Changes of nodes and voters: one command each, rejected if the cluster would lose its majority or a replica."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, cast

import pytest

from chronik.admin.nodes import (
    NodeAction,
    NodeChange,
    VoterKey,
    add_voter,
    alter_nodes,
    describe_nodes,
    remove_voter,
    unregister_broker,
)
from chronik.controller.quorum import Quorum, QuorumMember
from chronik.ids import ZERO_ID
from chronik.limits import CLUSTER_MEMBERS_MAX
from chronik.metadata import levels
from chronik.metadata.commands.brokers import BrokerStatus, RegisterBroker, UpdateBrokerStatus
from chronik.metadata.commands.cluster import AddNode, CreateCluster, RemoveNode, SetFeatureLevel, UpdateNode
from chronik.metadata.image import Image
from chronik.metadata.records import ApplyResult
from chronik.protocol.errors import ErrorCode, KafkaError
from tests.metadata.metadata_world import MetadataWorld, build_assignment, build_id


class Store:
    """A fake cluster store with a configurable quorum membership. It applies commands immediately."""

    is_shared = True

    def __init__(self, *nodes: int, level: int = levels.DYNAMIC_MEMBERSHIP_LEVEL, offline: Iterable[int] = ()) -> None:
        self.world = MetadataWorld()
        self.proposed: list[Any] = []
        self.members = dict.fromkeys(nodes, True)
        self.on_describe_quorum: Callable[[], None] = lambda: None
        self.world.accept(SetFeatureLevel(levels.FEATURE_NAME, level))
        for node in nodes:
            self.world.accept(AddNode(node, "h", 5000 + node))
        self.world.accept(CreateCluster("c", 1))
        for node in nodes:
            supported = (1, levels.HIGHEST)
            self.world.accept(RegisterBroker(node, "k", 9092, "r", build_id(node), build_id(node), levels=supported))
        for node in offline:
            self.world.accept(UpdateBrokerStatus(node, BrokerStatus.OFFLINE))

    @property
    def image(self) -> Image:
        return self.world.image

    async def read_barrier(self, seconds: float = 1) -> None:
        pass

    async def quorum(self) -> Quorum:
        self.on_describe_quorum()
        members_list = [QuorumMember(node, build_id(node), votes, 1) for node, votes in self.members.items()]
        return Quorum(1, 1, 1, tuple(members_list))

    async def propose(self, command: Any) -> ApplyResult:
        self.proposed.append(command)
        result = self.world.apply(command)
        if result.code is not ErrorCode.NONE:
            raise KafkaError(result.code, result.message)
        return result


def alter(store: Store, *changes: NodeChange, **options: Any) -> list[KafkaError | None]:
    return asyncio.run(alter_nodes(cast(Any, store), 1, changes, **{"seconds": 10, **options}))


def refused(store: Store, *changes: NodeChange, **options: Any) -> tuple[ErrorCode, str]:
    """Return the error of the last change, asserting that all earlier ones succeeded."""
    *done, last = alter(store, *changes, **options)
    assert done == [None] * len(done)
    assert last is not None
    return last.code, last.message


def test_new_node_is_observer_and_can_be_promoted_after_joining() -> None:
    store = Store(1, 2, 3)
    assert alter(store, NodeChange(4, NodeAction.ADD, "g", 1)) == [None]
    assert store.proposed == [AddNode(4, "g", 1, voter=False)]
    code, message = refused(store, NodeChange(4, NodeAction.PROMOTE))
    assert code is ErrorCode.POLICY_VIOLATION
    assert message == "Node 4 has not joined yet: start it, and promote it once it follows the metadata log."
    store.members[4] = False
    assert alter(store, NodeChange(4, NodeAction.PROMOTE)) == [None]
    assert store.proposed[1:] == [UpdateNode(4, voter=True)]


def test_change_without_effect_proposes_no_command() -> None:
    store = Store(1, 2, 3)
    again = [
        NodeChange(1, NodeAction.ADD, "h", 5001),
        NodeChange(2, NodeAction.PROMOTE),
        NodeChange(3, NodeAction.UNDRAIN),
    ]
    assert alter(store, *again) == [None] * 3
    assert store.proposed == []


def test_changes_after_a_failed_change_are_not_attempted() -> None:
    store = Store(1, 2, 3)
    changes = NodeChange(2, NodeAction.DRAIN), NodeChange(9, NodeAction.DRAIN), NodeChange(3, NodeAction.DRAIN)
    first, second, third = alter(store, *changes)
    assert first is None
    assert second is not None
    assert third is not None
    assert (second.code, third.code) == (ErrorCode.VOTER_NOT_FOUND, ErrorCode.OPERATION_NOT_ATTEMPTED)
    assert store.proposed == [UpdateNode(2, draining=True)]


def test_validate_only_checks_all_changes_and_proposes_nothing() -> None:
    store = Store(1, 2, 3)
    changes = NodeChange(1, NodeAction.DEMOTE), NodeChange(2, NodeAction.DEMOTE), NodeChange(3, NodeAction.DEMOTE)
    assert refused(store, *changes, validate_only=True)[0] is ErrorCode.POLICY_VIOLATION
    assert store.proposed == []


@pytest.mark.parametrize("action", [NodeAction.DEMOTE, NodeAction.REMOVE])
def test_demotion_or_removal_is_rejected_without_online_majority(action: NodeAction) -> None:
    done = "demoted" if action is NodeAction.DEMOTE else "removed"
    store = Store(1, 2, 3, offline=[2])
    code, message = refused(store, NodeChange(3, action))
    assert code is ErrorCode.POLICY_VIOLATION
    assert message == (
        f"If node 3 were {done}, only 1 of the voters 1, 2 would be online, which is no majority."
        " Promote other nodes first."
    )
    assert alter(store, NodeChange(2, action)) == [None], "an offline voter can be removed"
    alone = Store(1)
    assert "no voter would be left" in refused(alone, NodeChange(1, action))[1]


def test_node_with_replicas_cannot_be_removed() -> None:
    store = Store(1, 2, 3)
    store.world.create("t", build_assignment(1, 2))
    code, message = refused(store, NodeChange(2, NodeAction.REMOVE))
    assert (code, message) == (
        ErrorCode.POLICY_VIOLATION,
        "Node 2 hosts replicas of 1 topic: move them to other nodes first.",
    )
    assert alter(store, NodeChange(3, NodeAction.REMOVE)) == [None]
    assert store.proposed == [RemoveNode(3)]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (NodeChange(4, NodeAction.ADD), ErrorCode.INVALID_REQUEST),
        (NodeChange(4, NodeAction.ADD, "g", 0), ErrorCode.INVALID_REQUEST),
        (NodeChange(4, NodeAction.ADD, "g", 65536), ErrorCode.INVALID_REQUEST),
        (NodeChange(-4, NodeAction.ADD, "g", 1), ErrorCode.INVALID_REQUEST),
        (NodeChange(4, NodeAction.ADD, "h", 5001), ErrorCode.INVALID_REQUEST),
        (NodeChange(1, 6), ErrorCode.INVALID_REQUEST),
        (NodeChange(4, NodeAction.REMOVE), ErrorCode.VOTER_NOT_FOUND),
    ],
)
def test_invalid_node_change_is_rejected(change: NodeChange, code: ErrorCode) -> None:
    store = Store(1, 2, 3)
    assert refused(store, change)[0] is code
    assert store.proposed == []


def test_node_limit_of_cluster_is_enforced() -> None:
    store = Store(*range(CLUSTER_MEMBERS_MAX))
    added = NodeChange(99, NodeAction.ADD, "g", 1)
    assert refused(store, added) == (ErrorCode.POLICY_VIOLATION, f"A cluster has at most {CLUSTER_MEMBERS_MAX} nodes.")


def test_alter_nodes_rejects_wrong_cluster_low_level_and_standalone_node() -> None:
    change = NodeChange(2, NodeAction.DRAIN)
    for store, options, code in (
        (Store(1, 2), {"cluster_id": "other"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        (Store(1, 2, level=2), {}, ErrorCode.UNSUPPORTED_VERSION),
        (Store(), {}, ErrorCode.INVALID_REQUEST),
    ):
        with pytest.raises(KafkaError) as error:
            alter(store, change, **options)
        assert error.value.code is code
        assert store.proposed == []
    assert alter(Store(1, 2), change, cluster_id="c") == [None]


def test_describe_nodes_returns_intended_and_actual_state() -> None:
    store = Store(1, 2, offline=[2])
    store.world.accept(AddNode(3, "g", 3, voter=False))
    store.members |= {4: False}
    states = asyncio.run(describe_nodes(cast(Any, store), 1))
    assert [
        (each.node.id, each.node.voter, each.member is not None, each.status, each.broker_epoch > 0) for each in states
    ] == [
        (1, True, True, "online", True),
        (2, True, True, "offline", True),
        (3, False, False, "unregistered", False),
        (4, False, True, "unregistered", False),
    ]
    assert states[3].node.host == "", "the member is being removed"
    assert [each.directory_id for each in states] == [build_id(1), build_id(2), ZERO_ID, build_id(4)]


# --- Kafka's voter APIs ---


def test_add_voter_waits_until_node_votes() -> None:
    store = Store(1, 2, 3)

    def join_and_vote() -> None:
        if 4 in store.image.nodes:
            store.members[4] = store.image.nodes[4].voter

    store.on_describe_quorum = join_and_vote
    adding = add_voter(cast(Any, store), 1, VoterKey(4, build_id(4)), ("g", 4), cluster_id="c", seconds=10)
    asyncio.run(adding)
    assert store.proposed == [AddNode(4, "g", 4, voter=False), UpdateNode(4, voter=True)]
    with pytest.raises(KafkaError) as again:
        asyncio.run(add_voter(cast(Any, store), 1, VoterKey(4, ZERO_ID), None, cluster_id=None, seconds=10))
    assert again.value.code is ErrorCode.DUPLICATE_VOTER


def test_add_voter_timeout_keeps_intended_voter_status() -> None:
    store = Store(1, 2, 3)
    with pytest.raises(KafkaError, match="the controller continues with the change") as late:
        asyncio.run(add_voter(cast(Any, store), 1, VoterKey(4, ZERO_ID), ("g", 4), cluster_id=None, seconds=0.01))
    assert late.value.code is ErrorCode.REQUEST_TIMED_OUT
    assert store.image.nodes[4].voter
    at_once = add_voter(
        cast(Any, store), 1, VoterKey(5, ZERO_ID), ("g", 5), cluster_id=None, seconds=10, wait_until_voter=False
    )
    asyncio.run(at_once)
    assert store.image.nodes[5].voter


def test_remove_voter_keeps_the_node_as_observer() -> None:
    store = Store(1, 2, 3)

    def follow() -> None:
        store.members = {node.id: node.voter for node in store.image.nodes.values()}

    store.on_describe_quorum = follow
    asyncio.run(remove_voter(cast(Any, store), 1, VoterKey(3, build_id(3)), cluster_id=None))
    assert store.proposed == [UpdateNode(3, voter=False)]
    with pytest.raises(KafkaError) as again:
        asyncio.run(remove_voter(cast(Any, store), 1, VoterKey(3, build_id(3)), cluster_id=None))
    assert again.value.code is ErrorCode.VOTER_NOT_FOUND


@pytest.mark.parametrize(
    ("voter", "cluster_id", "code"),
    [
        (VoterKey(3, build_id(9)), None, ErrorCode.INVALID_VOTER_KEY),
        (VoterKey(3, build_id(3)), "other", ErrorCode.INCONSISTENT_CLUSTER_ID),
        (VoterKey(9, ZERO_ID), None, ErrorCode.VOTER_NOT_FOUND),
    ],
)
def test_remove_voter_checks_directory_id_and_cluster_id(
    voter: VoterKey, cluster_id: str | None, code: ErrorCode
) -> None:
    store = Store(1, 2, 3)
    with pytest.raises(KafkaError) as error:
        asyncio.run(remove_voter(cast(Any, store), 1, voter, cluster_id=cluster_id))
    assert error.value.code is code
    assert store.proposed == []


def test_unregister_broker_requires_offline_broker_without_replicas() -> None:
    store = Store(1, 2, 3, offline=[2, 3])
    store.world.create("t", build_assignment(1, 3, isr=(1,)))
    for broker, code, message_expected in (
        (1, ErrorCode.POLICY_VIOLATION, "Broker 1 is online and would register again: stop it first."),
        (3, ErrorCode.POLICY_VIOLATION, "Node 3 hosts replicas of 1 topic: move them to other nodes first."),
        (9, ErrorCode.BROKER_ID_NOT_REGISTERED, "Broker 9 is not registered."),
    ):
        with pytest.raises(KafkaError) as error:
            asyncio.run(unregister_broker(cast(Any, store), broker))
        assert (error.value.code, error.value.message) == (code, message_expected)
    asyncio.run(unregister_broker(cast(Any, store), 2))
    assert sorted(store.image.brokers) == [1, 3]
