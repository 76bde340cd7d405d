"""Facts from the operating system: process limits and disk space."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Final

from chronik.cli.doctor.local_facts import DiskFacts, LimitFacts
from chronik.node.descriptors import DESCRIPTORS_WANTED, divide_descriptors

_OPEN_FILES: Final = re.compile(r"^Max open files\s+(\S+)\s+(\S+)", re.MULTILINE)


def collect_limit_facts(pid: int | None, whose: str) -> LimitFacts | None:
    """Return the open-file limit of a process (None: of this one); None if the system does not report it."""
    limit = _own_limit() if pid is None else _limit_of(pid)
    return None if limit is None else LimitFacts(whose, limit, divide_descriptors(limit).connections)


def _limit_of(pid: int) -> int | None:
    """Return the soft limit of a node's process, which it has raised to the hard limit."""
    try:
        found = _OPEN_FILES.search(Path(f"/proc/{pid}/limits").read_text(encoding="ascii"))
    except OSError:
        return None
    if found is None:
        return None
    return DESCRIPTORS_WANTED if found[1] == "unlimited" else int(found[1])


def _own_limit() -> int | None:
    if sys.platform == "win32":
        return None
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return DESCRIPTORS_WANTED if hard == resource.RLIM_INFINITY else hard


def collect_disk_facts(path: Path) -> DiskFacts | None:
    """Return the facts of the disk of a path or its closest existing parent; None if they are unknown."""
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
