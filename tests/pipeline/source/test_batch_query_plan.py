"""Tests of the offset ranges of batch queries against a broker, without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from chronik.client.cluster import ClusterClient
from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord
from chronik.pipeline.errors import OptionError
from chronik.pipeline.source.offset_ranges import OffsetRange
from chronik.pipeline.source.options import parse_source_options
from chronik.pipeline.source.reader import plan_batch_query
from chronik.testing import Broker

pytestmark = pytest.mark.chronik_topic(partitions=2)

FIRST_TIMESTAMP = 1_700_000_000_000


@pytest.fixture
def cluster(chronik_broker: Broker, chronik_topic: str) -> Iterator[ClusterClient]:
    """Yield a cluster client; each partition of the topic has ten records, one per millisecond."""
    records = [
        OutgoingRecord(b"v", partition=partition, timestamp=FIRST_TIMESTAMP + number)
        for partition in range(2)
        for number in range(10)
    ]
    with chronik_broker.cluster() as cluster:
        Producer(cluster).send(chronik_topic, records)
        yield cluster


def plan(cluster: ClusterClient, broker: Broker, topic: str, **options: object) -> list[OffsetRange]:
    given = {name: each if isinstance(each, str) else json.dumps(each) for name, each in options.items()}
    common = {"bootstrap.servers": broker.bootstrap, "subscribe": topic}
    return plan_batch_query(cluster, parse_source_options(common | given, streaming=False))


def test_equal_start_and_end_give_no_range(chronik_broker: Broker, cluster: ClusterClient, chronik_topic: str) -> None:
    ranges = plan(cluster, chronik_broker, chronik_topic, startingOffsets={chronik_topic: {"0": 10, "1": 4}})
    assert ranges == [OffsetRange(chronik_topic, 1, 4, 10)]


def test_start_after_last_record_is_rejected(
    chronik_broker: Broker, cluster: ClusterClient, chronik_topic: str
) -> None:
    with pytest.raises(OptionError) as rejected:
        plan(cluster, chronik_broker, chronik_topic, startingOffsets={chronik_topic: {"0": 0, "1": 11}})
    assert str(rejected.value) == (
        f"{chronik_topic}-1: the start offset 11 is greater than the end offset 10 (startingOffsets, endingOffsets): "
        "the query would read nothing; check the bounds, and whether the topic was deleted and created again"
    )


def test_start_timestamp_after_end_offset_is_rejected(
    chronik_broker: Broker, cluster: ClusterClient, chronik_topic: str
) -> None:
    ends = {chronik_topic: {"0": 9, "1": 2}}
    message = rf"{chronik_topic}-1: the start offset 5 is greater than the end offset 2 \(startingTimestamp, endingOffs"
    with pytest.raises(OptionError, match=message):
        plan(cluster, chronik_broker, chronik_topic, startingTimestamp=str(FIRST_TIMESTAMP + 5), endingOffsets=ends)


def test_partitions_that_do_not_match_subscription_are_rejected(
    chronik_broker: Broker, cluster: ClusterClient, chronik_topic: str
) -> None:
    with pytest.raises(OptionError, match=f"startingOffsets must name every .*: missing {chronik_topic}-1"):
        plan(cluster, chronik_broker, chronik_topic, startingOffsets={chronik_topic: {"0": 0}})
    with pytest.raises(OptionError, match=f"endingOffsets must name every .*: {chronik_topic}-2 not subscribed"):
        plan(cluster, chronik_broker, chronik_topic, endingOffsets={chronik_topic: {"0": 1, "1": 1, "2": 1}})


def test_timestamp_without_later_record_is_rejected_unless_strategy_is_latest(
    chronik_broker: Broker, cluster: ClusterClient, chronik_topic: str
) -> None:
    late = {"startingTimestamp": str(FIRST_TIMESTAMP + 100)}
    with pytest.raises(OptionError, match="no record at or after the timestamp"):
        plan(cluster, chronik_broker, chronik_topic, **late)
    assert plan(cluster, chronik_broker, chronik_topic, **late, startingOffsetsByTimestampStrategy="latest") == []
