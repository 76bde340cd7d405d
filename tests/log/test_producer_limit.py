"""The limit on the producers of all partitions of a node."""

from __future__ import annotations

import pytest

from chronik.limits import PRODUCERS_PER_NODE_MAX
from chronik.log.config import LogConfig
from chronik.log.partition_log import PartitionLog
from chronik.log.producer_state import ProducerLimit, ProducerStateManager
from chronik.protocol.batch import BatchHeader, parse_header

from .harness import LogHarness, batch

HEADER = parse_header(batch(b"x", producer_id=1, sequence=0))
LIMIT = 100


def header_of(producer_id: int) -> BatchHeader:
    return HEADER._replace(producer_id=producer_id)


def fill(states: ProducerStateManager, producers: range) -> None:
    for producer_id in producers:
        states.update(header_of(producer_id), producer_id, 0)


def test_partitions_share_producer_limit_exactly() -> None:
    limit = ProducerLimit(LIMIT)
    first, second = ProducerStateManager(limit), ProducerStateManager(limit)
    fill(first, range(LIMIT // 2))
    fill(second, range(LIMIT // 2))
    assert len(first) + len(second) == LIMIT
    fill(second, range(LIMIT, LIMIT + 1000))
    assert len(first) + len(second) <= LIMIT
    assert len(first) >= LIMIT // 2 - 1, "the partition with the most producers evicts first"
    assert second.get(LIMIT + 999) is not None
    assert second.get(LIMIT) is None


@pytest.mark.slow
def test_default_limit_applies_to_all_partitions_together() -> None:
    limit, snapshot = ProducerLimit(), ProducerStateManager()
    fill(snapshot, range(PRODUCERS_PER_NODE_MAX // 4))
    stored = snapshot.encode(7)
    partitions: list[ProducerStateManager] = []
    for number in range(1, 6):
        loaded = ProducerStateManager.decode(stored, 7, limit)
        assert loaded is not None
        partitions.append(loaded)
        remembered = sum(map(len, partitions))
        assert remembered <= PRODUCERS_PER_NODE_MAX
        assert number > 4 or remembered == number * len(snapshot), "nothing is evicted below the limit"


def test_producers_of_deleted_partition_do_not_count() -> None:
    limit = ProducerLimit(LIMIT)
    for _ in range(5):
        gone = ProducerStateManager(limit)
        fill(gone, range(LIMIT // 2))
        del gone
    states = ProducerStateManager(limit)
    fill(states, range(LIMIT))
    assert len(states) == LIMIT


def test_producers_with_open_transactions_are_never_evicted() -> None:
    limit = ProducerLimit(LIMIT)
    states = ProducerStateManager(limit)
    transactional = parse_header(batch(b"x", producer_id=1, sequence=0, transactional=True))
    assert transactional.is_transactional
    for producer_id in range(LIMIT + 20):
        states.update(transactional._replace(producer_id=producer_id), producer_id, 0)
    fill(states, range(1000, 1010))
    assert all(states.get(producer_id) is not None for producer_id in range(LIMIT + 20))


def test_producers_loaded_from_snapshots_count() -> None:
    limit = ProducerLimit(LIMIT)
    large = ProducerStateManager()
    fill(large, range(LIMIT))
    snapshots = [ProducerStateManager.decode(large.encode(7), 7, limit) for _ in range(3)]
    assert sum(len(states) for states in snapshots if states is not None) <= LIMIT
    assert all(snapshots)


def test_logs_of_a_node_share_producer_limit() -> None:
    world = LogHarness()
    limit = ProducerLimit(LIMIT)
    logs = [
        PartitionLog.open(world.files, world.cache, f"topics/{name}", LogConfig(), world.clock, producer_limit=limit)
        for name in "ab"
    ]
    for log in logs:
        fill(log.producers, range(LIMIT))
    assert sum(len(log.producers) for log in logs) <= LIMIT
