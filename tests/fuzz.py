"""Fuzzing with a seed: malformed bytes for the decoder, for a broker over a socket, and for authentication and ACLs.

    .venv/bin/python -m tests.fuzz --seed 1 --decoder 1000000 --socket 100000 --security 100000 --logins 5000

A broker must respond or close the connection quickly, and stay healthy.
"""

from __future__ import annotations

import argparse
import errno
import random
import socket
import struct
import sys
import time
from dataclasses import dataclass
from itertools import chain

from chronik.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from chronik.testing import Broker
from tests.protocol.messages import fuzz_decoder
from tests.raw import RawClient
from tests.security.fuzz import fuzz_broker, fuzz_functions

ANSWER_SECONDS_MAX = 10.0
RESIDENT_BYTES_MAX = 1 << 30
PROGRESS_EVERY = 10_000


@dataclass(slots=True)
class FuzzCounts:
    """Outcomes of the frames sent to a broker."""

    answered: int = 0
    closed: int = 0
    slowest_seconds: float = 0.0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--decoder", type=int, default=1_000_000)
    parser.add_argument("--socket", type=int, default=100_000)
    parser.add_argument("--security", type=int, default=100_000, help="cases per target (messages, tokens, rules, …)")
    parser.add_argument("--logins", type=int, default=5_000, help="authentication exchanges with a broker")
    options = parser.parse_args(arguments)
    if options.decoder:
        fuzz_decoder.main(options.seed, options.decoder)
    if options.socket:
        with Broker() as broker:
            tally = fuzz_socket(broker, options.seed, options.socket)
        print(
            f"socket: {options.socket} frames, seed {options.seed}: {tally.answered} answered, {tally.closed} closed, "
            f"slowest {tally.slowest_seconds * 1000:.0f} ms; the broker is healthy"
        )
    for told in chain(fuzz_functions(options.seed, options.security), fuzz_broker(options.seed, options.logins)):
        print(told, flush=True)
    return 0


def fuzz_socket(broker: Broker, seed: int, count: int) -> FuzzCounts:
    """Raise AssertionError if the broker does not respond or close in time, dies, or uses too much memory."""
    rng = random.Random(seed)
    tally = FuzzCounts()
    pid = broker.pid
    for number in range(count):
        data = _malformed(rng)
        began = time.perf_counter()
        try:
            answered = _is_answered(broker, data)
        except TimeoutError:
            raise AssertionError(f"no response and no close within {ANSWER_SECONDS_MAX} s: {data.hex()}") from None
        tally.answered += answered
        tally.closed += not answered
        tally.slowest_seconds = max(tally.slowest_seconds, time.perf_counter() - began)
        if (number + 1) % PROGRESS_EVERY == 0:
            _check_health(broker, pid)
            print(f"  {number + 1} frames", file=sys.stderr, flush=True)
    _check_health(broker, pid)
    return tally


def _is_answered(broker: Broker, data: bytes) -> bool:
    """Half-close the connection after sending, so that a request that may wait ends too."""
    with socket.create_connection(("127.0.0.1", broker.port), ANSWER_SECONDS_MAX) as client:
        try:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            answered = False
            while client.recv(1 << 20):
                answered = True
        except (ConnectionResetError, BrokenPipeError):
            return False
        except OSError as error:
            if error.errno == errno.ENOTCONN:  # already closed by the broker
                return False
            raise
        return answered


def _malformed(rng: random.Random) -> bytes:
    """Return a malformed frame: random bytes, or a damaged valid request, or a wrong length."""
    frame = bytearray(fuzz_decoder.valid_request(rng))
    rng.choice(fuzz_decoder.MUTATIONS)(rng, frame)
    size = len(frame)
    if rng.random() < 0.1:
        size = rng.choice((-1, 0, 2**31 - 1, -(2**31), size + 1, size + (1 << 24), max(0, size - 1)))
    return struct.pack(">i", size) + frame


def _check_health(broker: Broker, pid: int) -> None:
    assert broker.pid == pid, "the broker died"
    with RawClient(broker.bootstrap) as client:
        assert client.request(ApiVersionsRequest(), 0, ApiVersionsResponse).api_keys
    if sys.platform == "linux":
        with open(f"/proc/{pid}/statm") as statm:
            resident = int(statm.read().split()[1]) * 4096
        assert resident < RESIDENT_BYTES_MAX, f"the broker uses {resident >> 20} MiB"
    assert "Traceback" not in broker.log, broker.log[broker.log.index("Traceback") - 200 :][:3000]


if __name__ == "__main__":
    sys.exit(main())
