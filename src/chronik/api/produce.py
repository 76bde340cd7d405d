"""Produce, versions 0 to 13.

Records are appended while the request is handled; the response waits until they are as safe as the request asks for:
on the leader's disk (acks=1), or on that of every in-sync replica (acks=all). acks=0 gets no response; an error then
closes the connection, since there is no other way to tell. Missing: transactions (INVALID_TXN_STATE).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from chronik.api.context import Context, Pipelined, Services
from chronik.api.leaders import brokers_of, partition_of
from chronik.broker.incoming import accept_produced
from chronik.broker.purgatory import Commits
from chronik.broker.replica import Replica
from chronik.exchange import Disconnect
from chronik.protocol.batch import BatchHeader
from chronik.protocol.errors import ErrorCode, InvalidRecord, KafkaError
from chronik.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
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
FIRST_VERSION_WITH_LEADERS = 10
FIRST_VERSION_WITH_TOPIC_IDS = 13
INTERNAL_TOPICS_CLIENT = "__admin_client"
"""By this client id Kafka's own tools say that they mean it."""

TIMEOUT_SECONDS_MAX = 300.0
"""A disk that takes longer than this has failed; also for acks=1, where a client's timeout says nothing."""


@dataclass(slots=True)
class Appended:
    """Records that are written and not yet known to be safe, and the answer that waits for them."""

    replica: Replica
    header: BatchHeader
    end_offset: int
    answer: PartitionProduceResponse
    is_settled: bool = False

    def fail(self, code: ErrorCode) -> None:
        self.answer.error_code = code
        self.answer.base_offset = NO_OFFSET


def handle(services: Services, request: ProduceRequest, context: Context) -> ProduceResponse | Pipelined | None:
    if request.acks not in (NO_ACKS, LEADER_ACKS, ALL_ACKS):
        return failure(request, ErrorCode.INVALID_REQUIRED_ACKS)
    response = ProduceResponse()
    waiting: list[Appended] = []
    for topic in request.topic_data:
        answers = [
            _append(services, topic, partition, context, request.acks, waiting) for partition in topic.partition_data
        ]
        response.responses.append(
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
        )
    if request.acks == NO_ACKS:
        _close_on_error(response)
        return None
    if context.version >= FIRST_VERSION_WITH_LEADERS:
        _name_leaders(services, response, context.version)
    if not waiting:
        return response
    timeout_seconds = request.timeout_ms / 1000 if request.acks == ALL_ACKS else TIMEOUT_SECONDS_MAX
    return _when_safe(services, response, waiting, timeout_seconds, request.acks, context.version)


def _name_leaders(services: Services, response: ProduceResponse, version: int) -> None:
    if services.is_fenced():
        return  # it believes what it last heard: perhaps that it leads itself
    leaders = []
    for topic in response.responses:
        key = topic.topic_id if version >= FIRST_VERSION_WITH_TOPIC_IDS else topic.name
        for answer in topic.partition_responses:
            if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                partition = partition_of(services, key, answer.index)
                if partition is not None:
                    answer.current_leader = LeaderIdAndEpoch(
                        leader_id=partition.leader, leader_epoch=partition.leader_epoch
                    )
                    leaders.append(partition.leader)
    response.node_endpoints = [
        NodeEndpoint(node_id=broker.id, host=broker.host, port=broker.port, rack=broker.rack)
        for broker in brokers_of(services, leaders)
    ]


def failure(request: ProduceRequest, code: ErrorCode) -> ProduceResponse:
    if request.acks == NO_ACKS and request.topic_data:
        raise Disconnect(f"a produce without acks failed: {code.name}")
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
    context: Context,
    acks: int,
    waiting: list[Appended],
) -> PartitionProduceResponse:
    try:
        if services.is_fenced():
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        replica = _find(services, topic, partition.index, context)
        if acks == ALL_ACKS and not replica.has_enough_replicas:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        records = partition.records
        view = memoryview(records) if records is not None else None
        incoming = accept_produced(view, replica.rules, context.version, services.clock.now_ms())
        if services.refused_batches:
            services.refused_batches.check(_key(topic), partition.index, incoming.headers[0], replica.log.producers)
        info = replica.append(incoming)
        # What is written need not be held until it is synced: the records are most of the request's memory.
        partition.records = None
    except KafkaError as error:
        services.refused_batches.note(_key(topic), partition.index, partition.records, error.code)
        return PartitionProduceResponse(
            index=partition.index,
            error_code=error.code,
            base_offset=NO_OFFSET,
            record_errors=_record_errors(error),
            error_message=error.message,
        )
    answer = PartitionProduceResponse(
        index=partition.index,
        base_offset=info.base_offset,
        log_append_time_ms=incoming.log_append_time_ms,
        log_start_offset=replica.log.log_start_offset,
    )
    if not (replica.is_committed if acks == ALL_ACKS else replica.is_durable)(info.last_offset + 1):
        waiting.append(Appended(replica, incoming.headers[0], info.last_offset + 1, answer))
    return answer


def _key(topic: TopicProduceData) -> str | bytes:
    return topic.name or topic.topic_id


def _record_errors(error: KafkaError) -> list[BatchIndexAndErrorMessage]:
    """Which records are to blame, so that a client can send the others again. Why is told once, for all of them."""
    indexes = error.indexes if isinstance(error, InvalidRecord) else ()
    return [BatchIndexAndErrorMessage(batch_index=index) for index in indexes]


def _find(services: Services, topic: TopicProduceData, index: int, context: Context) -> Replica:
    if context.version >= FIRST_VERSION_WITH_TOPIC_IDS:
        replica = services.replicas.by_id(topic.topic_id, index)
    else:
        replica = services.replicas.by_name(topic.name, index)
    if services.image.topics_by_id[replica.topic_id].internal and context.client_id != INTERNAL_TOPICS_CLIENT:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{replica.topic_name} is an internal topic")
    return replica


def _when_safe(
    services: Services,
    response: ProduceResponse,
    waiting: list[Appended],
    timeout_seconds: float,
    acks: int,
    version: int,
) -> Pipelined:
    loop = asyncio.get_running_loop()
    commits = Commits(loop, min(max(timeout_seconds, 0.0), TIMEOUT_SECONDS_MAX))
    for appended in waiting:
        _wait_for(services, appended, commits, acks, version)
    answer: asyncio.Future[Response | None] = loop.create_future()

    def finish(_: asyncio.Future[None]) -> None:
        if answer.done():
            return
        for appended in waiting:
            if not appended.is_settled:
                appended.fail(ErrorCode.REQUEST_TIMED_OUT)
        if version >= FIRST_VERSION_WITH_LEADERS and any(appended.answer.error_code for appended in waiting):
            _name_leaders(services, response, version)
        answer.set_result(response)

    commits.done.add_done_callback(finish)
    commits.start()
    return Pipelined(answer)


def _wait_for(services: Services, appended: Appended, commits: Commits, acks: int, version: int) -> None:
    """What becomes of one partition is noted when it is known: later its offsets may be those of other records."""
    replica = appended.replica

    def settle(code: ErrorCode) -> None:
        appended.is_settled = True
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and version >= FIRST_VERSION_WITH_TOPIC_IDS:
            code = ErrorCode.UNKNOWN_TOPIC_ID
        if code is not ErrorCode.NONE:
            # The next leader may not have it: then what was sent behind it must not seem to leave a gap.
            key = replica.topic_id if version >= FIRST_VERSION_WITH_TOPIC_IDS else replica.topic_name
            services.refused_batches.note_header(key, replica.index, appended.header, code)
            appended.fail(code)
        commits.settled()

    commits.expect()
    (replica.when_committed if acks == ALL_ACKS else replica.when_durable)(appended.end_offset, settle)


def _close_on_error(response: ProduceResponse) -> None:
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code != ErrorCode.NONE:
                raise Disconnect(
                    f"a produce without acks failed: {ErrorCode(partition.error_code).name} "
                    f"for partition {partition.index} of {topic.name}"
                )
