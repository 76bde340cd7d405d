"""A network of namespaces: what is imposed on a way happens to what goes that way, at once, and is over at once."""

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
from tests.chaos.lines import Barrier, Line, ruleset
from tests.chaos.namespaces import why_none
from tests.chaos.network import CLIENTS, Network, among, between
from tests.chaos.run import main
from tests.chaos.schedules import KINDS
from tests.chaos.turns import taking_turns

NO_NETWORK = why_none()
needs_network = pytest.mark.skipif(NO_NETWORK is not None, reason=f"no network namespaces: {NO_NETWORK}")

PORT = 7000
ANSWER_SECONDS_MAX = 20.0
"""A packet that was lost is sent again after longer and longer times."""

SILENCE_SECONDS = 0.5
ADDRESSES = {0: "10.90.0.2", 1: "10.90.1.2", 2: "10.90.2.2"}


def test_firewall_rules_are_unique_and_applied_atomically() -> None:
    rules = ruleset({(1, 2): Barrier.DROPS, (2, 1): Barrier.REJECTS, (0, 1): Line(0.3), (1, 0): Line(0.3)}, ADDRESSES)
    lines = rules.splitlines()
    assert lines[:2] == ["table ip chaos", "delete table ip chaos"]
    assert "ip saddr . ip daddr { 10.90.1.2 . 10.90.2.2 } drop" in lines
    assert "ip saddr . ip daddr { 10.90.2.2 . 10.90.1.2 } meta l4proto tcp reject with tcp reset" in lines
    assert "ip saddr . ip daddr { 10.90.0.2 . 10.90.1.2, 10.90.1.2 . 10.90.0.2 } meta mark set 7" in lines


def test_firewall_without_faults_has_no_rules() -> None:
    assert "saddr" not in ruleset({}, ADDRESSES)


@pytest.fixture
def network() -> Iterator[Network]:
    with closing(Network([1, 2])) as made, echoing(made):
        yield made


@contextmanager
def echoing(network: Network) -> Iterator[None]:
    """At place 1 somebody sends back whatever comes."""
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
def dialled(network: Network, place: int = 2) -> Iterator[socket.socket]:
    with network.entered(place):
        connection = socket.create_connection((network.address(1), PORT), ANSWER_SECONDS_MAX)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection:
        yield connection


def answer_to(connection: socket.socket, word: bytes, seconds: float = ANSWER_SECONDS_MAX) -> bytes:
    connection.settimeout(seconds)
    connection.sendall(word)
    return connection.recv(len(word))


def seconds_for_answer(connection: socket.socket) -> float:
    start = time.monotonic()
    answer_to(connection, b"c")
    return time.monotonic() - start


@pytest.mark.slow
@needs_network
def test_dropped_packets_arrive_after_fault_ends(network: Network) -> None:
    with dialled(network) as connection:
        assert answer_to(connection, b"a") == b"a"
        with network.imposed({(1, 2): Barrier.DROPS}), pytest.raises(TimeoutError):
            answer_to(connection, b"b", SILENCE_SECONDS)
        connection.settimeout(ANSWER_SECONDS_MAX)
        assert connection.recv(1) == b"b"


@pytest.mark.slow
@needs_network
def test_rejected_packets_close_senders_connection(network: Network) -> None:
    with dialled(network) as connection:
        answer_to(connection, b"a")
        with network.imposed({(2, 1): Barrier.REJECTS}), pytest.raises(ConnectionResetError):
            answer_to(connection, b"b")
        with network.imposed({(2, 1): Barrier.REJECTS}), pytest.raises(ConnectionRefusedError), dialled(network):
            pass


@pytest.mark.slow
@needs_network
def test_rejected_reply_closes_only_its_senders_connection(network: Network) -> None:
    """Who waits for it is not told anything: half a connection is left."""
    with dialled(network) as connection:
        answer_to(connection, b"a")
        with network.imposed({(1, 2): Barrier.REJECTS}), pytest.raises(TimeoutError):
            answer_to(connection, b"b", SILENCE_SECONDS)


@pytest.mark.slow
@needs_network
def test_faults_do_not_affect_other_nodes(network: Network) -> None:
    with dialled(network, CLIENTS) as connection, network.imposed(dict.fromkeys(between([1], [2]), Barrier.DROPS)):
        assert answer_to(connection, b"a") == b"a"


@pytest.mark.slow
@needs_network
def test_slow_link_delays_both_directions(network: Network) -> None:
    with dialled(network) as connection:
        answer_to(connection, b"a")
        with network.imposed(dict.fromkeys(among([1, 2]), Line(delay_s=0.3))):
            began = time.monotonic()
            answer_to(connection, b"b")
            assert time.monotonic() - began >= 0.6
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        while seconds_for_answer(connection) >= 0.6:  # a busy machine may delay some answers, but not all
            assert time.monotonic() < deadline, "the line is still slow"


@pytest.mark.slow
@needs_network
def test_lossy_link_delivers_all_data_eventually(network: Network) -> None:
    line = Line(spread_s=0.02, loss=0.2, twice=0.2)
    with dialled(network) as connection, network.imposed(dict.fromkeys(among([1, 2]), line)):
        for word in (b"%03d" % number for number in range(10)):
            assert answer_to(connection, word) == word


@pytest.mark.slow
@needs_network
def test_overlapping_faults_take_precedence_and_underlying_ones_remain(network: Network) -> None:
    ways = dict.fromkeys(between([1], [2]), Barrier.DROPS)
    with dialled(network) as connection, network.imposed(ways):
        with network.imposed(dict.fromkeys(ways, Line())):
            assert answer_to(connection, b"a") == b"a"
        with pytest.raises(TimeoutError):
            answer_to(connection, b"b", SILENCE_SECONDS)


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

    with taking_turns(state, 0.01, 0.01):
        assert wait_for(lambda: len(inside) >= 6, 20)
    assert inside == [True, False] * (len(inside) // 2)


def test_periodic_fault_reports_errors() -> None:
    @contextmanager
    def state() -> Iterator[None]:
        raise ValueError("stuck")
        yield

    with pytest.raises(ValueError, match="stuck"), taking_turns(state, 0.01, 0.01):
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
    """By the time that the broker writes into a record of its own accord."""
    with node.cluster() as client:
        Producer(client).send("t", [OutgoingRecord(b"now")])
    return node.records("t")[-1].timestamp / 1000 - time.time()


def test_network_faults_require_namespaces(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("tests.chaos.run.why_none", lambda: "this is no Linux")
    assert main(["--faults", "kill,reject"]) == 2
    said = capsys.readouterr().out
    assert "this is no Linux" in said
    assert "refused: reject" in said
    assert any(kind.needs_network for kind in KINDS.values())
