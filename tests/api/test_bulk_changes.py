"""Requests with a quarter of a million elements are handled in chunks, between which other work can run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any, Final

import pytest

from chronik import scheduler
from chronik.api import (
    add_partitions_to_txn,
    alter_configs,
    alter_replica_log_dirs,
    create_partitions,
    delete_records,
    delete_topics,
    describe_log_dirs,
    incremental_alter_configs,
    write_txn_markers,
)
from chronik.metadata import chunking
from chronik.metadata.chunking import CHUNK_ELEMENTS
from chronik.protocol.messages import add_partitions_to_txn as added
from chronik.protocol.messages import alter_configs as replaced
from chronik.protocol.messages import alter_replica_log_dirs as moved
from chronik.protocol.messages import create_partitions as enlarged
from chronik.protocol.messages import delete_records as cut
from chronik.protocol.messages import delete_topics as deleted
from chronik.protocol.messages import describe_log_dirs as described
from chronik.protocol.messages import incremental_alter_configs as changed
from chronik.protocol.messages import write_txn_markers as marked
from tests.api.rejecting_services import rejecting_services

CHUNKS: Final = 4
ELEMENTS: Final = CHUNKS * CHUNK_ELEMENTS


class CountingList(list[Any]):
    """A list that counts how many of its elements were iterated since the last call of `taken`."""

    def __init__(self, make: Callable[[int], object]) -> None:
        super().__init__(map(make, range(ELEMENTS)))
        self._taken = 0

    def __iter__(self) -> Iterator[Any]:
        for element in super().__iter__():
            self._taken += 1
            yield element

    def taken(self) -> int:
        taken, self._taken = self._taken, 0
        return taken


NUMBERS: Final = CountingList(lambda number: number)
TOPICS: Final = CountingList(
    lambda number: enlarged.CreatePartitionsTopic(name=f"t{number}", count=2, assignments=None)
)
STATES: Final = CountingList(lambda number: deleted.DeleteTopicState(name=f"t{number}"))
NAMES: Final = CountingList(lambda number: f"t{number}")
PARTITIONS: Final = CountingList(lambda number: cut.DeleteRecordsPartition(partition_index=number, offset=0))
REPLACED: Final = CountingList(
    lambda number: replaced.AlterConfigsResource(resource_type=2, resource_name=f"t{number}")
)
CHANGED: Final = CountingList(
    lambda number: changed.IncrementalAlterConfigsResource(resource_type=2, resource_name=f"t{number}")
)
SAME: Final = CountingList(lambda _: replaced.AlterConfigsResource(resource_type=2, resource_name="t"))

REQUESTS: Final[list[tuple[ModuleType, Any, CountingList]]] = [
    (create_partitions, enlarged.CreatePartitionsRequest(topics=TOPICS), TOPICS),
    (delete_topics, deleted.DeleteTopicsRequest(topics=STATES), STATES),
    (delete_topics, deleted.DeleteTopicsRequest(topic_names=NAMES), NAMES),
    (
        delete_records,
        cut.DeleteRecordsRequest(topics=[cut.DeleteRecordsTopic(name="t", partitions=PARTITIONS)]),
        PARTITIONS,
    ),
    (alter_configs, replaced.AlterConfigsRequest(resources=REPLACED), REPLACED),
    (alter_configs, replaced.AlterConfigsRequest(resources=SAME), SAME),
    (incremental_alter_configs, changed.IncrementalAlterConfigsRequest(resources=CHANGED), CHANGED),
    (
        alter_replica_log_dirs,
        moved.AlterReplicaLogDirsRequest(
            dirs=[
                moved.AlterReplicaLogDir(path="/", topics=[moved.AlterReplicaLogDirTopic(name="t", partitions=NUMBERS)])
            ]
        ),
        NUMBERS,
    ),
    (
        describe_log_dirs,
        described.DescribeLogDirsRequest(topics=[described.DescribableLogDirTopic(topic="t", partitions=NUMBERS)]),
        NUMBERS,
    ),
    (
        add_partitions_to_txn,
        added.AddPartitionsToTxnRequest(
            transactional_id="x", topics=[added.AddPartitionsToTxnTopic(name="t", partitions=NUMBERS)]
        ),
        NUMBERS,
    ),
    (
        write_txn_markers,
        marked.WriteTxnMarkersRequest(
            markers=[
                marked.WritableTxnMarker(topics=[marked.WritableTxnMarkerTopic(name="t", partition_indexes=NUMBERS)])
            ]
        ),
        NUMBERS,
    ),
]


@pytest.mark.parametrize(("handler", "request_", "many"), REQUESTS)
def test_handler_takes_at_most_one_chunk_per_iteration(
    handler: Any, request_: Any, many: CountingList, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "SLICE_SECONDS", 0.0)
    monkeypatch.setattr(chunking, "SLICE_SECONDS", 0.0)

    async def handle_request() -> object:
        answer = handler.handle(rejecting_services(), request_, SimpleNamespace(version=1, usage=None))
        return await answer if isinstance(answer, Awaitable) else answer

    async def scenario() -> list[int]:
        many.taken()
        task = asyncio.ensure_future(handle_request())
        taken_per_iteration = []
        while not task.done():
            await asyncio.sleep(0)
            taken_per_iteration.append(many.taken())
        task.result()
        return taken_per_iteration

    taken_per_iteration = asyncio.run(scenario())
    assert sum(taken_per_iteration) == ELEMENTS
    assert max(taken_per_iteration) <= CHUNK_ELEMENTS
    if many is not SAME:  # its elements are merged into one
        assert len(taken_per_iteration) >= 2 * CHUNKS
