"""The console, the admin API, `/health`, `/metrics`, `chronik doctor` and `chronik top` show the same problems.

A real node gets the facts of a state, because most states take minutes; everything from its health engine on is real.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from io import StringIO
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from msgspec.structs import replace

from chronik.cli.doctor.health_checks import CHECK_NAMES
from chronik.cli.main import main
from chronik.config import Address, load_config
from chronik.console.http_client import http_get
from chronik.health.engine import HealthEngine, assess
from chronik.health.facts import HealthFacts
from chronik.health.problems import KINDS
from chronik.node.node import Node
from tests.cluster.test_health import OF_THE_MACHINE, get_json
from tests.health.test_checks import NOW_S, UNHEALTHY

TIMEOUT_S = 60.0
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
