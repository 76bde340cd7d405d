"""Produce, versions 0 to 13.

Records are appended while the request is handled; the response waits until they are as safe as the request asks for.
On one node acks=1 and acks=all mean the same. acks=0 gets no response; an error then closes the connection, since
there is no other way to tell. Missing: transactions (INVALID_TXN_STATE).
"""

from __future__ import annotations

import asyncio

from chronik.api.context import Context, Pipelined, Services
from chronik.broker.incoming import accept_produced
from chronik.broker.purgatory import Commits
from chronik.broker.replica import Replica
from chronik.exchange import Disconnect
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from chronik.protocol.schema import Response

NO_ACKS, LEADER_ACKS, ALL_ACKS = 0, 1, -1
NO_OFFSET = -1
TIMEOUT_SECONDS_MAX = 300.0


def handle(services: Services, request: ProduceRequest, context: Context) -> ProduceResponse | Pipelined | None:
    if request.acks not in (NO_ACKS, LEADER_ACKS, ALL_ACKS):
        return failure(request, ErrorCode.INVALID_REQUIRED_ACKS)
    response = ProduceResponse()
    waiting: list[tuple[Replica, int]] = []
    for topic in request.topic_data:
        answers = [_append(services, topic, partition, context.version, waiting) for partition in topic.partition_data]
        response.responses.append(
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
        )
    if request.acks == NO_ACKS:
        _close_on_error(response)
        return None
    if not waiting:
        return response
    return _when_committed(response, waiting, request.timeout_ms / 1000)


def failure(request: ProduceRequest, code: ErrorCode) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(
                        index=partition.index, error_code=code, base_offset=NO_OFFSET, error_message=code.message
                    )
                    for partition in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def _append(
    services: Services,
    topic: TopicProduceData,
    partition: PartitionProduceData,
    version: int,
    waiting: list[tuple[Replica, int]],
) -> PartitionProduceResponse:
    try:
        replicas = services.replicas
        if version >= 13:
            replica = replicas.by_id(topic.topic_id, partition.index)
        else:
            replica = replicas.by_name(topic.name, partition.index)
        records = partition.records
        view = memoryview(records) if records is not None else None
        incoming = accept_produced(view, replica.rules, version, services.clock.now_ms())
        info = replica.append(incoming)
    except KafkaError as error:
        return PartitionProduceResponse(
            index=partition.index, error_code=error.code, base_offset=NO_OFFSET, error_message=error.message
        )
    if not replica.is_committed(info.last_offset + 1):
        waiting.append((replica, info.last_offset + 1))
    return PartitionProduceResponse(
        index=partition.index,
        base_offset=info.base_offset,
        log_append_time_ms=incoming.log_append_time_ms,
        log_start_offset=replica.log.log_start_offset,
    )


def _when_committed(
    response: ProduceResponse, waiting: list[tuple[Replica, int]], timeout_seconds: float
) -> Pipelined:
    loop = asyncio.get_running_loop()
    commits = Commits(loop, min(max(timeout_seconds, 0.0), TIMEOUT_SECONDS_MAX))
    for replica, offset in waiting:
        commits.wait_for(replica, offset)
    answer: asyncio.Future[Response | None] = loop.create_future()

    def finish(done: asyncio.Future[bool]) -> None:
        if answer.done():
            return
        if not done.result():
            _mark_timed_out(response)
        answer.set_result(response)

    commits.done.add_done_callback(finish)
    commits.start()
    return Pipelined(answer)


def _mark_timed_out(response: ProduceResponse) -> None:
    """The records are written, but not known to be safe."""
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code == ErrorCode.NONE:
                partition.error_code = ErrorCode.REQUEST_TIMED_OUT
                partition.base_offset = NO_OFFSET


def _close_on_error(response: ProduceResponse) -> None:
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code != ErrorCode.NONE:
                raise Disconnect(
                    f"a produce without acks failed: {ErrorCode(partition.error_code).name} "
                    f"for partition {partition.index} of {topic.name}"
                )
