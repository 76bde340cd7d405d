"""Statements over one topic of a real broker, in a real Spark session, and its landing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chronik.client.cluster import ClusterClient
from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord, TopicPartition
from chronik.pipeline.landing.runner import run
from chronik.pipeline.query.sql import query
from chronik.pipeline.tables.storage import table_uri
from chronik.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from chronik.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

NOON_MS = 1_714_564_800_000
"""Noon of 1 May 2024 (UTC)."""


class Sql:
    """Statements over one topic, named `T` in them, and its landing."""

    def __init__(self, spark: SparkSession, broker: Broker, cluster: ClusterClient, topic: str, root: Path) -> None:
        self.spark, self.broker, self.cluster, self.topic = spark, broker, cluster, topic
        self.root = str(root)

    def rows(self, statement: str, *, prune: bool = False) -> list[Row]:
        statement = re.sub(r"\bT(|_cold|_hot)\b", rf"`{self.topic}\1`", statement)
        found: list[Row] = query(self.spark, statement, self.broker.bootstrap, self.root, prune=prune).collect()
        return found

    def offsets(self, name: str) -> list[tuple[int, int]]:
        return sorted(tuple(row) for row in self.rows(f"SELECT _partition, _offset FROM {name}"))

    def send(self, *values: bytes | None, partition: int = 0, timestamp: int | None = None) -> None:
        records = [
            OutgoingRecord(
                value,
                key=b"key %d" % number,
                headers=(("h", b"%d" % number),) if number % 2 else (),
                timestamp=NOON_MS + number if timestamp is None else timestamp,
                partition=partition,
            )
            for number, value in enumerate(values)
        ]
        Producer(self.cluster).send(self.topic, records)

    def land(self, format: str = "raw") -> None:
        run(self.broker.bootstrap, self.root, [self.topic], once=True, format=format, spark=self.spark)

    def delete_before(self, offset: int) -> None:
        """Delete records of partition 0 below an offset, as retention does."""
        partitions = [DeleteRecordsPartition(partition_index=0, offset=offset)]
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=self.topic, partitions=partitions)], timeout_ms=10_000
        )
        self.cluster.leader(TopicPartition(self.topic, 0)).request(request, DeleteRecordsResponse)

    def table_directory(self) -> Path:
        return Path(table_uri(self.root, self.topic))


def documents(*numbers: int, **more: Any) -> list[bytes]:
    return [json.dumps({"n": number, **more}).encode() for number in numbers]


def as_dicts(rows: list[Row]) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in rows]
