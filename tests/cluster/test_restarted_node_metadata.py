"""A restarted node never reports an existing topic as unknown: it catches up first, or returns a retriable error."""

from __future__ import annotations

import threading
import time
from contextlib import closing

import pytest

from chronik.client.errors import ClientError
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from chronik.testing.cluster import ClusterNode
from chronik.testing.plugin import ClusterFactory
from tests.cluster import replication_helpers
from tests.raw import RawClient

pytestmark = pytest.mark.xdist_group("cluster")

RESTARTS = 2
TOPIC = "topic"
ANSWERS = 5
PAUSE_SECONDS = 0.001


class FirstAnswers:
    """Requests the topic before the port is open, and records the first responses."""

    def __init__(self, node: ClusterNode) -> None:
        self._node = node
        self.error_codes: list[ErrorCode] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        deadline = time.monotonic() + replication_helpers.DEADLINE_SECONDS
        while len(self.error_codes) < ANSWERS and time.monotonic() < deadline:
            try:
                self._ask()
            except (OSError, ClientError):
                time.sleep(PAUSE_SECONDS)

    def _ask(self) -> None:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False)
        with RawClient(self._node.bootstrap) as client:
            while len(self.error_codes) < ANSWERS:
                answer = client.request(request, 12, MetadataResponse)
                self.error_codes.append(ErrorCode(answer.topics[0].error_code))

    def close(self) -> None:
        self._thread.join()


def test_restarted_node_never_reports_existing_topic_as_unknown(chronik_cluster_factory: ClusterFactory) -> None:
    cluster = chronik_cluster_factory()
    replication_helpers.create_topic(cluster, TOPIC, 1)
    for _ in range(RESTARTS):
        for node in cluster.nodes.values():
            node.stop()
            with closing(FirstAnswers(node)) as answers:
                node.start()
            assert len(answers.error_codes) == ANSWERS
            assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION not in answers.error_codes
        cluster.wait_until_ready()
