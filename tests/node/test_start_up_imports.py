"""Imports at the start of a node, which are most of its start-up time. A standalone node does not import Raft."""

from __future__ import annotations

import json
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
    *("chronik.replication", "chronik.client", "chronik.configs.ignored_keys", "chronik.configs.group_keys"),
    "chronik.protocol.messages",
)

NEVER_NEEDED = ("shutil", "lzma", "bz2", "encodings.idna", "unicodedata", "ctypes", "dataclasses")
"""Modules of the standard library that other modules import needlessly: some take 0.6 MB of a node's memory."""

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
import chronik.node.cluster_mode
from chronik.api.routing.handlers import HANDLERS
from chronik.protocol.apis import APIS
print(len([HANDLERS[key] for key in APIS]), *(name for name in sys.argv[1:] if name in sys.modules))
"""

RUN_UNTIL_ALL_IS_LOADED = """
import asyncio, gc, os, signal, sys
from chronik.api.routing.handlers import HANDLERS
from chronik.cli.main import build_parser
from chronik.config import load_config
from chronik.node.run import run
from chronik.protocol.apis import APIS
from chronik.protocol.codec import REQUESTS, RESPONSES

tasks = []

class AnotherVersion:  # stands for a newer version installed in place of the running one
    def find_spec(self, name, path=None, target=None):
        assert not name.startswith("chronik."), f"{name} would be loaded from another version"

async def end_when_all_is_loaded():
    while not gc.callbacks:  # they are set after the remaining imports
        await asyncio.sleep(0.01)
    os.kill(os.getpid(), signal.SIGTERM)
    assert set(HANDLERS) == set(APIS)
    sys.meta_path.insert(1, AnotherVersion())
    return [(HANDLERS[key], RESPONSES[key], REQUESTS[key]) for key in APIS]

def ready(node, address):
    assert not HANDLERS, sorted(HANDLERS)
    tasks.append(asyncio.ensure_future(end_when_all_is_loaded()))

build_parser("start").parse_args([])
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

START_AND_ASK = """
import asyncio, json, sys
from chronik.client.connection import BrokerConnection
from chronik.config import load_config
from chronik.node.node import Node
from chronik.protocol.messages.describe_quorum import (
    DescribeQuorumRequest, DescribeQuorumResponse, DescribeQuorumPartition, DescribeQuorumTopic,
)

async def main():
    node = Node(load_config(None, {}, data_dir=sys.argv[1], kafka="127.0.0.1:0"))
    address = await node.start()
    try:
        response = await asyncio.to_thread(ask, address)
    finally:
        await node.stop()
    (partition,) = response.topics[0].partitions
    loaded = sorted(name for name in sys.modules if name.startswith("chronik."))
    print(json.dumps({"leader": partition.leader_id, "loaded": loaded}))

def ask(address):
    topic = DescribeQuorumTopic(
        topic_name="__cluster_metadata", partitions=[DescribeQuorumPartition(partition_index=0)]
    )
    connection = BrokerConnection(address, client_id="test")
    try:
        return connection.request(DescribeQuorumRequest(topics=[topic]), DescribeQuorumResponse)
    finally:
        connection.close()

asyncio.run(main())
"""


def run_script(script: str, *arguments: str) -> list[str]:
    finished = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.split()


def test_standalone_broker_imports_no_unused_modules() -> None:
    assert run_script(LOADED_AT_THE_START, *NOT_NEEDED) == []


def test_node_modules_define_no_dataclasses() -> None:
    """Creating a dataclass takes 0.5 ms, a msgspec struct a hundredth of that."""
    count, *found = run_script(LOADED_IN_A_CLUSTER, "dataclasses")
    assert int(count) > 40
    assert found == []


def test_remaining_modules_are_imported_after_start(tmp_path: Path) -> None:
    """A newer version may be installed while the node runs: its modules must not be imported."""
    compile_dir(chronik.__path__[0], quiet=2)  # as in an installed package; the compiler would import unicodedata
    assert run_script(RUN_UNTIL_ALL_IS_LOADED, str(tmp_path / "data"), *NEVER_NEEDED) == []


def test_node_stopped_immediately_skips_remaining_imports(tmp_path: Path) -> None:
    run_script(RUN_AND_STOP_AT_ONCE, str(tmp_path / "data"))


def test_standalone_node_describes_quorum_without_importing_raft(tmp_path: Path) -> None:
    finished = subprocess.run(
        [sys.executable, "-c", START_AND_ASK, str(tmp_path / "data")],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    result = json.loads(finished.stdout)
    assert result["leader"] == 1
    assert "chronik.node.standalone_mode" in result["loaded"]
    cluster_packages = ("chronik.raft", "chronik.quorum", "chronik.peers")
    assert [name for name in result["loaded"] if name.startswith(cluster_packages)] == []
    assert not {"chronik.node.cluster_mode", "chronik.metadata.stores.raft_store"} & set(result["loaded"])
