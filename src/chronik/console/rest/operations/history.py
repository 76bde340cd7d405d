"""The history of metrics: over a time range, of the whole cluster or of single nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from chronik.console.rest.context import OperationContext, build_bad_request_error, build_not_found_error
from chronik.console.rest.models.history import History, HistoryParameters, HistoryValues
from chronik.console.rest.node_interface import NodeInterface
from chronik.console.rest.operations.cluster import require_describe_cluster
from chronik.errors import ChronikError
from chronik.history.aggregation import (
    CombinedSeries,
    TimeRange,
    combine_answers,
    find_left_out,
    plan_range,
    rank_subjects,
)
from chronik.history.metrics import METRICS_BY_NAME, Scope
from chronik.history.series import Subject
from chronik.history.store import HistoryAnswer, HistoryQuery
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.permissions import AclOperation, AclResourceType

METRICS_MAX: Final = 20
"""Maximum number of metrics in a request."""

ANSWER_SECONDS_MAX: Final = 1.0
"""Timeout of a query to another node. A node that does not respond in time is a missing node."""

Answers = dict[int, HistoryAnswer]
"""The answers of nodes, by node id."""


class _Scoped(NamedTuple):
    """The requested metrics of one scope."""

    scope: Scope
    metrics: tuple[str, ...]


def show(context: OperationContext, params: HistoryParameters) -> History:
    """Return the values of metrics over a time range."""
    requested = list(_group_by_scope(params.metrics))
    _check_permissions(context, params, [each.scope for each in requested])
    now_s = context.node.services.clock.now_ms() / 1000
    end_s = now_s if params.end_ms is None else params.end_ms / 1000
    if end_s > now_s + params.range_s:
        raise build_bad_request_error("end_ms is in the future")
    time_range = plan_range(now_s, end_s, params.range_s, params.step_s)
    ids = _list_nodes(context, params.node)
    found = History(time_range.start_s * 1000, time_range.step_s, time_range.points, [], [], [], 0)
    missing: set[int] = set()
    for scope, metrics in requested:
        subjects, left_out = _find_subjects(context, params, scope, ids)
        found.left_out = max(found.left_out, left_out)
        if not subjects:
            continue
        step_s, start, number = time_range.resolution.step_s, time_range.start, time_range.slots
        query = HistoryQuery(scope, metrics, tuple(subjects), None, None, step_s, start, number)
        answers = _query_nodes(context, ids, query)
        missing |= set(ids) - answers.keys()
        found.series += _combine(time_range, scope, answers, by_node=params.by_node or params.node is not None)
    if found.left_out and not context.can_describe_cluster():
        found.left_out = 0  # it also counts what the principal may not describe
    found.missing_nodes = sorted(missing)
    found.nodes = [each for each in ids if each not in missing]
    return found


def _group_by_scope(names: str) -> Iterable[_Scoped]:
    by_scope: dict[Scope, list[str]] = {}
    requested = list(dict.fromkeys(name for name in names.split(",") if name))
    if not 1 <= len(requested) <= METRICS_MAX:
        raise build_bad_request_error(f"metrics: expected 1 to {METRICS_MAX} names, separated by commas")
    for name in requested:
        metric = METRICS_BY_NAME.get(name)
        if metric is None:
            raise build_bad_request_error(f"metrics: unknown metric {name[:50]!r}; see the documentation for all names")
        by_scope.setdefault(metric.scope, []).append(name)
    return [_Scoped(scope, tuple(metrics)) for scope, metrics in by_scope.items()]


def _check_permissions(context: OperationContext, params: HistoryParameters, scopes: Sequence[Scope]) -> None:
    """Raise KafkaError if the principal may not describe what the request names."""
    if params.node is not None or {Scope.NODE, Scope.REPLICAS}.intersection(scopes):
        require_describe_cluster(context)
    named = (
        (params.topic, AclResourceType.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (params.group, AclResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    )
    for name, resource, code in named:
        if name is not None and not context.filter_authorized(AclOperation.DESCRIBE, resource, [name]):
            raise KafkaError(code, name)


def _list_nodes(context: OperationContext, node_id: int | None) -> list[int]:
    """Return the ids of the nodes that are asked: all of the cluster, or only one."""
    services = context.node.services

    async def read() -> list[int]:
        return sorted({*services.image.brokers, services.node_id})

    ids = context.loop_bridge.run(read(), ANSWER_SECONDS_MAX)
    if node_id is None:
        return ids
    if node_id not in ids:
        raise build_not_found_error(f"node {node_id} does not exist in this cluster")
    return [node_id]


def _find_subjects(
    context: OperationContext, params: HistoryParameters, scope: Scope, ids: Sequence[int]
) -> tuple[Sequence[Subject], int]:
    """Return the subjects of the response, and how many of the scope have no history.

    Without a name, these are the busiest ones that the principal may describe.
    """
    if scope in (Scope.NODE, Scope.REPLICAS):
        return [()], 0
    if scope is Scope.TOPIC and params.topic is not None:
        return [(params.topic,)], 0
    if scope is Scope.GROUP and params.group is not None:
        return [(params.group,)], 0
    answers = _query_nodes(context, ids, HistoryQuery(scope, group=params.group, topic=params.topic))
    ranked = _filter_visible(context, scope, rank_subjects(answers.values()))
    return ranked[: params.limit], find_left_out(answers.values())


def _filter_visible(context: OperationContext, scope: Scope, subjects: Sequence[Subject]) -> list[Subject]:
    """Return the subjects whose groups and topics the principal may describe."""
    groups = {subject[0] for subject in subjects} if scope is not Scope.TOPIC else set()
    topics = {subject[-1] for subject in subjects} if scope is not Scope.GROUP else set()
    visible_groups = set(context.filter_authorized(AclOperation.DESCRIBE, AclResourceType.GROUP, sorted(groups)))
    visible_topics = set(context.filter_authorized(AclOperation.DESCRIBE, AclResourceType.TOPIC, sorted(topics)))
    return [
        subject
        for subject in subjects
        if (scope is Scope.TOPIC or subject[0] in visible_groups)
        and (scope is Scope.GROUP or subject[-1] in visible_topics)
    ]


def _query_nodes(context: OperationContext, ids: Sequence[int], query: HistoryQuery) -> Answers:
    """Return the answers of the nodes to a query. Nodes that do not respond are omitted."""
    return context.loop_bridge.run(_gather_answers(context.node, ids, query), 3 * ANSWER_SECONDS_MAX)


async def _gather_answers(side: NodeInterface, ids: Sequence[int], query: HistoryQuery) -> Answers:
    encoded = msgspec.msgpack.encode(query)

    async def query_node(node_id: int) -> HistoryAnswer | None:
        find_history = side.services.find_history
        try:
            if node_id != side.services.node_id:
                answer = await side.other_nodes.query_history(node_id, encoded, ANSWER_SECONDS_MAX)
                return msgspec.msgpack.decode(answer, type=HistoryAnswer)
            return None if find_history is None else await find_history(query)
        except (ChronikError, LookupError, msgspec.DecodeError):
            return None

    found = await asyncio.gather(*map(query_node, ids))
    return {node_id: answer for node_id, answer in zip(ids, found, strict=True) if answer is not None}


def _combine(
    time_range: TimeRange, scope: Scope, answers: Mapping[int, HistoryAnswer], *, by_node: bool
) -> list[HistoryValues]:
    if not by_node:
        return [_to_values(scope, each, None) for each in combine_answers(time_range, answers.values())]
    return [
        _to_values(scope, each, node_id)
        for node_id, answer in answers.items()
        for each in combine_answers(time_range, [answer])
    ]


def _to_values(scope: Scope, series: CombinedSeries, node_id: int | None) -> HistoryValues:
    subject = series.subject
    return HistoryValues(
        series.metric,
        METRICS_BY_NAME[series.metric].unit,
        node_id,
        subject[0] if scope in (Scope.GROUP, Scope.GROUP_TOPIC) else None,
        subject[-1] if scope in (Scope.TOPIC, Scope.GROUP_TOPIC) else None,
        series.is_partial,
        series.values,
    )
