"""Facts about a data directory: owner, identity, metadata, and its logs unless a node is running. Read-only."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from chronik.broker.set_aside import TOPICS_FOLDER, UNKNOWN_FOLDER, is_index
from chronik.cli.doctor.gathering.logs import FolderLogs
from chronik.cli.doctor.local_facts import FolderFacts, LogFacts
from chronik.config import NodeConfig
from chronik.errors import ChronikError, ConfigError, DataDamaged, DataFolderInUse
from chronik.files import Lock, read_file
from chronik.files.overlay import OverlayFiles
from chronik.metadata import levels
from chronik.node.data_folder import LOCK_FILE, MADE_BY_A_NODE
from chronik.node.identity import FORMAT, IDENTITY_FILE, METADATA_FOLDERS, Identity, Mode, parse_identity
from chronik.node.restoring import known_directory, level_raised_to

NODE_IS_RUNNING: Final = "a running node uses the directory; its /status page reports the state of the logs"

Progress = Callable[[int, int], None]
"""A callback that receives the number of checked partitions and the total."""


def is_data_folder(path: Path) -> bool:
    return any((path / name).exists() for name in MADE_BY_A_NODE)


def folder_facts(path: Path, config: NodeConfig | None, *, deep: bool, progress: Progress) -> FolderFacts:
    facts: dict[str, Any] = {"path": str(path), "format_supported": FORMAT, "level_supported": levels.HIGHEST}
    if config is not None:
        mode = Mode.CLUSTER if config.peers else Mode.STANDALONE
        facts |= {"expected_node": config.node_id, "expected_mode": mode.value}
    try:
        facts |= _collect_owner(path)
        names = os.listdir(path)
    except FileNotFoundError:
        problem = None if config is not None else "no such directory"  # a first start creates it
        return FolderFacts(**facts, problem=problem)
    except OSError as error:
        return FolderFacts(**facts, problem=error.strerror or str(error))
    if not names:
        return FolderFacts(**facts)
    if not is_data_folder(path):
        return FolderFacts(**facts, problem="not the data directory of a node: it has none of the expected files")
    return FolderFacts(**facts, **_collect_contents(path, deep, progress))


def _collect_owner(path: Path) -> dict[str, Any]:
    found = path.stat()
    if not hasattr(os, "getuid"):
        return {}
    return {
        "owner": _user_name(found.st_uid),
        "user": _user_name(os.getuid()),
        "is_ours": found.st_uid == os.getuid() or os.getuid() == 0,
        "is_open_to_others": bool(found.st_mode & (stat.S_IROTH | stat.S_IXOTH)),
    }


def _user_name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _collect_contents(path: Path, deep: bool, progress: Progress) -> dict[str, Any]:
    files = OverlayFiles(path)
    facts: dict[str, Any] = {"unknown": tuple(files.list_folder(UNKNOWN_FOLDER))}
    partitions = [*_list_partitions(files)]
    facts["partitions"] = len(partitions)
    lock, reason = _lock(files)
    try:
        identity, facts_of_identity = _read_identity(files, path)
        facts |= facts_of_identity | {"in_use": reason == NODE_IS_RUNNING}
        if identity is not None and lock is not None:
            facts |= _check_metadata(files, identity, path)
        if lock is None:
            facts["logs_unseen"] = reason
        else:
            facts |= {"logs": _check_logs(files, partitions, deep, progress), "is_deep": deep}
    except PermissionError as error:
        facts["logs_unseen"] = f"{error.filename}: {error.strerror}"
    finally:
        if lock is not None:
            lock.close()
    return facts


def _lock(files: OverlayFiles) -> tuple[Lock | None, str]:
    """Lock the directory so that no node starts while it is checked; return the lock, or None and the reason."""
    try:
        return files.lock(LOCK_FILE), ""
    except DataFolderInUse:
        return None, NODE_IS_RUNNING
    except FileNotFoundError:
        return None, f"{LOCK_FILE} is missing, so a node might start concurrently; perhaps an incomplete copy"
    except OSError as error:
        return None, f"{LOCK_FILE}: {error.strerror or error}"


def _read_identity(files: OverlayFiles, path: Path) -> tuple[Identity | None, dict[str, Any]]:
    try:
        data = read_file(files, IDENTITY_FILE)
        if data is None:
            return None, {"identity_problem": f"{path} has no {IDENTITY_FILE}"}
        identity = parse_identity(data, str(path / IDENTITY_FILE))
    except PermissionError as error:
        return None, {"identity_problem": f"{path / IDENTITY_FILE}: {error.strerror}"}
    except (ConfigError, DataDamaged) as error:
        return None, {"identity_problem": str(error)}
    return identity, {
        "node_id": identity.node_id,
        "mode": identity.mode.value if identity.mode is not None else None,
        "cluster_id": identity.cluster_id,
        "format": identity.format,
    }


def _check_metadata(files: OverlayFiles, identity: Identity, path: Path) -> dict[str, Any]:
    """Read all metadata, as a node does when it starts."""
    mode = identity.mode or Mode.STANDALONE
    folder = METADATA_FOLDERS[mode]
    if not files.list_folder(folder):
        has_topics = any(files.list_folder(each) for each in (TOPICS_FOLDER, UNKNOWN_FOLDER))
        return {"metadata_problem": f"{path} has no metadata ({folder})"} if has_topics else {}
    try:
        level = level_raised_to(files, mode)
        if level <= levels.HIGHEST:
            known_directory(files, identity.node_id, mode)
    except PermissionError:
        raise
    except (ChronikError, OSError) as error:
        return {"metadata_problem": f"{path / folder}: {error}"}
    return {"level": level}


def _list_partitions(files: OverlayFiles) -> Iterator[tuple[str, int]]:
    for topic in files.list_folder(TOPICS_FOLDER):
        for index in files.list_folder(f"{TOPICS_FOLDER}/{topic}"):
            if is_index(index):
                yield topic, int(index)


def _check_logs(
    files: OverlayFiles, partitions: list[tuple[str, int]], deep: bool, progress: Progress
) -> tuple[LogFacts, ...]:
    logs, found = FolderLogs(files), []
    for done, (topic, index) in enumerate(partitions, 1):
        facts = logs.look(topic, index, deep=deep)
        if facts is not None:
            found.append(facts)
        progress(done, len(partitions))
    return tuple(found)
