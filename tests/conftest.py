"""Shared broker fixture, and summary lines of tests: `record_property("summary", "…")` prints one after the run."""

from __future__ import annotations

import gc
import signal
from collections.abc import Generator
from typing import Any

import hypothesis
import pytest

from tests import quick, retries
from tests.jvm_options import make_spark_short_lived
from tests.xdist_groups import (  # noqa: F401 - hooks
    pytest_collection_modifyitems,
    pytest_runtest_setup,
    pytest_sessionstart,
    pytest_xdist_make_scheduler,
)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in a shell's background job; child processes would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

make_spark_short_lived()


def pytest_addoption(parser: pytest.Parser) -> None:
    quick.pytest_addoption(parser)
    retries.pytest_addoption(parser)


def pytest_configure(config: pytest.Config) -> None:
    # Before the test modules are imported: a test without settings of its own has those of the time of its definition.
    hypothesis.settings.register_profile("patient", deadline=None)  # a shared machine may be slow
    hypothesis.settings.load_profile("patient")
    quick.pytest_configure(config)
    retries.pytest_configure(config)


@pytest.fixture(scope="session")
def chronik_broker_config() -> dict[str, Any]:
    """Disable retention checks: many tests write records with timestamps that are years old."""
    return {"broker": {"log.retention.check.interval.ms": "86400000"}}


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests without garbage collection, and freeze what they import: a collection would find nothing."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, value in report.user_properties:
            if name == "summary":
                terminalreporter.write_line(str(value))
