"""`chronik start --processes N`: several nodes on one machine, started and looked after by one command.

One node is one event loop, and uses one processor. So a large machine runs several, and is their rack: no two replicas
of a partition are on one machine while there are enough machines. All of them are in `[[peers]]`, as nodes are that
have a machine of their own; one file serves them all.
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
from chronik.listeners import ADVERTISED, LISTENERS
from chronik.logs import say
from chronik.node.notifying import READY, SOCKET_VARIABLE, STOPPING, notify

LOOK_SECONDS: Final = 0.1
RESTART_SECONDS_MIN: Final = 1.0
RESTART_SECONDS_MAX: Final = 30.0
"""A node that ends again and again is started ever more slowly, and not given up: its disk may be full for a while."""

STEADY_SECONDS: Final = 60.0
"""One that ran for so long is started again at once."""

EXIT_REFUSED: Final = 2
"""What a node ends with whose config or folder is wrong: to start it again would not help."""


@dataclass
class Child:
    """A node, and its process."""

    node_id: int
    command: Sequence[str]
    rack: str
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    start_at: float = 0.0
    """When it is due to be started again."""
    wait_s: float = field(default=RESTART_SECONDS_MIN)

    def start(self, now: float) -> None:
        # The service manager knows this process alone, and would not believe another.
        inherited = {name: value for name, value in os.environ.items() if name != SOCKET_VARIABLE}
        with _no_interrupts():
            self.process = subprocess.Popen(self.command, env=inherited | {"CHRONIK_RACK": self.rack})
        self.started_at = now

    def ended(self, now: float) -> int | None:
        """Returns its exit code when it has ended, once, and says when it is due again."""
        if self.process is None or (code := self.process.poll()) is None:
            return None
        self.process = None
        if now - self.started_at >= STEADY_SECONDS:
            self.wait_s = RESTART_SECONDS_MIN
        self.start_at = now + self.wait_s
        self.wait_s = min(2 * self.wait_s, RESTART_SECONDS_MAX)
        return code


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """Processes that are started meanwhile never see a SIGINT: a terminal sends Ctrl-C to all of them at once, and then
    none would have another to hand over to. This process hears it, and stops them by SIGTERM one after the other."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def children(config: NodeConfig, count: int, words: Sequence[str]) -> list[Child]:
    """Plans the processes: the node of the config, and those with the next ids. `words` is what each is started with.

    Raises ConfigError when one is not among the peers, or there is no way to tell their ports.
    """
    if count < 1:
        raise ConfigError(f"--processes {count}: expected a whole number, 1 or more")
    places = {peer.id: peer for peer in config.peers}
    for key in (LISTENERS, ADVERTISED):
        if key in config.broker:
            raise ConfigError(f"{key} in [broker]: expected none with --processes; each node is where [[peers]] has it")
    if config.advertised is not None:
        raise ConfigError("advertised: expected none with --processes; each node is where [[peers]] has it")
    found = []
    for number in range(count):
        node_id = config.node_id + number
        if node_id not in places:
            raise ConfigError(f"--processes {count}: expected node {node_id} in [[peers]]")
        command = [sys.executable, "-P", "-m", "chronik", "start", *words]
        command += ["--node-id", str(node_id), "--data", str(config.data_dir / f"node{node_id}")]
        command += ["--kafka", str(places[node_id].kafka)]
        if config.http is None or (config.http_is_default and number):  # one console shows all of them
            command += ["--http", "off"]
        elif not config.http_is_default:
            command += ["--http", str(Address(config.http.host, config.http.port + number))]
        found.append(Child(node_id, command, config.rack or socket.gethostname()))
    return found


def run(nodes: Sequence[Child], log_format: str = "text") -> int:
    """Runs them until SIGTERM or SIGINT, which is passed on. Returns what the first one ended with that was refused."""
    stopping: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: stopping.append(received))
    for node in nodes:
        node.start(time.monotonic())
    notify(READY)
    result = 0
    while not stopping:
        now = time.monotonic()
        for node in nodes:
            code = node.ended(now)
            if code == EXIT_REFUSED:
                result = code
                stopping.append(signal.SIGTERM)
            elif code is not None:
                text = f"node {node.node_id} ended with exit code {code}: it is started again"
                say(text, log_format, logging.WARNING)
            if node.process is None and now >= node.start_at and not stopping:
                node.start(now)
        time.sleep(LOOK_SECONDS)
    notify(STOPPING)
    return _stop(nodes, log_format) or result


def _stop(nodes: Sequence[Child], log_format: str) -> int:
    """Stops one after the other, so that each hands over to those that are left. Returns the first code but 0."""
    result = 0
    for node in reversed(nodes):
        if node.process is not None:
            say(f"stopping node {node.node_id}", log_format, logging.INFO)
            node.process.terminate()
            code = node.process.wait()
            result = result or max(code, 0)
    return result


def words_of_first_user(name: str | None, password_file: Path | None) -> list[str]:
    """Returns what tells nodes of the first user. Raises ConfigError when each would ask for the password."""
    if name is None:
        return []
    if password_file is None and PASSWORD_VARIABLE not in os.environ:
        raise ConfigError(f"--add-scram with --processes: expected --password-file FILE, or {PASSWORD_VARIABLE}")
    return ["--add-scram", name, *(["--password-file", str(password_file)] if password_file else [])]


def common_words(config_file: Path | None, **options: str | None) -> list[str]:
    """Returns what all of them are started with."""
    words = []
    for name, value in {"config": config_file, **options}.items():
        if value is not None:
            words += [f"--{name.replace('_', '-')}", str(value)]
    return words
