"""Request frames are assembled from chunks of any size; the memory budget of large ones is FIFO without deadlock."""

from __future__ import annotations

import random
import struct

import pytest

from chronik.limits import FRAME_RATE_BYTES_MIN
from chronik.server.connection import ListenerLimits
from chronik.server.frames import (
    FRAME_BUFFER_BYTES_MIN,
    FRAME_DOUBLING_BYTES,
    FrameBudget,
    FrameReader,
    InvalidFrameSize,
)

FRAME_MAX = 4 * FRAME_DOUBLING_BYTES


def reader(scratch_bytes: int = 64 * 1024) -> FrameReader:
    return FrameReader(memoryview(bytearray(scratch_bytes)), FRAME_MAX)


def feed(frames: FrameReader, data: bytes | memoryview) -> list[bytes]:
    found = []
    data = memoryview(data)
    while data:
        buffer = frames.buffer()
        taken = min(len(buffer), len(data))
        buffer[:taken] = data[:taken]
        del buffer
        found += [bytes(frame) for frame in frames.split_received(taken)]
        data = data[taken:]
    return found


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


@pytest.mark.parametrize("seed", range(20))
def test_frames_are_assembled_from_chunks_of_any_size(seed: int) -> None:
    rng = random.Random(seed)
    sizes = [rng.choice((1, 3, 100, 70_000, FRAME_DOUBLING_BYTES + 7)) for _ in range(12)]
    payloads = [rng.randbytes(size) for size in sizes]
    stream = memoryview(b"".join(map(framed, payloads)))
    frames = reader(rng.choice((5, 1000, 64 * 1024)))
    found = []
    while stream:
        chunk = rng.choice((1, 2, 5, 4096, 100_000))
        found += feed(frames, stream[:chunk])
        stream = stream[chunk:]
    assert found == payloads
    assert not frames.is_in_frame


def test_frame_above_size_limit_is_rejected() -> None:
    payload = bytes(FRAME_MAX)
    assert feed(reader(), framed(payload)) == [payload]
    with pytest.raises(InvalidFrameSize, match=str(FRAME_MAX + 1)):
        feed(reader(), struct.pack(">i", FRAME_MAX + 1))


@pytest.mark.parametrize("size", [-1, 0, -(2**31), 2**31 - 1])
def test_invalid_frame_sizes_are_rejected(size: int) -> None:
    with pytest.raises(InvalidFrameSize):
        feed(reader(), struct.pack(">i", size))


def test_announced_size_allocates_no_memory_before_bytes_arrive() -> None:
    frames = reader()
    assert frames.required_bytes == 0
    feed(frames, struct.pack(">i", FRAME_MAX) + bytes(68))
    assert frames.required_bytes == FRAME_BUFFER_BYTES_MIN
    assert len(frames.buffer()) == FRAME_BUFFER_BYTES_MIN - 68


def test_frame_buffer_grows_as_bytes_arrive() -> None:
    frames = reader()
    feed(frames, struct.pack(">i", FRAME_MAX) + bytes(60_000))
    taken = [frames.required_bytes]
    while frames.is_in_frame:
        chunk = frames.buffer()
        count = len(chunk)
        del chunk
        list(frames.split_received(count))
        taken.append(frames.required_bytes)
    assert taken == [32 * 60_000, 64 * 60_000, 128 * 60_000, FRAME_MAX, 0]


def test_modifying_a_frame_does_not_affect_the_next_one() -> None:
    frames = reader()
    buffer = frames.buffer()
    stream = framed(b"aaaa") + framed(b"bbbb")
    buffer[: len(stream)] = stream
    first, second = frames.split_received(len(stream))
    first[:] = b"zzzz"
    assert bytes(second) == b"bbbb"


def test_budget_is_exceeded_by_one_holder_only() -> None:
    budget: FrameBudget[str] = FrameBudget(100, 60)
    assert budget.reserve("a", 60)
    assert budget.reserve("b", 40)
    assert budget.reserve("c", 30)
    assert not budget.reserve("d", 1)
    assert (budget.total_bytes, budget.has_waiters) == (130, True)


def test_waiting_holders_are_served_in_fifo_order() -> None:
    budget: FrameBudget[str] = FrameBudget(100, 60)
    for holder in "abc":
        budget.reserve(holder, 50)
    assert not budget.reserve("d", 50)
    assert not budget.reserve("e", 10)
    assert list(budget.grant_waiting()) == []
    budget.release("a")
    assert list(budget.grant_waiting()) == ["d"]
    budget.release("b")
    assert list(budget.grant_waiting()) == ["e"]
    assert not budget.has_waiters


def test_holder_that_exceeds_limit_is_not_blocked_by_waiters() -> None:
    budget: FrameBudget[str] = FrameBudget(100, 60)
    for holder in "ab":
        budget.reserve(holder, 60)
    assert not budget.reserve("a", 70)
    assert budget.reserve("b", 70)


def test_budget_is_exceeded_by_one_request_at_most() -> None:
    budget: FrameBudget[str] = FrameBudget(100, 60)
    assert budget.reserve("a", 100)
    assert budget.reserve("a", 160)
    assert not budget.reserve("a", 161)
    assert (budget.total_bytes, budget.has_waiters) == (160, True)
    assert budget.reserve("a", 130), "one of its requests was answered, but it still exceeds the limit"
    assert not budget.reserve("b", 1)
    assert budget.reserve("a", 160)


def test_waiting_holder_that_exceeds_limit_is_served_first() -> None:
    budget: FrameBudget[str] = FrameBudget(100, 60)
    for holder, count in (("a", 20), ("b", 80), ("c", 50)):
        assert budget.reserve(holder, count)
    assert not budget.reserve("d", 50)
    assert not budget.reserve("c", 70)
    assert list(budget.grant_waiting()) == []
    budget.release("a")
    assert list(budget.grant_waiting()) == ["c"]
    assert (budget.reserved_bytes("c"), budget.has_waiters) == (70, True)


def test_holder_that_reduces_its_reservation_stops_waiting() -> None:
    budget: FrameBudget[str] = FrameBudget(100, 60)
    for holder in "abc":
        budget.reserve(holder, 60)
    assert not budget.reserve("a", 70)
    assert budget.reserve("a", 50)
    assert budget.reserved_bytes("a") == 50
    budget.release("b")
    assert list(budget.grant_waiting()) == ["c"]


@pytest.mark.parametrize("seed", range(50))
def test_all_partially_received_requests_complete(seed: int) -> None:
    """Each request doubles until it is complete, then releases its memory; the total stays bounded."""
    rng = random.Random(seed)
    limit, largest = 1_000, 600
    budget: FrameBudget[int] = FrameBudget(limit, largest)
    sizes = {number: rng.randrange(1, largest) for number in range(40)}
    wanted = dict.fromkeys(sizes, 1)
    runnable = set(sizes)
    while sizes:
        assert runnable, "deadlock"
        number = rng.choice(sorted(runnable))
        if budget.reserved_bytes(number) == sizes[number]:
            budget.release(number)
            del sizes[number]
            runnable.discard(number)
        elif not budget.reserve(number, min(wanted[number], sizes[number])):
            runnable.discard(number)
        wanted[number] *= 2
        runnable.update(budget.grant_waiting())
        assert budget.total_bytes <= limit + largest
    assert budget.total_bytes == 0


@pytest.mark.parametrize("seed", range(50))
def test_all_pipelined_requests_complete(seed: int) -> None:
    """Each connection has several received requests, which are answered one by one, and one that is being received."""
    rng = random.Random(seed)
    limit, largest = 1_000, 600
    budget: FrameBudget[int] = FrameBudget(limit, largest)
    remaining = {number: [rng.randrange(1, largest) for _ in range(8)] for number in range(6)}
    held: dict[int, list[int]] = {number: [] for number in remaining}
    arriving = dict.fromkeys(remaining, 0)
    waiting: set[int] = set()
    while remaining:
        choices = sorted({number for number in remaining if number not in waiting or held[number]})
        assert choices, "deadlock"
        number = rng.choice(choices)
        if held[number] and (number in waiting or rng.random() < 0.3):
            held[number].pop(0)
        elif remaining[number] and arriving[number] == remaining[number][0]:
            held[number].append(remaining[number].pop(0))
            arriving[number] = 0
        elif remaining[number]:
            arriving[number] = min(max(2 * arriving[number], 1), remaining[number][0])
        if not remaining[number] and not held[number]:
            budget.release(number)
            del remaining[number]
        elif budget.reserve(number, sum(held[number]) + arriving[number]):
            waiting.discard(number)
        else:
            waiting.add(number)
        waiting -= set(budget.grant_waiting())
        assert budget.total_bytes <= limit + largest
    assert budget.total_bytes == 0


def test_minimum_receive_rate_is_64_kib_per_second() -> None:
    assert FRAME_RATE_BYTES_MIN == 64 * 1024
    assert ListenerLimits().frame_rate_seconds == 2.0
