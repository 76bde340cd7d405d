"""The probe: an honest client alongside an attack, in a process of its own so that the attacker does not slow it down.

    python -m tests.abuse.probe BOOTSTRAP TOPIC PORT=PID … [--settings FILE] [--acks -1] [--fetches] [--http ADDRESS]

The first node leads the topic. The probe produces one record of 100 bytes every 50 ms and pings each node every 20 ms
with an ApiVersions request. With security settings, it also opens an authenticated connection to the first node every
100 ms. With `--fetches`, it fetches the latest record every 50 ms. With `--http`, it logs in over HTTP every 200 ms,
sends one request, and holds a `/stream`. It prints one JSON line per request until stdin is closed.
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

from chronik.client.access.settings import PLAINTEXT_SECURITY, BootstrapAccess, ClientSecurity, parse_security
from chronik.client.cluster import ClusterClient
from chronik.client.connection import BrokerConnection
from chronik.client.consumer import Consumer
from chronik.client.errors import ClientError
from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord, TopicPartition
from chronik.config import Address
from chronik.console.rest.operation_table import BASE_PATH
from chronik.protocol.errors import KafkaError
from chronik.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from chronik.protocol.messages.metadata import MetadataRequest, MetadataResponse

PRODUCE_INTERVAL_SECONDS: Final = 0.050
PING_INTERVAL_SECONDS: Final = 0.020
CONNECT_INTERVAL_SECONDS: Final = 0.100
RECORD_BYTES: Final = 100
LOGIN_INTERVAL_SECONDS: Final = 0.200
REQUEST_SECONDS_MAX: Final = 120.0
HTTP_SECONDS_MAX: Final = 30.0

PING_REQUEST: Final = ApiVersionsRequest(client_software_name="pulse", client_software_version="1")

AUTHENTICATED_REQUEST: Final = MetadataRequest(topics=[])

PRODUCE: Final = "produce"
FETCH: Final = "fetch"
HTTP: Final = "http"
STREAM: Final = "stream"
PING: Final = "pulse"
NEW_CONNECTION: Final = "arrive"
LOST: Final = "lost"
"""A failed request of the probe."""

_print_lock = threading.Lock()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("nodes", nargs="+")
    parser.add_argument("--settings", type=Path)
    parser.add_argument("--acks", type=int, default=1)
    parser.add_argument("--fetches", action="store_true")
    parser.add_argument("--http", metavar="ADDRESS")
    arguments = parser.parse_args()
    settings = json.loads(arguments.settings.read_text()) if arguments.settings else {}
    security = parse_security(settings) if settings else PLAINTEXT_SECURITY
    stop = threading.Event()
    processes = {int(port): int(pid) for port, _, pid in (node.partition("=") for node in arguments.nodes)}
    victim, pid = next(iter(processes.items()))
    measured_pids = [pid] if arguments.acks == 1 else list(processes.values())
    bootstrap = BootstrapAccess(arguments.bootstrap, security)
    latest = LatestOffset()
    producing = (bootstrap, arguments.topic, measured_pids, stop, arguments.acks, latest)
    threads = [threading.Thread(target=produce_records, args=producing)]
    if arguments.fetches:
        threads.append(threading.Thread(target=fetch_records, args=(bootstrap, arguments.topic, pid, stop, latest)))
    if arguments.http:
        login = HttpLogin(arguments.http, settings["sasl.username"], settings["sasl.password"])
        threads.append(threading.Thread(target=log_in_repeatedly, args=(login, pid, stop)))
        threading.Thread(target=hold_stream, args=(login, stop), daemon=True).start()
    threads += [
        threading.Thread(target=send_pings, args=(port, pid, security, stop)) for port, pid in processes.items()
    ]
    if arguments.settings:
        threads.append(threading.Thread(target=open_connections, args=(victim, pid, security, stop)))
    for thread in threads:
        thread.start()
    sys.stdin.read()
    stop.set()
    for thread in threads:
        thread.join()


class LatestOffset:
    """The offset of the latest record that was acknowledged."""

    offset: int | None = None


def produce_records(
    bootstrap: BootstrapAccess,
    topic: str,
    measured_pids: list[int],
    stop: threading.Event,
    acks: int,
    latest: LatestOffset,
) -> None:
    with ClusterClient(bootstrap, client_id="probe", timeout_s=REQUEST_SECONDS_MAX) as cluster:
        producer = Producer(cluster, acks=acks)
        number = 0
        while not stop.is_set():
            number += 1
            began = time.monotonic()
            try:
                before = [run_delay_seconds(pid) for pid in measured_pids]
                (written,) = producer.send(topic, [OutgoingRecord(record_value(number))])
                # With acks=all, a follower's wait may overlap the leader's: only the longest wait counts.
                waited = max(run_delay_seconds(pid) - wait for pid, wait in zip(measured_pids, before, strict=True))
                latest.offset = written.base_offset
                report_trip(PRODUCE, began, number=number, offset=written.base_offset, waited=waited)
            except (ClientError, KafkaError, OSError) as error:
                report_trip(LOST, began, why=f"record {number}: {error}")
            stop.wait(max(0.0, began + PRODUCE_INTERVAL_SECONDS - time.monotonic()))


def fetch_records(
    bootstrap: BootstrapAccess, topic: str, victim: int, stop: threading.Event, latest: LatestOffset
) -> None:
    partition = TopicPartition(topic, 0)
    with ClusterClient(bootstrap, client_id="probe", timeout_s=REQUEST_SECONDS_MAX) as cluster:
        consumer = Consumer(cluster, {partition: 0})
        while not stop.is_set():
            began = time.monotonic()
            if latest.offset is not None:
                consumer.positions[partition] = latest.offset
                try:
                    waited = run_delay_seconds(victim)
                    records = consumer.poll(0.0)
                    report_trip(FETCH, began, waited=run_delay_seconds(victim) - waited)
                    if not records:
                        report_trip(LOST, began, why=f"the record at offset {latest.offset} was not fetched")
                except (ClientError, KafkaError, OSError) as error:
                    report_trip(LOST, began, why=f"fetch: {error}")
            stop.wait(max(0.0, began + PRODUCE_INTERVAL_SECONDS - time.monotonic()))


class HttpLogin(NamedTuple):
    """An HTTP address and a user's password."""

    address: str
    user: str
    password: str

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.address, timeout=HTTP_SECONDS_MAX)

    def cookie(self, connection: http.client.HTTPConnection) -> str:
        """Log in and return the session cookie. Raise HttpRejected if the login fails."""
        body = json.dumps({"username": self.user, "password": self.password})
        connection.request("POST", f"{BASE_PATH}/login", body, {"Content-Type": "application/json"})
        response = check_status(connection.getresponse())
        return str(response.getheader("Set-Cookie")).partition(";")[0]


class HttpRejected(Exception):
    """An honest HTTP request that did not succeed."""


def check_status(response: http.client.HTTPResponse) -> http.client.HTTPResponse:
    """Read a response and return it. Raise HttpRejected for an unexpected status."""
    body = response.read()
    if response.status != HTTPStatus.OK:
        raise HttpRejected(f"HTTP status {response.status}: {body[:200].decode(errors='replace').strip()}")
    return response


def log_in_repeatedly(login: HttpLogin, pid: int, stop: threading.Event) -> None:
    """Log in on a new connection, send one request, and log out again: a user has a limited number of sessions."""
    while not stop.is_set():
        began = time.monotonic()
        connection = login.connect()
        try:
            waited = run_delay_seconds(pid)
            cookie = {"Cookie": login.cookie(connection)}
            connection.request("GET", f"{BASE_PATH}/cluster", headers=cookie)
            check_status(connection.getresponse())
            report_trip(HTTP, began, waited=run_delay_seconds(pid) - waited)
            connection.request("POST", f"{BASE_PATH}/logout", "{}", cookie | {"Content-Type": "application/json"})
            check_status(connection.getresponse())
        except (HttpRejected, http.client.HTTPException, OSError) as error:
            report_trip(LOST, began, why=f"HTTP login: {type(error).__name__}: {error}")
        finally:
            connection.close()
        stop.wait(max(0.0, began + LOGIN_INTERVAL_SECONDS - time.monotonic()))


def hold_stream(login: HttpLogin, stop: threading.Event) -> None:
    """Hold a `/stream`, which sends an event every two seconds, and report when it ends."""
    while not stop.is_set():
        began = time.monotonic()
        connection = login.connect()
        try:
            connection.request("GET", f"{BASE_PATH}/stream", headers={"Cookie": login.cookie(connection)})
            response = connection.getresponse()
            if response.status != HTTPStatus.OK:
                check_status(response)
            while line := response.readline():
                if line.startswith(b"event:"):
                    report_trip(STREAM, began)
                    began = time.monotonic()
            raise HttpRejected("closed by the server")
        except (HttpRejected, http.client.HTTPException, OSError, ValueError) as error:
            if not stop.is_set():
                report_trip(LOST, began, why=f"stream: {type(error).__name__}: {error}")
        finally:
            connection.close()
        stop.wait(LOGIN_INTERVAL_SECONDS)


def record_value(number: int) -> bytes:
    return str(number).encode().rjust(RECORD_BYTES, b".")


def send_pings(port: int, pid: int, security: ClientSecurity, stop: threading.Event) -> None:
    while not stop.is_set():
        began = time.monotonic()
        try:
            connection = open_connection(port, "pulse", security)
            while not stop.is_set():
                began = time.monotonic()
                waited = run_delay_seconds(pid)
                connection.request(PING_REQUEST, ApiVersionsResponse)
                report_trip(PING, began, port=port, waited=run_delay_seconds(pid) - waited)
                stop.wait(max(0.0, began + PING_INTERVAL_SECONDS - time.monotonic()))
            connection.close()
        except (ClientError, OSError) as error:
            report_trip(LOST, began, port=port, why=f"connection to port {port}: {error}")
            stop.wait(PING_INTERVAL_SECONDS)


def open_connections(port: int, pid: int, security: ClientSecurity, stop: threading.Event) -> None:
    """Open a connection repeatedly and measure TCP, TLS, login and the response to an authenticated request."""
    while not stop.is_set():
        began = time.monotonic()
        try:
            waited = run_delay_seconds(pid)
            with open_connection(port, "arrival", security) as connection:
                connection.request(AUTHENTICATED_REQUEST, MetadataResponse)
            report_trip(NEW_CONNECTION, began, port=port, waited=run_delay_seconds(pid) - waited)
        except (ClientError, OSError) as error:
            report_trip(LOST, began, port=port, why=f"new connection to port {port}: {error}")
        stop.wait(max(0.0, began + CONNECT_INTERVAL_SECONDS - time.monotonic()))


def open_connection(port: int, client_id: str, security: ClientSecurity) -> BrokerConnection:
    return BrokerConnection(
        Address("127.0.0.1", port), client_id=client_id, timeout_s=REQUEST_SECONDS_MAX, security=security
    )


def run_delay_seconds(pid: int) -> float:
    """Return how long the node's event loop and this thread have waited for a CPU core (run delay)."""
    return (_run_delay_ns(f"/proc/{pid}/task/{pid}/schedstat") + _run_delay_ns("/proc/thread-self/schedstat")) / 1e9


def _run_delay_ns(path: str) -> int:
    return int(Path(path).read_text().split()[1])


def report_trip(kind: str, began: float, **details: Any) -> None:
    line = json.dumps({"kind": kind, "began": began, "ended": time.monotonic(), **details})
    with _print_lock:
        print(line, flush=True)


if __name__ == "__main__":
    main()
