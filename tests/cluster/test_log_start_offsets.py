"""Retention, DeleteRecords and compaction of replicated topics give the same result on all replicas."""

from __future__ import annotations

import shutil

import pytest

from chronik.client.offsets import list_earliest_offsets
from chronik.client.records import TopicPartition
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from chronik.protocol.records import decode_batch
from chronik.testing.cluster import Cluster, ClusterNode
from chronik.testing.plugin import ClusterFactory
from tests.api.request_builders import batch, list_offset, produce
from tests.chaos.history import Place
from tests.cluster import replication_helpers
from tests.raw import RawClient
from tests.run_size import sized

pytestmark = pytest.mark.xdist_group("cluster")

LEADERS = sized(2, 3)
"""Number of consecutive leaders, each elected after the death of the previous one."""

EAGER = {"log.retention.check.interval.ms": 100, "log.cleaner.backoff.ms": 100}
EARLIEST = -2
ALL_COMMITTED = -1


def write(cluster: Cluster, place: Place, *values: bytes) -> None:
    """Write one batch per value."""
    with RawClient(replication_helpers.leader_of(cluster, place).bootstrap) as client:
        for value in values:
            assert ErrorCode(produce(client, place.topic, batch(value)).error_code) is ErrorCode.NONE


def delete_records(node: ClusterNode, place: Place, offset: int, timeout_ms: int = 30_000) -> tuple[ErrorCode, int]:
    wanted = DeleteRecordsTopic(
        name=place.topic, partitions=[DeleteRecordsPartition(partition_index=place.partition, offset=offset)]
    )
    with RawClient(node.bootstrap) as client:
        request = DeleteRecordsRequest(topics=[wanted], timeout_ms=timeout_ms)
        answer = client.request(request, 2, DeleteRecordsResponse).topics[0].partitions[0]
    return ErrorCode(answer.error_code), answer.low_watermark


def start_by(node: ClusterNode, place: Place) -> int:
    with RawClient(node.bootstrap) as client:
        answer = list_offset(client, place.topic, EARLIEST)
    assert ErrorCode(answer.error_code) is ErrorCode.NONE
    return answer.offset


def starts_by_each_leader(cluster: Cluster, place: Place) -> list[int]:
    """Return the log start according to the leader, to the next one after its death, and so on."""
    starts = []
    for _ in range(LEADERS):
        starts.append(start_by(replication_helpers.leader_of(cluster, place), place))
        replace_leader(cluster, place)
    return starts


def test_delete_records_applies_to_all_replicas(
    chronik_cluster_factory: ClusterFactory,
) -> None:
    cluster = chronik_cluster_factory()
    [place] = replication_helpers.create_topic(
        cluster, "deleted", internal_segment_bytes="1000", file_delete_delay_ms="0"
    )
    write(cluster, place, *(b"%03d" % number + bytes(100) for number in range(60)))
    leader = replication_helpers.leader_of(cluster, place)
    assert delete_records(leader, place, 25) == (ErrorCode.NONE, 25)
    replication_helpers.wait_for(  # a replica deletes files when its new log start is on disk
        "all nodes to delete the files of deleted records",
        lambda: all(log.start > 0 for log in replication_helpers.read_stored_logs(cluster, place).values()),
    )
    assert starts_by_each_leader(cluster, place) == [25] * LEADERS
    records = replication_helpers.read_all(cluster.bootstrap, [place])[place]
    assert [record.offset for record in records] == list(range(25, 60))
    replication_helpers.check_replicas(cluster, [place])
    leader = replication_helpers.leader_of(cluster, place)
    assert delete_records(leader, place, ALL_COMMITTED) == (ErrorCode.NONE, 60)
    assert start_by(leader, place) == 60
    write(cluster, place, b"the next")
    replication_helpers.check_replicas(cluster, [place])


def test_delete_records_times_out_with_paused_follower(
    chronik_cluster_factory: ClusterFactory,
) -> None:
    cluster = chronik_cluster_factory(broker_session_ms=60_000)
    [place] = replication_helpers.create_topic(cluster, "deleted")
    write(cluster, place, *(b"%d" % number for number in range(10)))
    leader = replication_helpers.leader_of(cluster, place)
    hangs = next(node for node in cluster.nodes.values() if node not in (leader, cluster.leader()))
    hangs.pause()
    try:
        code, _ = delete_records(leader, place, 5, timeout_ms=500)
        assert code is ErrorCode.REQUEST_TIMED_OUT
    finally:
        hangs.resume()
    assert delete_records(leader, place, 5) == (ErrorCode.NONE, 5)


def test_retention_advances_log_start_on_all_replicas(
    chronik_cluster_factory: ClusterFactory,
) -> None:
    cluster = chronik_cluster_factory(broker=EAGER)
    [place] = replication_helpers.create_topic(
        cluster, "retained", internal_segment_bytes="2000", retention_bytes="6000", file_delete_delay_ms="0"
    )
    write(cluster, place, *(b"%03d" % number + bytes(200) for number in range(100)))

    def starts_when_done() -> set[int]:
        logs = replication_helpers.read_stored_logs(cluster, place).values()
        is_done = all(sum(len(stored.content) for stored in log.batches) < 6000 + 2000 for log in logs)
        starts = {log.start for log in logs}
        return starts if is_done and len(starts) == 1 else set()

    [start] = replication_helpers.wait_for("the deletion of old segments on all replicas", starts_when_done)
    assert starts_by_each_leader(cluster, place) == [start] * LEADERS
    offsets = [record.offset for record in replication_helpers.read_all(cluster.bootstrap, [place])[place]]
    assert offsets == list(range(start, 100))
    replication_helpers.check_replicas(cluster, [place])


COMPACTED = {
    "cleanup_policy": "compact",
    "internal_segment_bytes": "2000",
    "min_cleanable_dirty_ratio": "0.01",
    "file_delete_delay_ms": "0",
}


def write_keys(cluster: Cluster, place: Place, *keys: bytes) -> None:
    """Write one batch per key: about eleven fill a segment."""
    with RawClient(replication_helpers.leader_of(cluster, place).bootstrap) as client:
        for key in keys:
            assert ErrorCode(produce(client, place.topic, batch(bytes(100), key=key)).error_code) is ErrorCode.NONE


def different_keys(first: int, number_of_keys: int) -> list[bytes]:
    return [b"%03d" % number for number in range(first, first + number_of_keys)]


def held(cluster: Cluster, place: Place) -> dict[int, list[tuple[int, bytes | None]]]:
    """Return offset and key of every record on disk, by replica."""
    return {
        node_id: [(record.offset, record.key) for stored in log.batches for record in decode_batch(stored.content)]
        for node_id, log in replication_helpers.read_stored_logs(cluster, place).items()
    }


def wait_until_compacted(cluster: Cluster, place: Place, expected: list[tuple[int, bytes]]) -> None:
    def missing() -> str | None:
        found = held(cluster, place)
        return None if all(each == expected for each in found.values()) else str(found)

    cluster.wait_until(missing, f"all replicas to contain {expected}")


def replace_leader(cluster: Cluster, place: Place) -> None:
    leader = replication_helpers.leader_of(cluster, place)
    leader.kill()
    replication_helpers.leader_of(cluster, place)
    leader.start()
    replication_helpers.wait_until_in_sync(cluster, [place])


def test_replicas_compact_to_same_records(
    chronik_cluster_factory: ClusterFactory,
) -> None:
    """A replica that was offline has a part of what is one gap on its leader."""
    cluster = chronik_cluster_factory(broker=EAGER)
    [place] = replication_helpers.create_topic(cluster, "compacted", 1, 3, **COMPACTED)
    write_keys(cluster, place, *[b"a", b"b", b"c"] * 30)
    late = next(node for node in cluster.nodes.values() if node is not replication_helpers.leader_of(cluster, place))
    late.kill()
    write_keys(cluster, place, *[b"a", b"b", b"c"] * 10)
    compacted = replication_helpers.leader_of(cluster, place).node_id
    replication_helpers.wait_for("compaction by the leader", lambda: len(held(cluster, place)[compacted]) < 30)
    late.start()
    replication_helpers.wait_until_in_sync(cluster, [place])
    new = different_keys(0, 30)  # so that the active segment of no replica contains old keys
    write_keys(cluster, place, *new)
    expected = [(117, b"a"), (118, b"b"), (119, b"c"), *enumerate(new, 120)]
    wait_until_compacted(cluster, place, expected)
    for _ in range(LEADERS):
        found = replication_helpers.read_all(cluster.bootstrap, [place])[place]
        assert [(record.offset, record.key) for record in found] == expected
        replace_leader(cluster, place)


def test_wiped_follower_receives_compacted_log_of_two_leaders(
    chronik_cluster_factory: ClusterFactory,
) -> None:
    """The gap at the end of the first segment begins under one leader and ends under the next."""
    cluster = chronik_cluster_factory(broker=EAGER)
    [place] = replication_helpers.create_topic(cluster, "compacted", 1, 3, **COMPACTED)
    first, second = different_keys(0, 8), different_keys(8, 30)
    write_keys(cluster, place, *first, b"x")
    replace_leader(cluster, place)
    write_keys(cluster, place, *[b"x"] * 5, *second)
    expected = [*enumerate(first), (13, b"x"), *enumerate(second, 14)]
    wait_until_compacted(cluster, place, expected)
    wiped = next(node for node in cluster.nodes.values() if node is not replication_helpers.leader_of(cluster, place))
    wiped.kill()
    shutil.rmtree(wiped.data_dir)
    wiped.start()
    replication_helpers.wait_until_in_sync(cluster, [place], seconds=20)
    wait_until_compacted(cluster, place, expected)


def test_wiped_follower_starts_at_leaders_log_start_within_batch(
    chronik_cluster_factory: ClusterFactory,
) -> None:
    cluster = chronik_cluster_factory()
    [place] = replication_helpers.create_topic(cluster, "deleted")
    leader = replication_helpers.leader_of(cluster, place)
    with RawClient(leader.bootstrap) as client:
        for first in range(0, 50, 10):
            records = batch(*(b"%d" % number for number in range(first, first + 10)))
            assert ErrorCode(produce(client, "deleted", records).error_code) is ErrorCode.NONE
    assert delete_records(leader, place, 25) == (ErrorCode.NONE, 25)
    wiped = next(node for node in cluster.nodes.values() if node is not leader)
    wiped.kill()
    shutil.rmtree(wiped.data_dir)
    wiped.start()
    replication_helpers.wait_until_in_sync(cluster, [place], seconds=20)
    replication_helpers.wait_until_all_voters(cluster)
    assert starts_by_each_leader(cluster, place) == [25] * LEADERS
    assert [record.offset for record in replication_helpers.read_all(cluster.bootstrap, [place])[place]] == list(
        range(25, 50)
    )
    replication_helpers.check_replicas(cluster, [place])


def test_log_start_never_decreases_when_leader_dies_after_deletion(
    chronik_cluster_factory: ClusterFactory,
) -> None:
    cluster = chronik_cluster_factory()
    [place] = replication_helpers.create_topic(cluster, "deleted")
    write(cluster, place, *(b"%d" % number for number in range(40)))
    for offset in (10, 20, 30):
        leader = replication_helpers.leader_of(cluster, place)
        assert delete_records(leader, place, offset) == (ErrorCode.NONE, offset)
        leader.kill()
        replication_helpers.leader_of(cluster, place)
        with cluster.live_nodes[0].cluster() as client:
            partition = TopicPartition(*place)
            assert list_earliest_offsets(client, [partition]) == {partition: offset}
        leader.start()
        replication_helpers.wait_until_in_sync(cluster, [place])
