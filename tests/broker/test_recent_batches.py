from __future__ import annotations

from chronik.broker.recent_batches import ZERO_COPY_BYTES_MIN, RecentBatchBudget, RecentBatches

LARGE = ZERO_COPY_BYTES_MIN


def kept(*sizes: int, budget: RecentBatchBudget | None = None) -> RecentBatches:
    """Add one batch of one offset for each size; its bytes are its offset."""
    batches = RecentBatches(budget or RecentBatchBudget())
    for offset, size in enumerate(sizes):
        batches.add(offset, offset + 1, memoryview(bytearray(bytes([offset]) * size)))
    return batches


def test_consecutive_batches_are_read_together() -> None:
    batches = kept(LARGE, LARGE, LARGE)
    assert [bytes(piece[:1]) for piece in batches.read(1, 10 * LARGE)] == [b"\1", b"\2"]


def test_read_is_limited_by_max_bytes() -> None:
    batches = kept(LARGE, LARGE, LARGE)
    assert [len(piece) for piece in batches.read(0, 2 * LARGE)] == [LARGE, LARGE]
    assert [len(piece) for piece in batches.read(0, 2 * LARGE - 1)] == [LARGE]
    assert not batches.read(0, LARGE - 1)


def test_small_batches_are_joined_in_order() -> None:
    batches = kept(1, 2, LARGE, 3, 1)
    assert [bytes(piece) for piece in batches.read(0, 2 * LARGE)] == [
        b"\0\1\1",
        b"\2" * LARGE,
        b"\3\3\3\4",
    ]


def test_read_of_unknown_offset_returns_nothing() -> None:
    batches = kept(LARGE, 10)
    assert not batches.read(2, LARGE)
    batches.add(3, 5, bytes(10))
    assert not batches.read(4, LARGE)
    assert [len(piece) for piece in batches.read(1, LARGE)] == [10]


def test_large_batches_are_referenced_and_small_ones_copied() -> None:
    batches = RecentBatches(RecentBatchBudget())
    request = bytearray(2 * LARGE)
    batches.add(0, 1, memoryview(request)[:LARGE])
    batches.add(1, 2, memoryview(request)[:10])
    large, small = batches.read(0, 2 * LARGE)
    assert large.obj is request
    assert small.obj is not request


def test_committed_batches_release_memory_budget() -> None:
    budget = RecentBatchBudget(3 * LARGE)
    batches = kept(LARGE, LARGE, LARGE, 1, budget=budget)
    assert budget.bytes_left == 0
    assert [bytes(piece[:1]) for piece in batches.read(2, 10 * LARGE)] == [b"\2"]  # the next one exceeded the budget
    batches.remove_batches_below(2)
    assert budget.bytes_left == 2 * LARGE
    assert not batches.read(1, LARGE)
    assert batches.read(2, LARGE)
    batches.clear()
    assert budget.bytes_left == 3 * LARGE
    assert not batches.read(2, LARGE)


def test_view_counts_its_whole_buffer() -> None:
    budget = RecentBatchBudget(3 * LARGE)
    batches = RecentBatches(budget)
    request = memoryview(bytearray(2 * LARGE))
    batches.add(0, 1, request[:LARGE])
    assert budget.bytes_left == LARGE
    batches.add(1, 2, request[LARGE:])
    assert not batches.read(1, LARGE)


def test_partitions_share_memory_budget() -> None:
    budget = RecentBatchBudget(LARGE)
    first, second = kept(LARGE, budget=budget), kept(LARGE, budget=budget)
    assert first.read(0, LARGE)
    assert not second.read(0, LARGE)
