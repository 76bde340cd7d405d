"""Clients without the cluster secret cannot read as a replica, on the client port, the HTTP port or the peer port."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import msgspec
import pytest

from chronik.config import Address
from chronik.peers.calls import CallKind
from chronik.peers.frames import FrameKind, encode_frame
from chronik.peers.handshake import DialerHandshake, PeerIdentity, derive_identity
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.fetch import FetchPartition, FetchReplicaState, FetchRequest, FetchResponse, FetchTopic
from chronik.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from chronik.raft.messages import Heartbeat, encode_message
from chronik.replication.messages import NO_SESSION, FollowerFetchRequest, FollowerPosition
from chronik.testing.cluster import Cluster, ClusterNode
from tests.api.request_builders import batch, describe_topic, fetch, produce, values
from tests.chaos.history import Place
from tests.cluster import replication_helpers
from tests.raw import RawClient

pytestmark = pytest.mark.xdist_group("cluster")

SECRET = b"for followers only"
CLOSE_SECONDS_MAX = 20.0


class GuardedCluster:
    """A cluster with a record that only followers may fetch before it is committed."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        [self.place] = replication_helpers.create_topic(cluster, "guarded")
        self.leader = replication_helpers.leader_of(cluster, self.place)
        with RawClient(self.leader.bootstrap) as client:
            assert produce(client, "guarded", batch(SECRET)).error_code == ErrorCode.NONE
            self.topic_id = describe_topic(client, "guarded").topic_id

    def check_cluster_is_healthy(self) -> None:
        with RawClient(self.leader.bootstrap) as client:
            assert values(fetch(client, "guarded", 0)) == [SECRET]
        assert {node.node_id for node in self.cluster.live_nodes} == set(self.cluster.nodes)
        replication_helpers.check_replicas(self.cluster, [Place("guarded", 0)])

    def follower_fetch(self) -> bytes:
        """Return the fetch request of a follower on a peer connection."""
        position = FollowerPosition(self.topic_id, 0, 0, 0, -1, 0)
        request = FollowerFetchRequest(1, NO_SESSION, 0, (position,), (), 0, 1_000_000)
        return encode_frame(FrameKind.REQUEST, struct.pack(">QH", 1, CallKind.FETCH) + msgspec.msgpack.encode(request))

    def vote_of(self, source: int) -> bytes:
        beat = Heartbeat(
            source=source,
            source_directory=bytes(16),
            target=self.leader.node_id,
            target_directory=bytes(16),
            term=10**6,
            commit=0,
            round=0,
        )
        return encode_frame(FrameKind.MESSAGE, encode_message(beat))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedCluster]:
    with Cluster(3, tmp_path_factory.mktemp("guarded")) as cluster:
        yield GuardedCluster(cluster)


@pytest.fixture
def guarded(shared: GuardedCluster) -> Iterator[GuardedCluster]:
    yield shared
    shared.check_cluster_is_healthy()


def read_until_closed(address: Address, *messages: bytes) -> bytes:
    """Return all bytes until the other end closes the connection, which it must do."""
    with socket.create_connection(address, CLOSE_SECONDS_MAX) as unauthenticated:
        data = b""
        try:
            for message in messages:
                unauthenticated.sendall(message)
            while piece := unauthenticated.recv(65536):
                data += piece
        except (ConnectionResetError, BrokenPipeError):
            pass
        return data


def kafka_address(node: ClusterNode) -> Address:
    return Address.parse(node.bootstrap)


def peers_address(cluster: Cluster, node: ClusterNode) -> Address:
    return cluster._raft[node.node_id]


def rejected_connection_lines(node: ClusterNode) -> list[str]:
    return [line for line in node.log.splitlines() if "unauthenticated peer connection" in line]


def new_rejected_connection_lines(node: ClusterNode, before: int) -> list[str]:
    """Return the new log lines when there are some."""
    replication_helpers.wait_for("a line in the log", lambda: len(rejected_connection_lines(node)) > before)
    return rejected_connection_lines(node)[before:]


def test_replica_fetch_is_rejected_on_client_port(guarded: GuardedCluster) -> None:
    for node in guarded.cluster.nodes.values():
        for version in (4, 11, 12, 13, 14, 15, 16, 17):
            for claimed in (1, 2, 3, 99):
                topic = FetchTopic(partitions=[FetchPartition(partition=0, partition_max_bytes=10_000)])
                if version < 13:
                    topic.topic = "guarded"
                else:
                    topic.topic_id = guarded.topic_id
                request = FetchRequest(max_wait_ms=0, topics=[topic])
                if version < 15:
                    request.replica_id = claimed
                else:
                    request.replica_state = FetchReplicaState(replica_id=claimed, replica_epoch=1)
                with RawClient(node.bootstrap) as client:
                    response = client.request(request, version, FetchResponse)
                codes = {response.error_code, *(each.error_code for t in response.responses for each in t.partitions)}
                assert ErrorCode.CLUSTER_AUTHORIZATION_FAILED in codes
                assert not any(each.records for t in response.responses for each in t.partitions)


def test_follower_offset_request_on_client_port_is_treated_as_consumer(guarded: GuardedCluster) -> None:
    """The request has no side effects, and some clients send the replica id 0."""
    wanted = ListOffsetsTopic(name="guarded", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    with RawClient(guarded.leader.bootstrap) as client:
        answers = [
            client.request(ListOffsetsRequest(replica_id=replica_id, topics=[wanted]), 7, ListOffsetsResponse)
            for replica_id in (-1, 2)
        ]
    assert answers[0].topics[0].partitions[0].error_code == ErrorCode.NONE
    assert answers[0].topics == answers[1].topics


def test_peer_calls_are_rejected_on_client_and_http_ports(guarded: GuardedCluster) -> None:
    for node in guarded.cluster.nodes.values():
        for message in (guarded.follower_fetch(), guarded.vote_of(2)):
            for address in (kafka_address(node), node.http):  # HTTP waits for the end of a line
                assert SECRET not in read_until_closed(address, message + b"\r\n\r\n")


def test_peer_port_closes_connection_without_secret(guarded: GuardedCluster) -> None:
    for message in (guarded.follower_fetch(), guarded.vote_of(2), b"GET / HTTP/1.1\r\n\r\n"):
        before = len(rejected_connection_lines(guarded.leader))
        said = read_until_closed(peers_address(guarded.cluster, guarded.leader), message)
        assert said == b""
        assert len(new_rejected_connection_lines(guarded.leader, before)) == 1


def test_peer_port_closes_connection_with_wrong_secret(guarded: GuardedCluster) -> None:
    leader = guarded.leader
    other = next(node_id for node_id in guarded.cluster.nodes if node_id != leader.node_id)
    wrong = derive_identity("chronik", other, "not the secret of this cluster", [])
    before = len(rejected_connection_lines(leader))
    assert not is_authenticated(wrong, leader, peers_address(guarded.cluster, leader), guarded.follower_fetch())
    [line] = new_rejected_connection_lines(leader, before)
    assert "authentication failed: the cluster secrets differ" in line


def is_authenticated(identity: PeerIdentity, node: ClusterNode, address: Address, then: bytes) -> bool:
    """Perform the handshake of a node, then send the request of a follower, and return whether it was accepted."""
    handshake = DialerHandshake(identity, node.node_id)
    with socket.create_connection(address, CLOSE_SECONDS_MAX) as unauthenticated:
        unauthenticated.sendall(encode_frame(FrameKind.HANDSHAKE, handshake.start()))
        size = struct.unpack(">I", unauthenticated.recv(4, socket.MSG_WAITALL))[0]
        challenge = unauthenticated.recv(size, socket.MSG_WAITALL)[1:]
        proof = handshake.receive(challenge)
        assert proof is not None
        data = b""
        try:
            unauthenticated.sendall(encode_frame(FrameKind.HANDSHAKE, proof) + then)
            while piece := unauthenticated.recv(65536):
                data += piece
        except (ConnectionResetError, BrokenPipeError):
            pass
        return data != b""
