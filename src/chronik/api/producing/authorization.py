"""Authorization of producers.

Permissions are checked for each batch: decompressing one in a thread takes time, and permissions may change meanwhile.
"""

from __future__ import annotations

from chronik.api.producing.response_details import FIRST_VERSION_WITH_TOPIC_IDS
from chronik.api.shared.authorization import NamePredicate, authorization_check, is_authorized_on_cluster
from chronik.api.shared.context import RequestContext, Services
from chronik.broker.replica import Replica
from chronik.protocol.batch import is_transactional
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.produce import ProduceRequest, TopicProduceData
from chronik.protocol.permissions import AclOperation, AclResourceType

INTERNAL_TOPICS_CLIENT = "__admin_client"
"""Client id with which Kafka's tools write to internal topics.

Every client can use it. With an authorizer, writing to internal topics needs the CLUSTER_ACTION permission instead.
"""


def is_transaction_authorized(services: Services, request: ProduceRequest, context: RequestContext) -> bool:
    """Return whether the client may use the request's transactional id, if it contains transactional batches."""
    if services.authorizer is None:
        return True
    for topic in request.topic_data:
        for partition in topic.partition_data:
            if partition.records is not None and is_transactional(partition.records):
                may_write_topic = authorization_check(
                    services, context, AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID
                )
                return request.transactional_id is not None and may_write_topic(request.transactional_id)
    return True


def topic_write_check(services: Services, context: RequestContext) -> NamePredicate | None:
    """Return the predicate that authorizes writing to a topic, or None without an authorizer."""
    if services.authorizer is None:
        return None
    return authorization_check(services, context, AclOperation.WRITE, AclResourceType.TOPIC)


def find_writable_replica(
    services: Services,
    context: RequestContext,
    topic: TopicProduceData,
    index: int,
    may_write_topic: NamePredicate | None,
) -> Replica:
    """Return the replica to append to.

    Raises:
        KafkaError: The topic does not exist, is internal, or the client may not write to it. Authorization comes
            first, so that only authorized clients learn whether a topic exists.
    """
    by_id = context.version >= FIRST_VERSION_WITH_TOPIC_IDS
    if may_write_topic is not None:
        known = services.image.topics_by_id.get(topic.topic_id) if by_id else None
        name = topic.name if not by_id else None if known is None else known.name
        if name is not None and not may_write_topic(name):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    replicas = services.replicas
    replica = replicas.get_leader_by_id(topic.topic_id, index) if by_id else replicas.get_leader(topic.name, index)
    if services.image.topics_by_id[replica.topic_id].internal and not _may_write_internal(services, context):
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{replica.topic_name} is an internal topic")
    return replica


def _may_write_internal(services: Services, context: RequestContext) -> bool:
    if services.authorizer is None:
        return context.client_id == INTERNAL_TOPICS_CLIENT
    return is_authorized_on_cluster(services, context, AclOperation.CLUSTER_ACTION)
