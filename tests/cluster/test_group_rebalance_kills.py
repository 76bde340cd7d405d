"""A group with permanent rebalances: members join, leave and crash, and coordinators die.

Every record is delivered, every commit is kept, and no old generation can commit.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from confluent_kafka import Producer

from chronik.client.groups import list_committed_offsets
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from chronik.testing.cluster import Cluster, ClusterNode
from chronik.testing.plugin import ClusterFactory
from tests.clients.client_process import ClientProcess, CommandFailed, GroupMember, wait_for
from tests.raw import RawClient
from tests.run_size import SEED, sized

from .group_helpers import (
    SETTLED_SECONDS_MAX,
    coordinator_of,
    create_topic,
    generation_of,
    offsets_held_by,
    places_of,
    running_client,
    unique_name,
    wait_until_fully_in_sync,
    wait_until_held_everywhere,
    wait_until_seen,
    wait_until_shared,
)

pytestmark = pytest.mark.xdist_group("cluster")

REBALANCES = sized(5, 200)
PARTITIONS = 6
RECORDS_PER_ROUND = 5
MEMBERS_MIN, MEMBERS_MAX = 1, 4
COMMIT_VERSION = 8
FAR_AHEAD = 10**9
REFUSALS = (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)


class RebalancingGroup:
    """The group, with each member in its own process, and the state that the test expects."""

    def __init__(self, cluster: Cluster, stack: ExitStack, seed: int) -> None:
        self.cluster = cluster
        self.random = random.Random(seed)
        self.topic, self.group = create_topic(cluster, PARTITIONS), unique_name("restless")
        self._stack = stack
        self._producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
        self.members: list[tuple[ClientProcess, GroupMember]] = []
        self._seen: set[tuple[str, int, int]] = set()
        self.written: set[tuple[str, int, int]] = set()
        self.committed: dict[tuple[str, int], tuple[int, str]] = {}
        self.kills = 0

    # --- faults ---

    def trigger_rebalance(self, number: int) -> ClusterNode | None:
        """Change the members, so that the group rebalances, and kill the coordinator every other time."""
        victim = coordinator_of(self.cluster, self.group) if number % 2 else None
        if victim is not None and self.random.random() < 0.5:
            victim.kill()
        self._change_members()
        if victim is not None and victim.is_live:
            victim.kill()
        self.kills += victim is not None
        return victim

    def _change_members(self) -> None:
        chance = self.random.random() < 0.5
        if len(self.members) == MEMBERS_MIN or (len(self.members) < MEMBERS_MAX and chance):
            self.join()
            return
        client, member = self.members.pop(self.random.randrange(len(self.members)))
        self._seen |= member.received_offsets()
        if self.random.random() < 0.5:
            client.crash()
        else:
            member.leave()

    def join(self) -> None:
        client = self._stack.enter_context(running_client("confluent", self.cluster))
        self.members.append((client, client.join(self.group, [self.topic])))

    # --- work ---

    def write(self) -> None:
        failed: list[Any] = []

        def delivered(error: Any, message: Any) -> None:
            if error:
                failed.append(error)
            elif message.offset() is not None:  # librdkafka does not report the offset of every record
                self.written.add((self.topic, message.partition(), message.offset()))

        for partition in range(PARTITIONS):
            for _ in range(RECORDS_PER_ROUND):
                self._producer.produce(self.topic, b"record", partition=partition, on_delivery=delivered)
        assert self._producer.flush(SETTLED_SECONDS_MAX) == 0
        assert failed == []

    def read(self) -> None:
        """Wait until every record has been delivered and every partition has one owner."""
        members = [member for _, member in self.members]
        wait_until_shared(members, places_of(self.topic, PARTITIONS))
        wait_until_seen(members, self.written - self._seen)

    def commit(self, note: str) -> None:
        """Commit each member's positions. If a response is lost, the coordinator's image decides."""
        for _, member in self.members:
            for topic, partition in sorted(member.assignment()):
                seen = [offset for _, at, offset in self.written if at == partition]
                self._commit(member, (topic, partition), max(seen) + 1, note)

    def _commit(self, member: GroupMember, place: tuple[str, int], offset: int, note: str) -> None:
        before = self.committed.get(place)
        try:
            member.commit([(*place, offset, note)])
            self.committed[place] = (offset, note)
        except CommandFailed:
            held = offsets_held_by(coordinator_of(self.cluster, self.group), self.group).get(place)
            assert held in (before, (offset, note))
            if held is not None:
                self.committed[place] = held

    # --- invariants ---

    def check_committed(self) -> None:
        wait_until_held_everywhere(self.cluster, self.group, self.committed)
        with self.cluster.live_nodes[0].cluster() as client:
            stored_offsets = list_committed_offsets(client, self.group)
        by_clients = {
            (at.topic, at.partition): (each.offset, each.metadata.rstrip("\0")) for at, each in stored_offsets.items()
        }
        assert by_clients == self.committed

    def commit_with_old_generation(self, generation: int, member_id: str) -> ErrorCode:
        """Send a commit of an old generation, as a paused member would, and return the coordinator's error."""
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=FAR_AHEAD)
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            topics=[OffsetCommitRequestTopic(name=self.topic, partitions=[partition])],
        )

        def answer() -> ErrorCode | None:
            with RawClient(coordinator_of(self.cluster, self.group).bootstrap) as client:
                (topic,) = client.request(request, COMMIT_VERSION, OffsetCommitResponse).topics
            code = ErrorCode(topic.partitions[0].error_code)
            return None if code.retriable else code

        code = wait_for("a response to a commit of an old generation", answer, SETTLED_SECONDS_MAX)
        assert isinstance(code, ErrorCode)
        return code


@contextmanager
def rebalancing_group(cluster: Cluster, seed: int) -> Iterator[RebalancingGroup]:
    with ExitStack() as stack:
        yield RebalancingGroup(cluster, stack, seed)


def test_groups_deliver_all_records_under_random_kills(chronik_cluster_factory: ClusterFactory) -> None:
    cluster = chronik_cluster_factory()
    with rebalancing_group(cluster, SEED) as group:
        for _ in range(2):
            group.join()
        group.write()
        group.read()
        group.commit("at first")
        group.check_committed()
        for number in range(REBALANCES):
            wait_until_fully_in_sync(cluster, group.topic, PARTITIONS)
            generation, ids = generation_of(cluster, group.group)
            victim = group.trigger_rebalance(number)
            group.write()
            group.read()
            assert generation_of(cluster, group.group)[0] > generation
            assert group.commit_with_old_generation(generation, ids[0]) in REFUSALS
            group.commit(f"rebalance {number}")
            group.check_committed()
            if victim is not None:
                victim.start()
                cluster.wait_until_ready()
                group.check_committed()
        assert group.kills == REBALANCES // 2
        cluster.wait_until_agreed()
