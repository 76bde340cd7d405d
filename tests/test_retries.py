"""`pytest --retry-failed N` runs failed tests again, alone, if at most N have failed: see tests/retries.py."""

from __future__ import annotations

import os

import pytest

from tests.quick import TESTS_DIRECTORY

pytest_plugins = ["pytester"]

CASES = """
from pathlib import Path
import pytest

def first_time(name):
    seen = Path(__file__).with_name(name)
    if seen.exists():
        return False
    seen.touch()
    return True

def test_good():
    pass

@pytest.mark.parametrize("number", range(%d))
def test_flaky(number):
    assert not first_time(f"seen-{number}"), f"the first failure of {number}"

@pytest.fixture
def flaky_teardown():
    yield
    assert not first_time("seen-teardown")

def test_teardown(flaky_teardown):
    pass

"""

BROKEN = """
def test_broken():
    assert False, "as always"
"""


@pytest.fixture(autouse=True)
def _tests_are_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TESTS_DIRECTORY.parent), prepend=os.pathsep)


def run(pytester: pytest.Pytester, *options: str, flaky: int, is_broken: bool = False) -> pytest.RunResult:
    pytester.makepyfile(CASES % flaky + (BROKEN if is_broken else ""))
    return pytester.runpytest_subprocess("-p", "tests.retries", "--retry-failed", "3", *options)


@pytest.mark.parametrize("options", [("-p", "no:xdist"), ("-n", "2", "-q")])
def test_tests_that_pass_on_retry_are_reported_by_name(pytester: pytest.Pytester, options: tuple[str, ...]) -> None:
    ran = run(pytester, *options, flaky=2)
    assert ran.ret == pytest.ExitCode.OK
    lines = ran.outlines
    assert "1 passed, 3 retried in " in lines[-1]
    for name in ("test_flaky[0]", "test_flaky[1]", "test_teardown"):
        (line,) = (line for line in lines if line.startswith("PASSED on retry:") and line.endswith(f"::{name}"))
        assert lines.index(line) > lines.index(next(each for each in lines if "retried tests" in each))
    assert any("the first failure of 0" in line for line in lines)


def test_run_fails_if_test_fails_again_alone(pytester: pytest.Pytester) -> None:
    ran = run(pytester, "-n", "2", flaky=1, is_broken=True)
    assert ran.ret == pytest.ExitCode.TESTS_FAILED
    assert "1 failed, 1 passed, 2 retried in " in ran.outlines[-1]
    ran.stdout.fnmatch_lines(["*failed again, alone: *::test_broken*", "*as always*"])
    ran.stdout.fnmatch_lines(["PASSED on retry: *::test_flaky?0?"])
    ran.stdout.fnmatch_lines(["FAILED on retry: *::test_broken"])


def test_failed_tests_above_limit_are_not_retried(pytester: pytest.Pytester) -> None:
    ran = run(pytester, "-n", "2", flaky=3)
    assert ran.ret == pytest.ExitCode.TESTS_FAILED
    ran.stdout.fnmatch_lines(["4 tests failed: at most 3 are retried"])
    assert "retried in" not in ran.outlines[-1]


def test_run_fails_if_test_module_cannot_be_imported(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_absent="import nowhere")
    ran = run(pytester, "-p", "no:xdist", "--continue-on-collection-errors", flaky=1)
    assert ran.ret == pytest.ExitCode.TESTS_FAILED
    ran.stdout.fnmatch_lines(["*not retried*"])


def test_passing_run_retries_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_good(): pass")
    ran = pytester.runpytest_subprocess("-p", "tests.retries", "--retry-failed", "3")
    assert ran.ret == pytest.ExitCode.OK
    assert "retried" not in str(ran.stdout)
