"""Requests of unauthenticated connections do not count against quotas: they could claim any client id."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from chronik.api.routing.router import Router
from chronik.api.shared.context import RequestContext
from chronik.protocol.codec import RequestHeader
from chronik.request_reply import ConnectedClient


def test_unauthenticated_connection_uses_no_quota() -> None:
    lookups: list[tuple[str, str]] = []
    router = SimpleNamespace(limiter=SimpleNamespace(usage=lambda *who: lookups.append(who)))
    for is_let_in in (False, True):
        context = RequestContext(0, "payments", ConnectedClient("127.0.0.1", 1, 1, is_authenticated=is_let_in))
        header = RequestHeader(18, 0, 1, "payments")
        assert Router._with_quota_usage(cast(Any, router), header, context, 10, 1.0) is context
    assert lookups == [("ANONYMOUS", "payments")]
