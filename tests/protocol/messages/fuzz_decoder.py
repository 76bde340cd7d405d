"""Fuzzing of the request and response decoders: python -m tests.protocol.messages.fuzz_decoder SEED COUNT.

Inputs are random bytes and valid frames with changed bytes, lengths or counts, truncated or duplicated. Only the three
typed errors may be raised, each case within a second.
"""

from __future__ import annotations

import random
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from chronik.protocol import codec
from chronik.protocol.apis import APIS
from chronik.protocol.codec import REQUESTS, RESPONSES, MalformedMessage, UnknownApi, UnsupportedVersion

from .values import generate

SECONDS_MAX: Final = 1.0
_LENGTHS: Final = (-1, 0, 1, -2, 2**31 - 1, -(2**31), 0x7FFF, 0xFFFF, 1_000_000)
_VARINTS: Final = (b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\xff\xff", b"\x80\x80\x01", b"\x80")
_STYLES: Final = ("default", "empty", "lowest", "highest", "mixed")
_CASES_KEPT: Final = 400  # generating a frame takes longer than decoding it, so each is mutated many times

Mutation = Callable[[random.Random, bytearray], None]


def random_bytes(rng: random.Random, frame: bytearray) -> None:
    frame[:] = rng.randbytes(rng.randrange(200))


def random_body(rng: random.Random, frame: bytearray) -> None:
    frame[10:] = rng.randbytes(rng.randrange(200))


def cut(rng: random.Random, frame: bytearray) -> None:
    del frame[rng.randrange(len(frame) + 1) :]


def doubled(rng: random.Random, frame: bytearray) -> None:
    frame += frame[rng.randrange(len(frame)) :]


def bytes_changed(rng: random.Random, frame: bytearray) -> None:
    for _ in range(rng.randint(1, 8)):
        frame[rng.randrange(len(frame))] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))


def length_changed(rng: random.Random, frame: bytearray) -> None:
    layout = rng.choice((">i", ">h"))
    value = rng.choice(_LENGTHS)
    position = rng.randrange(len(frame))
    bits = struct.calcsize(layout) * 8
    signed = (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
    frame[position : position + bits // 8] = struct.pack(layout, signed)


def varint_inserted(rng: random.Random, frame: bytearray) -> None:
    position = rng.randrange(len(frame) + 1)
    frame[position:position] = rng.choice(_VARINTS)


def untouched(rng: random.Random, frame: bytearray) -> None:
    """Keep a valid frame unchanged."""


MUTATIONS: Final[tuple[Mutation, ...]] = (
    random_bytes,
    random_body,
    cut,
    doubled,
    bytes_changed,
    length_changed,
    varint_inserted,
    untouched,
)


class Case(NamedTuple):
    frame: bytes
    decode: Callable[[memoryview], object]


def valid_case(rng: random.Random) -> Case:
    if rng.random() < 0.3:
        api = rng.choice(list(APIS.values()))
        version = rng.randint(api.min_version, api.max_version)
        response = generate(RESPONSES[api.key], version, rng.choice(_STYLES), rng.random())
        frame = b"".join(codec.encode_response(1, version, response))
        return Case(frame[4:], partial(codec.decode_response, api.key, version))
    return Case(valid_request(rng), codec.decode_request)


def valid_request(rng: random.Random) -> bytes:
    api = rng.choice(list(APIS.values()))
    version = rng.randint(api.min_version, api.max_version)
    header = codec.RequestHeader(api.key, version, rng.randrange(2**31), rng.choice((None, "", "client")))
    request = generate(REQUESTS[api.key], version, rng.choice(_STYLES), rng.random())
    return codec.encode_request(header, request)[4:]


def fuzz(seed: int, count: int) -> Counter[str]:
    """Return the counts of outcomes. Raise AssertionError with the bytes for an outcome that is not allowed."""
    rng = random.Random(seed)
    cases: list[Case] = []
    outcomes: Counter[str] = Counter()
    for _ in range(count):
        if len(cases) < _CASES_KEPT or rng.random() < 0.001:
            cases.append(valid_case(rng))
            del cases[:-_CASES_KEPT]
        case = rng.choice(cases)
        frame = bytearray(case.frame)
        mutation = rng.choice(MUTATIONS)
        mutation(rng, frame)
        outcome = _outcome(case.decode, frame)
        if mutation is untouched and outcome != "decoded":
            raise AssertionError(f"a valid frame was rejected: {frame.hex()}")
        outcomes[outcome] += 1
    return outcomes


def _outcome(decode: Callable[[memoryview], object], frame: bytearray) -> str:
    started = time.thread_time()  # CPU time of this thread, independent of the machine's load
    try:
        decode(memoryview(frame))
        outcome = "decoded"
    except (MalformedMessage, UnknownApi, UnsupportedVersion) as refusal:
        outcome = type(refusal).__name__
    except BaseException as error:
        raise AssertionError(f"{type(error).__name__} for {frame.hex()}") from error
    if time.thread_time() - started > SECONDS_MAX:
        raise AssertionError(f"more than {SECONDS_MAX} s for {frame.hex()}")
    return outcome


def main(seed: int, count: int) -> None:
    started = time.perf_counter()
    outcomes = fuzz(seed, count)
    seconds = time.perf_counter() - started
    print(f"seed {seed}: {count:,} frames in {seconds:.1f} s, {count / seconds:,.0f}/s, {dict(outcomes)}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
