"""The target of the doctor: the config files, data directories and brokers that the arguments name.

Facts from the operating system, process limits and disk space, are collected here, too.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path
from typing import Final, NamedTuple

from chronik.cli.arguments import InvalidInput, load_security, parse_bootstrap_access
from chronik.cli.cluster.local_nodes import LocalNode, get_http_endpoint
from chronik.cli.doctor.config_facts import collect_config_facts
from chronik.cli.doctor.directory_facts import ProgressCallback, collect_directory_facts, is_data_directory
from chronik.cli.doctor.local_facts import ConfigFacts, DataDirectoryFacts, DiskFacts, LimitFacts, LocalFacts
from chronik.cli.monitoring.arguments import parse_http_endpoints
from chronik.cli.monitoring.node_pages import HttpEndpoint
from chronik.client.access.settings import BootstrapAccess
from chronik.config import NodeConfig
from chronik.node.descriptors import DESCRIPTORS_WANTED, divide_descriptors

_OPEN_FILES: Final = re.compile(r"^Max open files\s+(\S+)\s+(\S+)", re.MULTILINE)


def collect_limit_facts(pid: int | None, whose: str) -> LimitFacts | None:
    """Return the open-file limit of a process, by default this one; None if the system does not report it."""
    limit = _read_own_limit() if pid is None else _read_process_limit(pid)
    return None if limit is None else LimitFacts(whose, limit, divide_descriptors(limit).connections)


def _read_process_limit(pid: int) -> int | None:
    """Return the soft limit on open files of a node's process.

    Nodes raise it to the hard limit at startup.
    """
    try:
        found = _OPEN_FILES.search(Path(f"/proc/{pid}/limits").read_text(encoding="ascii"))
    except OSError:
        return None
    if found is None:
        return None
    return DESCRIPTORS_WANTED if found[1] == "unlimited" else int(found[1])


def _read_own_limit() -> int | None:
    if sys.platform == "win32":
        return None
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return DESCRIPTORS_WANTED if hard == resource.RLIM_INFINITY else hard


def collect_disk_facts(path: Path) -> DiskFacts | None:
    """Return the facts about the disk of a path or its closest existing parent; None if they are unavailable."""
    for each in (path, *path.absolute().parents):
        if each.exists():
            break
    if not hasattr(os, "statvfs"):
        import shutil

        usage = shutil.disk_usage(each)
        return DiskFacts(str(path), usage.total, usage.free)
    try:
        found = os.statvfs(each)
    except OSError:
        return None
    return DiskFacts(
        str(path),
        found.f_blocks * found.f_frsize,
        found.f_bavail * found.f_frsize,
        found.f_files,
        found.f_favail,
        bool(found.f_flag & os.ST_RDONLY),
    )


class DoctorTarget(NamedTuple):
    local: LocalFacts
    access: BootstrapAccess | None
    """Settings for connecting to the cluster, or None if only a data directory is checked."""
    ports: list[HttpEndpoint]
    config_files: tuple[Path, ...] = ()
    logs: tuple[Path, ...] = ()


def resolve_target(arguments: argparse.Namespace, progress: ProgressCallback) -> DoctorTarget:
    """Resolve the doctor's arguments to a cluster and files, and collect the facts about this machine.

    Raise InvalidInput if a directory is missing.
    """
    files, folders = _find_files_and_directories(arguments)
    local, configs = _collect_local_facts(files, folders, arguments.deep, progress)
    security = load_security(arguments)
    access = _resolve_cluster_access(arguments, configs)
    ports = parse_http_endpoints(arguments)
    if access is not None:
        nodes = [LocalNode(path.resolve().parent, config) for path, config in configs.items()]
        ways = [get_http_endpoint(node, security) for node in nodes]
        ports += [HttpEndpoint(*way) for way in ways if way is not None]
    logs = tuple(log for path in files if (log := path.with_suffix(".log")).exists())
    return DoctorTarget(local, access, ports, tuple(files), logs)


def _find_files_and_directories(arguments: argparse.Namespace) -> tuple[list[Path], list[Path]]:
    """Return the config files and the data directories that the arguments select."""
    files = [arguments.config] if arguments.config is not None else []
    folder = arguments.dir
    if folder is None:
        return files, []
    if not folder.is_dir():
        raise InvalidInput(f"{folder}: no such directory")
    inside = sorted(folder.glob("node*.toml"))
    if inside and not is_data_directory(folder):
        return [*files, *inside], []
    return files, [folder]


def _resolve_cluster_access(arguments: argparse.Namespace, configs: dict[Path, NodeConfig]) -> BootstrapAccess | None:
    """Return the connection settings of the cluster. An explicit broker takes precedence over config files."""
    if arguments.bootstrap_server is not None:
        return parse_bootstrap_access(arguments)
    if configs:
        addresses = [config.listeners[0].advertised or config.kafka for config in configs.values()]
        return BootstrapAccess(",".join(map(str, addresses)), load_security(arguments))
    if arguments.config is not None or arguments.dir is not None:
        return None
    arguments.bootstrap_server = arguments.bootstrap_default
    return parse_bootstrap_access(arguments)


def _collect_local_facts(
    files: list[Path], folders: list[Path], deep: bool, progress: ProgressCallback
) -> tuple[LocalFacts, dict[Path, NodeConfig]]:
    configs: dict[Path, NodeConfig] = {}
    found: list[ConfigFacts] = []
    data: list[DataDirectoryFacts] = []
    disks: dict[tuple[int, int], DiskFacts] = {}
    limits: list[LimitFacts | None] = []
    for path in files:
        facts, config = collect_config_facts(path)
        found.append(facts)
        if config is not None:
            configs[path] = config
            pid = LocalNode(path.resolve().parent, config).pid()
            subject = f"node {config.node_id}" if pid is not None else "a process started by this user"
            limits.append(collect_limit_facts(pid, subject))
    for place, expected_config in [
        *((config.data_dir, config) for config in configs.values()),
        *((each, None) for each in folders),
    ]:
        data.append(collect_directory_facts(place, expected_config, verify_checksums=deep, progress=progress))
        disk = collect_disk_facts(place)
        if disk is not None:
            disks.setdefault((disk.bytes, disk.inodes), disk)  # report a disk that nodes share only once
    if not limits and not folders:
        limits.append(collect_limit_facts(None, "a process started by this user"))
    known = {(limit.whose, limit.open_files): limit for limit in limits if limit is not None}
    return LocalFacts(tuple(found), tuple(data), tuple(disks.values()), tuple(known.values())), configs
