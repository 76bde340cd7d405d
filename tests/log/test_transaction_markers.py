"""Errors around the end of a transaction, as in Kafka."""

from __future__ import annotations

import pytest

from chronik.protocol.errors import ErrorCode, KafkaError

from .harness import batch
from .transactional_writer import TransactionalWriter, end_transaction


def send(
    writer: TransactionalWriter, producer_id: int, epoch: int, sequence: int, *, transactional: bool = True
) -> int:
    data = batch(b"x", producer_id=producer_id, producer_epoch=epoch, sequence=sequence, transactional=transactional)
    return writer.world.append(data).base_offset


def code_of(writer: TransactionalWriter, epoch: int, sequence: int, *, transactional: bool = True) -> ErrorCode:
    end = writer.log.log_end_offset
    with pytest.raises(KafkaError) as refused:
        send(writer, 1, epoch, sequence, transactional=transactional)
    assert writer.log.log_end_offset == end
    return refused.value.code


def marker_code(writer: TransactionalWriter, epoch: int, coordinator_epoch: int) -> ErrorCode:
    end = writer.log.log_end_offset
    with pytest.raises(KafkaError) as refused:
        end_transaction(writer.log, 1, epoch, True, coordinator_epoch)
    assert writer.log.log_end_offset == end
    return refused.value.code


def test_non_transactional_batch_during_open_transaction_is_rejected() -> None:
    writer = TransactionalWriter()
    send(writer, 1, 0, 0)
    assert code_of(writer, 0, 1, transactional=False) is ErrorCode.INVALID_TXN_STATE
    assert code_of(writer, 1, 0, transactional=False) is ErrorCode.INVALID_TXN_STATE  # also with a new epoch
    writer.world.append(batch(b"of another", producer_id=2, sequence=0))
    end_transaction(writer.log, 1, 0, True)
    send(writer, 1, 0, 1, transactional=False)


def test_retried_transactional_batch_returns_stored_offsets() -> None:
    writer = TransactionalWriter()
    first = send(writer, 1, 0, 0)
    end = writer.log.log_end_offset
    assert send(writer, 1, 0, 0) == first
    assert writer.log.log_end_offset == end


def test_sequence_continues_after_marker_of_same_epoch() -> None:
    writer = TransactionalWriter()
    send(writer, 1, 4, 0)
    send(writer, 1, 4, 1)
    end_transaction(writer.log, 1, 4, True)
    assert code_of(writer, 4, 0 + 3) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(writer, 1, 4, 2)


@pytest.mark.parametrize("restarts", [False, True])
def test_sequence_restarts_at_zero_after_marker_with_new_epoch(restarts: bool) -> None:
    writer = TransactionalWriter()
    send(writer, 1, 4, 0)
    send(writer, 1, 4, 1)
    end_transaction(writer.log, 1, 5, True)
    if restarts:
        writer.restart_without_snapshots()
    assert code_of(writer, 5, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert code_of(writer, 4, 2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert code_of(writer, 4, 0) is ErrorCode.INVALID_PRODUCER_EPOCH  # also a late retry
    send(writer, 1, 5, 0)
    send(writer, 1, 5, 1)


def test_marker_with_older_producer_epoch_is_rejected() -> None:
    writer = TransactionalWriter()
    first = send(writer, 1, 4, 0)
    assert marker_code(writer, 3, 7) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert writer.last_stable_offset() == first
    end_transaction(writer.log, 1, 4, True)


@pytest.mark.parametrize("closes", [False, True])
def test_marker_with_older_coordinator_epoch_is_fenced(closes: bool) -> None:
    writer = TransactionalWriter()
    send(writer, 1, 4, 0)
    end_transaction(writer.log, 1, 4, True, 7)
    first = send(writer, 1, 5, 0)  # the coordinator epoch survives a new producer epoch
    writer.world.sync()
    writer.restart(closes=closes)
    assert marker_code(writer, 5, 6) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert writer.last_stable_offset() == first
    end_transaction(writer.log, 1, 5, True, 7)
    end_transaction(writer.log, 1, 5, True, 8)


def test_marker_of_unknown_producer_is_appended() -> None:
    writer = TransactionalWriter()
    assert end_transaction(writer.log, 1, 0, False, 0) == 0
    producer = writer.log.producers.get(1)
    assert producer is not None
    assert (producer.epoch, producer.coordinator_epoch, producer.batches) == (0, 0, [])
