"""AlterImport (Chronik API key 20004): starts an import, adds topics and groups to it, and finishes or aborts it."""

from __future__ import annotations

from chronik.admin.topic_import import (
    TopicToImport,
    check_import_source,
    check_imported_configs,
    check_imported_groups,
    import_topics,
)
from chronik.admin.topic_planner import TopicPlanner
from chronik.api.shared.context import RequestContext, Services
from chronik.clock import Clock
from chronik.configs.resolver import ConfigResolver
from chronik.metadata.commands.imports import (
    AbortImport,
    BeginImport,
    FinishImport,
    ImportedGroup,
    ImportedOffset,
    ImportGroups,
)
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.error_responses import build_error_fields
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.alter_import import (
    AlterImportRequest,
    AlterImportResponse,
    ImportAction,
    ImportConfig,
    ImportGroup,
    ImportTopic,
)


async def handle(services: Services, request: AlterImportRequest, context: RequestContext) -> AlterImportResponse:
    return await alter_import(services.store, services.topics.planner, services.configs, services.clock, request)


async def alter_import(
    store: MetadataStore, planner: TopicPlanner, configs: ConfigResolver, clock: Clock, request: AlterImportRequest
) -> AlterImportResponse:
    """Execute one action of an import, such as creating its topics, and return errors in the response."""
    try:
        match request.action:
            case ImportAction.BEGIN:
                return await _start_import(store, clock, request)
            case ImportAction.TOPICS:
                topics = [_decode_topic(each) for each in request.topics]
                return AlterImportResponse(index=await import_topics(store, planner, request.import_id, topics))
            case ImportAction.GROUPS:
                command = ImportGroups(
                    request.import_id, _decode_imported_groups(store, configs, request), clock.now_ms()
                )
                return AlterImportResponse(index=(await store.propose(command)).index)
            case ImportAction.FINISH:
                return AlterImportResponse(
                    index=(await store.propose(_build_finish_import_command(store, configs, clock, request))).index
                )
            case ImportAction.GIVE_UP:
                return await _abort_import(store, request)
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown import action {request.action}.")
    except KafkaError as error:
        return AlterImportResponse(**build_error_fields(error))


async def _start_import(store: MetadataStore, clock: Clock, request: AlterImportRequest) -> AlterImportResponse:
    check_import_source(request.source)
    command = BeginImport(request.import_id, request.source, request.topic_count, request.producer_ids, clock.now_ms())
    result = await store.propose(command)
    return AlterImportResponse(first_producer_id=result.value, index=result.index)


async def _abort_import(store: MetadataStore, request: AlterImportRequest) -> AlterImportResponse:
    while True:
        result = await store.propose(AbortImport(request.import_id))
        if not result.value:
            return AlterImportResponse(index=result.index)


def _decode_imported_groups(
    store: MetadataStore, configs: ConfigResolver, request: AlterImportRequest
) -> tuple[ImportedGroup, ...]:
    groups = tuple(map(_decode_group, request.groups))
    check_imported_groups(store.image, groups, configs.broker_int("offset.metadata.max.bytes"))
    return groups


def _build_finish_import_command(
    store: MetadataStore, configs: ConfigResolver, clock: Clock, request: AlterImportRequest
) -> FinishImport:
    groups = _decode_imported_groups(store, configs, request)
    group_configs = {each.group_id: _decode_imported_configs(each.configs) for each in request.group_configs}
    cluster_configs = _decode_imported_configs(request.cluster_configs)
    check_imported_configs(store.image, group_configs, cluster_configs)
    return FinishImport(request.import_id, groups, clock.now_ms(), group_configs, cluster_configs)


def _decode_topic(topic: ImportTopic) -> TopicToImport:
    return TopicToImport(
        topic.topic_id,
        topic.name,
        topic.created_ms,
        topic.replication_factor,
        tuple(topic.leader_epochs),
        _decode_imported_configs(topic.configs),
    )


def _decode_group(group: ImportGroup) -> ImportedGroup:
    offsets = tuple(
        ImportedOffset(
            each.topic,
            each.partition,
            each.offset,
            each.leader_epoch,
            each.metadata,
            each.commit_time_ms,
            each.expire_time_ms,
        )
        for each in group.offsets
    )
    return ImportedGroup(group.group_id, group.protocol_type, offsets)


def _decode_imported_configs(configs: list[ImportConfig]) -> dict[str, str]:
    return {each.name: each.value for each in configs}
