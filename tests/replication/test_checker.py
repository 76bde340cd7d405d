from __future__ import annotations

import pytest

from tests.replication.checker import Batch, Committed, Violation


def add_committed(*batches: Batch) -> Committed:
    result = Committed()
    for batch in batches:
        result.add(batch)
    return result


def batch(offset: int, sequence: int, producer_id: int = 4) -> Batch:
    return Batch(offset, offset + 1, 0, sequence, producer_id, sequence)


def test_checker_detects_duplicate_batch() -> None:
    partition = add_committed(batch(0, 0), batch(1, 0, producer_id=2), batch(2, 1))
    with pytest.raises(Violation, match="of the same producer"):
        partition.add(batch(3, 1))


def test_checker_detects_reordered_batches() -> None:
    partition = add_committed(batch(0, 1))
    with pytest.raises(Violation, match="of the same producer"):
        partition.add(batch(1, 0))


def test_repeated_batch_is_allowed_only_after_deletion() -> None:
    partition = add_committed(batch(0, 0), batch(1, 0, producer_id=2))
    partition.deleted_before = 1
    partition.add(batch(2, 0))
    assert partition.end == 3
    with pytest.raises(Violation, match="of the same producer"):
        partition.add(batch(3, 0, producer_id=2))
