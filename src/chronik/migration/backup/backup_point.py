"""The consistent point of a backup: an image and log end offsets between which no transaction is committed.

Without a hold, a transaction could be committed while the offsets are recorded. Its markers could be below the end of
one partition but not of another, and the restore would contain a part of the transaction. Commits are therefore blocked
for that time.
"""

from __future__ import annotations

import time
from typing import Final, NamedTuple

from chronik.client.cluster import ClusterClient, raise_for_code
from chronik.client.features import describe_feature_levels
from chronik.metadata.image import Image
from chronik.metadata.levels import DYNAMIC_MEMBERSHIP_LEVEL
from chronik.metadata.records import TransactionState
from chronik.metadata.snapshot import decode_snapshot
from chronik.migration import failpoints
from chronik.migration.backup.cluster_reader import ClusterReader, LogRange
from chronik.migration.source import MigrationError, visible_topics
from chronik.migration.target_cluster import TopicIdPartition
from chronik.protocol.messages.describe_image import DescribeImageRequest, DescribeImageResponse
from chronik.protocol.messages.hold_commits import HoldCommitsRequest, HoldCommitsResponse

ATTEMPTS_MAX: Final = 5
"""The maximum number of attempts."""
MARKERS_TIMEOUT_SECONDS: Final = 5.0
"""The time to wait for the markers of already committed transactions while other commits are blocked."""
POLL_INTERVAL_SECONDS: Final = 0.02
"""The interval at which the image is polled."""


class BackupPoint(NamedTuple):
    """A consistent point of the cluster: its image and the log end offsets."""

    chunks: list[bytes]
    """The image as encoded snapshot chunks."""
    image: Image
    ends: dict[TopicIdPartition, LogRange]


def create_backup_point(cluster: ClusterClient) -> BackupPoint:
    """Return a consistent point of the cluster.

    Raises:
        MigrationError: Transaction markers are not written in time, or the hold was replaced repeatedly.
    """
    levels = cluster.retry(lambda: describe_feature_levels(cluster.any_broker()))
    if levels is None:
        raise MigrationError("the cluster is not a Chronik cluster")
    if levels.level < DYNAMIC_MEMBERSHIP_LEVEL:
        return _read_ends(cluster, *_read_image(cluster))
    for _ in range(ATTEMPTS_MAX):
        hold = _hold_commits(cluster, 0).hold
        failpoints.hit_failpoint(failpoints.HELD)
        try:
            moment = _read_ends(cluster, *_wait_for_markers(cluster))
        finally:
            was_in_force = _hold_commits(cluster, hold).was_in_force
        if was_in_force:
            return moment
    raise MigrationError("transaction commits could not be blocked long enough: is another backup running?")


def _read_ends(cluster: ClusterClient, chunks: list[bytes], image: Image) -> BackupPoint:
    keys = [(topic.id, index) for topic in visible_topics(image) for index in range(len(topic.partitions))]
    return BackupPoint(chunks, image, ClusterReader(cluster, image).read_log_ranges(keys))


def _wait_for_markers(cluster: ClusterClient) -> tuple[list[bytes], Image]:
    """Return an image in which all committed transactions have their markers."""
    deadline = time.monotonic() + MARKERS_TIMEOUT_SECONDS
    while True:
        chunks, image = _read_image(cluster)
        if all(each.state is not TransactionState.PREPARE_COMMIT for each in image.unfinished_transactions()):
            return chunks, image
        if time.monotonic() > deadline:
            raise MigrationError(
                "the markers of a committed transaction are not written: check that every partition has a leader"
            )
        time.sleep(POLL_INTERVAL_SECONDS)


def _read_image(cluster: ClusterClient) -> tuple[list[bytes], Image]:
    def ask() -> list[bytes]:
        response = cluster.any_broker().request(DescribeImageRequest(), DescribeImageResponse)
        raise_for_code(response.error_code, "the cluster's image", response.error_message)
        return [chunk.data for chunk in response.chunks]

    chunks = cluster.retry(ask)
    return chunks, decode_snapshot(chunks)


def _hold_commits(cluster: ClusterClient, hold: int) -> HoldCommitsResponse:
    def ask() -> HoldCommitsResponse:
        response = cluster.any_broker().request(HoldCommitsRequest(hold=hold), HoldCommitsResponse)
        raise_for_code(response.error_code, "transaction commits were not blocked", response.error_message)
        return response

    return cluster.retry(ask)
