"""`chronik pipeline run` reports a Spark JVM that was killed, in one line and with exit code 1."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord
from chronik.testing import Broker

pytestmark = pytest.mark.xdist_group("jvms")

SECONDS_MAX = 300.0


def find_jvm(driver: int) -> int:
    """Return the process id of the JVM, a child of the driver."""
    children = Path(f"/proc/{driver}/task/{driver}/children").read_text(encoding="ascii").split()
    (jvm,) = (int(child) for child in children if b"java" in Path(f"/proc/{child}/cmdline").read_bytes())
    return jvm


def test_run_command_reports_killed_jvm(tmp_path: Path, chronik_broker: Broker, chronik_topic: str) -> None:
    with chronik_broker.cluster() as cluster:
        Producer(cluster).send(chronik_topic, [OutgoingRecord(b"v") for _ in range(10)])
    command = [sys.executable, "-m", "chronik", "pipeline", "run", "-b", chronik_broker.bootstrap, "--interval", "1"]
    command += ["--topics", chronik_topic, "--table-root", str(tmp_path / "tables"), "--master", "local[1]", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        assert chronik_topic in driver.stdout.readline(), "the first round was reported"
        os.kill(find_jvm(driver.pid), signal.SIGKILL)
        _, errors = driver.communicate(timeout=SECONDS_MAX)
    assert driver.returncode == 1
    assert errors == (
        "chronik: the Spark JVM has ended: it was killed by SIGKILL (the machine may have run out of memory); "
        "start Spark again\n"
    )
