"""The consistent point of a backup: an image and log end offsets between which no transaction is committed.

Without a hold, a transaction could be committed while the offsets are recorded. Its markers could be below the end of
one partition but not of another, and the restore would contain a part of the transaction. Commits are therefore blocked
for that time.
"""

from __future__ import annotations

import time
from typing import Final, NamedTuple

from chronik.client.cluster import Cluster, raise_for
from chronik.client.features import levels_told_by
from chronik.metadata.image import Image
from chronik.metadata.levels import GROWTH
from chronik.metadata.records import TransactionState
from chronik.metadata.snapshot import decode_snapshot
from chronik.moving import failpoints
from chronik.moving.backup.reading import Ends, Reader
from chronik.moving.source import CannotMove, visible_topics
from chronik.moving.target import Key
from chronik.protocol.messages.describe_image import DescribeImageRequest, DescribeImageResponse
from chronik.protocol.messages.hold_commits import HoldCommitsRequest, HoldCommitsResponse

TRIES_MAX: Final = 5
"""The maximum number of attempts."""
QUIET_SECONDS_MAX: Final = 5.0
"""The time to wait for the markers of already committed transactions while other commits are blocked."""
LOOK_SECONDS: Final = 0.02
"""The interval at which the image is polled."""


class Moment(NamedTuple):
    """A consistent point of the cluster: its image and the log end offsets."""

    chunks: list[bytes]
    """The image as encoded snapshot chunks."""
    image: Image
    ends: dict[Key, Ends]


def moment_of(cluster: Cluster) -> Moment:
    """Return a consistent point of the cluster.

    Raises:
        MigrationError: Transaction markers are not written in time, or the hold was replaced repeatedly.
    """
    levels = cluster.retrying(lambda: levels_told_by(cluster.any_broker()))
    if levels is None:
        raise CannotMove("the cluster is not a Chronik cluster")
    if levels.level < GROWTH:
        return _read_ends(cluster, *_read_image(cluster))
    for _ in range(TRIES_MAX):
        hold = _hold_commits(cluster, 0).hold
        failpoints.reached(failpoints.HELD)
        try:
            moment = _read_ends(cluster, *_wait_for_markers(cluster))
        finally:
            was_in_force = _hold_commits(cluster, hold).was_in_force
        if was_in_force:
            return moment
    raise CannotMove("transaction commits could not be blocked long enough: is another backup running?")


def _read_ends(cluster: Cluster, chunks: list[bytes], image: Image) -> Moment:
    keys = [(topic.id, index) for topic in visible_topics(image) for index in range(len(topic.partitions))]
    return Moment(chunks, image, Reader(cluster, image).ends(keys))


def _wait_for_markers(cluster: Cluster) -> tuple[list[bytes], Image]:
    """Return an image in which all committed transactions have their markers."""
    deadline = time.monotonic() + QUIET_SECONDS_MAX
    while True:
        chunks, image = _read_image(cluster)
        if all(each.state is not TransactionState.PREPARE_COMMIT for each in image.unfinished_transactions()):
            return chunks, image
        if time.monotonic() > deadline:
            raise CannotMove(
                "the markers of a committed transaction are not written: check that every partition has a leader"
            )
        time.sleep(LOOK_SECONDS)


def _read_image(cluster: Cluster) -> tuple[list[bytes], Image]:
    def ask() -> list[bytes]:
        response = cluster.any_broker().request(DescribeImageRequest(), DescribeImageResponse)
        raise_for(response.error_code, "the cluster's image", response.error_message)
        return [chunk.data for chunk in response.chunks]

    chunks = cluster.retrying(ask)
    return chunks, decode_snapshot(chunks)


def _hold_commits(cluster: Cluster, hold: int) -> HoldCommitsResponse:
    def ask() -> HoldCommitsResponse:
        response = cluster.any_broker().request(HoldCommitsRequest(hold=hold), HoldCommitsResponse)
        raise_for(response.error_code, "transaction commits were not blocked", response.error_message)
        return response

    return cluster.retrying(ask)
