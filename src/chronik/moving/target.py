"""The target cluster of an import, accessed by Chronik's private APIs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, TypeVar

from chronik.client.cluster import Cluster, raise_for
from chronik.client.errors import ClientError
from chronik.client.features import levels_told_by
from chronik.metadata.commands.topics import NO_LEADER
from chronik.metadata.image import Image
from chronik.metadata.levels import FEATURE, GROWTH
from chronik.metadata.snapshot import decode_snapshot
from chronik.moving.source import CannotMove
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.alter_import import AlterImportRequest, AlterImportResponse
from chronik.protocol.messages.describe_image import DescribeImageRequest, DescribeImageResponse
from chronik.protocol.messages.import_security import ImportSecurityRequest, ImportSecurityResponse
from chronik.protocol.schema import Request, Response

R = TypeVar("R", bound=Response)

Key = tuple[bytes, int]
"""A partition: topic id and index."""

PASSING: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_ID,  # on a node whose image does not contain the topic yet
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Retriable errors, which disappear when a leader is elected or replicas return."""

PAUSE_SECONDS: Final = 0.1


def read_image(cluster: Cluster) -> Image:
    """Return the metadata image of the cluster.

    Raises:
        MigrationError: The cluster is not a Chronik cluster.
        KafkaError: The request was rejected.
        ClientError: The cluster cannot be reached.
    """

    def ask() -> Image:
        broker = cluster.any_broker()
        if levels_told_by(broker) is None:
            raise CannotMove(f"{broker.address} is not a Chronik node")
        response = broker.request(DescribeImageRequest(), DescribeImageResponse)
        raise_for(response.error_code, "the cluster's image", response.error_message)
        return decode_snapshot(chunk.data for chunk in response.chunks)

    return cluster.retrying(ask)


class Target:
    """The cluster into which topics are imported."""

    def __init__(self, cluster: Cluster) -> None:
        """Read the cluster's image.

        Raises:
            MigrationError: The cluster's feature level is too low.
        """
        self._cluster = cluster
        levels = cluster.retrying(lambda: levels_told_by(cluster.any_broker()))
        if levels is None or levels.level < GROWTH:
            at = "is not a Chronik cluster" if levels is None else f"is at {FEATURE} {levels.level}"
            raise CannotMove(f"the cluster {at}, and an import needs {GROWTH}: raise it with chronik cluster upgrade")
        self._progress_at = time.monotonic()
        self.image = read_image(cluster)

    def refresh(self) -> None:
        """Reload the metadata and the image of the cluster."""
        self._cluster.forget()
        self._cluster.retrying(lambda: self._cluster.metadata([]))
        self.image = read_image(self._cluster)

    def alter(self, request: AlterImportRequest) -> AlterImportResponse:
        """Send a request that changes the import. Every request is idempotent."""

        def ask() -> AlterImportResponse:
            response = self._cluster.any_broker().request(request, AlterImportResponse)
            raise_for(response.error_code, "not imported", response.error_message)
            return response

        return self._cluster.retrying(ask)

    def bring(self, request: ImportSecurityRequest) -> None:
        """Send a request with users, ACLs or quotas. Every request is idempotent."""

        def ask() -> None:
            response = self._cluster.any_broker().request(request, ImportSecurityResponse)
            raise_for(response.error_code, "not imported", response.error_message)

        self._cluster.retrying(ask)

    # --- partition leaders ---

    def by_leader(self, keys: Sequence[Key]) -> dict[int, list[Key]]:
        """Return the partitions that have a leader, by leader."""
        led: dict[int, list[Key]] = {}
        for topic_id, index in keys:
            topic = self.image.held_topics.get(topic_id)
            leader = NO_LEADER if topic is None else topic.partitions[index].leader
            if leader != NO_LEADER:
                led.setdefault(leader, []).append((topic_id, index))
        return led

    def ask(self, leader: int, request: Request, response_type: type[R], wait_s: float = 0.0) -> R | None:
        """Send a request to a leader. Return its response, or None if it is not available."""
        try:
            return self._cluster.broker(leader).request(request, response_type, wait_s=wait_s)
        except ClientError:
            return None
        except KafkaError as error:
            if error.code is not ErrorCode.LEADER_NOT_AVAILABLE:
                raise
            return None

    def progressed(self) -> None:
        """Reset the timer of `stuck`."""
        self._progress_at = time.monotonic()

    def stuck(self, reason: str) -> None:
        """Pause and look up the leaders again.

        Raises:
            MigrationError: There was no progress for the client's timeout.
        """
        if time.monotonic() - self._progress_at > self._cluster.timeout_s:
            raise CannotMove(f"no progress for {self._cluster.timeout_s:g} s: {reason}")
        time.sleep(PAUSE_SECONDS)
        self.refresh()

    @property
    def timeout_s(self) -> float:
        return self._cluster.timeout_s
