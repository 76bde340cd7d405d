"""Tests of lost JVMs: an error in one line instead of a Py4J stack trace, and a new session afterwards."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from chronik.pipeline.spark.jvm import SparkUnavailableError, describe_ended_jvm, raise_if_jvm_ended, stopping

pytestmark = pytest.mark.xdist_group("jvms")

SECONDS_MAX = 300.0

KILLED = """
import os, signal, sys, threading, time
from chronik.pipeline.spark import runtime
from chronik.pipeline.spark.tasks import LazySparkTaskRunner

create = runtime.session

def create_and_kill(*args, **kwargs):
    spark = create(*args, **kwargs)
    if sys.argv[1] == "before":
        kill(spark)
    else:
        threading.Timer(2, kill, [spark]).start()
    return spark

def kill(spark):
    os.kill(spark.sparkContext._gateway.proc.pid, signal.SIGKILL)

runtime.session = create_and_kill
with LazySparkTaskRunner("local[1]") as tasks:
    try:
        tasks(time.sleep, [10])
    except Exception as error:
        print(type(error).__name__, error)
if sys.argv[1] == "before":
    spark = create("local[1]")
    print(spark.range(3).count())
"""


CRASHING_ONCE = """
import os, signal, sys
from chronik.pipeline.spark.tasks import LazySparkTaskRunner

def crash_once(marker):
    if not os.path.exists(marker):
        open(marker, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"

with LazySparkTaskRunner() as tasks:
    print(tasks(crash_once, [sys.argv[1]]))
"""


class EndedSession:
    """A session whose JVM process has ended."""

    def __init__(self, process: subprocess.Popen[bytes] | None) -> None:
        self.stops = 0
        self.sparkContext = SimpleNamespace(_gateway=SimpleNamespace(proc=process), _jsc=object())

    def stop(self) -> None:
        self.stops += 1


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"]) as process:
        yield process
        process.kill()


def test_running_jvm_is_not_reported(process: subprocess.Popen[bytes]) -> None:
    session: Any = EndedSession(process)
    assert describe_ended_jvm(session) is None
    with pytest.raises(Py4JError, match="other"), raise_if_jvm_ended(session, seconds_max=0.01):
        raise Py4JError("other")
    with stopping(session) as entered:
        assert entered is session
    assert session.stops == 1


def test_jvm_of_another_process_is_not_reported() -> None:
    session: Any = EndedSession(None)
    assert describe_ended_jvm(session) is None


def test_killed_jvm_is_reported_with_signal(process: subprocess.Popen[bytes]) -> None:
    session: Any = EndedSession(process)
    process.send_signal(signal.SIGKILL)
    with pytest.raises(SparkUnavailableError) as raised, raise_if_jvm_ended(session):
        raise ConnectionRefusedError("[Errno 111] Connection refused")
    assert str(raised.value) == (
        "the Spark JVM has ended: it was killed by SIGKILL (the machine may have run out of memory); start Spark again"
    )


def test_exited_jvm_is_reported_with_exit_code() -> None:
    with subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"]) as process:
        process.wait()
    session: Any = EndedSession(process)
    assert describe_ended_jvm(session) == "the Spark JVM has ended: it exited with code 3; start Spark again"


def test_error_of_task_is_kept_while_session_of_ended_jvm_is_not_stopped(process: subprocess.Popen[bytes]) -> None:
    session: Any = EndedSession(process)
    process.kill()
    process.wait()
    with pytest.raises(ValueError, match="kept"), stopping(session):
        raise ValueError("kept")
    assert session.stops == 0


def test_py4j_stack_trace_is_not_logged(process: subprocess.Popen[bytes], caplog: pytest.LogCaptureFixture) -> None:
    session: Any = EndedSession(process)
    process.kill()

    def call_jvm() -> None:
        logging.getLogger().error("Exception while sending command.")
        logging.getLogger().error("another error")
        raise Py4JError("An error occurred while calling o40.collectToPython")

    with pytest.raises(SparkUnavailableError), raise_if_jvm_ended(session):
        call_jvm()
    logging.getLogger().error("Exception while sending command.")  # from another thread, later
    assert [record.message for record in caplog.records] == ["another error"]


@pytest.mark.parametrize("moment", ["before", "during"])
def test_killed_jvm_gives_error_in_one_line(moment: str) -> None:
    command = [sys.executable, "-c", KILLED, moment]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    first, *rest = ran.stdout.splitlines()
    assert first.startswith("SparkUnavailableError the Spark JVM has ended: it was killed by SIGKILL"), ran
    assert rest == (["3"] if moment == "before" else [])
    assert ran.stderr == ""


def test_task_of_killed_worker_runs_again_in_local_mode(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "CHRONIK_SPARK_MASTER"}
    ran = subprocess.run(
        [sys.executable, "-c", CRASHING_ONCE, str(tmp_path / "crashed")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (0, "['done']\n"), ran.stderr
    assert (tmp_path / "crashed").exists()
