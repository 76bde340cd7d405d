"""The client beside an attack: in a process of its own, so that nothing of the attacker's slows it down.

    python -m tests.abuse.probe BOOTSTRAP TOPIC PORT=PID … [--settings FILE]      (the first of them leads the topic)

Produces one record of 100 bytes with acks=1 every 50 ms, and asks each node every 20 ms for what costs it nothing
(ApiVersions). Where settings say how it is let in, it also comes to the first node anew every 100 ms, and is seen to be
in. One JSON line per trip, until stdin ends.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

from chronik.client.access.settings import OPEN, Access, ClientSecurity, parse_security
from chronik.client.cluster import Cluster
from chronik.client.connection import Connection
from chronik.client.errors import ClientError
from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord
from chronik.config import Address
from chronik.protocol.errors import KafkaError
from chronik.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from chronik.protocol.messages.metadata import MetadataRequest, MetadataResponse

PRODUCE_EVERY_SECONDS: Final = 0.050
PULSE_EVERY_SECONDS: Final = 0.020
ARRIVE_EVERY_SECONDS: Final = 0.100
RECORD_BYTES: Final = 100
PATIENCE_SECONDS: Final = 120.0

COSTS_NOTHING: Final = ApiVersionsRequest(client_software_name="pulse", client_software_version="1")

ONLY_WITHIN: Final = MetadataRequest(topics=[])

PRODUCE: Final = "produce"
PULSE: Final = "pulse"
ARRIVE: Final = "arrive"
LOST: Final = "lost"
"""A connection or a record of the probe's, which had done nothing wrong."""

_printing = threading.Lock()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("nodes", nargs="+")
    parser.add_argument("--settings", type=Path)
    given = parser.parse_args()
    security = parse_security(json.loads(given.settings.read_text())) if given.settings else OPEN
    over = threading.Event()
    processes = {int(port): int(pid) for port, _, pid in (node.partition("=") for node in given.nodes)}
    victim, pid = next(iter(processes.items()))
    bootstrap = Access(given.bootstrap, security)
    threads = [threading.Thread(target=produce, args=(bootstrap, given.topic, pid, over))]
    threads += [threading.Thread(target=pulse, args=(port, pid, security, over)) for port, pid in processes.items()]
    if given.settings:
        threads.append(threading.Thread(target=arrive, args=(victim, pid, security, over)))
    for thread in threads:
        thread.start()
    sys.stdin.read()
    over.set()
    for thread in threads:
        thread.join()


def produce(bootstrap: Access, topic: str, victim: int, over: threading.Event) -> None:
    with Cluster(bootstrap, client_id="probe", timeout_s=PATIENCE_SECONDS) as cluster:
        producer = Producer(cluster, acks=1)
        number = 0
        while not over.is_set():
            number += 1
            began = time.monotonic()
            try:
                waited = seconds_without_a_core(victim)
                (written,) = producer.send(topic, [OutgoingRecord(value_of(number))])
                waited = seconds_without_a_core(victim) - waited
                tell(PRODUCE, began, number=number, offset=written.base_offset, waited=waited)
            except (ClientError, KafkaError, OSError) as error:
                tell(LOST, began, why=f"record {number}: {error}")
            over.wait(max(0.0, began + PRODUCE_EVERY_SECONDS - time.monotonic()))


def value_of(number: int) -> bytes:
    return str(number).encode().rjust(RECORD_BYTES, b".")


def pulse(port: int, pid: int, security: ClientSecurity, over: threading.Event) -> None:
    while not over.is_set():
        began = time.monotonic()
        try:
            connection = connected(port, "pulse", security)
            while not over.is_set():
                began = time.monotonic()
                waited = seconds_without_a_core(pid)
                connection.request(COSTS_NOTHING, ApiVersionsResponse)
                tell(PULSE, began, port=port, waited=seconds_without_a_core(pid) - waited)
                over.wait(max(0.0, began + PULSE_EVERY_SECONDS - time.monotonic()))
            connection.close()
        except (ClientError, OSError) as error:
            tell(LOST, began, port=port, why=f"a connection to port {port}: {error}")
            over.wait(PULSE_EVERY_SECONDS)


def arrive(port: int, pid: int, security: ClientSecurity, over: threading.Event) -> None:
    """An arrival is all of it: the connection, TLS, the login, and an answer to what only those get who are let in."""
    while not over.is_set():
        began = time.monotonic()
        try:
            waited = seconds_without_a_core(pid)
            with connected(port, "arrival", security) as connection:
                connection.request(ONLY_WITHIN, MetadataResponse)
            tell(ARRIVE, began, port=port, waited=seconds_without_a_core(pid) - waited)
        except (ClientError, OSError) as error:
            tell(LOST, began, port=port, why=f"an arrival at port {port}: {error}")
        over.wait(max(0.0, began + ARRIVE_EVERY_SECONDS - time.monotonic()))


def connected(port: int, client_id: str, security: ClientSecurity) -> Connection:
    return Connection(Address("127.0.0.1", port), client_id=client_id, timeout_s=PATIENCE_SECONDS, security=security)


def seconds_without_a_core(pid: int) -> float:
    """How long the node's loop, and this thread, were ready to run and had no core: other processes' doing."""
    return (_run_delay_ns(f"/proc/{pid}/task/{pid}/schedstat") + _run_delay_ns("/proc/thread-self/schedstat")) / 1e9


def _run_delay_ns(path: str) -> int:
    return int(Path(path).read_text().split()[1])


def tell(kind: str, began: float, **details: Any) -> None:
    line = json.dumps({"kind": kind, "began": began, "ended": time.monotonic(), **details})
    with _printing:
        print(line, flush=True)


if __name__ == "__main__":
    main()
