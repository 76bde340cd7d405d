"""The commands in docs/operate/operations.md are executed in order."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.cluster.local_cluster import LocalCluster
from tests.cli.command_line import run_chronik

pytestmark = pytest.mark.xdist_group("cluster")

PAGE = Path(__file__).parents[3] / "docs" / "operate" / "operations.md"
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands() -> Iterator[str]:
    for block in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        yield from block.splitlines()


def adapt_command(command: str, cluster: LocalCluster) -> list[str]:
    """Replace the page's directory and ports by those of the test."""
    words = shlex.split(command)
    if words[1:3] == ["cluster", "up"]:
        ports = ("--kafka-port", cluster.kafka, "--http-port", cluster.http, "--raft-port", cluster.raft)
        words += map(str, ports)
    return [
        str(cluster.directory) if word == "cluster" and before == "--dir" else word for before, word in pairs(words)
    ]


def pairs(words: list[str]) -> list[tuple[str, str]]:
    return list(zip(["", *words], words, strict=False))[1:]


def test_commands_of_operations_page_succeed(local: LocalCluster) -> None:
    shown = list(commands())
    assert len(shown) > 15
    for command in shown:
        records = ""
        if command.startswith("seq 1000 | "):
            records, command = "\n".join(map(str, range(1000))), command.removeprefix("seq 1000 | ")
        done = run_chronik(*adapt_command(command, local), bootstrap=f"127.0.0.1:{local.kafka + 2}", stdin=records)
        assert done.code == 0, f"{command}: {done.out}{done.err}"
    assert sorted(path.name for path in local.directory.glob("*.toml*")) == [
        "node1.toml.removed",
        "node2.toml.removed",
        "node3.toml",
        "node4.toml",
        "node5.toml",
    ]
