"""Fork server: brokers are forked from processes that have imported everything (`chronik.testing.fork_server`)."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from chronik.testing import Broker
from chronik.testing import fork_server as nurseries
from chronik.testing.control import BrokerFailed
from tests.clients.client_process import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks brokers")]


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def process_exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_brokers_are_forked_from_different_servers() -> None:
    with Broker() as one, Broker() as two, Broker() as three:
        parents = [parent_of(each.pid) for each in (one, two, three)]
        assert len(set(parents)) == nurseries.FORK_SERVER_COUNT
        assert os.getpid() not in parents


def test_forked_broker_has_current_directory_and_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Broker(log_level="info") as broker:
        assert Path(f"/proc/{broker.pid}/cwd").readlink() == tmp_path
        here = broker.log.split()[1][:2]
        monkeypatch.setenv("TZ", "XYZ-05" if here < "12" else "XYZ+05")
        broker.restart()
        assert broker.log.splitlines()[-1].split()[1][:2] != here


def test_exit_code_of_forked_broker_is_reported() -> None:
    with Broker() as broker:
        process = broker._running_process()
        os.kill(broker.pid, signal.SIGKILL)
        assert process.wait(30) == -signal.SIGKILL
        with pytest.raises(BrokerFailed, match="code -9"):
            broker.stop()
        broker.start()
        process = broker._running_process()
        broker.stop()
        assert process.wait(30) == 0


def test_start_failure_of_forked_broker_is_reported(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("no folder")
    with pytest.raises(BrokerFailed, match="data"):
        Broker(tmp_path).start()


def test_killed_fork_server_kills_its_brokers_and_is_replaced() -> None:
    with Broker() as broker:
        pid = broker.pid
        os.kill(parent_of(pid), signal.SIGKILL)
        wait_for("the broker is given up", lambda: not broker.is_running)
        wait_for("it has ended", lambda: not process_exists(pid))
        broker.start()
        assert parent_of(broker.pid) != os.getpid()


class BrokerWithOwnCommand(Broker):
    @property
    def command(self) -> list[str]:
        return [sys.executable, "-P", "-m", "chronik.testing.broker_process"]


def test_broker_with_own_command_is_not_forked() -> None:
    with BrokerWithOwnCommand() as broker:
        assert parent_of(broker.pid) == os.getpid()
