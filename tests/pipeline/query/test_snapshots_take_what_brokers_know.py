"""Snapshots when brokers do not know a topic yet, or any more, or do not lead it: nothing is left out silently."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chronik.client.cluster import Cluster
from chronik.ids import format_id
from chronik.pipeline.query import snapshots
from chronik.pipeline.query.snapshots import Snapshots, TopicSnapshot
from chronik.pipeline.reading.ranges import OffsetRange
from chronik.pipeline.tables.layout import Kind
from chronik.pipeline.tables.opening import open_or_create
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
from tests.pipeline.planted_rows import land, records

TOPIC_ID = bytes(15) + b"\1"
NOBODY = -1
END = 5


def known(name: str, *leaders: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=name,
        topic_id=TOPIC_ID,
        partitions=[
            MetadataResponsePartition(partition_index=index, leader_id=leader) for index, leader in enumerate(leaders)
        ],
    )


def refused(name: str, code: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(name=name, error_code=code)


Answer = Callable[[str, int], MetadataResponseTopic]
"""What is said of a topic to the question of this number, from 1."""


class Brokers(Cluster):
    """Every partition has the offsets 0 to 4."""

    def __init__(self, answer: Answer, *, refuse: dict[str, ErrorCode] | None = None) -> None:
        super().__init__("127.0.0.1:1", timeout_s=0.2)
        self._answer, self._refuse = answer, refuse or {}
        self.questions = 0

    def metadata(self, topics: list[str] | None, *, create: bool = False) -> MetadataResponse:
        self.questions += 1
        return MetadataResponse(topics=[self._answer(name, self.questions) for name in topics or ()])

    def broker(self, node_id: int) -> Any:
        assert node_id != NOBODY
        return self

    def request(self, request: ListOffsetsRequest, kind: type[Any]) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=each.partition_index,
                            error_code=self._refuse.get(topic.name, ErrorCode.NONE),
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
    """The table of `orders` has offsets 0 and 1."""
    spec = TableSpec("orders", format_id(TOPIC_ID), Kind.RAW)
    land(open_or_create(table_uri(str(tmp_path), "orders"), spec), 0, records([0, 1], [b"a", b"b"]))
    return str(tmp_path)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "UNKNOWN_TOPIC_SECONDS_MAX", 0.1)
    monkeypatch.setattr(snapshots, "LEADERLESS_SECONDS_MAX", 0.1)


def taken(brokers: Brokers, root: str, *topics: str) -> dict[str, TopicSnapshot]:
    return Snapshots(brokers, root).take(topics)


TAIL = (OffsetRange("orders", 0, 2, END),)


def test_a_broker_that_does_not_know_a_topic_yet_is_asked_again(root: str) -> None:
    """Otherwise the tail would be left out: a node that has just started may be asked first."""

    def late(name: str, question: int) -> MetadataResponseTopic:
        return known(name, 1) if question > 3 else refused(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    found = taken(Brokers(late), root, "orders")["orders"]
    assert (found.tail, found.is_only_a_table) == (TAIL, False)


def test_a_partition_without_a_leader_is_waited_for(root: str) -> None:
    found = taken(Brokers(lambda name, question: known(name, 1 if question > 3 else NOBODY)), root, "orders")
    assert found["orders"].tail == TAIL


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION])
def test_a_table_whose_topic_nobody_knows_is_told_to_be_only_that(root: str, code: ErrorCode) -> None:
    found = taken(Brokers(lambda name, _: refused(name, code)), root, "orders")["orders"]
    assert (found.tail, found.tail_unreadable, found.is_only_a_table) == ((), None, True)
    assert found.landed is not None


@pytest.mark.usefixtures("impatient")
def test_a_topic_that_is_gone_and_never_landed_is_not_taken_for_an_empty_one(root: str) -> None:
    gone = Brokers(lambda name, _: refused(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    assert "UNKNOWN_TOPIC_OR_PARTITION: topic late" in str(taken(gone, root, "late")["late"].tail_unreadable)


def test_any_other_answer_about_a_topic_is_not_taken_for_an_empty_tail(root: str) -> None:
    brokers = Brokers(lambda name, _: refused(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    found = taken(brokers, root, "orders")["orders"]
    assert "TOPIC_AUTHORIZATION_FAILED: topic orders" in str(found.tail_unreadable)
    assert (brokers.questions, found.table_unreadable) == (1, None)


@pytest.mark.usefixtures("impatient")
def test_a_topic_without_a_leader_leaves_the_others_readable(root: str) -> None:
    brokers = Brokers(lambda name, _: known(name, 1, NOBODY) if name == "customer" else known(name, 1))
    found = taken(brokers, root, "orders", "customer")
    assert found["orders"].tail == TAIL
    assert "LEADER_NOT_AVAILABLE: customer-1" in str(found["customer"].tail_unreadable)


def test_a_topic_whose_offsets_are_refused_leaves_the_others_readable(root: str) -> None:
    brokers = Brokers(lambda name, _: known(name, 1), refuse={"customer": ErrorCode.TOPIC_AUTHORIZATION_FAILED})
    found = taken(brokers, root, "customer", "orders")
    assert found["orders"].tail == TAIL
    assert "TOPIC_AUTHORIZATION_FAILED: customer-0" in str(found["customer"].tail_unreadable)
