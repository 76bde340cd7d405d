"""A standalone node does not import Raft, so clusters cost it neither start-up time nor memory."""

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
