"""Connection slots (which connection is closed when all are taken), and the memory budget for request bodies."""

from __future__ import annotations

import pytest

from chronik.console.shared_limits import BodyBudgetExceeded, ConnectionSlots, RequestBodyBudget


class Holder:
    def __init__(self, name: str = "", *, is_busy: bool = False) -> None:
        self.name = name
        self.is_busy = is_busy

    def __repr__(self) -> str:
        return self.name


def open_connection(
    slots: ConnectionSlots[Holder], network: str, *, is_busy: bool = False
) -> tuple[Holder, Holder | None]:
    """Open a connection, and close the one that is evicted for it."""
    connection = Holder(network, is_busy=is_busy)
    evicted = slots.open(connection, network)
    if evicted is not None:
        slots.close(evicted)
    return connection, evicted


def test_largest_network_loses_its_least_recently_active_connection() -> None:
    slots: ConnectionSlots[Holder] = ConnectionSlots(4, 2)
    connections = [open_connection(slots, "evil")[0] for _ in range(3)]
    single, _ = open_connection(slots, "good")
    slots.mark_active(connections[0])
    assert open_connection(slots, "other")[1] is connections[1]
    assert open_connection(slots, "evil")[1] is connections[2]
    assert single in slots
    assert len(slots) == 4


def test_idle_connections_of_one_network_never_evict_other_networks() -> None:
    slots: ConnectionSlots[Holder] = ConnectionSlots(64, 16)
    stream, _ = open_connection(slots, "good", is_busy=True)
    slots.assign_account(stream, "User:alice")
    login, _ = open_connection(slots, "home", is_busy=True)
    for _ in range(1000):
        open_connection(slots, "evil")
    assert stream in slots
    assert login in slots
    assert len(slots) == 64


def test_busy_connections_of_many_networks_never_evict_a_login() -> None:
    slots: ConnectionSlots[Holder] = ConnectionSlots(512, 128)
    for _ in range(10):
        login, _ = open_connection(slots, "good", is_busy=True)
        for _ in range(10):
            for number in range(120):
                open_connection(slots, f"evil-{number}", is_busy=True)
        assert login in slots
        slots.close(login)


def test_idle_connection_is_closed_before_busy_one_of_same_network() -> None:
    slots: ConnectionSlots[Holder] = ConnectionSlots(3, 2)
    login, _ = open_connection(slots, "nat", is_busy=True)
    idle, _ = open_connection(slots, "nat")
    other_login, _ = open_connection(slots, "nat", is_busy=True)
    assert open_connection(slots, "elsewhere")[1] is idle
    assert {login, other_login} <= set(slots.all())


def test_new_connection_is_rejected_when_its_network_is_busy() -> None:
    slots: ConnectionSlots[Holder] = ConnectionSlots(3, 2)
    busy = [open_connection(slots, "nat", is_busy=True)[0] for _ in range(3)]
    new_connection, evicted = open_connection(slots, "nat")
    assert evicted is new_connection
    assert slots.all() == busy


def test_least_recently_active_connection_of_single_connection_networks_is_closed() -> None:
    slots: ConnectionSlots[Holder] = ConnectionSlots(3, 2)
    first, second, _ = (open_connection(slots, name)[0] for name in "abc")
    slots.mark_active(first)
    assert open_connection(slots, "d")[1] is second


def test_unauthenticated_connection_never_evicts_authenticated_stream() -> None:
    slots: ConnectionSlots[Holder] = ConnectionSlots(3, 3)
    streams = [open_connection(slots, "good", is_busy=True)[0] for _ in range(3)]
    for stream in streams:
        assert slots.assign_account(stream, "User:alice") is None
    new_connection, evicted = open_connection(slots, "other")
    assert evicted is new_connection
    streams[1].is_busy = False
    assert open_connection(slots, "other")[1] is streams[1]


def test_streams_of_many_accounts_leave_slots_for_logins() -> None:
    slots: ConnectionSlots[Holder] = ConnectionSlots(16, 4)
    closed = []
    for number in range(16):
        stream, _ = open_connection(slots, f"network-{number}", is_busy=True)
        evicted = slots.assign_account(stream, f"User:{number % 4}")
        if evicted is not None:
            slots.close(evicted)
            closed.append(evicted)
    assert len(slots) == 12
    assert len(closed) == 4
    logins = [open_connection(slots, "home", is_busy=True)[0] for _ in range(4)]
    assert all(login in slots for login in logins)


def test_account_over_connection_limit_loses_its_own_connection() -> None:
    slots: ConnectionSlots[Holder] = ConnectionSlots(8, 2)
    first, second, third = (open_connection(slots, f"network-{number}", is_busy=True)[0] for number in range(3))
    other, _ = open_connection(slots, "network-4")
    assert slots.assign_account(other, "User:bob") is None
    assert slots.assign_account(first, "User:alice") is None
    assert slots.assign_account(second, "User:alice") is None
    assert slots.assign_account(third, "User:alice") is first
    second.is_busy = False
    slots.close(first)
    fourth, _ = open_connection(slots, "network-5")
    assert slots.assign_account(fourth, "User:alice") is second


def test_connection_without_authentication_counts_for_its_network_again() -> None:
    slots: ConnectionSlots[Holder] = ConnectionSlots(3, 3)
    connections = [open_connection(slots, "a")[0] for _ in range(2)]
    single, _ = open_connection(slots, "b")
    for each in connections:
        slots.assign_account(each, "User:alice")
        slots.assign_account(each, None)
    assert open_connection(slots, "c")[1] is connections[0]
    assert single in slots
    slots.close(single)
    slots.close(single)
    assert slots.assign_account(single, "User:alice") is None


def test_bodies_up_to_limit_are_accepted_and_one_byte_more_is_rejected() -> None:
    budget: RequestBodyBudget[str] = RequestBodyBudget(100)
    assert budget.reserve("one", "alice", 60) == []
    assert budget.reserve("two", "alice", 40) == []
    assert budget.bytes == 100
    with pytest.raises(BodyBudgetExceeded):
        budget.reserve("two", "alice", 41)
    assert budget.bytes == 60, "the rejected body is released"


def test_reserved_memory_grows_with_body_and_is_released() -> None:
    budget: RequestBodyBudget[str] = RequestBodyBudget(100)
    for size in (10, 50, 100):
        assert budget.reserve("one", "alice", size) == []
        assert budget.bytes == size
    budget.release("one")
    budget.release("one")
    assert budget.bytes == 0
    assert budget.reserve("one", "alice", 0) == []


def test_account_with_most_bytes_loses_its_largest_body() -> None:
    budget: RequestBodyBudget[str] = RequestBodyBudget(100)
    budget.reserve("small", "mallory", 30)
    budget.reserve("large", "mallory", 40)
    budget.reserve("other", "bob", 30)
    assert budget.reserve("new", "alice", 20) == ["large"]
    assert budget.bytes == 80
    assert budget.reserve("new", "alice", 40) == []


def test_account_that_would_use_most_memory_is_rejected() -> None:
    budget: RequestBodyBudget[str] = RequestBodyBudget(100)
    budget.reserve("one", "alice", 50)
    budget.reserve("two", "bob", 50)
    with pytest.raises(BodyBudgetExceeded):
        budget.reserve("three", "carol", 50)
    assert budget.reserve("three", "carol", 30) == ["one"]
