"""A local cluster that `chronik cluster up` starts, for one test."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chronik.cli.cluster.local_nodes import HOST, FirstPorts, LocalNode, planned_nodes, write_configs
from chronik.config import load_config
from tests.cli.running import Outcome, chronik

NODES = 3


class Neighbours:
    """Consecutive free ports, reserved until `release`: the command uses the ports after the first one."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []
        while len(self._sockets) < NODES:
            self.release()
            self._sockets = [reserved()]
            self.first: int = self._sockets[0].getsockname()[1]
            with suppress(OSError, OverflowError):
                for port in range(self.first + 1, self.first + NODES):
                    self._sockets.append(reserved(port))

    def release(self) -> None:
        for each in self._sockets:
            each.close()


def reserved(port: int = 0) -> socket.socket:
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((HOST, port))
    except BaseException:
        bound.close()
        raise
    return bound


@dataclass
class Local:
    folder: Path
    kafka: int
    http: int
    raft: int

    def up(self, *more: str) -> Outcome:
        ports = ("--kafka-port", self.kafka, "--http-port", self.http, "--raft-port", self.raft)
        return chronik("cluster", "up", "--dir", str(self.folder), *map(str, ports), *more)

    def lay_out(self, count: int) -> None:
        """Write the config files as `up` does, without starting processes."""
        write_configs(planned_nodes(self.folder, count, FirstPorts(self.kafka, self.http, self.raft)))

    def down(self) -> Outcome:
        return chronik("cluster", "down", "--dir", str(self.folder))

    def status(self) -> Any:
        return chronik("cluster", "status", "--dir", str(self.folder), "--json").json

    def statuses(self) -> list[str]:
        return [node["status"] for node in self.status()["nodes"]]

    def pids(self) -> list[int | None]:
        return [node["pid"] for node in self.status()["nodes"]]

    def brokers(self, node_id: int) -> str:
        return chronik("metadata", bootstrap=f"{HOST}:{self.kafka + node_id - 1}").lines[0]


def end_all(folder: Path) -> None:
    for file in folder.glob("node*.toml"):
        node = LocalNode(folder, load_config(file, {}))
        if (pid := node.pid()) is not None:
            os.kill(pid, signal.SIGKILL)
