"""Fetch versions 0 to 3: conversion of record batches to message sets.

Small batches are converted on the event loop, large ones in a thread. The connection's next request waits, as it does
for every fetch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import cast

from chronik.api.shared.context import Services
from chronik.broker.requests.fetch_sessions import SessionPartition
from chronik.limits import FETCH_RESPONSE_BYTES_MAX, MIB
from chronik.protocol.batch import end_offset
from chronik.protocol.budget import DecompressionBudget
from chronik.protocol.errors import ErrorCode, KafkaError, RecordsTooLarge
from chronik.protocol.message_set import convert_to_message_set
from chronik.protocol.messages.fetch import FetchResponse, PartitionData
from chronik.request_reply import Reply

FIRST_VERSION_WITH_MAGIC_1 = 2

READ_ON_BYTES = 1 * MIB
"""Bytes to read at once after a read without records. Compaction leaves empty batches of 61 bytes, too small to be read
one by one."""

FetchBatches = Callable[[], Reply[FetchResponse]]
"""Fetches batches from the requested offsets on, waiting if necessary."""


async def fetch_message_sets(
    services: Services, fetch: FetchBatches, wanted: list[SessionPartition], version: int
) -> FetchResponse:
    """Fetch batches and convert them to message sets; continue where compaction has left no record in what was read.

    Otherwise a client would fetch the same offset forever, because only messages advance its position.
    """
    by_key = {partition.key: partition for partition in wanted}
    while True:
        response = cast(FetchResponse, await fetch())
        conversion = _MessageSetConversion(services, version, response)
        must_read_on = False
        for topic in response.responses:
            for data in topic.partitions:
                if data.records:
                    must_read_on |= await conversion.convert(data, by_key[topic.topic, data.partition_index])
        if not must_read_on or conversion.has_result:
            return response


class _MessageSetConversion:
    """The conversion of one response's batches to message sets."""

    def __init__(self, services: Services, version: int, response: FetchResponse) -> None:
        self._openings = services.decompressor
        self._magic = 1 if version >= FIRST_VERSION_WITH_MAGIC_1 else 0
        self._loop_budget = DecompressionBudget.for_event_loop()
        self._budget = DecompressionBudget.for_request(
            sum(len(data.records or b"") for topic in response.responses for data in topic.partitions)
        )
        self._size = 0
        self.has_result = any(data.error_code for topic in response.responses for data in topic.partitions)

    async def convert(self, data: PartitionData, wanted: SessionPartition) -> bool:
        """Convert a partition's batches, and return whether they had no records, so that the fetch must read on."""
        batches = data.records
        assert isinstance(batches, bytes | memoryview)
        data.records = b""
        if self._size >= FETCH_RESPONSE_BYTES_MAX:
            return False  # the next fetch returns them
        convert = partial(convert_to_message_set, batches, self._magic, first_offset=wanted.fetch_offset)
        try:
            data.records = await self._openings.run(convert, self._loop_budget, self._budget)
        except RecordsTooLarge as error:
            if not self._size:  # otherwise other partitions have used up the limit
                self._fail(data, error.code)
            return False
        except KafkaError as error:
            self._fail(data, error.code)
            return False
        self._size += len(data.records)
        if data.records:
            self.has_result = True
            return False
        wanted.fetch_offset = end_offset(batches)
        wanted.max_bytes = max(wanted.max_bytes, READ_ON_BYTES)
        return True

    def _fail(self, data: PartitionData, code: ErrorCode) -> None:
        data.error_code = code
        self.has_result = True
