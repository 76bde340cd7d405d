"""How packages are built, checked, and installed where nothing else is. Needs nothing but Python: `make package` runs
it in an environment without the tests' own libraries."""

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
"""Has build, twine and setuptools: the Makefile sets it up."""

DEADLINE_SECONDS = 300.0
NOT_COPIED = shutil.ignore_patterns(
    *(".git", ".venv", ".tools", ".*_cache", ".hypothesis", "__pycache__", "*.egg-info", "node_modules"),
    *("target", "build", "dist", "data"),
)


class Failed(Exception):
    pass


def python_of(environment: Path) -> str:
    return str(environment / "bin" / "python")


def clean_environment() -> dict[str, str]:
    """Without what would lead a process to this repository's source, or configure a node."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("CHRONIK_", "PYTHONPATH"))}


def done(words: Sequence[str], *, cwd: Path | None = None, stdin: str = "") -> str:
    """Returns what it printed. Raises Failed with all that it said."""
    finished = subprocess.run(
        words,
        input=stdin,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        env=clean_environment(),
        check=False,
    )
    if finished.returncode:
        raise Failed(f"{' '.join(words)}: exit code {finished.returncode}\n{finished.stdout}{finished.stderr}")
    return finished.stdout


def built(folder: Path) -> tuple[Path, Path]:
    """Returns the wheel and the source distribution, built from a copy: builds leave files where they are run."""
    source, out = folder / "source", folder / "dist"
    shutil.copytree(ROOT, source, ignore=NOT_COPIED, symlinks=True)
    left_over = source / "build" / "lib" / "chronik" / "left_over.py"
    left_over.parent.mkdir(parents=True)
    left_over.write_text("# of a build long ago, which must not get into the next one\n")
    done([python_of(TOOLS), "-m", "build", "--no-isolation", "--outdir", str(out), str(source)], cwd=folder)
    (wheel,), (archive,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return wheel, archive


def check(packages: Sequence[Path]) -> str:
    """Raises Failed when an index would refuse them, or show their description as plain text."""
    return done([python_of(TOOLS), "-m", "twine", "check", "--strict", *map(str, packages)])


def pip(environment: Path, *words: str) -> str:
    common = ("--disable-pip-version-check", "--retries", "1", "--timeout", "20")
    return done([python_of(TOOLS), "-m", "pip", "--python", python_of(environment), *words, *common])


def fresh(folder: Path) -> Path:
    """An environment with nothing in it, not even pip."""
    done([sys.executable, "-m", "venv", "--without-pip", str(folder)])
    return folder


@contextmanager
def node(environment: Path, folder: Path) -> Iterator[str]:
    """A node by the installed command, and its address; it must end well, too."""
    log = folder / "log"
    words = [str(environment / "bin" / "chronik"), "start", "--kafka", "127.0.0.1:0"]
    with log.open("wb") as stderr:
        process = subprocess.Popen(words, stderr=stderr, cwd=folder, env=clean_environment())
    try:
        yield address_in(log, process)
        process.terminate()
        if code := process.wait(DEADLINE_SECONDS):
            raise Failed(f"the node ended with exit code {code}: {log.read_text()}")
    finally:
        process.kill()
        process.wait()


def address_in(log: Path, process: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while "answers Kafka clients on " not in (said := log.read_text()):
        if process.poll() is not None or time.monotonic() > deadline:
            raise Failed(f"the node does not answer: {said}")
        time.sleep(0.02)
    return said.split("answers Kafka clients on ")[1].split(",")[0]


def greeted(environment: Path, folder: Path) -> str:
    """Returns what is read back of a greeting that was written to a node, all by the installed command."""
    command = str(environment / "bin" / "chronik")
    with node(environment, folder) as address:
        done([command, "produce", "greetings", "-b", address], cwd=folder, stdin="hello\n")
        return done([command, "consume", "greetings", "-n", "1", "-b", address], cwd=folder)
