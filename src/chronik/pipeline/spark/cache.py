"""Cache directories that are created once and shared by all later runs."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path


def cache_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the user's cache directory for Chronik, or one under the temporary directory without a writable home."""
    cache_home = environment.get("XDG_CACHE_HOME")
    try:
        directory = (Path(cache_home) if cache_home else Path.home() / ".cache") / "chronik"
        directory.mkdir(parents=True, exist_ok=True)
        if os.access(directory, os.W_OK):
            return directory
    except (OSError, RuntimeError):  # RuntimeError: the home directory is unknown
        pass
    directory = Path(tempfile.gettempdir()) / f"chronik-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    if directory.stat().st_uid != os.getuid():
        # Files in this directory are executed as the current user, so it must not belong to another one.
        raise PermissionError(f"{directory} belongs to another user: set XDG_CACHE_HOME to a directory of your own")
    return directory


def create_once(directory: Path, make: Callable[[Path], None]) -> Path:
    """Return `directory`, created atomically by `make` if it does not exist; concurrent callers are safe."""
    if directory.exists():
        return directory
    directory.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    try:
        make(temporary)
        temporary.chmod(0o755)
        temporary.rename(directory)
    except OSError:
        if not directory.exists():
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return directory
