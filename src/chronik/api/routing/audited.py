"""Which requests have changed what: the audit log has a line for each that changed topics, configs, ACLs, users or
quotas, in part or in whole."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from enum import IntEnum
from functools import partial
from typing import Any, Final

from chronik.api.shared.context import Context, Pipelined, Services
from chronik.api.shared.long_answers import Long
from chronik.protocol.errors import ErrorCode
from chronik.protocol.schema import Response

Outcomes = Iterable[tuple[Callable[[], str], int]]
"""What a request was to change, each with its error code. It is put into words only if it is told."""
NAMED_MAX: Final = 20
"""Things that a line has room for, if their names are short."""
Handle = Callable[[Services, Any, Context], Any]


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
            yield partial(_acl, each, each.resource_name, each.pattern_type), ErrorCode.NONE


def _quotas(request: Any, response: Any) -> Outcomes:
    for each in response.entries:
        yield partial(_quota, each), each.error_code


def _quota(entry: Any) -> str:
    return ",".join(f"{part.entity_type}={part.entity_name}" for part in entry.entity)


def _named(results: Iterable[Any], field: str) -> Outcomes:
    return ((partial(getattr, each, field), each.error_code) for each in results)


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
}
"""By API, also those that this version does not speak yet."""


def audited(api: str, handle: Handle) -> Handle:
    """Returns a handler that tells what was changed, when it is; the same one where nothing ever is."""
    outcomes_of = CHANGES.get(api)
    if outcomes_of is None:
        return handle

    async def handle_and_tell(services: Services, request: Any, context: Context) -> Any:
        outcome = handle(services, request, context)
        if isinstance(outcome, Pipelined):
            outcome = await outcome.response
        elif isinstance(outcome, Awaitable):
            outcome = await outcome
        response = outcome.response if isinstance(outcome, Long) else outcome
        if isinstance(response, Response) and not getattr(request, "validate_only", False):
            _tell(context, outcomes_of(request, response))
        return outcome

    return handle_and_tell


def _tell(context: Context, outcomes: Outcomes) -> None:
    named, changed, failures = list[str](), 0, 0
    for name, code in outcomes:
        if code:
            failures += 1
            continue
        changed += 1
        if len(named) < NAMED_MAX:
            named.append(name())
    if changed:
        from chronik.security import audit

        audit.changed(context.peer, context.api, named, changed, failures)
