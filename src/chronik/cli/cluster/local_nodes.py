"""The nodes of a local cluster: their files in the cluster's directory, and their processes.

DIR/node1.toml   config file; contains the cluster secret, so only its owner may read it
DIR/node1/       data directory
DIR/node1.log    log file
DIR/node1.pid    process id
DIR/node1.toml.removed   config file of a node that was removed from the cluster; other nodes may still list it
"""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from chronik.cli.arguments import InvalidInput
from chronik.config import Address, NodeConfig, PeerConfig, load_config
from chronik.errors import ChronikError

HOST = "127.0.0.1"
SECRET_BYTES = 32
DEFAULT_REPLICATION_FACTOR = 3
"""Replication factor of new topics, if there are enough nodes: writes continue when one replica is lost."""

_CONFIG_FILE = re.compile(r"node(\d+)\.toml")
_RETIRED_FILE = re.compile(r"node(\d+)\.toml\.removed")


class ClusterStartError(ChronikError):
    """A node of a local cluster failed to start, or does not list every broker."""


class ClusterStopError(ChronikError):
    """A node of a local cluster did not stop."""


@dataclass(frozen=True, slots=True)
class BasePorts:
    """The ports of node 1; each further node uses the next ones."""

    kafka: int
    http: int
    raft: int


@dataclass(frozen=True, slots=True)
class LocalNode:
    directory: Path
    config: NodeConfig

    @property
    def id(self) -> int:
        return self.config.node_id

    @property
    def config_file(self) -> Path:
        return self.directory / f"node{self.id}.toml"

    @property
    def retired_file(self) -> Path:
        return self.directory / f"node{self.id}.toml.removed"

    @property
    def log_file(self) -> Path:
        return self.directory / f"node{self.id}.log"

    @property
    def _pid_file(self) -> Path:
        return self.directory / f"node{self.id}.pid"

    def addresses(self) -> dict[str, Address]:
        raft = {peer.id: peer.raft for peer in self.config.peers}
        found = {"kafka": self.config.kafka, "raft": raft.get(self.id), "http": self.config.http}
        return {kind: address for kind, address in found.items() if address is not None}

    def pid(self) -> int | None:
        """Return the pid of the node's process, or None if it is not running or the pid belongs to another program."""
        try:
            pid = int(self._pid_file.read_text())
        except (OSError, ValueError):
            return None
        return pid if str(self.config_file) in _command_line(pid) else None

    def start(self) -> subprocess.Popen[bytes]:
        """Start the node as a detached process that outlives this command."""
        with self.log_file.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "chronik", "start", "--config", str(self.config_file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                env=_node_environment(os.environ),
                start_new_session=True,
            )
        self._pid_file.write_text(f"{process.pid}\n")
        return process

    def terminate(self, pid: int) -> None:
        with suppress(ProcessLookupError):  # the process may have just exited
            os.kill(pid, signal.SIGTERM)

    def remove_pid_file(self) -> None:
        self._pid_file.unlink(missing_ok=True)

    def last_log_line(self) -> str:
        lines = self.log_file.read_text(errors="replace").splitlines() if self.log_file.exists() else []
        return lines[-1].removeprefix("chronik: ") if lines else "no log output"


def find_nodes(folder: Path) -> list[LocalNode]:
    """Return the nodes of a directory by id; an empty list if the directory has no cluster.

    Raises:
        ConfigError: A config file is invalid.
        InvalidInput: A config file is missing.
    """
    folder = folder.resolve()
    found = [path for path in folder.iterdir() if _CONFIG_FILE.fullmatch(path.name)] if folder.is_dir() else []
    nodes = sorted((LocalNode(folder, load_config(path, {})) for path in found), key=lambda node: node.id)
    expected = {peer.id for node in nodes for peer in node.config.peers} - retired_node_ids(folder)
    missing = sorted(expected - {node.id for node in nodes})
    if missing:
        names = ", ".join(f"node{node_id}.toml" for node_id in missing)
        raise InvalidInput(f"{folder}: {names} missing; other nodes list these nodes as peers")
    return nodes


def retired_node_ids(folder: Path) -> set[int]:
    """Return the ids of removed nodes."""
    names = (_RETIRED_FILE.fullmatch(path.name) for path in folder.iterdir()) if folder.is_dir() else ()
    return {int(match[1]) for match in names if match is not None}


def load_nodes(folder: Path) -> list[LocalNode]:
    """Return the nodes of a directory; raise InvalidInput if it has no cluster."""
    nodes = find_nodes(folder)
    if not nodes:
        raise InvalidInput(f"no cluster in {folder}; use chronik cluster up to create one")
    return nodes


def plan_nodes(folder: Path, count: int, ports: BasePorts) -> list[LocalNode]:
    """Plan the nodes of a new cluster without writing files."""
    folder = folder.resolve()
    peers = tuple(
        PeerConfig(number + 1, Address(HOST, ports.kafka + number), Address(HOST, ports.raft + number))
        for number in range(count)
    )
    replicas = min(DEFAULT_REPLICATION_FACTOR, count)
    common = NodeConfig(
        replication_factor=replicas,
        min_insync_replicas=2 if replicas == DEFAULT_REPLICATION_FACTOR else 1,
        cluster_secret=secrets.token_urlsafe(SECRET_BYTES),
        peers=peers,
    )
    return [
        LocalNode(
            folder,
            replace(
                common,
                node_id=peer.id,
                data_dir=folder / f"node{peer.id}",
                kafka=peer.kafka,
                http=Address(HOST, ports.http + peer.id - 1),
            ),
        )
        for peer in peers
    ]


def write_configs(nodes: list[LocalNode]) -> None:
    for node in nodes:
        node.directory.mkdir(parents=True, exist_ok=True)
        _write_private(node.config_file, "\n".join(_config_lines(node.config)) + "\n")


def check_ports(nodes: list[LocalNode]) -> None:
    """Raise InvalidInput if a port is used by two nodes or by another program."""
    seen: dict[Address, str] = {}
    for node in nodes:
        for kind, address in node.addresses().items():
            what = f"the {kind} port of node {node.id}"
            if address in seen:
                raise InvalidInput(f"port {address.port} would be both {seen[address]} and {what}")
            seen[address] = what
            if is_port_in_use(address):
                raise InvalidInput(
                    f"{what}, {address}, is in use by another program: choose another with --{kind}-port"
                )


def _config_lines(config: NodeConfig) -> Iterator[str]:
    yield f"node_id = {config.node_id}"
    yield f"data_dir = {_quote_toml(config.data_dir)}"
    yield f"kafka = {_quote_toml(config.kafka)}"
    yield f"http = {_quote_toml(config.http)}"
    if config.rack is not None:
        yield f"rack = {_quote_toml(config.rack)}"
    yield f"replication_factor = {config.replication_factor}"
    yield f"min_insync_replicas = {config.min_insync_replicas}"
    yield f"cluster_secret = {_quote_toml(config.cluster_secret)}"
    for peer in config.peers:
        yield "\n[[peers]]"
        yield f"id = {peer.id}"
        yield f"kafka = {_quote_toml(peer.kafka)}"
        yield f"raft = {_quote_toml(peer.raft)}"
        if peer.voter is not None:
            yield f"voter = {'true' if peer.voter else 'false'}"


def _quote_toml(value: object) -> str:
    """Quote a TOML string; the escapes of JSON are valid in TOML."""
    return json.dumps(str(value), ensure_ascii=False)


def _write_private(path: Path, text: str) -> None:
    """Create a file that only its owner can read, from the moment it exists."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)


def _node_environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without CHRONIK_… variables, because settings of one node would apply to all nodes."""
    return {name: value for name, value in inherited.items() if not name.startswith("CHRONIK_")}


def is_port_in_use(address: Address) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the node itself does
        try:
            probe.bind(address)
            probe.listen(1)
        except OSError:
            return True
    return False


def _command_line(pid: int) -> str:
    """Return the command line of a process, or an empty string if it does not exist."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except FileNotFoundError:
        if Path("/proc/self").exists():
            return ""
    except ProcessLookupError:
        return ""
    listed = subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return listed.stdout
