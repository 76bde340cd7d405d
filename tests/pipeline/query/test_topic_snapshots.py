"""Topic snapshots when brokers do not know a topic or its leader: the live tail is never left out silently."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from chronik.client.cluster import ClusterClient
from chronik.ids import format_id
from chronik.pipeline.query import topic_snapshots
from chronik.pipeline.query.time_travel import AsOfOffsets
from chronik.pipeline.query.topic_snapshots import SnapshotReader, TopicSnapshot
from chronik.pipeline.source.offset_ranges import OffsetRange
from chronik.pipeline.tables.as_of import AsOfVersion
from chronik.pipeline.tables.catalog import open_or_create_table, open_table
from chronik.pipeline.tables.layout import TableKind
from chronik.pipeline.tables.storage import table_uri
from chronik.pipeline.tables.topic_table import TableSpec
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from chronik.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from tests.pipeline.table_fixtures import build_record_columns, commit_rows

TOPIC_ID = bytes(15) + b"\1"
NO_LEADER = -1
END = 5


def describe_topic(name: str, *leaders: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=name,
        topic_id=TOPIC_ID,
        partitions=[
            MetadataResponsePartition(partition_index=index, leader_id=leader) for index, leader in enumerate(leaders)
        ],
    )


def describe_error(name: str, code: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(name=name, error_code=code)


MetadataHandler = Callable[[str, int], MetadataResponseTopic]
"""A function that returns a topic's metadata, given its name and the number of the request, counted from 1."""


class Brokers(ClusterClient):
    """A scripted cluster in which every partition has the offsets 0 to 4."""

    def __init__(self, handler: MetadataHandler, *, offset_errors: dict[str, ErrorCode] | None = None) -> None:
        super().__init__("127.0.0.1:1", timeout_s=0.2)
        self._handler, self._offset_errors = handler, offset_errors or {}
        self.metadata_requests = 0

    def metadata(self, topics: list[str] | None, *, create: bool = False) -> MetadataResponse:
        self.metadata_requests += 1
        return MetadataResponse(topics=[self._handler(name, self.metadata_requests) for name in topics or ()])

    def broker(self, node_id: int) -> Any:
        assert node_id != NO_LEADER
        return self

    def request(self, request: ListOffsetsRequest, kind: type[Any]) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=each.partition_index,
                            error_code=self._offset_errors.get(topic.name, ErrorCode.NONE),
                            offset=END if each.timestamp == -1 else 0,
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A table root with a table of `orders` that has offsets 0 and 1."""
    spec = TableSpec("orders", format_id(TOPIC_ID), TableKind.RAW)
    commit_rows(
        open_or_create_table(table_uri(str(tmp_path), "orders"), spec), 0, build_record_columns([0, 1], [b"a", b"b"])
    )
    return str(tmp_path)


@pytest.fixture
def short_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_snapshots, "UNKNOWN_TOPIC_SECONDS_MAX", 0.1)
    monkeypatch.setattr(topic_snapshots, "LEADERLESS_SECONDS_MAX", 0.1)


def take_snapshots(brokers: Brokers, root: str, *topics: str) -> dict[str, TopicSnapshot]:
    return SnapshotReader(brokers, root).take_snapshots(topics)


TAIL = (OffsetRange("orders", 0, 2, END),)


def test_unknown_topic_is_retried(root: str) -> None:
    """Otherwise the live tail would be left out if a node that has just started responds first."""

    def handle_metadata(name: str, request_number: int) -> MetadataResponseTopic:
        return (
            describe_topic(name, 1)
            if request_number > 3
            else describe_error(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        )

    found = take_snapshots(Brokers(handle_metadata), root, "orders")["orders"]
    assert (found.tail, found.is_table_only) == (TAIL, False)


def test_missing_leader_is_retried(root: str) -> None:
    found = take_snapshots(
        Brokers(lambda name, request_number: describe_topic(name, 1 if request_number > 3 else NO_LEADER)),
        root,
        "orders",
    )
    assert found["orders"].tail == TAIL


@pytest.mark.usefixtures("short_timeouts")
@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION])
def test_table_of_unknown_topic_is_marked_as_table_only(root: str, code: ErrorCode) -> None:
    found = take_snapshots(Brokers(lambda name, _: describe_error(name, code)), root, "orders")["orders"]
    assert (found.tail, found.tail_error, found.is_table_only) == ((), None, True)
    assert found.table_snapshot is not None


@pytest.mark.usefixtures("short_timeouts")
def test_unknown_topic_without_table_is_an_error(root: str) -> None:
    brokers = Brokers(lambda name, _: describe_error(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    assert "UNKNOWN_TOPIC_OR_PARTITION: topic late" in str(take_snapshots(brokers, root, "late")["late"].tail_error)


def test_metadata_error_makes_live_tail_unreadable(root: str) -> None:
    brokers = Brokers(lambda name, _: describe_error(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    found = take_snapshots(brokers, root, "orders")["orders"]
    assert "TOPIC_AUTHORIZATION_FAILED: topic orders" in str(found.tail_error)
    assert (brokers.metadata_requests, found.table_error) == (1, None)


@pytest.mark.usefixtures("short_timeouts")
def test_leaderless_topic_does_not_affect_others(root: str) -> None:
    brokers = Brokers(
        lambda name, _: describe_topic(name, 1, NO_LEADER) if name == "customer" else describe_topic(name, 1)
    )
    found = take_snapshots(brokers, root, "orders", "customer")
    assert found["orders"].tail == TAIL
    assert "LEADER_NOT_AVAILABLE: customer-1" in str(found["customer"].tail_error)


def test_rejected_list_offsets_does_not_affect_other_topics(root: str) -> None:
    brokers = Brokers(
        lambda name, _: describe_topic(name, 1), offset_errors={"customer": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    )
    found = take_snapshots(brokers, root, "customer", "orders")
    assert found["orders"].tail == TAIL
    assert "TOPIC_AUTHORIZATION_FAILED: customer-0" in str(found["customer"].tail_error)


# Snapshots as of offsets. The topic has two partitions that end at END; offsets 0 and 1 of partition 0 have landed.


def take_past_snapshot(root: str, *end_offsets: tuple[int, int], brokers: Brokers | None = None) -> TopicSnapshot:
    brokers = brokers or Brokers(lambda name, _: describe_topic(name, 1, 1))
    return SnapshotReader(brokers, root).take_snapshot_as_of("orders", AsOfOffsets(end_offsets))


def read_files(snapshot: TopicSnapshot) -> Sequence[tuple[int, int]]:
    assert snapshot.table_snapshot is not None
    return sorted(file.offsets for file in snapshot.table_snapshot.live_files)


def test_offsets_within_the_landed_rows_have_no_tail(root: str) -> None:
    commit_rows(open_table(table_uri(root, "orders")), 0, build_record_columns([2, 3], [b"c", b"d"]))
    for end, files in ((0, []), (1, [(0, 1)]), (2, [(0, 1)]), (3, [(0, 1), (2, 3)])):
        found = take_past_snapshot(root, (0, end), (1, 0))
        assert (found.tail, found.tail_error, found.end_offsets) == ((), None, ((0, end),))
        assert read_files(found) == files
    assert take_past_snapshot(root, (0, 4), (1, 0)).end_offsets == ()


def test_offsets_in_the_live_tail_limit_it(root: str) -> None:
    found = take_past_snapshot(root, (0, 4), (1, 1))
    assert found.tail == (OffsetRange("orders", 0, 2, 4), OffsetRange("orders", 1, 0, 1))
    assert (read_files(found), found.end_offsets) == ([(0, 1)], ())
    latest = take_past_snapshot(root, (0, -1), (1, -1))
    assert latest.tail == (OffsetRange("orders", 0, 2, END), OffsetRange("orders", 1, 0, END))


@pytest.mark.parametrize(
    ("end_offsets", "message"),
    [
        (((0, 1),), "orders OFFSETS AS OF: no offset of partition 1; name every partition (-1: its end)"),
        (((0, 1), (1, 1), (2, 1)), "orders OFFSETS AS OF: the topic has no partition 2"),
        (((0, 1), (1, END + 1)), f"orders-1: offset {END + 1} does not exist yet: the partition ends at {END}"),
    ],
)
def test_offsets_that_do_not_exist_are_rejected(
    root: str,
    end_offsets: tuple[tuple[int, int], ...],
    message: str,
) -> None:
    assert take_past_snapshot(root, *end_offsets).tail_error == message


@pytest.mark.usefixtures("short_timeouts")
def test_offsets_of_a_deleted_topic_must_have_landed(root: str) -> None:
    gone = Brokers(lambda name, _: describe_error(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    assert take_past_snapshot(root, (0, 2), brokers=gone).tail_error is None
    assert "up to offset 1 only" in str(take_past_snapshot(root, (0, 3), brokers=gone).tail_error)


def test_version_of_a_topic_that_has_not_landed_is_rejected(tmp_path: Path) -> None:
    brokers = Brokers(lambda name, _: describe_topic(name, 1))
    found = SnapshotReader(brokers, str(tmp_path)).take_snapshot_as_of("orders", AsOfVersion(1))
    assert found.table_error == found.tail_error == "orders has not landed, so that it has no versions"
