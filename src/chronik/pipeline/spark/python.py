"""The Python launcher for Spark's workers on this machine."""

from __future__ import annotations

import hashlib
import os
import shlex
import sys
from pathlib import Path

from chronik.pipeline.spark.cache import cache_directory, create_once

LAUNCHER = """#!/bin/sh
# Spark starts its Python workers with this file; {start} explains why.
if [ "$1" = -m ] && [ -n "$PYTHON_WORKER_FACTORY_PORT$PYTHON_WORKER_FACTORY_SOCK_PATH" ]; then
    exec {python} {start} "$@"
fi
exec {python} "$@"
"""


def worker_python(cache: Path | None = None) -> str:
    """Return the path of a launcher for workers on this machine, or this Python where files cannot be executed."""
    if os.name != "posix":
        return sys.executable
    start = Path(__file__).with_name("worker_start.py")
    text = LAUNCHER.format(python=shlex.quote(sys.executable), start=shlex.quote(str(start)))
    key = hashlib.sha256(text.encode()).hexdigest()[:12]

    def make(directory: Path) -> None:
        launcher = directory / "python"
        launcher.write_text(text, encoding="utf-8")
        launcher.chmod(0o755)

    launcher = create_once((cache or cache_directory()) / f"python-{key}", make) / "python"
    return str(launcher) if os.access(launcher, os.X_OK) else sys.executable  # the cache may be mounted with noexec
