"""Where a node looks for its peers: at first where its file says, then where its image says; and whom it leaves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from chronik.config import Address
from chronik.metadata import levels
from chronik.metadata.commands.cluster import AddNode, CreateCluster, RemoveNode, SetFeatureLevel, UpdateNode
from chronik.metadata.commands.envelope import Command
from chronik.metadata.delta import Delta
from chronik.metadata.image import Image
from chronik.node.addresses import HINT_SECONDS, Addresses
from chronik.raft.membership import NOBODY, Member, Membership
from tests.metadata.world import World

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


class Place:
    """A node, as far as it looks for others."""

    def __init__(self, **hints: int) -> None:
        self.hints = {int(name[1:]): at(port) for name, port in hints.items()}
        self.world = World()
        self.transport = Transport(self.hints)
        self.members: list[int] = list(self.hints)
        self.leader = NOBODY
        self.connected: tuple[int, ...] = ()
        self.now = 0.0
        self._follow: Any = None
        clock = SimpleNamespace(monotonic=lambda: self.now)
        self.addresses = Addresses(OWN, self.hints, cast(Any, self), cast(Any, self), cast(Any, clock))

    # What it is given as a store and as a driver

    @property
    def image(self) -> Image:
        return self.world.image

    def subscribe(self, subscriber: Any) -> None:
        self._follow = subscriber

    @property
    def status(self) -> Any:
        members = Membership(tuple(Member(each, bytes(16), True) for each in self.members))
        return SimpleNamespace(leader=self.leader, membership=members, connected=self.connected)

    # What happens

    def apply(self, *commands: Command) -> None:
        for command in commands:
            self.world.accept(command)
            self._follow(self.world.delta)

    def found(self, *nodes: int) -> None:
        self.apply(SetFeatureLevel(levels.FEATURE, levels.GROWTH))
        self.apply(*(AddNode(node, "127.0.0.1", 5000 + node) for node in nodes), CreateCluster("c", 1))
        self._follow(Delta(0, features=(levels.FEATURE,)))

    @property
    def ports(self) -> dict[int, int]:
        self.addresses.refresh()
        return {node_id: address.port for node_id, address in self.transport.addresses.items() if node_id != OWN}


def test_before_there_is_a_cluster_the_file_says_where() -> None:
    place = Place(n1=5001, n2=5002)
    assert place.ports == {2: 5002}
    place.addresses.learn([(3, "127.0.0.1", 5003), (2, "127.0.0.1", 6002)])
    assert place.ports == {2: 6002, 3: 5003}, "a peer knows better"


def test_then_the_image_does_and_follows_every_change() -> None:
    place = Place(n1=5001, n2=9999)
    place.leader = 2
    place.found(1, 2, 3)
    assert place.ports == {2: 5002, 3: 5003}
    place.apply(AddNode(4, "127.0.0.1", 5004), UpdateNode(3, port=6003))
    assert place.ports == {2: 5002, 3: 6003, 4: 5004}
    place.apply(RemoveNode(4))
    assert place.ports == {2: 5002, 3: 6003}


def test_below_level_3_the_file_stays_right() -> None:
    place = Place(n1=5001, n2=9999)
    place.apply(AddNode(1, "127.0.0.1", 5001), AddNode(2, "127.0.0.1", 5002), CreateCluster("c", 1))
    assert place.ports == {2: 9999}


def test_a_member_that_is_to_be_removed_is_spoken_to_until_it_is() -> None:
    place = Place(n1=5001, n2=5002, n3=5003)
    place.leader = 1
    place.found(1, 2, 3)
    place.members = [1, 2, 3]
    place.apply(RemoveNode(3))
    assert place.ports == {2: 5002, 3: 5003}
    place.members = [1, 2]
    assert place.ports == {2: 5002}


def test_whoever_leads_is_answered_though_the_image_is_older() -> None:
    place = Place(n1=5001, n2=5002)
    place.found(1, 2)
    place.addresses.learn([(4, "127.0.0.1", 5004), (5, "127.0.0.1", 5005)])
    place.leader = 4
    assert place.ports == {2: 5002, 4: 5004, 5: 5005}
    place.apply(AddNode(4, "127.0.0.1", 5004))
    assert place.ports == {2: 5002, 4: 5004}, "what was only heard of is forgotten when the leader's word is here"


def test_while_nobody_leads_hints_and_image_have_their_turns() -> None:
    """All nodes may have moved at once, and only their files know where to."""
    place = Place(n1=5001, n2=6002, n3=6003)
    place.found(1, 2, 3)
    assert place.ports == {2: 5002, 3: 5003}
    place.now += HINT_SECONDS
    place.connected = (3,)
    assert place.ports == {2: 6002, 3: 5003}, "who answers is where it should be"
    place.now += HINT_SECONDS
    assert place.ports == {2: 5002, 3: 5003}
    place.now += HINT_SECONDS
    place.leader = 3
    assert place.ports == {2: 5002, 3: 5003}


def test_who_is_connected_is_not_looked_for_elsewhere() -> None:
    """Nodes may have moved before the level was raised from which on that is noted."""
    place = Place(n1=5001, n2=6002)
    place.connected, place.leader = (2,), 2
    place.found(1, 2)
    assert place.ports == {2: 6002}
    place.connected = ()
    assert place.ports == {2: 5002}


def test_a_hint_that_the_image_does_not_know_is_tried_while_nobody_leads() -> None:
    place = Place(n1=5001, n2=5002, n9=5009)
    place.members = [1, 2]
    place.found(1, 2)
    assert place.ports == {2: 5002, 9: 5009}
    place.leader = 2
    assert place.ports == {2: 5002}


def test_a_member_whose_address_is_not_here_yet_is_found_when_it_asks() -> None:
    place = Place(n1=5001, n2=5002)
    place.found(1, 2)
    place.addresses.met(4, "127.0.0.1", 5004)
    assert place.ports == {2: 5002}, "a stranger is nobody to look for"
    place.members = [1, 2, 4]
    place.addresses.met(4, "127.0.0.1", 5004)
    assert place.ports == {2: 5002, 4: 5004}


def test_a_node_knows_that_the_others_look_for_it_elsewhere() -> None:
    place = Place(n1=5001, n2=5002)
    assert not place.addresses.has_moved
    place.found(1, 2)
    assert not place.addresses.has_moved
    place.apply(UpdateNode(1, port=7777))
    assert place.addresses.has_moved
