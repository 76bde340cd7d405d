"""The commands in docs/operate/backup.md are executed in order."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from chronik.testing.broker import Broker
from tests.cli.cluster.local_cluster import ConsecutivePorts
from tests.migration import sample_data

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[3] / "docs" / "operate" / "backup.md"


def blocks() -> list[str]:
    return re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def with_free_ports(text: str) -> str:
    for port in dict.fromkeys(re.findall(r"--kafka-port (\d+)", text)):
        kafka, http, raft = ConsecutivePorts(), ConsecutivePorts(), ConsecutivePorts()
        for each in (kafka, http, raft):
            each.release()
        ports = f"--kafka-port {kafka.first} --http-port {http.first} --raft-port {raft.first}"
        text = text.replace(f"--kafka-port {port}", ports).replace(f"127.0.0.1:{port}", f"127.0.0.1:{kafka.first}")
    return text


def test_commands_of_backup_page_succeed(tmp_path: Path) -> None:
    with Broker(tmp_path / "standalone") as broker:
        sample_data.produce(broker.bootstrap, "clicks", 100)
    shutil.copytree(tmp_path / "standalone" / "data", tmp_path / "data")
    command = tmp_path / "chronik"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m chronik "$@"\n')
    command.chmod(0o700)
    assert len(blocks()) == 4
    script = "set -eo pipefail\n" + with_free_ports("\n".join(blocks()))
    environment = os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    try:
        done = subprocess.run(
            ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=180
        )
        assert done.returncode == 0, done.stderr
    finally:
        for folder in ("first", "second"):
            subprocess.run([command, "cluster", "down", "--dir", tmp_path / folder], capture_output=True, timeout=60)
    assert re.search(r"run 1: 3 partitions, 0 of them updated incrementally, [1-9][\d,]* bytes copied", done.stdout)
    assert re.search(r"run 2: 3 partitions, 3 of them updated incrementally, [1-9][\d,]* bytes copied", done.stdout)
    assert "imported and verified: 3 partitions, 2,000 records" in done.stdout
    assert "imported and verified: 1 partition, 100 records" in done.stdout
    assert re.search(r"(?m)^clicks\b", done.stdout)
