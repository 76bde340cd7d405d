"""A node started with the arguments of a unit or image, as a plain process."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.cli.command_line import COMMAND, environment


@contextmanager
def run_node(words: Sequence[str], directory: Path, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run chronik with the given arguments; its log is folder/log."""
    with (directory / "log").open("wb") as stderr:
        process = subprocess.Popen(
            [*COMMAND, *words], stderr=stderr, cwd=directory, env=environment(None) | dict(variables)
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def replace_paths(words: Sequence[str], places: Mapping[str, str]) -> list[str]:
    """Replace paths of the target machine with files of this repository or of a test."""
    return [places.get(word, word) for word in words]
