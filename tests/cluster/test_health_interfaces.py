"""The console, the admin API, `/health`, `/metrics`, `chronik doctor` and `chronik top` show the same problems.

The states of real clusters that take only seconds are produced; for all other kinds of problems, a real node gets the
facts of the state, and everything from its health engine on is real.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from io import StringIO
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from confluent_kafka import Producer
from msgspec.structs import replace

from chronik.cli.doctor.health_checks import CHECK_NAMES
from chronik.cli.main import main
from chronik.client.cluster import ClusterClient
from chronik.client.groups import commit_offsets
from chronik.client.offsets import LATEST_TIMESTAMP, list_offsets
from chronik.client.records import TopicPartition
from chronik.config import Address, load_config
from chronik.console.http_client import http_get
from chronik.health.engine import HealthEngine, assess
from chronik.health.facts import HealthFacts
from chronik.health.problems import KINDS
from chronik.node.node import Node
from chronik.pipeline.journal.journal_client import JournalWriter, encode_progress
from chronik.pipeline_journal import PipelineTopicKey, TopicProgress
from chronik.testing import Cluster
from tests.cluster.test_health import OF_THE_MACHINE, get_json, wait_for
from tests.health.test_checks import NOW_S, UNHEALTHY

TIMEOUT_S = 60.0
LAG = 12_000
SEVERITIES = {"critical": ("error", "error"), "warning": ("warning", "warning"), "info": ("note", "info")}
"""The names of the severities in the doctor and in the console's short form."""

COUNTED = re.compile(r'^chronik_problems\{kind="([^"]+)",severity="([^"]+)"\} (\d+)$', re.MULTILINE)

Shown = set[tuple[str, str, str]]
"""Problems as kind, severity and message."""


class Interfaces:
    """All interfaces of a cluster that show its problems."""

    def __init__(self, bootstrap: str, http: Address, ignored: Collection[str]) -> None:
        """Do not compare the `ignored` kinds of problems, which the machine may have, unless they are expected."""
        self.bootstrap = bootstrap
        self.http = http
        self._ignored = frozenset(ignored)

    def health(self, path: str = "/health") -> Shown:
        """Return the problems at a path of the HTTP port."""
        return self._shown_in(get_json(self.http, path)[1].get("problems", ()))

    def _shown_in(self, problems: Iterable[dict[str, Any]]) -> Shown:
        return {
            (each["kind"], each["severity"], each["message"]) for each in problems if each["kind"] not in self._ignored
        }

    def check_agreement(self, expected: Shown) -> None:
        """Compare everything that the interfaces show with the expected problems."""
        assert self.health() == expected
        assert self.health("/api/v1/health") == expected
        cluster = get_json(self.http, "/api/v1/cluster")[1]
        assert self._shown_in(cluster["health"]["problems"]) == expected
        texts = {(severity_of_console(severity), message) for _, severity, message in expected}
        assert texts <= {(each["severity"], each["text"]) for each in cluster["attention"]}
        metrics = http_get(self.http, "/metrics", TIMEOUT_S)[1].decode()
        counts = {(kind, severity): int(count) for kind, severity, count in COUNTED.findall(metrics)}
        assert {kind for kind, _ in counts} == set(KINDS)
        assert {key: count for key, count in counts.items() if count and key[0] not in self._ignored} == Counter(
            (kind, severity) for kind, severity, _ in expected
        )
        findings = {
            (CHECK_NAMES.get(kind, kind), SEVERITIES[severity][0], message) for kind, severity, message in expected
        }
        doctor = run_cli("doctor", "-b", self.bootstrap, "--json", "--timeout", "60")["findings"]
        assert findings <= {(each["check"], each["severity"], each["what"]) for each in doctor}
        top = run_cli("top", "-b", self.bootstrap, "--json", "--interval", "0.05", "--timeout", "60")["attention"]
        assert findings <= {(each["check"], each["severity"], each["what"]) for each in top}
        machine = set(OF_THE_MACHINE) - {kind for kind, _, _ in expected}
        known = {CHECK_NAMES.get(kind, kind) for kind in KINDS} - machine
        for shown in (doctor, top):
            assert {each["check"] for each in shown if each["check"] in known} == {check for check, _, _ in findings}


def severity_of_console(severity: str) -> str:
    return SEVERITIES[severity][1]


def run_cli(*arguments: str) -> Any:
    output = StringIO()
    with contextlib.redirect_stdout(output):
        main(list(arguments))
    return json.loads(output.getvalue())


class DrivenNode:
    """A real node whose health engine gets given facts."""

    def __init__(self, folder: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever)
        self._thread.start()
        self._node = Node(load_config(None, {}, data_dir=folder, kafka="127.0.0.1:0", http="127.0.0.1:0"))
        bootstrap = self._wait(self._node.start())
        assert self._node.http is not None
        assert self._node.http.url is not None
        host, _, port = self._node.http.url.partition("://")[2].rpartition(":")
        self.interfaces = Interfaces(str(bootstrap), Address(host, int(port)), ())
        self.interfaces.health()  # loads the monitor
        self.facts = HealthFacts(now_s=NOW_S)
        monitor = self._node._health_monitor
        assert monitor is not None
        self._monitor = monitor

        async def build_facts(now_s: float) -> HealthFacts:
            return self.facts

        monitor._build_facts = build_facts  # type: ignore[method-assign]

    def _wait(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    def drive(self, facts: HealthFacts) -> None:
        """Let the node evaluate these facts, whose conditions have persisted for long enough."""

        async def evaluate() -> None:
            async with self._monitor._lock:
                self.facts = facts
                self._monitor._engine = HealthEngine()
                self._monitor._engine.adopt(assess(facts), facts.now_s)
                self._monitor._evaluated_at = float("-inf")
            await self._monitor.current()

        self._wait(evaluate())

    def close(self) -> None:
        self._wait(self._node.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture(scope="module")
def driven(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DrivenNode]:
    node = DrivenNode(tmp_path_factory.mktemp("node"))
    try:
        yield node
    finally:
        node.close()


@pytest.mark.parametrize("kind", [None, *UNHEALTHY])
def test_all_interfaces_show_the_problems_of_a_state(driven: DrivenNode, kind: str | None) -> None:
    facts = HealthFacts(now_s=NOW_S) if kind is None else UNHEALTHY[kind][0]
    expected = {(each.kind, each.severity.label, each.message) for each in assess(facts)}
    assert kind in {found for found, _, _ in expected} or (kind is None and not expected)
    driven.drive(facts)
    driven.interfaces.check_agreement(expected)


def test_all_interfaces_show_the_problems_of_several_kinds_at_once(driven: DrivenNode) -> None:
    facts = replace(UNHEALTHY["offline-partitions"][0], groups=UNHEALTHY["lagging-group"][0].groups)
    driven.drive(facts)
    driven.interfaces.check_agreement({(each.kind, each.severity.label, each.message) for each in assess(facts)})


# Real states


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as started:
        started.wait_until_ready()
        yield started


def test_all_interfaces_of_all_nodes_agree_about_states_of_a_real_cluster(cluster: Cluster) -> None:
    http = {node_id: node.http for node_id, node in cluster.nodes.items() if node.http is not None}
    interfaces = {
        node_id: Interfaces(node.bootstrap, http[node_id], OF_THE_MACHINE) for node_id, node in cluster.nodes.items()
    }

    def check_state(kinds: set[str], nodes: Collection[int]) -> None:
        """Wait until the nodes report exactly these kinds, and compare all interfaces of each of them."""
        for node_id in nodes:
            shown = interfaces[node_id]
            wait_for(partial(_shows_kinds, shown, kinds), f"node {node_id}: {kinds}")
            wait_for(partial(_agree, shown), f"interfaces of node {node_id} agree: {kinds}")

    check_state(set(), (1, 2, 3))
    with ClusterClient(cluster.bootstrap) as client:
        _create_topics(cluster)
        lagging = TopicPartition("orders", 0)
        _produce(cluster, "orders", LAG)
        wait_for(lambda: list_offsets(client, {lagging: LATEST_TIMESTAMP})[lagging] >= LAG, "records are produced")
        commit_offsets(client, "billing", {lagging: 0})
        check_state({"stopped-group"}, (1, 2, 3))
        failing = TopicProgress("failing", last_error="disk full", next_offsets={0: 0}, high_watermarks={0: 5})
        journal = JournalWriter(client)
        both = {"stopped-group", "failing-pipeline"}
        wait_for(lambda: _shows_while_reporting(interfaces[1], both, journal, failing), "the failure is reported")
        wait_for(lambda: _agree(interfaces[1]), "all interfaces show the failure")
        _report(journal, TopicProgress("stopped"))
        commit_offsets(client, "billing", {lagging: LAG})
        check_state(set(), (1,))
    controller = next(node_id for node_id, node in cluster.nodes.items() if node is cluster.leader())
    stopped, other = (node_id for node_id in cluster.nodes if node_id != controller)
    cluster.nodes[stopped].kill()
    down = {"unreachable-node", "no-voter-to-spare", "under-replicated", "below-min-insync"}
    check_state({*down, "offline-partitions"}, (controller, other))
    cluster.nodes[stopped].start()
    check_state(set(), (1, 2, 3))


def _report(journal: JournalWriter, progress: TopicProgress) -> None:
    """Report as a driver does while it runs: if it stops, its pipeline is silent."""
    journal.write([encode_progress(PipelineTopicKey("lake", "orders"), progress)])


def _shows_while_reporting(shown: Interfaces, kinds: set[str], journal: JournalWriter, progress: TopicProgress) -> bool:
    _report(journal, progress)
    return _shows_kinds(shown, kinds)


def _shows_kinds(shown: Interfaces, kinds: set[str]) -> bool:
    return {kind for kind, _, _ in shown.health()} == kinds


def _agree(shown: Interfaces) -> bool:
    """Return whether all interfaces agree. A state may change between two requests, but not for long."""
    before = shown.health()
    try:
        shown.check_agreement(before)
    except AssertionError:
        if shown.health() == before:
            raise
        return False
    return True


def _create_topics(cluster: Cluster) -> None:
    for arguments in (
        ("orders", "--partitions", "1", "--replication-factor", "3", "-c", "min.insync.replicas=3"),
        ("alone", "--partitions", "3", "--replication-factor", "1"),
    ):
        main(["topics", "create", *arguments, "-b", cluster.bootstrap])


def _produce(cluster: Cluster, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    for number in range(count):
        producer.produce(topic, str(number))
    assert producer.flush(TIMEOUT_S) == 0
