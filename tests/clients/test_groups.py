"""Consumer groups of real clients: rebalances on join and leave, and committed offsets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from .client_catalog import CLIENTS
from .client_process import ClientPool, ClientProcess, GroupMember, unique_name, wait_for
from .drivers.wire import Record

PARTITIONS = 4
MIXED_PARTITIONS = 12  # more than clients, so that each member of a mixed group owns at least one
RECORDS_PER_PARTITION = 10
COOPERATIVE_CLIENTS = ("kafka-python", "confluent", "java-3.9", "java-4")


def _fill(clients: ClientPool, topic: str, partitions: int, count: int = RECORDS_PER_PARTITION) -> None:
    records = [Record(b"key", str(i).encode(), partition=p) for p in range(partitions) for i in range(count)]
    clients.get("confluent").produce(topic, records)


def _offsets(topic: str, partitions: int, start: int, end: int) -> set[tuple[str, int, int]]:
    return {(topic, partition, offset) for partition in range(partitions) for offset in range(start, end)}


def _partitions_of(topic: str, partitions: int) -> set[tuple[str, int]]:
    return {(topic, partition) for partition in range(partitions)}


def _is_fully_assigned(members: list[GroupMember], all_partitions: set[tuple[str, int]]) -> bool:
    """Return whether every partition has one owner and every member owns a partition."""
    owned = [member.assignment() for member in members]
    return all(owned) and sum(map(len, owned)) == len(all_partitions) and set().union(*owned) == all_partitions


@contextmanager
def _join(client: ClientProcess, group: str, topics: list[str], assignor: str | None = None) -> Iterator[GroupMember]:
    """Join a group and leave it on exit, also if the test fails; `leave` may be called earlier."""
    member = client.join(group, topics, assignor)
    try:
        yield member
    finally:
        member.leave()


def _wait_until_assigned(members: list[GroupMember], all_partitions: set[tuple[str, int]]) -> None:
    wait_for(
        f"{len(members)} members share {len(all_partitions)} partitions",
        lambda: _is_fully_assigned(members, all_partitions),
    )


@pytest.mark.parametrize("name", CLIENTS)
def test_two_members_rebalance_on_join_and_leave(clients: ClientPool, name: str) -> None:
    client = clients.get(name)
    topic, group = clients.create_topic(unique_name("groups"), PARTITIONS), unique_name("pair")
    all_partitions = _partitions_of(topic, PARTITIONS)
    _fill(clients, topic, PARTITIONS)
    with _join(client, group, [topic]) as first:
        _wait_until_assigned([first], all_partitions)
        wait_for(
            "one member reads all",
            lambda: first.received_offsets() == _offsets(topic, PARTITIONS, 0, RECORDS_PER_PARTITION),
        )
        with _join(client, group, [topic]) as second:
            _wait_until_assigned([first, second], all_partitions)
            _fill(clients, topic, PARTITIONS)
            new = _offsets(topic, PARTITIONS, RECORDS_PER_PARTITION, 2 * RECORDS_PER_PARTITION)
            wait_for(
                "two members read all new records", lambda: new <= first.received_offsets() | second.received_offsets()
            )
            assert new - first.received_offsets(), "the first member read partitions that were revoked from it"
            assert new - second.received_offsets()
        _wait_until_assigned([first], all_partitions)
        _fill(clients, topic, PARTITIONS)
        rest = _offsets(topic, PARTITIONS, 2 * RECORDS_PER_PARTITION, 3 * RECORDS_PER_PARTITION)
        wait_for("the remaining member reads all partitions", lambda: rest <= first.received_offsets())


@pytest.mark.parametrize("name", [name for name in CLIENTS if name != "kcat"])  # kcat only commits automatically
def test_group_resumes_at_committed_offsets_with_metadata(clients: ClientPool, name: str) -> None:
    client = clients.get(name)
    topic, group = clients.create_topic(unique_name("commits"), PARTITIONS), unique_name("committer")
    _fill(clients, topic, PARTITIONS)
    committed = [(topic, partition, 3 + partition, f"note {partition} ✓") for partition in range(PARTITIONS)]
    with _join(client, group, [topic]) as member:
        _wait_until_assigned([member], _partitions_of(topic, PARTITIONS))
        member.commit(committed)
    retained = clients.get("kafka-python").admin("group_offsets", group=group)
    # confluent-kafka appends a zero byte to the metadata.
    assert [(*at, metadata.removesuffix("\0")) for *at, metadata in retained] == committed
    expected = {(topic, p, offset) for _, p, start, _ in committed for offset in range(start, RECORDS_PER_PARTITION)}
    with _join(client, group, [topic]) as restarted:
        wait_for("the remaining records are read", lambda: expected <= restarted.received_offsets())
        assert restarted.received_offsets() == expected, "records before the committed offset were read again"


def test_kcat_resumes_at_offsets_committed_on_leave(clients: ClientPool) -> None:
    kcat = clients.get("kcat")
    topic, group = clients.create_topic(unique_name("commits"), PARTITIONS), unique_name("kcat")
    _fill(clients, topic, PARTITIONS)
    old = _offsets(topic, PARTITIONS, 0, RECORDS_PER_PARTITION)
    with _join(kcat, group, [topic]) as member:
        wait_for("all records are read", lambda: member.received_offsets() == old)
    _fill(clients, topic, PARTITIONS)
    new = _offsets(topic, PARTITIONS, RECORDS_PER_PARTITION, 2 * RECORDS_PER_PARTITION)
    with _join(kcat, group, [topic]) as restarted:
        wait_for("new records are read", lambda: new <= restarted.received_offsets())
        assert restarted.received_offsets() == new


@pytest.mark.parametrize("name", COOPERATIVE_CLIENTS)
def test_cooperative_rebalance_moves_only_necessary_partitions(clients: ClientPool, name: str) -> None:
    client = clients.get(name)
    topic, group = clients.create_topic(unique_name("cooperative"), PARTITIONS), unique_name("cooperative")
    all_partitions = _partitions_of(topic, PARTITIONS)
    with _join(client, group, [topic], "cooperative-sticky") as first:
        _wait_until_assigned([first], all_partitions)
        with _join(client, group, [topic], "cooperative-sticky") as second:
            _wait_until_assigned([first, second], all_partitions)
            retained = first.assignment()
            assert len(retained) == PARTITIONS // 2
            with _join(client, group, [topic], "cooperative-sticky") as third:
                _wait_until_assigned([first, second, third], all_partitions)
                assert first.assignment() <= retained, "a partition moved unnecessarily"
        _wait_until_assigned([first], all_partitions)


def test_group_of_different_clients_uses_range_assignor(clients: ClientPool) -> None:
    """The leader may be any client with the range assignor, and all others must understand its assignment."""
    capable_clients = [client for client in clients.get_all() if "range" in client.capabilities["assignors"]]
    assert len(capable_clients) > 1
    topic, group = clients.create_topic(unique_name("mixed"), MIXED_PARTITIONS), unique_name("mixed")
    all_partitions = _partitions_of(topic, MIXED_PARTITIONS)
    with ExitStack() as stack:
        members: list[GroupMember] = []
        for client in capable_clients:
            members.append(stack.enter_context(_join(client, group, [topic], "range")))
            _wait_until_assigned(members, all_partitions)
        _fill(clients, topic, MIXED_PARTITIONS)
        sent = _offsets(topic, MIXED_PARTITIONS, 0, RECORDS_PER_PARTITION)
        wait_for("all members together read all", lambda: set().union(*(m.received_offsets() for m in members)) == sent)
        described = clients.get("confluent").admin("describe_group", group=group)
        assert (described["state"], described["protocol"], len(described["members"])) == (
            "Stable",
            "range",
            len(capable_clients),
        )


def test_group_of_different_clients_uses_cooperative_assignor(clients: ClientPool) -> None:
    capable_clients = [clients.get(name) for name in COOPERATIVE_CLIENTS if clients.missing_reason(name) is None]
    assert len(capable_clients) > 1
    topic, group = clients.create_topic(unique_name("mixed"), MIXED_PARTITIONS), unique_name("mixed")
    all_partitions = _partitions_of(topic, MIXED_PARTITIONS)
    with ExitStack() as stack:
        members: list[GroupMember] = []
        for client in capable_clients:
            members.append(stack.enter_context(_join(client, group, [topic], "cooperative-sticky")))
            _wait_until_assigned(members, all_partitions)
