"""Request frames are assembled from chunks of any size, and an announced length allocates no memory."""

from __future__ import annotations

import random
import struct

import pytest

from chronik.server.frames import FRAME_BUFFER_BYTES_MIN, FRAME_DOUBLING_BYTES, FrameReader, InvalidFrameSize

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
