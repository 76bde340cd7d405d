"""Which requests have changed what: the audit log has a line for each that changed something, in part or in whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from chronik.api.routing.changes import CHANGES, Outcomes
from chronik.api.shared.context import Context, Services
from chronik.exchange import Reply
from chronik.protocol.errors import ErrorCode
from chronik.protocol.schema import Response

NAMED_MAX: Final = 20
"""Things that a line has room for, if their names are short."""
Handle = Callable[[Services, Any, Context], Reply[Any]]


def audited(api: str, handle: Handle) -> Handle:
    """Return a handler that logs what each request has changed; the same handler for APIs that change nothing."""
    outcomes_of = CHANGES.get(api)
    if outcomes_of is None:
        return handle

    def handle_and_log(services: Services, request: Any, context: Context) -> Reply[Any]:
        def log(response: Response | None) -> Response | None:
            if response is not None and not getattr(request, "validate_only", False):
                _tell(context, outcomes_of(request, response))
            return response

        reply = handle(services, request, context)
        reply.filter(log)
        return reply

    return handle_and_log


def _tell(context: Context, outcomes: Outcomes) -> None:
    """What took longer than its client would wait is told as well: it may be done by now, and a client may wait for
    nothing at all."""
    named, changed, failures = list[str](), 0, 0
    for name, code in outcomes:
        if code and code != ErrorCode.REQUEST_TIMED_OUT:
            failures += 1
            continue
        changed += 1
        if len(named) < NAMED_MAX:
            named.append(f"{name()} (timed out)" if code else name())
    if changed:
        from chronik.security import audit

        audit.changed(context.peer, context.api, named, changed, failures)
