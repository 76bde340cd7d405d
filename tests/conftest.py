"""What tests have to tell at the end of a run, whichever worker ran them: `record_property("summary", "…")`."""

from __future__ import annotations

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, value in report.user_properties:
            if name == "summary":
                terminalreporter.write_line(str(value))
