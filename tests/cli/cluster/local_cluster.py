"""A local cluster that `chronik cluster up` starts, for one test."""

from __future__ import annotations

import os
import random
import signal
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chronik.cli.cluster.local_nodes import HOST, BasePorts, LocalNode, plan_nodes, write_configs
from chronik.config import load_config
from tests.cli.command_line import CommandResult, run_chronik

NODES = 3


FIRST_PORTS = range(12_000, 32_000)
"""Ports below Linux's ephemeral range: no outgoing connection takes a port between `release` and its use."""


class ConsecutivePorts:
    """Consecutive free ports, reserved until `release`: the command uses the ports after the first one."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []
        while len(self._sockets) < NODES:
            self.release()
            self._sockets = []
            self.first: int = random.choice(FIRST_PORTS)
            with suppress(OSError):
                for port in range(self.first, self.first + NODES):
                    self._sockets.append(reserve_port(port))

    def release(self) -> None:
        for each in self._sockets:
            each.close()


def reserve_port(port: int) -> socket.socket:
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((HOST, port))
    except BaseException:
        bound.close()
        raise
    return bound


@dataclass
class LocalCluster:
    directory: Path
    kafka: int
    http: int
    raft: int

    def up(self, *more: str) -> CommandResult:
        ports = ("--kafka-port", self.kafka, "--http-port", self.http, "--raft-port", self.raft)
        return run_chronik("cluster", "up", "--dir", str(self.directory), *map(str, ports), *more)

    def write_config_files(self, count: int) -> None:
        """Write the config files as `up` does, without starting processes."""
        write_configs(plan_nodes(self.directory, count, BasePorts(self.kafka, self.http, self.raft)))

    def down(self) -> CommandResult:
        return run_chronik("cluster", "down", "--dir", str(self.directory))

    def status(self) -> Any:
        return run_chronik("cluster", "status", "--dir", str(self.directory), "--json").json

    def statuses(self) -> list[str]:
        return [node["status"] for node in self.status()["nodes"]]

    def pids(self) -> list[int | None]:
        return [node["pid"] for node in self.status()["nodes"]]

    def brokers(self, node_id: int) -> str:
        return run_chronik("metadata", bootstrap=f"{HOST}:{self.kafka + node_id - 1}").lines[0]


def kill_nodes(folder: Path) -> None:
    for file in folder.glob("node*.toml"):
        node = LocalNode(folder, load_config(file, {}))
        if (pid := node.pid()) is not None:
            os.kill(pid, signal.SIGKILL)
