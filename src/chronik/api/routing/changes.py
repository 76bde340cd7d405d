"""What requests have changed, in words, by API: of each that changes what administrators have set up."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum
from functools import partial
from typing import Any, Final

from chronik.protocol.errors import ErrorCode

Outcomes = Iterable[tuple[Callable[[], str], int]]
"""What a request was to change, each with its error code. It is put into words only if it is told."""


def _topics(results: Iterable[Any]) -> Outcomes:
    return ((partial(_topic, each), each.error_code) for each in results)


def _topic(result: Any) -> str:
    return str(result.name or result.topic_id.hex())


def _configs(request: Any, response: Any) -> Outcomes:
    """Names the keys as well, never the values: some are passwords."""
    from chronik.admin.configs import ResourceType

    asked = {(each.resource_type, each.resource_name): each.configs for each in request.resources}
    for each in response.responses:
        configs = asked.get((each.resource_type, each.resource_name), ())
        yield partial(_config, _word(ResourceType, each.resource_type), each.resource_name, configs), each.error_code


def _config(kind: str, name: str, configs: Iterable[Any]) -> str:
    return f"{kind} {name}: {','.join(config.name for config in configs)}"


def _acl(acl: Any, name: str, pattern_type: int) -> str:
    from chronik.protocol.permissions import Operation, ResourceType  # a node starts without all these
    from chronik.security.acls import PatternType, Permission

    permission, operation = _word(Permission, acl.permission_type), _word(Operation, acl.operation)
    resource = f"{_word(PatternType, pattern_type)} {_word(ResourceType, acl.resource_type)} {name}"
    return f"{permission} {acl.principal} from {acl.host}: {operation} {resource}"


def _word(words: type[IntEnum], number: int) -> str:
    from chronik.security import audit

    return audit.worded(words(number)) if number in set(words) else str(number)


def _created_acls(request: Any, response: Any) -> Outcomes:
    for each, result in zip(request.creations, response.results, strict=True):
        if isinstance(result, bytes):
            return  # all are refused, in as many copies of one answer
        yield partial(_acl, each, each.resource_name, each.resource_pattern_type), result.error_code


def _deleted_acls(request: Any, response: Any) -> Outcomes:
    for result in response.filter_results:
        if isinstance(result, bytes):
            return
        if result.error_code:
            yield str, result.error_code
        for each in result.matching_acls:
            yield partial(_acl, each, each.resource_name, each.pattern_type), each.error_code


def _quotas(request: Any, response: Any) -> Outcomes:
    for each in response.entries:
        yield partial(_quota, each), each.error_code


def _quota(entry: Any) -> str:
    return ",".join(f"{part.entity_type}={part.entity_name}" for part in entry.entity)


def _named(results: Iterable[Any], field: str) -> Outcomes:
    return ((partial(getattr, each, field), each.error_code) for each in results)


def _partitions(topics: Iterable[Any], before: str = "") -> Outcomes:
    """Of results by topic and partition, as most APIs have them."""
    for topic in topics:
        for each in topic.partitions:
            yield partial(_partition, before, topic.name, each.partition_index), each.error_code


def _partition(before: str, topic: str, index: int) -> str:
    return f"{before}{topic}-{index}"


def _deleted_records(request: Any, response: Any) -> Outcomes:
    for topic in response.topics:
        for each in topic.partitions:
            yield partial(_deleted_up_to, topic.name, each), each.error_code


def _deleted_up_to(topic: str, result: Any) -> str:
    """Where the log begins now is not known while replicas are waited for."""
    begins = f" before {result.low_watermark}" if result.low_watermark >= 0 else ""
    return f"{topic}-{result.partition_index}{begins}"


def _reassigned(request: Any, response: Any) -> Outcomes:
    if response.error_code:
        return
    for topic, result in zip(request.topics, response.responses, strict=True):
        for asked, each in zip(topic.partitions, result.partitions, strict=True):
            yield partial(_replicas, topic.name, asked), each.error_code


def _replicas(topic: str, asked: Any) -> str:
    wanted = "no move" if asked.replicas is None else ",".join(map(str, asked.replicas))
    return f"{topic}-{asked.partition_index} to {wanted}"


def _elected(request: Any, response: Any) -> Outcomes:
    kind = "unclean " if request.election_type else ""
    for topic in response.replica_election_results:
        for each in topic.partition_result:
            yield partial(_partition, kind, topic.topic, each.partition_id), each.error_code


def _features(request: Any, response: Any) -> Outcomes:
    for each in request.feature_updates:
        yield partial(_feature, each), response.error_code


def _feature(update: Any) -> str:
    return f"{update.feature}={update.max_version_level}"


def _nodes(request: Any, response: Any) -> Outcomes:
    if response.error_code:
        return
    for asked, each in zip(request.changes, response.results, strict=True):
        yield partial(_node, asked), each.error_code


def _node(asked: Any) -> str:
    from chronik.admin.nodes import Action

    return f"{_word(Action, asked.action)} {asked.node_id}"


def _import(request: Any, response: Any) -> Outcomes:
    """Names the topics of an import as they are made."""
    if request.topics and not response.error_code:
        yield from ((partial(_topic, each), ErrorCode.NONE) for each in request.topics)
    else:
        yield partial(_step_of_import, request), response.error_code


def _step_of_import(request: Any) -> str:
    from chronik.protocol.messages.alter_import import ImportAction

    return f"{_word(ImportAction, request.action)} {request.import_id.hex()}"


def _imported_security(request: Any, response: Any) -> Outcomes:
    """Names all that were asked for: the answer does not say which of them were there before."""
    for user in request.users:
        yield partial("user {}".format, user.name), response.error_code
    for acl in request.acls:
        yield partial(_acl_moved, acl), response.error_code
    for quotas in request.quotas:
        yield partial(_quotas_moved, quotas), response.error_code


def _acl_moved(acl: Any) -> str:
    return f"ACL of {acl.principal} for {acl.name}"


def _quotas_moved(quotas: Any) -> str:
    return "quotas of " + ",".join(f"{part.kind}={part.name}" for part in quotas.entity)


def _aborted(request: Any, response: Any) -> Outcomes:
    for marker in response.markers:
        yield from _partitions(marker.topics, f"producer {marker.producer_id} in ")


def _held(request: Any, response: Any) -> Outcomes:
    yield partial("{} {}".format, "Release" if request.hold else "Hold", response.hold), response.error_code


def _numbered(field: str) -> Callable[[Any, Any], Outcomes]:
    """Of an API that changes one thing, which has a number."""
    return lambda request, response: [(lambda: str(getattr(request, field)), response.error_code)]


CHANGES: Final[dict[str, Callable[[Any, Any], Outcomes]]] = {
    "CreateTopics": lambda _, response: _topics(response.topics),
    "DeleteTopics": lambda _, response: _topics(response.responses),
    "CreatePartitions": lambda _, response: _named(response.results, "name"),
    "AlterConfigs": _configs,
    "IncrementalAlterConfigs": _configs,
    "CreateAcls": _created_acls,
    "DeleteAcls": _deleted_acls,
    "AlterUserScramCredentials": lambda _, response: _named(response.results, "user"),
    "AlterClientQuotas": _quotas,
    "DeleteRecords": _deleted_records,
    "DeleteGroups": lambda _, response: _named(response.results, "group_id"),
    "OffsetDelete": lambda request, response: _partitions(response.topics, f"{request.group_id}: "),
    "WriteTxnMarkers": _aborted,
    "ElectLeaders": _elected,
    "AlterPartitionReassignments": _reassigned,
    "UpdateFeatures": _features,
    "UnregisterBroker": _numbered("broker_id"),
    "AddRaftVoter": _numbered("voter_id"),
    "RemoveRaftVoter": _numbered("voter_id"),
    "AlterNodes": _nodes,
    "AlterImport": _import,
    "HoldCommits": _held,
    "ImportSecurity": _imported_security,
}
"""Each API is here, or among those that a test names with the reason why nobody has to be told of them. Metadata tells
of the topics that it makes by itself."""
