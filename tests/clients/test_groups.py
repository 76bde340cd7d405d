"""Groups of real clients: partitions are shared, move when members come and go, and committed offsets are kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from .catalogue import CLIENTS
from .drivers.wire import Record
from .running import Clients, GroupMember, RunningClient, unique, wait_for

PARTITIONS = 4
MIXED_PARTITIONS = 12  # more than there are clients, so that each of a mixed group has one at least
RECORDS_PER_PARTITION = 10
COOPERATIVE_CLIENTS = ("kafka-python", "confluent", "java-3.9", "java-4")


def _fill(clients: Clients, topic: str, partitions: int, count: int = RECORDS_PER_PARTITION) -> None:
    records = [Record(b"key", str(i).encode(), partition=p) for p in range(partitions) for i in range(count)]
    clients.get("confluent").produce(topic, records)


def _offsets(topic: str, partitions: int, start: int, end: int) -> set[tuple[str, int, int]]:
    return {(topic, partition, offset) for partition in range(partitions) for offset in range(start, end)}


def _all_of(topic: str, partitions: int) -> set[tuple[str, int]]:
    return {(topic, partition) for partition in range(partitions)}


def _shared_out(members: list[GroupMember], whole: set[tuple[str, int]]) -> bool:
    """Every partition has one owner, and every member owns something."""
    owned = [member.assignment() for member in members]
    return all(owned) and sum(map(len, owned)) == len(whole) and set().union(*owned) == whole


@contextmanager
def _joined(client: RunningClient, group: str, topics: list[str], assignor: str | None = None) -> Iterator[GroupMember]:
    """A member that is gone afterwards, also when the test fails; `leave` may be called before."""
    member = client.join(group, topics, assignor)
    try:
        yield member
    finally:
        member.leave()


def _wait_until_shared(members: list[GroupMember], whole: set[tuple[str, int]]) -> None:
    wait_for(f"{len(members)} members share {len(whole)} partitions", lambda: _shared_out(members, whole))


@pytest.mark.parametrize("name", CLIENTS)
def test_two_members_share_partitions_and_rebalance_on_join_and_leave(clients: Clients, name: str) -> None:
    client = clients.get(name)
    topic, group = clients.create_topic(unique("groups"), PARTITIONS), unique("pair")
    whole = _all_of(topic, PARTITIONS)
    _fill(clients, topic, PARTITIONS)
    with _joined(client, group, [topic]) as first:
        _wait_until_shared([first], whole)
        wait_for("one member reads all", lambda: first.seen() == _offsets(topic, PARTITIONS, 0, RECORDS_PER_PARTITION))
        with _joined(client, group, [topic]) as second:
            _wait_until_shared([first, second], whole)
            _fill(clients, topic, PARTITIONS)
            new = _offsets(topic, PARTITIONS, RECORDS_PER_PARTITION, 2 * RECORDS_PER_PARTITION)
            wait_for("two members read all that is new", lambda: new <= first.seen() | second.seen())
            assert new - first.seen(), "the first member read partitions that it had given away"
            assert new - second.seen()
        _wait_until_shared([first], whole)
        _fill(clients, topic, PARTITIONS)
        rest = _offsets(topic, PARTITIONS, 2 * RECORDS_PER_PARTITION, 3 * RECORDS_PER_PARTITION)
        wait_for("the one that stayed reads on everywhere", lambda: rest <= first.seen())


@pytest.mark.parametrize("name", [name for name in CLIENTS if name != "kcat"])  # kcat commits only by itself
def test_a_group_keeps_committed_offsets_with_metadata_and_resumes_there(clients: Clients, name: str) -> None:
    client = clients.get(name)
    topic, group = clients.create_topic(unique("commits"), PARTITIONS), unique("committer")
    _fill(clients, topic, PARTITIONS)
    committed = [(topic, partition, 3 + partition, f"note {partition} ✓") for partition in range(PARTITIONS)]
    with _joined(client, group, [topic]) as member:
        _wait_until_shared([member], _all_of(topic, PARTITIONS))
        member.commit(committed)
    kept = clients.get("kafka-python").admin("group_offsets", group=group)
    # confluent-kafka sends a zero behind the metadata.
    assert [(*at, metadata.removesuffix("\0")) for *at, metadata in kept] == committed
    expected = {(topic, p, offset) for _, p, start, _ in committed for offset in range(start, RECORDS_PER_PARTITION)}
    with _joined(client, group, [topic]) as restarted:
        wait_for("the rest is read", lambda: expected <= restarted.seen())
        assert restarted.seen() == expected, "records before the committed offset were read again"


def test_kcat_resumes_after_what_it_committed_on_leaving(clients: Clients) -> None:
    kcat = clients.get("kcat")
    topic, group = clients.create_topic(unique("commits"), PARTITIONS), unique("kcat")
    _fill(clients, topic, PARTITIONS)
    old = _offsets(topic, PARTITIONS, 0, RECORDS_PER_PARTITION)
    with _joined(kcat, group, [topic]) as member:
        wait_for("all is read", lambda: member.seen() == old)
    _fill(clients, topic, PARTITIONS)
    new = _offsets(topic, PARTITIONS, RECORDS_PER_PARTITION, 2 * RECORDS_PER_PARTITION)
    with _joined(kcat, group, [topic]) as restarted:
        wait_for("what is new is read", lambda: new <= restarted.seen())
        assert restarted.seen() == new


@pytest.mark.parametrize("name", COOPERATIVE_CLIENTS)
def test_a_cooperative_rebalance_takes_only_what_must_move(clients: Clients, name: str) -> None:
    client = clients.get(name)
    topic, group = clients.create_topic(unique("cooperative"), PARTITIONS), unique("cooperative")
    whole = _all_of(topic, PARTITIONS)
    with _joined(client, group, [topic], "cooperative-sticky") as first:
        _wait_until_shared([first], whole)
        with _joined(client, group, [topic], "cooperative-sticky") as second:
            _wait_until_shared([first, second], whole)
            kept = first.assignment()
            assert len(kept) == PARTITIONS // 2
            with _joined(client, group, [topic], "cooperative-sticky") as third:
                _wait_until_shared([first, second, third], whole)
                assert first.assignment() <= kept, "a partition moved that could have stayed"
        _wait_until_shared([first], whole)


def test_different_clients_share_one_group(clients: Clients) -> None:
    """All who know the range assignor: the leader may be any of them, and its assignment must reach all others."""
    able = [client for client in clients.all_present() if "range" in client.capabilities["assignors"]]
    assert len(able) > 1
    topic, group = clients.create_topic(unique("mixed"), MIXED_PARTITIONS), unique("mixed")
    whole = _all_of(topic, MIXED_PARTITIONS)
    with ExitStack() as stack:
        members: list[GroupMember] = []
        for client in able:
            members.append(stack.enter_context(_joined(client, group, [topic], "range")))
            _wait_until_shared(members, whole)
        _fill(clients, topic, MIXED_PARTITIONS)
        sent = _offsets(topic, MIXED_PARTITIONS, 0, RECORDS_PER_PARTITION)
        wait_for("all members together read all", lambda: set().union(*(m.seen() for m in members)) == sent)
        described = clients.get("confluent").admin("describe_group", group=group)
        assert (described["state"], described["protocol"], len(described["members"])) == ("Stable", "range", len(able))


def test_different_clients_share_one_cooperative_group(clients: Clients) -> None:
    able = [clients.get(name) for name in COOPERATIVE_CLIENTS if clients.missing(name) is None]
    assert len(able) > 1
    topic, group = clients.create_topic(unique("mixed"), MIXED_PARTITIONS), unique("mixed")
    whole = _all_of(topic, MIXED_PARTITIONS)
    with ExitStack() as stack:
        members: list[GroupMember] = []
        for client in able:
            members.append(stack.enter_context(_joined(client, group, [topic], "cooperative-sticky")))
            _wait_until_shared(members, whole)
