"""Request frames are assembled from chunks of any size, and an announced length allocates no memory."""

from __future__ import annotations

import random
import struct

import pytest

from chronik.server.frames import FRAME_BYTES_LEAST, FRAME_GROWTH_BYTES, FrameReader, FrameRefused

FRAME_MAX = 4 * FRAME_GROWTH_BYTES


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
        found += [bytes(frame) for frame in frames.received(taken)]
        data = data[taken:]
    return found


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


@pytest.mark.parametrize("seed", range(20))
def test_frames_are_assembled_from_chunks_of_any_size(seed: int) -> None:
    rng = random.Random(seed)
    sizes = [rng.choice((1, 3, 100, 70_000, FRAME_GROWTH_BYTES + 7)) for _ in range(12)]
    payloads = [rng.randbytes(size) for size in sizes]
    stream = memoryview(b"".join(map(framed, payloads)))
    frames = reader(rng.choice((5, 1000, 64 * 1024)))
    found = []
    while stream:
        chunk = rng.choice((1, 2, 5, 4096, 100_000))
        found += feed(frames, stream[:chunk])
        stream = stream[chunk:]
    assert found == payloads
    assert not frames.in_frame


def test_frame_above_size_limit_is_rejected() -> None:
    payload = bytes(FRAME_MAX)
    assert feed(reader(), framed(payload)) == [payload]
    with pytest.raises(FrameRefused, match=str(FRAME_MAX + 1)):
        feed(reader(), struct.pack(">i", FRAME_MAX + 1))


@pytest.mark.parametrize("size", [-1, 0, -(2**31), 2**31 - 1])
def test_invalid_frame_sizes_are_rejected(size: int) -> None:
    with pytest.raises(FrameRefused):
        feed(reader(), struct.pack(">i", size))


def test_announced_size_allocates_no_memory_before_bytes_arrive() -> None:
    frames = reader()
    assert frames.memory_wanted == 0
    feed(frames, struct.pack(">i", FRAME_MAX) + bytes(68))
    assert frames.memory_wanted == FRAME_BYTES_LEAST
    assert len(frames.buffer()) == FRAME_BYTES_LEAST - 68


def test_frame_buffer_grows_as_bytes_arrive() -> None:
    frames = reader()
    feed(frames, struct.pack(">i", FRAME_MAX) + bytes(60_000))
    taken = [frames.memory_wanted]
    while frames.in_frame:
        chunk = frames.buffer()
        count = len(chunk)
        del chunk
        list(frames.received(count))
        taken.append(frames.memory_wanted)
    assert taken == [32 * 60_000, 64 * 60_000, 128 * 60_000, FRAME_MAX, 0]


def test_modifying_a_frame_does_not_affect_the_next_one() -> None:
    frames = reader()
    buffer = frames.buffer()
    stream = framed(b"aaaa") + framed(b"bbbb")
    buffer[: len(stream)] = stream
    first, second = frames.received(len(stream))
    first[:] = b"zzzz"
    assert bytes(second) == b"bbbb"
