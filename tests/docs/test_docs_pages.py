"""Run pages as a reader would: write their files, run their commands in one shell, and compare the outputs."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from chronik.testing import Broker
from tests.cli.cluster.local_cluster import ConsecutivePorts, kill_nodes
from tests.cli.command_line import COMMAND, environment
from tests.docs.blocks import (
    BACKGROUND,
    FILE,
    NOT_RUN,
    ONCE_IT_WORKS,
    PAGES_RUN_HERE,
    ROOT,
    CodeBlock,
    ends_with_output,
    parse_blocks,
)

pytestmark = pytest.mark.xdist_group("cluster")

PAGE_SECONDS_MAX = 600.0
"""Generous, for a machine with other load."""
STOP_SECONDS_MAX = 60.0
FIRST_PORTS = (9092, 6092, 5001, 8081)
"""Ports in the pages, each followed by two more: Kafka, HTTP, Raft and the schema registry."""
CLUSTER_UP = "chronik cluster up "
SEPARATOR = "\x1e"
SECURITY = "docs/operate/security.md"

WAIT = """\
waited=0
until (exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null; do
    waited=$((waited + 1)); [ $waited -lt 600 ] || exit 99; sleep 0.1
done
"""
RETRY = """\
tried=0
until {{ {commands}
}}; do tried=$((tried + 1)); [ $tried -lt 100 ] || exit 98; sleep 0.3; done
"""


def map_ports() -> dict[int, int]:
    """Return free ports in place of those in the page, because other tests run concurrently."""
    free = [ConsecutivePorts() for _ in FIRST_PORTS]
    ports: dict[int, int] = {}
    for stderr_file, neighbours in zip(FIRST_PORTS, free, strict=True):
        neighbours.release()
        ports |= {stderr_file + number: neighbours.first + number for number in range(3)}
    return ports


def replace_ports(text: str, ports: dict[int, int]) -> str:
    kafka, http, raft, _ = (ports[first] for first in FIRST_PORTS)
    text = re.sub(r"(?<=127\.0\.0\.1:)\d+", lambda port: str(ports.get(int(port[0]), int(port[0]))), text)
    text = text.replace(CLUSTER_UP, f"{CLUSTER_UP}--kafka-port {kafka} --http-port {http} --raft-port {raft} ")
    return re.sub(r"^chronik start(?! --config)", f"chronik start --kafka 127.0.0.1:{kafka}", text, flags=re.MULTILINE)


def blocks_to_run(page: str) -> list[CodeBlock]:
    blocks = [block for block in parse_blocks(ROOT / page) if block.mark(NOT_RUN) is None]
    wanted = [block for block in blocks if block.language in ("sh", "python") or block.mark(FILE)]
    return wanted[1:] if page == SECURITY else wanted  # the first block has its own test


def build_script(blocks: list[CodeBlock], directory: Path, ports: dict[int, int]) -> str:
    parts = ["set -eo pipefail"]
    for number, block in enumerate(blocks):
        text = replace_ports(block.text, ports)
        if name := block.mark(FILE):
            (directory / name).write_text(text, encoding="utf-8")
            continue
        if block.language == "python":
            (directory / f"test_block_{number}.py").write_text(text, encoding="utf-8")
            runner = "-m pytest -q -p no:cacheprovider" if "def test_" in text else ""
            parts.append(f"{shlex.quote(sys.executable)} {runner} test_block_{number}.py")
        elif block.mark(BACKGROUND) is not None:
            parts += [f"{{ {text}\n}} >background.log 2>&1 &", WAIT.format(port=ports[FIRST_PORTS[0]])]
        else:
            parts.append(RETRY.format(commands=text) if block.mark(ONCE_IT_WORKS) is not None else text)
        parts.append(f"printf '\\n{SEPARATOR}'")
    return "\n".join(parts)


def run(script: str, directory: Path, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the script with output to files, because background processes may keep them open."""
    output, errors = directory.parent / "output", directory.parent / "errors"
    with output.open("w") as stdout_file, errors.open("w") as stderr_file:
        shell = subprocess.Popen(
            ["bash", "--norc", "--noprofile", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=stdout_file,
            stderr=stderr_file,
            cwd=directory,
            env=environ,
            start_new_session=True,
        )
    try:
        shell.wait(PAGE_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        output_so_far = f"{output.read_text()[-2000:]}{errors.read_text()[-2000:]}"
        pytest.fail(f"timed out after {PAGE_SECONDS_MAX:g} s: {output_so_far}")
    finally:
        stop_process_group(shell.pid)
        shell.wait()
    return subprocess.CompletedProcess(shell.args, shell.returncode, output.read_text(), errors.read_text())


def stop_process_group(group: int) -> None:
    """Stop the process group of the shell; kill what does not exit in time."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(group, number)
        except ProcessLookupError:
            return
        if wait_until_gone(group):
            return


def wait_until_gone(group: int) -> bool:
    deadline = time.monotonic() + STOP_SECONDS_MAX
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("page", PAGES_RUN_HERE)
def test_page_commands_succeed_with_shown_outputs(page: str, tmp_path: Path) -> None:
    blocks = blocks_to_run(page)
    assert any(block.language in ("sh", "python") for block in blocks)
    directory, tools = tmp_path / "reader", tmp_path / "bin"
    directory.mkdir()
    tools.mkdir()
    (tools / "chronik").write_text(f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
    (tools / "chronik").chmod(0o755)
    with ExitStack() as stack:
        ports = map_ports()
        bootstrap = f"127.0.0.1:{ports[FIRST_PORTS[0]]}"
        if (config := PAGES_RUN_HERE[page]) is not None:
            bootstrap = stack.enter_context(Broker(tmp_path / "broker", **config)).bootstrap
        environ = environment(bootstrap) | {"PATH": f"{tools}:{os.environ['PATH']}", "HOME": str(tmp_path)}
        stack.callback(kill_nodes, directory / "cluster")
        completed = run(build_script(blocks, directory, ports), directory, environ)
    outputs = completed.stdout.split(f"\n{SEPARATOR}")
    commands = [block for block in blocks if not block.mark(FILE)]
    where = commands[min(len(outputs) - 1, len(commands) - 1)]
    log = directory / "background.log"
    background = log.read_text()[-2000:] if log.exists() else ""
    assert completed.returncode == 0, f"{where}: {outputs[-1][-2000:]}{completed.stderr[-3000:]}{background}"
    for block, output in zip(commands, outputs[:-1], strict=True):
        assert block.expected_output is None or ends_with_output(block.expected_output, output), (
            f"{block} printed:\n{output}"
        )
