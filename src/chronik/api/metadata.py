"""Metadata (API key 3): returns brokers, topics and partition leaders from this node's image.

An unknown topic is auto-created if the client and the broker allow it; the same response already contains it. From
version 12 on, topics may be requested by id; versions 10 and 11 have the field but reject it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Generator, Mapping
from typing import Final

from chronik.api.shared.authorization import (
    authorized_cluster_operations,
    authorized_operations,
    build_authorization_predicate,
    is_authorized_on_cluster,
)
from chronik.api.shared.context import RequestContext, Services
from chronik.api.shared.encoded_topic_cache import EncodingKey
from chronik.api.shared.leaders import (
    iter_broker_endpoints,
    list_brokers_without_listener,
    list_unreachable_brokers,
    offline_replicas,
    select_advertised_controller,
    select_advertised_leader,
)
from chronik.api.shared.long_responses import ResponseElements, deduplicate
from chronik.ids import ZERO_ID
from chronik.log.leader_epochs import NO_EPOCH
from chronik.metadata.image import Image
from chronik.metadata.names import find_topic_name_error
from chronik.metadata.records import Broker, Topic
from chronik.protocol.codec import encode_element
from chronik.protocol.error_responses import build_error_response
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from chronik.protocol.permissions import TOPIC_OPERATION_BITS, AclOperation, AclResourceType
from chronik.request_reply import Disconnect, Reply
from chronik.scheduler import run_in_slices

logger = logging.getLogger("chronik.api")

FIRST_VERSION_BY_ID = 12
FIRST_VERSION_WITH_LISTENER_NOT_FOUND = 6

DISCONNECT_GRACE_SECONDS = 11.0
"""Time in seconds for which a fenced node keeps a new client connection instead of closing it.

Clients increase their reconnect backoff with each reconnect; librdkafka resets it after 10 s.
"""
REFERRAL_SECONDS = 3.0
"""Time in seconds after its lease expired for which a fenced node disconnects even new clients.

The other nodes have probably elected new leaders. librdkafka reconnects to the node that disconnected it as well as to
another one, and keeps asking whichever responds first. Its reconnect backoff stays below two seconds in this time.
"""
ATTEMPTS_MAX: Final = 3
"""Maximum number of attempts to build a Metadata response with consistent brokers and topics."""


_RETRIABLE_ERRORS = dict.fromkeys(
    (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT), ErrorCode.LEADER_NOT_AVAILABLE
)
"""Error codes that a Metadata response replaces by LEADER_NOT_AVAILABLE.

It is the only error after which every client retries.
"""


def handle(services: Services, request: MetadataRequest, context: RequestContext) -> Reply[MetadataResponse]:
    """Handle a Metadata request: return the brokers and topics of the cluster, creating topics if requested."""
    if context.version < FIRST_VERSION_BY_ID and any(_has_topic_id(topic) for topic in request.topics or ()):
        return Reply.from_response(build_error_response(MetadataResponse, request, ErrorCode.INVALID_REQUEST))
    if context.may_be_stale:
        _disconnect_from_fenced_node(services, request, context)
        return Reply.from_steps(_build_stale_response(services, request, context))
    context.peer.has_current_metadata, context.peer.was_redirected = True, False
    missing = _find_topics_to_create(services, request)
    failures = {} if services.authorizer is None else _find_creation_errors(services, context, missing)
    missing = {name: None for name in missing if name not in failures}
    if not missing:
        return Reply.from_steps(_build_current_response(services, request, context, failures))
    if services.is_fenced():  # a fenced node cannot create topics
        failures |= dict.fromkeys(missing, ErrorCode.LEADER_NOT_AVAILABLE)
        return Reply.from_steps(_build_current_response(services, request, context, failures))
    return Reply.from_coroutine(_create_topics_and_respond(services, request, context, missing, failures))


def _has_topic_id(topic: MetadataRequestTopic) -> bool:
    return topic.name is None or topic.topic_id != ZERO_ID


def _disconnect_from_fenced_node(services: Services, request: MetadataRequest, context: RequestContext) -> None:
    """Raise Disconnect on the second Metadata request of a connection to a fenced node.

    librdkafka does not try another node as long as it has a working connection. A client that has been connected for
    some time and requests a topic that is not in the image is disconnected at the first request: the topic may be new,
    and any response would make librdkafka report it as unknown and drop it from the subscription.
    """
    if services.is_fenced():
        peer = context.peer
        connected_seconds = services.clock.monotonic() - peer.connected_at
        fenced_seconds = services.lease_expired_seconds()
        is_new = (
            not peer.has_current_metadata
            and connected_seconds <= min(fenced_seconds, DISCONNECT_GRACE_SECONDS)
            and fenced_seconds > REFERRAL_SECONDS
        )
        if not is_new and (peer.was_redirected or not _has_all_requested_topics(services.image, request)):
            raise Disconnect("this node is fenced; the client was referred to other brokers and must reconnect")
        peer.was_redirected = True


def _has_all_requested_topics(image: Image, request: MetadataRequest) -> bool:
    return all(_find_topic(image, topic) is not None for topic in request.topics or ())


def _find_topic(image: Image, wanted: MetadataRequestTopic) -> Topic | None:
    if wanted.topic_id != ZERO_ID:
        return image.topics_by_id.get(wanted.topic_id)
    return None if wanted.name is None else image.topics.get(wanted.name)


def _build_stale_response(
    services: Services, request: MetadataRequest, context: RequestContext
) -> Generator[None, None, MetadataResponse]:
    """Build a Metadata response from a metadata image that may be stale, with partitions without leaders.

    Clients drop topics that are missing or have an error from their subscription, whereas a partition without a leader
    makes them retry. A topic that is not in the image may be new, so its error is LEADER_NOT_AVAILABLE.

    A node that has had no lease since its start omits the leader epochs: until then, its image may lack changes that
    it had applied before, because the commit index on disk lags behind, and epochs must not decrease.
    """
    has_had_lease = services.lease_expired_seconds() < math.inf
    form = context.version, request.include_topic_authorized_operations, context.listener
    topics = ResponseElements(MetadataResponse, context.version)
    is_all_topics, named = _list_requested_topics(services, request, context.version)
    may_see = build_authorization_predicate(
        services, context, AclOperation.DESCRIBE, AclResourceType.TOPIC, audited=not is_all_topics
    )
    for wanted in named:
        yield
        code = ErrorCode.LEADER_NOT_AVAILABLE
        name = _find_topic_name(services.image, wanted)
        if name is not None and not may_see(name):
            if is_all_topics:
                continue
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        topic = _find_topic(services.image, wanted) if code is ErrorCode.LEADER_NOT_AVAILABLE else None
        try:
            if topic is not None:
                found = build_topic(services.image, topic, form, unreachable=services.image.brokers)
                if not has_had_lease:
                    for partition in found.partitions:
                        partition.leader_epoch = NO_EPOCH
                if form[1] and services.authorizer is not None:
                    found.topic_authorized_operations = authorized_operations(
                        services, context, AclResourceType.TOPIC, topic.name
                    )
                topics.add(found)
        except KafkaError as error:
            topic, code = None, error.code
        if topic is None:
            topics.add_error(MetadataResponseTopic(name=wanted.name, topic_id=wanted.topic_id, error_code=code))
    response = _build_response(services, request, context)
    response.topics = topics.to_list(MetadataResponseTopic)
    if not response.brokers:
        response.brokers = _encode_brokers(services.image.brokers, context.listener)
    return response


def _build_response(services: Services, request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    image, listener = services.image, context.listener
    response = MetadataResponse(
        cluster_id=image.cluster_id,
        controller_id=select_advertised_controller(services, listener),
        brokers=_encode_brokers(
            {key: broker for key, broker in image.brokers.items() if not broker.is_fenced}, listener
        ),
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = authorized_cluster_operations(services, context)
    return response


def _encode_brokers(brokers: Mapping[int, Broker], listener: str) -> list[MetadataResponseBroker]:
    return [
        MetadataResponseBroker(node_id=broker.id, host=place.host, port=place.port, rack=broker.rack)
        for broker, place in iter_broker_endpoints(brokers, brokers, listener)
    ]


def _find_topics_to_create(services: Services, request: MetadataRequest) -> dict[str, None]:
    """Return the names of requested topics that do not exist and can be auto-created."""
    if not request.topics or not request.allow_auto_topic_creation:
        return {}
    known = services.image.topics
    missing = {
        topic.name: None
        for topic in request.topics
        if topic.name is not None and topic.topic_id == ZERO_ID and topic.name not in known
    }
    return missing if missing and services.configs.broker_flag("auto.create.topics.enable") else {}


def _find_creation_errors(
    services: Services, context: RequestContext, missing: dict[str, None]
) -> dict[str, ErrorCode]:
    """Return the authorization errors of topics that the client may not auto-create or describe."""
    may_see = build_authorization_predicate(
        services, context, AclOperation.DESCRIBE, AclResourceType.TOPIC, audited=False
    )
    may_create = build_authorization_predicate(services, context, AclOperation.CREATE, AclResourceType.TOPIC)
    may_create_any = not missing or is_authorized_on_cluster(services, context, AclOperation.CREATE, audited=False)
    refused = [name for name in missing if not may_see(name) or not (may_create_any or may_create(name))]
    return dict.fromkeys(refused, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


async def _create_topics_and_respond(
    services: Services,
    request: MetadataRequest,
    context: RequestContext,
    missing: dict[str, None],
    refused: dict[str, ErrorCode],
) -> MetadataResponse:
    if context.usage is not None:
        context.usage.charge_mutation(len(missing) * services.configs.broker_int("num.partitions"), strict=False)
    failed = await services.topics.create_missing_topics(missing)
    _audit_created_topics(context, [name for name in missing if name not in failed], len(failed))
    failures = refused | {name: _RETRIABLE_ERRORS.get(error.code, error.code) for name, error in failed.items()}
    return await run_in_slices(_build_current_response(services, request, context, failures))


def _audit_created_topics(context: RequestContext, created: list[str], failures: int) -> None:
    """Write auto-created topics to the audit log, because the response does not identify new topics."""
    if created:
        from chronik.security import audit  # imported late to keep the start of a node short

        audit.log_changes(context.peer, context.api_name, created, len(created), failures)


def _build_current_response(
    services: Services, request: MetadataRequest, context: RequestContext, failures: dict[str, ErrorCode]
) -> Generator[None, None, MetadataResponse]:
    for _ in range(ATTEMPTS_MAX):
        brokers = dict(services.image.brokers)
        topics = yield from _encode_topics(services, request, context, failures)
        if services.image.brokers == brokers:
            break  # otherwise topics might name leaders that are missing in the list of brokers
    response = _build_response(services, request, context)
    response.topics = topics.to_list(MetadataResponseTopic)
    message = "Metadata response built: version=%d client_id=%s brokers=%d registered=%d topics=%d"
    known = len(services.image.brokers)
    logger.debug(message, context.version, context.client_id, len(response.brokers), known, len(response.topics))
    return response


def _encode_topics(
    services: Services, request: MetadataRequest, context: RequestContext, failures: dict[str, ErrorCode]
) -> Generator[None, None, ResponseElements]:
    form = context.version, request.include_topic_authorized_operations, context.listener
    gone = list_unreachable_brokers(services)
    topics = ResponseElements(MetadataResponse, context.version)
    is_all_topics, named = _list_requested_topics(services, request, context.version)
    may_see = build_authorization_predicate(
        services, context, AclOperation.DESCRIBE, AclResourceType.TOPIC, audited=not is_all_topics
    )
    for number, wanted in enumerate(named):
        if number:  # a single topic is answered in the same event-loop iteration
            yield
        if is_all_topics and wanted.name not in services.image.topics:
            continue  # deleted in the meantime
        name = _find_topic_name(services.image, wanted)
        if name is not None and not may_see(name):
            if not is_all_topics:
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                topics.add_error(MetadataResponseTopic(name=wanted.name, topic_id=wanted.topic_id, error_code=code))
            continue
        found = _encode_requested_topic(services, wanted, form, gone, failures)
        if form[1] and services.authorizer is not None and isinstance(found, MetadataResponseTopic) and name:
            found.topic_authorized_operations = authorized_operations(services, context, AclResourceType.TOPIC, name)
        try:
            if isinstance(found, MetadataResponseTopic) and found.error_code:
                topics.add_error(found)
            else:
                topics.add(found)
        except KafkaError as error:
            topics.add_error(MetadataResponseTopic(name=wanted.name, topic_id=wanted.topic_id, error_code=error.code))
    return topics


def _list_requested_topics(
    services: Services, request: MetadataRequest, version: int
) -> tuple[bool, list[MetadataRequestTopic]]:
    """Return whether a Metadata request asks for all topics, and its topics without duplicates."""
    if request.topics is None or (version == 0 and not request.topics):
        return True, [MetadataRequestTopic(name=name) for name in sorted(services.image.topics)]
    if len(request.topics) < 2:
        return False, request.topics
    return False, deduplicate(request.topics, lambda topic: topic.name if topic.topic_id == ZERO_ID else topic.topic_id)


def _find_topic_name(image: Image, wanted: MetadataRequestTopic) -> str | None:
    """Return the requested topic's name, or None if the topic id in the request is unknown."""
    if wanted.topic_id == ZERO_ID:
        return wanted.name
    topic = image.topics_by_id.get(wanted.topic_id)
    return None if topic is None else topic.name


def _encode_requested_topic(
    services: Services,
    wanted: MetadataRequestTopic,
    form: EncodingKey,
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
        if find_topic_name_error(wanted.name) is not None:
            code = ErrorCode.INVALID_TOPIC_EXCEPTION
    if topic is not None:
        return _encode_cached_topic(services, topic, form, gone)
    return MetadataResponseTopic(name=wanted.name, topic_id=wanted.topic_id, error_code=code)


def _encode_cached_topic(
    services: Services, topic: Topic, form: EncodingKey, gone: Collection[int]
) -> MetadataResponseTopic | bytes:
    # Do not cache what depends on the client, or on a broker that is unreachable for the moment.
    is_client_specific = form[1] and services.authorizer is not None
    if is_client_specific or (gone and any(partition.leader in gone for partition in topic.partitions)):
        return build_topic(services.image, topic, form, gone)

    def encode() -> bytes:
        return encode_element(MetadataResponse, build_topic(services.image, topic, form), form[0])

    return services.encoded_topics.get(topic.id, form, encode)


def build_topic(
    image: Image, topic: Topic, form: EncodingKey, unreachable: Collection[int] = ()
) -> MetadataResponseTopic:
    """Build a topic's entry in a Metadata response.

    Partitions whose leader is in `unreachable` have no leader.
    """
    version, with_operations, listener = form
    brokers = image.brokers
    unlisted = list_brokers_without_listener(brokers, listener)
    if version < FIRST_VERSION_WITH_LISTENER_NOT_FOUND:
        unreachable = [*unreachable, *unlisted]  # older clients get LEADER_NOT_AVAILABLE, as in Kafka
    response_topic = MetadataResponseTopic(
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
                offline_replicas=offline_replicas(partition, brokers, unlisted),
            )
            for index, partition in enumerate(topic.partitions)
            for leader, error in [select_advertised_leader(partition, unreachable, unlisted)]
        ],
    )
    if with_operations:
        response_topic.topic_authorized_operations = TOPIC_OPERATION_BITS
    return response_topic
