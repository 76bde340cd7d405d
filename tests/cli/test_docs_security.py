"""The config files and the commands in docs/operate/security.md are executed and give a secured cluster."""

from __future__ import annotations

import re
import shlex
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from chronik.testing.ports import ReservedPorts
from tests.cli.command_line import COMMAND, TIMEOUT_S, CommandResult, environment

pytestmark = pytest.mark.xdist_group("cluster")

PAGE = Path(__file__).parents[2] / "docs" / "operate" / "security.md"
RECORDS = 1000
PORTS = ("9092", "9093", "9094", "5001", "5002", "5003")
"""Ports on the page, which are replaced by free ones."""


def block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def write_files(folder: Path, ports: list[int]) -> None:
    nodes = block("toml")
    for documented, used in zip(PORTS, ports, strict=True):
        nodes = nodes.replace(f":{documented}", f":{used}")
    (folder / "nodes.toml").write_text(nodes)
    admin = block("properties")
    (folder / "admin.properties").write_text(admin)
    others = admin.replace("sasl.username=admin", "sasl.username=alice").replace("password of admin", "one of alice")
    (folder / "alice.properties").write_text(others)
    (folder / "admin.password").write_text("the password of admin\n")
    (folder / "alice.password").write_text("the one of alice\n")


def run(command: str, folder: Path, bootstrap: str) -> CommandResult:
    records = ""
    if command.startswith(f"seq {RECORDS} | "):
        records, command = "\n".join(map(str, range(RECORDS))), command.removeprefix(f"seq {RECORDS} | ")
    done = subprocess.run(
        [*COMMAND, *shlex.split(command)[1:]],
        cwd=folder,
        input=records,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env=environment(bootstrap),
    )
    return CommandResult(done.returncode, done.stdout, done.stderr)


@contextmanager
def in_background(command: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / "nodes.log").open("wb") as log:
        words = [*COMMAND, *shlex.split(command.removesuffix(" &"))[1:]]
        nodes = subprocess.Popen(words, cwd=folder, stdout=log, stderr=log, env=environment(None))
    try:
        yield nodes
    finally:
        nodes.terminate()
        nodes.wait(TIMEOUT_S)


def run_until_success(command: str, folder: Path, bootstrap: str) -> CommandResult:
    """Repeat the command until it succeeds, because the cluster is still starting."""
    deadline = time.monotonic() + 2 * TIMEOUT_S
    while (done := run(command, folder, bootstrap)).code and time.monotonic() < deadline:
        time.sleep(0.2)
    return done


def test_commands_of_security_page_create_secured_cluster(tmp_path: Path) -> None:
    reserved = ReservedPorts(len(PORTS))
    write_files(tmp_path, reserved.ports)
    bootstrap = f"127.0.0.1:{reserved.ports[0]}"
    make_certificates, start, status, *others = block("sh").splitlines()
    assert len(others) == 7, "ten commands"
    assert run(make_certificates, tmp_path, bootstrap).code == 0
    reserved.release()
    with in_background(start, tmp_path):
        seen = run_until_success(status, tmp_path, bootstrap)
        assert seen.code == 0, seen.err + (tmp_path / "nodes.log").read_text()[-2000:]
        read = next(command for command in others if command.startswith("chronik consume"))
        for command in others:
            if command == others[others.index(read) - 1]:
                rejected = run(read, tmp_path, bootstrap)
                assert rejected.code == 1
                assert "TOPIC_AUTHORIZATION_FAILED" in rejected.err
            done = run(command, tmp_path, bootstrap)
            assert done.code == 0, f"{command}: {done.out}{done.err}"
            if command == read:
                assert len(done.out.splitlines()) == RECORDS
        unauthenticated = run("chronik topics list", tmp_path, bootstrap)
        assert unauthenticated.code == 1
        assert "if this listener uses TLS, set security.protocol" in unauthenticated.err
