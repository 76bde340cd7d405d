"""Brokers are started for a single test of a user's: what they import is most of the time that takes."""

from __future__ import annotations

import subprocess
import sys
from compileall import compile_dir
from pathlib import Path

import pytest

import chronik

pytestmark = pytest.mark.slow

DEADLINE_SECONDS = 60

NOT_NEEDED = (
    *("importlib.metadata", "tomllib", "pyspark", "pyarrow", "numpy", "h11", "secrets", "dataclasses"),
    *("chronik.replication", "chronik.client", "chronik.configs.kept_keys", "chronik.configs.group_keys"),
    "chronik.protocol.messages",
)

NEVER_NEEDED = ("shutil", "lzma", "bz2", "encodings.idna", "unicodedata", "ctypes", "dataclasses")
"""What modules of Python's own would bring along for little: some of these were 0.6 MB of a node."""

LOADED_AT_THE_START = """
import sys
import chronik.cli.main
import chronik.cli.start
import chronik.node.run
print(*(name for name in sys.argv[1:] if name in sys.modules))
"""

LOADED_IN_A_CLUSTER = """
import sys
import chronik.node.run
import chronik.node.clustered
from chronik.api.routing.handlers import HANDLERS
from chronik.protocol.apis import APIS
print(len([HANDLERS[key] for key in APIS]), *(name for name in sys.argv[1:] if name in sys.modules))
"""

RUN_UNTIL_ALL_IS_LOADED = """
import asyncio, gc, os, signal, sys
from chronik.api.routing.handlers import COMMON, HANDLERS
from chronik.cli.main import parser_of
from chronik.config import load_config
from chronik.node.run import run
from chronik.protocol.apis import APIS
from chronik.protocol.message_types import REQUESTS, RESPONSES

tasks = []

class AnotherVersion:  # is where the package was
    def find_spec(self, name, path=None, target=None):
        assert not name.startswith("chronik."), f"{name} would be loaded from another version"

async def end_when_all_is_loaded():
    while not gc.callbacks:  # it is told to keep collections short when the rest is there
        await asyncio.sleep(0.01)
    os.kill(os.getpid(), signal.SIGTERM)
    assert {APIS[key].name for key in HANDLERS} == COMMON
    sys.meta_path.insert(1, AnotherVersion())
    return [(HANDLERS[key], RESPONSES[key], REQUESTS[key]) for key in APIS]

def ready(node, address):
    assert not HANDLERS, sorted(HANDLERS)
    tasks.append(asyncio.ensure_future(end_when_all_is_loaded()))

parser_of("start").parse_args([])
code = run(load_config(None, {}, data_dir=sys.argv[1], kafka="127.0.0.1:0"), ready=ready)
assert len(tasks[0].result()) == len(APIS)
print(*(name for name in sys.argv[2:] if name in sys.modules))
sys.exit(code)
"""

RUN_AND_STOP_AT_ONCE = """
import os, signal, sys
from chronik.api.routing.handlers import HANDLERS
from chronik.config import load_config
from chronik.node.run import run

def ready(node, address):
    os.kill(os.getpid(), signal.SIGTERM)

code = run(load_config(None, {}, data_dir=sys.argv[1], kafka="127.0.0.1:0"), ready=ready)
assert not HANDLERS, sorted(HANDLERS)
sys.exit(code)
"""


def output_of(script: str, *arguments: str) -> list[str]:
    finished = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.split()


def test_a_standalone_broker_imports_nothing_that_it_does_not_use() -> None:
    assert output_of(LOADED_AT_THE_START, *NOT_NEEDED) == []


def test_what_a_node_loads_declares_no_dataclass() -> None:
    """A dataclass takes half a millisecond to make, a struct of msgspec's a hundredth of one."""
    count, *found = output_of(LOADED_IN_A_CLUSTER, "dataclasses")
    assert int(count) > 40
    assert found == []


def test_the_rest_is_loaded_after_the_start_or_kept_as_it_is(tmp_path: Path) -> None:
    """Another version may be installed then: no part of it comes into a node that runs."""
    compile_dir(chronik.__path__[0], quiet=2)  # as installed packages are; the compiler loads unicodedata
    assert output_of(RUN_UNTIL_ALL_IS_LOADED, str(tmp_path / "data"), *NEVER_NEEDED) == []


def test_a_node_that_is_stopped_at_once_does_not_load_the_rest(tmp_path: Path) -> None:
    output_of(RUN_AND_STOP_AT_ONCE, str(tmp_path / "data"))
