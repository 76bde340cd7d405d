"""Starts floods in a process of their own and returns their totals."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import msgspec

from tests.abuse.attack import AttackTarget
from tests.abuse.floods.attacker import FloodSpec, FloodTotals

REPOSITORY: Final = Path(__file__).parents[3]
SECONDS_MORE_MAX: Final = 60.0
"""Time for the process to start and stop on a loaded machine."""

MANY_SOURCES: Final = 120
PREPARE_SECONDS_MAX: Final = 240.0


def start_flood(spec: FloodSpec) -> subprocess.Popen[bytes]:
    """Start a flood. It ends by itself, or when its stdin is closed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.abuse.floods.attacker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=REPOSITORY,
        process_group=0,
    )
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode(spec) + b"\n")
    process.stdin.flush()
    return process


def wait_for_flood(process: subprocess.Popen[bytes], seconds: float) -> FloodTotals:
    """Wait for a flood to end and return its totals. Raise AssertionError if its process fails."""
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        process.wait(seconds + SECONDS_MORE_MAX)
    finally:
        process.kill()
        printed = process.stdout.read()
        process.stdout.close()
        process.stdin.close()
        process.wait()
    assert process.returncode == 0, f"the attacker exited with code {process.returncode}"
    return msgspec.json.decode(printed, type=FloodTotals)


def run_flood(target: AttackTarget, spec: FloodSpec) -> FloodTotals:
    """Run a flood to its end and count what it sent."""
    done = wait_for_flood(start_flood(spec), spec.seconds)
    target.meter.total += done.sent
    target.meter.largest = max(target.meter.largest, done.largest)
    target.responses += done.responses
    return done


def send_numbered_requests(target: AttackTarget, kind: str, requests: int, **more: Any) -> None:
    """Send numbered requests to every node until each has been answered."""
    addresses = [(node.kafka.host, node.kafka.port) for node in target.nodes]
    spec = FloodSpec([kind], addresses, connections=64, seconds=PREPARE_SECONDS_MAX, requests=requests, **more)
    done = wait_for_flood(start_flood(spec), spec.seconds)
    assert done.responses >= requests * len(addresses), f"{done.responses} of {requests} × {len(addresses)} responses"
