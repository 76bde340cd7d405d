"""Audit log of administrative requests: one line for each request that changed anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from chronik.api.routing.audit_descriptions import CHANGE_DESCRIBERS, ChangeOutcomes
from chronik.api.shared.context import RequestContext, Services
from chronik.protocol.errors import ErrorCode
from chronik.protocol.schema import Response
from chronik.request_reply import Reply

NAMED_OBJECTS_MAX: Final = 20
"""Changed objects that an audit line names, if their names are short."""
AuditedHandler = Callable[[Services, Any, RequestContext], Reply[Any]]


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
    """Write the changed objects of a request to the audit log.

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
