from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from typing import Any

import pytest

from tests.abuse import attack_stage
from tests.abuse import run as runner
from tests.abuse.attack import CLUSTER, SINGLE_NODE, Attack, AttackTarget, ProbeOptions
from tests.abuse.attack_stage import group_losses, missing_records
from tests.abuse.budget import (
    MIB,
    AttackBudget,
    AttackFigures,
    Latencies,
    exceeds_only_latency,
    find_overruns,
    percentile,
)
from tests.abuse.catalogue import ATTACKS
from tests.abuse.floods.kafka import BUDGET as FLOOD
from tests.abuse.probe import record_value
from tests.abuse.report import ReportRow, format_report

WITHIN_BUDGET = AttackFigures(
    sent_bytes=10 * MIB,
    request_bytes=10 * MIB,
    blocked_ms=100.0,
    blocked_raw_ms=500.0,
    memory_bytes=130 * MIB,
    log_bytes=64 * 1024,
    before_p99_ms=5.0,
    probe_p99_ms=250.0,
    probe_p99_raw_ms=400.0,
    probe_longest_ms=900.0,
    probe_records=100,
    pings=250,
)


def test_figures_at_limits_are_within_budget() -> None:
    assert find_overruns(WITHIN_BUDGET) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"blocked_ms": 101.0}, "event loop blocked"),
        ({"memory_bytes": 130 * MIB + 1}, "memory grew by 130 MB"),
        ({"probe_p99_ms": 251.0}, "probe p99"),
        ({"arrival_p99_ms": 251.0, "arrivals": 1}, "new connections p99"),
        ({"arrival_p99_ms": 0.0, "arrivals": 0}, "no new connection was authenticated"),
        ({"log_bytes": 64 * 1024 + 1}, "logged"),
        ({"probe_records": 0}, "received no response"),
        ({"pings": 0}, "no ping was answered"),
        ({"problems": ["1 acknowledged records are lost"]}, "are lost"),
    ],
)
def test_figures_beyond_limit_are_over_budget(changes: dict[str, Any], message: str) -> None:
    (overrun,) = find_overruns(replace(WITHIN_BUDGET, **changes))
    assert message in overrun


HONEST = Latencies("fetch", 100, p99_ms=250.0, longest_ms=1_000.0, p99_raw_ms=900.0, longest_raw_ms=5_000.0)
FLOODED = replace(WITHIN_BUDGET, honest=[HONEST], disk_bytes=MIB)
FLOOD_BUDGET = AttackBudget(longest_ms=1_000.0, disk_bytes=MIB)


def test_flood_at_limits_is_within_budget() -> None:
    assert find_overruns(FLOODED, FLOOD_BUDGET) == []


@pytest.mark.parametrize(
    ("honest", "expected"),
    [
        (replace(HONEST, p99_ms=251.0), "fetch p99 251"),
        (replace(HONEST, longest_ms=1_001.0), "fetch maximum 1001"),
        (replace(HONEST, count=0), "no honest fetch request"),
    ],
)
def test_flood_with_slow_honest_requests_is_over_budget(honest: Latencies, expected: str) -> None:
    (overrun,) = find_overruns(replace(FLOODED, honest=[honest]), FLOOD_BUDGET)
    assert expected in overrun


def test_flood_that_fills_the_disk_is_over_budget() -> None:
    (overrun,) = find_overruns(replace(FLOODED, disk_bytes=MIB + 1), FLOOD_BUDGET)
    assert "to disk" in overrun


def test_losses_that_differ_in_numbers_are_grouped() -> None:
    assert group_losses(["record 1: late", "record 2: late", "a stream: cut"]) == [
        "lost record 1: late (2 times)",
        "lost a stream: cut (1 times)",
    ]


def test_only_latency_overruns_are_measured_again() -> None:
    assert exceeds_only_latency(replace(WITHIN_BUDGET, blocked_ms=5000.0, probe_p99_ms=5000.0))
    assert not exceeds_only_latency(replace(WITHIN_BUDGET, memory_bytes=10_000 * MIB))
    assert not exceeds_only_latency(replace(WITHIN_BUDGET, problems=["not healthy after the attack"]))


def test_lost_and_changed_records_are_missing() -> None:
    read: dict[int, bytes | None] = {10: record_value(1), 11: record_value(7), 13: None}
    assert missing_records({10: 1, 11: 2, 12: 3, 13: 4}, read) == [11, 12, 13]


def test_p99_of_hundred_values_is_maximum() -> None:
    assert percentile([float(n) for n in range(1, 101)], 0.99) == 100.0
    assert percentile([], 0.99) == 0.0


def test_attack_names_are_unique() -> None:
    assert all(name == attack.name for name, attack in ATTACKS.items())


def pause_victim(target: AttackTarget) -> None:
    """Pause the victim for half a second, as if its event loop were blocked."""
    os.kill(target.victim.pid, signal.SIGSTOP)
    time.sleep(0.5)
    os.kill(target.victim.pid, signal.SIGCONT)


def restart_victim(target: AttackTarget) -> None:
    target.victim.kill()
    target.victim.start()


def raise_error(target: AttackTarget) -> None:
    raise ValueError("a bug in the attack")


def test_harness_detects_blocked_event_loop() -> None:
    figures = attack_stage.run_attack(
        Attack("stop", "", pause_victim, targets=(SINGLE_NODE,)), SINGLE_NODE, 1, few=True
    )
    assert figures.blocked_ms >= 400.0
    assert figures.probe_longest_ms >= 400.0
    assert any("event loop blocked" in message for message in find_overruns(figures))


def test_harness_detects_slow_new_connections() -> None:
    attack = Attack("stop", "", pause_victim, targets=(SINGLE_NODE,), protocol="SASL_SSL", mechanism="PLAIN")
    figures = attack_stage.run_attack(attack, SINGLE_NODE, 1, few=True)
    assert any("new connections p99" in message for message in find_overruns(figures))


def test_harness_detects_slow_honest_fetches() -> None:
    attack = Attack(
        "stop", "", pause_victim, targets=(SINGLE_NODE,), budget=FLOOD, probe=ProbeOptions(-1, fetches=True)
    )
    figures = attack_stage.run_attack(attack, SINGLE_NODE, 1, few=True)
    assert {each.kind for each in figures.honest if each.longest_ms >= 400.0} == {"produce", "fetch"}


def do_nothing(target: AttackTarget) -> None:
    time.sleep(1.0)


def test_probe_logs_in_over_http_and_holds_stream() -> None:
    attack = Attack(
        "idle",
        "",
        do_nothing,
        targets=(SINGLE_NODE,),
        protocol="SASL_PLAINTEXT",
        mechanism="PLAIN",
        probe=ProbeOptions(-1, fetches=True, http=True),
    )
    figures = attack_stage.run_attack(attack, SINGLE_NODE, 1, few=True)
    assert figures.problems == []
    assert {each.kind for each in figures.honest if each.count} == {"produce", "fetch", "http"}


def depose_leader(target: AttackTarget) -> None:
    """Stop the Raft leader until the other nodes have elected another."""
    assert target.cluster is not None
    leader = target.cluster.leader()
    others = [node for node in target.nodes if node is not leader]
    leader.pause()
    try:
        target.cluster.wait_until(
            lambda: None if others[0].status()["leader"] in (node.node_id for node in others) else "no new leader",
            "another leader",
        )
    finally:
        leader.resume()


def test_harness_reports_deposed_raft_leader() -> None:
    figures = attack_stage.run_attack(Attack("depose", "", depose_leader, targets=(CLUSTER,)), CLUSTER, 1, few=True)
    assert any("the Raft leader was deposed" in message for message in find_overruns(figures))


def test_harness_reports_restarted_process() -> None:
    figures = attack_stage.run_attack(
        Attack("kill", "", restart_victim, targets=(SINGLE_NODE,)), SINGLE_NODE, 1, few=True
    )
    assert any("was restarted or has exited" in message for message in find_overruns(figures))


def test_harness_reports_interrupted_attack() -> None:
    figures = attack_stage.run_attack(
        Attack("broken", "", raise_error, targets=(SINGLE_NODE,)), SINGLE_NODE, 1, few=True
    )
    assert any("was interrupted: ValueError" in message for message in find_overruns(figures))


def test_run_over_budget_exits_with_error(monkeypatch: pytest.MonkeyPatch) -> None:
    strict = AttackBudget(blocked_ms=0.0)
    attack = Attack("strict", "do nothing", lambda target: None, targets=(SINGLE_NODE,), budget=strict)
    row = ReportRow(attack, SINGLE_NODE, WITHIN_BUDGET)
    assert "**over budget**" in "\n".join(format_report([row], 1))
    monkeypatch.setattr(runner, "measure_all", lambda *_, **__: iter([row]))
    assert runner.main(["--attacks", "frame-lengths"]) == 1
    monkeypatch.setattr(
        runner, "measure_all", lambda *_, **__: iter([row._replace(attack=replace(attack, budget=AttackBudget()))])
    )
    assert runner.main(["--attacks", "frame-lengths"]) == 0
