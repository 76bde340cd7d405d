"""`pytest --quick` deselects tests that start processes, and fails unmarked tests that do: see tests/quick.py."""

from __future__ import annotations

import os

import pytest

from tests.quick import SLOW_DIRECTORIES, TESTS_DIRECTORY, is_external

pytest_plugins = ["pytester"]


@pytest.fixture(autouse=True)
def _tests_are_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TESTS_DIRECTORY.parent), prepend=os.pathsep)


CASES = """
import socket, subprocess, sys, time
import pytest

def test_pure():
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname()).close()

def test_starting():
    subprocess.run([sys.executable, "-c", ""], check=True)

def test_swallowing_the_error():
    try:
        subprocess.run(["/nowhere"])
    except Exception:
        pass

def test_external_connection():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect(("192.0.2.1", 9))

def test_long(monkeypatch):
    monkeypatch.setattr("tests.quick.CPU_SECONDS_MAX", -1.0)

@pytest.mark.slow
def test_marked():
    subprocess.run([sys.executable, "-c", ""], check=True)

@pytest.mark.xdist_group("cluster")
def test_in_a_group():
    subprocess.run([sys.executable, "-c", ""], check=True)

def test_with_a_broker(chronik_broker):
    pass
"""


def test_quick_option_deselects_or_fails_slow_tests(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(CASES)
    ran = pytester.runpytest_subprocess("--quick", "-p", "tests.quick", "-p", "no:cacheprovider", "-p", "no:xdist")
    ran.assert_outcomes(passed=1, failed=4, deselected=3)
    ran.stdout.fnmatch_lines_random(
        [
            "test_starting is not quick: it started a process (subprocess.Popen)*Mark it slow*",
            "test_swallowing_the_error is not quick*",
            "test_external_connection is not quick: it connected to ('192.0.2.1', 9)*",
            "test_long is not quick: it used * s of CPU time*",
        ]
    )


def test_all_tests_run_without_quick_option(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(CASES)
    ran = pytester.runpytest_subprocess("--collect-only", "-q", "-p", "tests.quick", "-p", "no:cacheprovider")
    ran.stdout.fnmatch_lines(["8 tests collected*"])


@pytest.mark.parametrize("folder", SLOW_DIRECTORIES)
def test_slow_test_directories_exist(folder: str) -> None:
    assert list((TESTS_DIRECTORY / folder).rglob("test_*.py"))


def test_loopback_and_unix_sockets_are_not_external() -> None:
    assert not any(map(is_external, [("127.0.0.1", 1), ("::1", 1, 0, 0), "/run/a.sock", b"\0abstract"]))
    assert is_external(("10.0.0.1", 1))
