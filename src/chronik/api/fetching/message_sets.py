"""Fetch, versions 0 to 3: batches become message sets on their way out, as much of them at a time as one may ask for.

Small ones are converted at once, large ones in a thread; the connection's next request waits, as for any fetch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import cast

from chronik.api.shared.context import Services
from chronik.broker.requests.fetch_sessions import FetchPartition
from chronik.exchange import Reply
from chronik.limits import FETCH_RESPONSE_BYTES_MAX, MIB
from chronik.protocol.batch import end_offset
from chronik.protocol.budget import Budget
from chronik.protocol.errors import ErrorCode, KafkaError, RecordsTooLarge
from chronik.protocol.message_set import convert_down
from chronik.protocol.messages.fetch import FetchResponse, PartitionData

FIRST_VERSION_WITH_MAGIC_1 = 2

READ_ON_BYTES = 1 * MIB
"""Read at a time where nothing was found: compaction leaves batches of 61 bytes, which must not be read one by one."""

Fetch = Callable[[], Reply[FetchResponse]]
"""Finds batches from the wanted offset on, if need be after a wait."""


async def with_message_sets(
    services: Services, fetch: Fetch, wanted: list[FetchPartition], version: int
) -> FetchResponse:
    """Reads on where compaction has left no record: a client would ask for the same offset forever, since only messages
    tell it how far it got."""
    by_key = {partition.key: partition for partition in wanted}
    while True:
        response = cast(FetchResponse, await fetch())
        converting = _Converting(services, version, response)
        is_read_on = False
        for topic in response.responses:
            for data in topic.partitions:
                if data.records:
                    is_read_on |= await converting.convert(data, by_key[topic.topic, data.partition_index])
        if not is_read_on or converting.is_worth_telling:
            return response


class _Converting:
    """One answer, while its batches become message sets."""

    def __init__(self, services: Services, version: int, response: FetchResponse) -> None:
        self._openings = services.openings
        self._magic = 1 if version >= FIRST_VERSION_WITH_MAGIC_1 else 0
        self._at_once = Budget.on_loop()
        self._budget = Budget.for_bytes(
            sum(len(data.records or b"") for topic in response.responses for data in topic.partitions)
        )
        self._size = 0
        self.is_worth_telling = any(data.error_code for topic in response.responses for data in topic.partitions)

    async def convert(self, data: PartitionData, wanted: FetchPartition) -> bool:
        """Says whether no record is left in all of it, so that the fetch has to read on."""
        batches = data.records
        assert isinstance(batches, bytes | memoryview)
        data.records = b""
        if self._size >= FETCH_RESPONSE_BYTES_MAX:
            return False  # the next fetch finds them
        convert = partial(convert_down, batches, self._magic, first_offset=wanted.fetch_offset)
        try:
            data.records = await self._openings.run(convert, self._at_once, self._budget)
        except RecordsTooLarge as error:
            if not self._size:  # else other partitions have used it up
                self._fail(data, error.code)
            return False
        except KafkaError as error:
            self._fail(data, error.code)
            return False
        self._size += len(data.records)
        if data.records:
            self.is_worth_telling = True
            return False
        wanted.fetch_offset = end_offset(batches)
        wanted.max_bytes = max(wanted.max_bytes, READ_ON_BYTES)
        return True

    def _fail(self, data: PartitionData, code: ErrorCode) -> None:
        data.error_code = code
        self.is_worth_telling = True
