"""What a producer may write to. It is looked at for each batch: what is opened aside may take a while."""

from __future__ import annotations

from chronik.api.producing.answers import FIRST_VERSION_WITH_TOPIC_IDS
from chronik.api.shared.context import Context, Services
from chronik.api.shared.rights import Judge, may_do, may_with_cluster
from chronik.broker.replica import Replica
from chronik.protocol.batch import is_transactional
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.produce import ProduceRequest, TopicProduceData
from chronik.protocol.permissions import Operation, ResourceType

INTERNAL_TOPICS_CLIENT = "__admin_client"
"""With this client id Kafka's own tools say that they mean to write to internal topics. Anybody can say so: where there
is an authorizer, it takes the right to act as the cluster."""


def may_begin(services: Services, request: ProduceRequest, context: Context) -> bool:
    """Whether a request may write what belongs to transactions, if it has any of it."""
    if services.authorizer is None:
        return True
    for topic in request.topic_data:
        for partition in topic.partition_data:
            if partition.records is not None and is_transactional(partition.records):
                is_allowed = may_do(services, context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID)
                return request.transactional_id is not None and is_allowed(request.transactional_id)
    return True


def may_write(services: Services, context: Context) -> Judge | None:
    """Returns None when there is nobody to ask."""
    if services.authorizer is None:
        return None
    return may_do(services, context, Operation.WRITE, ResourceType.TOPIC)


def replica_to_write(
    services: Services, context: Context, topic: TopicProduceData, index: int, is_allowed: Judge | None
) -> Replica:
    """Raises KafkaError. Whether a topic exists is told only to those who may write to it."""
    by_id = context.version >= FIRST_VERSION_WITH_TOPIC_IDS
    if is_allowed is not None:
        known = services.image.topics_by_id.get(topic.topic_id) if by_id else None
        name = topic.name if not by_id else None if known is None else known.name
        if name is not None and not is_allowed(name):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    replicas = services.replicas
    replica = replicas.by_id(topic.topic_id, index) if by_id else replicas.by_name(topic.name, index)
    if services.image.topics_by_id[replica.topic_id].internal and not _may_write_internal(services, context):
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{replica.topic_name} is an internal topic")
    return replica


def _may_write_internal(services: Services, context: Context) -> bool:
    if services.authorizer is None:
        return context.client_id == INTERNAL_TOPICS_CLIENT
    return may_with_cluster(services, context, Operation.CLUSTER_ACTION)
