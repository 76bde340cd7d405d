"""A network of namespaces: faults apply to the packets of a direction, immediately, and end immediately."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from chronik.client.admin import NewTopic, create_topics
from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord
from tests.chaos.clients import wait_for
from tests.chaos.cluster import ChaosCluster, ChaosNode
from tests.chaos.faults import alternating
from tests.chaos.network import (
    CLIENTS,
    Barrier,
    LossyLink,
    Network,
    build_ruleset,
    directions_among,
    directions_between,
    namespaces_unavailable_reason,
)
from tests.chaos.run import main
from tests.chaos.schedules import FAULT_KINDS

NO_NETWORK = namespaces_unavailable_reason()
needs_network = pytest.mark.skipif(NO_NETWORK is not None, reason=f"no network namespaces: {NO_NETWORK}")

PORT = 7000
ANSWER_SECONDS_MAX = 20.0
"""A lost packet is retransmitted with growing delays."""

SILENCE_SECONDS = 0.5
ADDRESSES = {0: "10.90.0.2", 1: "10.90.1.2", 2: "10.90.2.2"}


def test_firewall_rules_are_unique_and_applied_atomically() -> None:
    rules = build_ruleset(
        {(1, 2): Barrier.DROPS, (2, 1): Barrier.REJECTS, (0, 1): LossyLink(0.3), (1, 0): LossyLink(0.3)}, ADDRESSES
    )
    lines = rules.splitlines()
    assert lines[:2] == ["table ip chaos", "delete table ip chaos"]
    assert "ip saddr . ip daddr { 10.90.1.2 . 10.90.2.2 } drop" in lines
    assert "ip saddr . ip daddr { 10.90.2.2 . 10.90.1.2 } meta l4proto tcp reject with tcp reset" in lines
    assert "ip saddr . ip daddr { 10.90.0.2 . 10.90.1.2, 10.90.1.2 . 10.90.0.2 } meta mark set 7" in lines


def test_firewall_without_faults_has_no_rules() -> None:
    assert "saddr" not in build_ruleset({}, ADDRESSES)


@pytest.fixture
def network() -> Iterator[Network]:
    with closing(Network([1, 2])) as made, echo_server(made):
        yield made


@contextmanager
def echo_server(network: Network) -> Iterator[None]:
    """Run an echo server at place 1."""
    with network.entered(1):
        server = socket.create_server((network.address(1), PORT))

    def serve() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=echo, args=(server.accept()[0],), daemon=True).start()

    def echo(connection: socket.socket) -> None:
        with suppress(OSError), connection:
            while data := connection.recv(100):
                connection.sendall(data)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()


@contextmanager
def connect(network: Network, place: int = 2) -> Iterator[socket.socket]:
    with network.entered(place):
        connection = socket.create_connection((network.address(1), PORT), ANSWER_SECONDS_MAX)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection:
        yield connection


def request_echo(connection: socket.socket, word: bytes, seconds: float = ANSWER_SECONDS_MAX) -> bytes:
    connection.settimeout(seconds)
    connection.sendall(word)
    return connection.recv(len(word))


def response_seconds(connection: socket.socket) -> float:
    start = time.monotonic()
    request_echo(connection, b"c")
    return time.monotonic() - start


@pytest.mark.slow
@needs_network
def test_dropped_packets_arrive_after_fault_ends(network: Network) -> None:
    with connect(network) as connection:
        assert request_echo(connection, b"a") == b"a"
        with network.imposed({(1, 2): Barrier.DROPS}), pytest.raises(TimeoutError):
            request_echo(connection, b"b", SILENCE_SECONDS)
        connection.settimeout(ANSWER_SECONDS_MAX)
        assert connection.recv(1) == b"b"


@pytest.mark.slow
@needs_network
def test_rejected_packets_close_senders_connection(network: Network) -> None:
    with connect(network) as connection:
        request_echo(connection, b"a")
        with network.imposed({(2, 1): Barrier.REJECTS}), pytest.raises(ConnectionResetError):
            request_echo(connection, b"b")
        with network.imposed({(2, 1): Barrier.REJECTS}), pytest.raises(ConnectionRefusedError), connect(network):
            pass


@pytest.mark.slow
@needs_network
def test_rejected_reply_closes_only_its_senders_connection(network: Network) -> None:
    """The client that waits for the response does not notice: its half of the connection stays open."""
    with connect(network) as connection:
        request_echo(connection, b"a")
        with network.imposed({(1, 2): Barrier.REJECTS}), pytest.raises(TimeoutError):
            request_echo(connection, b"b", SILENCE_SECONDS)


@pytest.mark.slow
@needs_network
def test_faults_do_not_affect_other_nodes(network: Network) -> None:
    with (
        connect(network, CLIENTS) as connection,
        network.imposed(dict.fromkeys(directions_between([1], [2]), Barrier.DROPS)),
    ):
        assert request_echo(connection, b"a") == b"a"


@pytest.mark.slow
@needs_network
def test_slow_link_delays_both_directions(network: Network) -> None:
    with connect(network) as connection:
        request_echo(connection, b"a")
        with network.imposed(dict.fromkeys(directions_among([1, 2]), LossyLink(delay_s=0.3))):
            began = time.monotonic()
            request_echo(connection, b"b")
            assert time.monotonic() - began >= 0.6
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        while response_seconds(connection) >= 0.6:  # a busy machine may delay some responses, but not all
            assert time.monotonic() < deadline, "the link is still slow"


@pytest.mark.slow
@needs_network
def test_lossy_link_delivers_all_data_eventually(network: Network) -> None:
    line = LossyLink(spread_s=0.02, loss=0.2, twice=0.2)
    with connect(network) as connection, network.imposed(dict.fromkeys(directions_among([1, 2]), line)):
        for word in (b"%03d" % number for number in range(10)):
            assert request_echo(connection, word) == word


@pytest.mark.slow
@needs_network
def test_overlapping_faults_take_precedence_and_underlying_ones_remain(network: Network) -> None:
    ways = dict.fromkeys(directions_between([1], [2]), Barrier.DROPS)
    with connect(network) as connection, network.imposed(ways):
        with network.imposed(dict.fromkeys(ways, LossyLink())):
            assert request_echo(connection, b"a") == b"a"
        with pytest.raises(TimeoutError):
            request_echo(connection, b"b", SILENCE_SECONDS)


@pytest.mark.slow
@needs_network
def test_network_namespaces_are_isolated_and_cleaned_up() -> None:
    before = links()
    with closing(Network([1, 2])):
        assert links() == before
    assert links() == before


def links() -> str:
    return subprocess.run(["ip", "-brief", "address"], capture_output=True, text=True, check=True).stdout


def test_periodic_fault_repeats_and_ends_inactive() -> None:
    inside: list[bool] = []

    @contextmanager
    def state() -> Iterator[None]:
        inside.append(True)
        yield
        inside.append(False)

    with alternating(state, 0.01, 0.01):
        assert wait_for(lambda: len(inside) >= 6, 20)
    assert inside == [True, False] * (len(inside) // 2)


def test_periodic_fault_reports_errors() -> None:
    @contextmanager
    def state() -> Iterator[None]:
        raise ValueError("stuck")
        yield

    with pytest.raises(ValueError, match="stuck"), alternating(state, 0.01, 0.01):
        pass


@pytest.mark.xdist_group("cluster")
def test_wall_clock_jump_persists_across_restart(tmp_path: Path) -> None:
    hour = 3600.0
    with closing(ChaosCluster(1, tmp_path, has_network=False, started=lambda node, at: None)) as cluster:
        cluster.start()
        cluster.wait_until_ready()
        node = cluster.nodes[1]
        assert isinstance(node, ChaosNode)
        with node.cluster() as client:
            create_topics(client, [NewTopic("t", 1, configs={"message.timestamp.type": "LogAppendTime"})])
        assert abs(seconds_ahead(node)) < hour
        node.shift_clock(30 * hour)
        assert abs(seconds_ahead(node) - 30 * hour) < hour
        node.kill()
        node.start()
        assert abs(seconds_ahead(node) - 30 * hour) < hour
        node.shift_clock(-9 * 24 * hour)
        assert abs(seconds_ahead(node) + 9 * 24 * hour) < hour
        node.shift_clock(0)
        assert abs(seconds_ahead(node)) < hour


def seconds_ahead(node: ChaosNode) -> float:
    """Return the clock difference according to the timestamp that the broker writes to a record."""
    with node.cluster() as client:
        Producer(client).send("t", [OutgoingRecord(b"now")])
    return node.records("t")[-1].timestamp / 1000 - time.time()


def test_network_faults_require_namespaces(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("tests.chaos.run.namespaces_unavailable_reason", lambda: "not on Linux")
    assert main(["--faults", "kill,reject"]) == 2
    said = capsys.readouterr().out
    assert "not on Linux" in said
    assert "rejected: reject" in said
    assert any(kind.needs_network for kind in FAULT_KINDS.values())
