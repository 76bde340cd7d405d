"""Reference cycles in large responses: a response must be freed without a garbage collection.

A cycle that survives a long collection is never freed, because the node freezes the objects that are then alive.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Final

import pytest

from chronik.client.admin import NewTopic, create_topics
from chronik.client.cluster import ClusterClient
from chronik.client.groups import commit_offsets
from chronik.client.records import TopicPartition
from chronik.metadata import levels
from chronik.metadata.commands.security import CreateAcls
from chronik.metadata.records import Acl
from chronik.protocol.permissions import AclOperation, AclResourceType
from chronik.protocol.schema import Struct
from chronik.request_reply import Reply
from chronik.testing.ports import HOST, ReservedPorts
from tests.abuse.floods.requests import LARGE_GROUP, LARGE_TOPIC, PAYLOADS
from tests.api.authorizing_node import ALLOW, LITERAL, AuthorizingNode
from tests.raw import RawClient

PARTITIONS: Final = 3_000
KINDS: Final = {kind: PARTITIONS for kind in PAYLOADS if not kind.endswith("-ids") and kind != "groups"} | {
    "metadata-unknown": 20_000  # too large to be decoded on the event loop
}
REPETITIONS: Final = 3
SUPER_USER: Final = {"super.users": "User:ANONYMOUS"}


@pytest.fixture(scope="module", params=["standalone", "cluster"])
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuthorizingNode]:
    """A standalone node, or a cluster of one node, in which a majority confirms reads."""
    reserved = ReservedPorts(1)
    peers = [{"id": 1, "kafka": f"{HOST}:0", "raft": f"{HOST}:{reserved.ports[0]}"}]
    folder = tmp_path_factory.mktemp("node")
    node = AuthorizingNode(folder, peers=peers if request.param == "cluster" else None, **SUPER_USER)
    try:
        create_data(node)
        yield node
    finally:
        node.close()
        reserved.release()


def create_data(node: AuthorizingNode) -> None:
    """Create the topic, ACLs and offsets that the requests read."""
    node.wait_until(lambda: any(broker.is_online for broker in node.services.image.brokers.values()))
    node.wait_until(lambda: levels.get_cluster_level(node.services.image.features) == levels.HIGHEST)
    names = [f"topic-{number}" for number in range(1_000)]
    acls = [Acl(AclResourceType.TOPIC, name, LITERAL, "User:reader", "*", AclOperation.READ, ALLOW) for name in names]
    node.propose(CreateAcls(tuple(acls)))
    offsets = {TopicPartition(LARGE_TOPIC, index): 1 for index in range(PARTITIONS)}
    with ClusterClient(node.bootstrap, client_id="test") as client:
        create_topics(client, [NewTopic(LARGE_TOPIC, PARTITIONS, 1)])
        client.retry(lambda: commit_offsets(client, LARGE_GROUP, offsets))


@pytest.mark.parametrize("kind", KINDS)
def test_large_response_is_freed_without_garbage_collection(node: AuthorizingNode, kind: str) -> None:
    frame = PAYLOADS[kind](KINDS[kind])(0)
    with RawClient(node.bootstrap) as client:
        client.send_bytes(frame)
        assert client.read_frame() is not None
        gc.collect()
        gc.disable()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            for _ in range(REPETITIONS):
                client.send_bytes(frame)
                assert client.read_frame() is not None
            node.wait_until(lambda: True)
            gc.collect()
            left = {type(each).__name__ for each in gc.garbage if isinstance(each, Reply | Struct)}
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
    assert left == set()
