"""Tests of the micro-batch planner against a broker, without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from chronik.client.admin import create_partitions, delete_topics
from chronik.client.cluster import ClusterClient
from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord, TopicPartition
from chronik.pipeline.errors import DataLossError, OptionError
from chronik.pipeline.source.micro_batch_planner import (
    START_OFFSETS_KEY,
    MicroBatchPlanner,
    parse_end_offsets,
    plan_micro_batch_ranges,
)
from chronik.pipeline.source.offset_ranges import OffsetRange
from chronik.pipeline.source.offset_resolver import OffsetResolver
from chronik.pipeline.source.options import IsolationLevel, SourceOptions, parse_source_options
from chronik.testing import Broker

pytestmark = pytest.mark.chronik_topic(partitions=2)


@pytest.fixture
def cluster(chronik_broker: Broker) -> Iterator[ClusterClient]:
    with chronik_broker.cluster() as cluster:
        yield cluster


def stream_options(broker: Broker, topic: str, **options: str) -> SourceOptions:
    common = {"bootstrap.servers": broker.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    return parse_source_options(common | options, streaming=True)


class FakeClock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def create_planner(cluster: ClusterClient, options: SourceOptions, clock: FakeClock | None = None) -> MicroBatchPlanner:
    return MicroBatchPlanner(options, OffsetResolver(cluster, IsolationLevel.READ_UNCOMMITTED), clock or FakeClock())


def produce(cluster: ClusterClient, topic: str, *counts: int) -> None:
    records = [OutgoingRecord(b"v", partition=index) for index, count in enumerate(counts) for _ in range(count)]
    Producer(cluster).send(topic, records)


def json_roundtrip(offset: dict[str, Any]) -> dict[str, Any]:
    restored = json.loads(json.dumps(offset))
    assert isinstance(restored, dict)
    return restored


def test_consecutive_micro_batches_have_no_gap_or_overlap(
    chronik_broker: Broker, cluster: ClusterClient, chronik_topic: str
) -> None:
    planner = create_planner(cluster, stream_options(chronik_broker, chronik_topic))
    produce(cluster, chronik_topic, 7, 3)
    offset = planner.initial_offset()
    ranges: list[OffsetRange] = []
    while (following := planner.plan_next_batch(offset, 4)) != offset:
        ranges += plan_micro_batch_ranges(offset, following)
        offset = json_roundtrip(following)
    read = [(each.partition, number) for each in ranges for number in range(each.start, each.end)]
    assert sorted(read) == [(0, number) for number in range(7)] + [(1, number) for number in range(3)]
    assert parse_end_offsets(offset) == {TopicPartition(chronik_topic, 0): 7, TopicPartition(chronik_topic, 1): 3}
    assert planner.latest_offset() == {chronik_topic: {"0": 7, "1": 3}}


def test_offset_is_unchanged_without_new_records(
    chronik_broker: Broker, cluster: ClusterClient, chronik_topic: str
) -> None:
    """Spark compares offsets as text, so a different text would start another micro-batch."""
    planner = create_planner(cluster, stream_options(chronik_broker, chronik_topic))
    produce(cluster, chronik_topic, 2, 0)
    end = planner.plan_next_batch(planner.initial_offset(), None)
    assert START_OFFSETS_KEY in end
    assert json.dumps(planner.plan_next_batch(json_roundtrip(end), None)) == json.dumps(end)


def test_retried_first_micro_batch_reads_same_ranges(
    chronik_broker: Broker, cluster: ClusterClient, chronik_topic: str
) -> None:
    """With startingOffsets = latest, a restarted stream would resolve other initial offsets."""
    options = stream_options(chronik_broker, chronik_topic, startingOffsets="latest")
    produce(cluster, chronik_topic, 5, 5)
    before = create_planner(cluster, options)
    start = before.initial_offset()
    produce(cluster, chronik_topic, 2, 1)
    end = before.plan_next_batch(start, None)
    produce(cluster, chronik_topic, 9, 9)
    after = create_planner(cluster, options)
    assert after.initial_offset() != start
    assert plan_micro_batch_ranges(after.initial_offset(), json_roundtrip(end)) == plan_micro_batch_ranges(start, end)
    assert plan_micro_batch_ranges(start, end) == [
        OffsetRange(chronik_topic, 0, 5, 7),
        OffsetRange(chronik_topic, 1, 5, 6),
    ]


def test_new_partitions_are_read_from_their_first_record(
    chronik_broker: Broker, cluster: ClusterClient, chronik_topic: str
) -> None:
    planner = create_planner(cluster, stream_options(chronik_broker, chronik_topic))
    produce(cluster, chronik_topic, 1, 1)
    offset = planner.plan_next_batch(planner.initial_offset(), None)
    create_partitions(cluster, chronik_topic, 3)
    produce(cluster, chronik_topic, 0, 0, 4)
    following = planner.plan_next_batch(offset, None)
    assert plan_micro_batch_ranges(offset, following) == [OffsetRange(chronik_topic, 2, 0, 4)]


def test_available_now_excludes_later_records(
    chronik_broker: Broker, cluster: ClusterClient, chronik_topic: str
) -> None:
    planner = create_planner(cluster, stream_options(chronik_broker, chronik_topic))
    produce(cluster, chronik_topic, 3, 3)
    planner.stop_at_latest()
    produce(cluster, chronik_topic, 5, 0)
    offset = planner.plan_next_batch(planner.initial_offset(), None, records_min=1000)
    assert parse_end_offsets(offset) == {TopicPartition(chronik_topic, 0): 3, TopicPartition(chronik_topic, 1): 3}
    assert planner.plan_next_batch(offset, None) == offset


def test_min_offsets_per_trigger_waits_until_max_delay(
    chronik_broker: Broker, cluster: ClusterClient, chronik_topic: str
) -> None:
    clock = FakeClock()
    planner = create_planner(cluster, stream_options(chronik_broker, chronik_topic, maxTriggerDelay="10s"), clock)
    start = planner.initial_offset()
    produce(cluster, chronik_topic, 3, 1)
    assert planner.plan_next_batch(start, None, records_min=5) == start
    assert planner.plan_next_batch(start, None, records_min=4) != start
    clock.now = 20.5
    assert planner.plan_next_batch(start, None, records_min=5) != start


def test_deleted_partition_fails_stream_or_is_skipped(
    chronik_broker: Broker, cluster: ClusterClient, chronik_topic: str
) -> None:
    other = f"{chronik_topic}-other"
    chronik_broker.create_topic(other)
    options = stream_options(chronik_broker, chronik_topic)
    options = replace(options, subscription=replace(options.subscription, topics=(), pattern=f"{chronik_topic}.*"))
    produce(cluster, other, 2)
    planner = create_planner(cluster, options)
    offset = planner.plan_next_batch(planner.initial_offset(), None)
    assert TopicPartition(other, 0) in parse_end_offsets(offset)
    delete_topics(cluster, [other])
    with pytest.raises(DataLossError, match=f"{other}-0.*no longer exists"):
        planner.plan_next_batch(offset, None)
    tolerant = replace(options, read=replace(options.read, fail_on_data_loss=False))
    assert set(parse_end_offsets(create_planner(cluster, tolerant).plan_next_batch(offset, None))) == {
        TopicPartition(chronik_topic, 0),
        TopicPartition(chronik_topic, 1),
    }


def test_truncated_partition_fails_stream_or_continues_at_new_end(
    chronik_broker: Broker, cluster: ClusterClient, chronik_topic: str
) -> None:
    options = stream_options(chronik_broker, chronik_topic)
    produce(cluster, chronik_topic, 2, 2)
    later_offset = {chronik_topic: {"0": 9, "1": 2}}
    with pytest.raises(DataLossError, match="offsets 2 to 8 cannot be read: the partition now ends at 2"):
        create_planner(cluster, options).plan_next_batch(later_offset, None)
    tolerant = replace(options, read=replace(options.read, fail_on_data_loss=False))
    end = create_planner(cluster, tolerant).plan_next_batch(later_offset, None)
    assert parse_end_offsets(end)[TopicPartition(chronik_topic, 0)] == 2
    assert plan_micro_batch_ranges(later_offset, end) == []


def test_starting_offsets_must_name_every_partition(
    chronik_broker: Broker, cluster: ClusterClient, chronik_topic: str
) -> None:
    starting_offsets = json.dumps({chronik_topic: {"0": 1}})
    planner = create_planner(cluster, stream_options(chronik_broker, chronik_topic, startingOffsets=starting_offsets))
    with pytest.raises(OptionError, match=f"missing {chronik_topic}-1"):
        planner.initial_offset()


def test_stream_starts_at_given_offsets_or_timestamps(
    chronik_broker: Broker, cluster: ClusterClient, chronik_topic: str
) -> None:
    timed = [OutgoingRecord(b"v", timestamp=1000 + 10 * number, partition=0) for number in range(5)]
    Producer(cluster).send(chronik_topic, timed)
    starting_offsets = json.dumps({chronik_topic: {"0": -1, "1": -2}})
    at_offsets = create_planner(
        cluster, stream_options(chronik_broker, chronik_topic, startingOffsets=starting_offsets)
    )
    assert at_offsets.initial_offset() == {chronik_topic: {"0": 5, "1": 0}}
    by_time = {"startingTimestamp": "1015", "startingOffsetsByTimestampStrategy": "latest"}
    assert create_planner(cluster, stream_options(chronik_broker, chronik_topic, **by_time)).initial_offset() == {
        chronik_topic: {"0": 2, "1": 0}
    }
    with pytest.raises(OptionError, match="no record at or after the timestamp"):
        create_planner(
            cluster, stream_options(chronik_broker, chronik_topic, startingTimestamp="1015")
        ).initial_offset()
