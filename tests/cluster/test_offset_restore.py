"""Backups with more committed offsets than one command can contain are checked and restored completely."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chronik.client.admin import NewTopic, create_topics
from chronik.client.cluster import ClusterClient as Client
from chronik.client.groups import commit_offsets
from chronik.client.records import TopicPartition
from chronik.metadata.commands.imports import IMPORTED_OFFSETS_MAX
from chronik.metadata.image import Image
from chronik.metadata.records import CommittedOffset
from chronik.migration import failpoints
from chronik.migration.target_cluster import read_cluster_image
from chronik.testing.cluster import Cluster
from tests import run_size
from tests.cli.command_line import environment

pytestmark = pytest.mark.xdist_group("cluster")

PARTITIONS = run_size.sized(300, 2000)
GROUPS = run_size.sized(340, 500)
SECONDS_MAX = run_size.sized(120, 1200)


def run(*words: str, fail_at: str = "") -> str:
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "chronik", *words],
        env=environment(None) | ({failpoints.ENVIRONMENT_VARIABLE: fail_at} if fail_at else {}),
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    assert done.returncode == (failpoints.EXIT_CODE if fail_at else 0), done.stderr
    peak_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"{words[0]}: {time.monotonic() - began:.1f} s, largest process so far {peak_mb:,.0f} MB")
    return done.stdout


def offsets_of(image: Image) -> dict[str, dict[tuple[str, int], CommittedOffset]]:
    return {group_id: dict(image.offsets(group_id)) for group_id in image.groups_with_offsets()}


def test_backup_with_offsets_beyond_one_command_is_restored(tmp_path: Path) -> None:
    folder = str(tmp_path / "backup")
    with Cluster(1) as cluster, Client(cluster.bootstrap) as client:
        create_topics(client, [NewTopic("orders", PARTITIONS)])
        for number in range(GROUPS):
            commit_offsets(
                client, f"readers-{number}", {TopicPartition("orders", each): 0 for each in range(PARTITIONS)}
            )
        before = offsets_of(read_cluster_image(client))
        count = sum(map(len, before.values()))
        assert count == PARTITIONS * GROUPS > IMPORTED_OFFSETS_MAX
        run("backup", folder, "-b", cluster.bootstrap)
    assert "can be restored: run 1, " in run("backup", folder, "--check")
    with Cluster(1) as other, Client(other.bootstrap) as client:
        run("restore", folder, "-b", other.bootstrap, "--yes", fail_at="groups:7")
        assert not [name for name in read_cluster_image(client).topics if name == "orders"], (
            "the topic is not visible yet"
        )
        done = run("restore", folder, "-b", other.bootstrap, "--yes")
        assert f"{count:,} committed offsets" in done.splitlines()[-1]
        assert offsets_of(read_cluster_image(client)) == before
