"""packaging/systemd/chronik.service: systemd understands it, it is confined, and what it runs is a node."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from chronik.node.descriptors import DESCRIPTORS_WANTED
from chronik.node.run import EXIT_REFUSED
from tests.cli.running import TIMEOUT_S
from tests.packaging.building import ROOT
from tests.packaging.starting import placed, running

UNIT = ROOT / "packaging" / "systemd" / "chronik.service"
CONFIG = "/etc/chronik/node.toml"
EXPOSURE_MAX = 20
"""In tenths, by systemd's own reckoning: 100 is a service that may do everything, 20 is "OK", the best but one."""


def settings() -> dict[str, str]:
    """The last value of each."""
    return dict(re.findall(r"^([A-Z]\w+)=(.*)$", UNIT.read_text(encoding="utf-8"), re.MULTILINE))


def told_by_systemd(*words: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    return subprocess.run(
        ["systemd-analyze", *words], capture_output=True, text=True, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL
    )


@pytest.fixture
def unit(tmp_path: Path) -> str:
    """The unit with a program that is there, as systemd asks whether it is."""
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text(encoding="utf-8").replace("/opt/chronik/bin/chronik", sys.executable))
    return str(copy)


@pytest.mark.slow
def test_systemd_finds_nothing_wrong_with_it(unit: str) -> None:
    """Other units of the machine are looked at, too, and may have faults of their own."""
    finished = told_by_systemd("verify", "--man=no", "--recursive-errors=no", unit)
    assert finished.returncode == 0, finished.stderr
    assert "chronik.service" not in finished.stderr


@pytest.mark.slow
def test_systemd_would_find_a_word_that_it_does_not_know(unit: str) -> None:
    """What the test above is worth."""
    Path(unit).write_text(Path(unit).read_text().replace("KillMode=mixed", "KillMode=sometimes"))
    finished = told_by_systemd("verify", "--man=no", "--recursive-errors=no", unit)
    assert finished.returncode != 0
    assert "chronik.service" in finished.stderr


@pytest.mark.slow
def test_it_is_confined(unit: str) -> None:
    finished = told_by_systemd("security", "--offline=yes", "--no-pager", f"--threshold={EXPOSURE_MAX}", unit)
    assert finished.returncode == 0, finished.stdout


def test_what_it_says_of_nodes_is_so() -> None:
    assert settings()["RestartPreventExitStatus"] == str(EXIT_REFUSED)
    assert int(settings()["LimitNOFILE"]) == DESCRIPTORS_WANTED
    assert settings()["Type"] == "notify"
    assert settings()["KillMode"] == "mixed", "with --processes the first process stops the others"


@pytest.mark.slow
def test_what_it_runs_is_a_node_that_tells_when_it_is_ready_and_ends_in_time(tmp_path: Path) -> None:
    program, *words = settings()["ExecStart"].split()
    assert program.endswith("/bin/chronik")
    assert CONFIG in words
    (tmp_path / "node.toml").write_text('kafka = "127.0.0.1:0"\n')
    place = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(place))
        manager.settimeout(TIMEOUT_S)
        words = placed(words, {CONFIG: str(tmp_path / "node.toml")})
        with running(words, tmp_path, NOTIFY_SOCKET=str(place)) as process:
            assert manager.recv(100) == b"READY=1"
            assert (tmp_path / "data").is_dir(), "where the unit's WorkingDirectory is"
            process.send_signal(getattr(signal, settings()["KillSignal"]))
            assert process.wait(float(settings()["TimeoutStopSec"])) == 0
