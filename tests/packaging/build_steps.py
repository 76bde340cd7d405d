"""Building, checking and installing the packages in a clean environment.

Uses only the standard library: `make package` runs it without the test dependencies.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / ".tools" / "packaging"
"""An environment with build, twine and setuptools, which the Makefile creates."""

DEADLINE_SECONDS = 300.0
NOT_COPIED = shutil.ignore_patterns(
    *(".git", ".venv", ".tools", ".*_cache", ".hypothesis", "__pycache__", "*.egg-info", "node_modules"),
    *("target", "build", "dist", "data"),
)


class BuildFailed(Exception):
    """A command or the node failed; the message contains its output."""


def python_path(environment: Path) -> str:
    return str(environment / "bin" / "python")


def clean_environment() -> dict[str, str]:
    """Return the environment without variables that refer to this repository or configure a node."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("CHRONIK_", "PYTHONPATH"))}


def run_command(words: Sequence[str], *, cwd: Path | None = None, stdin: str = "") -> str:
    """Run a command and return its output. Raises Failed with stdout and stderr."""
    completed = subprocess.run(
        words,
        input=stdin,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        env=clean_environment(),
        check=False,
    )
    if completed.returncode:
        raise BuildFailed(f"{' '.join(words)}: exit code {completed.returncode}\n{completed.stdout}{completed.stderr}")
    return completed.stdout


def build_packages(directory: Path) -> tuple[Path, Path]:
    """Build the wheel and the source distribution from a copy, because builds leave files in the source tree."""
    source, out = directory / "source", directory / "dist"
    shutil.copytree(ROOT, source, ignore=NOT_COPIED, symlinks=True)
    left_over = source / "build" / "lib" / "chronik" / "left_over.py"
    left_over.parent.mkdir(parents=True)
    left_over.write_text("# from an earlier build; must not be packaged\n")
    run_command([python_path(TOOLS), "-m", "build", "--no-isolation", "--outdir", str(out), str(source)], cwd=directory)
    (wheel,), (archive,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return wheel, archive


def check_packages(packages: Sequence[Path]) -> str:
    """Check the packages as an index would. Raises Failed if it would reject them or their description."""
    return run_command([python_path(TOOLS), "-m", "twine", "check", "--strict", *map(str, packages)])


def run_pip(environment: Path, *words: str) -> str:
    common = ("--disable-pip-version-check", "--retries", "1", "--timeout", "20")
    return run_command([python_path(TOOLS), "-m", "pip", "--python", python_path(environment), *words, *common])


def create_environment(directory: Path) -> Path:
    """Create an empty virtual environment, without pip."""
    run_command([sys.executable, "-m", "venv", "--without-pip", str(directory)])
    return directory


@contextmanager
def run_node(environment: Path, directory: Path) -> Iterator[str]:
    """Run a node with the installed command, yield its address, and require exit code 0."""
    log = directory / "log"
    words = [str(environment / "bin" / "chronik"), "start", "--kafka", "127.0.0.1:0"]
    with log.open("wb") as stderr:
        process = subprocess.Popen(words, stderr=stderr, cwd=directory, env=clean_environment())
    try:
        yield wait_for_address(log, process)
        process.terminate()
        if code := process.wait(DEADLINE_SECONDS):
            raise BuildFailed(f"the node exited with code {code}: {log.read_text()}")
    finally:
        process.kill()
        process.wait()


def wait_for_address(log: Path, process: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while "answers Kafka clients on " not in (log_text := log.read_text()):
        if process.poll() is not None or time.monotonic() > deadline:
            raise BuildFailed(f"the node did not start: {log_text}")
        time.sleep(0.02)
    return log_text.split("answers Kafka clients on ")[1].split(",")[0]


def produce_and_consume(environment: Path, directory: Path) -> str:
    """Produce a record and return what is consumed, with the installed command."""
    command = str(environment / "bin" / "chronik")
    with run_node(environment, directory) as address:
        run_command([command, "produce", "greetings", "-b", address], cwd=directory, stdin="hello\n")
        return run_command([command, "consume", "greetings", "-n", "1", "-b", address], cwd=directory)
