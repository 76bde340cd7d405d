"""Start-up log: mode, metadata store, and created objects with their committed index."""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path

import pytest

from chronik.config import NodeConfig
from chronik.node.node import Node
from chronik.protocol.messages.metadata import MetadataRequest, MetadataResponse
from chronik.testing.plugin import BrokerFactory, ClusterFactory
from tests.raw import RawClient

pytestmark = pytest.mark.xdist_group("cluster")

COMMITTED = r"term=\d+ index=\d+$"


def start_and_stop(data_dir: Path) -> None:
    async def run_node() -> None:
        node = Node(NodeConfig(data_dir=data_dir, kafka=NodeConfig().kafka._replace(port=0)))
        await node.start()
        await node.stop()

    asyncio.run(run_node())


def test_standalone_start_logs_mode_store_and_created_cluster(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    start_and_stop(tmp_path)
    assert f"node 1 starting: mode=standalone metadata_store=write-ahead-log(__meta) data_dir={tmp_path}" in caplog.text
    assert len(re.findall(r"cluster created: id=\S{22} index=\d+$", caplog.text, re.MULTILINE)) == 1
    assert re.search(r"registered broker 1: epoch=\d+ index=\d+$", caplog.text, re.MULTILINE)


def test_standalone_restart_logs_no_created_cluster(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    start_and_stop(tmp_path)
    caplog.set_level(logging.INFO)
    start_and_stop(tmp_path)
    assert "mode=standalone" in caplog.text
    assert "cluster created" not in caplog.text


def test_cluster_start_logs_mode_store_and_created_objects(chronik_cluster_factory: ClusterFactory) -> None:
    cluster = chronik_cluster_factory()
    for node in cluster.live_nodes:
        assert f"node {node.node_id} starting: mode=cluster metadata_store=raft(__raft)" in node.log
        assert re.search(rf"registered broker {node.node_id}: epoch=\d+ {COMMITTED}", node.log, re.MULTILINE)

    def created(pattern: str) -> list[str]:
        logs = "\n".join(node.log for node in cluster.live_nodes)
        return re.findall(rf"{pattern} {COMMITTED}", logs, re.MULTILINE)

    patterns = [r"cluster created: id=\S{22}"]
    for topic in ("__consumer_offsets", "__transaction_state", "__meta"):
        patterns.append(rf"system topic {topic} created: partitions=\d+")
    for pattern in patterns:
        # A node may answer clients before the leader has logged what it created.
        cluster.wait_until(lambda pattern=pattern: None if len(created(pattern)) == 1 else "not logged", pattern)  # type: ignore[misc]


def test_metadata_debug_line_has_broker_count_before_filtering(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory(log_level="debug")
    with RawClient(broker.bootstrap) as client:
        client.request(MetadataRequest(topics=[]), 12, MetadataResponse)
    assert re.search(r"Metadata response built: version=12 client_id=\S* brokers=1 registered=1 topics=0", broker.log)
