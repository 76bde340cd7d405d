from __future__ import annotations

import pytest

from .checker import Batch, Committed, Violation


def committed(*batches: Batch) -> Committed:
    result = Committed()
    for batch in batches:
        result.add(batch)
    return result


def batch(offset: int, sequence: int, producer_id: int = 4) -> Batch:
    return Batch(offset, offset + 1, 0, sequence, producer_id, sequence)


def test_a_batch_that_is_there_twice_is_noticed() -> None:
    partition = committed(batch(0, 0), batch(1, 0, producer_id=2), batch(2, 1))
    with pytest.raises(Violation, match="of the same producer"):
        partition.add(batch(3, 1))


def test_batches_that_changed_places_are_noticed() -> None:
    partition = committed(batch(0, 1))
    with pytest.raises(Violation, match="of the same producer"):
        partition.add(batch(1, 0))


def test_a_batch_may_come_again_only_when_its_first_copy_was_deleted() -> None:
    partition = committed(batch(0, 0), batch(1, 0, producer_id=2))
    partition.deleted_before = 1
    partition.add(batch(2, 0))
    assert partition.end == 3
    with pytest.raises(Violation, match="of the same producer"):
        partition.add(batch(3, 0, producer_id=2))
