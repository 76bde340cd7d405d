"""The moment that a backup is of: an image, and where all logs end after it, with no transaction committed in between.

A transaction that is committed while ends are noted could have its marker below one end, and not below another: a part
of it would be restored. So commits are held back for as long as it takes.
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
QUIET_SECONDS_MAX: Final = 5.0
"""How long markers of transactions that are decided already are waited for, while others are held back."""
LOOK_SECONDS: Final = 0.02


class Moment(NamedTuple):
    chunks: list[bytes]
    """The image, as a snapshot holds it."""
    image: Image
    ends: dict[Key, Ends]


def moment_of(cluster: Cluster) -> Moment:
    """Raises CannotMove when markers do not get to their partitions, and what the client raises."""
    levels = cluster.retrying(lambda: levels_told_by(cluster.any_broker()))
    if levels is None:
        raise CannotMove("the cluster is not one of Chronik's")
    if levels.level < GROWTH:
        return _seen(cluster, *_image(cluster))
    for _ in range(TRIES_MAX):
        hold = _ask(cluster, 0).hold
        failpoints.reached(failpoints.HELD)
        try:
            moment = _seen(cluster, *_quiet_image(cluster))
        finally:
            was_in_force = _ask(cluster, hold).was_in_force
        if was_in_force:
            return moment
    raise CannotMove("commits could not be held back for long enough: is another backup being taken?")


def _seen(cluster: Cluster, chunks: list[bytes], image: Image) -> Moment:
    keys = [(topic.id, index) for topic in visible_topics(image) for index in range(len(topic.partitions))]
    return Moment(chunks, image, Reader(cluster, image).ends(keys))


def _quiet_image(cluster: Cluster) -> tuple[list[bytes], Image]:
    """Returns an image in which no transaction that is committed lacks a marker."""
    deadline = time.monotonic() + QUIET_SECONDS_MAX
    while True:
        chunks, image = _image(cluster)
        if all(each.state is not TransactionState.PREPARE_COMMIT for each in image.unfinished_transactions()):
            return chunks, image
        if time.monotonic() > deadline:
            raise CannotMove("a transaction that is committed does not get its markers: has every partition a leader?")
        time.sleep(LOOK_SECONDS)


def _image(cluster: Cluster) -> tuple[list[bytes], Image]:
    def ask() -> list[bytes]:
        response = cluster.any_broker().request(DescribeImageRequest(), DescribeImageResponse)
        raise_for(response.error_code, "the cluster's image", response.error_message)
        return [chunk.data for chunk in response.chunks]

    chunks = cluster.retrying(ask)
    return chunks, decode_snapshot(chunks)


def _ask(cluster: Cluster, hold: int) -> HoldCommitsResponse:
    def ask() -> HoldCommitsResponse:
        response = cluster.any_broker().request(HoldCommitsRequest(hold=hold), HoldCommitsResponse)
        raise_for(response.error_code, "commits are not held back", response.error_message)
        return response

    return cluster.retrying(ask)
