"""Execution of `chronik` as a subprocess."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

TIMEOUT_S = 60.0  # a command takes a quarter of a second, so this only catches a hanging one
COMMAND = (sys.executable, "-m", "chronik")


@dataclass
class CommandResult:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        assert self.code == 0, self.err
        return self.out.splitlines()


def environment(bootstrap: str | None) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("CHRONIK_")}
    return inherited if bootstrap is None else inherited | {"CHRONIK_BOOTSTRAP_SERVER": bootstrap}


def run_chronik(*arguments: str, bootstrap: str | None = None, stdin: str | bytes = "") -> CommandResult:
    given = stdin.encode() if isinstance(stdin, str) else stdin
    done = subprocess.run(
        [*COMMAND, *arguments], input=given, capture_output=True, timeout=TIMEOUT_S, env=environment(bootstrap)
    )
    return CommandResult(done.returncode, done.stdout.decode(), done.stderr.decode())
