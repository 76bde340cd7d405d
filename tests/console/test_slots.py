"""Connection slots of the HTTP port: which connection is closed when all slots are taken."""

from __future__ import annotations

from chronik.console.slots import Slots


class Holder:
    def __init__(self, name: str = "", *, is_busy: bool = False) -> None:
        self.name = name
        self.is_busy = is_busy

    def __repr__(self) -> str:
        return self.name


def opened(slots: Slots[Holder], network: str, *, is_busy: bool = False) -> tuple[Holder, Holder | None]:
    """Open a connection, and close the one that has to leave for it."""
    connection = Holder(network, is_busy=is_busy)
    victim = slots.open(connection, network)
    if victim is not None:
        slots.close(victim)
    return connection, victim


def test_network_with_most_connections_loses_its_least_recently_active_one() -> None:
    slots: Slots[Holder] = Slots(4, 2)
    crowd = [opened(slots, "evil")[0] for _ in range(3)]
    alone, _ = opened(slots, "good")
    slots.use(crowd[0])
    assert opened(slots, "other")[1] is crowd[1]
    assert opened(slots, "evil")[1] is crowd[2]
    assert alone in slots
    assert len(slots) == 4


def test_silent_connections_of_one_network_never_evict_those_of_others() -> None:
    slots: Slots[Holder] = Slots(64, 16)
    stream, _ = opened(slots, "good", is_busy=True)
    slots.identify(stream, "User:alice")
    login, _ = opened(slots, "home", is_busy=True)
    for _ in range(1000):
        opened(slots, "evil")
    assert stream in slots
    assert login in slots
    assert len(slots) == 64


def test_busy_connections_of_many_networks_never_evict_a_login() -> None:
    slots: Slots[Holder] = Slots(512, 128)
    for _ in range(10):
        login, _ = opened(slots, "good", is_busy=True)
        for _ in range(10):
            for number in range(120):
                opened(slots, f"evil-{number}", is_busy=True)
        assert login in slots
        slots.close(login)


def test_idle_connection_is_closed_before_a_busy_one_of_the_same_network() -> None:
    slots: Slots[Holder] = Slots(3, 2)
    login, _ = opened(slots, "nat", is_busy=True)
    idle, _ = opened(slots, "nat")
    other_login, _ = opened(slots, "nat", is_busy=True)
    assert opened(slots, "elsewhere")[1] is idle
    assert {login, other_login} <= set(slots.all())


def test_newcomer_is_refused_when_all_others_of_its_network_are_busy() -> None:
    slots: Slots[Holder] = Slots(3, 2)
    busy = [opened(slots, "nat", is_busy=True)[0] for _ in range(3)]
    newcomer, victim = opened(slots, "nat")
    assert victim is newcomer
    assert slots.all() == busy


def test_networks_with_one_connection_each_lose_the_least_recently_active() -> None:
    slots: Slots[Holder] = Slots(3, 2)
    first, second, _ = (opened(slots, name)[0] for name in "abc")
    slots.use(first)
    assert opened(slots, "d")[1] is second


def test_unauthenticated_newcomer_never_evicts_an_authenticated_stream() -> None:
    slots: Slots[Holder] = Slots(3, 3)
    streams = [opened(slots, "good", is_busy=True)[0] for _ in range(3)]
    for stream in streams:
        assert slots.identify(stream, "User:alice") is None
    newcomer, victim = opened(slots, "other")
    assert victim is newcomer
    streams[1].is_busy = False
    assert opened(slots, "other")[1] is streams[1]


def test_streams_of_many_accounts_leave_slots_to_logins() -> None:
    slots: Slots[Holder] = Slots(16, 4)
    closed = []
    for number in range(16):
        stream, _ = opened(slots, f"network-{number}", is_busy=True)
        victim = slots.identify(stream, f"User:{number % 4}")
        if victim is not None:
            slots.close(victim)
            closed.append(victim)
    assert len(slots) == 12
    assert len(closed) == 4
    logins = [opened(slots, "home", is_busy=True)[0] for _ in range(4)]
    assert all(login in slots for login in logins)


def test_account_with_too_many_connections_loses_one_of_its_own() -> None:
    slots: Slots[Holder] = Slots(8, 2)
    first, second, third = (opened(slots, f"network-{number}", is_busy=True)[0] for number in range(3))
    other, _ = opened(slots, "network-4")
    assert slots.identify(other, "User:bob") is None
    assert slots.identify(first, "User:alice") is None
    assert slots.identify(second, "User:alice") is None
    assert slots.identify(third, "User:alice") is first
    second.is_busy = False
    slots.close(first)
    fourth, _ = opened(slots, "network-5")
    assert slots.identify(fourth, "User:alice") is second


def test_connection_that_is_no_longer_authenticated_counts_for_its_network() -> None:
    slots: Slots[Holder] = Slots(3, 3)
    connections = [opened(slots, "a")[0] for _ in range(2)]
    alone, _ = opened(slots, "b")
    for each in connections:
        slots.identify(each, "User:alice")
        slots.identify(each, None)
    assert opened(slots, "c")[1] is connections[0]
    assert alone in slots
    slots.close(alone)
    slots.close(alone)
    assert slots.identify(alone, "User:alice") is None
