"""Nodes that stand alone start as fast, and are as small, as if there were no clusters: they never load Raft."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

DEADLINE_SECONDS = 60

START_AND_ASK = """
import asyncio, json, sys
from chronik.client.connection import Connection
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
    connection = Connection(address, client_id="test")
    try:
        return connection.request(DescribeQuorumRequest(topics=[topic]), DescribeQuorumResponse)
    finally:
        connection.close()

asyncio.run(main())
"""


def test_a_node_that_stands_alone_starts_and_describes_its_quorum_without_raft(tmp_path: Path) -> None:
    finished = subprocess.run(
        [sys.executable, "-c", START_AND_ASK, str(tmp_path / "data")],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    told = json.loads(finished.stdout)
    assert told["leader"] == 1
    assert "chronik.node.alone" in told["loaded"]
    of_clusters = ("chronik.raft", "chronik.quorum", "chronik.peers")
    assert [name for name in told["loaded"] if name.startswith(of_clusters)] == []
    assert not {"chronik.node.clustered", "chronik.metadata.stores.raft_store"} & set(told["loaded"])
