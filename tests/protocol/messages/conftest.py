"""Reports, at the end of a run, how many message versions were compared with how many other codecs."""

from __future__ import annotations

import warnings

import pytest

with warnings.catch_warnings():
    # kafka-python loads its schemas by a function that Python 3.11 and 3.12 call deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from . import oracles as _oracles  # noqa: F401


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, value in report.user_properties:
            if name == "codec coverage":
                terminalreporter.write_line(f"codec coverage: {value}")
