"""The commands in docs/guides/command-line.md are executed in a shell, and their output is compared with the page."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from chronik.testing import Broker
from tests.cli.command_line import COMMAND, TIMEOUT_S, environment

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[3] / "docs" / "guides" / "command-line.md"
BLOCK = re.compile(r"^```sh\n(.*?)^```$(?:\n^```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)


def shell_environment(broker: Broker, folder: Path) -> dict[str, str]:
    """Return an environment with the tested `chronik` in PATH and an empty home directory."""
    command = folder / "bin" / "chronik"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
    command.chmod(0o755)
    paths = {"PATH": f"{command.parent}:{os.environ['PATH']}", "HOME": str(folder)}
    return environment(broker.bootstrap) | paths


@pytest.mark.usefixtures("chronik_registry")
def test_commands_of_command_line_page_print_documented_output(chronik_broker: Broker, tmp_path: Path) -> None:
    environ = shell_environment(chronik_broker, tmp_path)
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    assert len(blocks) > 8
    for commands, shown in blocks:
        done = subprocess.run(
            ["bash", "--norc", "--noprofile", "-e", "-o", "pipefail"],
            input=commands,
            text=True,
            capture_output=True,
            timeout=4 * TIMEOUT_S,
            cwd=tmp_path,
            env=environ,
        )
        assert done.returncode == 0, f"{commands}{done.stdout}{done.stderr}"
        if shown:  # output of earlier commands in the block comes first
            assert done.stdout.endswith(shown), commands
    assert (tmp_path / ".local/share/bash-completion/completions/chronik").read_text().endswith("_chronik chronik\n")
