"""Small folders that are made once and used by every later run."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Returns the user's cache for Chronik; under the temporary folder where there is no home to write to."""
    home = environment.get("XDG_CACHE_HOME")
    try:
        folder = (Path(home) if home else Path.home() / ".cache") / "chronik"
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except (OSError, RuntimeError):  # RuntimeError: nobody knows where home is
        pass
    folder = Path(tempfile.gettempdir()) / f"chronik-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        # What lies there is run as us: never take it from somebody else.
        raise PermissionError(f"{folder} belongs to somebody else; set XDG_CACHE_HOME")
    return folder


def made_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """Returns `folder`, made by `make` unless it is there. It appears as a whole, whoever else makes it meanwhile."""
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        make(unfinished)
        unfinished.chmod(0o755)
        unfinished.rename(folder)
    except OSError:
        if not folder.exists():
            raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder
