"""SCRAM users of a cluster: a change through any node applies on all nodes and survives a kill of all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from chronik.config import Address
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from chronik.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from chronik.testing import Cluster
from chronik.testing.cluster import ClusterNode
from chronik.testing.ports import HOST, ReservedPorts
from tests import run_size
from tests.cluster.stopwatch import ChangeStopwatch
from tests.raw import RawClient
from tests.security.sasl.sasl_broker import ALL_MECHANISMS, authenticate, put_user

pytestmark = pytest.mark.slow

KNOWN_SECONDS_MAX = 1.0 if run_size.IS_LONG_RUN else 10.0


class AuthenticatingNode(ClusterNode):
    """A node with a second listener, `asking`, that requires authentication."""

    def __init__(self, folder: Path, kafka: Address, http: Address, **config: Any) -> None:
        self.reserved = ReservedPorts(1)
        self.asking = f"{HOST}:{self.reserved.ports[0]}"
        listeners = f"PLAINTEXT://{kafka},SASL_PLAINTEXT://{self.asking}"
        broker = {"listeners": listeners, "sasl.enabled.mechanisms": ALL_MECHANISMS}
        super().__init__(folder, kafka, http, **config, broker=broker)


class AuthenticatingCluster(Cluster):
    def _new_node(self, folder: Path, kafka: Address, http: Address, **config: Any) -> ClusterNode:
        return AuthenticatingNode(folder, kafka, http, **config)

    @property
    def asking(self) -> list[AuthenticatingNode]:
        return [node for node in self.nodes.values() if isinstance(node, AuthenticatingNode)]

    def close(self) -> None:
        super().close()
        for node in self.asking:
            node.reserved.release()


@pytest.fixture(scope="module")
def cluster() -> Iterator[AuthenticatingCluster]:
    with AuthenticatingCluster(3) as running:
        assert isinstance(running, AuthenticatingCluster)
        yield running


def can_log_in(node: AuthenticatingNode, user: str, password: str) -> bool:
    with RawClient(node.asking) as client:
        return authenticate(client, "SCRAM-SHA-256", user, password).error_code == ErrorCode.NONE


def can_log_in_everywhere(cluster: AuthenticatingCluster, user: str, password: str) -> bool:
    return all(can_log_in(node, user, password) for node in cluster.asking)


def salt_of(node: AuthenticatingNode, user: str) -> bytes:
    with RawClient(node.asking) as client:
        client.request(SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), 1, SaslHandshakeResponse)
        message = SaslAuthenticateRequest(auth_bytes=b"n,,n=%b,r=abc" % user.encode())
        answer = client.request(message, 2, SaslAuthenticateResponse)
        return bytes(answer.auth_bytes).partition(b",s=")[2]


def test_user_change_applies_on_all_nodes_and_survives_kills(
    cluster: AuthenticatingCluster, record_property: Callable[[str, object], None]
) -> None:
    stopwatch = ChangeStopwatch(KNOWN_SECONDS_MAX)
    for number, node in enumerate(cluster.asking):
        password = f"password {number}"
        with RawClient(node.bootstrap) as client:
            put_user(client, f"user {number}", "its own")
            with stopwatch.change(partial(can_log_in_everywhere, cluster, "alice", password)):
                put_user(client, "alice", password)
        assert not can_log_in(cluster.asking[0], "alice", f"password {number - 1}")
    record_property("summary", stopwatch.summary("users' passwords"))
    before = {salt_of(node, "nobody") for node in cluster.asking}
    assert len(before) == 1, "a user's salt is the same on all nodes"
    for node in cluster.asking:
        node.kill()
    with ChangeStopwatch(60).change(
        lambda: (
            can_log_in_everywhere(cluster, "alice", "password 2")
            and can_log_in_everywhere(cluster, "user 1", "its own")
        )
    ):
        for node in cluster.asking:
            node.start()
        cluster.wait_until_ready()
    assert {salt_of(node, "nobody") for node in cluster.asking} == before
