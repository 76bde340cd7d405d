"""The problems of the cluster, as far as a principal may see their names."""

from __future__ import annotations

from typing import Final

import msgspec

from chronik.console.rest.context import OperationContext
from chronik.console.rest.models.cluster import Health
from chronik.health.problems import hide_subjects
from chronik.health.reports import HealthReport
from chronik.metadata.names import PIPELINES_TOPIC
from chronik.protocol.permissions import AclOperation, AclResourceType

HEALTH_SECONDS_MAX: Final = 3.0

_RESOURCES: Final = {
    "lagging-group": AclResourceType.GROUP,
    "steady-lag": AclResourceType.GROUP,
    "stopped-group": AclResourceType.GROUP,
    "long-transaction": AclResourceType.TRANSACTIONAL_ID,
}
"""The resource type of the subjects of problems that not everyone who may describe the cluster may see."""

_PIPELINE_KINDS: Final = ("failing-pipeline", "silent-pipeline", "lagging-pipeline")


def fetch_health(context: OperationContext) -> HealthReport | None:
    """Return the problems of the cluster, or None if this node does not know them."""
    find_health = context.node.services.find_health
    if find_health is None:
        return None
    try:
        report: HealthReport | None = context.loop_bridge.run(_await_health(context), HEALTH_SECONDS_MAX)
    except TimeoutError:
        report = context.node.services.latest_health()
    return None if report is None else _hide_names(context, report)


async def _await_health(context: OperationContext) -> HealthReport:
    find_health = context.node.services.find_health
    assert find_health is not None
    return await find_health()


def _hide_names(context: OperationContext, report: HealthReport) -> HealthReport:
    visible: dict[AclResourceType, set[str]] = {}
    for resource in set(_RESOURCES.values()):
        names = [each.subject for each in report.problems if _RESOURCES.get(each.kind) is resource]
        visible[resource] = set(context.filter_authorized(AclOperation.DESCRIBE, resource, names)) if names else set()
    can_read_pipelines = not any(each.kind in _PIPELINE_KINDS for each in report.problems) or bool(
        context.filter_authorized(AclOperation.READ, AclResourceType.TOPIC, [PIPELINES_TOPIC])
    )
    problems = hide_subjects(
        report.problems,
        lambda each: (
            each.subject in visible[_RESOURCES[each.kind]]
            if each.kind in _RESOURCES
            else can_read_pipelines or each.kind not in _PIPELINE_KINDS
        ),
    )
    return msgspec.structs.replace(report, problems=problems)


def build_health(report: HealthReport) -> Health:
    """Return the model of a health report."""
    return msgspec.convert(report.to_json(), Health)
