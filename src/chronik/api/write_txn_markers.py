"""WriteTxnMarkers (API key 27): aborts hanging transactions for Kafka's tool, which sends it to partition leaders.

Chronik's coordinators do not use this API. A request therefore comes from a client: it cannot commit
(CLUSTER_AUTHORIZATION_FAILED, as for clients in Kafka) and cannot abort a transaction that a coordinator knows as open
(INVALID_TXN_STATE).
"""

from __future__ import annotations

import asyncio

from chronik.admin.hanging_transactions import abort_hanging_transaction
from chronik.admin.partitions import TopicPartitionName
from chronik.api.shared.authorization import require_cluster_permission
from chronik.api.shared.context import RequestContext, Services
from chronik.metadata.chunking import iter_chunks
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from chronik.protocol.permissions import AclOperation


async def handle(
    services: Services, request: WriteTxnMarkersRequest, context: RequestContext
) -> WriteTxnMarkersResponse:
    require_cluster_permission(services, context, AclOperation.ALTER, AclOperation.CLUSTER_ACTION)
    response = WriteTxnMarkersResponse()
    for marker in request.markers:
        result = WritableTxnMarkerResult(producer_id=marker.producer_id)
        response.markers.append(result)
        for topic in marker.topics:
            topic_result = WritableTxnMarkerTopicResult(name=topic.name)
            result.topics.append(topic_result)
            for chunk in iter_chunks(topic.partition_indexes):
                topic_result.partitions += await asyncio.gather(
                    *(_write_transaction_marker(services, marker, topic.name, each) for each in chunk)
                )
    return response


async def _write_transaction_marker(
    services: Services, marker: WritableTxnMarker, topic: str, index: int
) -> WritableTxnMarkerPartitionResult:
    result = WritableTxnMarkerPartitionResult(partition_index=index)
    if marker.transaction_result:
        result.error_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return result
    try:
        await abort_hanging_transaction(
            services.store,
            services.replicas,
            TopicPartitionName(topic, index),
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            services.clock.now_ms(),
        )
    except KafkaError as error:
        result.error_code = error.code
    return result
