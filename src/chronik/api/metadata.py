"""Metadata: brokers, topics and leaders, as this node's image has them.

Asking for an unknown topic creates it, where client and broker allow it; the answer then already has it, so that no
client has to ask twice. From version 12 on topics may be asked for by id; 10 and 11 have the field and refuse its use.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Generator, Mapping
from typing import Final

from chronik.api.shared.context import Context, Services
from chronik.api.shared.leaders import (
    controller_for,
    gone_brokers,
    named_leader,
    offline_replicas,
    places,
    without_listener,
)
from chronik.api.shared.long_answers import Elements, once
from chronik.api.shared.rights import may_do, may_with_cluster, operations_on, operations_on_cluster
from chronik.api.shared.topic_bytes import Form
from chronik.exchange import Disconnect, Reply
from chronik.ids import ZERO_ID
from chronik.metadata.image import Image
from chronik.metadata.names import name_fault
from chronik.metadata.records import Broker, Topic
from chronik.protocol.codec import encode_element
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.failures import failed
from chronik.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from chronik.protocol.permissions import ALL_ON_TOPIC, Operation, ResourceType
from chronik.scheduler import run_in_slices

logger = logging.getLogger("chronik.api")

FIRST_VERSION_BY_ID = 12
FIRST_VERSION_WITH_LISTENER_NOT_FOUND = 6

LEFT_ALONE_SECONDS = 11.0
"""A client that comes to a fenced node is left alone for so long: perhaps no other node is better off. The more often
clients had to connect of late, the longer they wait before they do it again; librdkafka forgets that after 10 s."""
ATTEMPTS_MAX: Final = 3
"""Attempts to show brokers and topics as of one moment, while both change."""


_UNDECIDED = dict.fromkeys((ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT), ErrorCode.LEADER_NOT_AVAILABLE)
"""Every client takes this for "ask again"; in a Metadata response, not every client takes the others so."""


def handle(services: Services, request: MetadataRequest, context: Context) -> Reply[MetadataResponse]:
    """Answer within the same event-loop iteration, unless topics are to be created or are very many."""
    if context.version < FIRST_VERSION_BY_ID and any(_is_by_id(topic) for topic in request.topics or ()):
        return Reply.of(failed(MetadataResponse, request, ErrorCode.INVALID_REQUEST))
    if context.may_be_behind:
        _send_away(services, request, context)
        return Reply.of_steps(_answer_of_the_past(services, request, context))
    context.peer.was_answered, context.peer.was_sent_away = True, False
    missing = _missing(services, request)
    failures = {} if services.authorizer is None else _not_to_create(services, context, missing)
    missing = {name: None for name in missing if name not in failures}
    if not missing:
        return Reply.of_steps(_answer(services, request, context, failures))
    if services.is_fenced():  # creating them would be waited for in vain
        failures |= dict.fromkeys(missing, ErrorCode.LEADER_NOT_AVAILABLE)
        return Reply.of_steps(_answer(services, request, context, failures))
    return Reply.of_coroutine(_create_and_answer(services, request, context, missing, failures))


def _is_by_id(topic: MetadataRequestTopic) -> bool:
    return topic.name is None or topic.topic_id != ZERO_ID


def _send_away(services: Services, request: MetadataRequest, context: Context) -> None:
    """Raise Disconnect the second time that a connection asks a fenced node: librdkafka asks no other node as long as
    it has one connection that works, and may have no other. A client of longer standing that asks for a topic which is
    not in the image is disconnected the first time: the topic may be new, and any answer would make librdkafka report
    it as unknown and drop it from its subscription."""
    if services.is_fenced():
        peer = context.peer
        is_new = not peer.was_answered and services.clock.monotonic() - peer.connected_at <= LEFT_ALONE_SECONDS
        if not is_new and (peer.was_sent_away or not _knows_all(services.image, request)):
            raise Disconnect("this node is cut off, and the client was told whom to ask instead")
        peer.was_sent_away = True


def _knows_all(image: Image, request: MetadataRequest) -> bool:
    return all(_known(image, topic) is not None for topic in request.topics or ())


def _known(image: Image, wanted: MetadataRequestTopic) -> Topic | None:
    if wanted.topic_id != ZERO_ID:
        return image.topics_by_id.get(wanted.topic_id)
    return None if wanted.name is None else image.topics.get(wanted.name)


def _answer_of_the_past(
    services: Services, request: MetadataRequest, context: Context
) -> Generator[None, None, MetadataResponse]:
    """Answer from an image that may be outdated: brokers, for clients to ask another one, and topics with their
    partitions, but without leaders. Clients drop topics that are missing, or have an error, from their subscriptions;
    a partition without a leader makes them ask again. A topic that is not in the image may be new: its error is
    LEADER_NOT_AVAILABLE, which does not say that it does not exist."""
    form = context.version, request.include_topic_authorized_operations, context.listener
    topics = Elements(MetadataResponse, context.version)
    are_all_wanted, named = _named(services, request, context.version)
    may_see = may_do(services, context, Operation.DESCRIBE, ResourceType.TOPIC, audited=not are_all_wanted)
    for wanted in named:
        yield
        code = ErrorCode.LEADER_NOT_AVAILABLE
        name = _name_of(services.image, wanted)
        if name is not None and not may_see(name):
            if are_all_wanted:
                continue
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        topic = _known(services.image, wanted) if code is ErrorCode.LEADER_NOT_AVAILABLE else None
        try:
            if topic is not None:
                found = topic_answer(services.image, topic, form, gone=services.image.brokers)
                if form[1] and services.authorizer is not None:
                    found.topic_authorized_operations = operations_on(services, context, ResourceType.TOPIC, topic.name)
                topics.add(found)
        except KafkaError as error:
            topic, code = None, error.code
        if topic is None:
            topics.refuse(MetadataResponseTopic(name=wanted.name, topic_id=wanted.topic_id, error_code=code))
    response = _response(services, request, context)
    response.topics = topics.as_array_of(MetadataResponseTopic)
    if not response.brokers:
        response.brokers = _brokers(services.image.brokers, context.listener)
    return response


def _response(services: Services, request: MetadataRequest, context: Context) -> MetadataResponse:
    image, listener = services.image, context.listener
    response = MetadataResponse(
        cluster_id=image.cluster_id,
        controller_id=controller_for(services, listener),
        brokers=_brokers({key: broker for key, broker in image.brokers.items() if not broker.fenced}, listener),
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = operations_on_cluster(services, context)
    return response


def _brokers(brokers: Mapping[int, Broker], listener: str) -> list[MetadataResponseBroker]:
    return [
        MetadataResponseBroker(node_id=broker.id, host=place.host, port=place.port, rack=broker.rack)
        for broker, place in places(brokers, brokers, listener)
    ]


def _missing(services: Services, request: MetadataRequest) -> dict[str, None]:
    """Returns the names of topics that are asked for, do not exist, and are to be created."""
    if not request.topics or not request.allow_auto_topic_creation:
        return {}
    known = services.image.topics
    missing = {
        topic.name: None
        for topic in request.topics
        if topic.name is not None and topic.topic_id == ZERO_ID and topic.name not in known
    }
    return missing if missing and services.configs.broker_flag("auto.create.topics.enable") else {}


def _not_to_create(services: Services, context: Context, missing: dict[str, None]) -> dict[str, ErrorCode]:
    """Returns those that whoever asks may not create, or even describe."""
    may_see = may_do(services, context, Operation.DESCRIBE, ResourceType.TOPIC, audited=False)
    may_create = may_do(services, context, Operation.CREATE, ResourceType.TOPIC)
    may_create_any = not missing or may_with_cluster(services, context, Operation.CREATE, audited=False)
    refused = [name for name in missing if not may_see(name) or not (may_create_any or may_create(name))]
    return dict.fromkeys(refused, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


async def _create_and_answer(
    services: Services,
    request: MetadataRequest,
    context: Context,
    missing: dict[str, None],
    refused: dict[str, ErrorCode],
) -> MetadataResponse:
    if context.usage is not None:
        context.usage.mutated(len(missing) * services.configs.broker_int("num.partitions"), strict=False)
    failed = await services.topics.create_missing(missing)
    _tell(context, [name for name in missing if name not in failed], len(failed))
    failures = refused | {name: _UNDECIDED.get(error.code, error.code) for name, error in failed.items()}
    return await run_in_slices(_answer(services, request, context, failures))


def _tell(context: Context, created: list[str], failures: int) -> None:
    """The audit log is told here, since an answer does not say which of its topics are new."""
    if created:
        from chronik.security import audit  # a node starts without

        audit.changed(context.peer, context.api, created, len(created), failures)


def _answer(
    services: Services, request: MetadataRequest, context: Context, failures: dict[str, ErrorCode]
) -> Generator[None, None, MetadataResponse]:
    for _ in range(ATTEMPTS_MAX):
        brokers = dict(services.image.brokers)
        topics = yield from _topics(services, request, context, failures)
        if services.image.brokers == brokers:
            break  # otherwise topics may name leaders that are not among the brokers
    response = _response(services, request, context)
    response.topics = topics.as_array_of(MetadataResponseTopic)
    told = "Metadata v%d for %s: brokers=%d registered=%d topics=%d"
    known = len(services.image.brokers)
    logger.debug(told, context.version, context.client_id, len(response.brokers), known, len(response.topics))
    return response


def _topics(
    services: Services, request: MetadataRequest, context: Context, failures: dict[str, ErrorCode]
) -> Generator[None, None, Elements]:
    form = context.version, request.include_topic_authorized_operations, context.listener
    gone = gone_brokers(services)
    topics = Elements(MetadataResponse, context.version)
    are_all_wanted, named = _named(services, request, context.version)
    may_see = may_do(services, context, Operation.DESCRIBE, ResourceType.TOPIC, audited=not are_all_wanted)
    for number, wanted in enumerate(named):
        if number:  # one topic is answered at once, however long it takes
            yield
        if are_all_wanted and wanted.name not in services.image.topics:
            continue  # deleted since
        name = _name_of(services.image, wanted)
        if name is not None and not may_see(name):
            if not are_all_wanted:
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                topics.refuse(MetadataResponseTopic(name=wanted.name, topic_id=wanted.topic_id, error_code=code))
            continue
        found = _wanted_topic(services, wanted, form, gone, failures)
        if form[1] and services.authorizer is not None and isinstance(found, MetadataResponseTopic) and name:
            found.topic_authorized_operations = operations_on(services, context, ResourceType.TOPIC, name)
        try:
            if isinstance(found, MetadataResponseTopic) and found.error_code:
                topics.refuse(found)
            else:
                topics.add(found)
        except KafkaError as error:
            topics.refuse(MetadataResponseTopic(name=wanted.name, topic_id=wanted.topic_id, error_code=error.code))
    return topics


def _named(services: Services, request: MetadataRequest, version: int) -> tuple[bool, list[MetadataRequestTopic]]:
    """Returns whether all topics are asked for, and each wanted one once."""
    if request.topics is None or (version == 0 and not request.topics):
        return True, [MetadataRequestTopic(name=name) for name in sorted(services.image.topics)]
    if len(request.topics) < 2:
        return False, request.topics
    return False, once(request.topics, lambda topic: topic.name if topic.topic_id == ZERO_ID else topic.topic_id)


def _name_of(image: Image, wanted: MetadataRequestTopic) -> str | None:
    """Returns None for an id that nobody knows."""
    if wanted.topic_id == ZERO_ID:
        return wanted.name
    topic = image.topics_by_id.get(wanted.topic_id)
    return None if topic is None else topic.name


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


def _encoded(services: Services, topic: Topic, form: Form, gone: Collection[int]) -> MetadataResponseTopic | bytes:
    # What holds for a moment is not kept, nor what holds for one client.
    is_for_one = form[1] and services.authorizer is not None
    if is_for_one or (gone and any(partition.leader in gone for partition in topic.partitions)):
        return topic_answer(services.image, topic, form, gone)

    def encode() -> bytes:
        return encode_element(MetadataResponse, topic_answer(services.image, topic, form), form[0])

    return services.topic_bytes.get(topic.id, form, encode)


def topic_answer(image: Image, topic: Topic, form: Form, gone: Collection[int] = ()) -> MetadataResponseTopic:
    version, tells_operations, listener = form
    brokers = image.brokers
    apart = without_listener(brokers, listener)
    if version < FIRST_VERSION_WITH_LISTENER_NOT_FOUND:
        gone = [*gone, *apart]  # as Kafka tells older clients
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
                offline_replicas=offline_replicas(partition, brokers, apart),
            )
            for index, partition in enumerate(topic.partitions)
            for leader, error in [named_leader(partition, gone, apart)]
        ],
    )
    if tells_operations:
        answer.topic_authorized_operations = ALL_ON_TOPIC
    return answer
