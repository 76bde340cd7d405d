from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from typing import Any

import pytest

from tests.abuse import run as runner
from tests.abuse import stage
from tests.abuse.attack import CLUSTER, NODE, Attack, ProbeOptions, Target
from tests.abuse.budget import MIB, Budget, Figures, Latencies, is_only_slow, overruns, percentile
from tests.abuse.catalogue import ATTACKS
from tests.abuse.floods.kafka import BUDGET as FLOOD
from tests.abuse.probe import value_of
from tests.abuse.report import Row, report
from tests.abuse.stage import grouped_losses, missing

WELL = Figures(
    sent_bytes=10 * MIB,
    request_bytes=10 * MIB,
    held_ms=100.0,
    held_raw_ms=500.0,
    memory_bytes=130 * MIB,
    log_bytes=64 * 1024,
    quiet_p99_ms=5.0,
    probe_p99_ms=250.0,
    probe_p99_raw_ms=400.0,
    probe_longest_ms=900.0,
    probe_records=100,
    pulses=250,
)


def test_a_row_at_its_limits_is_well() -> None:
    assert overruns(WELL) == []


@pytest.mark.parametrize(
    ("worse", "told"),
    [
        ({"held_ms": 101.0}, "held the loop"),
        ({"memory_bytes": 130 * MIB + 1}, "took 130 MB"),
        ({"probe_p99_ms": 251.0}, "probe p99"),
        ({"arrival_p99_ms": 251.0, "arrivals": 1}, "arrivals p99"),
        ({"arrival_p99_ms": 0.0, "arrivals": 0}, "nobody was let in"),
        ({"log_bytes": 64 * 1024 + 1}, "logged"),
        ({"probe_records": 0}, "never answered"),
        ({"pulses": 0}, "nobody saw"),
        ({"ailments": ["1 acknowledged records are lost"]}, "are lost"),
    ],
)
def test_a_row_beyond_a_limit_is_over(worse: dict[str, Any], told: str) -> None:
    (overrun,) = overruns(replace(WELL, **worse))
    assert told in overrun


HONEST = Latencies("fetch", 100, p99_ms=250.0, longest_ms=1_000.0, p99_raw_ms=900.0, longest_raw_ms=5_000.0)
FLOODED = replace(WELL, honest=[HONEST], disk_bytes=MIB)
FLOOD_BUDGET = Budget(longest_ms=1_000.0, disk_bytes=MIB)


def test_flood_at_its_limits_is_within_budget() -> None:
    assert overruns(FLOODED, FLOOD_BUDGET) == []


@pytest.mark.parametrize(
    ("honest", "expected"),
    [
        (replace(HONEST, p99_ms=251.0), "fetch p99 251"),
        (replace(HONEST, longest_ms=1_001.0), "fetch maximum 1001"),
        (replace(HONEST, count=0), "no honest fetch request"),
    ],
)
def test_flood_with_slow_honest_requests_is_over_budget(honest: Latencies, expected: str) -> None:
    (overrun,) = overruns(replace(FLOODED, honest=[honest]), FLOOD_BUDGET)
    assert expected in overrun


def test_flood_that_fills_the_disk_is_over_budget() -> None:
    (overrun,) = overruns(replace(FLOODED, disk_bytes=MIB + 1), FLOOD_BUDGET)
    assert "to disk" in overrun


def test_losses_that_differ_in_numbers_are_counted_together() -> None:
    assert grouped_losses(["record 1: late", "record 2: late", "a stream: cut"]) == [
        "lost record 1: late (2 times)",
        "lost a stream: cut (1 times)",
    ]


def test_only_slowness_is_measured_again() -> None:
    assert is_only_slow(replace(WELL, held_ms=5000.0, probe_p99_ms=5000.0))
    assert not is_only_slow(replace(WELL, memory_bytes=10_000 * MIB))
    assert not is_only_slow(replace(WELL, ailments=["not well afterwards"]))


def test_records_that_are_gone_or_changed_are_missing() -> None:
    read: dict[int, bytes | None] = {10: value_of(1), 11: value_of(7), 13: None}
    assert missing({10: 1, 11: 2, 12: 3, 13: 4}, read) == [11, 12, 13]


def test_p99_of_a_hundred_is_the_longest() -> None:
    assert percentile([float(n) for n in range(1, 101)], 0.99) == 100.0
    assert percentile([], 0.99) == 0.0


def test_every_attack_has_a_name_of_its_own() -> None:
    assert all(name == attack.name for name, attack in ATTACKS.items())


def stop_the_victim(target: Target) -> None:
    """Stands for whatever holds a loop: nothing is answered for half a second, and nobody else had the core."""
    os.kill(target.victim.pid, signal.SIGSTOP)
    time.sleep(0.5)
    os.kill(target.victim.pid, signal.SIGCONT)


def kill_the_victim(target: Target) -> None:
    target.victim.kill()
    target.victim.start()


def break_off(target: Target) -> None:
    raise ValueError("this attack is not well made")


def test_a_loop_that_stands_still_is_noticed_from_outside() -> None:
    figures = stage.run(Attack("stop", "", stop_the_victim, against=(NODE,)), NODE, 1, few=True)
    assert figures.held_ms >= 400.0
    assert figures.probe_longest_ms >= 400.0
    assert any("held the loop" in told for told in overruns(figures))


def test_arrivals_that_wait_are_noticed() -> None:
    attack = Attack("stop", "", stop_the_victim, against=(NODE,), protocol="SASL_SSL", mechanism="PLAIN")
    figures = stage.run(attack, NODE, 1, few=True)
    assert any("arrivals p99" in told for told in overruns(figures))


def test_flood_reports_slow_honest_fetches() -> None:
    attack = Attack("stop", "", stop_the_victim, against=(NODE,), budget=FLOOD, probe=ProbeOptions(-1, fetches=True))
    figures = stage.run(attack, NODE, 1, few=True)
    assert {each.kind for each in figures.honest if each.longest_ms >= 400.0} == {"produce", "fetch"}


def leave_http_alone(target: Target) -> None:
    time.sleep(1.0)


def test_probe_logs_in_over_http_and_holds_stream() -> None:
    attack = Attack(
        "idle",
        "",
        leave_http_alone,
        against=(NODE,),
        protocol="SASL_PLAINTEXT",
        mechanism="PLAIN",
        probe=ProbeOptions(-1, fetches=True, http=True),
    )
    figures = stage.run(attack, NODE, 1, few=True)
    assert figures.ailments == []
    assert {each.kind for each in figures.honest if each.count} == {"produce", "fetch", "http"}


def depose_the_leader(target: Target) -> None:
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


def test_deposed_raft_leader_is_reported() -> None:
    figures = stage.run(Attack("depose", "", depose_the_leader, against=(CLUSTER,)), CLUSTER, 1, few=True)
    assert any("the Raft leader was deposed" in told for told in overruns(figures))


def test_a_process_that_ended_is_noticed() -> None:
    figures = stage.run(Attack("kill", "", kill_the_victim, against=(NODE,)), NODE, 1, few=True)
    assert any("is not the process" in told for told in overruns(figures))


def test_an_attack_that_breaks_off_is_told() -> None:
    figures = stage.run(Attack("broken", "", break_off, against=(NODE,)), NODE, 1, few=True)
    assert any("broke off: ValueError" in told for told in overruns(figures))


def test_a_run_with_a_row_over_its_budget_fails_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    strict = Budget(held_ms=0.0)
    attack = Attack("strict", "nothing at all", lambda target: None, against=(NODE,), budget=strict)
    row = Row(attack, NODE, WELL)
    assert "**over**" in "\n".join(report([row], 1))
    monkeypatch.setattr(runner, "measured", lambda *_, **__: iter([row]))
    assert runner.main(["--attacks", "frame-lengths"]) == 1
    monkeypatch.setattr(
        runner, "measured", lambda *_, **__: iter([row._replace(attack=replace(attack, budget=Budget()))])
    )
    assert runner.main(["--attacks", "frame-lengths"]) == 0
