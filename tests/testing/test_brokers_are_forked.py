"""Brokers are forked off processes that have everything loaded: `chronik.testing.nursery`."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from chronik.testing import Broker
from chronik.testing import nursery as nurseries
from chronik.testing.control import BrokerFailed
from tests.clients.running import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks brokers")]


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_neighbours_have_seeds_of_hashes_of_their_own() -> None:
    with Broker() as one, Broker() as two, Broker() as three:
        parents = [parent_of(each.pid) for each in (one, two, three)]
        assert len(set(parents)) == nurseries.NURSERIES
        assert os.getpid() not in parents


def test_a_broker_lives_in_the_folder_and_the_environment_of_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Broker(log_level="info") as broker:
        assert Path(f"/proc/{broker.pid}/cwd").readlink() == tmp_path
        here = broker.log.split()[1][:2]
        monkeypatch.setenv("TZ", "XYZ-05" if here < "12" else "XYZ+05")
        broker.restart()
        assert broker.log.splitlines()[-1].split()[1][:2] != here


def test_how_it_ended_is_told() -> None:
    with Broker() as broker:
        process = broker._running_process()
        os.kill(broker.pid, signal.SIGKILL)
        assert process.wait(30) == -signal.SIGKILL
        with pytest.raises(BrokerFailed, match="exit code -9"):
            broker.stop()
        broker.start()
        process = broker._running_process()
        broker.stop()
        assert process.wait(30) == 0


def test_one_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("no folder")
    with pytest.raises(BrokerFailed, match="data"):
        Broker(tmp_path).start()


def test_when_a_nursery_is_gone_so_are_its_brokers_and_the_next_have_another() -> None:
    with Broker() as broker:
        pid = broker.pid
        os.kill(parent_of(pid), signal.SIGKILL)
        wait_for("the broker is given up", lambda: not broker.running)
        wait_for("it has ended", lambda: not is_there(pid))
        broker.start()
        assert parent_of(broker.pid) != os.getpid()


class Elsewhere(Broker):
    @property
    def command(self) -> list[str]:
        return [sys.executable, "-P", "-m", "chronik.testing.broker_process"]


def test_a_command_of_its_own_is_run() -> None:
    with Elsewhere() as broker:
        assert parent_of(broker.pid) == os.getpid()
