"""Addresses of peers: from the config file at first, then from the metadata image."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from chronik.config import Address
from chronik.metadata import levels
from chronik.metadata.commands.cluster import AddNode, CreateCluster, RemoveNode, SetFeatureLevel, UpdateNode
from chronik.metadata.commands.envelope import Command
from chronik.metadata.delta import Delta
from chronik.metadata.image import Image
from chronik.node.peer_addresses import HINT_SECONDS, PeerAddresses
from chronik.raft.membership import NO_NODE, Membership, RaftMember
from tests.metadata.metadata_world import MetadataWorld

OWN = 1


def at(port: int) -> Address:
    return Address("127.0.0.1", port)


class Transport:
    def __init__(self, addresses: dict[int, Address]) -> None:
        self.addresses = dict(addresses)

    def set_peer(self, node_id: int, address: Address) -> None:
        if node_id != OWN:
            self.addresses[node_id] = address

    def remove_peer(self, node_id: int) -> None:
        del self.addresses[node_id]


class FakeNode:
    """A node with its peer addresses, a fake transport and an image."""

    def __init__(self, **hints: int) -> None:
        self.hints = {int(name[1:]): at(port) for name, port in hints.items()}
        self.world = MetadataWorld()
        self.transport = Transport(self.hints)
        self.members: list[int] = list(self.hints)
        self.leader = NO_NODE
        self.connected: tuple[int, ...] = ()
        self.now = 0.0
        self._subscriber: Any = None
        clock = SimpleNamespace(monotonic=lambda: self.now)
        self.addresses = PeerAddresses(OWN, self.hints, cast(Any, self), cast(Any, self), cast(Any, clock))

    # Interfaces of the store and the driver

    @property
    def image(self) -> Image:
        return self.world.image

    def subscribe(self, subscriber: Any) -> None:
        self._subscriber = subscriber

    @property
    def status(self) -> Any:
        members = Membership(tuple(RaftMember(each, bytes(16), True) for each in self.members))
        return SimpleNamespace(leader=self.leader, membership=members, connected=self.connected)

    # Events

    def apply(self, *commands: Command) -> None:
        for command in commands:
            self.world.accept(command)
            self._subscriber(self.world.delta)

    def bootstrap(self, *nodes: int) -> None:
        self.apply(SetFeatureLevel(levels.FEATURE_NAME, levels.DYNAMIC_MEMBERSHIP_LEVEL))
        self.apply(*(AddNode(node, "127.0.0.1", 5000 + node) for node in nodes), CreateCluster("c", 1))
        self._subscriber(Delta(0, features=(levels.FEATURE_NAME,)))

    @property
    def ports(self) -> dict[int, int]:
        self.addresses.refresh()
        return {node_id: address.port for node_id, address in self.transport.addresses.items() if node_id != OWN}


def test_peer_addresses_come_from_config_before_bootstrap() -> None:
    fake_node = FakeNode(n1=5001, n2=5002)
    assert fake_node.ports == {2: 5002}
    fake_node.addresses.learn([(3, "127.0.0.1", 5003), (2, "127.0.0.1", 6002)])
    assert fake_node.ports == {2: 6002, 3: 5003}, "addresses received from peers override hints"


def test_peer_addresses_follow_metadata_image() -> None:
    fake_node = FakeNode(n1=5001, n2=9999)
    fake_node.leader = 2
    fake_node.bootstrap(1, 2, 3)
    assert fake_node.ports == {2: 5002, 3: 5003}
    fake_node.apply(AddNode(4, "127.0.0.1", 5004), UpdateNode(3, port=6003))
    assert fake_node.ports == {2: 5002, 3: 6003, 4: 5004}
    fake_node.apply(RemoveNode(4))
    assert fake_node.ports == {2: 5002, 3: 6003}


def test_config_addresses_are_used_below_feature_level_3() -> None:
    fake_node = FakeNode(n1=5001, n2=9999)
    fake_node.apply(AddNode(1, "127.0.0.1", 5001), AddNode(2, "127.0.0.1", 5002), CreateCluster("c", 1))
    assert fake_node.ports == {2: 9999}


def test_member_being_removed_stays_connected_until_removed() -> None:
    fake_node = FakeNode(n1=5001, n2=5002, n3=5003)
    fake_node.leader = 1
    fake_node.bootstrap(1, 2, 3)
    fake_node.members = [1, 2, 3]
    fake_node.apply(RemoveNode(3))
    assert fake_node.ports == {2: 5002, 3: 5003}
    fake_node.members = [1, 2]
    assert fake_node.ports == {2: 5002}


def test_leader_missing_in_older_image_is_connected() -> None:
    fake_node = FakeNode(n1=5001, n2=5002)
    fake_node.bootstrap(1, 2)
    fake_node.addresses.learn([(4, "127.0.0.1", 5004), (5, "127.0.0.1", 5005)])
    fake_node.leader = 4
    assert fake_node.ports == {2: 5002, 4: 5004, 5: 5005}
    fake_node.apply(AddNode(4, "127.0.0.1", 5004))
    assert fake_node.ports == {2: 5002, 4: 5004}, "learned addresses are dropped when the leader's metadata has arrived"


def test_hints_and_image_alternate_while_there_is_no_leader() -> None:
    """All nodes may have moved at once, so that only their config files have the new addresses."""
    fake_node = FakeNode(n1=5001, n2=6002, n3=6003)
    fake_node.bootstrap(1, 2, 3)
    assert fake_node.ports == {2: 5002, 3: 5003}
    fake_node.now += HINT_SECONDS
    fake_node.connected = (3,)
    assert fake_node.ports == {2: 6002, 3: 5003}, "a connected peer keeps its address"
    fake_node.now += HINT_SECONDS
    assert fake_node.ports == {2: 5002, 3: 5003}
    fake_node.now += HINT_SECONDS
    fake_node.leader = 3
    assert fake_node.ports == {2: 5002, 3: 5003}


def test_connected_peer_keeps_its_address() -> None:
    """Nodes may have moved before the feature level that records addresses was enabled."""
    fake_node = FakeNode(n1=5001, n2=6002)
    fake_node.connected, fake_node.leader = (2,), 2
    fake_node.bootstrap(1, 2)
    assert fake_node.ports == {2: 6002}
    fake_node.connected = ()
    assert fake_node.ports == {2: 5002}


def test_hint_missing_in_image_is_tried_while_there_is_no_leader() -> None:
    fake_node = FakeNode(n1=5001, n2=5002, n9=5009)
    fake_node.members = [1, 2]
    fake_node.bootstrap(1, 2)
    assert fake_node.ports == {2: 5002, 9: 5009}
    fake_node.leader = 2
    assert fake_node.ports == {2: 5002}


def test_address_of_member_is_learned_when_it_connects() -> None:
    fake_node = FakeNode(n1=5001, n2=5002)
    fake_node.bootstrap(1, 2)
    fake_node.addresses.on_peer_connected(4, "127.0.0.1", 5004)
    assert fake_node.ports == {2: 5002}, "a node that is not a member is ignored"
    fake_node.members = [1, 2, 4]
    fake_node.addresses.on_peer_connected(4, "127.0.0.1", 5004)
    assert fake_node.ports == {2: 5002, 4: 5004}


def test_node_detects_outdated_own_address_in_metadata() -> None:
    fake_node = FakeNode(n1=5001, n2=5002)
    assert not fake_node.addresses.has_moved
    fake_node.bootstrap(1, 2)
    assert not fake_node.addresses.has_moved
    fake_node.apply(UpdateNode(1, port=7777))
    assert fake_node.addresses.has_moved
