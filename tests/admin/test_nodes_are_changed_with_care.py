"""Nodes are added, removed, promoted, demoted and drained: each by one command, and never what would cost the cluster
its majority or a replica."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, cast

import pytest

from chronik.admin.nodes import Action, NodeChange, alter_nodes, describe_nodes, unregister_broker
from chronik.admin.voters import Voter, add_voter, remove_voter
from chronik.controller.quorum import Quorum, QuorumMember
from chronik.ids import ZERO_ID
from chronik.limits import CLUSTER_MEMBERS_MAX
from chronik.metadata import levels
from chronik.metadata.commands.brokers import BrokerStatus, RegisterBroker, UpdateBrokerStatus
from chronik.metadata.commands.cluster import AddNode, CreateCluster, RemoveNode, SetFeatureLevel, UpdateNode
from chronik.metadata.image import Image
from chronik.metadata.records import Result
from chronik.protocol.errors import ErrorCode, KafkaError
from tests.metadata.world import World, assignment, some_id


class Store:
    """A cluster's store, of which a test says who takes part. It does at once what it is told to."""

    is_shared = True

    def __init__(self, *nodes: int, level: int = levels.GROWTH, away: Iterable[int] = ()) -> None:
        self.world = World()
        self.proposed: list[Any] = []
        self.members = dict.fromkeys(nodes, True)
        self.when_asked: Callable[[], None] = lambda: None
        self.world.accept(SetFeatureLevel(levels.FEATURE, level))
        for node in nodes:
            self.world.accept(AddNode(node, "h", 5000 + node))
        self.world.accept(CreateCluster("c", 1))
        for node in nodes:
            supported = (1, levels.HIGHEST)
            self.world.accept(RegisterBroker(node, "k", 9092, "r", some_id(node), some_id(node), levels=supported))
        for node in away:
            self.world.accept(UpdateBrokerStatus(node, BrokerStatus.OFFLINE))

    @property
    def image(self) -> Image:
        return self.world.image

    async def read_barrier(self, seconds: float = 1) -> None:
        pass

    async def quorum(self) -> Quorum:
        self.when_asked()
        seats = [QuorumMember(node, some_id(node), votes, 1) for node, votes in self.members.items()]
        return Quorum(1, 1, 1, tuple(seats))

    async def propose(self, command: Any) -> Result:
        self.proposed.append(command)
        result = self.world.do(command)
        if result.code is not ErrorCode.NONE:
            raise KafkaError(result.code, result.message)
        return result


def alter(store: Store, *changes: NodeChange, **options: Any) -> list[KafkaError | None]:
    return asyncio.run(alter_nodes(cast(Any, store), 1, changes, **{"seconds": 10, **options}))


def refused(store: Store, *changes: NodeChange, **options: Any) -> tuple[ErrorCode, str]:
    """What the last change is answered; all before it are done."""
    *done, last = alter(store, *changes, **options)
    assert done == [None] * len(done)
    assert last is not None
    return last.code, last.message


def test_a_node_is_added_without_a_vote_and_promoted_when_it_has_joined() -> None:
    store = Store(1, 2, 3)
    assert alter(store, NodeChange(4, Action.ADD, "g", 1)) == [None]
    assert store.proposed == [AddNode(4, "g", 1, voter=False)]
    code, message = refused(store, NodeChange(4, Action.PROMOTE))
    assert code is ErrorCode.POLICY_VIOLATION
    assert message == "Node 4 has not joined yet: start it, and promote it when it follows the others."
    store.members[4] = False
    assert alter(store, NodeChange(4, Action.PROMOTE)) == [None]
    assert store.proposed[1:] == [UpdateNode(4, voter=True)]


def test_what_is_so_already_is_not_done_again() -> None:
    store = Store(1, 2, 3)
    again = [NodeChange(1, Action.ADD, "h", 5001), NodeChange(2, Action.PROMOTE), NodeChange(3, Action.UNDRAIN)]
    assert alter(store, *again) == [None] * 3
    assert store.proposed == []


def test_changes_are_made_in_order_up_to_the_first_that_fails() -> None:
    store = Store(1, 2, 3)
    changes = NodeChange(2, Action.DRAIN), NodeChange(9, Action.DRAIN), NodeChange(3, Action.DRAIN)
    first, second, third = alter(store, *changes)
    assert first is None
    assert second is not None
    assert third is not None
    assert (second.code, third.code) == (ErrorCode.VOTER_NOT_FOUND, ErrorCode.OPERATION_NOT_ATTEMPTED)
    assert store.proposed == [UpdateNode(2, draining=True)]


def test_what_is_only_validated_changes_nothing_and_later_changes_are_judged_by_earlier_ones() -> None:
    store = Store(1, 2, 3)
    changes = NodeChange(1, Action.DEMOTE), NodeChange(2, Action.DEMOTE), NodeChange(3, Action.DEMOTE)
    assert refused(store, *changes, validate_only=True)[0] is ErrorCode.POLICY_VIOLATION
    assert store.proposed == []


@pytest.mark.parametrize("action", [Action.DEMOTE, Action.REMOVE])
def test_a_majority_of_voters_stays_online(action: Action) -> None:
    done = "demoted" if action is Action.DEMOTE else "removed"
    store = Store(1, 2, 3, away=[2])
    code, message = refused(store, NodeChange(3, action))
    assert code is ErrorCode.POLICY_VIOLATION
    told = f"If node 3 were {done}, of voters 1, 2 only 1 would be there: that is no majority. Promote others first."
    assert message == told
    assert alter(store, NodeChange(2, action)) == [None], "who is away is missed by nobody"
    alone = Store(1)
    assert "nobody would vote" in refused(alone, NodeChange(1, action))[1]


def test_a_node_that_holds_replicas_is_not_removed() -> None:
    store = Store(1, 2, 3)
    store.world.create("t", assignment(1, 2))
    code, message = refused(store, NodeChange(2, Action.REMOVE))
    assert (code, message) == (
        ErrorCode.POLICY_VIOLATION,
        "Node 2 holds replicas of 1 topic: move them to other nodes first.",
    )
    assert alter(store, NodeChange(3, Action.REMOVE)) == [None]
    assert store.proposed == [RemoveNode(3)]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (NodeChange(4, Action.ADD), ErrorCode.INVALID_REQUEST),
        (NodeChange(4, Action.ADD, "g", 0), ErrorCode.INVALID_REQUEST),
        (NodeChange(4, Action.ADD, "g", 65536), ErrorCode.INVALID_REQUEST),
        (NodeChange(-4, Action.ADD, "g", 1), ErrorCode.INVALID_REQUEST),
        (NodeChange(4, Action.ADD, "h", 5001), ErrorCode.INVALID_REQUEST),
        (NodeChange(1, 6), ErrorCode.INVALID_REQUEST),
        (NodeChange(4, Action.REMOVE), ErrorCode.VOTER_NOT_FOUND),
    ],
)
def test_what_makes_no_sense_is_refused(change: NodeChange, code: ErrorCode) -> None:
    store = Store(1, 2, 3)
    assert refused(store, change)[0] is code
    assert store.proposed == []


def test_a_cluster_has_so_many_nodes() -> None:
    store = Store(*range(CLUSTER_MEMBERS_MAX))
    added = NodeChange(99, Action.ADD, "g", 1)
    assert refused(store, added) == (ErrorCode.POLICY_VIOLATION, f"A cluster has at most {CLUSTER_MEMBERS_MAX} nodes.")


def test_of_another_cluster_below_the_level_and_alone_nothing_is_tried() -> None:
    change = NodeChange(2, Action.DRAIN)
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


def test_nodes_are_described_by_what_they_are_meant_to_be_and_what_they_are() -> None:
    store = Store(1, 2, away=[2])
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
    assert states[3].node.host == "", "it is to be removed"
    assert [each.directory_id for each in states] == [some_id(1), some_id(2), ZERO_ID, some_id(4)]


# Kafka's words for it


def test_a_voter_is_added_and_waited_for() -> None:
    store = Store(1, 2, 3)

    def join_and_vote() -> None:
        if 4 in store.image.nodes:
            store.members[4] = store.image.nodes[4].voter

    store.when_asked = join_and_vote
    adding = add_voter(cast(Any, store), 1, Voter(4, some_id(4)), ("g", 4), cluster_id="c", seconds=10)
    asyncio.run(adding)
    assert store.proposed == [AddNode(4, "g", 4, voter=False), UpdateNode(4, voter=True)]
    with pytest.raises(KafkaError) as again:
        asyncio.run(add_voter(cast(Any, store), 1, Voter(4, ZERO_ID), None, cluster_id=None, seconds=10))
    assert again.value.code is ErrorCode.DUPLICATE_VOTER


def test_a_voter_that_does_not_come_in_time_is_still_meant_to_vote() -> None:
    store = Store(1, 2, 3)
    with pytest.raises(KafkaError, match="the controller goes on with it") as late:
        asyncio.run(add_voter(cast(Any, store), 1, Voter(4, ZERO_ID), ("g", 4), cluster_id=None, seconds=0.01))
    assert late.value.code is ErrorCode.REQUEST_TIMED_OUT
    assert store.image.nodes[4].voter
    at_once = add_voter(
        cast(Any, store), 1, Voter(5, ZERO_ID), ("g", 5), cluster_id=None, seconds=10, until_it_votes=False
    )
    asyncio.run(at_once)
    assert store.image.nodes[5].voter


def test_a_voter_is_removed_and_stays_as_a_node() -> None:
    store = Store(1, 2, 3)

    def follow() -> None:
        store.members = {node.id: node.voter for node in store.image.nodes.values()}

    store.when_asked = follow
    asyncio.run(remove_voter(cast(Any, store), 1, Voter(3, some_id(3)), cluster_id=None))
    assert store.proposed == [UpdateNode(3, voter=False)]
    with pytest.raises(KafkaError) as again:
        asyncio.run(remove_voter(cast(Any, store), 1, Voter(3, some_id(3)), cluster_id=None))
    assert again.value.code is ErrorCode.VOTER_NOT_FOUND


@pytest.mark.parametrize(
    ("voter", "cluster_id", "code"),
    [
        (Voter(3, some_id(9)), None, ErrorCode.INVALID_VOTER_KEY),
        (Voter(3, some_id(3)), "other", ErrorCode.INCONSISTENT_CLUSTER_ID),
        (Voter(9, ZERO_ID), None, ErrorCode.VOTER_NOT_FOUND),
    ],
)
def test_a_voter_is_named_by_its_disk_too(voter: Voter, cluster_id: str | None, code: ErrorCode) -> None:
    store = Store(1, 2, 3)
    with pytest.raises(KafkaError) as error:
        asyncio.run(remove_voter(cast(Any, store), 1, voter, cluster_id=cluster_id))
    assert error.value.code is code
    assert store.proposed == []


def test_a_broker_that_is_gone_for_good_is_forgotten() -> None:
    store = Store(1, 2, 3, away=[2, 3])
    store.world.create("t", assignment(1, 3, isr=(1,)))
    for broker, code, told in (
        (1, ErrorCode.POLICY_VIOLATION, "Broker 1 is online, and would register again: stop it first."),
        (3, ErrorCode.POLICY_VIOLATION, "Node 3 holds replicas of 1 topic: move them to other nodes first."),
        (9, ErrorCode.BROKER_ID_NOT_REGISTERED, "Broker 9 is not registered."),
    ):
        with pytest.raises(KafkaError) as error:
            asyncio.run(unregister_broker(cast(Any, store), broker))
        assert (error.value.code, error.value.message) == (code, told)
    asyncio.run(unregister_broker(cast(Any, store), 2))
    assert sorted(store.image.brokers) == [1, 3]
