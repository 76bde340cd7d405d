"""Fetch, versions 0 to 18.

Answers at once when there is enough to say, and otherwise when there is, or when the client's patience ends. Sessions
(7 and newer) keep what a client wants between requests. Versions 0 to 3 get message sets, converted on the way out.
Missing: read_committed has nothing to hide yet, and fetches of followers are refused here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from chronik.api.context import Context, Services
from chronik.broker.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, FetchPartition, FetchSession
from chronik.broker.purgatory import RecordsArrived
from chronik.broker.replica import Replica
from chronik.limits import DECOMPRESSED_BYTES_MAX, FETCH_WAIT_SECONDS_MAX
from chronik.protocol.batch import iter_batches
from chronik.protocol.compression import Codec
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.message_set import convert_down
from chronik.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

FIRST_VERSION_WITH_BATCHES = 4
FIRST_VERSION_WITH_MAGIC_1 = 2
FIRST_VERSION_WITH_ZSTD = 10
FIRST_VERSION_WITH_TOPIC_IDS = 13
NOTHING_KNOWN = -1


@dataclass(slots=True)
class Answer:
    """What one look at the partitions found."""

    partitions: list[tuple[FetchPartition, PartitionData]]
    replicas: list[Replica]
    records_bytes: int
    urgent: bool
    """There is something to say besides records: an error, a divergence."""


async def handle(services: Services, request: FetchRequest, context: Context) -> FetchResponse:
    if request.replica_id >= 0 or request.replica_state.replica_id >= 0:
        # A stranger that claims to be a follower could move the high watermark.
        return failure(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    now = services.clock.monotonic()
    wanted = list(_wanted(request, context.version))
    session: FetchSession | None = None
    incremental = False
    if context.version >= 7 and request.session_epoch != FINAL_EPOCH:
        try:
            if request.session_epoch == INITIAL_EPOCH:
                services.fetch_sessions.end(request.session_id)
                session = services.fetch_sessions.begin(wanted, now)
            else:
                session = services.fetch_sessions.resume(request.session_id, request.session_epoch, now)
                session.update(wanted, _forgotten(request, context.version))
                incremental = True
        except KafkaError as error:
            return FetchResponse(error_code=error.code)
    elif request.session_id != NO_SESSION:
        services.fetch_sessions.end(request.session_id)
    if session is not None:
        wanted = list(session.wanted.values())
    answer = await _answer_in_time(services, request, context.version, wanted)
    return _response(answer, session, incremental, context.version)


def failure(request: FetchRequest, code: ErrorCode) -> FetchResponse:
    return FetchResponse(
        error_code=code,
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[_nothing(partition.partition, code) for partition in topic.partitions],
            )
            for topic in request.topics
        ],
    )


async def _answer_in_time(
    services: Services, request: FetchRequest, version: int, wanted: list[FetchPartition]
) -> Answer:
    clock = services.clock
    deadline = clock.monotonic() + min(request.max_wait_ms / 1000, FETCH_WAIT_SECONDS_MAX)
    while True:
        answer = _look(services, wanted, request.max_bytes, version)
        missing = request.min_bytes - answer.records_bytes
        patience = deadline - clock.monotonic()
        if missing <= 0 or patience <= 0 or answer.urgent or not wanted:
            return answer
        await RecordsArrived(answer.replicas, missing).wait(patience)


def _look(services: Services, wanted: Iterable[FetchPartition], max_bytes: int, version: int) -> Answer:
    budget = min(max_bytes, services.configs.broker_int("fetch.max.bytes"))
    answer = Answer([], [], 0, False)
    for partition in wanted:
        try:
            replica = _find(services, partition, version)
            data = _read(replica, partition, budget, answer.records_bytes == 0, version)
            answer.replicas.append(replica)
        except KafkaError as error:
            data = _nothing(partition.partition, error.code)
        if data.error_code or data.diverging_epoch.epoch >= 0:
            answer.urgent = True
        size = len(data.records) if isinstance(data.records, bytes | memoryview) else 0
        answer.records_bytes += size
        budget -= size
        answer.partitions.append((partition, data))
    return answer


def _find(services: Services, partition: FetchPartition, version: int) -> Replica:
    if version >= FIRST_VERSION_WITH_TOPIC_IDS:
        assert isinstance(partition.topic, bytes)
        return services.replicas.by_id(partition.topic, partition.partition)
    assert isinstance(partition.topic, str)
    return services.replicas.by_name(partition.topic, partition.partition)


def _read(replica: Replica, wanted: FetchPartition, budget: int, is_first: bool, version: int) -> PartitionData:
    replica.check_epoch(wanted.current_leader_epoch)
    log = replica.log
    data = PartitionData(
        partition_index=wanted.partition,
        high_watermark=replica.high_watermark,
        last_stable_offset=replica.last_stable_offset,
        log_start_offset=log.log_start_offset,
        records=b"",
    )
    if wanted.last_fetched_epoch >= 0:
        epoch, end_offset = log.epoch_end_offset(wanted.last_fetched_epoch)
        if epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:
            data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
            return data
    # A batch larger than every limit is still sent when it is the first, or its consumer would be stuck forever.
    size = min(wanted.max_bytes, budget)
    if size > 0 or is_first:
        data.records = _for_version(replica.read(wanted.fetch_offset, max(size, 0), min_one_batch=is_first), version)
    return data


def _for_version(records: bytes | memoryview, version: int) -> bytes | memoryview:
    if version >= FIRST_VERSION_WITH_ZSTD or not records:
        return records
    if any(header.codec == Codec.ZSTD for _, header in iter_batches(records)):
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    if version >= FIRST_VERSION_WITH_BATCHES:
        return records
    magic = 1 if version >= FIRST_VERSION_WITH_MAGIC_1 else 0
    return convert_down(records, magic, limit=DECOMPRESSED_BYTES_MAX)


def _response(answer: Answer, session: FetchSession | None, incremental: bool, version: int) -> FetchResponse:
    response = FetchResponse(session_id=session.id if session else NO_SESSION)
    by_topic: dict[str | bytes, FetchableTopicResponse] = {}
    for partition, data in answer.partitions:
        if session is not None:
            news = session.is_news(partition.key, data.high_watermark, data.log_start_offset, bool(data.records))
            if data.error_code:
                session.failed(partition.key)
            elif incremental and not news and data.diverging_epoch.epoch < 0:
                continue
        topic = by_topic.get(partition.topic)
        if topic is None:
            topic = FetchableTopicResponse()
            if version >= FIRST_VERSION_WITH_TOPIC_IDS:
                assert isinstance(partition.topic, bytes)
                topic.topic_id = partition.topic
            else:
                assert isinstance(partition.topic, str)
                topic.topic = partition.topic
            by_topic[partition.topic] = topic
            response.responses.append(topic)
        topic.partitions.append(data)
    return response


def _wanted(request: FetchRequest, version: int) -> Iterator[FetchPartition]:
    for topic in request.topics:
        key = topic.topic_id if version >= FIRST_VERSION_WITH_TOPIC_IDS else topic.topic
        for partition in topic.partitions:
            yield FetchPartition(
                topic=key,
                partition=partition.partition,
                fetch_offset=partition.fetch_offset,
                max_bytes=partition.partition_max_bytes,
                current_leader_epoch=partition.current_leader_epoch,
                last_fetched_epoch=partition.last_fetched_epoch,
                log_start_offset=partition.log_start_offset,
            )


def _forgotten(request: FetchRequest, version: int) -> Iterator[tuple[str | bytes, int]]:
    for topic in request.forgotten_topics_data:
        key = topic.topic_id if version >= FIRST_VERSION_WITH_TOPIC_IDS else topic.topic
        for partition in topic.partitions:
            yield key, partition


def _nothing(partition: int, code: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=partition,
        error_code=code,
        high_watermark=NOTHING_KNOWN,
        last_stable_offset=NOTHING_KNOWN,
        log_start_offset=NOTHING_KNOWN,
        records=b"",
    )
