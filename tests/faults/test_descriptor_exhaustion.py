"""A node with few file descriptors reserves some for its logs, rejects further connections and keeps working."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from chronik.client.cluster import ClusterClient
from chronik.client.consumer import read_all
from chronik.files import DiskFileSystem, FileCache
from chronik.files.disk import RESERVED_DESCRIPTORS, DescriptorReserve
from chronik.limits import OPEN_FILES_MAX
from chronik.node.descriptors import CONNECTIONS_MIN, NON_FILE_DESCRIPTORS, divide_descriptors
from tests.cli.command_line import run_chronik
from tests.cluster.replication_helpers import wait_for

ANSWERS = "answers Kafka clients on "
LIMIT = 1024
CLIENTS = 1100
LINES = 3000
PLACES = 10
"""Connections that stay available for an active client."""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Start a node under `ulimit -n 1024`, hard and soft."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2 * CLIENTS:
        pytest.skip(f"this process may open {hard} files, but needs {2 * CLIENTS}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * CLIENTS), hard))
    log = tmp_path / "log"
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "chronik", "start", "--kafka", "127.0.0.1:0", "--data", str(tmp_path / "data")],
            stderr=stderr,
            text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, LIMIT)),
            env={name: value for name, value in os.environ.items() if not name.startswith("CHRONIK_")},
        )
    try:
        wait_for("it answers", lambda: ANSWERS in log.read_text())
        yield log.read_text().split(ANSWERS)[1].split(",")[0], process
    finally:
        process.kill()
        process.wait()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_connections_beyond_limit_are_rejected_while_logs_keep_working(
    node: tuple[str, subprocess.Popen[str]],
) -> None:
    bootstrap, process = node
    host, port = bootstrap.split(":")
    made = run_chronik("topics", "create", "t", "-p", "20", "-c", "segment.ms=1", bootstrap=bootstrap)
    assert made.code == 0, made.err
    lines = "\n".join(f"key{number}\tvalue {number}" for number in range(LINES))
    with ExitStack() as stack:
        idle = [stack.enter_context(socket.create_connection((host, int(port)), 30)) for _ in range(CLIENTS)]
        with suppress(ConnectionError):
            assert idle[-1].recv(1) == b"", "the last connection is rejected"
        assert process.poll() is None
        for connection in idle[:PLACES]:
            connection.close()
        wait_for("places are free", lambda: run_chronik("topics", "list", bootstrap=bootstrap).code == 0)
        for _ in range(5):  # segments roll, which opens files
            produced = run_chronik("produce", "t", "--key-separator", "\t", bootstrap=bootstrap, stdin=lines)
            assert produced.code == 0, produced.err
        assert process.poll() is None
    with ClusterClient(bootstrap, client_id="test") as cluster:
        assert len(read_all(cluster, "t")) == 5 * LINES


def test_descriptor_limit_reserves_files_before_connections() -> None:
    assert divide_descriptors(1 << 20).open_files == OPEN_FILES_MAX
    assert divide_descriptors(LIMIT).open_files == LIMIT // 4
    assert divide_descriptors(LIMIT).connections == LIMIT - LIMIT // 4 - NON_FILE_DESCRIPTORS
    assert divide_descriptors(64).connections == CONNECTIONS_MIN


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("few_descriptors")
def test_file_opens_from_reserve_and_cache_evicts_others(tmp_path: Path) -> None:
    spare = DescriptorReserve()
    files = DiskFileSystem(tmp_path, spare)
    cache = FileCache(files, 1000)
    for number in range(40):
        cache.create(str(number)).append(b"x")
        cache.get(str(number)).fdatasync()
    highest = os.open(os.devnull, os.O_RDONLY)
    os.close(highest)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest, hard))
    with pytest.raises(OSError, match="Too many open files"):
        os.open(os.devnull, os.O_RDONLY)
    for number in range(200):
        cache.create(f"more {number}").append(b"x")
        cache.get(f"more {number}").fdatasync()
    files.sync_directory("")
    assert files.list_directory("") != []
    assert files.failure is None
    assert not spare.is_depleted
    cache.close()
    spare.close()


@pytest.mark.usefixtures("few_descriptors")
def test_descriptor_reserve_is_used_up_when_no_file_can_be_closed(tmp_path: Path) -> None:
    spare = DescriptorReserve()
    files = DiskFileSystem(tmp_path, spare)
    highest = os.open(os.devnull, os.O_RDONLY)
    os.close(highest)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest, hard))
    opened = [files.create(str(number)) for number in range(RESERVED_DESCRIPTORS)]
    assert spare.is_depleted
    opened[0].close()
    opened.append(files.create("one more"))
    with pytest.raises(OSError, match="Too many open files"):
        files.open("0")
    for file in opened:
        file.close()
    spare.replenish()
    assert not spare.is_depleted
    spare.close()


def test_descriptor_limit_of_process_is_raised_to_hard_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 4096 if hard == resource.RLIM_INFINITY else min(hard, 4096)
    script = "from chronik.node.descriptors import raise_descriptor_limit as claim; import resource as r;"
    run = subprocess.run(
        [sys.executable, "-c", f"{script} print(claim(), r.getrlimit(r.RLIMIT_NOFILE)[0])"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (128, most)),
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.split() == [str(most)] * 2
