"""The systemd unit: it is valid and sandboxed, and it runs a node."""

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
from chronik.node.run import EXIT_NOT_STARTED
from tests.cli.command_line import TIMEOUT_S
from tests.packaging.build_steps import ROOT
from tests.packaging.node_process import replace_paths, run_node

UNIT = ROOT / "packaging" / "systemd" / "chronik.service"
CONFIG = "/etc/chronik/node.toml"
EXPOSURE_MAX = 20
"""Exposure level in tenths, as systemd computes it: 100 is unrestricted, 20 is "OK"."""


def settings() -> dict[str, str]:
    """Return the unit's settings, the last value of each."""
    return dict(re.findall(r"^([A-Z]\w+)=(.*)$", UNIT.read_text(encoding="utf-8"), re.MULTILINE))


def run_systemd_analyze(*command_arguments: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    return subprocess.run(
        ["systemd-analyze", *command_arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        stdin=subprocess.DEVNULL,
    )


@pytest.fixture
def unit(tmp_path: Path) -> str:
    """The unit with an existing program, because systemd checks that."""
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text(encoding="utf-8").replace("/opt/chronik/bin/chronik", sys.executable))
    return str(copy)


@pytest.mark.slow
def test_systemd_unit_is_valid(unit: str) -> None:
    """Other units of the machine may have errors, which are ignored."""
    completed = run_systemd_analyze("verify", "--man=no", "--recursive-errors=no", unit)
    assert completed.returncode == 0, completed.stderr
    assert "chronik.service" not in completed.stderr


@pytest.mark.slow
def test_systemd_analyze_detects_invalid_setting(unit: str) -> None:
    """A counter-check of the previous test."""
    Path(unit).write_text(Path(unit).read_text().replace("KillMode=mixed", "KillMode=sometimes"))
    completed = run_systemd_analyze("verify", "--man=no", "--recursive-errors=no", unit)
    assert completed.returncode != 0
    assert "chronik.service" in completed.stderr


@pytest.mark.slow
def test_systemd_unit_is_sandboxed(unit: str) -> None:
    completed = run_systemd_analyze("security", "--offline=yes", "--no-pager", f"--threshold={EXPOSURE_MAX}", unit)
    assert completed.returncode == 0, completed.stdout


def test_systemd_unit_matches_node_settings() -> None:
    assert settings()["RestartPreventExitStatus"] == str(EXIT_NOT_STARTED)
    assert int(settings()["LimitNOFILE"]) == DESCRIPTORS_WANTED
    assert settings()["Type"] == "notify"
    assert settings()["KillMode"] == "mixed", "with --processes the first process stops the others"


@pytest.mark.slow
def test_systemd_unit_command_notifies_readiness_and_stops_in_time(tmp_path: Path) -> None:
    program, *command_arguments = settings()["ExecStart"].split()
    assert program.endswith("/bin/chronik")
    assert CONFIG in command_arguments
    (tmp_path / "node.toml").write_text('kafka = "127.0.0.1:0"\n')
    socket_path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(socket_path))
        manager.settimeout(TIMEOUT_S)
        command_arguments = replace_paths(command_arguments, {CONFIG: str(tmp_path / "node.toml")})
        with run_node(command_arguments, tmp_path, NOTIFY_SOCKET=str(socket_path)) as process:
            assert manager.recv(100) == b"READY=1"
            assert (tmp_path / "data").is_dir(), "the data directory is in the unit's WorkingDirectory"
            process.send_signal(getattr(signal, settings()["KillSignal"]))
            assert process.wait(float(settings()["TimeoutStopSec"])) == 0
