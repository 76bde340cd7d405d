"""The client beside an attack: in a process of its own, so that nothing of the attacker's slows it down.

    python -m tests.abuse.probe BOOTSTRAP TOPIC PORT=PID … [--settings FILE] [--acks -1] [--fetches] [--http ADDRESS]

The first node leads the topic. Produces one record of 100 bytes every 50 ms, and asks each node every 20 ms for what
costs it nothing (ApiVersions). Where settings say how it is let in, it also comes to the first node anew every 100 ms,
and is seen to be in. On request, it fetches the latest record every 50 ms, logs in over HTTP every 200 ms to send one
request, and holds a `/stream`. One JSON line per trip, until stdin ends.
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import threading
import time
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, NamedTuple

from chronik.client.access.settings import OPEN, Access, ClientSecurity, parse_security
from chronik.client.cluster import Cluster
from chronik.client.connection import Connection
from chronik.client.consumer import Consumer
from chronik.client.errors import ClientError
from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord, TopicPartition
from chronik.config import Address
from chronik.console.rest.operation import BASE
from chronik.protocol.errors import KafkaError
from chronik.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from chronik.protocol.messages.metadata import MetadataRequest, MetadataResponse

PRODUCE_EVERY_SECONDS: Final = 0.050
PULSE_EVERY_SECONDS: Final = 0.020
ARRIVE_EVERY_SECONDS: Final = 0.100
RECORD_BYTES: Final = 100
LOG_IN_EVERY_SECONDS: Final = 0.200
PATIENCE_SECONDS: Final = 120.0
HTTP_SECONDS_MAX: Final = 30.0

COSTS_NOTHING: Final = ApiVersionsRequest(client_software_name="pulse", client_software_version="1")

ONLY_WITHIN: Final = MetadataRequest(topics=[])

PRODUCE: Final = "produce"
FETCH: Final = "fetch"
HTTP: Final = "http"
STREAM: Final = "stream"
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
    parser.add_argument("--acks", type=int, default=1)
    parser.add_argument("--fetches", action="store_true")
    parser.add_argument("--http", metavar="ADDRESS")
    given = parser.parse_args()
    settings = json.loads(given.settings.read_text()) if given.settings else {}
    security = parse_security(settings) if settings else OPEN
    over = threading.Event()
    processes = {int(port): int(pid) for port, _, pid in (node.partition("=") for node in given.nodes)}
    victim, pid = next(iter(processes.items()))
    involved = [pid] if given.acks == 1 else list(processes.values())
    bootstrap = Access(given.bootstrap, security)
    latest = Latest()
    producing = (bootstrap, given.topic, involved, over, given.acks, latest)
    threads = [threading.Thread(target=produce, args=producing)]
    if given.fetches:
        threads.append(threading.Thread(target=fetch, args=(bootstrap, given.topic, pid, over, latest)))
    if given.http:
        login = Login(given.http, settings["sasl.username"], settings["sasl.password"])
        threads.append(threading.Thread(target=log_in, args=(login, pid, over)))
        threading.Thread(target=stream, args=(login, over), daemon=True).start()
    threads += [threading.Thread(target=pulse, args=(port, pid, security, over)) for port, pid in processes.items()]
    if given.settings:
        threads.append(threading.Thread(target=arrive, args=(victim, pid, security, over)))
    for thread in threads:
        thread.start()
    sys.stdin.read()
    over.set()
    for thread in threads:
        thread.join()


class Latest:
    """The offset of the latest record that was acknowledged."""

    offset: int | None = None


def produce(
    bootstrap: Access, topic: str, involved: list[int], over: threading.Event, acks: int, latest: Latest
) -> None:
    with Cluster(bootstrap, client_id="probe", timeout_s=PATIENCE_SECONDS) as cluster:
        producer = Producer(cluster, acks=acks)
        number = 0
        while not over.is_set():
            number += 1
            began = time.monotonic()
            try:
                before = [seconds_without_a_core(pid) for pid in involved]
                (written,) = producer.send(topic, [OutgoingRecord(value_of(number))])
                # With acks=all, a follower's wait may overlap the leader's: only the longest wait counts.
                waited = max(seconds_without_a_core(pid) - wait for pid, wait in zip(involved, before, strict=True))
                latest.offset = written.base_offset
                tell(PRODUCE, began, number=number, offset=written.base_offset, waited=waited)
            except (ClientError, KafkaError, OSError) as error:
                tell(LOST, began, why=f"record {number}: {error}")
            over.wait(max(0.0, began + PRODUCE_EVERY_SECONDS - time.monotonic()))


def fetch(bootstrap: Access, topic: str, victim: int, over: threading.Event, latest: Latest) -> None:
    partition = TopicPartition(topic, 0)
    with Cluster(bootstrap, client_id="probe", timeout_s=PATIENCE_SECONDS) as cluster:
        consumer = Consumer(cluster, {partition: 0})
        while not over.is_set():
            began = time.monotonic()
            if latest.offset is not None:
                consumer.positions[partition] = latest.offset
                try:
                    waited = seconds_without_a_core(victim)
                    records = consumer.poll(0.0)
                    tell(FETCH, began, waited=seconds_without_a_core(victim) - waited)
                    if not records:
                        tell(LOST, began, why=f"the record at offset {latest.offset} was not fetched")
                except (ClientError, KafkaError, OSError) as error:
                    tell(LOST, began, why=f"a fetch: {error}")
            over.wait(max(0.0, began + PRODUCE_EVERY_SECONDS - time.monotonic()))


class Login(NamedTuple):
    """An HTTP address and a user's password."""

    address: str
    user: str
    password: str

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.address, timeout=HTTP_SECONDS_MAX)

    def cookie(self, connection: http.client.HTTPConnection) -> str:
        """Log in. Raises HttpRejected."""
        body = json.dumps({"username": self.user, "password": self.password})
        connection.request("POST", f"{BASE}/login", body, {"Content-Type": "application/json"})
        response = checked(connection.getresponse())
        return str(response.getheader("Set-Cookie")).partition(";")[0]


class HttpRejected(Exception):
    """An honest HTTP request that did not succeed."""


def checked(response: http.client.HTTPResponse) -> http.client.HTTPResponse:
    """Read a response. Raises HttpRejected for an unexpected status."""
    body = response.read()
    if response.status != HTTPStatus.OK:
        raise HttpRejected(f"HTTP status {response.status}: {body[:200].decode(errors='replace').strip()}")
    return response


def log_in(login: Login, pid: int, over: threading.Event) -> None:
    """Log in on a new connection, send one request, and log out again: a user has a limited number of sessions."""
    while not over.is_set():
        began = time.monotonic()
        connection = login.connect()
        try:
            waited = seconds_without_a_core(pid)
            cookie = {"Cookie": login.cookie(connection)}
            connection.request("GET", f"{BASE}/cluster", headers=cookie)
            checked(connection.getresponse())
            tell(HTTP, began, waited=seconds_without_a_core(pid) - waited)
            connection.request("POST", f"{BASE}/logout", "{}", cookie | {"Content-Type": "application/json"})
            checked(connection.getresponse())
        except (HttpRejected, http.client.HTTPException, OSError) as error:
            tell(LOST, began, why=f"an HTTP login: {type(error).__name__}: {error}")
        finally:
            connection.close()
        over.wait(max(0.0, began + LOG_IN_EVERY_SECONDS - time.monotonic()))


def stream(login: Login, over: threading.Event) -> None:
    """Hold a `/stream`, which sends an event every two seconds, and report when it ends."""
    while not over.is_set():
        began = time.monotonic()
        connection = login.connect()
        try:
            connection.request("GET", f"{BASE}/stream", headers={"Cookie": login.cookie(connection)})
            response = connection.getresponse()
            if response.status != HTTPStatus.OK:
                checked(response)
            while line := response.readline():
                if line.startswith(b"event:"):
                    tell(STREAM, began)
                    began = time.monotonic()
            raise HttpRejected("the server closed it")
        except (HttpRejected, http.client.HTTPException, OSError, ValueError) as error:
            if not over.is_set():
                tell(LOST, began, why=f"a stream: {type(error).__name__}: {error}")
        finally:
            connection.close()
        over.wait(LOG_IN_EVERY_SECONDS)


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
