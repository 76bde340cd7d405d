"""The nodes of a local cluster: their files in the cluster's directory, their processes and their HTTP ports.

DIR/node1.toml   config file; contains the cluster secret, so only its owner may read it
DIR/node1/       data directory
DIR/node1.log    log file
DIR/node1.pid    process id
DIR/node1.toml.removed   config file of a node that was removed from the cluster; other nodes may still list it

A node that is added later gets a config file that lists all nodes of the cluster as its peers. HTTP requests to local
nodes use the token and the certificate from their config files.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from chronik.cli.arguments import InvalidInput
from chronik.client.access.settings import ClientSecurity
from chronik.client.access.tls import create_ssl_context
from chronik.config import Address, NodeConfig, PeerConfig, load_config
from chronik.console.http import is_loopback_host
from chronik.console.http_client import LoginCredentials, create_pinned_context, fetch_status, fetch_unready_reason
from chronik.errors import ChronikError

HOST = "127.0.0.1"
SECRET_BYTES = 32
DEFAULT_REPLICATION_FACTOR = 3
"""Default replication factor of new topics in a local cluster with at least this many nodes."""

_CONFIG_FILE = re.compile(r"node(\d+)\.toml")
_RETIRED_FILE = re.compile(r"node(\d+)\.toml\.removed")

PORTS_TRIED_MAX: Final = 100
STOP_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.05


class ClusterStartError(ChronikError):
    """A node of a local cluster failed to start, or its metadata does not list every broker."""


class ClusterStopError(ChronikError):
    """A node of a local cluster did not stop."""


@dataclass(frozen=True, slots=True)
class BasePorts:
    """The ports of node 1. Each further node uses the next port numbers."""

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

    def list_addresses(self) -> dict[str, Address]:
        raft = {peer.id: peer.raft for peer in self.config.peers}
        found = {"kafka": self.config.kafka, "raft": raft.get(self.id), "http": self.config.http}
        return {kind: address for kind, address in found.items() if address is not None}

    def pid(self) -> int | None:
        """Return the process id of the running node, or None if the node is not running.

        The pid in the file may belong to another program.
        """
        try:
            pid = int(self._pid_file.read_text())
        except (OSError, ValueError):
            return None
        return pid if str(self.config_file) in _read_command_line(pid) else None

    def start(self) -> subprocess.Popen[bytes]:
        """Start the node as a detached process that outlives this command."""
        with self.log_file.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "chronik", "start", "--config", str(self.config_file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                env=_build_node_environment(os.environ),
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
    """Return the nodes of the local cluster in a directory, sorted by id.

    The result is empty if there is no cluster.

    Raises:
        ConfigError: A config file is invalid.
        InvalidInput: A config file is missing.
    """
    folder = folder.resolve()
    found = [path for path in folder.iterdir() if _CONFIG_FILE.fullmatch(path.name)] if folder.is_dir() else []
    nodes = sorted((LocalNode(folder, load_config(path, {})) for path in found), key=lambda node: node.id)
    expected = {peer.id for node in nodes for peer in node.config.peers} - list_retired_node_ids(folder)
    missing = sorted(expected - {node.id for node in nodes})
    if missing:
        names = ", ".join(f"node{node_id}.toml" for node_id in missing)
        raise InvalidInput(f"{folder}: {names} missing; other nodes list these nodes as peers")
    return nodes


def list_retired_node_ids(folder: Path) -> set[int]:
    """Return the ids of local nodes that were removed from the cluster in a directory."""
    names = (_RETIRED_FILE.fullmatch(path.name) for path in folder.iterdir()) if folder.is_dir() else ()
    return {int(match[1]) for match in names if match is not None}


def load_nodes(folder: Path) -> list[LocalNode]:
    """Return the nodes of the local cluster in a directory; raise InvalidInput if there is no cluster."""
    nodes = find_nodes(folder)
    if not nodes:
        raise InvalidInput(f"no cluster in {folder}; use chronik cluster up to create one")
    return nodes


def plan_nodes(folder: Path, count: int, ports: BasePorts) -> list[LocalNode]:
    """Return the nodes of a new local cluster with their configs, without writing files."""
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
        _write_private_file(node.config_file, "\n".join(_format_config_lines(node.config)) + "\n")


def check_ports_available(nodes: list[LocalNode]) -> None:
    """Raise InvalidInput if two nodes of the local cluster use the same port, or another program uses it."""
    seen: dict[Address, str] = {}
    for node in nodes:
        for kind, address in node.list_addresses().items():
            what = f"the {kind} port of node {node.id}"
            if address in seen:
                raise InvalidInput(f"port {address.port} would be both {seen[address]} and {what}")
            seen[address] = what
            if is_port_in_use(address):
                raise InvalidInput(
                    f"{what}, {address}, is in use by another program: choose another with --{kind}-port"
                )


def _format_config_lines(config: NodeConfig) -> Iterator[str]:
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
    """Quote a TOML string. JSON escape sequences are valid in TOML."""
    return json.dumps(str(value), ensure_ascii=False)


def _write_private_file(path: Path, text: str) -> None:
    """Create a file with permissions that only ever allow its owner to read it."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)


def _build_node_environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables for a node's process, without CHRONIK_… variables.

    Those would apply one node's settings to all nodes.
    """
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


def _read_command_line(pid: int) -> str:
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


def get_http_endpoint(
    node: LocalNode, security: ClientSecurity
) -> tuple[Address, str | None, ssl.SSLContext | None] | None:
    """Return the address, token and TLS context of the node's HTTP port, or None if it has no HTTP port."""
    config = node.config
    return None if config.http is None else (config.http, config.http_token, _tls(node, security))


def fetch_local_status(node: LocalNode, timeout_s: float, security: ClientSecurity) -> dict[str, Any] | None:
    """Return the node's `/status`, or None if it has no HTTP port. Raise NodeRequestError if it does not respond."""
    config, tls = node.config, _tls(node, security)
    if config.http is None:
        return None
    return fetch_status(
        config.http, timeout_s, config.http_token, tls, _get_login_credentials(config.http, tls, security)
    )


def fetch_local_unready_reason(node: LocalNode, timeout_s: float, security: ClientSecurity) -> str | None:
    """Return the reason why the node is not ready; None if it is ready or has no HTTP port.

    Raises:
        NodeRequestError: The node does not answer.
        NotAuthorized: The node requires a login that neither its config file nor the client settings have.
    """
    config, tls = node.config, _tls(node, security)
    if config.http is None:
        return None
    return fetch_unready_reason(
        config.http, timeout_s, config.http_token, tls, _get_login_credentials(config.http, tls, security)
    )


def _get_login_credentials(
    address: Address, tls: ssl.SSLContext | None, security: ClientSecurity
) -> LoginCredentials | None:
    """Return the user name and password for a node's HTTP port, or None if there are none.

    They are not sent unencrypted.
    """
    if not security.username or (tls is None and not is_loopback_host(str(address))):
        return None
    return security.username, security.password


def _tls(node: LocalNode, security: ClientSecurity) -> ssl.SSLContext | None:
    """Return the TLS context for a node's HTTP port: the client's or one that trusts the node's certificate."""
    config = node.config
    if config.http_keystore is None:
        return None
    if security.ca_file or security.ca:
        return create_ssl_context(security)
    shows_itself = config.http_truststore is not None and config.http_token is None
    return create_pinned_context(node.directory / config.http_keystore, with_client_certificate=shows_itself)


def find_local_node(folder: Path, node_id: int) -> LocalNode | None:
    return next((node for node in load_nodes(folder) if node.id == node_id), None)


def choose_next_node_id(folder: Path, in_cluster: Collection[int]) -> int:
    """Return the id of the next node to be added to a local cluster.

    A node that has a config file but is not a member comes first: its addition was interrupted. Otherwise the id is one
    that no local node has ever had.
    """
    own = [node.id for node in load_nodes(folder)]
    unadmitted = [each for each in own if each not in in_cluster]
    return min(unadmitted) if unadmitted else max({*own, *in_cluster, *list_retired_node_ids(folder)}) + 1


def plan_local_node(folder: Path, node_id: int, rack: str | None, votes: Mapping[int, bool]) -> LocalNode:
    """Return a new local node with the settings of the existing nodes and the next free ports.

    No files are written.

    Args:
        folder: The directory of the local cluster.
        node_id: The id of the new node.
        rack: The rack of the new node.
        votes: Whether each existing node is a voter.

    Raises:
        InvalidInput: The node's data directory exists.
    """
    nodes = load_nodes(folder)
    template = nodes[0]
    data_dir = template.directory / f"node{node_id}"
    if data_dir.exists():
        raise InvalidInput(f"{data_dir} already exists, from a node that was removed: move it away first")
    addresses = {kind: _find_free_address(nodes, kind) for kind in ("kafka", "http", "raft")}
    peers = [
        PeerConfig(node.id, node.config.kafka, node.list_addresses()["raft"], votes.get(node.id, False))
        for node in nodes
    ]
    peers.append(PeerConfig(node_id, addresses["kafka"], addresses["raft"], voter=False))
    config = replace(
        template.config,
        node_id=node_id,
        data_dir=data_dir,
        kafka=addresses["kafka"],
        http=addresses["http"],
        rack=rack,
        peers=tuple(peers),
    )
    return LocalNode(template.directory, config)


def _find_free_address(nodes: Sequence[LocalNode], kind: str) -> Address:
    used = [node.list_addresses()[kind] for node in nodes if kind in node.list_addresses()]
    last = max(used, key=lambda address: address.port)
    for port in range(last.port + 1, last.port + 1 + PORTS_TRIED_MAX):
        address = Address(last.host, port)
        if not is_port_in_use(address):
            return address
    raise InvalidInput(f"no free {kind} port from {last.port + 1} on")


def start_node(node: LocalNode) -> subprocess.Popen[bytes] | None:
    """Start a local node and return its process, or None if the node is already running."""
    if node.pid() is not None:
        return None
    if not node.config_file.exists():
        check_ports_available([node])
        write_configs([node])
    process = node.start()
    print(f"node {node.id}: started pid={process.pid} kafka={node.config.kafka} log={node.log_file}", flush=True)
    return process


def check_process_running(node: LocalNode, process: subprocess.Popen[bytes] | None) -> None:
    """Raise ClusterStartError if the node's process has exited."""
    if process is not None and (code := process.poll()) is not None:
        node.remove_pid_file()
        raise ClusterStartError(f"node {node.id} exited with code {code}: {node.last_log_line()}")


def retire_node(node: LocalNode) -> None:
    """Stop a local node that was removed from its cluster, and rename its config file.

    This prevents the node from starting again.
    """
    pid = node.pid()
    if pid is not None:
        node.terminate(pid)
    deadline = time.monotonic() + STOP_SECONDS
    while node.pid() is not None:
        if time.monotonic() > deadline:
            raise ClusterStopError(f"node {node.id} (pid {pid}) did not stop in time; see {node.log_file}")
        time.sleep(POLL_SECONDS)
    node.remove_pid_file()
    node.config_file.rename(node.retired_file)
    outcome = "stopped" if pid is not None else "was not running"
    print(f"node {node.id}: {outcome}; its data is kept in {node.config.data_dir}")
