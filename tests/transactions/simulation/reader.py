"""Simulated readers of committed and of all records, which filter responses as clients do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from chronik.api import fetch
from chronik.broker.replica import Replica
from chronik.metadata.records import Topic
from chronik.protocol.batch import iter_batches
from chronik.protocol.control_records import parse_transaction_marker_batch
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from chronik.protocol.records import decode_batch
from tests.chaos.history import Place, RecordId, decode_value
from tests.transactions.history import Read

from .process import TransactionalProcess

if TYPE_CHECKING:
    from .world import TransactionWorld

FETCH_VERSION: Final = 13
READ_COMMITTED: Final = 1
READ_BYTES: Final = 1 << 20

AbortedRange = tuple[int, int]
"""A producer id and the first offset of its aborted transaction."""


class FilteredRecords(NamedTuple):
    records: tuple[tuple[int, RecordId], ...]
    end: int
    """The next offset to read."""


def filter_records(
    data: memoryview, start: int, aborted: Iterable[AbortedRange], *, is_committed: bool
) -> FilteredRecords:
    """Return the records that a client delivers to its application.

    The records of an aborted transaction between its first offset and its marker are omitted.
    """
    left = sorted(((first, producer_id) for producer_id, first in aborted), reverse=True) if is_committed else []
    hidden: set[int] = set()
    records: list[tuple[int, RecordId]] = []
    end = start
    for position, header in iter_batches(data):
        end = header.next_offset
        while left and left[-1][0] < header.next_offset:
            hidden.add(left.pop()[1])
        if header.is_control:
            marker = parse_transaction_marker_batch(data, position)
            if marker is not None and not marker.is_commit:
                hidden.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in hidden):
            records += [found for found in _records(data, position) if found[0] >= start]
    return FilteredRecords(tuple(records), max(end, start))


def _records(data: memoryview, position: int) -> Iterator[tuple[int, RecordId]]:
    for record in decode_batch(data, position):
        value = bytes(record.value or b"")
        if b"/" not in value:  # a record of a non-transactional producer
            yield record.offset, decode_value(value, None)


class Reader:
    """A simulated consumer."""

    def __init__(self, world: TransactionWorld, number: int) -> None:
        self._world = world
        self._name = f"reader-{number}"
        self._positions: dict[tuple[Place, bool], int] = {}

    async def run(self) -> None:
        world, chance = self._world, self._world.chance
        while not world.have_clients_left:
            await asyncio.sleep(chance.uniform(0.02, 0.2))
            topic = world.some_topic()
            if topic is not None:
                await self._read(topic, chance.randrange(len(topic.partitions)), chance.random() < 0.7)

    async def _read(self, topic: Topic, index: int, is_committed: bool) -> None:
        """Read the next records of a partition, or reread earlier ones."""
        world, place = self._world, Place(topic.id.hex(), index)
        start = self._positions.get((place, is_committed), 0)
        if world.chance.random() < 0.3:
            start = world.chance.randint(0, start)
        asked_at, node = world.loop.time(), world.leader_of(topic.id, index)

        async def work(process: TransactionalProcess) -> PartitionData:
            return await send_to_leader(process, topic, index, start, is_committed=is_committed)

        data = await world.wire.send_request(node, work)
        if data is None or data.error_code:
            if data is not None and data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self._positions.pop((place, is_committed), None)
            return
        assert isinstance(data.records, bytes | memoryview)
        aborted = [(each.producer_id, each.first_offset) for each in data.aborted_transactions or ()]
        found = filter_records(memoryview(data.records), start, aborted, is_committed=is_committed)
        self._positions[place, is_committed] = max(found.end, self._positions.get((place, is_committed), 0))
        world.counts["read"] += len(found.records)
        world.tell(
            Read(
                reader=self._name,
                node=node,
                asked_at=asked_at,
                place=place,
                is_committed=is_committed,
                start=start,
                end=found.end,
                records=found.records,
                stable=data.last_stable_offset,
                high_watermark=data.high_watermark,
            )
        )


async def send_to_leader(
    process: TransactionalProcess, topic: Topic, index: int, start: int, *, is_committed: bool
) -> PartitionData:
    partition = FetchPartition(partition=index, fetch_offset=start, partition_max_bytes=2000)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=READ_BYTES,
        isolation_level=READ_COMMITTED if is_committed else 0,
        session_epoch=-1,
        topics=[FetchTopic(topic_id=topic.id, partitions=[partition])],
    )
    response = await process.handle_request(fetch.handle, request, FETCH_VERSION, FetchResponse)
    return response.responses[0].partitions[0]


def final_reads(node: int, replica: Replica, at: float) -> Iterator[Read]:
    """Return the reads that a client would get if this replica were the leader, with both isolation levels."""
    log, stable = replica.log, replica.last_stable_offset
    for is_committed in (True, False):
        start, end = log.log_start_offset, stable if is_committed else replica.high_watermark
        records: list[tuple[int, RecordId]] = []
        position = start
        while position < end:
            data = log.read(position, READ_BYTES, end)
            aborted = [(each.producer_id, each.first_offset) for each in log.find_aborted_transactions(data, position)]
            found = filter_records(data, position, aborted, is_committed=is_committed)
            records += found.records
            position = found.end
        yield Read(
            reader="final",
            node=node,
            asked_at=at,
            place=Place(replica.topic_id.hex(), replica.index),
            is_committed=is_committed,
            start=start,
            end=end,
            records=tuple(records),
            stable=stable,
            high_watermark=replica.high_watermark,
            is_final=True,
        )
