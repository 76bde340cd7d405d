from __future__ import annotations

import pytest

from chronik.broker.requests import rejected_batches
from chronik.broker.requests.rejected_batches import REJECTION_SECONDS, RejectedBatches
from chronik.clock import ManualClock
from chronik.log.producer_state import ProducerStateManager
from chronik.protocol.batch import parse_header
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.records import Record, encode_batch
from chronik.protocol.varint import INT32_MAX

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


def batch(sequence: int, producer_id: int = 7, epoch: int = 0) -> bytes:
    records = [Record(0, -1, None, b"v")]
    return encode_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


class Scenario:
    """A partition with stored batches and rejected ones."""

    def __init__(self, *stored: int) -> None:
        self.clock = ManualClock()
        self.refused = RejectedBatches(self.clock)
        self.states = ProducerStateManager()
        for sequence in stored:
            self.states.update(parse_header(batch(sequence)), sequence, 0)

    def refuse(self, data: bytes, code: ErrorCode = NOT_LEADER) -> None:
        self.refused.record("topic", 0, data, code)

    def check_error(self, data: bytes, partition: int = 0) -> ErrorCode | None:
        """Return the error of a batch, or None if it is passed to the log."""
        try:
            self.refused.check("topic", partition, parse_header(data), self.states)
        except KafkaError as error:
            return error.code
        return None


def test_batches_after_rejected_batch_are_rejected_until_retry() -> None:
    story = Scenario(0, 1, 2)  # stored by an earlier leader without an acknowledgement
    story.refuse(batch(1))
    story.refuse(batch(2))
    assert story.check_error(batch(5)) is NOT_LEADER
    assert story.check_error(batch(4)) is NOT_LEADER
    assert story.check_error(batch(1)) is None
    assert story.check_error(batch(2)) is None, "already stored"
    assert story.check_error(batch(3)) is None, "the next sequence"


def test_unknown_producer_cannot_start_after_rejected_batch() -> None:
    story = Scenario()
    story.refuse(batch(0))
    assert story.check_error(batch(1)) is NOT_LEADER
    assert story.check_error(batch(0)) is None


def test_following_batch_is_rejected_with_same_error() -> None:
    story = Scenario()
    story.refuse(batch(0), ErrorCode.NOT_ENOUGH_REPLICAS)
    assert story.check_error(batch(1)) is ErrorCode.NOT_ENOUGH_REPLICAS


def test_rejection_does_not_affect_other_producers_or_partitions() -> None:
    story = Scenario()
    story.refuse(batch(0))
    assert story.check_error(batch(1, producer_id=8)) is None
    assert story.check_error(batch(1, epoch=1)) is None
    assert story.check_error(batch(1), partition=1) is None


def test_rejection_expires_after_timeout() -> None:
    story = Scenario(0)
    story.refuse(batch(3))
    assert story.check_error(batch(5)) is NOT_LEADER
    story.clock.advance(REJECTION_SECONDS + 0.1)
    assert story.check_error(batch(5)) is None
    assert not story.refused


@pytest.mark.parametrize("code", [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.MESSAGE_TOO_LARGE])
def test_non_retriable_errors_are_not_recorded(code: ErrorCode) -> None:
    story = Scenario()
    story.refuse(batch(0), code)
    assert story.check_error(batch(1)) is None


def test_batches_without_sequence_are_not_recorded() -> None:
    story = Scenario()
    for records in (encode_batch([Record(0, -1, None, b"v")]), b"", b"\xff" * 100):
        story.refuse(records)
    story.refused.record("topic", 0, None, NOT_LEADER)
    assert not story.refused


@pytest.mark.parametrize(("letters", "kept"), [(249, 1), (250, 0), (32_000, 0)])
def test_invalid_topic_names_are_not_recorded(letters: int, kept: int) -> None:
    story = Scenario()
    story.refused.record("x" * letters, 0, batch(0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert len(story.refused) == kept


def test_number_of_recorded_rejections_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rejected_batches, "PRODUCERS_MAX", 3)
    story = Scenario()
    for producer_id in range(5):
        story.refuse(batch(0, producer_id))
    assert len(story.refused) == 3
    assert story.check_error(batch(1, producer_id=4)) is NOT_LEADER
    assert story.check_error(batch(1, producer_id=0)) is None


def test_rejection_handles_sequence_wraparound() -> None:
    story = Scenario()
    story.refuse(batch(INT32_MAX))
    story.refuse(batch(0))
    assert story.check_error(batch(0)) is NOT_LEADER
    assert story.check_error(batch(INT32_MAX)) is None


def test_expired_rejections_are_evicted() -> None:
    story = Scenario()
    for producer_id in range(3):
        story.refuse(batch(0, producer_id))
    story.clock.advance(REJECTION_SECONDS + 0.1)
    story.refuse(batch(0, producer_id=9))
    assert len(story.refused) == 1
