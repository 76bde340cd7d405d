"""`chronik start --processes N`: a supervisor for several nodes on one machine.

A node runs one event loop and uses one processor, so a large machine runs several nodes. The machine is the rack of its
nodes, which keeps two replicas of a partition off the same machine while there are enough machines. All nodes are
listed in `[[peers]]`, and one config file serves all of them.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from chronik.cli.passwords import PASSWORD_VARIABLE
from chronik.config import Address, NodeConfig
from chronik.errors import ConfigError
from chronik.listeners import ADVERTISED_LISTENERS, LISTENERS
from chronik.log_output import print_notice
from chronik.node.service_manager import READY, SOCKET_VARIABLE, STOPPING, notify_service_manager

POLL_SECONDS: Final = 0.1
RESTART_SECONDS_MIN: Final = 1.0
RESTART_SECONDS_MAX: Final = 30.0
"""Maximum delay in seconds before the supervisor restarts an exited node."""

STABLE_SECONDS: Final = 60.0
"""Uptime in seconds after which the supervisor resets a node's restart delay to the minimum."""

EXIT_REFUSED: Final = 2
"""Exit code of a node with an invalid config or data directory. Such a node is not restarted."""


@dataclass
class NodeProcess:
    """A supervised node and its current process."""

    node_id: int
    command: Sequence[str]
    rack: str
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    restart_at: float = 0.0
    """Monotonic time at which the exited process is restarted."""
    restart_delay_s: float = field(default=RESTART_SECONDS_MIN)

    def start(self, now: float) -> None:
        # A service manager accepts readiness notifications from this process only.
        inherited = {name: value for name, value in os.environ.items() if name != SOCKET_VARIABLE}
        with _block_sigint():
            self.process = subprocess.Popen(self.command, env=inherited | {"CHRONIK_RACK": self.rack})
        self.started_at = now

    def poll_exit_code(self, now: float) -> int | None:
        """Return the exit code of a process that has just exited and schedule its restart, otherwise None."""
        if self.process is None or (code := self.process.poll()) is None:
            return None
        self.process = None
        if now - self.started_at >= STABLE_SECONDS:
            self.restart_delay_s = RESTART_SECONDS_MIN
        self.restart_at = now + self.restart_delay_s
        self.restart_delay_s = min(2 * self.restart_delay_s, RESTART_SECONDS_MAX)
        return code


@contextmanager
def _block_sigint() -> Iterator[None]:
    """Block SIGINT in processes that are started within this context.

    A terminal sends Ctrl-C to all processes at once, and then no node could transfer its leadership. Only this process
    receives SIGINT; it stops the nodes one after the other with SIGTERM.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def plan_node_processes(config: NodeConfig, count: int, words: Sequence[str]) -> list[NodeProcess]:
    """Return supervised nodes with consecutive ids, which are not started yet.

    All receive the arguments `words`.

    Raises:
        ConfigError: A node is missing in `[[peers]]`, or an option would give all nodes the same address.
    """
    if count < 1:
        raise ConfigError(f"--processes {count}: expected an integer of at least 1")
    peers_by_id = {peer.id: peer for peer in config.peers}
    for key in (LISTENERS, ADVERTISED_LISTENERS):
        if key in config.broker:
            raise ConfigError(f"{key} in [broker] cannot be used with --processes; set the addresses in [[peers]]")
    if config.advertised is not None:
        raise ConfigError("advertised cannot be used with --processes; set the addresses in [[peers]]")
    found = []
    for number in range(count):
        node_id = config.node_id + number
        if node_id not in peers_by_id:
            raise ConfigError(f"--processes {count}: node {node_id} is missing in [[peers]]")
        command = [sys.executable, "-P", "-m", "chronik", "start", *words]
        command += ["--node-id", str(node_id), "--data", str(config.data_dir / f"node{node_id}")]
        command += ["--kafka", str(peers_by_id[node_id].kafka)]
        if config.http is None or (config.http_is_default and number):  # the console of one node shows all of them
            command += ["--http", "off"]
        elif not config.http_is_default:
            command += ["--http", str(Address(config.http.host, config.http.port + number))]
        if config.registry is not None:
            command += ["--registry", str(Address(config.registry.host, config.registry.port + number))]
        found.append(NodeProcess(node_id, command, config.rack or socket.gethostname()))
    return found


def supervise_nodes(nodes: Sequence[NodeProcess], log_format: str = "text") -> int:
    """Run the nodes until SIGTERM or SIGINT, then stop them; return the first non-zero exit code."""
    stopping: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: stopping.append(received))
    for node in nodes:
        node.start(time.monotonic())
    notify_service_manager(READY)
    result = 0
    while not stopping:
        now = time.monotonic()
        for node in nodes:
            code = node.poll_exit_code(now)
            if code == EXIT_REFUSED:
                result = code
                stopping.append(signal.SIGTERM)
            elif code is not None:
                text = f"node {node.node_id}: process exited with code {code}; restarting it"
                print_notice(text, log_format, logging.WARNING)
            if node.process is None and now >= node.restart_at and not stopping:
                node.start(now)
        time.sleep(POLL_SECONDS)
    notify_service_manager(STOPPING)
    return _stop(nodes, log_format) or result


def _stop(nodes: Sequence[NodeProcess], log_format: str) -> int:
    """Stop the supervised nodes one by one, and return the first non-zero exit code.

    Each can transfer its leadership.
    """
    result = 0
    for node in reversed(nodes):
        if node.process is not None:
            print_notice(f"node {node.node_id}: stopping", log_format, logging.INFO)
            node.process.terminate()
            code = node.process.wait()
            result = result or max(code, 0)
    return result


def build_first_user_arguments(name: str | None, password_file: Path | None) -> list[str]:
    """Return the command-line arguments that make a node create the first user.

    They are empty if `name` is None.

    Raises:
        ConfigError: The password would have to be entered at a prompt.
    """
    if name is None:
        return []
    if password_file is None and PASSWORD_VARIABLE not in os.environ:
        raise ConfigError(f"--add-scram with --processes requires --password-file FILE or {PASSWORD_VARIABLE}")
    return ["--add-scram", name, *(["--password-file", str(password_file)] if password_file else [])]


def build_common_arguments(config_file: Path | None, **options: str | None) -> list[str]:
    """Return the command-line arguments that all supervised nodes have in common."""
    words = []
    for name, value in {"config": config_file, **options}.items():
        if value is not None:
            words += [f"--{name.replace('_', '-')}", str(value)]
    return words
