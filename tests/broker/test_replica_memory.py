"""The memory of a replica before its first write, and state that is created lazily."""

from __future__ import annotations

import gc
import tracemalloc
from functools import partial
from typing import Any, cast

from chronik.broker.flusher import Flusher
from chronik.broker.recent_batches import RecentBatchBudget
from chronik.broker.replica import OffsetWaiters, Replica
from chronik.broker.requests.produced_records import ProduceRules
from chronik.broker.uncommitted import NodeUncommittedBytes
from chronik.log.files.synced_offsets import SyncedOffsets
from chronik.metadata.records import Partition, Topic
from chronik.protocol.errors import ErrorCode
from tests.files.simulated_files import SimulatedFileSystem

REPLICAS = 500
REPLICA_BYTES_MAX = 1_500


def idle_leader(topic: Topic, synced: SyncedOffsets, budget: RecentBatchBudget) -> Replica:
    rules = ProduceRules(max_message_bytes=1000)
    nothing: Any = None
    flusher, node = cast(Flusher, nothing), NodeUncommittedBytes()
    replica = Replica(1, topic, 0, rules, nothing, synced, flusher, budget, node, flush_each_append=False)
    replica.assume_role(topic.partitions[0], 0.0)
    return replica


def test_idle_leader_uses_at_most_1500_bytes() -> None:
    topic = Topic(bytes(16), "topic", (Partition(replicas=(1,), isr=(1,), leader=1),), {}, 0)
    synced, budget = SyncedOffsets(SimulatedFileSystem(), "synced-offsets"), RecentBatchBudget()
    gc.collect()
    tracemalloc.start()
    try:
        replicas = [idle_leader(topic, synced, budget) for _ in range(REPLICAS)]
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    each = used / len(replicas)
    assert each <= REPLICA_BYTES_MAX, f"{each:.0f} bytes"


def test_offset_waiters_complete_in_offset_order() -> None:
    promises, called = OffsetWaiters(), list[tuple[int, ErrorCode]]()
    assert not promises
    promises.complete_callbacks_up_to(100)
    for offset in (5, 9, 7):
        promises.add(offset, partial(lambda offset, code: called.append((offset, code)), offset))
    promises.complete_callbacks_up_to(7)
    assert called == [(5, ErrorCode.NONE), (7, ErrorCode.NONE)]
    assert promises


def test_offset_waiter_failed_within_callback_is_called_once() -> None:
    promises, called = OffsetWaiters(), list[tuple[int, ErrorCode]]()
    promises.add(1, lambda _: promises.fail_all(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    promises.add(2, lambda code: called.append((2, code)))
    promises.complete_callbacks_up_to(2)
    assert called == [(2, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    assert not promises
    promises.fail_all(ErrorCode.NONE)
    promises.add(3, lambda code: called.append((3, code)))
    promises.complete_callbacks_up_to(3)
    assert called[1:] == [(3, ErrorCode.NONE)]
