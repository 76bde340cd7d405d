"""Execution of `chronik` commands in the tests' process and Spark session, because a JVM takes long to start."""

from __future__ import annotations

import io
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from chronik.cli.main import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"


@dataclass(frozen=True)
class CommandOutput:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


def run_in_process(*words: str) -> CommandOutput:
    """Run a command in this process. Commands that need Spark use the active session, which must not be stopped."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(list(words))
    return CommandOutput(code, out.getvalue(), err.getvalue())


@contextmanager
def keep_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep the session when a command stops it, and restore what commands change in their process."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    monkeypatch.setenv("TZ", os.environ.get("TZ", "UTC"))  # `pipeline sql` changes it
    partitions = spark.conf.get(SHUFFLE_PARTITIONS)
    try:
        yield
    finally:
        spark.conf.set(SHUFFLE_PARTITIONS, partitions)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        monkeypatch.undo()
        time.tzset()
