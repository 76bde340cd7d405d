"""Metadata, versions 0 to 13: brokers, topics and leaders, as this node's image has them.

Asking for an unknown topic creates it, where client and broker allow it; the answer then already has it, so that no
client has to ask twice. From version 12 on topics may be asked for by id; 10 and 11 have the field and refuse its use.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection
from typing import cast

from chronik.api import operations
from chronik.api.context import Context, Services
from chronik.api.leaders import gone_brokers, named_leader
from chronik.api.topic_bytes import Form
from chronik.ids import ZERO_ID
from chronik.metadata.image import Image
from chronik.metadata.names import name_fault
from chronik.metadata.records import Topic
from chronik.protocol.codec import encode_element
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

FIRST_VERSION_BY_ID = 12


_UNDECIDED = dict.fromkeys(
    (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT), ErrorCode.LEADER_NOT_AVAILABLE
)
"""Every client knows this as "ask again"; the others not all, in a Metadata response."""


def handle(
    services: Services, request: MetadataRequest, context: Context
) -> MetadataResponse | Awaitable[MetadataResponse]:
    """At once, unless topics have to be created first: what clients ask most often should not wait for a task's turn
    behind whatever else is due."""
    if context.version < FIRST_VERSION_BY_ID and any(_is_by_id(topic) for topic in request.topics or ()):
        return failure(request, ErrorCode.INVALID_REQUEST)
    missing = _missing(services, request)
    if not missing:
        return _answer(services, request, context, {})
    if services.is_fenced():  # to create them could only be waited for in vain
        return _answer(services, request, context, dict.fromkeys(missing, ErrorCode.LEADER_NOT_AVAILABLE))
    return _create_and_answer(services, request, context, missing)


def failure(request: MetadataRequest, code: ErrorCode) -> MetadataResponse:
    return MetadataResponse(
        error_code=code,
        topics=[
            MetadataResponseTopic(name=topic.name or "", topic_id=topic.topic_id, error_code=code)
            for topic in request.topics or ()
        ],
    )


def _is_by_id(topic: MetadataRequestTopic) -> bool:
    return topic.name is None or topic.topic_id != ZERO_ID


def _response(services: Services, request: MetadataRequest) -> MetadataResponse:
    image = services.image
    response = MetadataResponse(
        cluster_id=image.cluster_id,
        controller_id=services.controller_id(),
        brokers=[
            MetadataResponseBroker(node_id=broker.id, host=broker.host, port=broker.port, rack=broker.rack)
            for _, broker in sorted(image.brokers.items())
            if not broker.fenced
        ],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = operations.ON_CLUSTER
    return response


def _missing(services: Services, request: MetadataRequest) -> dict[str, None]:
    """Names of topics that are asked for, not there, and to be created."""
    if not request.topics or not request.allow_auto_topic_creation:
        return {}
    known = services.image.topics
    missing = {
        topic.name: None
        for topic in request.topics
        if topic.name is not None and topic.topic_id == ZERO_ID and topic.name not in known
    }
    return missing if missing and services.configs.broker_flag("auto.create.topics.enable") else {}


async def _create_and_answer(
    services: Services, request: MetadataRequest, context: Context, missing: dict[str, None]
) -> MetadataResponse:
    failed = await services.topics.create_missing(missing)
    failures = {name: _UNDECIDED.get(error.code, error.code) for name, error in failed.items()}
    return _answer(services, request, context, failures)


def _answer(
    services: Services, request: MetadataRequest, context: Context, failures: dict[str, ErrorCode]
) -> MetadataResponse:
    response = _response(services, request)
    form = context.version, request.include_topic_authorized_operations
    gone = gone_brokers(services)
    topics: list[MetadataResponseTopic | bytes]
    if request.topics is None or (context.version == 0 and not request.topics):
        topics = [_encoded(services, topic, form, gone) for _, topic in sorted(services.image.topics.items())]
    else:
        topics = [_wanted_topic(services, wanted, form, gone, failures) for wanted in request.topics]
    response.topics = cast(list[MetadataResponseTopic], topics)  # the codec takes what it has encoded before as well
    return response


def _wanted_topic(
    services: Services,
    wanted: MetadataRequestTopic,
    form: Form,
    gone: Collection[int],
    failures: dict[str, ErrorCode],
) -> MetadataResponseTopic | bytes:
    image = services.image
    if wanted.topic_id != ZERO_ID:
        topic = image.topics_by_id.get(wanted.topic_id)
        code = ErrorCode.UNKNOWN_TOPIC_ID
    elif wanted.name is None:
        topic, code = None, ErrorCode.INVALID_REQUEST
    else:
        topic = image.topics.get(wanted.name)
        code = failures.get(wanted.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if name_fault(wanted.name) is not None:
            code = ErrorCode.INVALID_TOPIC_EXCEPTION
    if topic is not None:
        return _encoded(services, topic, form, gone)
    return MetadataResponseTopic(name=wanted.name, topic_id=wanted.topic_id, error_code=code)


def _encoded(
    services: Services, topic: Topic, form: Form, gone: Collection[int]
) -> MetadataResponseTopic | bytes:
    version, tells_operations = form
    if gone and any(partition.leader in gone for partition in topic.partitions):
        return topic_answer(services.image, topic, tells_operations, gone)  # not kept: it is for a moment

    def encode() -> bytes:
        return encode_element(MetadataResponse, topic_answer(services.image, topic, tells_operations), version)

    return services.topic_bytes.get(topic.id, form, encode)


def topic_answer(
    image: Image, topic: Topic, tells_operations: bool, gone: Collection[int] = ()
) -> MetadataResponseTopic:
    brokers = image.brokers
    answer = MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.internal,
        partitions=[
            MetadataResponsePartition(
                error_code=error,
                partition_index=index,
                leader_id=leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                offline_replicas=[
                    replica for replica in partition.replicas if replica not in brokers or brokers[replica].fenced
                ],
            )
            for index, partition in enumerate(topic.partitions)
            for leader, error in [named_leader(partition, gone)]
        ],
    )
    if tells_operations:
        answer.topic_authorized_operations = operations.ON_TOPIC
    return answer
