"""`chronik demo` with an empty environment and without Java, as `make demo` runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("jvms")

DEADLINE_SECONDS = 600


def test_demo_completes_with_empty_environment_and_without_java(tmp_path: Path) -> None:
    chronik = Path(sys.executable).with_name("chronik")
    environment = {"PATH": _path_without_java(tmp_path / "bin"), "HOME": str(tmp_path)}
    done = subprocess.run(
        [str(chronik), "demo"], env=environment, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for expected in (
        "20,000 of 20,000 orders were consumed",
        "subject orders-value of the schema registry has 2 versions",
        "19,996 rows; 4 truncated records",
        "CUSTOMER",
        "ok     20,000 rows of 1 table match their records",
        "No problems found.",
        "Next steps:",
    ):
        assert expected in done.stdout


def _path_without_java(folder: Path) -> str:
    """Return a PATH with all commands of this machine except Java."""
    folder.mkdir()
    for place in (*os.defpath.split(os.pathsep), "/usr/local/bin"):
        for command in Path(place).glob("*") if place else ():
            if not command.name.startswith("java") and not (folder / command.name).exists():
                (folder / command.name).symlink_to(command)
    return str(folder)
