"""Pages are followed as a reader would follow them: their files are written, their commands run in order, in one shell,
in an empty folder, and what they print is compared with what stands behind them."""

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
from tests.cli.cluster.local import Neighbours, end_all
from tests.cli.running import COMMAND, environment
from tests.docs.blocks import BACKGROUND, FILE, NOT_RUN, ONCE_IT_WORKS, ROOT, Block, blocks_of, printed
from tests.docs.pages import RUN_HERE

pytestmark = pytest.mark.xdist_group("cluster")

PAGE_SECONDS_MAX = 600.0
"""For a machine that does much else."""
STOP_SECONDS_MAX = 60.0
FIRST_PORTS = (9092, 6092, 5001)
"""Those that pages name, each with its next two: of clients, of HTTP and of nodes among themselves."""
CLUSTER_UP = "chronik cluster up "
BETWEEN = "\x1e"
SECURITY = "docs/security.md"

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


def other_ports() -> dict[int, int]:
    """Ports in place of those of the page, free a moment ago: other tests run beside this one."""
    free = [Neighbours() for _ in FIRST_PORTS]
    ports: dict[int, int] = {}
    for told, neighbours in zip(FIRST_PORTS, free, strict=True):
        neighbours.release()
        ports |= {told + number: neighbours.first + number for number in range(3)}
    return ports


def with_ports(text: str, ports: dict[int, int]) -> str:
    kafka, http, raft = (ports[first] for first in FIRST_PORTS)
    text = re.sub(r"(?<=127\.0\.0\.1:)\d+", lambda port: str(ports.get(int(port[0]), int(port[0]))), text)
    text = text.replace(CLUSTER_UP, f"{CLUSTER_UP}--kafka-port {kafka} --http-port {http} --raft-port {raft} ")
    return re.sub(r"^chronik start(?! --config)", f"chronik start --kafka 127.0.0.1:{kafka}", text, flags=re.MULTILINE)


def blocks_to_run(page: str) -> list[Block]:
    blocks = [block for block in blocks_of(ROOT / page) if block.mark(NOT_RUN) is None]
    wanted = [block for block in blocks if block.language in ("sh", "python") or block.mark(FILE)]
    return wanted[1:] if page == SECURITY else wanted  # the first has a test of its own


def script_of(blocks: list[Block], folder: Path, ports: dict[int, int]) -> str:
    parts = ["set -eo pipefail"]
    for number, block in enumerate(blocks):
        text = with_ports(block.text, ports)
        if name := block.mark(FILE):
            (folder / name).write_text(text, encoding="utf-8")
            continue
        if block.language == "python":
            (folder / f"test_block_{number}.py").write_text(text, encoding="utf-8")
            runner = "-m pytest -q -p no:cacheprovider" if "def test_" in text else ""
            parts.append(f"{shlex.quote(sys.executable)} {runner} test_block_{number}.py")
        elif block.mark(BACKGROUND) is not None:
            parts += [f"{{ {text}\n}} >background.log 2>&1 &", WAIT.format(port=ports[FIRST_PORTS[0]])]
        else:
            parts.append(RETRY.format(commands=text) if block.mark(ONCE_IT_WORKS) is not None else text)
        parts.append(f"printf '\\n{BETWEEN}'")
    return "\n".join(parts)


def run(script: str, folder: Path, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """What the shell says goes to files, which processes in the background may keep open."""
    output, errors = folder.parent / "output", folder.parent / "errors"
    with output.open("w") as said, errors.open("w") as told:
        shell = subprocess.Popen(
            ["bash", "--norc", "--noprofile", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=told,
            cwd=folder,
            env=environ,
            start_new_session=True,
        )
    try:
        shell.wait(PAGE_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        told_so_far = f"{output.read_text()[-2000:]}{errors.read_text()[-2000:]}"
        pytest.fail(f"it takes longer than {PAGE_SECONDS_MAX:g} s: {told_so_far}")
    finally:
        end_group(shell.pid)
        shell.wait()
    return subprocess.CompletedProcess(shell.args, shell.returncode, output.read_text(), errors.read_text())


def end_group(group: int) -> None:
    """Of what went on in the background; whoever stays longer than nodes take to hand over is killed."""
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


@pytest.mark.parametrize("page", RUN_HERE)
def test_a_page_is_followed_from_its_beginning_to_its_end(page: str, tmp_path: Path) -> None:
    blocks = blocks_to_run(page)
    assert any(block.language in ("sh", "python") for block in blocks)
    folder, tools = tmp_path / "reader", tmp_path / "bin"
    folder.mkdir()
    tools.mkdir()
    (tools / "chronik").write_text(f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
    (tools / "chronik").chmod(0o755)
    with ExitStack() as stack:
        ports = other_ports()
        bootstrap = f"127.0.0.1:{ports[FIRST_PORTS[0]]}"
        if (config := RUN_HERE[page]) is not None:
            bootstrap = stack.enter_context(Broker(tmp_path / "broker", **config)).bootstrap
        environ = environment(bootstrap) | {"PATH": f"{tools}:{os.environ['PATH']}", "HOME": str(tmp_path)}
        stack.callback(end_all, folder / "cluster")
        done = run(script_of(blocks, folder, ports), folder, environ)
    outputs = done.stdout.split(f"\n{BETWEEN}")
    commands = [block for block in blocks if not block.mark(FILE)]
    where = commands[min(len(outputs) - 1, len(commands) - 1)]
    log = folder / "background.log"
    background = log.read_text()[-2000:] if log.exists() else ""
    assert done.returncode == 0, f"{where}: {outputs[-1][-2000:]}{done.stderr[-3000:]}{background}"
    for block, output in zip(commands, outputs[:-1], strict=True):
        assert block.prints is None or printed(block.prints, output), f"{block} printed:\n{output}"
