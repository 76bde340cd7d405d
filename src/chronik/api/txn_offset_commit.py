"""TxnOffsetCommit (API key 28): stages offsets of a group that take effect when the transaction commits.

The group's coordinator keeps them until then. A fenced producer gets INVALID_PRODUCER_EPOCH in every version, as in
Kafka.
"""

from __future__ import annotations

from chronik.api.shared.authorization import build_authorization_predicate, find_txn_offsets_authorization_error
from chronik.api.shared.context import RequestContext, Services
from chronik.api.shared.offset_commits import ensure_offsets_topic, select_known_offsets
from chronik.api.shared.transactions import ErrorVersions, find_open_transaction, find_transaction_request_error
from chronik.metadata.commands.groups import OffsetToCommit
from chronik.protocol.apis import LAST_VERSION
from chronik.protocol.error_responses import build_error_response
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from chronik.protocol.permissions import AclOperation, AclResourceType

ERROR_VERSIONS = ErrorVersions(producer_fenced=LAST_VERSION, transaction_abortable=4)
FIRST_VERSION_WITH_LOADING = 2
"""First TxnOffsetCommit version whose clients handle COORDINATOR_LOAD_IN_PROGRESS.

Older Java clients crash (KAFKA-7296).
"""
FIRST_VERSION_OF_TRANSACTIONS_V2 = 5

TXN_COORDINATOR_ERRORS = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
"""Error codes of the transaction coordinator that a TxnOffsetCommit response must not contain.

Clients would search for a new group coordinator.
"""


async def handle(
    services: Services, request: TxnOffsetCommitRequest, context: RequestContext
) -> TxnOffsetCommitResponse:
    refused = find_txn_offsets_authorization_error(services, context, request.transactional_id, request.group_id)
    refused = refused or find_transaction_request_error(services.image, request.transactional_id)
    if refused is None and not request.group_id:
        refused = ErrorCode.INVALID_GROUP_ID
    if refused is not None:
        return build_error_response(TxnOffsetCommitResponse, request, refused)
    may_read = build_authorization_predicate(services, context, AclOperation.READ, AclResourceType.TOPIC)
    unauthorized = {topic.name for topic in request.topics if not may_read(topic.name)}
    topics = [
        (None if topic.name in unauthorized else services.image.topics.get(topic.name), topic.partitions)
        for topic in request.topics
    ]
    known = await select_known_offsets(topics)
    try:
        codes = await _stage_offsets(services, request, list(known.values()), context.version)
    except KafkaError as error:
        codes = [error.code] * len(known)
    await ensure_offsets_topic(services, codes)
    translated_codes = {
        key: _translate_error_code(code, context.version) for key, code in zip(known, codes, strict=True)
    }
    return _build_response(request, translated_codes, unauthorized)


async def _stage_offsets(
    services: Services, request: TxnOffsetCommitRequest, offsets: list[OffsetToCommit], version: int
) -> list[ErrorCode]:
    """Stage offsets to be committed with the transaction, and return an error code for each offset.

    Raise KafkaError if the transaction is not open.
    """
    producer = request.transactional_id, request.producer_id, request.producer_epoch
    if version >= FIRST_VERSION_OF_TRANSACTIONS_V2:
        code = await services.transaction_joiner.join(*producer, groups=(request.group_id,))
        if code is not ErrorCode.NONE:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if code in TXN_COORDINATOR_ERRORS else code)
    transaction = await find_open_transaction(services, *producer, request.group_id)
    codes = await services.groups.offsets.stage(
        request.group_id,
        request.transactional_id,
        transaction.began_index,
        offsets,
        request.generation_id,
        request.member_id,
        request.group_instance_id,
    )
    if ErrorCode.INVALID_TXN_STATE in codes:
        # That transaction has ended. If the producer is in its next one, with the same epoch, the image was stale: the
        # client retries, and a request that was delayed for long has no effect.
        current = await find_open_transaction(services, *producer, request.group_id)
        if current.began_index != transaction.began_index:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return codes


def _translate_error_code(code: ErrorCode, version: int) -> ErrorCode:
    """Return the equivalent of an error code that clients of this TxnOffsetCommit version support."""
    if code is ErrorCode.GROUP_ID_NOT_FOUND:
        return ErrorCode.ILLEGAL_GENERATION
    if code is ErrorCode.NOT_ENOUGH_REPLICAS:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < FIRST_VERSION_WITH_LOADING:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code is ErrorCode.INVALID_TXN_STATE and version >= ERROR_VERSIONS.transaction_abortable:
        return ErrorCode.TRANSACTION_ABORTABLE  # the client can continue; INVALID_TXN_STATE would be fatal
    return ERROR_VERSIONS.translate(code, version)


def _build_response(
    request: TxnOffsetCommitRequest, codes: dict[tuple[str, int], ErrorCode], unauthorized: set[str]
) -> TxnOffsetCommitResponse:
    missing = dict.fromkeys(unauthorized, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=codes.get((topic.name, partition.partition_index), missing.get(topic.name, unknown)),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
