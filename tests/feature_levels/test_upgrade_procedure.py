"""The upgrade procedure of docs/operate/upgrading.md, from 0.2.0 to this version and back, under load."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from chronik.metadata import levels
from tests.cli.command_line import run_chronik
from tests.cluster import replication_helpers
from tests.cluster.client_load import PARTITIONS, running_client_loads
from tests.cluster.replication_helpers import collect_unclosed_sockets  # noqa: F401 - a fixture
from tests.feature_levels.earlier_versions import UpgradableCluster, commit_transaction, export_sources

pytestmark = [pytest.mark.xdist_group("cluster"), *replication_helpers.KAFKA_PYTHON_LEAVES_SOCKETS]

FIRST_LEVEL = 1
"""The feature level of 0.2.0."""

PAGE = Path(__file__).parents[2] / "docs" / "operate" / "upgrading.md"
COMMAND = re.compile(r"^ *```sh\n *chronik (.*)\n *```$", re.MULTILINE)


def run_command(command: str, cluster: UpgradableCluster) -> str:
    """Run a command of the page and return its output."""
    done = run_chronik(*command.split(), bootstrap=cluster.bootstrap)
    assert done.code == 0, done.out + done.err
    return done.out


def restart_when_safe(may_i_stop: str, cluster: UpgradableCluster, node_id: int, version: Path | None) -> float:
    """Restart a node as soon as the safety check allows it. Return the seconds that it took."""
    began = time.monotonic()
    run_command(may_i_stop.replace(" 1 ", f" {node_id} "), cluster)
    cluster[node_id].restart_with(version)
    return time.monotonic() - began


def test_upgrade_and_downgrade_cause_no_client_errors(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    earlier = export_sources(FIRST_LEVEL, tmp_path)
    may_i_stop, show_members, upgrade = COMMAND.findall(PAGE.read_text(encoding="utf-8"))
    durations: list[float] = []
    cluster = UpgradableCluster(earlier)
    with cluster:
        places = replication_helpers.create_topic(cluster, "rolled", PARTITIONS)
        cluster[1].create_topic("committed")
        with running_client_loads(cluster.bootstrap, "rolled") as (loads, followers):
            clients: list[replication_helpers.ProducerLoad | replication_helpers.ConsumerLoad] = [*loads, *followers]
            for client in clients:
                client.wait_until_progress()
            for version in (None, earlier, None):
                durations += [restart_when_safe(may_i_stop, cluster, node_id, version) for node_id in (1, 2, 3)]
                for client in clients:
                    client.wait_until_progress()
                assert "Members: 1, 2, 3" in run_command(show_members, cluster)
                assert cluster.levels == [FIRST_LEVEL] * 3
            assert run_command(upgrade, cluster) == f"chronik.version raised from {FIRST_LEVEL} to {levels.HIGHEST}\n"
            commit_transaction(cluster.bootstrap)
            for client in clients:
                client.wait_until_progress()
        problems = {client.name: client.problems[:3] for client in clients if client.problems}
        assert not problems, problems
        records = replication_helpers.check_records(cluster.bootstrap, places, loads)
        for follower in followers:
            replication_helpers.check_consumer(cluster.bootstrap, places, follower)
        replication_helpers.check_replicas(cluster, places)
        cluster.wait_until_agreed()
        assert cluster.levels == [levels.HIGHEST] * 3
    record_property(
        "summary",
        f"0.2.0 to now, back and here again under {', '.join(load.client for load in loads)}: {records:,} records, no"
        f" error, 0 lost, 0 doubled; each of {len(durations)} nodes took "
        f"{replication_helpers.format_median_and_max(durations)}",
    )
