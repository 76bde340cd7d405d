"""Uncommitted bytes of partitions and nodes, and whether produce requests may be pipelined."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from chronik.broker.uncommitted import NodeUncommittedBytes, UncommittedBytes, can_pipeline_requests
from chronik.limits import PARTITION_UNCOMMITTED_BYTES_MAX, UNCOMMITTED_BYTES_MAX
from chronik.metadata.records import Partition

from .test_high_watermark import FakeFollowerBroker, leader, produce, sync


@dataclass
class Led:
    uncommitted: UncommittedBytes = field(default_factory=lambda: UncommittedBytes(NodeUncommittedBytes()))
    has_followers: bool = True


def test_bytes_are_uncommitted_until_high_watermark_passes_them() -> None:
    node = NodeUncommittedBytes()
    uncommitted = UncommittedBytes(node)
    uncommitted.append(10, 100)
    uncommitted.append(20, 50)
    assert (uncommitted.bytes, node.bytes, uncommitted.appended_bytes) == (150, 150, 150)
    assert uncommitted.commit(19) == 100
    assert (uncommitted.bytes, node.bytes) == (50, 50)
    assert uncommitted.commit(19) == 0
    assert uncommitted.commit(20) == 50
    assert (uncommitted.bytes, node.bytes, uncommitted.appended_bytes) == (0, 0, 150)


def test_clearing_partition_keeps_bytes_of_other_partitions() -> None:
    node = NodeUncommittedBytes()
    first, second = UncommittedBytes(node), UncommittedBytes(node)
    first.append(10, 100)
    second.append(10, 30)
    first.clear()
    assert (first.bytes, second.bytes, node.bytes) == (0, 30, 30)
    first.clear()
    assert node.bytes == 30
    first.append(5, 7)  # the next leader truncated the log
    assert (first.bytes, node.bytes) == (7, 37)
    assert first.commit(5) == 7


@pytest.mark.parametrize(("size", "expected"), [(0, True), (1, False)])
def test_replicated_partition_can_pipeline_up_to_its_limit(size: int, expected: bool) -> None:
    led = Led()
    led.uncommitted.append(1, PARTITION_UNCOMMITTED_BYTES_MAX)
    led.uncommitted.append(2, size)
    assert can_pipeline_requests([led]) is expected
    assert can_pipeline_requests([Led(), led]) is expected
    led.uncommitted.commit(1)
    assert can_pipeline_requests([led])


@pytest.mark.parametrize(("size", "expected"), [(0, True), (1, False)])
def test_partitions_can_pipeline_up_to_node_limit(size: int, expected: bool) -> None:
    node = NodeUncommittedBytes()
    alone, replicated = Led(UncommittedBytes(node), has_followers=False), Led(UncommittedBytes(node))
    alone.uncommitted.append(1, UNCOMMITTED_BYTES_MAX)
    replicated.uncommitted.append(1, size)
    assert can_pipeline_requests([alone]) is expected
    assert can_pipeline_requests([replicated]) is expected


def test_partition_without_followers_has_no_partition_limit() -> None:
    led = Led(has_followers=False)
    led.uncommitted.append(1, PARTITION_UNCOMMITTED_BYTES_MAX + 1)
    assert can_pipeline_requests([led])


def test_leader_bytes_are_uncommitted_until_isr_has_them() -> None:
    replica = leader()
    produce(replica)
    sync(replica)
    assert replica.has_followers
    size = replica.uncommitted.bytes
    assert size == replica.uncommitted.node_bytes == replica.uncommitted.appended_bytes > 0
    replica.record_follower_fetch(2, 1, 0, FakeFollowerBroker())
    assert replica.uncommitted.bytes == replica.uncommitted.node_bytes == 0


def test_bytes_of_ended_leader_epoch_are_not_counted() -> None:
    replica = leader()
    produce(replica)
    assert replica.uncommitted.node_bytes > 0
    replica.assume_role(Partition((1, 2, 3), (2, 3), leader=2, leader_epoch=1, partition_epoch=1), 1.0)
    assert replica.uncommitted.node_bytes == 0
    replica.truncate_to(0)
    replica.assume_role(Partition((1, 2, 3), (1, 2), leader=1, leader_epoch=2, partition_epoch=2), 2.0)
    produce(replica)
    sync(replica)
    assert replica.uncommitted.bytes == replica.uncommitted.node_bytes > 0
    replica.record_follower_fetch(2, 1, 0, FakeFollowerBroker())
    assert replica.uncommitted.bytes == replica.uncommitted.node_bytes == 0


def test_bytes_of_deleted_partition_are_not_counted() -> None:
    replica = leader()
    produce(replica)
    replica.abandon()
    assert replica.uncommitted.node_bytes == 0


def test_bytes_without_followers_are_uncommitted_until_synced() -> None:
    replica = leader()
    replica.assume_role(Partition((1,), (1,), leader=1, leader_epoch=1, partition_epoch=1), 1.0)
    assert not replica.has_followers
    produce(replica)
    assert replica.uncommitted.bytes > 0
    sync(replica)
    assert replica.uncommitted.bytes == replica.uncommitted.node_bytes == 0
