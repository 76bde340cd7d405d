"""The target cluster of an import, accessed by Chronik's private APIs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, TypeVar

from chronik.client.cluster import ClusterClient, raise_for_code
from chronik.client.errors import ClientError
from chronik.client.nodes import describe_feature_levels
from chronik.metadata.commands.topics import NO_LEADER
from chronik.metadata.image import Image
from chronik.metadata.levels import DYNAMIC_MEMBERSHIP_LEVEL, FEATURE_NAME
from chronik.metadata.snapshot import decode_snapshot
from chronik.migration.source import MigrationError
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.alter_import import AlterImportRequest, AlterImportResponse
from chronik.protocol.messages.describe_image import DescribeImageRequest, DescribeImageResponse
from chronik.protocol.messages.import_schemas import ImportSchemasRequest, ImportSchemasResponse
from chronik.protocol.messages.import_security import ImportSecurityRequest, ImportSecurityResponse
from chronik.protocol.schema import Request, Response

R = TypeVar("R", bound=Response)

TopicIdPartition = tuple[bytes, int]
"""A partition, identified by its topic id and its index."""

RETRIABLE_ERRORS: Final = frozenset(
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
"""The error codes after which an import request is retried: a leader election or rejoining replicas resolve them."""

RETRY_DELAY_SECONDS: Final = 0.1


def read_cluster_image(cluster: ClusterClient) -> Image:
    """Return the metadata image of the cluster.

    Raises:
        MigrationError: The cluster is not a Chronik cluster.
        KafkaError: The request was rejected.
        ClientError: The cluster cannot be reached.
    """

    def ask() -> Image:
        broker = cluster.any_broker()
        if describe_feature_levels(broker) is None:
            raise MigrationError(f"{broker.address} is not a Chronik node")
        response = broker.request(DescribeImageRequest(), DescribeImageResponse)
        raise_for_code(response.error_code, "the cluster's image", response.error_message)
        return decode_snapshot(chunk.data for chunk in response.chunks)

    return cluster.retry(ask)


class TargetCluster:
    """The cluster into which topics are imported."""

    def __init__(self, cluster: ClusterClient) -> None:
        """Read the cluster's metadata image.

        Raises:
            MigrationError: The cluster's feature level is too low.
        """
        self._cluster = cluster
        levels = cluster.retry(lambda: describe_feature_levels(cluster.any_broker()))
        if levels is None or levels.level < DYNAMIC_MEMBERSHIP_LEVEL:
            at = "is not a Chronik cluster" if levels is None else f"is at {FEATURE_NAME} {levels.level}"
            raise MigrationError(
                f"the cluster {at}, and an import needs {DYNAMIC_MEMBERSHIP_LEVEL}: raise it with chronik cluster "
                "upgrade"
            )
        self._progress_at = time.monotonic()
        self.image = read_cluster_image(cluster)

    def refresh(self) -> None:
        """Reload the client's metadata and the cluster's metadata image."""
        self._cluster.invalidate_metadata()
        self._cluster.retry(lambda: self._cluster.metadata([]))
        self.image = read_cluster_image(self._cluster)

    def alter(self, request: AlterImportRequest) -> AlterImportResponse:
        """Send an AlterImport request, which is idempotent and therefore retried after retriable errors."""

        def ask() -> AlterImportResponse:
            response = self._cluster.any_broker().request(request, AlterImportResponse)
            raise_for_code(response.error_code, "not imported", response.error_message)
            return response

        return self._cluster.retry(ask)

    def import_security(self, request: ImportSecurityRequest) -> None:
        """Send an ImportSecurity request, which is idempotent and therefore retried after retriable errors."""

        def ask() -> None:
            response = self._cluster.any_broker().request(request, ImportSecurityResponse)
            raise_for_code(response.error_code, "not imported", response.error_message)

        self._cluster.retry(ask)

    def import_schemas(self, request: ImportSchemasRequest) -> None:
        """Send an ImportSchemas request, which is idempotent and therefore retried after retriable errors."""

        def ask() -> None:
            response = self._cluster.any_broker().request(request, ImportSchemasResponse)
            raise_for_code(response.error_code, "not imported", response.error_message)

        self._cluster.retry(ask)

    # --- partition leaders ---

    def group_by_leader(self, keys: Sequence[TopicIdPartition]) -> dict[int, list[TopicIdPartition]]:
        """Group the partitions by the broker id of their leader. Partitions without a leader are omitted."""
        led: dict[int, list[TopicIdPartition]] = {}
        for topic_id, index in keys:
            topic = self.image.all_topics_by_id.get(topic_id)
            leader = NO_LEADER if topic is None else topic.partitions[index].leader
            if leader != NO_LEADER:
                led.setdefault(leader, []).append((topic_id, index))
        return led

    def send_request(self, leader: int, request: Request, response_type: type[R], wait_s: float = 0.0) -> R | None:
        """Send a request to a partition leader. Return the response, or None if the leader is unavailable."""
        try:
            return self._cluster.broker(leader).request(request, response_type, wait_s=wait_s)
        except ClientError:
            return None
        except KafkaError as error:
            if error.code is not ErrorCode.LEADER_NOT_AVAILABLE:
                raise
            return None

    def restart_progress_timeout(self) -> None:
        """Restart the timeout of `wait_for_progress`, because the import has made progress."""
        self._progress_at = time.monotonic()

    def wait_for_progress(self, reason: str) -> None:
        """Wait briefly before the next attempt and refresh the metadata, so that new partition leaders are found.

        Raises:
            MigrationError: There was no progress for the client's timeout.
        """
        if time.monotonic() - self._progress_at > self._cluster.timeout_s:
            raise MigrationError(f"no progress for {self._cluster.timeout_s:g} s: {reason}")
        time.sleep(RETRY_DELAY_SECONDS)
        self.refresh()

    @property
    def timeout_s(self) -> float:
        return self._cluster.timeout_s
