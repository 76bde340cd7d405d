"""`pytest --retry-failed N`: run failed tests again, each alone, if at most N have failed.

On a machine that is shared with other work, a test may fail because the CPU or disk was busy. A test that also fails
alone is broken, and so is a change after which many tests fail. A test that passes on its retry is counted as `retried`
instead of `failed`, and reported by name.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field

import pytest

OPTION = "--retry-failed"
RETRY_SECONDS_MAX = 1800.0
"""Timeout of a retry, longer than any test takes alone."""

RETRIED = "retried"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(OPTION, type=int, default=0, metavar="N", help="run failed tests again, if at most N have failed")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("retry_failed") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Retries(config), "chronik-retries")


@dataclass
class Retries:
    """The retries of a session. With pytest-xdist they run in the controller, after the workers have stopped."""

    config: pytest.Config
    failures: dict[str, list[pytest.TestReport]] = field(default_factory=dict)
    """Reports of each failed test in the first run: call, setup or teardown."""
    retried: list[str] = field(default_factory=list)
    """Tests that passed on their retry."""
    outputs: dict[str, str] = field(default_factory=dict)
    """Output of pytest for each test that failed again."""
    is_retrying: bool = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failures.setdefault(report.nodeid, []).append(report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        return (RETRIED, "", "") if self.is_retrying else None

    # The innermost wrapper: its second half runs after the workers have stopped and before the summary is written.
    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None]:
        yield
        if session.exitstatus != pytest.ExitCode.TESTS_FAILED or not self._can_retry():
            return
        reporter = self._reporter()
        reporter.section(f"retrying {len(self.failures)} failed, each alone")
        for nodeid in self.failures:
            output = self._run_alone(nodeid)
            reporter.write_line(f"{nodeid}: {'passed' if output is None else 'failed again'}")
            if output is None:
                self.retried.append(nodeid)
            else:
                self.outputs[nodeid] = output
        self._count_as_retried(reporter)
        if not self.outputs:
            session.exitstatus = pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.failures and not self.retried and not self.outputs:
            terminalreporter.section("not retried")
            terminalreporter.write_line(f"{len(self.failures)} tests failed: {self._why_not()}")
        for nodeid, output in self.outputs.items():
            terminalreporter.section(f"failed again, alone: {nodeid}")
            terminalreporter.write_line(output)
        for nodeid in self.retried:
            terminalreporter.section(f"failed, then passed alone: {nodeid}")
            for report in self.failures[nodeid]:
                terminalreporter.write_line(report.longreprtext)
        if self.retried or self.outputs:
            terminalreporter.section("retried tests")
            for nodeid in self.failures:
                terminalreporter.write_line(f"{'PASSED' if nodeid in self.retried else 'FAILED'} on retry: {nodeid}")

    def _why_not(self) -> str:
        limit = self.config.getoption("retry_failed")
        return f"at most {limit} are retried" if len(self.failures) > limit else "the run was not completed"

    def _can_retry(self) -> bool:
        """Return whether few tests have failed and nothing else, such as an import of a test module."""
        others = [each for each in self._reported("error") if each.nodeid not in self.failures]
        return 0 < len(self.failures) <= self.config.getoption("retry_failed") and not others

    def _run_alone(self, nodeid: str) -> str | None:
        """Run one test in its own pytest process; return None if it passes, else the output."""
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", nodeid]
        for plugin in self.config.getoption("plugins"):
            command += ["-p", plugin]
        try:
            ran = subprocess.run(
                command,
                cwd=self.config.invocation_params.dir,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                text=True,
                errors="replace",
                timeout=RETRY_SECONDS_MAX,
            )
        except subprocess.TimeoutExpired:
            return f"not finished within {RETRY_SECONDS_MAX:g} s"
        return None if ran.returncode == pytest.ExitCode.OK else ran.stdout

    def _count_as_retried(self, reporter: pytest.TerminalReporter) -> None:
        for category in ("passed", "failed", "error"):
            kept = [each for each in self._reported(category) if each.nodeid not in self.retried]
            reporter.stats.pop(category, None)
            if kept:
                reporter.stats[category] = kept
        self.is_retrying = True
        for nodeid in self.retried:
            first = self.failures[nodeid][0]
            report = pytest.TestReport(nodeid, first.location, first.keywords, "passed", None, "call")
            self.config.hook.pytest_runtest_logreport(report=report)
        self.is_retrying = False

    def _reported(self, category: str) -> Iterator[pytest.TestReport]:
        yield from self._reporter().stats.get(category, [])

    def _reporter(self) -> pytest.TerminalReporter:
        reporter = self.config.pluginmanager.getplugin("terminalreporter")
        assert isinstance(reporter, pytest.TerminalReporter)
        return reporter
