"""Users of a cluster: one that is changed through any node is changed on all, and all outlive the death of all."""

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
from tests import long
from tests.cluster.holding import Stopwatch
from tests.raw import RawClient
from tests.security.sasl.asking import ALL, authenticate, put_user

pytestmark = pytest.mark.slow

KNOWN_SECONDS_MAX = 1.0 if long.LONG else 10.0


class AskingNode(ClusterNode):
    """Its own port asks nobody; `asking` is a second one, which does."""

    def __init__(self, folder: Path, kafka: Address, http: Address, **config: Any) -> None:
        self.reserved = ReservedPorts(1)
        self.asking = f"{HOST}:{self.reserved.ports[0]}"
        listeners = f"PLAINTEXT://{kafka},SASL_PLAINTEXT://{self.asking}"
        broker = {"listeners": listeners, "sasl.enabled.mechanisms": ALL}
        super().__init__(folder, kafka, http, **config, broker=broker)


class AskingCluster(Cluster):
    def _new_node(self, folder: Path, kafka: Address, http: Address, **config: Any) -> ClusterNode:
        return AskingNode(folder, kafka, http, **config)

    @property
    def asking(self) -> list[AskingNode]:
        return [node for node in self.nodes.values() if isinstance(node, AskingNode)]

    def close(self) -> None:
        super().close()
        for node in self.asking:
            node.reserved.release()


@pytest.fixture(scope="module")
def cluster() -> Iterator[AskingCluster]:
    with AskingCluster(3) as running:
        assert isinstance(running, AskingCluster)
        yield running


def is_let_in(node: AskingNode, user: str, password: str) -> bool:
    with RawClient(node.asking) as client:
        return authenticate(client, "SCRAM-SHA-256", user, password).error_code == ErrorCode.NONE


def all_let_in(cluster: AskingCluster, user: str, password: str) -> bool:
    return all(is_let_in(node, user, password) for node in cluster.asking)


def salt_of(node: AskingNode, user: str) -> bytes:
    with RawClient(node.asking) as client:
        client.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), 1, SaslHandshakeResponse)
        message = SaslAuthenticateRequest(auth_bytes=b"n,,n=%b,r=abc" % user.encode())
        answer = client.ask(message, 2, SaslAuthenticateResponse)
        return bytes(answer.auth_bytes).partition(b",s=")[2]


def test_user_change_applies_on_all_nodes_and_survives_kills(
    cluster: AskingCluster, record_property: Callable[[str, object], None]
) -> None:
    stopwatch = Stopwatch(KNOWN_SECONDS_MAX)
    for number, node in enumerate(cluster.asking):
        password = f"password {number}"
        with RawClient(node.bootstrap) as client:
            put_user(client, f"user {number}", "its own")
            with stopwatch.change(partial(all_let_in, cluster, "alice", password)):
                put_user(client, "alice", password)
        assert not is_let_in(cluster.asking[0], "alice", f"password {number - 1}")
    record_property("summary", stopwatch.summary("users' passwords"))
    before = {salt_of(node, "nobody") for node in cluster.asking}
    assert len(before) == 1, "nobody's salt is the same everywhere"
    for node in cluster.asking:
        node.kill()
    with Stopwatch(60).change(
        lambda: all_let_in(cluster, "alice", "password 2") and all_let_in(cluster, "user 1", "its own")
    ):
        for node in cluster.asking:
            node.start()
        cluster.wait_until_ready()
    assert {salt_of(node, "nobody") for node in cluster.asking} == before
