"""Config files of local nodes that are added to a cluster or removed from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from chronik.cli.arguments import InvalidInput
from chronik.cli.cluster.local_nodes import (
    BasePorts,
    choose_next_node_id,
    load_nodes,
    plan_local_node,
    plan_nodes,
    retire_node,
    write_configs,
)
from chronik.config import load_config
from chronik.testing.ports import ReservedPorts

VOTES = {1: True, 2: True, 3: False}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    reserved = ReservedPorts(3)
    reserved.release()
    write_configs(plan_nodes(tmp_path, 3, BasePorts(*reserved.ports)))
    return tmp_path


def test_new_node_shares_cluster_secret_and_gets_free_ports(folder: Path) -> None:
    before = load_nodes(folder)
    assert choose_next_node_id(folder, [1, 2, 3]) == 4
    new = plan_local_node(folder, 4, "cellar", VOTES)
    assert not new.config_file.exists()
    write_configs([new])
    config = load_config(folder / "node4.toml", {})
    assert (config.node_id, config.rack, config.data_dir) == (4, "cellar", folder / "node4")
    assert config.cluster_secret == before[0].config.cluster_secret
    assert (config.replication_factor, config.min_insync_replicas) == (3, 2)
    assert [(peer.id, peer.voter) for peer in config.peers] == [(1, True), (2, True), (3, False), (4, False)]
    taken = [address for node in before for address in node.list_addresses().values()]
    assert not {config.kafka, config.http, config.peers[3].raft} & set(taken)
    assert [node.id for node in load_nodes(folder)] == [1, 2, 3, 4]
    assert choose_next_node_id(folder, [1, 2, 3]) == 4  # it has a config file, but was not added yet
    assert choose_next_node_id(folder, [1, 2, 3, 4]) == 5


def test_retired_node_is_not_expected_any_more(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    retire_node(load_nodes(folder)[1])
    assert capsys.readouterr().out == f"node 2: was not running; its data is kept in {folder / 'node2'}\n"
    assert [node.id for node in load_nodes(folder)] == [1, 3]
    assert (folder / "node2.toml.removed").exists()


def test_id_of_retired_node_can_be_reused_without_its_data_directory(folder: Path) -> None:
    retire_node(load_nodes(folder)[2])
    assert choose_next_node_id(folder, [1, 2]) == 4
    retire_node(load_nodes(folder)[1])
    assert plan_local_node(folder, 2, None, VOTES).id == 2
    (folder / "node2").mkdir()
    with pytest.raises(InvalidInput, match="move it away first"):
        plan_local_node(folder, 2, None, VOTES)
