"""Idempotent producers: duplicate detection, sequence gaps, fenced epochs, and the limit on their number."""

from __future__ import annotations

import pytest

from chronik.limits import PRODUCERS_PER_NODE_MAX
from chronik.log.config import DAY_MS, LogConfig
from chronik.log.partition_log import AppendInfo, PartitionLog
from chronik.log.producer_state import PRODUCERS_MAX, ProducerLimit, ProducerStateManager
from chronik.protocol.batch import BatchHeader, parse_header
from chronik.protocol.errors import ErrorCode, KafkaError

from .harness import LogHarness, batch, read_values

CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100, file_delete_delay_ms=0)
SEQUENCE_MAX = 2**31 - 1

HEADER = parse_header(batch(b"x", producer_id=1, sequence=0))
LIMIT = 100


def send(world: LogHarness, sequence: int, count: int = 1, epoch: int = 0, producer_id: int = 1) -> AppendInfo:
    values = [b"%d" % (sequence + number) for number in range(count)]
    return world.append(batch(*values, producer_id=producer_id, producer_epoch=epoch, sequence=sequence))


def refusal(world: LogHarness, sequence: int, epoch: int = 0) -> ErrorCode:
    end = world.log.log_end_offset
    with pytest.raises(KafkaError) as caught:
        send(world, sequence, epoch=epoch)
    assert world.log.log_end_offset == end
    return caught.value.code


def test_retry_of_last_five_batches_returns_stored_offsets() -> None:
    world = LogHarness()
    infos = [send(world, sequence, count=2) for sequence in range(0, 20, 2)]
    for number in range(5, 10):
        again = send(world, number * 2, count=2)
        assert again.is_duplicate
        assert (again.base_offset, again.last_offset) == (infos[number].base_offset, infos[number].last_offset)
    assert len(read_values(world.log)) == 20


@pytest.mark.parametrize("is_restarted", [False, True])
def test_retry_of_older_batch_is_duplicate_with_unknown_offset(is_restarted: bool) -> None:
    """The stored batch was rejected several times, while later batches were accepted."""
    world = LogHarness(config=CONFIG)
    infos = [send(world, sequence, count=2) for sequence in range(4, 24, 2)]
    if is_restarted:
        world.close()
        world = world.reopen()
    again = send(world, 6, count=2)
    assert again.is_duplicate
    assert again.base_offset == -1
    assert infos[1].last_offset <= again.last_offset < infos[5].base_offset, "at least as durable as the next batch"
    assert refusal(world, 3) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "sequence 3 was never sent"
    with pytest.raises(KafkaError):
        send(world, 13, count=2)  # overlaps with a stored batch, which no client sends
    assert len(read_values(world.log)) == 20


def test_sequence_older_than_half_of_range_is_not_a_duplicate() -> None:
    states = ProducerStateManager()
    for sequence in (5, SEQUENCE_MAX // 2 - 4, SEQUENCE_MAX // 2 + 6):
        states.update(parse_header(batch(b"v", producer_id=1, sequence=sequence)), 0, 0)
    producer = states.get(1)
    assert producer is not None
    assert producer.first_known_sequence == 5, "the retained batches stay known"
    for sequence in range(7, 10):
        header = parse_header(batch(b"v", producer_id=1, sequence=SEQUENCE_MAX // 2 + sequence))
        states.update(header, 0, 0)
    assert producer.first_known_sequence == SEQUENCE_MAX // 2 - 4


def test_sequence_gap_is_rejected() -> None:
    world = LogHarness()
    send(world, 0)
    assert refusal(world, 2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(world, 1).base_offset == 1


def test_new_producer_epoch_starts_at_zero_and_fences_old_one() -> None:
    world = LogHarness()
    send(world, 0)
    assert refusal(world, 1, epoch=1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(world, 0, epoch=1).base_offset == 1
    assert refusal(world, 1, epoch=0) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(world, 0, epoch=0) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_unknown_producer_may_start_at_any_sequence() -> None:
    """Its state may have been deleted."""
    world = LogHarness()
    assert send(world, 77).base_offset == 0
    assert send(world, 78).base_offset == 1


def test_sequence_numbers_wrap_around() -> None:
    world = LogHarness()
    send(world, SEQUENCE_MAX - 1, count=3)
    assert send(world, 1).base_offset == 3
    assert send(world, SEQUENCE_MAX - 1, count=3).is_duplicate


def test_several_idempotent_batches_in_one_append_are_rejected() -> None:
    world = LogHarness()
    two = batch(b"a", producer_id=1, sequence=0) + batch(b"b", producer_id=1, sequence=1)
    with pytest.raises(KafkaError) as caught:
        world.append(two)
    assert caught.value.code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("way", ["close", "kill", "power cut"])
def test_producer_state_survives_restart(way: str) -> None:
    world = LogHarness(config=CONFIG)
    for sequence in range(12):
        send(world, sequence)
        send(world, sequence, producer_id=2)
        world.sync()
    if way == "close":
        world.close()
    files = world.simulated_files.crash(1) if way == "power cut" else world.simulated_files.kill()
    again = LogHarness(files, CONFIG)
    info = send(again, 11)
    assert info.is_duplicate
    assert info.base_offset == 22
    assert refusal(again, 13) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert not send(again, 12).is_duplicate
    assert send(again, 11, producer_id=2).is_duplicate


def test_producer_state_survives_deletion_of_segments() -> None:
    world = LogHarness(config=CONFIG)
    for sequence in range(5):
        send(world, sequence)
    for _ in range(20):
        world.append(batch(b"filler"))
    world.log.delete_records_before(20)
    world.complete_syncs()
    assert world.log.log_start_offset == 20
    for again in (
        world,
        LogHarness(world.simulated_files.kill(), CONFIG),
        LogHarness(world.simulated_files.crash(3), CONFIG),
    ):
        assert send(again, 4).is_duplicate
        assert not send(again, 5).is_duplicate


def test_follower_has_same_producer_state_as_leader() -> None:
    leader, follower = LogHarness(config=CONFIG), LogHarness(config=CONFIG)
    for sequence in range(8):
        send(leader, sequence)
    while follower.log.log_end_offset < leader.log.log_end_offset:
        follower.log.append_as_follower(leader.log.read(follower.log.log_end_offset, 1000, leader.log.log_end_offset))
    assert send(follower, 7).is_duplicate
    assert refusal(follower, 9) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_truncation_removes_producer_state_of_truncated_batches() -> None:
    world = LogHarness(config=CONFIG)
    for sequence in range(12):
        send(world, sequence)
    world.sync()
    world.log.truncate_to(6)
    assert send(world, 5).is_duplicate
    assert send(world, 6).base_offset == 6
    world.log.truncate_fully_and_start_at(100)
    assert world.log.producers.get(1) is None


def test_idle_producers_expire_after_a_day() -> None:
    world = LogHarness()
    send(world, 0)
    world.clock.advance(DAY_MS / 2000)
    send(world, 0, producer_id=2)
    world.clock.advance(DAY_MS / 2000)
    world.log.apply_retention(world.clock.now_ms())
    assert world.log.producers.get(1) is None
    assert world.log.producers.get(2) is not None


def test_number_of_producers_is_bounded() -> None:
    states = ProducerStateManager()
    header = parse_header(batch(b"x", producer_id=1, sequence=0))
    for producer_id in range(PRODUCERS_MAX + 1):
        states.update(header._replace(producer_id=producer_id), producer_id, 0)
    assert len(states) == PRODUCERS_MAX
    assert states.get(0) is None
    assert states.get(PRODUCERS_MAX) is not None


def test_only_newest_snapshots_are_retained() -> None:
    world = LogHarness(config=CONFIG)
    for sequence in range(60):
        send(world, sequence)
        world.sync()
    assert world.log.segment_count > 5
    assert len([path for path in world.simulated_files.paths() if path.endswith(".snapshot")]) == 2


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
