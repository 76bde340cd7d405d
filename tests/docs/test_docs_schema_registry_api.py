"""The commands in docs/reference/schema-registry-api.md, on an open node and on a node with an authorizer."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from chronik.testing import Broker
from chronik.testing.ports import HOST, ReservedPorts
from tests.cli.command_line import COMMAND, environment
from tests.docs.blocks import AUTHORIZER_CONFIG, ROOT, parse_blocks

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed"),
]

PAGE = ROOT / "docs" / "reference" / "schema-registry-api.md"
DOCUMENTED_ADDRESS = "127.0.0.1:6092"
FUNCTIONS = f"""\
set -e
curl() {{ command curl --silent --show-error --fail-with-body "$@"; }}
chronik() {{ {shlex.join(COMMAND)} "$@"; }}
"""
COMMANDS = [block.text for block in parse_blocks(PAGE) if block.language == "sh"]


def run_commands(commands: str, directory: Path, **config: Any) -> str:
    """Run commands with a new broker, and return their output."""
    http = f"{HOST}:{ReservedPorts(1).ports[0]}"
    with Broker(directory, http=http, **config) as broker:
        completed = subprocess.run(
            ["bash", "-c", FUNCTIONS + commands.replace(DOCUMENTED_ADDRESS, http)],
            env=environment(broker.bootstrap) | {"PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return completed.stdout


def test_commands_register_and_list_schema(tmp_path: Path) -> None:
    first, _ = COMMANDS
    output = run_commands(first, tmp_path)
    assert '"version":1' in output
    assert "orders-value" in output.splitlines()[-1]


def test_commands_add_acls_of_subjects(tmp_path: Path) -> None:
    _, second = COMMANDS
    output = run_commands(second + "chronik acls list\n", tmp_path, **AUTHORIZER_CONFIG)
    assert output.count("orders-value") >= 2
