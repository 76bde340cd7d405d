"""Audit log of administrative requests: one line for each request that changed anything, with the changed objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum
from functools import partial
from typing import Any, Final

from chronik.api.shared.context import RequestContext, Services
from chronik.protocol.errors import ErrorCode
from chronik.protocol.schema import Response
from chronik.request_reply import Reply

ChangeOutcomes = Iterable[tuple[Callable[[], str], int]]
"""The objects that a request changed: for each, a function that describes it, and its error code.

Only descriptions of logged objects are built.

Only descriptions of logged objects are built.
"""

NAMED_OBJECTS_MAX: Final = 20
"""Maximum number of changed objects that one line of the audit log lists."""
AuditedHandler = Callable[[Services, Any, RequestContext], Reply[Any]]


def _describe_topics(results: Iterable[Any]) -> ChangeOutcomes:
    return ((partial(_format_topic, each), each.error_code) for each in results)


def _format_topic(result: Any) -> str:
    return str(result.name or result.topic_id.hex())


def _describe_configs(request: Any, response: Any) -> ChangeOutcomes:
    """Describe the configs that a request changes, by resource and config name.

    Values are omitted, because some are passwords.
    """
    from chronik.admin.configs import ConfigResourceType

    requested = {(each.resource_type, each.resource_name): each.configs for each in request.resources}
    for each in response.responses:
        configs = requested.get((each.resource_type, each.resource_name), ())
        yield (
            partial(_format_config, _format_enum(ConfigResourceType, each.resource_type), each.resource_name, configs),
            each.error_code,
        )


def _format_config(kind: str, name: str, configs: Iterable[Any]) -> str:
    return f"{kind} {name}: {','.join(config.name for config in configs)}"


def _format_acl(acl: Any, name: str, pattern_type: int) -> str:
    from chronik.protocol.permissions import (
        AclOperation,
        AclResourceType,
    )  # imported late to keep the start of a node short
    from chronik.security.acls import AclPermission, PatternType

    permission, operation = _format_enum(AclPermission, acl.permission_type), _format_enum(AclOperation, acl.operation)
    resource = f"{_format_enum(PatternType, pattern_type)} {_format_enum(AclResourceType, acl.resource_type)} {name}"
    return f"{permission} {acl.principal} from {acl.host}: {operation} {resource}"


def _format_enum(words: type[IntEnum], number: int) -> str:
    from chronik.security import audit

    return audit.to_kafka_enum_name(words(number)) if number in set(words) else str(number)


def _describe_created_acls(request: Any, response: Any) -> ChangeOutcomes:
    for each, result in zip(request.creations, response.results, strict=True):
        if isinstance(result, bytes):
            return  # all creations failed with the same error, encoded once
        yield partial(_format_acl, each, each.resource_name, each.resource_pattern_type), result.error_code


def _describe_deleted_acls(request: Any, response: Any) -> ChangeOutcomes:
    for result in response.filter_results:
        if isinstance(result, bytes):
            return
        if result.error_code:
            yield str, result.error_code
        for each in result.matching_acls:
            yield partial(_format_acl, each, each.resource_name, each.pattern_type), each.error_code


def _describe_quotas(request: Any, response: Any) -> ChangeOutcomes:
    for each in response.entries:
        yield partial(_format_quota_entity, each), each.error_code


def _format_quota_entity(entry: Any) -> str:
    return ",".join(f"{part.entity_type}={part.entity_name}" for part in entry.entity)


def _describe_by_field(results: Iterable[Any], field: str) -> ChangeOutcomes:
    return ((partial(getattr, each, field), each.error_code) for each in results)


def _describe_partitions(topics: Iterable[Any], prefix: str = "") -> ChangeOutcomes:
    """Describe the partitions that a request changed, from results grouped by topic."""
    for topic in topics:
        for each in topic.partitions:
            yield partial(_format_partition, prefix, topic.name, each.partition_index), each.error_code


def _format_partition(prefix: str, topic: str, index: int) -> str:
    return f"{prefix}{topic}-{index}"


def _describe_deleted_records(request: Any, response: Any) -> ChangeOutcomes:
    for topic in response.topics:
        for each in topic.partitions:
            yield partial(_format_deleted_records, topic.name, each), each.error_code


def _format_deleted_records(topic: str, result: Any) -> str:
    """Describe deleted records by partition and new log start offset, unless the offset is unknown.

    The offset is unknown if replicas did not respond in time.
    """
    log_start = f" before {result.low_watermark}" if result.low_watermark >= 0 else ""
    return f"{topic}-{result.partition_index}{log_start}"


def _describe_reassignments(request: Any, response: Any) -> ChangeOutcomes:
    if response.error_code:
        return
    for topic, result in zip(request.topics, response.responses, strict=True):
        for requested, each in zip(topic.partitions, result.partitions, strict=True):
            yield partial(_format_reassignment, topic.name, requested), each.error_code


def _format_reassignment(topic: str, requested: Any) -> str:
    wanted = "no move" if requested.replicas is None else ",".join(map(str, requested.replicas))
    return f"{topic}-{requested.partition_index} to {wanted}"


def _describe_elections(request: Any, response: Any) -> ChangeOutcomes:
    kind = "unclean " if request.election_type else ""
    for topic in response.replica_election_results:
        for each in topic.partition_result:
            yield partial(_format_partition, kind, topic.topic, each.partition_id), each.error_code


def _describe_features(request: Any, response: Any) -> ChangeOutcomes:
    for each in request.feature_updates:
        yield partial(_format_feature, each), response.error_code


def _format_feature(update: Any) -> str:
    return f"{update.feature}={update.max_version_level}"


def _describe_nodes(request: Any, response: Any) -> ChangeOutcomes:
    if response.error_code:
        return
    for requested, each in zip(request.changes, response.results, strict=True):
        yield partial(_format_node_change, requested), each.error_code


def _format_node_change(requested: Any) -> str:
    from chronik.admin.nodes import NodeAction

    return f"{_format_enum(NodeAction, requested.action)} {requested.node_id}"


def _describe_import(request: Any, response: Any) -> ChangeOutcomes:
    """Describe an import in the audit log by the topics that it creates, or else by its action."""
    if request.topics and not response.error_code:
        yield from ((partial(_format_topic, each), ErrorCode.NONE) for each in request.topics)
    else:
        yield partial(_format_import_action, request), response.error_code


def _format_import_action(request: Any) -> str:
    from chronik.protocol.messages.alter_import import ImportAction

    return f"{_format_enum(ImportAction, request.action)} {request.import_id.hex()}"


def _describe_imported_security(request: Any, response: Any) -> ChangeOutcomes:
    """Describe all imported users, ACLs and quotas; the response does not distinguish new ones from existing ones."""
    for user in request.users:
        yield partial("user {}".format, user.name), response.error_code
    for acl in request.acls:
        yield partial(_format_imported_acl, acl), response.error_code
    for quotas in request.quotas:
        yield partial(_format_imported_quotas, quotas), response.error_code


def _describe_imported_schemas(request: Any, response: Any) -> ChangeOutcomes:
    return ((partial(_format_registry_command, each.data), response.error_code) for each in request.commands)


def _format_registry_command(data: bytes) -> str:
    """Describe an imported entry of the schema registry."""
    from chronik.metadata.commands.schemas import (
        RegisterSchema,
        SetSchemaConfig,
        SetSchemaContext,
        SetSchemaMode,
        decode_importable_command,
    )

    match decode_importable_command(data):
        case RegisterSchema(subject=subject, version=version, schema_id=schema_id):
            return f"version {version} of subject {subject} with schema id {schema_id}"
        case SetSchemaConfig(name=name):
            return f"schema config of {name or 'the default context'}"
        case SetSchemaMode(names=names, mode=mode):
            return f"schema mode {mode} of {', '.join(name or 'the default context' for name in names)}"
        case SetSchemaContext(name=name):
            return f"schema context {name}"


def _format_imported_acl(acl: Any) -> str:
    return f"ACL of {acl.principal} for {acl.name}"


def _format_imported_quotas(quotas: Any) -> str:
    return "quotas of " + ",".join(f"{part.kind}={part.name}" for part in quotas.entity)


def _describe_aborted_transactions(request: Any, response: Any) -> ChangeOutcomes:
    for marker in response.markers:
        yield from _describe_partitions(marker.topics, f"producer {marker.producer_id} in ")


def _describe_commit_hold(request: Any, response: Any) -> ChangeOutcomes:
    yield partial("{} {}".format, "Release" if request.hold else "Hold", response.hold), response.error_code


def _build_describer_by_id(field: str) -> Callable[[Any, Any], ChangeOutcomes]:
    """Return a function that describes a request's only object by its id in the given field."""
    return lambda request, response: [(lambda: str(getattr(request, field)), response.error_code)]


CHANGE_DESCRIBERS: Final[dict[str, Callable[[Any, Any], ChangeOutcomes]]] = {
    "CreateTopics": lambda _, response: _describe_topics(response.topics),
    "DeleteTopics": lambda _, response: _describe_topics(response.responses),
    "CreatePartitions": lambda _, response: _describe_by_field(response.results, "name"),
    "AlterConfigs": _describe_configs,
    "IncrementalAlterConfigs": _describe_configs,
    "CreateAcls": _describe_created_acls,
    "DeleteAcls": _describe_deleted_acls,
    "AlterUserScramCredentials": lambda _, response: _describe_by_field(response.results, "user"),
    "AlterClientQuotas": _describe_quotas,
    "DeleteRecords": _describe_deleted_records,
    "DeleteGroups": lambda _, response: _describe_by_field(response.results, "group_id"),
    "OffsetDelete": lambda request, response: _describe_partitions(response.topics, f"{request.group_id}: "),
    "WriteTxnMarkers": _describe_aborted_transactions,
    "ElectLeaders": _describe_elections,
    "AlterPartitionReassignments": _describe_reassignments,
    "UpdateFeatures": _describe_features,
    "UnregisterBroker": _build_describer_by_id("broker_id"),
    "AddRaftVoter": _build_describer_by_id("voter_id"),
    "RemoveRaftVoter": _build_describer_by_id("voter_id"),
    "AlterNodes": _describe_nodes,
    "AlterImport": _describe_import,
    "HoldCommits": _describe_commit_hold,
    "ImportSecurity": _describe_imported_security,
    "ImportSchemas": _describe_imported_schemas,
}
"""Functions that describe a request's changes for the audit log, by API name.

A test lists the APIs without an entry, and the reasons. The Metadata handler writes auto-created topics to the audit
log itself.
"""


def with_audit_log(api: str, handle: AuditedHandler) -> AuditedHandler:
    """Return a handler that writes each request's changes to the audit log, or `handle` itself for read-only APIs."""
    describe_outcomes = CHANGE_DESCRIBERS.get(api)
    if describe_outcomes is None:
        return handle

    def handle_and_log(services: Services, request: Any, context: RequestContext) -> Reply[Any]:
        def log_response(response: Response | None) -> Response | None:
            if response is not None and not getattr(request, "validate_only", False):
                _log_changes(context, describe_outcomes(request, response))
            return response

        reply = handle(services, request, context)
        reply.add_filter(log_response)
        return reply

    return handle_and_log


def _log_changes(context: RequestContext, outcomes: ChangeOutcomes) -> None:
    """Write the objects that a request changed to the audit log.

    Changes that timed out are included: the controller may complete them after the client has stopped waiting.
    """
    named, changed, failures = list[str](), 0, 0
    for name, code in outcomes:
        if code and code != ErrorCode.REQUEST_TIMED_OUT:
            failures += 1
            continue
        changed += 1
        if len(named) < NAMED_OBJECTS_MAX:
            named.append(f"{name()} (timed out)" if code else name())
    if changed:
        from chronik.security import audit

        audit.log_changes(context.peer, context.api_name, named, changed, failures)
