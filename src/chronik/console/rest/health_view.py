"""The problems of the cluster, as far as a principal may see their names."""

from __future__ import annotations

from typing import Final

import msgspec

from chronik.console.rest.context import OperationContext
from chronik.console.rest.models.cluster import Health
from chronik.health.problems import SubjectType, find_subject_type, hide_subjects
from chronik.health.reports import HealthReport
from chronik.metadata.names import PIPELINES_TOPIC
from chronik.protocol.permissions import AclOperation, AclResourceType

HEALTH_SECONDS_MAX: Final = 3.0


def fetch_health(context: OperationContext) -> HealthReport | None:
    """Return the problems of the cluster, or None if this node does not know them."""
    find_health = context.node.services.find_health
    if find_health is None:
        return None
    try:
        report: HealthReport | None = context.loop_bridge.run(_await_health(context), HEALTH_SECONDS_MAX)
    except TimeoutError:
        report = context.node.services.latest_health()
    try:
        return None if report is None else _hide_names(context, report)
    except TimeoutError:
        return None  # the event loop is overloaded: show nothing rather than names that the principal may not see


async def _await_health(context: OperationContext) -> HealthReport:
    find_health = context.node.services.find_health
    assert find_health is not None
    return await find_health()


def _hide_names(context: OperationContext, report: HealthReport) -> HealthReport:
    by_type: dict[SubjectType, list[str]] = {}
    for problem in report.problems:
        found = find_subject_type(problem)
        if found is not None:
            by_type.setdefault(found, []).append(problem.subject)
    visible = {found: set(_filter_visible(context, found, names)) for found, names in by_type.items()}
    problems = hide_subjects(
        report.problems,
        lambda each: (found := find_subject_type(each)) is None or each.subject in visible[found],
    )
    return msgspec.structs.replace(report, problems=problems)


def _filter_visible(context: OperationContext, subject_type: SubjectType, names: list[str]) -> list[str]:
    if subject_type is SubjectType.PIPELINE:
        can_read = context.filter_authorized(AclOperation.READ, AclResourceType.TOPIC, [PIPELINES_TOPIC])
        return names if can_read else []
    is_group = subject_type is SubjectType.GROUP
    resource = AclResourceType.GROUP if is_group else AclResourceType.TRANSACTIONAL_ID
    return context.filter_authorized(AclOperation.DESCRIBE, resource, names)


def find_lag_starts(context: OperationContext) -> dict[str, int]:
    """Return, by group, the time in ms since which its lag is a problem. Groups that are not visible are omitted."""
    report = fetch_health(context)
    starts: dict[str, int] = {}
    for problem in report.problems if report is not None else ():
        if problem.subject and find_subject_type(problem) is SubjectType.GROUP:
            since_ms = round(problem.since_s * 1000)
            starts[problem.subject] = min(since_ms, starts.get(problem.subject, since_ms))
    return starts


def build_health(report: HealthReport) -> Health:
    """Return the model of a health report."""
    return msgspec.convert(report.to_json(), Health)
