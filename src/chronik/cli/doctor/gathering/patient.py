"""Whom the doctor looks at: what the arguments name, by file, folder or address."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

from chronik.cli.arguments import WrongInput, bootstrap_of, security_of
from chronik.cli.cluster.asking import http_way
from chronik.cli.cluster.local_nodes import LocalNode
from chronik.cli.doctor.gathering.configs import config_facts
from chronik.cli.doctor.gathering.folders import Progress, folder_facts, is_data_folder
from chronik.cli.doctor.gathering.machine import disk_facts, limit_facts
from chronik.cli.doctor.local_facts import ConfigFacts, DiskFacts, FolderFacts, LimitFacts, LocalFacts
from chronik.cli.watching.arguments import ports_named
from chronik.cli.watching.pages import HttpPort
from chronik.client.access.settings import Access
from chronik.config import NodeConfig


class Patient(NamedTuple):
    local: LocalFacts
    access: Access | None
    """How to reach its cluster; None when only a folder was named."""
    ports: list[HttpPort]
    config_files: tuple[Path, ...] = ()
    logs: tuple[Path, ...] = ()


def patient_of(arguments: argparse.Namespace, progress: Progress) -> Patient:
    """Raises WrongInput, ClientError."""
    files, folders = _named(arguments)
    local, configs = _local_facts(files, folders, arguments.deep, progress)
    security = security_of(arguments)
    access = _access(arguments, configs)
    ports = ports_named(arguments)
    if access is not None:
        nodes = [LocalNode(path.resolve().parent, config) for path, config in configs.items()]
        ways = [http_way(node, security) for node in nodes]
        ports += [HttpPort(*way) for way in ways if way is not None]
    logs = tuple(log for path in files if (log := path.with_suffix(".log")).exists())
    return Patient(local, access, ports, tuple(files), logs)


def _named(arguments: argparse.Namespace) -> tuple[list[Path], list[Path]]:
    """Returns config files and data folders."""
    files = [arguments.config] if arguments.config is not None else []
    folder = arguments.dir
    if folder is None:
        return files, []
    if not folder.is_dir():
        raise WrongInput(f"{folder}: there is no such folder")
    inside = sorted(folder.glob("node*.toml"))
    if inside and not is_data_folder(folder):
        return [*files, *inside], []
    return files, [folder]


def _access(arguments: argparse.Namespace, configs: dict[Path, NodeConfig]) -> Access | None:
    """A broker that was named goes before those that files name; a folder alone needs none."""
    if arguments.bootstrap_server is not None:
        return bootstrap_of(arguments)
    if configs:
        told = [config.listeners[0].advertised or config.kafka for config in configs.values()]
        return Access(",".join(map(str, told)), security_of(arguments))
    if arguments.config is not None or arguments.dir is not None:
        return None
    arguments.bootstrap_server = arguments.bootstrap_default
    return bootstrap_of(arguments)


def _local_facts(
    files: list[Path], folders: list[Path], deep: bool, progress: Progress
) -> tuple[LocalFacts, dict[Path, NodeConfig]]:
    configs: dict[Path, NodeConfig] = {}
    found: list[ConfigFacts] = []
    data: list[FolderFacts] = []
    disks: dict[tuple[int, int], DiskFacts] = {}
    limits: list[LimitFacts | None] = []
    for path in files:
        facts, config = config_facts(path)
        found.append(facts)
        if config is not None:
            configs[path] = config
            pid = LocalNode(path.resolve().parent, config).pid()
            whose = f"node {config.node_id}" if pid is not None else "what is started from here"
            limits.append(limit_facts(pid, whose))
    for place, of in [*((config.data_dir, config) for config in configs.values()), *((each, None) for each in folders)]:
        data.append(folder_facts(place, of, deep=deep, progress=progress))
        disk = disk_facts(place)
        if disk is not None:
            disks.setdefault((disk.bytes, disk.inodes), disk)  # nodes of one disk are told of it once
    if not limits and not folders:
        limits.append(limit_facts(None, "what is started from here"))
    known = {(limit.whose, limit.open_files): limit for limit in limits if limit is not None}
    return LocalFacts(tuple(found), tuple(data), tuple(disks.values()), tuple(known.values())), configs
