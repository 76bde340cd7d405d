"""The upgrade procedure of docs/upgrading.md, from 0.2.0 to this version and back, while clients write and read."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from chronik.metadata import levels
from tests.cli.running import chronik
from tests.cluster import replicated
from tests.cluster.every_client import PARTITIONS, every_client
from tests.cluster.replicated import sockets_let_go  # noqa: F401 - a fixture
from tests.levels.earlier_versions import UpgradedCluster, commit_something, sources_of

pytestmark = [pytest.mark.xdist_group("cluster"), *replicated.KAFKA_PYTHON_LEAVES_SOCKETS]

FIRST_LEVEL = 1
"""The feature level of 0.2.0."""

PAGE = Path(__file__).parents[2] / "docs" / "upgrading.md"
COMMAND = re.compile(r"^ *```sh\n *chronik (.*)\n *```$", re.MULTILINE)


def run_command(command: str, cluster: UpgradedCluster) -> str:
    """Run a command of the page and return its output."""
    done = chronik(*command.split(), bootstrap=cluster.bootstrap)
    assert done.code == 0, done.out + done.err
    return done.out


def restart_when_safe(may_i_stop: str, cluster: UpgradedCluster, node_id: int, version: Path | None) -> float:
    """Restart a node as soon as the safety check allows it. Return the seconds that it took."""
    began = time.monotonic()
    run_command(may_i_stop.replace(" 1 ", f" {node_id} "), cluster)
    cluster[node_id].becomes(version)
    return time.monotonic() - began


def test_upgrade_and_downgrade_cause_no_client_errors(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    earlier = sources_of(FIRST_LEVEL, tmp_path)
    may_i_stop, show_members, upgrade = COMMAND.findall(PAGE.read_text(encoding="utf-8"))
    durations: list[float] = []
    cluster = UpgradedCluster(earlier)
    with cluster:
        places = replicated.make_topic(cluster, "rolled", PARTITIONS)
        cluster[1].create_topic("committed")
        with every_client(cluster.bootstrap, "rolled") as (loads, followers):
            clients: list[replicated.Load | replicated.Follower] = [*loads, *followers]
            for client in clients:
                client.wait_until_it_goes_on()
            for version in (None, earlier, None):
                durations += [restart_when_safe(may_i_stop, cluster, node_id, version) for node_id in (1, 2, 3)]
                for client in clients:
                    client.wait_until_it_goes_on()
                assert "Members: 1, 2, 3" in run_command(show_members, cluster)
                assert cluster.levels == [FIRST_LEVEL] * 3
            assert run_command(upgrade, cluster) == f"chronik.version is {levels.HIGHEST}; it was {FIRST_LEVEL}\n"
            commit_something(cluster.bootstrap)
            for client in clients:
                client.wait_until_it_goes_on()
        problems = {client.name: client.problems[:3] for client in clients if client.problems}
        assert not problems, problems
        records = replicated.check_records(cluster.bootstrap, places, loads)
        for follower in followers:
            replicated.check_follower(cluster.bootstrap, places, follower)
        replicated.check_replicas(cluster, places)
        cluster.wait_until_agreed()
        assert cluster.levels == [levels.HIGHEST] * 3
    record_property(
        "summary",
        f"0.2.0 to now, back and here again under {', '.join(load.client for load in loads)}: {records:,} records, no"
        f" error, 0 lost, 0 doubled; each of {len(durations)} nodes took {replicated.median_and_most(durations)}",
    )
